"""The live display: an observer that folds events into a view, and a thread that draws it at a bounded rate."""

import threading
import time
from pathlib import Path
from types import TracebackType
from typing import Self

from rich.live import Live

from evopolicygym.cli.consoles import message_console
from evopolicygym.cli.frames import live_frame
from evopolicygym.cli.run_view import RunView
from evopolicygym.record.events import RunEvent

# Under the interpreter lock a frame stops the Run for as long as it takes to draw. So the next one comes no sooner
# than this many times that cost, and never more often than eyes can follow.
_REST_PER_COST = 50
_SHORTEST_REST_SECONDS = 0.1
_LONGEST_REST_SECONDS = 2.0
_CLOSE_SECONDS = 5.0


class LiveProgress:
    """Draws a Run on the terminal while it goes on, and leaves the terminal clean.

    Args:
        record: directory of the Record, shown in the header.
    """

    def __init__(self, record: Path) -> None:
        self.view = RunView()
        self._record = record
        self._lock = threading.Lock()
        self._stop = threading.Event()
        self._console = message_console()
        self._live = Live(
            console=self._console,
            auto_refresh=False,
            transient=True,
            redirect_stdout=False,
            vertical_overflow="crop",
        )
        self._thread = threading.Thread(target=self._draw_until_stopped, name="live-display", daemon=True)

    def on_event(self, event: RunEvent) -> None:
        """Take the event in; drawing is the thread's business."""
        with self._lock:
            self.view.apply(event)

    def __enter__(self) -> Self:
        self._live.start()
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._stop.set()
        self._thread.join(_CLOSE_SECONDS)
        self._live.stop()

    def _draw_until_stopped(self) -> None:
        while not self._stop.is_set():
            before = time.thread_time()
            try:
                with self._lock:
                    frame = live_frame(
                        self.view,
                        self._record,
                        width=self._console.width,
                        height=self._console.height,
                        now_ns=time.monotonic_ns(),
                    )
                self._live.update(frame, refresh=True)
            except OSError:  # the terminal is gone; the Run is not
                return
            cost = time.thread_time() - before
            self._stop.wait(min(_LONGEST_REST_SECONDS, max(_SHORTEST_REST_SECONDS, _REST_PER_COST * cost)))
