"""The copy of a Program that Policy processes run in, remade whenever an Episode has touched it."""

import os
import time
from pathlib import Path

from evopolicygym.execution.scratch import remove_tree
from evopolicygym.program import Program

__all__ = ["ProgramCopy"]

# A change within the same tick of the kernel's clock as the copy itself would not change a ctime. Ticks last
# 10 ms at most (HZ >= 100).
_CLOCK_TICK_SECONDS = 0.010

_Identity = tuple[int, int, int, int, int]


class ProgramCopy:
    """A directory that holds exactly the files of one Program."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._program: Program | None = None
        self._paths: tuple[str, ...] = ()
        self._identities: list[_Identity] = []
        self._settled_at = 0.0

    def hold(self, program: Program) -> None:
        """Have the files of ``program`` in the directory, and nothing else."""
        if self._program != program:
            self._program = None
            self._write(program)
            self._program = program

    def restore(self) -> None:
        """Make the copy anew unless nothing in it has changed since it was made.

        Compares inode, mode, size, mtime and ctime of every file and directory: an entry that was added, removed or
        renamed changes its directory, and nothing that a process can do sets a ctime.
        """
        if self._program is None:
            return
        try:
            untouched = self._look() == self._identities
        except OSError:
            untouched = False
        if not untouched:
            self._write(self._program)

    def settle(self) -> None:
        """Wait (milliseconds, after a new copy only) until any change will show."""
        remaining = self._settled_at - time.monotonic()
        if remaining > 0:
            time.sleep(remaining)

    def remove(self) -> None:
        """Remove the directory."""
        self._program = None
        remove_tree(self.directory)

    def _write(self, program: Program) -> None:
        remove_tree(self.directory)
        program.write_to(self.directory)
        folders = {
            "/".join(parts[:depth])
            for parts in (path.split("/") for path in program.files)
            for depth in range(len(parts))
        }
        self._paths = tuple(os.path.join(self.directory, path) for path in sorted({*folders, *program.files}))  # noqa: PTH118 (plain strings, looked at after every Episode)
        self._identities = self._look()
        self._settled_at = time.monotonic() + _CLOCK_TICK_SECONDS

    def _look(self) -> list[_Identity]:
        found = []
        for path in self._paths:
            status = os.lstat(path)
            found.append((status.st_ino, status.st_mode, status.st_size, status.st_mtime_ns, status.st_ctime_ns))
        return found
