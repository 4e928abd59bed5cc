"""The Agent's copies of what was published, in a folder that the Agent may tamper with at any moment.

Every name below the workspace is reached through a directory descriptor, follows no link, and blocks on
nothing. Files are staged where only the Host writes and are moved in by rename, so a copy appears whole.
What stands in the way is removed (a link, a file, a FIFO) or renamed aside (a directory: emptying it could
take for ever). Nothing is ever read back; file status alone tells a copy that was touched.
"""

import errno
import os
import secrets
import stat
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from evopolicygym.execution.scratch import remove_tree as remove_tree_of_any_depth
from evopolicygym.record import layout as names
from evopolicygym.record.layout import RecordLayout
from evopolicygym.record.storage import make_read_only, remove_tree

__all__ = ["AgentCopy"]

_OPEN_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_NEW_FILE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_OBSTACLES = frozenset({errno.ELOOP, errno.ENOTDIR, errno.EACCES, errno.ENXIO})
_OCCUPIED = frozenset({errno.ENOTEMPTY, errno.EEXIST, errno.ENOTDIR, errno.EISDIR})

# An Agent that puts something in the way again and again gets no copy rather than a busy Host.
_ATTEMPTS = 4
# Looking at everything in every copy must not become the longest part of a publication.
_MAX_CHECKED = 4096

_Stamp = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class _Copied:
    """What a copy looked like when it was made: its own stamp, and one for each file and folder in it."""

    folder: _Stamp
    inside: Mapping[str, _Stamp]


class AgentCopy:
    """Keeps ``workspace/feedback/`` like the Host's published trees.

    Every method raises OSError if it could not do its part; the Host's copy is never touched.
    """

    def __init__(self, layout: RecordLayout) -> None:
        self._layout = layout
        self._copied: dict[str, _Copied] = {}

    def put(self, identifier: str) -> str:
        """Copy one published Submission; returns the path of its ``feedback.json`` from the workspace."""
        staged = self._layout.submissions / f".copy-{identifier}-{secrets.token_hex(4)}"
        try:
            self._stage(identifier, staged)
            stamps = {path.relative_to(staged).as_posix(): _stamp(path.lstat()) for path in staged.rglob("*")}
            with self._submissions() as folder, _opened(staged) as moved:
                _move_in(staged, folder, identifier)
                os.fchmod(moved, 0o555)  # after the move: moving a directory changes it
                self._copied[identifier] = _Copied(_stamp(os.fstat(moved)), stamps)
        finally:
            if staged.exists():
                remove_tree(staged)
        return self.feedback_path(identifier)

    @staticmethod
    def feedback_path(identifier: str) -> str:
        """Where the copy's ``feedback.json`` is, from the workspace."""
        return f"{names.FEEDBACK}/{names.SUBMISSIONS}/{identifier}/{names.FEEDBACK_FILE}"

    def put_again(self, identifier: str) -> str:
        """Like :meth:`put`, while no Agent lives: what stood in its place is removed instead of kept beside it."""
        path = self.put(identifier)
        with self._submissions() as folder:
            for name in os.listdir(folder):  # noqa: PTH208  # a descriptor
                if name.startswith(f".displaced-{identifier}-"):
                    # Whatever the Agent has put there, however deep; as far as it lets itself be removed.
                    with suppress(OSError):
                        remove_tree_of_any_depth(self._layout.workspace_feedback / names.SUBMISSIONS / name)
        return path

    def _stage(self, identifier: str, staged: Path) -> None:
        source = self._layout.submission(identifier)
        staged.mkdir(mode=0o755)
        for name in (names.FEEDBACK_FILE, names.AVAILABILITY_FILE):
            if (source / name).exists():
                _copy_file(source / name, staged / name)
        for path in sorted((source / names.ARTIFACTS).rglob("*")):
            if path.is_dir():
                continue
            target = staged / path.relative_to(source)
            target.parent.mkdir(parents=True, exist_ok=True)
            _copy_file(path, target)
        make_read_only(staged)
        staged.chmod(0o755)  # a directory that is moved must be writable

    def put_latest(self, content: bytes) -> None:
        """Replace ``feedback/latest.json``."""
        with self._staged_file(content, 0o644) as staged, self._feedback() as folder:
            _move_in(staged, folder, names.LATEST_FILE)

    def evict(self, identifier: str, artifacts: Sequence[str], availability: bytes) -> None:
        """Remove artifacts (by name) from one copy and say so in its ``availability.json``."""
        with self._submissions() as folder:
            untouched = self._is_untouched(folder, identifier)
        if not untouched:
            self.put(identifier)  # from the Host's copy, where they are gone already
            return
        with self._submissions() as folder, _opened(identifier, dir_fd=folder) as copy:
            os.fchmod(copy, 0o755)
            try:
                with self._staged_file(availability, 0o444) as staged:
                    _move_in(staged, copy, names.AVAILABILITY_FILE)
                for name in artifacts:
                    _unlink_below(copy, (names.ARTIFACTS, *name.split("/")))
            finally:
                os.fchmod(copy, 0o555)
            gone = {f"{names.ARTIFACTS}/{name}" for name in artifacts}
            left = (self._copied[identifier].inside.keys() - gone) | {names.AVAILABILITY_FILE}
            self._copied[identifier] = _Copied(
                _stamp(os.fstat(copy)),
                {path: _stamp(os.stat(path, dir_fd=copy, follow_symlinks=False)) for path in left},
            )

    def damaged(self, published: Sequence[str]) -> list[str]:
        """Those of ``published`` whose copy is missing or was touched, as far as a bounded look can tell."""
        found: list[str] = []
        looked_at = 0
        with self._submissions() as folder:
            for identifier in reversed(published):
                known = self._copied.get(identifier)
                looked_at += 1 + (len(known.inside) if known else 0)
                if looked_at > _MAX_CHECKED:
                    break
                if not self._is_untouched(folder, identifier):
                    found.append(identifier)
        return found[::-1]

    def _is_untouched(self, folder: int, identifier: str) -> bool:
        known = self._copied.get(identifier)
        if known is None:
            return False
        try:
            with _opened(identifier, dir_fd=folder) as copy:
                return _stamp(os.fstat(copy)) == known.folder and all(
                    _stamp(os.stat(path, dir_fd=copy, follow_symlinks=False)) == stamp
                    for path, stamp in known.inside.items()
                )
        except OSError:
            return False

    @contextmanager
    def _staged_file(self, content: bytes, mode: int) -> Iterator[Path]:
        """A file to be moved in; not fsynced, since a copy that a crash has damaged is made again."""
        staged = self._layout.submissions / f".file-{secrets.token_hex(4)}"
        try:
            with open(os.open(staged, _NEW_FILE, mode), "wb") as file:
                file.write(content)
            yield staged
        finally:
            staged.unlink(missing_ok=True)

    @contextmanager
    def _feedback(self) -> Iterator[int]:
        with (
            _opened(self._layout.workspace) as workspace,
            _ensured(workspace, names.FEEDBACK) as feedback,
        ):
            yield feedback

    @contextmanager
    def _submissions(self) -> Iterator[int]:
        with self._feedback() as feedback, _ensured(feedback, names.SUBMISSIONS) as submissions:
            yield submissions


