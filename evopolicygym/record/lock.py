"""Who owns a Record: one process at a time, by the lock on ``run.lock``."""

import fcntl
import os
from types import TracebackType
from typing import Self

from evopolicygym.errors import RecordError
from evopolicygym.record.layout import RecordLayout

__all__ = ["RecordLock"]

_OPEN_LOCK = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC


class RecordLock:
    """Holds the lock of one Record until :meth:`release`, or until this process is gone, whatever ends it.

    Args:
        layout: the Record, whose directory exists.

    Raises:
        RecordError: another process holds it, or it cannot be written here.
    """

    def __init__(self, layout: RecordLayout) -> None:
        self.layout = layout
        try:
            self._descriptor = os.open(layout.lock, _OPEN_LOCK, 0o600)
        except OSError as error:
            raise RecordError(f"{layout.lock}: it cannot be locked: {error.strerror or error}") from error
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            self.release()
            if isinstance(error, BlockingIOError):
                raise RecordError(
                    f"{layout.root} is in use by another process; wait for its end, or stop it with Ctrl-C"
                ) from None
            raise RecordError(f"{layout.lock}: it cannot be locked: {error.strerror or error}") from error

    def release(self) -> None:
        """Let others have it. Idempotent."""
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            os.close(descriptor)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.release()
