"""Fresh scratch directories, and their removal whatever a Policy has left in them."""

# ruff: noqa: PTH101, PTH106, PTH108 (template processes use this too, and pathlib costs much to import)

from __future__ import annotations

import os
import stat
import time

TYPE_CHECKING = False  # type checkers take it as true; importing typing would cost every template process
if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["Identity", "Scratch", "identity", "remove_tree"]

Identity = tuple[int, int, int, int, int]

_OPEN_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


def identity(path: str | Path) -> Identity:
    """What tells a file or directory from itself touched: nothing that a process can do sets a ctime.

    An entry that was added to, removed from or renamed in a directory changes the directory.
    """
    status = os.lstat(path)
    return status.st_ino, status.st_mode, status.st_size, status.st_mtime_ns, status.st_ctime_ns


class Scratch:
    """The directory that is fresh and empty at the start of every Episode.

    One that an Episode has left untouched is as good as a new one, and kept: making one costs more than all else that
    is done for it.

    Args:
        directory: where; its parent exists.
        hiding_seconds: for how long after its making a change may not show.
    """

    def __init__(self, directory: Path, hiding_seconds: float) -> None:
        self.directory = directory
        self._hiding_seconds = hiding_seconds
        self._identity: Identity | None = None
        self._settled = False

    def renew(self) -> None:
        """Have it fresh and empty."""
        if not self._looks_untouched():
            self._make()
        elif not self._settled and self._hiding_seconds:
            # A change right after its making would not show: once more, and let that time pass.
            self._make()
            time.sleep(self._hiding_seconds)
            self._settled = True

    def remove(self) -> None:
        """Remove it."""
        self._identity = None
        remove_tree(self.directory)

    def _make(self) -> None:
        self._settled = False
        remove_tree(self.directory)
        self.directory.mkdir(mode=0o700)
        self._identity = identity(self.directory)

    def _looks_untouched(self) -> bool:
        try:
            return identity(self.directory) == self._identity
        except OSError:
            return False


def remove_tree(directory: str | Path) -> None:
    """Remove a directory and all below it, without following links and at any depth.

    Directories are not descended into but emptied upwards: what a subdirectory holds is moved to the top first, so
    that neither the depth of a tree nor the length of its paths matters. No process may be at work in it.

    Raises:
        OSError: something cannot be removed.
    """
    try:
        os.rmdir(directory)
        return
    except FileNotFoundError:
        return
    except OSError:  # not empty, or no directory
        pass
    if not stat.S_ISDIR(os.lstat(directory).st_mode):
        os.unlink(directory)
        return
    os.chmod(directory, 0o700)
    top = os.open(directory, _OPEN_DIRECTORY)
    try:
        _empty(top)
    finally:
        os.close(top)
    os.rmdir(directory)


def _empty(top: int) -> None:
    moved = 0
    while names := os.listdir(top):
        for name in names:
            if not stat.S_ISDIR(os.stat(name, dir_fd=top, follow_symlinks=False).st_mode):
                os.unlink(name, dir_fd=top)
                continue
            os.chmod(name, 0o700, dir_fd=top)
            child = os.open(name, _OPEN_DIRECTORY, dir_fd=top)
            try:
                for below in os.listdir(child):  # noqa: PTH208 (by descriptor)
                    if stat.S_ISDIR(os.stat(below, dir_fd=child, follow_symlinks=False).st_mode):
                        os.chmod(below, 0o700, dir_fd=child)  # moving a directory writes its "..": needs the right
                        moved += 1
                        os.rename(below, f".moved-{moved}-{os.urandom(8).hex()}", src_dir_fd=child, dst_dir_fd=top)
                    else:
                        os.unlink(below, dir_fd=child)
            finally:
                os.close(child)
            os.rmdir(name, dir_fd=top)
