"""How far a Run has come: a fold over its journal, the same for a Run that lives and for one that is resumed."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Literal, TypeAlias, cast

from evopolicygym.agents import AgentUsage
from evopolicygym.record.events import FieldValue, RunEvent
from evopolicygym.results import TerminalReason
from evopolicygym.session import LedgerState

__all__ = ["LOST", "AgentAttempt", "Measured", "RunPhase", "RunProgress"]

RunPhase: TypeAlias = Literal["agent", "validation", "assessment", "commit"]
Fields: TypeAlias = Mapping[str, FieldValue]

LOST = "lost"
"""Why an Agent ended whose Host was gone before it."""

_NANOSECONDS = 1e9


@dataclass(slots=True)
class AgentAttempt:
    """One start of the Agent.

    Args:
        attempt: counted from 1.
        started_ns: the Host's monotonic clock at its start.
        seconds: its wall-clock time; of one that was lost with its Host, up to the last line of that Host.
        ended: whether its end was journalled.
        returncode: of its process, None if it is unknown.
        reason: why it ended; "lost" if its Host ended first.
        message: the same for people.
        resumable: whether the reason lies outside the Agent's work.
        usage: totals of what it did, as far as they were journalled.
    """

    attempt: int
    started_ns: int
    seconds: float = 0.0
    ended: bool = False
    returncode: int | None = None
    reason: str = LOST
    message: str | None = None
    resumable: bool = False
    usage: AgentUsage = field(default_factory=AgentUsage)


@dataclass(frozen=True, slots=True)
class Measured:
    """What the journal tells of a complete private Evaluation."""

    submission_id: str
    score: float
    policy_failures: int


@dataclass(slots=True)
class RunProgress:
    """The state of a Run after some events of its journal; :meth:`apply` takes in the next one.

    Args:
        started: the fields of ``run_started``; None before it.
        started_unix_ns: when that was.
        hosts: how many Host processes have owned the Run so far.
        overrides: changed limits as ``"key=JSON value"``, in the order in which they were given.
        ledger: what was charged, published and handed off.
        published_seconds: wall clock of each publication's Evaluation.
        attempts: every start of the Agent.
        validation_begun: whether a candidate may have seen Validation Episodes.
        validated: the candidates whose Validation is complete.
        selected: the Run's final Submission.
        assessment_begun: whether the held-out Episodes may have been seen.
        assessed: the complete Assessment.
        terminal_reason: why the Run ended; None while it goes on, or should.
    """

    started: Fields | None = None
    started_unix_ns: int = 0
    hosts: int = 0
    overrides: tuple[str, ...] = ()
    ledger: LedgerState = field(default_factory=LedgerState)
    published_seconds: dict[str, float] = field(default_factory=dict)
    attempts: list[AgentAttempt] = field(default_factory=list)
    validation_begun: bool = False
    validated: dict[str, Measured] = field(default_factory=dict)
    selected: str | None = None
    assessment_begun: bool = False
    assessed: Measured | None = None
    terminal_reason: TerminalReason | None = None

    def apply(self, event: RunEvent) -> None:
        """Take in the next event; those that decide nothing change nothing.

        Raises:
            ValueError: it contradicts the events before it.
        """
        attempt = self.last_attempt
        if attempt is not None and not attempt.ended and event.name != "run_resumed":
            # The end of a lost attempt is the last line of its Host; the clock is that of one boot.
            attempt.seconds = max(attempt.seconds, (event.monotonic_ns - attempt.started_ns) / _NANOSECONDS)
        if event.name != "episode_completed":  # it changes no budget, and there may be millions
            self.ledger = self.ledger.apply(event.name, event.fields)
        handler = _HANDLERS.get(event.name)
        if handler is not None:
            if self.started is None and event.name != "run_started":
                raise ValueError(f"{event.name} before run_started")
            handler(self, event.fields, event)

    @property
    def last_attempt(self) -> AgentAttempt | None:
        """The newest start of the Agent."""
        return self.attempts[-1] if self.attempts else None

    @property
    def agent_seconds(self) -> float:
        """The Agent's wall-clock time over all its starts."""
        return sum(attempt.seconds for attempt in self.attempts)

    @property
    def usage(self) -> AgentUsage:
        """What the Agent did over all its starts."""
        total = AgentUsage()
        for attempt in self.attempts:
            total = _sum(total, attempt.usage)
        return total

    @property
    def agent_ended_unsettled(self) -> AgentAttempt | None:
        """The Agent's last attempt if it ended and the Host ended before it could say what comes of that."""
        attempt = self.last_attempt
        if attempt is None or not attempt.ended or attempt.reason == LOST or self.terminal_reason is not None:
            return None
        return attempt

    def next_phase(self, *, has_assessment: bool) -> RunPhase:
        """What is owed next.

        Args:
            has_assessment: whether the Run measures its selected Program.
        """
        if not self.ledger.candidates:
            return "agent"
        if self.selected is None:
            return "validation"
        return "assessment" if has_assessment and self.assessed is None else "commit"

    # One method an event.

    def _run_started(self, fields: Fields, event: RunEvent) -> None:
        if self.started is not None:
            raise ValueError("run_started stands there twice")
        self.started, self.started_unix_ns, self.hosts = fields, event.time_unix_ns, 1

    def _agent_started(self, fields: Fields, event: RunEvent) -> None:
        self.attempts.append(AgentAttempt(_int(fields, "attempt"), event.monotonic_ns))

    def _agent_event(self, fields: Fields, _event: RunEvent) -> None:
        attempt = self.last_attempt
        if attempt is not None:
            cost = fields.get("cost_usd")
            attempt.usage = AgentUsage(
                **{name: cast("int", fields.get(name) or 0) for name in _COUNTS},
                cost_usd=cost if isinstance(cost, int | float) else None,
            )

    def _agent_ended(self, fields: Fields, _event: RunEvent) -> None:
        number = _int(fields, "attempt")
        attempt = self.last_attempt
        if attempt is None or attempt.attempt != number:  # one that could not be started has no other line
            attempt = AgentAttempt(number, 0)
            self.attempts.append(attempt)
        attempt.ended = True
        attempt.seconds = _float(fields, "seconds")
        attempt.returncode = cast("int | None", fields.get("returncode"))
        attempt.reason = str(fields.get("reason"))
        attempt.message = cast("str | None", fields.get("message"))
        attempt.resumable = fields.get("resumable") is True

    def _submission_published(self, fields: Fields, _event: RunEvent) -> None:
        self.published_seconds[str(fields["submission_id"])] = _float(fields, "seconds")

    def _finish_requested(self, _fields: Fields, _event: RunEvent) -> None:
        published = {entry.submission_id for entry in self.ledger.published}
        unknown = [name for name in self.ledger.candidates if name not in published]
        if unknown or len(set(self.ledger.candidates)) != len(self.ledger.candidates):
            raise ValueError(f"handed off are {', '.join(self.ledger.candidates)}, which were not all published")

    def _validation_started(self, _fields: Fields, _event: RunEvent) -> None:
        self.validation_begun = True

    def _validation_candidate_completed(self, fields: Fields, _event: RunEvent) -> None:
        measured = self._measured(fields)
        self.validated[measured.submission_id] = measured

    def _candidate_selected(self, fields: Fields, _event: RunEvent) -> None:
        self.selected = self._candidate(fields)

    def _assessment_started(self, _fields: Fields, _event: RunEvent) -> None:
        self.assessment_begun = True

    def _assessment_completed(self, fields: Fields, _event: RunEvent) -> None:
        measured = self._measured(fields)
        if measured.submission_id != self.selected:
            raise ValueError(f"{measured.submission_id} was measured, and {self.selected} was selected")
        self.assessed = measured

    def _run_resumed(self, fields: Fields, _event: RunEvent) -> None:
        attempt = self.last_attempt
        if attempt is not None and not attempt.ended:
            attempt.ended = True
        self.hosts = _int(fields, "attempt")
        self.overrides += cast("tuple[str, ...]", fields.get("overrides") or ())
        self.terminal_reason = None

    def _run_committed(self, fields: Fields, _event: RunEvent) -> None:
        self.terminal_reason = cast("TerminalReason", fields["terminal_reason"])

    def _measured(self, fields: Fields) -> Measured:
        return Measured(self._candidate(fields), _float(fields, "score"), _int(fields, "policy_failures"))

    def _candidate(self, fields: Fields) -> str:
        submission_id = str(fields["submission_id"])
        if submission_id not in self.ledger.candidates:
            raise ValueError(f"{submission_id} is no candidate")
        return submission_id


