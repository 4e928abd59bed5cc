"""Tokens of a Kimi Code session: its stream tells none, a file below its state directory does."""

import os
import stat
from collections.abc import Iterable, Iterator
from pathlib import Path

from evopolicygym.agents.events import AgentEvent
from evopolicygym.agents.provider_stream import as_count, as_mapping, read_object

__all__ = ["FILE_MAX_BYTES", "SessionFiles", "session_usage"]

FILE_MAX_BYTES = 1024 * 1024 * 1024
_LINE_MAX_BYTES = 16 * 1024 * 1024


class SessionFiles:
    """Finds the files of one start: in a private directory all of them, in the user's own only what is new.

    ``session_id`` is the session's name, once the stream has told it.
    """

    def __init__(self) -> None:
        self.session_id: str | None = None
        self._existing: frozenset[Path] = frozenset()

    def note_existing(self, home: Path) -> None:
        """These sessions are not of this start."""
        self._existing = frozenset(_sessions(home))

    def closing_events(self, home: Path) -> Iterable[AgentEvent]:
        """The tokens of the session.

        Args:
            home: The state directory.
        """
        sessions = [session for session in _sessions(home) if session not in self._existing]
        if self.session_id is not None:
            sessions = [session for session in sessions if session.name == self.session_id]
        if len({session.parent for session in sessions}) > 1:
            # Sessions in other working directories began meanwhile, and this one was ended before it told its name.
            text = "the tokens of this session cannot be told from those of others that ran at the same time"
            yield AgentEvent(kind="error", code="usage", fatal=False, text=text)
            return
        for session in sessions:
            yield session_usage(session)


def _sessions(home: Path) -> list[Path]:
    return sorted(path for path in home.glob("sessions/wd_*/session_*") if path.is_dir())


def session_usage(session: Path) -> AgentEvent:
    """The tokens of one session, those of its helpers included.

    Args:
        session: Its directory.
    """
    read = cached = written = 0
    for path in sorted(session.glob("agents/*/wire.jsonl")):
        for line in _lines(path):
            record = read_object(line.decode("utf-8", "replace")) if b'"usage.record"' in line else {}
            # Counted once, in the file of the agent that spent them.
            if record.get("type") != "usage.record" or record.get("agentId", path.parent.name) != path.parent.name:
                continue
            used = as_mapping(record.get("usage"))
            cached += as_count(used.get("inputCacheRead"))
            read += sum(as_count(used.get(n)) for n in ("inputOther", "inputCacheRead", "inputCacheCreation"))
            written += as_count(used.get("output"))
    return AgentEvent(kind="usage", input_tokens=read, cached_tokens=cached, output_tokens=written)


def _lines(path: Path) -> Iterator[bytes]:
    """The lines of a file that the Agent may have put there: it is not waited for, and read so far and no further."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise ValueError(f"{path.name} is no file")
        with open(descriptor, "rb", closefd=False) as file:
            left = FILE_MAX_BYTES
            while left > 0 and (line := file.readline(min(_LINE_MAX_BYTES, left))):
                left -= len(line)
                yield line
    finally:
        os.close(descriptor)
