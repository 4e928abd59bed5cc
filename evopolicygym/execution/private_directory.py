"""A private temporary directory for one process, and the removal of those that killed processes left behind."""

import contextlib
import fcntl
import os
import tempfile
from pathlib import Path
from typing import Self

from evopolicygym.execution.scratch import remove_tree

__all__ = ["PrivateDirectory"]

_PREFIX = "evopolicygym-run-"
_LOCK = ".lock"

# What one process clears away of others; the rest is for the next one.
_SWEPT_MAX = 64


class PrivateDirectory:
    """A directory that is removed at :meth:`close`, or by the next process if this one is killed.

    Args:
        place: where it is made; None: in the temporary directory.

    Attributes:
        path: the directory; mode 0700.

    Raises:
        OSError: it cannot be made.
    """

    def __init__(self, place: Path | None = None) -> None:
        place = place or Path(tempfile.gettempdir())
        _sweep(place)
        self.path = Path(tempfile.mkdtemp(prefix=_PREFIX, dir=place))
        # Locked before it has its name: whoever sees the lock file sees it locked.
        early = self.path / (_LOCK + ".new")
        self._lock = os.open(early, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        fcntl.flock(self._lock, fcntl.LOCK_EX)
        early.rename(self.path / _LOCK)

    def close(self) -> None:
        """Remove it with all that is in it; safe to call again."""
        if self._lock < 0:
            return
        try:
            remove_tree(self.path)
        finally:  # what could not be removed is left to the next process
            os.close(self._lock)
            self._lock = -1

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _sweep(place: Path) -> None:
    """Remove directories of this user whose process is gone."""
    swept = 0
    with contextlib.suppress(OSError):
        for directory in place.glob(f"{_PREFIX}*"):
            if swept >= _SWEPT_MAX:
                return
            with contextlib.suppress(OSError):
                swept += _remove_if_abandoned(directory)


def _remove_if_abandoned(directory: Path) -> bool:
    if directory.is_symlink() or directory.lstat().st_uid != os.getuid():
        return False
    lock = os.open(directory / _LOCK, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        remove_tree(directory)
    finally:
        os.close(lock)
    return True
