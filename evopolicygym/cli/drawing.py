"""A thread that redraws a part of the terminal at a bounded cost, and leaves the terminal clean."""

import threading
import time
from collections.abc import Callable
from types import TracebackType
from typing import Self

from rich.console import ConsoleDimensions, Group, RenderableType
from rich.control import Control
from rich.live import Live
from rich.text import Text

from evopolicygym.cli.consoles import message_console

# Under the interpreter lock a frame stops the work for as long as it takes to draw. So the next one comes no sooner
# than this many times that cost, and never more often than eyes can follow.
_REST_PER_COST = 70
_SHORTEST_REST_SECONDS = 0.1
_LONGEST_REST_SECONDS = 2.0
_CLOSE_SECONDS = 5.0


class Drawing:
    """Draws frames on standard error until it is left.

    Args:
        frame: makes the next frame from width and height of the terminal, in cells; called on the drawing thread.
    """

    def __init__(self, frame: Callable[[int, int], RenderableType]) -> None:
        self._frame = frame
        self._stop = threading.Event()
        self._console = message_console()
        self._live = Live(
            console=self._console,
            auto_refresh=False,
            transient=True,
            redirect_stdout=False,
            vertical_overflow="crop",
        )
        self._size: ConsoleDimensions | None = None
        self._thread = threading.Thread(target=self._draw_until_stopped, name="live-display", daemon=True)

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

    def _start_over_if_resized(self) -> None:
        """A terminal that changes its width wraps what stands there, so that it cannot be found and redrawn."""
        size = self._console.size
        if self._size is not None and size != self._size:
            self._console.control(Control.home(), Control.clear())
        self._size = size

    def _draw_until_stopped(self) -> None:
        while not self._stop.is_set():
            before = time.thread_time()
            try:
                self._start_over_if_resized()
                # The cursor rests on a line of its own: an echoed ^C must not wrap a full one and shift the frame.
                frame = self._frame(self._console.width, self._console.height - 1)
                self._live.update(Group(frame, Text("")), refresh=True)
            except OSError:  # the terminal is gone; the work is not
                return
            cost = time.thread_time() - before
            self._stop.wait(min(_LONGEST_REST_SECONDS, max(_SHORTEST_REST_SECONDS, _REST_PER_COST * cost)))
