"""Watching a Run that another process runs, from its journal, until it ends."""

import sys
from pathlib import Path

from evopolicygym.cli.consoles import can_animate
from evopolicygym.cli.observers import EventLines
from evopolicygym.record import RunObserver, RunRecord
from evopolicygym.run.console import ConsoleProgress


def follow_run(record: RunRecord, *, as_json: bool) -> None:
    """Show every event from the first one on and those to come; returns once nobody owns the Record any more."""
    if as_json:
        _tell(record, EventLines(sys.stdout))
    elif can_animate(sys.stderr):
        from evopolicygym.cli.live import LiveProgress

        with LiveProgress(Path(record.path)) as live:
            _tell(record, live)
    else:
        _tell(record, ConsoleProgress(sys.stderr, mode="plain"))


def _tell(record: RunRecord, observer: RunObserver) -> None:
    for event in record.follow():
        observer.on_event(event)
