"""Every event of a Run's journal, typed: its name, its fields, and whether it is a promise to keep."""

from collections.abc import Mapping
from dataclasses import MISSING, Field, dataclass, fields
from functools import cache
from types import MappingProxyType
from typing import Any, ClassVar, Protocol, TypeAlias, get_args, get_origin, get_type_hints, runtime_checkable

__all__ = ["EVENT_TYPES", "Event", "FieldValue", "RunEvent", "RunObserver", "Scalar", "check_fields"]

Scalar: TypeAlias = bool | int | float | str | None
FieldValue: TypeAlias = Scalar | tuple[Scalar, ...]

# Texts from Agents and Policies end up in some fields; the selector of an Evaluation must stay whole.
TEXT_MAX_CHARACTERS = 8192
_WHOLE_TEXTS = frozenset({"episodes"})


@dataclass(frozen=True, slots=True)
class RunEvent:
    """One thing that happened in a Run, as observers are told and as the journal holds it.

    Args:
        name: such as ``"episode_completed"``.
        time_unix_ns: wall clock, nanoseconds since 1970 (UTC).
        monotonic_ns: the Host's monotonic clock in nanoseconds; comparable within one boot of one machine.
        fields: JSON scalars or tuples of them; kept as a detached, read-only mapping.

    Raises:
        TypeError: a field has the wrong type.
        ValueError: an empty name or a negative time.
    """

    name: str
    time_unix_ns: int
    monotonic_ns: int
    fields: Mapping[str, FieldValue]

    def __post_init__(self) -> None:
        if not isinstance(self.name, str):
            raise TypeError(f"an event's name must be str, not {type(self.name).__qualname__}")
        if not self.name:
            raise ValueError("an event's name must not be empty")
        for clock in ("time_unix_ns", "monotonic_ns"):
            value = getattr(self, clock)
            if type(value) is not int:
                raise TypeError(f"{clock} must be int, not {type(value).__qualname__}")
            if value < 0:
                raise ValueError(f"{clock} must be >= 0, found {value}")
        if not isinstance(self.fields, Mapping):
            raise TypeError(f"fields must be a mapping, not {type(self.fields).__qualname__}")
        object.__setattr__(self, "fields", MappingProxyType(dict(self.fields)))

    def __reduce__(self) -> tuple[type["RunEvent"], tuple[object, ...]]:
        return RunEvent, (self.name, self.time_unix_ns, self.monotonic_ns, dict(self.fields))


@runtime_checkable
class RunObserver(Protocol):
    """Somebody who is told every event of a Run, in order, after it was journalled."""

    def on_event(self, event: RunEvent) -> None:
        """Take note of ``event``; the Run calls this on a thread that waits for nothing else.

        An observer that raises, or falls far behind, is dropped with a warning, and the Run goes on.
        """
        ...


@dataclass(frozen=True, slots=True)
class Event:
    """What is about to be journalled; each kind is one subclass.

    ``durable`` lines are fsynced before anything acts on them. ``closing`` lines tell how something ended:
    on a full disk they may use the space that the Record keeps in reserve.
    """

    name: ClassVar[str]
    durable: ClassVar[bool] = False
    closing: ClassVar[bool] = False

    def fields(self) -> dict[str, FieldValue]:
        """Field name to value, in the order of declaration; lists as tuples, long texts cut."""
        return {name: _bounded(name, getattr(self, name)) for name in self.field_names()}

    @classmethod
    @cache
    def field_names(cls) -> tuple[str, ...]:
        """The names of the fields of this kind of event, in the order of declaration."""
        return tuple(field.name for field in fields(cls))


def _bounded(name: str, value: FieldValue | list[Scalar]) -> FieldValue:
    if isinstance(value, list | tuple):
        return tuple(_bounded_scalar(name, item) for item in value)
    return _bounded_scalar(name, value)


def _bounded_scalar(name: str, value: Scalar) -> Scalar:
    if isinstance(value, str) and len(value) > TEXT_MAX_CHARACTERS and name not in _WHOLE_TEXTS:
        return value[: TEXT_MAX_CHARACTERS - 1] + "…"
    return value


@dataclass(frozen=True, slots=True)
class RunStarted(Event):
    """The Record is prepared and its limits are fixed."""

    name: ClassVar[str] = "run_started"
    durable: ClassVar[bool] = True
    schema: str
    library_version: str
    benchmark_id: str
    environment_digest: str
    program_digest: str
    agent: str
    split: str
    seed_strength: str
    pool_size: int
    pool_digest: str
    episode_budget: int
    max_submissions: int
    max_episodes_per_submission: int | None
    finish_budget_policy: str
    max_candidates: int
    agent_timeout_seconds: float
    primary_metric: str
    score_direction: str
    validation_episodes: int | None = None
    assessment_episodes: int | None = None


