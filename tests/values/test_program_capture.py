"""Program.from_directory: what is captured, what is refused, and what a Program tells of itself."""

import os
import shutil
import socket
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from evopolicygym.errors import ProgramError, ProgramLimitError, ProgramSourceError
from evopolicygym.program import Program, ProgramLimits

POLICY = b"def make_policy(context):\n    return None\n"
NOBODY = 65534


@pytest.fixture
def source(tmp_path: Path) -> Path:
    directory = tmp_path / "program"
    directory.mkdir()
    (directory / "policy.py").write_bytes(POLICY)
    return directory


@contextmanager
def without_privileges() -> Iterator[None]:
    """Root may read everything: become somebody who may not."""
    if os.geteuid() != 0:
        yield
        return
    os.seteuid(NOBODY)
    try:
        yield
    finally:
        os.seteuid(0)


@pytest.fixture
def open_source() -> Iterator[Path]:
    """A Program that another user reaches; pytest's own temporary directories are private."""
    parent = Path(tempfile.mkdtemp(prefix="epg-"))
    parent.chmod(0o755)
    directory = parent / "program"
    directory.mkdir(mode=0o755)
    (directory / "policy.py").write_bytes(POLICY)
    yield directory
    for path in [directory, *directory.rglob("*")]:
        path.chmod(0o755)
    shutil.rmtree(parent)


def test_a_program_tells_what_it_holds(source: Path) -> None:
    (source / "lib" / "deep").mkdir(parents=True)
    (source / "lib" / "deep" / "weights.bin").write_bytes(b"\x00\xff")
    (source / "empty.txt").write_bytes(b"")
    program = Program.from_directory(source)
    assert program.files == ("empty.txt", "lib/deep/weights.bin", "policy.py")
    assert program.file_count == 3
    assert program.total_bytes == len(POLICY) + 2
    assert program.read_bytes("lib/deep/weights.bin") == b"\x00\xff"
    assert program.entrypoint == "policy.py:make_policy"
    assert program.policy_abi == "policy/v2"
    assert program.digest.startswith("sha256:")


@pytest.mark.parametrize("path", ["missing", "lib", "/policy.py", "./policy.py", "../program/policy.py", ""])
def test_reading_a_file_that_is_not_there_is_a_key_error(source: Path, path: str) -> None:
    (source / "lib").mkdir()
    (source / "lib" / "a").write_bytes(b"")
    with pytest.raises(KeyError):
        Program.from_directory(source).read_bytes(path)


@pytest.mark.parametrize("name", ["digest", "files", "file_count", "total_bytes", "entrypoint", "policy_abi", "new"])
def test_a_program_is_read_only(source: Path, name: str) -> None:
    with pytest.raises(AttributeError):
        setattr(Program.from_directory(source), name, "x")


def test_the_constructor_says_how_a_program_is_made() -> None:
    with pytest.raises(TypeError, match="from_directory"):
        Program()


def test_programs_of_the_same_files_are_equal(source: Path, tmp_path: Path) -> None:
    shutil.copytree(source, tmp_path / "copy")
    first, second = Program.from_directory(source), Program.from_directory(tmp_path / "copy")
    assert first == second
    assert hash(first) == hash(second)
    (source / "policy.py").write_bytes(b"# changed\n")
    assert Program.from_directory(source) != first
    assert first != "not a Program"


def test_modes_and_empty_directories_are_not_part_of_a_program(source: Path) -> None:
    before = Program.from_directory(source)
    (source / "policy.py").chmod(0o755)
    (source / "empty").mkdir()
    assert Program.from_directory(source) == before


def test_a_path_may_be_text_with_a_trailing_slash(source: Path) -> None:
    assert Program.from_directory(f"{source}/") == Program.from_directory(source)