def _stamp(status: os.stat_result) -> _Stamp:
    return (status.st_dev, status.st_ino, status.st_mode, status.st_size, status.st_mtime_ns, status.st_ctime_ns)


def _copy_file(source: Path, target: Path) -> None:
    descriptor = os.open(target, _NEW_FILE, 0o444)
    with open(descriptor, "wb") as file:
        file.write(source.read_bytes())


@contextmanager
def _opened(path: str | Path, *, dir_fd: int | None = None) -> Iterator[int]:
    descriptor = os.open(path, _OPEN_DIRECTORY, dir_fd=dir_fd)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


@contextmanager
def _ensured(parent: int, name: str) -> Iterator[int]:
    """The directory ``name`` in ``parent``, made if it is missing, remade if something else is in its place."""
    descriptor = _ensure_directory(parent, name)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _ensure_directory(parent: int, name: str) -> int:
    for _ in range(_ATTEMPTS):
        try:
            descriptor = os.open(name, _OPEN_DIRECTORY, dir_fd=parent)
        except FileNotFoundError:
            _make_directory(parent, name)
        except OSError as error:
            if error.errno not in _OBSTACLES:
                raise
            _displace(parent, name)
        else:
            if os.fstat(descriptor).st_mode & stat.S_IRWXU != stat.S_IRWXU:
                try:
                    os.fchmod(descriptor, 0o755)
                except OSError:
                    os.close(descriptor)
                    raise
            return descriptor
    raise OSError(errno.EBUSY, "something else is put in its place again and again", name)


def _make_directory(parent: int, name: str) -> None:
    try:
        os.mkdir(name, 0o755, dir_fd=parent)
    except FileExistsError:
        pass  # it came back between two calls; the next attempt sees what it is


def _move_in(staged: Path, parent: int, name: str) -> None:
    for _ in range(_ATTEMPTS):
        try:
            os.rename(staged, name, dst_dir_fd=parent)
        except OSError as error:
            if error.errno not in _OCCUPIED:
                raise
            _displace(parent, name)
        else:
            return
    raise OSError(errno.EBUSY, "something else is put in its place again and again", name)


def _displace(parent: int, name: str) -> None:
    try:
        status = os.stat(name, dir_fd=parent, follow_symlinks=False)
        if stat.S_ISDIR(status.st_mode):
            aside = f".displaced-{name}-{secrets.token_hex(4)}"
            os.rename(name, aside, src_dir_fd=parent, dst_dir_fd=parent)
        else:
            os.unlink(name, dir_fd=parent)
    except FileNotFoundError:
        pass


def _unlink_below(folder: int, parts: tuple[str, ...]) -> None:
    """Remove one file, through directories that are opened one by one and made writable for a moment."""
    if len(parts) == 1:
        try:
            os.unlink(parts[0], dir_fd=folder)
        except FileNotFoundError:
            pass
        return
    with _opened(parts[0], dir_fd=folder) as inner:
        os.fchmod(inner, 0o755)
        try:
            _unlink_below(inner, parts[1:])
        finally:
            os.fchmod(inner, 0o555)
