"""From the bytes of an Agent's standard output to events, whatever it prints."""

import json
from collections.abc import Callable

from evopolicygym.agents.events import AgentEvent
from evopolicygym.agents.invocation import LineParser

__all__ = ["EventReader", "parse_event_line", "parse_text_line"]

LINE_MAX_BYTES = 16 * 1024 * 1024
"""A longer line is passed over: it stays in the log, but tells no event."""

_FAULTS_MAX = 5
"""Faults of one parser that are told; the rest only counts."""


def parse_text_line(line: str) -> tuple[AgentEvent, ...]:
    """Every line that is not blank is a message."""
    return (AgentEvent(kind="message", text=line.rstrip()),) if line.strip() else ()


def parse_event_line(line: str) -> tuple[AgentEvent, ...]:
    """A JSON object in the form of :meth:`AgentEvent.to_json` is that event; any other line is passed over."""
    try:
        return (AgentEvent.from_json(json.loads(line)),)
    except (ValueError, RecursionError):
        return ()


class EventReader:
    """Cuts a stream into lines, gives each to the parser, and survives what either of them does.

    Args:
        new_parser: Makes the parser; None means that no events are told.

    ``skipped_lines`` counts the lines over the limit, ``faults`` the lines at which the parser raised.
    """

    def __init__(self, new_parser: Callable[[], LineParser] | None) -> None:
        self._parse = None if new_parser is None else new_parser()
        self._pieces: list[bytes] = []
        self._size = 0
        self.skipped_lines = 0
        self.faults = 0

    def feed(self, chunk: bytes) -> list[AgentEvent]:
        """Take the next bytes, cut anywhere.

        Returns:
            The events of all lines that are now complete.
        """
        if self._parse is None:
            return []
        events: list[AgentEvent] = []
        *complete, rest = chunk.split(b"\n")
        for piece in complete:
            self._keep(piece)
            events.extend(self._end_line())
        self._keep(rest)
        return events

    def close(self) -> list[AgentEvent]:
        """The events of a last line without a line end."""
        return self._end_line() if self._size else []

    def _keep(self, piece: bytes) -> None:
        self._size += len(piece)
        if self._size > LINE_MAX_BYTES:
            self._pieces.clear()
        elif piece:
            self._pieces.append(piece)

    def _end_line(self) -> list[AgentEvent]:
        line, size = b"".join(self._pieces), self._size
        self._pieces.clear()
        self._size = 0
        if size > LINE_MAX_BYTES:
            self.skipped_lines += 1
            return []
        if self._parse is None:
            return []
        try:
            # A parser may come from anyone; one that raises costs the line, never the Run.
            return list(self._parse(line.decode("utf-8", "replace").rstrip("\r")))
        except Exception as error:  # noqa: BLE001
            self.faults += 1
            if self.faults > _FAULTS_MAX:
                return []
            text = f"the parser of the Agent's output failed: {type(error).__name__}: {error}"
            return [AgentEvent(kind="error", code="parser", fatal=False, text=text)]
