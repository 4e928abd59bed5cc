"""The log-in of an Agent in a sandbox: what is handed out of the user's files, and copied back if it was renewed."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

from evopolicygym.execution.shared_login import SharedLogIn, enclosed_log_in

__all__ = ["LogInMode", "copy_back", "hand_out"]

LogInMode = Literal["read-only", "copy-back"]

_MAX_BYTES = 1024 * 1024
_OPEN_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_OPEN_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


def hand_out(log_in: SharedLogIn, state: Path, mode: LogInMode) -> list[str]:
    """Prepare the directory that the Agent will find its log-in in; what is not there is left out.

    Args:
        log_in: what the user has.
        state: the private directory of the Agent's start.
        mode: ``"read-only"``: the files themselves are shown; ``"copy-back"``: copies of them.

    Returns:
        Arguments that have bubblewrap show the files, for after the directory itself is shown.

    Raises:
        OSError: it cannot be prepared.
    """
    folder = enclosed_log_in(state)
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    for name, text in log_in.written.items():
        (folder / name).write_text(text, encoding="utf-8")
    arguments: list[str] = []
    for name in log_in.files:
        source, shown = log_in.directory / name, folder / name
        if not source.is_file():
            continue
        shown.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        if mode == "copy-back":
            shutil.copyfile(source, shown)
            shown.chmod(0o600)
        else:
            arguments += ["--ro-bind", str(source), str(shown)]
    return arguments


def copy_back(log_in: SharedLogIn, state: Path) -> str | None:
    """Replace the user's files by the Agent's copies where those were renewed.

    The Agent is gone, and may have put anything there: nothing but a regular file of a log-in's size and form is
    taken, and no link is followed.

    Returns:
        A sentence for each file that could not be handed back; None if all is well.
    """
    troubles = []
    for name in log_in.files:
        original = log_in.directory / name
        try:
            if original.is_file():
                _copy_one_back(state, enclosed_log_in(state).relative_to(state) / name, original.resolve())
        except (OSError, ValueError) as error:
            why = error.strerror if isinstance(error, OSError) else error
            troubles.append(f"the Agent's log-in was not copied back to {original}: {why}")
    return "; ".join(troubles) or None


def _copy_one_back(state: Path, name: Path, original: Path) -> None:
    content = _read(state, name)
    if content == original.read_bytes():
        return
    if len(content) > _MAX_BYTES or not _is_object(content):
        raise ValueError("what the Agent left there is no log-in")
    staged = original.with_name(f".{original.name}.{os.getpid()}")
    try:
        with open(os.open(staged, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600), "wb") as file:
            file.write(content)
            os.fsync(file.fileno())
        staged.replace(original)
    finally:
        with contextlib.suppress(FileNotFoundError):
            staged.unlink()


def _read(root: Path, name: Path) -> bytes:
    with _directory(root, name.parts[:-1]) as parent:
        descriptor = os.open(name.name, _OPEN_FILE, dir_fd=parent)
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise ValueError("what the Agent left there is no file")
        with open(descriptor, "rb", closefd=False) as file:
            return file.read(_MAX_BYTES + 1)
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def _directory(root: Path, parts: tuple[str, ...]) -> Iterator[int]:
    descriptor = os.open(root, _OPEN_DIRECTORY)
    try:
        for part in parts:
            above, descriptor = descriptor, os.open(part, _OPEN_DIRECTORY, dir_fd=descriptor)
            os.close(above)
        yield descriptor
    finally:
        os.close(descriptor)


def _is_object(content: bytes) -> bool:
    try:
        return isinstance(json.loads(content), dict)
    except (ValueError, RecursionError):
        return False
