"""Cores that workers keep to themselves: a worker and its Policies talk fastest on one and the same core."""

import contextlib
import fcntl
import os
import tempfile
from pathlib import Path

__all__ = ["CorePin"]


class CorePin:
    """Keeps the calling thread on a core that no other holds, while there is work; a lock file stands for the core.

    A core is held for one Evaluation only: who merely waits for work must not keep others off it.
    """

    def __init__(self) -> None:
        self._lock = -1
        # What the thread was allowed before it was ever pinned.
        self._allowed = os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else set()
        self._pinned = False

    def claim(self) -> int | None:
        """Hold a core and move this thread to it; None, and free to run anywhere, if every core is held by others."""
        self.release()
        core = self._lock_one()
        with contextlib.suppress(OSError):  # a CPU set that has changed meanwhile: run wherever one may
            if core is not None:
                os.sched_setaffinity(0, {core})
                self._pinned = True
            elif self._pinned:
                os.sched_setaffinity(0, self._allowed)
                self._pinned = False
        return core

    def release(self) -> None:
        """Let others hold the core; this thread stays where it is until the next claim."""
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1

    def _lock_one(self) -> int | None:
        try:
            directory = _lock_directory()
        except OSError:
            return None
        for core in sorted(self._allowed):
            try:
                lock = os.open(directory / f"core-{core}", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
            except OSError:
                continue
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                os.close(lock)
                continue
            self._lock = lock
            return core
        return None


def _lock_directory() -> Path:
    directory = Path(tempfile.gettempdir()) / f"evopolicygym-cores-{os.getuid()}"
    directory.mkdir(mode=0o700, exist_ok=True)
    status = directory.lstat()
    if status.st_uid != os.getuid() or status.st_mode & 0o077:
        raise PermissionError(f"{directory} is not a private directory of this user")
    return directory
