"""Programs: immutable, content-addressed snapshots of a Policy directory."""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from evopolicygym.errors import ProgramChangedError, ProgramLimitError, ProgramSourceError
from evopolicygym.identities import PROGRAM_ENTRYPOINT, program_digest
from evopolicygym.policy import POLICY_ABI_VERSION, type_name
from evopolicygym.snapshot import SnapshotErrors, SnapshotFile, SnapshotLimits, read_snapshot, write_snapshot

__all__ = ["Program", "ProgramLimits"]

_ERRORS = SnapshotErrors(source=ProgramSourceError, limit=ProgramLimitError, changed=ProgramChangedError)
_POLICY_FILE = PROGRAM_ENTRYPOINT.partition(":")[0]


@dataclass(frozen=True, slots=True)
class ProgramLimits:
    """How large a Program may be.

    Args:
        max_files: number of files.
        max_total_bytes: bytes of all files together.
        max_file_bytes: bytes of any one file.

    Raises:
        ValueError: a limit is no int >= 1.
    """

    max_files: int = 1000
    max_total_bytes: int = 64 * 1024 * 1024
    max_file_bytes: int = 16 * 1024 * 1024

    def __post_init__(self) -> None:
        for field in ("max_files", "max_total_bytes", "max_file_bytes"):
            value = getattr(self, field)
            if type(value) is not int or value < 1:
                raise ValueError(f"{field} must be an int >= 1, found {value!r}")


class Program:
    """One Policy directory, frozen. Two Programs are equal if their digests are.

    Made by :meth:`from_directory`; the constructor itself raises TypeError.
    """

    __slots__ = ("_digest", "_files")

    _files: Mapping[str, bytes]
    _digest: str

    entrypoint: Final = PROGRAM_ENTRYPOINT
    policy_abi: Final = POLICY_ABI_VERSION

    def __init__(self) -> None:
        raise TypeError("a Program is made by Program.from_directory(path)")

    @classmethod
    def from_directory(cls, path: str | os.PathLike[str], *, limits: ProgramLimits | None = None) -> "Program":
        """Capture a directory that holds ``policy.py``.

        ``.git/``, ``__pycache__/`` and ``*.pyc`` are left out; file modes are not kept.

        Args:
            path: a real directory (no symbolic link).
            limits: defaults to :class:`ProgramLimits`.

        Raises:
            ProgramSourceError: no such directory, no ``policy.py``; a link, a special file or an unusable
                name in it.
            ProgramLimitError: it is too large.
            ProgramChangedError: it changed while it was being read.
        """
        bounds = ProgramLimits() if limits is None else limits
        if not isinstance(bounds, ProgramLimits):
            raise TypeError(f"limits must be ProgramLimits, not {type_name(limits)}")
        files = read_snapshot(
            path,
            limits=SnapshotLimits(bounds.max_files, bounds.max_total_bytes, bounds.max_file_bytes),
            errors=_ERRORS,
        )
        if _POLICY_FILE not in files:
            raise ProgramSourceError(
                f"{os.fspath(path)}: there is no {_POLICY_FILE}; it must define make_policy(context)"
            )
        return cls._from_files({name: file.content for name, file in files.items()})

    @classmethod
    def _from_files(cls, files: Mapping[str, bytes]) -> "Program":
        program = cls.__new__(cls)
        program._files = dict(files)
        program._digest = program_digest(files)
        return program

    @property
    def digest(self) -> str:
        """``"sha256:<hex>"`` over entry point, ABI and every file."""
        return self._digest

    @property
    def files(self) -> tuple[str, ...]:
        """Relative POSIX paths, in order of their UTF-8 bytes."""
        return tuple(self._files)

    @property
    def file_count(self) -> int:
        """Number of files."""
        return len(self._files)

    @property
    def total_bytes(self) -> int:
        """Bytes of all files together."""
        return sum(map(len, self._files.values()))

    def read_bytes(self, path: str) -> bytes:
        """The content of one file.

        Raises:
            KeyError: no such file.
        """
        return self._files[path]

    def write_to(self, directory: str | os.PathLike[str]) -> None:
        """Write the files as a new directory, which appears complete or not at all.

        Raises:
            FileExistsError: ``directory`` exists.
            FileNotFoundError: its parent does not.
        """
        write_snapshot(directory, {path: SnapshotFile(content, False) for path, content in self._files.items()})

    def __eq__(self, other: object) -> bool:
        return self._digest == other._digest if isinstance(other, Program) else NotImplemented

    def __hash__(self) -> int:
        return hash(self._digest)

    def __repr__(self) -> str:
        return f"<Program {self._digest[:19]}… {self.file_count} files, {self.total_bytes} bytes>"

    def __reduce__(self) -> tuple[object, tuple[dict[str, bytes]]]:
        return Program._from_files, (dict(self._files),)
