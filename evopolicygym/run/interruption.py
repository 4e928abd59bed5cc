"""Ctrl-C and SIGTERM at the Host: noted at once, acted on by whoever waits, raised again at the very end."""

import os
import select
import signal
import threading
import time
from collections.abc import Callable
from types import FrameType, TracebackType
from typing import Generic, Self, TypeVar

__all__ = ["BackgroundCall", "Interruption", "wait_readable"]

_Result = TypeVar("_Result")
_SIGNALS = (signal.SIGINT, signal.SIGTERM)


class Interruption:
    """While entered, SIGINT and SIGTERM are noted instead of raised; :meth:`fileno` then becomes readable.

    Handlers are set in the main thread only; elsewhere nothing is ever noted. Further signals change nothing:
    every wait after the first is bounded.
    """

    def __init__(self) -> None:
        self.signal: int | None = None
        self._previous: dict[int, object] = {}
        self._reader, self._writer = os.pipe()
        os.set_blocking(self._writer, False)

    def __enter__(self) -> Self:
        if threading.current_thread() is threading.main_thread():
            for number in _SIGNALS:
                self._previous[number] = signal.signal(number, self._note)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for number, previous in self._previous.items():
            # None: the handler was not set from Python and cannot be restored from it.
            if previous is not None:
                signal.signal(number, previous)  # type: ignore[arg-type]  # what signal.signal returned
        os.close(self._reader)
        os.close(self._writer)

    @property
    def noted(self) -> bool:
        """Whether a signal has arrived."""
        return self.signal is not None

    def fileno(self) -> int:
        """A descriptor that is readable once a signal has arrived."""
        return self._reader

    def _note(self, number: int, _frame: FrameType | None) -> None:
        if self.signal is None:
            self.signal = number
            os.write(self._writer, b"!")


class BackgroundCall(Generic[_Result]):
    """A function that runs in a thread of its own, so that the main thread can go on waiting for signals.

    The thread is a daemon: a call that cannot be stopped (a Benchmark's ``feedback()`` in C) may be left behind.
    """

    def __init__(self, function: Callable[[], _Result]) -> None:
        self._function = function
        self._result: _Result | None = None
        self._error: BaseException | None = None
        self._reader, self._writer = os.pipe()
        self._thread = threading.Thread(target=self._call, name="evopolicygym-background", daemon=True)
        self._thread.start()

    def _call(self) -> None:
        try:
            self._result = self._function()
        except BaseException as error:  # noqa: BLE001  # raised again by result()
            self._error = error
        finally:
            os.close(self._writer)

    def fileno(self) -> int:
        """A descriptor that is readable once the call has ended."""
        return self._reader

    def result(self, *, timeout: float | None) -> _Result:
        """What the function returned or raised; TimeoutError if it has not ended in time (seconds)."""
        self._thread.join(timeout)
        if self._thread.is_alive():
            raise TimeoutError("the call has not ended")
        os.close(self._reader)
        if self._error is not None:
            raise self._error
        return self._result  # type: ignore[return-value]  # the function has returned


def wait_readable(descriptors: list[int], timeout: float | None) -> set[int]:
    """Those of ``descriptors`` that are readable, after at most ``timeout`` seconds (None: no limit)."""
    poller = select.poll()
    for descriptor in descriptors:
        poller.register(descriptor, select.POLLIN)
    deadline = None if timeout is None else time.monotonic() + max(timeout, 0.0)
    while True:
        left = None if deadline is None else max(deadline - time.monotonic(), 0.0)
        # Long waits are cut up: poll takes milliseconds in a C int.
        slice_ms = 3_600_000.0 if left is None else min(left * 1000.0, 3_600_000.0)
        ready = poller.poll(slice_ms)
        if ready:
            return {descriptor for descriptor, _ in ready}
        if deadline is not None and time.monotonic() >= deadline:
            return set()
