"""Capture while the directory changes at one exact moment: between two system calls of the reader."""

import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

import pytest

from evopolicygym import snapshot
from evopolicygym.errors import ProgramChangedError, ProgramLimitError, ProgramSourceError
from evopolicygym.program import Program, ProgramLimits

SECRET = b"a Host file that no Program may hold"


@contextmanager
def just_before(call: object, change: Callable[[], object], *, occurrence: int = 1) -> Iterator[None]:
    """Make ``change`` happen once, right before the reader's ``occurrence``-th call of a built-in function."""
    calls = 0

    def profile(frame: FrameType, event: str, function: object) -> None:
        nonlocal calls
        if event == "c_call" and function is call and frame.f_code.co_filename == snapshot.__file__:
            calls += 1
            if calls == occurrence:
                change()

    sys.setprofile(profile)
    try:
        yield
    finally:
        sys.setprofile(None)
    assert calls >= occurrence, "the change never happened"


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """Read in this order: a.txt, lib, lib/b.txt, policy.py; the first open is the root's."""
    directory = tmp_path / "program"
    (directory / "lib").mkdir(parents=True)
    (directory / "a.txt").write_bytes(b"mine")
    (directory / "lib" / "b.txt").write_bytes(b"mine too")
    (directory / "policy.py").write_bytes(b"#\n")
    time.sleep(0.03)  # longer than the tick of a file system's clock: changes are told by their time
    return directory


@pytest.fixture
def secret(tmp_path: Path) -> Path:
    directory = tmp_path / "secret"
    directory.mkdir()
    for name in ("a.txt", "b.txt", "policy.py"):
        (directory / name).write_bytes(SECRET)
    return directory


OPEN_ROOT, OPEN_FILE, OPEN_DIRECTORY = 1, 2, 3


def test_the_reader_opens_what_these_tests_think(source: Path) -> None:
    opened: list[str] = []

    def profile(frame: FrameType, event: str, function: object) -> None:
        if event == "c_call" and function is os.open and "parts" in frame.f_locals:
            opened.append("/".join(frame.f_locals["parts"]))

    sys.setprofile(profile)
    try:
        Program.from_directory(source)
    finally:
        sys.setprofile(None)
    assert opened == ["a.txt", "lib", "lib/b.txt", "policy.py"]


def test_a_file_that_becomes_a_link_is_not_followed(source: Path, secret: Path) -> None:
    def swap() -> None:
        (source / "a.txt").unlink()
        (source / "a.txt").symlink_to(secret / "a.txt")

    with just_before(os.open, swap, occurrence=OPEN_FILE), pytest.raises(ProgramChangedError, match=r"a\.txt"):
        Program.from_directory(source)


def test_a_file_that_becomes_a_fifo_does_not_block(source: Path) -> None:
    def swap() -> None:
        (source / "a.txt").unlink()
        os.mkfifo(source / "a.txt")

    with just_before(os.open, swap, occurrence=OPEN_FILE), pytest.raises(ProgramChangedError, match=r"a\.txt"):
        Program.from_directory(source)


def test_a_file_that_becomes_a_directory_is_a_change(source: Path) -> None:
    def swap() -> None:
        (source / "a.txt").unlink()
        (source / "a.txt").mkdir()

    with just_before(os.open, swap, occurrence=OPEN_FILE), pytest.raises(ProgramChangedError):
        Program.from_directory(source)


def test_a_directory_that_becomes_a_link_is_not_followed(source: Path, secret: Path, tmp_path: Path) -> None:
    def swap() -> None:
        (source / "lib").rename(tmp_path / "aside")
        (source / "lib").symlink_to(secret)

    with just_before(os.open, swap, occurrence=OPEN_DIRECTORY), pytest.raises(ProgramChangedError, match="lib"):
        Program.from_directory(source)


def test_a_root_that_becomes_a_link_is_not_followed(source: Path, secret: Path, tmp_path: Path) -> None:
    def swap() -> None:
        source.rename(tmp_path / "aside")
        source.symlink_to(secret)

    with just_before(os.open, swap, occurrence=OPEN_ROOT), pytest.raises(ProgramSourceError, match="symbolic link"):
        Program.from_directory(source)


@pytest.mark.parametrize("through_link", [True, False])
def test_a_directory_swapped_while_its_file_is_read_is_a_change(
    source: Path, secret: Path, tmp_path: Path, through_link: bool
) -> None:
    def swap() -> None:
        (source / "lib").rename(tmp_path / "aside")
        if through_link:
            (source / "lib").symlink_to(secret)
        else:
            secret.rename(source / "lib")

    with just_before(os.read, swap, occurrence=3), pytest.raises(ProgramChangedError):
        Program.from_directory(source)


@pytest.mark.parametrize("occurrence", [OPEN_FILE, OPEN_DIRECTORY])
def test_what_vanishes_before_it_is_opened_is_a_change(source: Path, tmp_path: Path, occurrence: int) -> None:
    def vanish() -> None:
        for name in ("a.txt", "lib"):
            (source / name).rename(tmp_path / f"gone-{name}")

    with just_before(os.open, vanish, occurrence=occurrence), pytest.raises(ProgramChangedError):
        Program.from_directory(source)


def test_what_vanishes_before_it_is_looked_at_is_a_change(source: Path) -> None:
    with just_before(os.stat, (source / "a.txt").unlink), pytest.raises(ProgramChangedError, match=r"a\.txt"):
        Program.from_directory(source)


@pytest.mark.parametrize("written", [b"more than mine", b"less", b"m", b""])
def test_a_file_written_while_it_is_read_is_a_change(source: Path, written: bytes) -> None:
    def write() -> None:
        (source / "a.txt").write_bytes(written)

    with just_before(os.read, write), pytest.raises(ProgramChangedError, match=r"a\.txt"):
        Program.from_directory(source)


def test_a_file_that_grows_over_the_limit_while_it_is_read_is_not_read_on(source: Path) -> None:
    def grow() -> None:
        os.truncate(source / "a.txt", 1 << 40)  # sparse; whoever read it all would never end

    with just_before(os.read, grow), pytest.raises(ProgramLimitError, match=r"a\.txt"):
        Program.from_directory(source, limits=ProgramLimits(max_file_bytes=4 << 20))


@pytest.mark.parametrize(
    ("place", "occurrence"),
    [("new.txt", 1), ("new.txt", 3), ("new.txt", 5), ("__pycache__", 1), ("__pycache__", 5), ("lib/new.txt", 3)],
)
def test_a_file_that_is_added_to_a_directory_while_it_is_read_is_a_change(
    source: Path, place: str, occurrence: int
) -> None:
    with just_before(os.read, (source / place).touch, occurrence=occurrence), pytest.raises(ProgramChangedError):
        Program.from_directory(source)


def test_a_file_exchanged_for_another_after_it_was_read_is_a_change(source: Path, secret: Path) -> None:
    def exchange() -> None:
        (secret / "a.txt").rename(source / "a.txt")

    with just_before(os.read, exchange, occurrence=5), pytest.raises(ProgramChangedError):
        Program.from_directory(source)
