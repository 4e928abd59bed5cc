"""The live display of a Run: an observer that folds events into a view, drawn by a thread of its own."""

import threading
import time
from pathlib import Path
from types import TracebackType
from typing import Self

from rich.console import RenderableType

from evopolicygym.cli.drawing import Drawing
from evopolicygym.cli.frames import live_frame
from evopolicygym.cli.policy_errors import ErrorGroups
from evopolicygym.cli.run_view import EPISODE_EVENTS, RunView
from evopolicygym.record.events import RunEvent


class LiveProgress:
    """Draws a Run on the terminal while it goes on.

    Args:
        record: directory of the Record, shown in the header; Policy errors are read from it.
    """

    def __init__(self, record: Path) -> None:
        self.view = RunView()
        self._record = record
        self._errors = ErrorGroups()
        self._lock = threading.Lock()
        # Episodes without a failure come by the thousand a second: they are only counted until somebody looks.
        self._episodes = 0
        self._episodes_taken = 0
        self._drawing = Drawing(self._frame)

    def on_event(self, event: RunEvent) -> None:
        """Take the event in; drawing is the thread's business."""
        if event.name in EPISODE_EVENTS and event.fields.get("failure") is None:
            self._episodes += 1
            return
        with self._lock:
            self._take_episodes()
            self.view.apply(event)

    def __enter__(self) -> Self:
        self._drawing.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._drawing.__exit__(kind, error, traceback)

    def _take_episodes(self) -> None:
        counted = self._episodes
        self.view.count_episodes(counted - self._episodes_taken)
        self._episodes_taken = counted

    def _frame(self, width: int, height: int) -> RenderableType:
        with self._lock:
            self._take_episodes()
            failed = [row.submission_id for row in self.view.published if row.policy_failures]
        self._errors.read(self._record, failed)
        with self._lock:
            return live_frame(
                self.view,
                self._record,
                width=width,
                height=height,
                now_ns=time.monotonic_ns(),
                errors=self._errors.ranked,
            )