_COUNTS = ("turns", "tool_calls", "input_tokens", "cached_tokens", "output_tokens")

_HANDLERS: Mapping[str, Callable[[RunProgress, Fields, RunEvent], None]] = {
    "run_started": RunProgress._run_started,
    "agent_started": RunProgress._agent_started,
    "agent_event": RunProgress._agent_event,
    "agent_ended": RunProgress._agent_ended,
    "submission_published": RunProgress._submission_published,
    "finish_requested": RunProgress._finish_requested,
    "validation_started": RunProgress._validation_started,
    "validation_candidate_completed": RunProgress._validation_candidate_completed,
    "candidate_selected": RunProgress._candidate_selected,
    "assessment_started": RunProgress._assessment_started,
    "assessment_completed": RunProgress._assessment_completed,
    "run_resumed": RunProgress._run_resumed,
    "run_committed": RunProgress._run_committed,
}


def _sum(one: AgentUsage, other: AgentUsage) -> AgentUsage:
    counts = {name: getattr(one, name) + getattr(other, name) for name in _COUNTS}
    costs = [usage.cost_usd for usage in (one, other) if usage.cost_usd is not None]
    return AgentUsage(**counts, cost_usd=sum(costs) if costs else None)


def _int(fields: Fields, name: str) -> int:
    value = fields[name]
    assert type(value) is int  # check_fields has seen to it
    return value


def _float(fields: Fields, name: str) -> float:
    value = fields[name]
    assert isinstance(value, int | float)  # as above
    return float(value)
