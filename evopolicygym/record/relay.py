"""Telling an observer on a thread of its own, so that it can neither slow nor stop what it observes."""

import threading
import warnings
from collections import deque

from evopolicygym.record.events import RunEvent, RunObserver

__all__ = ["ObserverRelay"]

CLOSE_SECONDS = 10.0
"""How long an observer may take for what it has not been told yet when the Run has ended."""
MAX_UNTOLD = 100_000
"""Events that may wait for a slow observer; at one more it is dropped."""


class ObserverRelay:
    """Passes events on to one observer, in order, from a thread that does nothing else.

    An observer that raises, that falls ``MAX_UNTOLD`` events behind, or that has not kept up ``CLOSE_SECONDS`` after
    the end is dropped with a RuntimeWarning.

    Args:
        observer: who is told.
    """

    def __init__(self, observer: RunObserver) -> None:
        self._observer = observer
        self._untold: deque[RunEvent] = deque()
        self._changed = threading.Condition()
        self._closing = False
        self._dropped = False
        self._thread = threading.Thread(target=self._tell_all, name="evopolicygym-observer", daemon=True)
        self._thread.start()

    def on_event(self, event: RunEvent) -> None:
        """Queue one event; never waits."""
        with self._changed:
            if self._closing:
                return
            behind = len(self._untold) >= MAX_UNTOLD
            if not behind:
                self._untold.append(event)
                self._changed.notify()
        if behind:
            self._drop(f"is {MAX_UNTOLD} events behind")

    def close(self) -> None:
        """Wait, for a bounded time, until everything has been told; nothing is told afterwards."""
        with self._changed:
            self._closing = True
            self._changed.notify()
            seconds = 0.0 if self._dropped else CLOSE_SECONDS
        self._thread.join(seconds)
        if self._thread.is_alive():
            self._drop(f"has not kept up {CLOSE_SECONDS:g} s after the Run's end")

    def _tell_all(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._untold or self._closing)
                if not self._untold:
                    return
                event = self._untold.popleft()
            try:
                self._observer.on_event(event)
            except Exception as error:  # noqa: BLE001 - any fault of an observer is its own, and it is told
                self._drop(f"raised {type(error).__qualname__} at {event.name!r} ({error})")
                return

    def _drop(self, why: str) -> None:
        with self._changed:
            if self._dropped:
                return
            self._dropped = True
            self._untold.clear()
            self._closing = True
            self._changed.notify()
        try:
            warnings.warn(
                f"the observer {type(self._observer).__qualname__} {why}; it is told nothing more, the Run goes on",
                RuntimeWarning,
                stacklevel=2,
            )
        except RuntimeWarning:  # warnings were made errors; the Run still goes on
            pass
