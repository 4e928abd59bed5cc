"""Writing files so that a reader, or the next start after a crash, sees all of one or nothing."""

import errno
import os
import secrets
import shutil
import stat
from collections.abc import Mapping
from pathlib import Path

__all__ = [
    "disk_is_full",
    "make_read_only",
    "publish_tree",
    "remove_tree",
    "replace_file",
    "sync_directory",
    "sync_tree",
    "write_all",
    "write_tree",
]

_NEW_FILE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_WRITE_BITS = stat.S_IWUSR | stat.S_IWGRP | stat.S_IWOTH


def disk_is_full(error: OSError) -> bool:
    """Whether ``error`` says that there is no space left, on the device or in the quota."""
    return error.errno in (errno.ENOSPC, errno.EDQUOT)


def write_all(descriptor: int, data: bytes) -> None:
    """Write every byte of ``data``; a write may take fewer than it was given."""
    rest = memoryview(data)
    while rest:
        rest = rest[os.write(descriptor, rest) :]


def _write_new_file(path: Path, data: bytes, mode: int) -> None:
    descriptor = os.open(path, _NEW_FILE, mode)
    try:
        write_all(descriptor, data)
        os.fchmod(descriptor, mode)  # whatever the umask
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def replace_file(path: Path, data: bytes, *, mode: int = 0o644) -> None:
    """Make ``path`` hold ``data``, at once and durably: a temporary file beside it, fsync, rename, fsync.

    Raises:
        OSError: it could not be done; the old content is still there.
    """
    temporary = path.with_name(f".{path.name[:64]}.{secrets.token_hex(4)}")
    try:
        _write_new_file(temporary, data, mode)
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    sync_directory(path.parent)


def sync_directory(path: Path) -> None:
    """Make the names in a directory durable."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno != errno.EINVAL:  # some network file systems have no fsync for directories
            raise
    finally:
        os.close(descriptor)


def write_tree(root: Path, files: Mapping[str, bytes]) -> None:
    """Write ``files`` (relative POSIX path to content) below the new directory ``root``, all fsynced.

    Raises:
        OSError: it could not be done; what was written of ``root`` is removed again.
    """
    root.mkdir(mode=0o755)
    try:
        folders = {root}
        for name, content in files.items():
            path = root.joinpath(*name.split("/"))
            path.parent.mkdir(parents=True, exist_ok=True)
            folders.update(parent for parent in path.parents if parent.is_relative_to(root))
            _write_new_file(path, content, 0o644)
        for folder in folders:
            sync_directory(folder)
    except BaseException:
        remove_tree(root)
        raise


def publish_tree(staged: Path, destination: Path) -> None:
    """Rename a complete, fsynced tree to ``destination`` beside it, durably, and make it read-only.

    Raises:
        FileExistsError: ``destination`` exists.
        OSError: it could not be done.
    """
    if os.path.lexists(destination):
        raise FileExistsError(errno.EEXIST, "is already published", os.fspath(destination))
    staged.rename(destination)
    sync_directory(destination.parent)
    make_read_only(destination)


def sync_tree(root: Path) -> None:
    """fsync every file and directory of a tree that this process has just written."""
    for folder, _, names in os.walk(root):
        for name in names:
            descriptor = os.open(Path(folder, name), os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
            try:
                os.fsync(descriptor)
            finally:
                os.close(descriptor)
        sync_directory(Path(folder))


def make_read_only(root: Path) -> None:
    """Take the write bits from a tree of regular files and directories; execute bits stay."""
    for folder, _, names in os.walk(root, topdown=False):
        for path in (*(Path(folder, name) for name in names), Path(folder)):
            path.chmod(stat.S_IMODE(path.stat().st_mode) & ~_WRITE_BITS)


def remove_tree(root: Path) -> None:
    """Remove a tree of this process's own making, read-only or not, as far as that can be done."""
    for folder, _, _ in os.walk(root):
        try:
            Path(folder).chmod(0o700)
        except OSError:
            continue
    shutil.rmtree(root, ignore_errors=True)
