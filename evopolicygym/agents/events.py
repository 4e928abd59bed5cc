"""What an Agent did, in the same words for every provider: events, their JSON form, and totals over them."""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, replace
from typing import Literal, TypeAlias, get_args

__all__ = ["AgentDiagnosis", "AgentEndReason", "AgentEvent", "AgentEventKind", "AgentExit", "AgentUsage"]

AgentEventKind: TypeAlias = Literal[
    "session_start", "message", "reasoning", "tool_start", "tool_call", "usage", "cost", "error", "end"
]

AgentEndReason: TypeAlias = Literal[
    "completed",
    "failed",
    "usage_limit",
    "authentication",
    "overloaded",
    "network",
    "invalid_options",
    "limit_reached",
    "refused_as_root",
    "incompatible",
    "stub",
    "not_started",
]
"""Why an Agent's process ended.

``usage_limit``, ``authentication``, ``overloaded`` and ``network`` say nothing about the Agent's work: such a Run is
worth resuming. ``limit_reached`` is a limit that the user set (turns, cost); ``stub`` is a program that does nothing;
``incompatible`` one that cannot run on what is installed here.
"""

_TEXT_MAX = 64 * 1024
"""Characters of one text field; what is longer is cut and says so."""

# An Agent writes these numbers; their sums must stay finite and exact.
_COUNT_MAX = 2**48
_COST_MAX = 1e12

_ACTION_MAX = 200
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069]+")


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentEvent:
    """One thing that an Agent did or told.

    | kind | fields it has |
    | --- | --- |
    | session_start | session_id, model, text |
    | message, reasoning | text |
    | tool_start | tool, command, call_id: a call that is running; the whole call follows as tool_call |
    | tool_call | tool, command, exit_code, failed, text (what it printed), call_id |
    | usage | turns, input_tokens, cached_tokens, output_tokens: each an *increase* since the last event |
    | cost | cost_usd: an increase too |
    | error | text, code, fatal |
    | end | text, failed |

    Args:
        kind: Which of these.
        text: Words; every text is cut to 64 Ki characters.
        session_id: The provider's own name of the session.
        model: The model that answers.
        tool: Name of the tool.
        command: What the tool was asked to run.
        call_id: The provider's own name of the call.
        exit_code: Of the command, where there is one.
        failed: Whether the call, or the whole session, went wrong.
        code: A short code of an error.
        fatal: Whether the error ended the session.
        turns: Answers of the model.
        input_tokens: Tokens read, cached ones included.
        cached_tokens: Those of them that came from a cache.
        output_tokens: Tokens written, reasoning included.
        cost_usd: US dollars, only where the provider tells.

    Raises:
        ValueError: an unknown kind, or a number that is negative, absurdly large or not finite.
    """

    kind: AgentEventKind
    text: str | None = None
    session_id: str | None = None
    model: str | None = None
    tool: str | None = None
    command: str | None = None
    call_id: str | None = None
    exit_code: int | None = None
    failed: bool | None = None
    code: str | None = None
    fatal: bool | None = None
    turns: int | None = None
    input_tokens: int | None = None
    cached_tokens: int | None = None
    output_tokens: int | None = None
    cost_usd: float | None = None

    def __post_init__(self) -> None:
        if self.kind not in get_args(AgentEventKind):
            raise ValueError(f"{self.kind!r} is no kind of Agent event; they are {', '.join(get_args(AgentEventKind))}")
        for name in _COUNTS:
            count = getattr(self, name)
            if count is not None and not 0 <= count <= _COUNT_MAX:
                raise ValueError(f"{name} must be from 0 to {_COUNT_MAX}, found {count}")
        if self.cost_usd is not None and not 0 <= self.cost_usd <= _COST_MAX:
            raise ValueError(f"cost_usd must be from 0 to {_COST_MAX}, found {self.cost_usd}")
        for name in _WORDS:
            words = getattr(self, name)
            if words is not None:
                object.__setattr__(self, name, _bounded(words))

    def to_json(self) -> dict[str, object]:
        """The event as a JSON object: ``kind`` and the fields that are set."""
        values = ((item.name, getattr(self, item.name)) for item in fields(self))
        return {name: value for name, value in values if value is not None}

    @classmethod
    def from_json(cls, value: object) -> "AgentEvent":
        """Read what :meth:`to_json` wrote; fields that are unknown or of the wrong type are left out.

        Raises:
            ValueError: it is no JSON object with a known ``kind``, or a number is out of its range.
        """
        if not isinstance(value, Mapping):
            raise ValueError(f"an Agent event is a JSON object, not {type(value).__name__}")
        kept = {name: value[name] for name, kinds in _FIELD_TYPES.items() if type(value.get(name)) in kinds}
        return cls(kind=value.get("kind"), **kept)  # type: ignore[arg-type]  # checked by the constructor

    def with_words(self, change: Callable[[str], str]) -> "AgentEvent":
        """The event with ``change`` applied to each of its texts; itself if that changes nothing."""
        words = {name: text for name in _WORDS if (text := getattr(self, name)) is not None}
        changed = {name: new for name, text in words.items() if (new := change(text)) != text}
        return replace(self, **changed) if changed else self  # type: ignore[arg-type]  # texts only

    @property
    def action(self) -> str | None:
        """One printable line on what the Agent is doing, or None: for a live view."""
        words = self._action_words()
        if words is None:
            return None
        line = _CONTROL.sub(" ", words).strip()
        return line if len(line) <= _ACTION_MAX else line[: _ACTION_MAX - 1] + "…"

    def _action_words(self) -> str | None:
        if self.kind in ("tool_start", "tool_call"):
            if self.command:
                return f"$ {self.command}"
            return f"uses {self.tool or 'a tool'}"
        if self.kind == "error":
            return f"error: {self.text or self.code or 'unknown'}"
        if self.kind in ("message", "reasoning") and self.text and self.text.strip():
            return self.text.strip().splitlines()[0]
        return None


