"""What a person wants to know about a Run, kept up to date event by event: a fold over the journal."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TypeVar

from evopolicygym.record.events import FieldValue, RunEvent

Fields = Mapping[str, FieldValue]
T = TypeVar("T")

_ERRORS_KEPT = 50

EPISODE_EVENTS = frozenset({"episode_completed", "validation_episode_completed", "assessment_episode_completed"})
"""The events that may come by the thousand a second."""


@dataclass(slots=True)
class SubmissionRow:
    """One Submission, from its first Episode on.

    Args:
        state: ``"running"``, ``"published"`` or ``"failed"``.
        change: score minus the best score before it, positive if it is better; None for the first.
    """

    submission_id: str
    episodes: int
    selector: str = ""
    program_digest: str = ""
    state: str = "running"
    score: float | None = None
    policy_failures: int | None = None
    seconds: float | None = None
    change: float | None = None
    started_ns: int = 0


@dataclass(slots=True)
class CandidateRow:
    """One candidate of the Validation."""

    submission_id: str
    score: float | None = None
    policy_failures: int | None = None
    seconds: float | None = None


@dataclass(slots=True)
class Progress:
    """Episodes of the Evaluation that runs now."""

    title: str
    planned: int
    completed: int = 0
    failed: int = 0
    started_ns: int = 0


@dataclass(slots=True)
class RunView:
    """The state of one Run, as told by its events so far; no event and no field is required to be there."""

    phase: str = "preparing"
    benchmark_id: str = ""
    agent: str = ""
    split: str = ""
    seed_strength: str = ""
    program_digest: str = ""
    primary_metric: str = "score"
    score_direction: str = "maximize"
    pool_size: int = 0
    episode_budget: int = 0
    episodes_remaining: int = 0
    max_submissions: int = 0
    agent_timeout_seconds: float = 0.0
    validation_episodes: int | None = None
    assessment_episodes: int | None = None
    started_unix_ns: int = 0
    ended_unix_ns: int = 0
    agent_started_ns: int | None = None
    agent_seconds: float | None = None
    agent_end: str | None = None
    agent_resumable: bool = False
    agent_message: str | None = None
    attempt: int = 1
    turns: int | None = None
    tool_calls: int | None = None
    input_tokens: int | None = None
    cached_tokens: int | None = None
    output_tokens: int | None = None
    cost_usd: float | None = None
    last_action: str | None = None
    submissions: dict[str, SubmissionRow] = field(default_factory=dict)
    running: Progress | None = None
    refusals: int = 0
    last_refusal: str | None = None
    policy_failures: dict[str, int] = field(default_factory=dict)
    candidates: tuple[str, ...] = ()
    handed_off_by: str | None = None
    validation: dict[str, CandidateRow] = field(default_factory=dict)
    validation_split: str | None = None
    selected: str | None = None
    selected_by: str | None = None
    assessment_split: str | None = None
    assessment_score: float | None = None
    assessment_failures: int | None = None
    assessment_seconds: float | None = None
    notices: list[str] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)
    interrupted: bool = False
    terminal_reason: str | None = None

    def apply(self, event: RunEvent) -> None:
        """Take one event in; unknown ones change nothing."""
        if not self.started_unix_ns:
            self.started_unix_ns = event.time_unix_ns
        handler = _HANDLERS.get(event.name)
        if handler is not None:
            handler(self, event.fields, event)

    def count_episodes(self, number: int) -> None:
        """Take in so many Episodes of the running Evaluation that ended without a failure."""
        if self.running is not None:
            self.running.completed += number

    @property
    def maximizes(self) -> bool:
        """Whether a higher score is better."""
        return self.score_direction != "minimize"

    @property
    def published(self) -> list[SubmissionRow]:
        """Published Submissions in their order."""
        return [row for row in self.submissions.values() if row.score is not None]

    @property
    def best(self) -> SubmissionRow | None:
        """The Submission with the best training score; the earliest of several."""
        rows = self.published
        if not rows:
            return None
        sign = 1 if self.maximizes else -1
        return max(rows, key=lambda row: sign * (row.score or 0.0))

    def is_better(self, row: SubmissionRow, than: SubmissionRow) -> bool:
        """Whether a published Submission has a strictly better score than another."""
        if row.score is None or than.score is None:
            return than.score is None and row.score is not None
        return row.score > than.score if self.maximizes else row.score < than.score

    def add_published(self, row: SubmissionRow, episodes_remaining: int | None) -> None:
        """Add a Submission that no event told of, as the latest one."""
        best = self.best
        row.state = "published"
        row.change = self._change(row.score, best)
        self.submissions[row.submission_id] = row
        if episodes_remaining is not None:
            self.episodes_remaining = episodes_remaining

    def add_validated(self, submission_id: str, score: float | None, policy_failures: int | None) -> None:
        """Add a candidate of the Validation that no event told of."""
        self.validation[submission_id] = CandidateRow(submission_id, score, policy_failures)

    def _change(self, score: float | None, best: SubmissionRow | None) -> float | None:
        if score is None or best is None or best.score is None:
            return None
        return score - best.score if self.maximizes else best.score - score

    @property
    def initial_score(self) -> float | None:
        """Training score of the unchanged initial Program, if it was ever submitted."""
        for row in self.published:
            if row.program_digest == self.program_digest:
                return row.score
        return None

    @property
    def episodes_used(self) -> int:
        """Episodes charged so far."""
        return self.episode_budget - self.episodes_remaining

    @property
    def total_policy_failures(self) -> int:
        """Policy failures over all Episodes seen."""
        return sum(self.policy_failures.values())

    # One method an event.

    def _run_started(self, fields: Fields, event: RunEvent) -> None:
        self.started_unix_ns = event.time_unix_ns
        self.benchmark_id = _text(fields, "benchmark_id")
        self.agent = _text(fields, "agent")
        self.split = _text(fields, "split")
        self.seed_strength = _text(fields, "seed_strength")
        self.program_digest = _text(fields, "program_digest")
        self.primary_metric = _text(fields, "primary_metric") or "score"
        self.score_direction = _text(fields, "score_direction") or "maximize"
        self.pool_size = _int(fields, "pool_size") or 0
        self.episode_budget = self.episodes_remaining = _int(fields, "episode_budget") or 0
        self.max_submissions = _int(fields, "max_submissions") or 0
        self.agent_timeout_seconds = _float(fields, "agent_timeout_seconds") or 0.0
        self.validation_episodes = _int(fields, "validation_episodes")
        self.assessment_episodes = _int(fields, "assessment_episodes")

    def _agent_started(self, fields: Fields, event: RunEvent) -> None:
        self.phase = "agent"
        self.attempt = _int(fields, "attempt") or 1
        self.agent_started_ns = event.monotonic_ns
        self.agent_seconds = self.agent_end = self.agent_message = None
        self.agent_resumable = False

    def _agent_event(self, fields: Fields, _event: RunEvent) -> None:
        for name in ("turns", "tool_calls", "input_tokens", "cached_tokens", "output_tokens"):
            setattr(self, name, _latest(_int(fields, name), getattr(self, name)))
        self.cost_usd = _latest(_float(fields, "cost_usd"), self.cost_usd)
        self.last_action = _text(fields, "last_action") or self.last_action

    def _agent_ended(self, fields: Fields, _event: RunEvent) -> None:
        self.phase = "selection"
        self.running = None
        self.agent_started_ns = None
        self.agent_seconds = _float(fields, "seconds")
        self.agent_end = _text(fields, "reason")
        self.agent_resumable = fields.get("resumable") is True
        self.agent_message = _text(fields, "message") or None

    def _evaluation_started(self, fields: Fields, event: RunEvent) -> None:
        name = _text(fields, "submission_id")
        count = _int(fields, "episode_count") or 0
        self.episodes_remaining = _int(fields, "episodes_remaining") or 0
        self.submissions[name] = SubmissionRow(
            name,
            count,
            selector=_text(fields, "episodes"),
            program_digest=_text(fields, "program_digest"),
            started_ns=event.monotonic_ns,
        )
        self.running = Progress(name, count, started_ns=event.monotonic_ns)

    def _episode_completed(self, fields: Fields, _event: RunEvent) -> None:
        failure = fields.get("failure")
        if failure is not None:
            code = str(failure)
            self.policy_failures[code] = self.policy_failures.get(code, 0) + 1
        if self.running is not None:
            self.running.completed += 1
            self.running.failed += failure is not None

    def _submission_published(self, fields: Fields, _event: RunEvent) -> None:
        name = _text(fields, "submission_id")
        row = self.submissions.setdefault(name, SubmissionRow(name, _int(fields, "episodes_used") or 0))
        best = self.best
        row.state = "published"
        row.program_digest = _text(fields, "program_digest") or row.program_digest
        score = _float(fields, "score")
        row.change = self._change(score, best)
        row.score = score
        row.policy_failures = _int(fields, "policy_failures")
        row.seconds = _float(fields, "seconds")
        self.episodes_remaining = _latest(_int(fields, "episodes_remaining"), self.episodes_remaining)
        self.running = None

    def _evaluation_failed(self, fields: Fields, _event: RunEvent) -> None:
        row = self.submissions.get(_text(fields, "submission_id"))
        if row is not None:
            row.state = "failed"
        self.running = None
        if fields.get("reason") != "cancelled":
            self._fault(_text(fields, "message"))

    def _refused(self, fields: Fields, _event: RunEvent) -> None:
        self.refusals += 1
        self.last_refusal = f"{_text(fields, 'code')}: {_text(fields, 'message')}"

    def _finish_requested(self, fields: Fields, _event: RunEvent) -> None:
        self.candidates = _names(fields, "candidate_submission_ids")
        self.handed_off_by = _text(fields, "handed_off_by") or None

    def _validation_started(self, fields: Fields, event: RunEvent) -> None:
        self.phase = "validation"
        self.validation_split = _text(fields, "split")
        self.validation_episodes = _int(fields, "episodes_per_candidate")
        names = _names(fields, "candidate_submission_ids")
        # A Validation that goes on after a resume does not repeat what is complete.
        self.validation = {name: self.validation.get(name, CandidateRow(name)) for name in names}
        owed = sum(row.score is None for row in self.validation.values())
        planned = owed * (self.validation_episodes or 0)
        self.running = Progress("Validation", planned, started_ns=event.monotonic_ns)

    def _validation_candidate_completed(self, fields: Fields, _event: RunEvent) -> None:
        name = _text(fields, "submission_id")
        self.validation[name] = CandidateRow(
            name, _float(fields, "score"), _int(fields, "policy_failures"), _float(fields, "seconds")
        )

    def _candidate_selected(self, fields: Fields, _event: RunEvent) -> None:
        self.running = None
        self.selected = _text(fields, "submission_id")
        self.selected_by = _text(fields, "selected_by")

    def _assessment_started(self, fields: Fields, event: RunEvent) -> None:
        self.phase = "assessment"
        self.assessment_split = _text(fields, "split")
        self.assessment_episodes = _int(fields, "episodes")
        self.running = Progress("Assessment", self.assessment_episodes or 0, started_ns=event.monotonic_ns)

    def _assessment_completed(self, fields: Fields, _event: RunEvent) -> None:
        self.running = None
        self.assessment_score = _float(fields, "score")
        self.assessment_failures = _int(fields, "policy_failures")
        self.assessment_seconds = _float(fields, "seconds")

    def _phase_failed(self, fields: Fields, event: RunEvent) -> None:
        self.running = None
        self._fault(f"{event.name.removesuffix('_failed').capitalize()} failed: {_text(fields, 'message')}")

    def _notice(self, fields: Fields, _event: RunEvent) -> None:
        self.notices.append(_text(fields, "message"))
        del self.notices[:-_ERRORS_KEPT]

    def _interrupted(self, _fields: Fields, _event: RunEvent) -> None:
        self.interrupted = True

    def _run_resumed(self, fields: Fields, _event: RunEvent) -> None:
        self.attempt = _int(fields, "attempt") or self.attempt
        self.running = None
        self.agent_started_ns = None
        self.terminal_reason = None
        self.interrupted = False
        for row in self.submissions.values():
            if row.state == "running":
                row.state = "failed"
        for text in _names(fields, "overrides"):
            self._override(*text.split("=", 1))

    def _override(self, limit: str, value: str = "") -> None:
        """A limit that was changed when the Run was resumed."""
        if limit == "episode_budget" and value.isdecimal():
            self.episodes_remaining = max(0, self.episodes_remaining + int(value) - self.episode_budget)
            self.episode_budget = int(value)
        elif limit == "max_submissions" and value.isdecimal():
            self.max_submissions = int(value)
        elif limit == "agent_timeout_seconds":
            try:
                self.agent_timeout_seconds = float(value)
            except ValueError:
                return  # a damaged line

    def _run_committed(self, fields: Fields, event: RunEvent) -> None:
        self.phase = "ended"
        self.running = None
        self.ended_unix_ns = event.time_unix_ns
        self.terminal_reason = _text(fields, "terminal_reason")

    def _fault(self, message: str) -> None:
        self.faults.append(message)
        del self.faults[:-_ERRORS_KEPT]


_HANDLERS: Mapping[str, Callable[[RunView, Fields, RunEvent], None]] = {
    "run_started": RunView._run_started,
    "agent_started": RunView._agent_started,
    "agent_event": RunView._agent_event,
    "agent_ended": RunView._agent_ended,
    "evaluation_started": RunView._evaluation_started,
    "episode_completed": RunView._episode_completed,
    "submission_published": RunView._submission_published,
    "evaluation_failed": RunView._evaluation_failed,
    "submission_refused": RunView._refused,
    "finish_refused": RunView._refused,
    "finish_requested": RunView._finish_requested,
    "validation_started": RunView._validation_started,
    "validation_episode_completed": RunView._episode_completed,
    "validation_candidate_completed": RunView._validation_candidate_completed,
    "validation_failed": RunView._phase_failed,
    "candidate_selected": RunView._candidate_selected,
    "assessment_started": RunView._assessment_started,
    "assessment_episode_completed": RunView._episode_completed,
    "assessment_completed": RunView._assessment_completed,
    "assessment_failed": RunView._phase_failed,
    "notice": RunView._notice,
    "interrupted": RunView._interrupted,
    "run_resumed": RunView._run_resumed,
    "run_committed": RunView._run_committed,
}


def sparkline(values: list[float], *, width: int) -> str:
    """A row of block characters, the lowest value as the lowest block; the latest ``width`` values."""
    shown = values[-width:] if width > 0 else []
    if not shown:
        return ""
    low, high = min(shown), max(shown)
    if high <= low:
        return "▄" * len(shown)
    blocks = "▁▂▃▄▅▆▇█"
    return "".join(blocks[round((value - low) / (high - low) * (len(blocks) - 1))] for value in shown)


def _text(fields: Fields, name: str) -> str:
    value = fields.get(name)
    return "" if value is None else str(value)


def _int(fields: Fields, name: str) -> int | None:
    value = fields.get(name)
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _float(fields: Fields, name: str) -> float | None:
    value = fields.get(name)
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None


def _names(fields: Fields, name: str) -> tuple[str, ...]:
    value = fields.get(name)
    return tuple(map(str, value)) if isinstance(value, tuple | list) else ()


def _latest(new: T | None, old: T) -> T:
    return old if new is None else new
