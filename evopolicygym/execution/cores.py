"""Cores that workers keep to themselves: a worker and its Policies talk fastest on one and the same core."""

import fcntl
import os
import tempfile
from pathlib import Path

__all__ = ["CoreClaim", "claim_core"]


class CoreClaim:
    """One core of this process's affinity mask, held by a lock file until :meth:`release` or the process's end."""

    def __init__(self, core: int, lock: int) -> None:
        self.core = core
        self._lock = lock

    def pin_thread(self) -> None:
        """Keep the calling thread, and what it starts from now on, on the core."""
        os.sched_setaffinity(0, {self.core})

    def release(self) -> None:
        """Let others claim the core; affinities stay as they are."""
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1


def claim_core() -> CoreClaim | None:
    """Claim a core that nobody else has claimed; None if there is none left, or the system has no affinities."""
    if not hasattr(os, "sched_getaffinity"):
        return None
    try:
        directory = _lock_directory()
    except OSError:
        return None
    for core in sorted(os.sched_getaffinity(0)):
        try:
            lock = os.open(directory / f"core-{core}", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        except OSError:
            continue
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(lock)
            continue
        return CoreClaim(core, lock)
    return None


def _lock_directory() -> Path:
    directory = Path(tempfile.gettempdir()) / f"evopolicygym-cores-{os.getuid()}"
    directory.mkdir(mode=0o700, exist_ok=True)
    status = directory.lstat()
    if status.st_uid != os.getuid() or status.st_mode & 0o077:
        raise PermissionError(f"{directory} is not a private directory of this user")
    return directory