def _bounded(words: str) -> str:
    """Cut, and without the lone surrogates that JSON may carry and UTF-8 may not."""
    words = words.encode("utf-8", "replace").decode()
    if len(words) <= _TEXT_MAX:
        return words
    return f"{words[:_TEXT_MAX]}… [{len(words) - _TEXT_MAX} characters cut]"


_WORDS = ("text", "session_id", "model", "tool", "command", "call_id", "code")
_COUNTS = ("turns", "input_tokens", "cached_tokens", "output_tokens")
_FIELD_TYPES: dict[str, tuple[type, ...]] = {
    **dict.fromkeys(_WORDS, (str,)),
    **dict.fromkeys(("exit_code", *_COUNTS), (int,)),
    **dict.fromkeys(("failed", "fatal"), (bool,)),
    "cost_usd": (int, float),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentUsage:
    """Totals over a stream of events: a fold, ``usage = usage.add(event)``.

    Args:
        turns: Answers of the model; messages where the provider does not count them.
        tool_calls: Tools used.
        input_tokens: Tokens read, cached ones included.
        cached_tokens: Those of them that came from a cache.
        output_tokens: Tokens written.
        cost_usd: US dollars; None where no event told a cost.
    """

    turns: int = 0
    tool_calls: int = 0
    input_tokens: int = 0
    cached_tokens: int = 0
    output_tokens: int = 0
    cost_usd: float | None = None

    def add(self, event: AgentEvent) -> "AgentUsage":
        """The totals with this event in them."""
        if event.kind == "tool_call":
            return replace(self, tool_calls=self.tool_calls + 1)
        if event.kind == "usage":
            return replace(
                self,
                turns=self.turns + (event.turns or 0),
                input_tokens=self.input_tokens + (event.input_tokens or 0),
                cached_tokens=self.cached_tokens + (event.cached_tokens or 0),
                output_tokens=self.output_tokens + (event.output_tokens or 0),
            )
        if event.kind == "cost":
            return replace(self, cost_usd=(self.cost_usd or 0.0) + (event.cost_usd or 0.0))
        return self

    def to_json(self) -> dict[str, object]:
        """All totals as a JSON object."""
        return {item.name: getattr(self, item.name) for item in fields(self)}


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentExit:
    """How an Agent's process ended, for the provider to explain.

    Args:
        returncode: Exit code, or the negative number of the signal that killed it.
        events: The last events that its standard output told, oldest first.
        stderr_tail: The end of its standard error.
        stdout_tail: The end of its standard output.
    """

    returncode: int
    events: tuple[AgentEvent, ...] = ()
    stderr_tail: str = ""
    stdout_tail: str = ""


@dataclass(frozen=True, slots=True)
class AgentDiagnosis:
    """Why an Agent's process ended.

    Args:
        reason: One of :data:`AgentEndReason`.
        message: The same for people: what happened, and what to do.
    """

    reason: AgentEndReason
    message: str

    @property
    def resumable(self) -> bool:
        """Whether the cause lies outside the Agent's work, so that the Run is best kept open."""
        return self.reason in ("usage_limit", "authentication", "overloaded", "network")
