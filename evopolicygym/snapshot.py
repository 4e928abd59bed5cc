"""Reading a directory that somebody else may be changing, and writing a copy of it in one step.

Every component below the given directory is opened relative to its parent's descriptor, following no link
and never blocking on a FIFO, so that no file outside of it can be captured.
"""

import errno
import os
import shutil
import stat
import tempfile
import unicodedata
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

__all__ = ["SnapshotErrors", "SnapshotFile", "SnapshotLimits", "read_snapshot", "write_snapshot"]

MAX_DEPTH = 64  # each level holds one descriptor open while it is read
_READ_CHUNK = 1024 * 1024
_OPEN_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_OPEN_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
# Every entry was there a moment before, of the right kind.
_NOT_WHAT_IT_WAS = frozenset(
    {errno.ENOENT, errno.ELOOP, errno.EMLINK, errno.ENOTDIR, errno.EISDIR, errno.ENXIO, errno.ESTALE}
)
_LEFT_OUT_DIRECTORIES = frozenset({".git", "__pycache__"})


@dataclass(frozen=True, slots=True)
class SnapshotLimits:
    """How much a snapshot may hold."""

    max_files: int
    max_total_bytes: int
    max_file_bytes: int


@dataclass(frozen=True, slots=True)
class SnapshotErrors:
    """Which error a caller wants for each way in which reading can go wrong."""

    source: type[Exception]
    limit: type[Exception]
    changed: type[Exception]


@dataclass(frozen=True, slots=True)
class SnapshotFile:
    """One regular file: its bytes, and whether its owner may execute it."""

    content: bytes
    executable: bool


def read_snapshot(
    directory: str | os.PathLike[str], *, limits: SnapshotLimits, errors: SnapshotErrors
) -> dict[str, SnapshotFile]:
    """Every regular file below ``directory``, by relative POSIX path, in order of UTF-8 path.

    ``.git`` and ``__pycache__`` directories and ``*.pyc`` files are left out.

    Raises:
        errors.source: not a real directory; a link, a special file or an unusable name in it; unreadable.
        errors.limit: over one of ``limits``, or nested deeper than 64 directories.
        errors.changed: it changed while it was being read.
    """
    root = Path(directory)  # without a trailing slash, which would make open() follow a link
    reader = _Reader(str(root), limits, errors)
    try:
        descriptor = os.open(root, _OPEN_DIRECTORY)
    except (OSError, ValueError) as error:  # ValueError: a zero byte, or text that no file name can hold
        raise errors.source(f"{str(root)!r}: {_why_no_directory(root, error)}") from None
    try:
        reader.read_directory(descriptor, ())
    finally:
        os.close(descriptor)
    return dict(sorted(reader.files.items(), key=lambda item: item[0].encode()))


def _why_no_directory(directory: Path, error: OSError | ValueError) -> str:
    if isinstance(error, ValueError):
        return f"it is no path ({error})"
    try:
        mode = os.lstat(directory).st_mode
    except FileNotFoundError:
        return "there is no such directory"
    except OSError:
        return error.strerror or str(error)
    if stat.S_ISLNK(mode):
        return "it is a symbolic link; a real directory is needed"
    if not stat.S_ISDIR(mode):
        return "it is not a directory"
    return error.strerror or str(error)