@dataclass(frozen=True, slots=True)
class AgentStarted(Event):
    """The Agent's process runs."""

    name: ClassVar[str] = "agent_started"
    durable: ClassVar[bool] = True
    attempt: int
    command: tuple[str, ...]
    process_id: int | None


@dataclass(frozen=True, slots=True)
class AgentEvent(Event):
    """How far the Agent has come: totals of this attempt, no content."""

    name: ClassVar[str] = "agent_event"
    turns: int | None = None
    tool_calls: int | None = None
    input_tokens: int | None = None
    cached_tokens: int | None = None
    output_tokens: int | None = None
    cost_usd: float | None = None
    last_action: str | None = None


@dataclass(frozen=True, slots=True)
class SubmissionRefused(Event):
    """A submit was refused; nothing was charged."""

    name: ClassVar[str] = "submission_refused"
    code: str
    message: str


@dataclass(frozen=True, slots=True)
class EvaluationStarted(Event):
    """The budget of one Submission is reserved; from here on it stays spent."""

    name: ClassVar[str] = "evaluation_started"
    durable: ClassVar[bool] = True
    submission_id: str
    program_digest: str
    episodes: str
    episode_count: int
    episodes_remaining: int


@dataclass(frozen=True, slots=True)
class EpisodeCompleted(Event):
    """One Episode of a Submission's Evaluation ended."""

    name: ClassVar[str] = "episode_completed"
    submission_id: str
    episode_index: int
    position: int
    status: str
    reward: float | None
    steps: int
    failure: str | None
    seconds: float


@dataclass(frozen=True, slots=True)
class SubmissionPublished(Event):
    """The commit point of a publication: the Host's tree is complete and on disk."""

    name: ClassVar[str] = "submission_published"
    durable: ClassVar[bool] = True
    submission_id: str
    program_digest: str
    score: float
    episodes_used: int
    episodes_remaining: int
    policy_failures: int
    seconds: float


@dataclass(frozen=True, slots=True)
class EvaluationFailed(Event):
    """An Evaluation ended without a publication; its budget stays spent."""

    name: ClassVar[str] = "evaluation_failed"
    durable: ClassVar[bool] = True
    closing: ClassVar[bool] = True
    submission_id: str
    reason: str
    message: str


@dataclass(frozen=True, slots=True)
class FinishRequested(Event):
    """Candidates were handed off; the Agent's authority ends."""

    name: ClassVar[str] = "finish_requested"
    durable: ClassVar[bool] = True
    candidate_submission_ids: tuple[str, ...]
    handed_off_by: str = "agent"


@dataclass(frozen=True, slots=True)
class FinishRefused(Event):
    """A finish was refused; the Session stays open."""

    name: ClassVar[str] = "finish_refused"
    code: str
    message: str


@dataclass(frozen=True, slots=True)
class AgentEnded(Event):
    """The Agent's process tree is gone."""

    name: ClassVar[str] = "agent_ended"
    durable: ClassVar[bool] = True
    closing: ClassVar[bool] = True
    attempt: int
    returncode: int | None
    reason: str
    seconds: float
    message: str | None = None
    resumable: bool = False


@dataclass(frozen=True, slots=True)
class ValidationStarted(Event):
    """The candidates are about to be evaluated on private Episodes."""

    name: ClassVar[str] = "validation_started"
    durable: ClassVar[bool] = True
    split: str
    episodes_per_candidate: int
    candidate_submission_ids: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ValidationEpisodeCompleted(Event):
    """One Episode of one candidate's Validation ended."""

    name: ClassVar[str] = "validation_episode_completed"
    submission_id: str
    position: int
    status: str
    reward: float | None
    steps: int
    failure: str | None
    seconds: float


@dataclass(frozen=True, slots=True)
class ValidationCandidateCompleted(Event):
    """One candidate's Validation is complete."""

    name: ClassVar[str] = "validation_candidate_completed"
    durable: ClassVar[bool] = True
    submission_id: str
    score: float
    policy_failures: int
    seconds: float


@dataclass(frozen=True, slots=True)
class ValidationFailed(Event):
    """Validation ended on a trusted fault."""

    name: ClassVar[str] = "validation_failed"
    durable: ClassVar[bool] = True
    closing: ClassVar[bool] = True
    message: str


