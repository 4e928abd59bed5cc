"""The journal: one event a line, appended by one process, never half a line."""

import errno
import os
import threading
import time
import warnings
from collections import deque
from collections.abc import Callable
from pathlib import Path

from evopolicygym.errors import RecordError
from evopolicygym.record.events import Event, Notice, RunEvent, RunObserver
from evopolicygym.record.storage import disk_is_full, write_all
from evopolicygym.record.strict_json import json_line

__all__ = ["Journal", "journal_time"]

_NANOSECONDS = 1_000_000_000
_APPEND = os.O_WRONLY | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC


def journal_time(time_unix_ns: int) -> str:
    """ISO 8601 in UTC with nanoseconds, as journal lines carry it."""
    seconds, nanoseconds = divmod(time_unix_ns, _NANOSECONDS)
    return f"{time.strftime('%Y-%m-%dT%H:%M:%S', time.gmtime(seconds))}.{nanoseconds:09d}Z"


def _line(seq: int, event: RunEvent) -> bytes:
    stamp = {"seq": seq, "time": journal_time(event.time_unix_ns), "monotonic_ns": event.monotonic_ns}
    try:
        return json_line({**stamp, "event": event.name, **event.fields})
    except RecordError as error:
        raise RecordError(f"the event {event.name!r}: {error}") from error


class Journal:
    """Appends events to ``events.jsonl`` and tells observers.

    Thread-safe. A line is written with one unbuffered write, so that it outlives this process at once and
    a reader sees it; the line of a ``durable`` event also outlives the machine when :meth:`append` returns.

    Args:
        path: the file, which must exist and hold whole lines only.
        last_seq: the number of the last line in it.
        free_space: called when a ``closing`` event meets a full disk; says whether it made room.
    """

    def __init__(self, path: Path, *, last_seq: int = 0, free_space: Callable[[], bool] | None = None) -> None:
        self._path = path
        self._descriptor = os.open(path, _APPEND)
        self._end = os.fstat(self._descriptor).st_size
        self._torn = False
        self._seq = last_seq
        self._free_space = free_space
        self._writing = threading.Lock()
        self._delivering = threading.Lock()
        self._undelivered: deque[RunEvent] = deque()
        self._observers: list[RunObserver] = []
        self._fold: Callable[[RunEvent], None] | None = None

    @property
    def torn(self) -> bool:
        """Whether a failed append could not be cut off; the next one tries again before it writes."""
        return self._torn

    def fileno(self) -> int:
        """The descriptor of the open file."""
        return self._descriptor

    def append(self, event: Event) -> RunEvent:
        """Write one event as one line, then tell the observers.

        Raises:
            RecordError: it could not be written (its cause is the OSError), or a field is no JSON; the
                journal is as it was before.
        """
        fields = event.fields()
        with self._writing:
            now = time.time_ns()
            run_event = RunEvent(event.name, now, time.monotonic_ns(), fields)
            self._write(_line(self._seq + 1, run_event), event)
            self._seq += 1
            if self._fold is not None:
                self._fold(run_event)
            if self._observers:
                self._undelivered.append(run_event)
        self._deliver()
        return run_event

    def notice(self, message: str) -> None:
        """Append something that a reader should know and that ends no Run: where that fails, it is not known."""
        try:
            self.append(Notice(message))
        except RecordError:
            return  # a journal that fails tells itself at the next decision

    def _write(self, line: bytes, event: Event) -> None:
        try:
            try:
                self._append_line(line, durable=event.durable)
            except OSError as error:
                if not (event.closing and disk_is_full(error) and self._free_space and self._free_space()):
                    raise
                self._append_line(line, durable=event.durable)
        except OSError as error:
            raise RecordError(
                f"{self._path}: the event {event.name!r} could not be written: {error.strerror or error}"
            ) from error

    def _append_line(self, line: bytes, *, durable: bool) -> None:
        if self._descriptor < 0:
            raise OSError(errno.EBADF, "the journal is closed")
        if self._torn:
            os.ftruncate(self._descriptor, self._end)
        self._torn = True  # until the line is whole, also if a signal's exception ends this here
        try:
            write_all(self._descriptor, line)
            if durable:
                os.fsync(self._descriptor)
        except OSError:
            self._cut()
            raise
        self._end += len(line)
        self._torn = False

    def _cut(self) -> None:
        try:
            os.ftruncate(self._descriptor, self._end)
        except OSError:
            return  # still torn: told by ``torn``, tried again by the next append
        self._torn = False

    def keep(self, fold: Callable[[RunEvent], None]) -> None:
        """Fold every later event into a state that is up to date when :meth:`append` returns.

        Args:
            fold: called under the lock of the journal, so it must be quick, must not raise and not append.
        """
        self._fold = fold

    def subscribe(self, observer: RunObserver) -> None:
        """Tell ``observer`` of every later event, in the order of the lines.

        It is called by an appending thread, with no lock held that another append needs; it may append
        events itself. If it raises, it is dropped with a RuntimeWarning.
        """
        self._observers.append(observer)

    def unsubscribe(self, observer: RunObserver) -> None:
        """Tell ``observer`` nothing more; one that is not subscribed is ignored."""
        self._observers = [other for other in self._observers if other is not observer]

    def _deliver(self) -> None:
        # One thread at a time delivers, and delivers what others queue meanwhile: order without waiting.
        # The outer loop catches an event queued between its last look and its release of the lock.
        while self._undelivered and self._delivering.acquire(blocking=False):
            try:
                while self._undelivered:
                    event = self._undelivered.popleft()
                    for observer in tuple(self._observers):
                        self._tell(observer, event)
            finally:
                self._delivering.release()

    def _tell(self, observer: RunObserver, event: RunEvent) -> None:
        try:
            observer.on_event(event)
        except Exception as error:  # noqa: BLE001 - any fault of an observer is its own, and it is told
            self.unsubscribe(observer)
            try:
                warnings.warn(
                    f"the observer {type(observer).__qualname__} raised {type(error).__qualname__} at "
                    f"{event.name!r} ({error}); it is told nothing more, the Run goes on",
                    RuntimeWarning,
                    stacklevel=2,
                )
            except RuntimeWarning:  # warnings were made errors; the Run still goes on
                pass

    def close(self) -> None:
        """Close the file; whole lines only are left in it as far as that can be done."""
        with self._writing:
            if self._descriptor < 0:
                return
            if self._torn:
                self._cut()
            descriptor, self._descriptor = self._descriptor, -1
            os.close(descriptor)