def test_a_program_is_captured_from_the_current_directory(source: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(source)
    assert Program.from_directory(".").files == ("policy.py",)


def test_caches_and_version_control_are_left_out_at_every_level(source: Path) -> None:
    for directory in (source, source / "lib"):
        for name in (".git", "__pycache__"):
            (directory / name).mkdir(parents=True)
            (directory / name / "inside").write_bytes(b"x")
            (directory / name / "link").symlink_to("/etc/passwd")
        (directory / "old.pyc").write_bytes(b"x")
    (source / ".gitignore").write_bytes(b"")
    (source / "lib" / "kept.pyi").write_bytes(b"")
    assert Program.from_directory(source).files == (".gitignore", "lib/kept.pyi", "policy.py")


@pytest.mark.parametrize("name", ["sp ace.py", "ü.txt", "🙂", "new\nline", "-dash", ".hidden", "a" * 255])
def test_any_name_in_normal_form_is_captured(source: Path, name: str) -> None:
    (source / name).write_bytes(b"1")
    assert Program.from_directory(source).read_bytes(name) == b"1"


@pytest.mark.parametrize("parent", [".", "lib", "lib/deep"])
@pytest.mark.parametrize("target", ["/etc/passwd", "/etc", "policy.py", ".", "missing"])
@pytest.mark.parametrize("name", ["link", "link.pyc", "__pycache__", ".git"])
def test_a_symbolic_link_is_refused_at_every_level(source: Path, parent: str, target: str, name: str) -> None:
    (source / parent).mkdir(parents=True, exist_ok=True)
    (source / parent / name).symlink_to(target)
    with pytest.raises(ProgramSourceError, match="symbolic link"):
        Program.from_directory(source)


@pytest.mark.parametrize("suffix", ["", "/", "/.", "//"])
def test_a_root_that_is_a_symbolic_link_is_refused(source: Path, tmp_path: Path, suffix: str) -> None:
    (tmp_path / "link").symlink_to(source)
    with pytest.raises(ProgramSourceError, match="symbolic link"):
        Program.from_directory(f"{tmp_path}/link{suffix}")


@pytest.mark.parametrize("name", ["policy.py", "extra", "lib/extra"])
def test_a_fifo_is_refused_without_waiting_for_a_writer(source: Path, name: str) -> None:
    path = source / name
    path.parent.mkdir(exist_ok=True)
    path.unlink(missing_ok=True)
    os.mkfifo(path)
    with pytest.raises(ProgramSourceError, match="special file"):
        Program.from_directory(source)


def test_a_fifo_as_root_is_refused_without_waiting_for_a_writer(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    with pytest.raises(ProgramSourceError, match="not a directory"):
        Program.from_directory(tmp_path / "fifo")


def test_a_socket_is_refused(source: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(source)  # a socket's path must be short
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind("s")
        with pytest.raises(ProgramSourceError, match="special file"):
            Program.from_directory(source)


@pytest.mark.parametrize(
    ("name", "reason"),
    [(b"\xff.py", "not UTF-8"), (b"a\\b", "backslash"), ("e\u0301".encode(), "NFC"), (b"\xed\xa0\x80", "not UTF-8")],
)
@pytest.mark.parametrize("directory", [False, True])
def test_an_unusable_name_is_refused(source: Path, name: bytes, reason: str, directory: bool) -> None:
    path = os.path.join(os.fsencode(source), name)  # noqa: PTH118  # bytes are no Path
    if directory:
        os.mkdir(path)  # noqa: PTH102
    else:
        with open(path, "wb"):
            pass
    with pytest.raises(ProgramSourceError, match=reason):
        Program.from_directory(source)


@pytest.mark.parametrize("path", ["missing", "policy.py", "missing/deeper", "policy.py/deeper", "zero\0byte", "\ud800"])
def test_a_path_that_is_no_directory_is_refused(source: Path, path: str) -> None:
    with pytest.raises(ProgramSourceError, match=r"no such directory|not a directory|no path|Not a directory"):
        Program.from_directory(f"{source}/{path}")


def test_a_directory_without_a_policy_is_refused(source: Path) -> None:
    (source / "policy.py").rename(source / "Policy.py")
    with pytest.raises(ProgramSourceError, match=r"no policy\.py; it must define make_policy"):
        Program.from_directory(source)


def test_a_policy_that_is_a_directory_is_refused(source: Path) -> None:
    (source / "policy.py").unlink()
    (source / "policy.py").mkdir()
    with pytest.raises(ProgramSourceError, match=r"no policy\.py"):
        Program.from_directory(source)


def test_errors_are_program_errors_and_value_errors(source: Path) -> None:
    for kind in (ProgramError, ValueError):
        with pytest.raises(kind):
            Program.from_directory(source / "missing")


@pytest.mark.parametrize("mode", [0o000, 0o400, 0o100])
def test_a_directory_that_may_not_be_read_is_refused(open_source: Path, mode: int) -> None:
    (open_source / "lib").mkdir()
    (open_source / "lib" / "a").write_bytes(b"1")
    (open_source / "lib").chmod(mode)
    with without_privileges(), pytest.raises(ProgramSourceError, match="Permission denied"):
        Program.from_directory(open_source)


def test_a_file_that_may_not_be_read_is_refused(open_source: Path) -> None:
    (open_source / "policy.py").chmod(0)
    with without_privileges(), pytest.raises(ProgramSourceError, match=r"policy\.py.*Permission denied"):
        Program.from_directory(open_source)


def test_a_root_that_may_not_be_read_is_refused(open_source: Path) -> None:
    open_source.chmod(0)
    with without_privileges(), pytest.raises(ProgramSourceError, match="Permission denied"):
        Program.from_directory(open_source)


def test_the_default_limits_are_those_of_the_contract() -> None:
    limits = ProgramLimits()
    assert (limits.max_files, limits.max_total_bytes, limits.max_file_bytes) == (1000, 64 << 20, 16 << 20)


@pytest.mark.parametrize("field", ["max_files", "max_total_bytes", "max_file_bytes"])
@pytest.mark.parametrize("wrong", [0, -1, True, 1.0, "1", None])
def test_a_wrong_limit_is_a_value_error(field: str, wrong: Any) -> None:
    with pytest.raises(ValueError, match=field):
        ProgramLimits(**{field: wrong})


@pytest.mark.parametrize("wrong", [0, {}, {"max_files": 1}, (1, 2, 3), "big"])
def test_limits_of_another_type_are_a_type_error(source: Path, wrong: Any) -> None:
    with pytest.raises(TypeError, match="ProgramLimits"):
        Program.from_directory(source, limits=wrong)


@pytest.mark.parametrize(
    ("limits", "fits"),
    [
        ({"max_files": 3}, True),
        ({"max_files": 2}, False),
        ({"max_file_bytes": len(POLICY)}, True),
        ({"max_file_bytes": len(POLICY) - 1}, False),
        ({"max_total_bytes": len(POLICY) + 8}, True),
        ({"max_total_bytes": len(POLICY) + 7}, False),
    ],
)
def test_a_limit_is_reached_and_not_passed(source: Path, limits: Any, fits: bool) -> None:
    (source / "a").write_bytes(b"1234")
    (source / "b").write_bytes(b"5678")
    if fits:
        assert Program.from_directory(source, limits=ProgramLimits(**limits)).file_count == 3
        return
    with pytest.raises(ProgramLimitError):
        Program.from_directory(source, limits=ProgramLimits(**limits))


def test_a_thousand_files_fit_and_one_more_does_not(source: Path) -> None:
    for number in range(999):
        (source / f"{number}.txt").write_bytes(b"")
    assert Program.from_directory(source).file_count == 1000
    (source / "one-more").write_bytes(b"")
    with pytest.raises(ProgramLimitError, match="more than 1000 files"):
        Program.from_directory(source)


def test_a_huge_sparse_file_is_refused_without_being_read(source: Path) -> None:
    with open(source / "huge", "wb") as file:
        file.truncate(1 << 40)
    with pytest.raises(ProgramLimitError, match="huge"):
        Program.from_directory(source)


def test_files_that_are_left_out_count_for_no_limit(source: Path) -> None:
    (source / "__pycache__").mkdir()
    for number in range(20):
        (source / "__pycache__" / f"{number}.pyc").write_bytes(bytes(1000))
        (source / f"{number}.pyc").write_bytes(bytes(1000))
    limits = ProgramLimits(max_files=1, max_total_bytes=len(POLICY))
    assert Program.from_directory(source, limits=limits).file_count == 1


def test_a_directory_of_a_few_files_may_have_more_directories_than_files(source: Path) -> None:
    (source / "a/b/c/d/e").mkdir(parents=True)
    (source / "a/b/c/d/e/f.txt").write_bytes(b"")
    assert Program.from_directory(source, limits=ProgramLimits(max_files=2)).files[0] == "a/b/c/d/e/f.txt"


def test_a_flood_of_empty_directories_is_refused(source: Path) -> None:
    for number in range(100):
        (source / str(number)).mkdir()
    with pytest.raises(ProgramLimitError):
        Program.from_directory(source, limits=ProgramLimits(max_files=2))


def test_directories_nest_64_deep_and_no_deeper(source: Path) -> None:
    deepest = source.joinpath(*["d"] * 64)
    deepest.mkdir(parents=True)
    (deepest / "a").write_bytes(b"")
    assert Program.from_directory(source).file_count == 2
    (deepest / "d").mkdir()
    with pytest.raises(ProgramLimitError, match="nested deeper than 64"):
        Program.from_directory(source)


def test_a_bottomless_directory_is_refused(source: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(source)
    for _ in range(1500):  # deeper than any path or recursion limit
        Path("d").mkdir()
        os.chdir("d")
    try:
        with pytest.raises(ProgramLimitError, match="nested deeper than 64"):
            Program.from_directory(source)
    finally:
        for _ in range(1500):  # too deep for others to remove
            os.chdir("..")
            Path("d").rmdir()
