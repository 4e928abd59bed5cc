"""The copy of a Program is remade if anything in it was touched, and only then; scratch likewise."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from benchmarks_for_tests import ALWAYS_ONE, program

from evopolicygym.execution.program_copy import ProgramCopy
from evopolicygym.execution.scratch import Scratch, remove_tree
from evopolicygym.execution.ticks import hiding_seconds


@pytest.fixture
def copy(tmp_path: Path) -> ProgramCopy:
    held = program(tmp_path / "source", ALWAYS_ONE, helper="x = 1")
    copy = ProgramCopy(tmp_path / "copy", lambda directory, paths: None, hiding_seconds(tmp_path))
    copy.hold(held)
    copy.renew()
    return copy


def inode(copy: ProgramCopy) -> int:
    return (copy.directory / "policy.py").stat().st_ino, copy.directory.stat().st_ino


def test_an_untouched_copy_is_kept(copy: ProgramCopy) -> None:
    before = inode(copy)
    (copy.directory / "policy.py").read_text()
    copy.renew()
    assert inode(copy) == before


def _same_size(directory: Path) -> None:
    path = directory / "helper.py"
    status = path.stat()
    with path.open("r+") as file:
        file.write("x = 2")
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))


@pytest.mark.parametrize(
    "touch",
    [
        lambda directory: (directory / "new").touch(),
        lambda directory: (directory / "helper.py").unlink(),
        lambda directory: (directory / "helper.py").write_text("y = 1"),
        _same_size,
        lambda directory: (directory / "helper.py").chmod(0o600),
        lambda directory: directory.chmod(0o700),
        lambda directory: (directory / "helper.py").rename(directory / "policy.py"),
        lambda directory: remove_tree(directory),
        lambda directory: os.link(directory / "helper.py", directory.parent / "link"),
    ],
)
def test_a_touched_copy_is_made_anew(copy: ProgramCopy, touch: Callable[[Path], None]) -> None:
    touch(copy.directory)
    copy.renew()
    assert (copy.directory / "policy.py").read_text() == ALWAYS_ONE
    assert (copy.directory / "helper.py").read_text() == "x = 1"
    assert sorted(path.name for path in copy.directory.iterdir()) == ["helper.py", "policy.py"]
    assert copy.directory.stat().st_mode & 0o777 == 0o755


def test_another_program_takes_the_place_of_the_first(copy: ProgramCopy, tmp_path: Path) -> None:
    copy.hold(program(tmp_path / "other", "other = 1"))
    copy.renew()
    assert [path.name for path in copy.directory.iterdir()] == ["policy.py"]


def test_scratch_that_was_left_empty_is_kept_and_any_other_is_made_anew(tmp_path: Path) -> None:
    scratch = Scratch(tmp_path / "scratch", hiding_seconds(tmp_path))
    scratch.renew()
    scratch.renew()
    first = scratch.directory.stat().st_ino, scratch.directory.stat().st_ctime_ns
    scratch.renew()
    assert (scratch.directory.stat().st_ino, scratch.directory.stat().st_ctime_ns) == first
    (scratch.directory / "file").touch()
    (scratch.directory / "file").unlink()
    scratch.renew()
    assert scratch.directory.stat().st_ctime_ns != first[1]
    (scratch.directory / "file").touch()
    scratch.renew()
    assert list(scratch.directory.iterdir()) == []
    scratch.remove()
    assert not scratch.directory.exists()


def test_a_tree_of_any_depth_is_removed(tmp_path: Path) -> None:
    deep = tmp_path / "deep"
    build = f"""
import os
os.mkdir({str(deep)!r}); os.chdir({str(deep)!r})
for _ in range(3000):
    os.mkdir("directory-with-a-name"); os.chdir("directory-with-a-name")
open("file", "w").close()
os.symlink("/", "link")
"""
    subprocess.run([sys.executable, "-c", build], check=True, timeout=60)
    remove_tree(deep)
    assert not deep.exists()


def test_links_are_removed_and_not_followed(tmp_path: Path) -> None:
    (tmp_path / "kept").mkdir()
    (tmp_path / "kept" / "file").touch()
    (tmp_path / "gone").mkdir()
    (tmp_path / "gone" / "link").symlink_to(tmp_path / "kept")
    (tmp_path / "gone" / "sub").mkdir()
    (tmp_path / "gone" / "sub" / "link").symlink_to(tmp_path / "kept")
    remove_tree(tmp_path / "gone")
    assert not (tmp_path / "gone").exists()
    assert (tmp_path / "kept" / "file").exists()


def test_a_link_in_place_of_a_directory_is_removed_itself(tmp_path: Path) -> None:
    (tmp_path / "kept").mkdir()
    (tmp_path / "scratch").symlink_to(tmp_path / "kept")
    remove_tree(tmp_path / "scratch")
    assert (tmp_path / "kept").exists()
    assert not (tmp_path / "scratch").is_symlink()
