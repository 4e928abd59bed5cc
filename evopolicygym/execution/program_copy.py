"""The copy of a Program that Policy processes run in, remade whenever an Episode has touched it."""

import os
import time
from collections.abc import Callable
from pathlib import Path

from evopolicygym.execution.scratch import Identity, identity, remove_tree
from evopolicygym.program import Program

__all__ = ["ProgramCopy"]

# Byte code is prepared for Programs of up to so much source; beyond it for the entry point only.
_COMPILED_BYTES = 2 * 1024 * 1024


class ProgramCopy:
    """A directory that holds exactly the files of one Program, and byte code for its modules.

    Args:
        directory: where; its parent exists.
        compile_into: writes byte code for the named sources into the directory.
        hiding_seconds: for how long after its making a change may not show.
    """

    def __init__(self, directory: Path, compile_into: Callable[[str, list[str]], None], hiding_seconds: float) -> None:
        self.directory = directory
        self._compile_into = compile_into
        self._hiding_seconds = hiding_seconds
        self._program: Program | None = None
        self._paths: list[str] = []
        self._identities: list[Identity] = []

    def hold(self, program: Program) -> None:
        """Have the files of ``program`` in the directory, and nothing else."""
        if self._program != program:
            self._program = program
            self._paths = []

    def renew(self) -> None:
        """Make the copy anew unless nothing in it has changed since it was made.

        Every file and directory is looked at; a new copy is waited for until any change of it would show.
        """
        if self._program is not None and not self._is_untouched():
            self._write(self._program)

    def remove(self) -> None:
        """Remove the directory."""
        self._program = None
        self._paths = []
        remove_tree(self.directory)

    def _is_untouched(self) -> bool:
        try:
            return bool(self._paths) and list(map(identity, self._paths)) == self._identities
        except OSError:
            return False

    def _write(self, program: Program) -> None:
        self._paths = []
        remove_tree(self.directory)
        program.write_to(self.directory)
        sources = [path for path in program.files if path.endswith(".py")]
        if sum(len(program.read_bytes(path)) for path in sources) > _COMPILED_BYTES:
            sources = ["policy.py"]
        self._compile_into(str(self.directory), sources)
        paths = [str(self.directory)]
        for folder, folders, files in os.walk(self.directory):
            paths += (os.path.join(folder, name) for name in (*folders, *files))  # noqa: PTH118 (looked at as text)
        self._identities = list(map(identity, paths))
        self._paths = paths
        if self._hiding_seconds:
            time.sleep(self._hiding_seconds)
