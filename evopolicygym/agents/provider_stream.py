"""What the streams of the three coding agents have in common: JSON objects, one a line, and calls that end later."""

import json

from evopolicygym.agents.events import AgentEvent

__all__ = ["OpenCalls", "as_count", "as_mapping", "as_text", "read_object"]


_ABSURD = 10**12

# Of calls that never end and of their names, only so many may fill the memory.
_OPEN_MAX = 1000
_ID_MAX = 200


def read_object(line: str) -> dict[str, object]:
    """The JSON object that the line holds; an empty one for any other line."""
    try:
        value = json.loads(line)
    except (ValueError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}


def as_mapping(value: object) -> dict[str, object]:
    """The value, if it is a JSON object, else an empty one."""
    return value if isinstance(value, dict) else {}


def as_text(value: object) -> str:
    """Words of a message: a string, or the texts of a list of parts, joined."""
    if isinstance(value, str):
        return value
    if isinstance(value, list):
        texts = (as_mapping(part).get("text") if not isinstance(part, str) else part for part in value)
        return "\n".join(text for text in texts if isinstance(text, str))
    return ""


def as_count(value: object) -> int:
    """A number of tokens or turns; 0 for anything that is none, or is absurd."""
    return value if type(value) is int and 0 <= value < _ABSURD else 0


class OpenCalls:
    """Calls of tools that have begun: what was asked for, until what came of it is known."""

    def __init__(self) -> None:
        self._open: dict[str, tuple[str | None, str | None]] = {}

    def begin(self, call_id: str, tool: str | None, command: str | None) -> AgentEvent:
        """The event of a call that begins."""
        event = AgentEvent(kind="tool_start", call_id=call_id, tool=tool, command=command)
        self._open[call_id[:_ID_MAX]] = (event.tool, event.command)  # what the event has cut need not be kept
        if len(self._open) > _OPEN_MAX:
            del self._open[next(iter(self._open))]
        return event

    def end(self, call_id: str, *, text: str, exit_code: int | None, failed: bool) -> AgentEvent:
        """The event of a whole call."""
        tool, command = self._open.pop(call_id[:_ID_MAX], (None, None))
        return AgentEvent(
            kind="tool_call",
            call_id=call_id,
            tool=tool,
            command=command,
            text=text,
            exit_code=exit_code,
            failed=failed,
        )