class _Reader:
    def __init__(self, root: str, limits: SnapshotLimits, errors: SnapshotErrors) -> None:
        self.root = root
        self.limits = limits
        # Entries of one directory, and directories in all: what is no file of the snapshot must be bounded too.
        self.max_entries = 4 * limits.max_files + 64
        self.errors = errors
        self.files: dict[str, SnapshotFile] = {}
        self.directories = 0
        self.total_bytes = 0

    def read_directory(self, descriptor: int, parts: tuple[str, ...]) -> None:
        before = _identity(os.fstat(descriptor))
        names = self._list(descriptor, parts)
        for name in names:
            self._read_entry(descriptor, (*parts, name))
        if _identity(os.fstat(descriptor)) != before or self._list(descriptor, parts) != names:
            raise self._changed(parts)

    def _list(self, descriptor: int, parts: tuple[str, ...]) -> list[str]:
        # scandir reads through a duplicate of the descriptor, so the listing starts over each time.
        names = []
        try:
            with os.scandir(descriptor) as entries:
                for entry in entries:
                    names.append(entry.name)
                    if len(names) > self.max_entries:
                        where = "/".join(parts) or "."
                        raise self.errors.limit(f"{self.root}: {where!r} holds too many entries to be read")
        except OSError as error:
            raise self._failed(parts, error) from None
        return sorted(names)

    def _read_entry(self, parent: int, parts: tuple[str, ...]) -> None:
        name = parts[-1]
        try:
            mode = os.stat(name, dir_fd=parent, follow_symlinks=False).st_mode
        except OSError as error:
            raise self._failed(parts, error) from None
        if stat.S_ISDIR(mode):
            if name not in _LEFT_OUT_DIRECTORIES:
                self._check_name(parts)
                self._enter(parent, parts)
        elif stat.S_ISREG(mode):
            if not name.endswith(".pyc"):
                self._check_name(parts)
                self._read_file(parent, parts)
        else:
            kind = "a symbolic link" if stat.S_ISLNK(mode) else "a special file (FIFO, socket or device)"
            raise self._refused(parts, f"it is {kind}; only regular files and directories are allowed")

    def _check_name(self, parts: tuple[str, ...]) -> None:
        name = parts[-1]
        try:
            name.encode()
        except UnicodeEncodeError:
            raise self._refused(parts, "its name is not UTF-8") from None
        if "\\" in name:
            raise self._refused(parts, "its name holds a backslash")
        if unicodedata.normalize("NFC", name) != name:
            raise self._refused(parts, "its name is not NFC-normalised Unicode")

    def _enter(self, parent: int, parts: tuple[str, ...]) -> None:
        self.directories += 1
        if self.directories > self.max_entries:
            raise self.errors.limit(f"{self.root}: more than {self.max_entries} directories")
        if len(parts) > MAX_DEPTH:
            raise self.errors.limit(f"{self.root}: directories are nested deeper than {MAX_DEPTH} levels")
        with self._opened(parent, parts, _OPEN_DIRECTORY) as descriptor:
            self.read_directory(descriptor, parts)
            try:
                now = os.stat(parts[-1], dir_fd=parent, follow_symlinks=False)
            except OSError as error:
                raise self._failed(parts, error) from None
            if not os.path.samestat(now, os.fstat(descriptor)):
                raise self._changed(parts)

    def _read_file(self, parent: int, parts: tuple[str, ...]) -> None:
        if len(self.files) >= self.limits.max_files:
            raise self.errors.limit(f"{self.root}: more than {self.limits.max_files} files")
        with self._opened(parent, parts, _OPEN_FILE) as descriptor:
            before = os.fstat(descriptor)
            if not stat.S_ISREG(before.st_mode):
                raise self._changed(parts)
            self._check_size(before.st_size, parts)
            content = self._read_all(descriptor, parts)
            if _identity(os.fstat(descriptor)) != _identity(before) or len(content) != before.st_size:
                raise self._changed(parts)
        self.total_bytes += len(content)
        self.files["/".join(parts)] = SnapshotFile(content, bool(before.st_mode & stat.S_IXUSR))

    def _read_all(self, descriptor: int, parts: tuple[str, ...]) -> bytes:
        chunks: list[bytes] = []
        size = 0
        while chunk := self._read_chunk(descriptor, parts):
            chunks.append(chunk)
            size += len(chunk)
            self._check_size(size, parts)  # a file that grows while it is read must not fill the memory
        return b"".join(chunks)

    def _read_chunk(self, descriptor: int, parts: tuple[str, ...]) -> bytes:
        try:
            return os.read(descriptor, _READ_CHUNK)
        except OSError as error:
            raise self._failed(parts, error) from None

    def _check_size(self, size: int, parts: tuple[str, ...]) -> None:
        if size > self.limits.max_file_bytes:
            raise self.errors.limit(
                f"{self.root}: {'/'.join(parts)!r} holds {size} bytes; a file may hold {self.limits.max_file_bytes}"
            )
        if self.total_bytes + size > self.limits.max_total_bytes:
            raise self.errors.limit(f"{self.root}: more than {self.limits.max_total_bytes} bytes in all")

    @contextmanager
    def _opened(self, parent: int, parts: tuple[str, ...], flags: int) -> Iterator[int]:
        try:
            descriptor = os.open(parts[-1], flags, dir_fd=parent)
        except OSError as error:
            raise self._failed(parts, error) from None
        try:
            yield descriptor
        finally:
            os.close(descriptor)

    def _failed(self, parts: tuple[str, ...], error: OSError) -> Exception:
        if error.errno in _NOT_WHAT_IT_WAS:
            return self._changed(parts)
        return self._refused(parts, f"it cannot be read ({error.strerror})")

    def _refused(self, parts: tuple[str, ...], reason: str) -> Exception:
        return self.errors.source(f"{self.root}: {('/'.join(parts) or '.')!r}: {reason}")

    def _changed(self, parts: tuple[str, ...]) -> Exception:
        where = "/".join(parts) or "."
        return self.errors.changed(f"{self.root}: {where!r} changed while it was being read; try again")


def _identity(status: os.stat_result) -> tuple[int, ...]:
    return (
        status.st_dev,
        status.st_ino,
        status.st_mode,
        status.st_size,
        status.st_mtime_ns,
        status.st_ctime_ns,
    )


def write_snapshot(directory: str | os.PathLike[str], files: Mapping[str, SnapshotFile]) -> None:
    """Write ``files`` as a new directory that appears complete or not at all.

    Raises:
        FileExistsError: ``directory`` exists, whatever it is.
        FileNotFoundError: its parent does not.
    """
    target = Path(directory)
    if os.path.lexists(target):
        raise FileExistsError(f"{target} already exists")
    if not target.parent.is_dir():
        raise FileNotFoundError(f"{target.parent} is not there to hold {target.name!r}")
    staging = Path(tempfile.mkdtemp(prefix=".staging-", dir=target.parent))
    try:
        staging.chmod(0o755)
        for path, file in files.items():
            destination = staging.joinpath(*path.split("/"))
            destination.parent.mkdir(parents=True, exist_ok=True)
            destination.write_bytes(file.content)
            destination.chmod(0o755 if file.executable else 0o644)
        staging.rename(target)
    except BaseException:
        shutil.rmtree(staging, ignore_errors=True)
        raise
