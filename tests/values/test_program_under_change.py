"""Capture while somebody else changes the directory: one whole state, or a refusal; never a stranger's file."""

import os
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from evopolicygym.errors import ProgramChangedError, ProgramLimitError, ProgramSourceError
from evopolicygym.program import Program, ProgramLimits

ROUNDS = 300
SECRET = b"a Host file that no Program may hold"


@contextmanager
def changing(change: Callable[[], None]) -> Iterator[None]:
    """Call ``change`` again and again in another thread; what it raises fails the test."""
    stop = threading.Event()
    failures: list[BaseException] = []

    def work() -> None:
        try:
            while not stop.is_set():
                change()
        except BaseException as failure:  # noqa: BLE001  # handed to the test
            failures.append(failure)

    thread = threading.Thread(target=work)
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)  # else the two threads hardly ever meet
    thread.start()
    try:
        yield
    finally:
        sys.setswitchinterval(interval)
        stop.set()
        thread.join()
    assert failures == []


def outcomes(source: Path, allowed: type[Exception] | tuple[type[Exception], ...]) -> list[Program]:
    """The Programs that many captures gave; errors other than ``allowed`` fail the test."""
    captured = []
    for _ in range(ROUNDS):
        try:
            captured.append(Program.from_directory(source))
        except allowed:
            continue
    return captured


@pytest.fixture
def source(tmp_path: Path) -> Path:
    directory = tmp_path / "program"
    directory.mkdir()
    (directory / "policy.py").write_bytes(b"#\n")
    return directory


@pytest.fixture
def secret(tmp_path: Path) -> Path:
    directory = tmp_path / "secret"
    directory.mkdir()
    (directory / "a.txt").write_bytes(SECRET)
    return directory


def test_a_growing_file_is_captured_whole_or_refused(source: Path) -> None:
    path = source / "log.txt"
    path.write_bytes(b"")

    def grow() -> None:
        with open(path, "ab") as file:
            file.write(b"row\n")  # its length divides a page's: a write that crosses pages may be seen in halves
        if path.stat().st_size > 100_000:
            path.write_bytes(b"")

    with changing(grow):
        captured = outcomes(source, ProgramChangedError)
    assert all(not program.read_bytes("log.txt").replace(b"row\n", b"") for program in captured)


def test_a_file_that_outgrows_the_limit_while_it_is_read_is_refused(source: Path) -> None:
    path = source / "log.txt"

    def grow() -> None:
        with open(path, "ab") as file:
            for _ in range(64):
                file.write(bytes(64 * 1024))

    limits = ProgramLimits(max_file_bytes=1 << 20)
    seen = set()
    with changing(grow):
        while ProgramLimitError not in seen:
            try:
                Program.from_directory(source, limits=limits)
            except (ProgramChangedError, ProgramLimitError) as refused:
                seen.add(type(refused))


def test_a_file_replaced_by_rename_is_captured_as_one_of_its_states(source: Path, tmp_path: Path) -> None:
    states = (b"old " * 5000, b"new " * 5000)
    turn = iter(range(10**9))
    (source / "a.txt").write_bytes(states[0])

    def replace() -> None:
        fresh = tmp_path / "fresh"
        fresh.write_bytes(states[next(turn) % 2])
        fresh.rename(source / "a.txt")

    with changing(replace):
        captured = outcomes(source, ProgramChangedError)
    assert all(program.read_bytes("a.txt") in states for program in captured)


def test_a_file_swapped_for_a_link_never_brings_in_the_target(source: Path, secret: Path) -> None:
    path = source / "a.txt"
    path.write_bytes(b"mine")

    def swap() -> None:
        path.unlink()
        path.symlink_to(secret / "a.txt")
        path.unlink()
        path.write_bytes(b"mine")

    with changing(swap):
        captured = outcomes(source, (ProgramChangedError, ProgramSourceError))
    for program in captured:
        assert "a.txt" not in program.files or program.read_bytes("a.txt") in (b"", b"mine")


def test_a_file_swapped_for_a_fifo_never_blocks(source: Path) -> None:
    path = source / "a.txt"
    path.write_bytes(b"mine")

    def swap() -> None:
        path.unlink()
        os.mkfifo(path)
        path.unlink()
        path.write_bytes(b"mine")

    with changing(swap):
        captured = outcomes(source, (ProgramChangedError, ProgramSourceError))
    for program in captured:
        assert "a.txt" not in program.files or program.read_bytes("a.txt") in (b"", b"mine")


@pytest.mark.parametrize("through_link", [True, False])
def test_a_directory_swapped_for_another_never_brings_in_its_files(
    source: Path, secret: Path, tmp_path: Path, through_link: bool
) -> None:
    lib, aside = source / "lib", tmp_path / "aside"
    (lib / "deep").mkdir(parents=True)
    (lib / "deep" / "a.txt").write_bytes(b"mine")

    def swap() -> None:
        lib.rename(aside)
        if through_link:
            lib.symlink_to(secret)
            lib.unlink()
        else:
            lib.mkdir()
            lib.rmdir()
        aside.rename(lib)

    with changing(swap):
        captured = outcomes(source, (ProgramChangedError, ProgramSourceError))
    for program in captured:
        assert SECRET not in [program.read_bytes(path) for path in program.files]
        assert program.files in (("policy.py",), ("lib/deep/a.txt", "policy.py"))


def test_a_root_swapped_for_a_link_never_brings_in_the_targets_files(
    source: Path, secret: Path, tmp_path: Path
) -> None:
    (secret / "policy.py").write_bytes(SECRET)
    aside = tmp_path / "aside"

    def swap() -> None:
        source.rename(aside)
        source.symlink_to(secret)
        source.unlink()
        aside.rename(source)

    with changing(swap):
        captured = outcomes(source, (ProgramChangedError, ProgramSourceError))
    assert all(program.read_bytes("policy.py") == b"#\n" for program in captured)


def test_files_that_come_and_go_are_captured_together_or_not_at_all(source: Path) -> None:
    first, second = source / "a.txt", source / "z.txt"

    def turn() -> None:  # a.txt is there whenever z.txt is
        first.write_bytes(b"")
        second.write_bytes(b"")
        second.unlink()
        first.unlink()

    with changing(turn):
        captured = outcomes(source, ProgramChangedError)
    assert all("a.txt" in program.files for program in captured if "z.txt" in program.files)