@dataclass(frozen=True, slots=True)
class CandidateSelected(Event):
    """The Run's final Program is decided."""

    name: ClassVar[str] = "candidate_selected"
    durable: ClassVar[bool] = True
    submission_id: str
    selected_by: str


@dataclass(frozen=True, slots=True)
class AssessmentStarted(Event):
    """The selected Program is about to be measured on the held-out split."""

    name: ClassVar[str] = "assessment_started"
    durable: ClassVar[bool] = True
    submission_id: str
    split: str
    episodes: int


@dataclass(frozen=True, slots=True)
class AssessmentEpisodeCompleted(Event):
    """One Episode of the Assessment ended."""

    name: ClassVar[str] = "assessment_episode_completed"
    position: int
    status: str
    reward: float | None
    steps: int
    failure: str | None
    seconds: float


@dataclass(frozen=True, slots=True)
class AssessmentCompleted(Event):
    """The Assessment is complete."""

    name: ClassVar[str] = "assessment_completed"
    durable: ClassVar[bool] = True
    submission_id: str
    score: float
    policy_failures: int
    seconds: float


@dataclass(frozen=True, slots=True)
class AssessmentFailed(Event):
    """The Assessment ended on a trusted fault; the selection is kept."""

    name: ClassVar[str] = "assessment_failed"
    durable: ClassVar[bool] = True
    closing: ClassVar[bool] = True
    message: str


@dataclass(frozen=True, slots=True)
class Notice(Event):
    """Something that a reader of the Record should know and that changed nothing."""

    name: ClassVar[str] = "notice"
    message: str


@dataclass(frozen=True, slots=True)
class Interrupted(Event):
    """The Host was told to stop."""

    name: ClassVar[str] = "interrupted"
    durable: ClassVar[bool] = True
    closing: ClassVar[bool] = True
    phase: str
    signal: str


@dataclass(frozen=True, slots=True)
class RunResumed(Event):
    """Another Host process goes on with this Record."""

    name: ClassVar[str] = "run_resumed"
    durable: ClassVar[bool] = True
    attempt: int
    phase: str
    overrides: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class RunCommitted(Event):
    """The Run has ended and nothing more is decided."""

    name: ClassVar[str] = "run_committed"
    durable: ClassVar[bool] = True
    closing: ClassVar[bool] = True
    terminal_reason: str


_ALL: tuple[type[Event], ...] = (
    RunStarted,
    AgentStarted,
    AgentEvent,
    SubmissionRefused,
    EvaluationStarted,
    EpisodeCompleted,
    SubmissionPublished,
    EvaluationFailed,
    FinishRequested,
    FinishRefused,
    AgentEnded,
    ValidationStarted,
    ValidationEpisodeCompleted,
    ValidationCandidateCompleted,
    ValidationFailed,
    CandidateSelected,
    AssessmentStarted,
    AssessmentEpisodeCompleted,
    AssessmentCompleted,
    AssessmentFailed,
    Notice,
    Interrupted,
    RunResumed,
    RunCommitted,
)

EVENT_TYPES: Mapping[str, type[Event]] = MappingProxyType({kind.name: kind for kind in _ALL})


def check_fields(event: RunEvent) -> None:
    """See that an event that was read back has every field of its kind, of the right type; unknown events pass.

    Raises:
        ValueError: it has not; the text says which field.
    """
    if event.name not in EVENT_TYPES:
        return
    for name, (allowed, required) in _field_types(event.name).items():
        if name not in event.fields:
            if required:
                raise ValueError(f"the event {event.name} has no {name!r}")
            continue
        value = event.fields[name]
        fits = type(value) in allowed or (type(value) is int and float in allowed)
        if not fits or (isinstance(value, tuple) and not all(isinstance(item, str) for item in value)):
            raise ValueError(f"the event {event.name} has a wrong {name!r}: {value!r:.80}")


@cache
def _field_types(event_name: str) -> dict[str, tuple[tuple[type, ...], bool]]:
    """Of each field the exact types that it may have, and whether it must be there; every list is one of texts."""
    kind = EVENT_TYPES[event_name]
    hints = get_type_hints(kind)
    return {
        field.name: (tuple(get_origin(hint) or hint for hint in _alternatives(hints[field.name])), _is_required(field))
        for field in fields(kind)
    }


def _alternatives(hint: object) -> tuple[type, ...]:
    return (hint,) if get_origin(hint) is tuple or isinstance(hint, type) else get_args(hint)


def _is_required(field: Field[Any]) -> bool:
    return field.default is MISSING
