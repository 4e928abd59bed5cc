"""Following an Agent's standard output while it lives: transcript, totals, last action."""

import json
import os
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from io import FileIO
from pathlib import Path

from evopolicygym.agents import AgentEvent, AgentInvocation, AgentUsage, EventReader
from evopolicygym.errors import RecordError
from evopolicygym.record import Journal, events
from evopolicygym.record.storage import write_all
from evopolicygym.run.evidence import StreamRedactor, redact_text

__all__ = ["TranscriptFollower"]

FOLLOW_SECONDS = 0.2
"""How often the log is looked at."""
PROGRESS_SECONDS = 1.0
"""Least time between two agent_event lines of the journal."""
STOP_SECONDS = 60.0
"""How long the rest of a log may take to be read once the Agent is gone."""

_CHUNK = 256 * 1024
_CHUNK_SECONDS = 30.0
"""How long the parser may take for one piece once it is told to stop."""
_LAST_EVENTS = 50


class TranscriptFollower:
    """A thread that reads the log as it grows and writes ``transcript.jsonl`` beside it.

    Args:
        log: the Agent's ``stdout.log``; must exist.
        invocation: knows the parser.
        journal: is told the totals, at most once a second.
        secrets: values that no event may hold: the journal is never rewritten.

    ``session`` is what the Agent told of itself at its start.
    """

    def __init__(
        self, log: Path, invocation: AgentInvocation, journal: Journal, *, secrets: Mapping[bytes, str] | None = None
    ) -> None:
        self._log = log
        self._transcript = log.with_name("transcript.jsonl")
        self._reader = EventReader(invocation.new_parser)
        self._journal = journal
        self._secrets = secrets or {}
        self._redactor = StreamRedactor(self._secrets)
        self._gone = threading.Event()
        self._given_up = threading.Event()
        self._told = AgentUsage()
        self._told_action: str | None = None
        self._told_at = 0.0
        self.usage = AgentUsage()
        self.last_action: str | None = None
        self.last_events: deque[AgentEvent] = deque(maxlen=_LAST_EVENTS)
        self.session: dict[str, object] = {}
        self._ended_at: float | None = None
        self._fault: str | None = None
        self._thread = threading.Thread(target=self._follow, name="evopolicygym-transcript", daemon=True)
        self._thread.start()

    def finish(self, closing_events: Callable[[], Iterable[AgentEvent]] | None) -> str | None:
        """The Agent is gone: read the rest, add what its state tells, close the transcript.

        Returns:
            Why transcript or totals are not whole, None if they are. A Run goes on without them.
        """
        self._gone.set()
        self._thread.join(STOP_SECONDS)
        self._given_up.set()
        self._thread.join(_CHUNK_SECONDS)
        if self._thread.is_alive():
            self._note(TimeoutError("the parser of its output hangs"))
        if closing_events is not None:
            try:
                with self._transcript.open("ab", buffering=0) as transcript:
                    self._take(transcript, closing_events())
            except Exception as error:  # noqa: BLE001  # a provider's own code, about an Agent that is gone
                self._note(error)
        self._tell(at_once=True)
        return self._fault

    def seconds_since_end(self) -> float:
        """How long ago the Agent said that its work had ended; 0 if it did not, or has said something since."""
        ended_at = self._ended_at
        return 0.0 if ended_at is None else time.monotonic() - ended_at

    def _follow(self) -> None:
        try:
            with self._log.open("rb", buffering=0) as log, self._transcript.open("xb", buffering=0) as transcript:
                while True:
                    gone = self._gone.is_set()  # before the read: what was written last is still read
                    while chunk := log.read(_CHUNK):
                        if self._given_up.is_set():
                            raise TimeoutError(f"its output could not be read to its end within {STOP_SECONDS:g} s")
                        self._take(transcript, self._reader.feed(self._redactor.feed(chunk)))
                        self._tell()
                    if gone:
                        break
                    self._tell()
                    self._gone.wait(FOLLOW_SECONDS)
                self._take(transcript, self._reader.feed(self._redactor.close()))
                self._take(transcript, self._reader.close())
                os.fsync(transcript.fileno())
        except OSError as error:
            self._note(error)

    def _note(self, error: Exception) -> None:
        self._fault = self._fault or f"{type(error).__name__}: {error}"

    def _take(self, transcript: FileIO, agent_events: Iterable[AgentEvent]) -> None:
        lines = []
        for told in agent_events:
            # Once more: an encoder may have escaped more of a secret than was looked for in the stream.
            event = told.with_words(lambda words: redact_text(words, self._secrets))
            line = json.dumps({"time": time.time()} | event.to_json(), allow_nan=False, ensure_ascii=True)
            lines.append(line.encode() + b"\n")
            self.usage = self.usage.add(event)
            if event.action:
                self.last_action = event.action
            if event.kind == "session_start" and not self.session:
                self.session = {name: value for name, value in event.to_json().items() if name != "kind"}
            self._ended_at = time.monotonic() if event.kind == "end" else None
            self.last_events.append(event)
        if lines and self._fault is None:  # after a gap no more: half a transcript must not look like a whole one
            try:
                write_all(transcript.fileno(), b"".join(lines))
            except OSError as error:
                self._note(error)

    def _tell(self, *, at_once: bool = False) -> None:
        changed = self.usage != self._told or self.last_action != self._told_action
        now = time.monotonic()
        if not changed or (now - self._told_at < PROGRESS_SECONDS and not at_once):
            return
        self._told, self._told_action, self._told_at = self.usage, self.last_action, now
        try:
            self._journal.append(
                events.AgentEvent(
                    turns=self.usage.turns,
                    tool_calls=self.usage.tool_calls,
                    input_tokens=self.usage.input_tokens,
                    cached_tokens=self.usage.cached_tokens,
                    output_tokens=self.usage.output_tokens,
                    cost_usd=self.usage.cost_usd,
                    last_action=self.last_action,
                )
            )
        except RecordError as error:
            self._note(error)
