"""The rules of the budget: pure functions of limits and state; the state is a fold over journal events."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, Literal, TypeAlias

from evopolicygym.results import format_submission_id
from evopolicygym.selector import SelectorError, format_selector, parse_ranges
from evopolicygym.session.protocol import ErrorCode, Refusal

__all__ = [
    "AdmittedSubmission",
    "FinishBudgetPolicy",
    "LedgerLimits",
    "LedgerState",
    "Refusal",
    "SubmissionEntry",
    "SubmissionStatus",
    "admit_finish",
    "admit_submission",
    "failed_submission",
    "find_submission",
    "refuse_if_running",
]

FinishBudgetPolicy: TypeAlias = Literal["allow_early", "require_budget_exhaustion"]
SubmissionStatus: TypeAlias = Literal["running", "published", "failed"]

# What the Agent is told. The Host's own message stays in the journal: it may name seeds and scenarios.
_FAILURES: Final[Mapping[str, str]] = {
    "cancelled": "its Evaluation was cancelled when the Agent phase ended",
    "fault": "the Benchmark or the Host failed during its Evaluation",
    "publication": "the Host could not write its results",
    "lost": "its Evaluation was lost when the Host stopped",
}
_SHOWN_CHARACTERS = 40
_SHOWN_IDS = 10


@dataclass(frozen=True, slots=True)
class LedgerLimits:
    """What one Run may spend.

    Args:
        episode_budget: Episode indices charged over all Submissions.
        pool_size: Episodes in the pool.
        max_submissions: Evaluations that may be started.
        max_episodes_per_submission: cap for one Submission; None for none but the pool's size.
        max_candidates: Submissions that one ``finish`` may name.
        finish_budget_policy: with "require_budget_exhaustion", finish is refused while budget is left.

    Raises:
        ValueError: a number below 1.
    """

    episode_budget: int
    pool_size: int
    max_submissions: int
    max_episodes_per_submission: int | None = None
    max_candidates: int = 1
    finish_budget_policy: FinishBudgetPolicy = "allow_early"

    def __post_init__(self) -> None:
        for field in ("episode_budget", "pool_size", "max_submissions", "max_candidates"):
            if getattr(self, field) < 1:
                raise ValueError(f"{field} must be >= 1, found {getattr(self, field)}")
        if self.max_episodes_per_submission is not None and self.max_episodes_per_submission < 1:
            raise ValueError(f"max_episodes_per_submission must be >= 1, found {self.max_episodes_per_submission}")

    @property
    def largest_submission(self) -> int:
        """The most Episodes that one Submission can ever hold (an index stands in a selector once)."""
        return min(self.max_episodes_per_submission or self.pool_size, self.pool_size)

    def episodes_remaining(self, state: "LedgerState") -> int:
        """Episodes of the budget that are not charged yet."""
        return max(self.episode_budget - state.episodes_used, 0)

    def submissions_remaining(self, state: "LedgerState") -> int:
        """Evaluations that may still be started."""
        return max(self.max_submissions - len(state.submissions), 0)

    def exhausted(self, state: "LedgerState") -> bool:
        """True if no Episode or no Submission is left."""
        return not self.episodes_remaining(state) or not self.submissions_remaining(state)


@dataclass(frozen=True, slots=True)
class SubmissionEntry:
    """One started Evaluation, as the journal tells of it.

    Args:
        submission_id: such as "submission-000001".
        program_digest: of the Program that it evaluates.
        episodes: the canonical selector.
        episode_count: Episodes charged for it.
        episodes_remaining: budget after it.
        status: running, published, or failed (cancelled, lost, or a trusted fault).
        score: once published.
        failure: why it failed: cancelled, fault, publication or lost.
        episodes_completed: Episodes that have ended.
    """

    submission_id: str
    program_digest: str
    episodes: str
    episode_count: int
    episodes_remaining: int
    status: SubmissionStatus = "running"
    score: float | None = None
    failure: str | None = None
    episodes_completed: int = 0


@dataclass(frozen=True, slots=True)
class LedgerState:
    """Where a Run stands: the result of applying its journal events in order.

    Args:
        submissions: every started Evaluation, in order.
        episodes_used: Episodes charged; a failed Evaluation stays charged.
        candidates: what was handed off; non-empty once the Session is finished.
        handed_off_by: "agent" or "host", or None before the hand-off.
    """

    submissions: tuple[SubmissionEntry, ...] = ()
    episodes_used: int = 0
    candidates: tuple[str, ...] = ()
    handed_off_by: str | None = None

    @property
    def running(self) -> SubmissionEntry | None:
        """The Submission whose Evaluation runs. Nothing overlaps, so it is the newest one."""
        newest = self.submissions[-1] if self.submissions else None
        return newest if newest is not None and newest.status == "running" else None

    @property
    def published(self) -> tuple[SubmissionEntry, ...]:
        """The published Submissions, in order."""
        return tuple(entry for entry in self.submissions if entry.status == "published")

    @property
    def next_submission_id(self) -> str:
        """The id of the next Evaluation: one more than were started."""
        newest = _submission_number(self.submissions[-1].submission_id) if self.submissions else 0
        return format_submission_id(max(newest, len(self.submissions)) + 1)

    def apply(self, event_name: str, fields: Mapping[str, object]) -> "LedgerState":
        """The state after one journal event; events that the ledger does not know change nothing.

        Args:
            event_name: such as "evaluation_started".
            fields: the event's own fields.

        Raises:
            ValueError: the event contradicts the ones before it or lacks a field.
        """
        try:
            match event_name:
                case "evaluation_started":
                    return self._started(fields)
                case "episode_completed":
                    return self._episode_completed(fields)
                case "submission_published":
                    return self._settled(fields, status="published", score=_number(fields, "score"))
                case "evaluation_failed":
                    return self._settled(fields, status="failed", failure=_text(fields, "reason"))
                case "run_resumed":
                    return self._without_running()
                case "finish_requested":
                    return self._finished(fields)
                case _:
                    return self
        except KeyError as error:
            raise ValueError(f"the event {event_name} has no field {error}") from None

    def _started(self, fields: Mapping[str, object]) -> "LedgerState":
        entry = SubmissionEntry(
            submission_id=_text(fields, "submission_id"),
            program_digest=_text(fields, "program_digest"),
            episodes=_text(fields, "episodes"),
            episode_count=_whole_number(fields, "episode_count"),
            episodes_remaining=_whole_number(fields, "episodes_remaining"),
        )
        if self._position(entry.submission_id) is not None:
            raise ValueError(f"{entry.submission_id} was started twice")
        settled = self._without_running()
        return replace(
            settled,
            submissions=(*settled.submissions, entry),
            episodes_used=self.episodes_used + entry.episode_count,
        )

    def _episode_completed(self, fields: Mapping[str, object]) -> "LedgerState":
        running = self.running
        if running is None or running.submission_id != _text(fields, "submission_id"):
            return self
        return self._replaced(
            len(self.submissions) - 1, replace(running, episodes_completed=running.episodes_completed + 1)
        )

    def _settled(
        self,
        fields: Mapping[str, object],
        *,
        status: SubmissionStatus,
        score: float | None = None,
        failure: str | None = None,
    ) -> "LedgerState":
        submission_id = _text(fields, "submission_id")
        position = self._position(submission_id)
        if position is None:
            raise ValueError(f"{_shown(submission_id)} ended but was never started")
        if self.submissions[position].status == "published":
            return self  # the publication was the commit point; what went wrong after it takes nothing back
        entry = replace(self.submissions[position], status=status, score=score, failure=failure)
        return self._replaced(position, entry)

    def _without_running(self) -> "LedgerState":
        running = self.running
        if running is None:
            return self
        return self._replaced(len(self.submissions) - 1, replace(running, status="failed", failure="lost"))

    def _finished(self, fields: Mapping[str, object]) -> "LedgerState":
        ids = fields["candidate_submission_ids"]
        if not isinstance(ids, list | tuple) or not ids:
            raise ValueError(f"candidate_submission_ids must name Submissions, found {ids!r}")
        return replace(self, candidates=tuple(map(str, ids)), handed_off_by=str(fields.get("handed_off_by", "agent")))

    def _replaced(self, position: int, entry: SubmissionEntry) -> "LedgerState":
        before, after = self.submissions[:position], self.submissions[position + 1 :]
        return replace(self, submissions=(*before, entry, *after))

    def _position(self, submission_id: str) -> int | None:
        for position in range(len(self.submissions) - 1, -1, -1):
            if self.submissions[position].submission_id == submission_id:
                return position
        return None


@dataclass(frozen=True, slots=True)
class AdmittedSubmission:
    """A submit that the rules allow.

    Args:
        submission_id: the id that it will have.
        indices: the pool indices, increasing.
        episodes: the canonical selector.
        episodes_remaining: the budget after it.
    """

    submission_id: str
    indices: tuple[int, ...]
    episodes: str
    episodes_remaining: int


def admit_submission(limits: LedgerLimits, state: LedgerState, selector: str) -> AdmittedSubmission:
    """What a submit with this selector would charge.

    Raises:
        Refusal: a rule forbids it.
    """
    refuse_if_running(state)
    remaining = limits.episodes_remaining(state)
    if not limits.submissions_remaining(state):
        raise Refusal(
            ErrorCode.SUBMISSIONS_EXHAUSTED,
            f"none of {limits.max_submissions} Submissions is left; hand off what you have with finish",
        )
    if not remaining:
        raise Refusal(
            ErrorCode.BUDGET_EXHAUSTED,
            f"none of {limits.episode_budget} Episodes is left; hand off what you have with finish",
        )
    try:
        ranges = parse_ranges(selector, pool_size=limits.pool_size)
    except SelectorError as error:
        raise Refusal(ErrorCode.SELECTOR_INVALID, f"--episodes is refused: {error.reason}") from None
    count = sum(map(len, ranges))
    _refuse_wrong_count(limits, state, count)
    indices = tuple(index for indices in ranges for index in indices)
    return AdmittedSubmission(
        submission_id=state.next_submission_id,
        indices=indices,
        episodes=format_selector(indices),
        episodes_remaining=remaining - count,
    )


def _refuse_wrong_count(limits: LedgerLimits, state: LedgerState, count: int) -> None:
    remaining = limits.episodes_remaining(state)
    at_most = min(remaining, limits.largest_submission)
    if count > remaining:
        raise Refusal(
            ErrorCode.OVER_BUDGET,
            f"{count} Episodes are asked for; {_episodes_left(remaining, limits.episode_budget)}; "
            f"ask for at most {at_most}",
        )
    if count > limits.largest_submission:
        raise Refusal(
            ErrorCode.OVER_CAP,
            f"{count} Episodes are asked for; one Submission of this Run holds at most "
            f"{limits.largest_submission}; ask for at most {at_most}",
        )
    if limits.finish_budget_policy != "require_budget_exhaustion":
        return
    later = (limits.submissions_remaining(state) - 1) * limits.largest_submission
    if remaining - count > later:
        raise Refusal(
            ErrorCode.BUDGET_UNREACHABLE,
            f"this Run must spend its whole budget, and after {count} of {remaining} Episodes the "
            f"{limits.submissions_remaining(state) - 1} Submissions left could not spend the rest; ask for at "
            f"least {remaining - later}",
        )


def admit_finish(limits: LedgerLimits, state: LedgerState, submission_ids: Sequence[str]) -> tuple[str, ...]:
    """The candidates that a finish would hand off.

    Raises:
        Refusal: a rule forbids it; nothing is handed off.
    """
    refuse_if_running(state)
    remaining = limits.episodes_remaining(state)
    if limits.finish_budget_policy == "require_budget_exhaustion" and remaining:
        left = _episodes_left(remaining, limits.episode_budget)
        raise Refusal(
            ErrorCode.BUDGET_REMAINING, f"{left}, and this Run must spend them all before finish; go on with submit"
        )
    if not 1 <= len(submission_ids) <= limits.max_candidates:
        raise Refusal(
            ErrorCode.CANDIDATES_INVALID,
            f"{len(submission_ids)} Submissions are named; name at least 1 and at most {limits.max_candidates}",
        )
    seen: set[str] = set()
    for submission_id in submission_ids:
        if submission_id in seen:
            raise Refusal(
                ErrorCode.CANDIDATES_INVALID, f"{_shown(submission_id)} is named twice; name each Submission once"
            )
        seen.add(submission_id)
        entry = find_submission(state, submission_id)
        if entry.status != "published":
            raise failed_submission(entry)
    return tuple(submission_ids)


def refuse_if_running(state: LedgerState) -> None:
    """Nothing queues: while an Evaluation runs, neither submit nor finish is admitted.

    Raises:
        Refusal: one runs.
    """
    if state.running is not None:
        raise Refusal(
            ErrorCode.EVALUATION_RUNNING,
            f"{state.running.submission_id} is being evaluated and nothing queues; run "
            f"'evopolicygym-session wait {state.running.submission_id}' for its result, then ask again",
        )


def find_submission(state: LedgerState, submission_id: str) -> SubmissionEntry:
    """The Submission of that id.

    Raises:
        Refusal: there is none.
    """
    for entry in state.submissions:
        if entry.submission_id == submission_id:
            return entry
    if not state.submissions:
        known = "nothing has been submitted yet; start with submit"
    else:
        newest = [entry.submission_id for entry in state.published[-_SHOWN_IDS:]]
        known = f"published are {', '.join(newest)}" if newest else "none is published yet"
    raise Refusal(ErrorCode.SUBMISSION_UNKNOWN, f"there is no Submission {_shown(submission_id)}; {known}")


def failed_submission(entry: SubmissionEntry) -> Refusal:
    """The refusal for a Submission that never was published."""
    return Refusal(
        ErrorCode.SUBMISSION_FAILED,
        f"{entry.submission_id} was not published: {_FAILURES.get(entry.failure or '', 'its Evaluation failed')}; "
        "its Episodes stay charged, and status shows what is left",
    )


def _submission_number(submission_id: str) -> int:
    digits = submission_id.removeprefix("submission-")
    return int(digits) if digits.isdecimal() and len(digits) < 20 else 0


def _episodes_left(left: int, total: int) -> str:
    return f"{left} of {total} Episodes {'is' if left == 1 else 'are'} left"


def _text(fields: Mapping[str, object], name: str) -> str:
    value = fields[name]
    if not isinstance(value, str):
        raise ValueError(f"{name} must be a string, found {type(value).__name__}")
    return value


def _whole_number(fields: Mapping[str, object], name: str) -> int:
    value = fields[name]
    if type(value) is not int or value < 0:
        raise ValueError(f"{name} must be a whole number >= 0, found {_shown(repr(value))}")
    return value


def _number(fields: Mapping[str, object], name: str) -> float:
    value = fields[name]
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ValueError(f"{name} must be a number, found {type(value).__name__}")
    return float(value)


def _shown(text: str) -> str:
    return repr(text) if len(text) <= _SHOWN_CHARACTERS else repr(text[:_SHOWN_CHARACTERS]) + "…"
