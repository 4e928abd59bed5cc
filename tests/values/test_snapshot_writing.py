"""write_to: a new directory that appears complete or not at all."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from evopolicygym.program import Program
from evopolicygym.skills import AgentSkill


@pytest.fixture
def program(tmp_path: Path) -> Program:
    source = tmp_path / "source"
    (source / "lib" / "ü 🙂").mkdir(parents=True)
    (source / "policy.py").write_bytes(b"#\n")
    (source / "policy.py").chmod(0o755)
    (source / "lib" / "ü 🙂" / "a.bin").write_bytes(bytes(range(256)))
    (source / "empty").write_bytes(b"")
    return Program.from_directory(source)


@pytest.fixture
def skill(tmp_path: Path) -> AgentSkill:
    source = tmp_path / "tiny-skill"
    source.mkdir()
    (source / "SKILL.md").write_text("---\nname: tiny-skill\n---\n")
    (source / "go.sh").write_text("#!/bin/sh\n")
    (source / "go.sh").chmod(0o700)
    return AgentSkill.from_directory(source)


def test_what_is_written_is_the_same_program(program: Program, tmp_path: Path) -> None:
    program.write_to(tmp_path / "out")
    assert Program.from_directory(tmp_path / "out") == program


def test_nothing_else_is_left_beside_it(program: Program, tmp_path: Path) -> None:
    (tmp_path / "parent").mkdir()
    program.write_to(str(tmp_path / "parent" / "out"))
    assert os.listdir(tmp_path / "parent") == ["out"]


def test_a_written_program_is_writable_by_its_owner_and_not_executable(program: Program, tmp_path: Path) -> None:
    program.write_to(tmp_path / "out")
    assert (tmp_path / "out" / "policy.py").stat().st_mode & 0o777 == 0o644
    assert (tmp_path / "out").stat().st_mode & 0o777 == 0o755


def test_a_written_skill_keeps_its_executable_bits_and_digest(skill: AgentSkill, tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    skill.write_to(tmp_path / "out" / "tiny-skill")
    assert os.access(tmp_path / "out" / "tiny-skill" / "go.sh", os.X_OK)
    assert AgentSkill.from_directory(tmp_path / "out" / "tiny-skill").digest == skill.digest


@pytest.mark.parametrize(
    "occupy",
    [
        Path.mkdir,
        Path.touch,
        lambda path: path.symlink_to("missing"),
        lambda path: path.symlink_to(path.parent),
        lambda path: os.mkfifo(path),
    ],
    ids=["directory", "file", "dangling link", "link to a directory", "fifo"],
)
def test_a_target_that_exists_is_never_touched(
    program: Program, tmp_path: Path, occupy: Callable[[Path], object]
) -> None:
    target = tmp_path / "out"
    occupy(target)
    before = target.lstat()
    with pytest.raises(FileExistsError, match="out"):
        program.write_to(target)
    assert target.lstat().st_ino == before.st_ino


@pytest.mark.parametrize("parent", ["missing", "missing/deeper", "file"])
def test_a_parent_that_is_no_directory_is_a_file_not_found_error(program: Program, tmp_path: Path, parent: str) -> None:
    (tmp_path / "file").touch()
    before = sorted(os.listdir(tmp_path))
    with pytest.raises(FileNotFoundError):
        program.write_to(tmp_path / parent / "out")
    assert sorted(os.listdir(tmp_path)) == before


def test_a_write_that_fails_leaves_nothing(tmp_path: Path) -> None:
    source = tmp_path / "source"
    source.joinpath(*["d" * 250] * 14).mkdir(parents=True)
    (source / "policy.py").write_bytes(b"#\n")
    source.joinpath(*["d" * 250] * 14, "x").write_bytes(b"")
    program = Program.from_directory(source)
    parent = tmp_path.joinpath(*["p" * 200] * 5)
    parent.mkdir(parents=True)
    with pytest.raises(OSError, match="too long"):  # a path of more than 4,096 bytes
        program.write_to(parent / "out")
    assert os.listdir(parent) == []
