"""Observers of a Run that the command line needs beside its display."""

import json
import sys
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import TextIO

from evopolicygym.cli.recent import remember
from evopolicygym.cli.run_view import EPISODE_EVENTS, RunView
from evopolicygym.record import RunEvent, RunObserver
from evopolicygym.record.journal import journal_time


class Observers:
    """Tells several observers; one that raises is dropped, and the others go on."""

    def __init__(self, observers: Sequence[RunObserver]) -> None:
        self._observers = tuple(observers)

    def on_event(self, event: RunEvent) -> None:
        """Pass the event on."""
        for observer in self._observers:
            try:
                observer.on_event(event)
            except Exception as error:  # noqa: BLE001  # reported; a display must not end the others
                self._observers = tuple(other for other in self._observers if other is not observer)
                warnings.warn(
                    f"{type(observer).__name__} failed and shows nothing more: {error!r}", RuntimeWarning, stacklevel=2
                )


class ViewKeeper:
    """Keeps a view of how the Run stands, for its end; single Episodes are left out, for there may be many."""

    def __init__(self) -> None:
        self.view = RunView()

    def on_event(self, event: RunEvent) -> None:
        """Fold the event in."""
        if event.name not in EPISODE_EVENTS:
            self.view.apply(event)


class RecordRemembered:
    """Puts the Record into the index of recent ones as soon as a Run goes on in it."""

    def __init__(self, record: Path) -> None:
        self._record = record

    def on_event(self, event: RunEvent) -> None:
        """Act on the first event of a Host only."""
        if event.name in ("run_started", "run_resumed"):
            remember(self._record)


class EventLines:
    """Writes each event as one line of JSON: the journal's fields, without its numbering."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def on_event(self, event: RunEvent) -> None:
        """Write the line."""
        line = {"time": journal_time(event.time_unix_ns), "monotonic_ns": event.monotonic_ns, "event": event.name}
        self._stream.write(json.dumps(line | dict(event.fields), allow_nan=False) + "\n")
        self._stream.flush()


class RecordAnnounced:
    """Says on standard error where the Record goes."""

    def __init__(self, shown: str) -> None:
        self._shown = shown

    def on_event(self, event: RunEvent) -> None:
        """Act on the first event of the Run only."""
        if event.name == "run_started":
            sys.stderr.write(f"Record: {self._shown}\n")
