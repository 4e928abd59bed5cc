"""AgentSkill: the directory's name, SKILL.md, executable bits, and the limits of one Run."""

import os
from pathlib import Path
from typing import Any

import pytest

from evopolicygym.errors import AgentSkillError
from evopolicygym.program import ProgramLimits
from evopolicygym.skills import AgentSkill, check_skills


def make(parent: Path, name: str = "tiny-skill", text: str | bytes | None = None) -> Path:
    directory = parent / name
    directory.mkdir(parents=True)
    content = f"---\nname: {name}\n---\nHi\n" if text is None else text
    (directory / "SKILL.md").write_bytes(content if isinstance(content, bytes) else content.encode())
    return directory


def test_a_skill_tells_what_it_holds(tmp_path: Path) -> None:
    source = make(tmp_path)
    (source / "lib").mkdir()
    (source / "lib" / "a").write_bytes(b"12")
    skill = AgentSkill.from_directory(source)
    assert (skill.name, skill.files, skill.file_count) == ("tiny-skill", ("SKILL.md", "lib/a"), 2)
    assert skill.read_bytes("lib/a") == b"12"
    assert skill.total_bytes == 2 + len(skill.read_bytes("SKILL.md"))
    with pytest.raises(KeyError):
        skill.read_bytes("missing")


def test_the_constructor_says_how_a_skill_is_made() -> None:
    with pytest.raises(TypeError, match="from_directory"):
        AgentSkill()


def test_executable_bits_are_part_of_a_skill(tmp_path: Path) -> None:
    source = make(tmp_path)
    before = AgentSkill.from_directory(source)
    (source / "SKILL.md").chmod(0o744)
    assert AgentSkill.from_directory(source) != before


@pytest.mark.parametrize("name", ["a", "a1", "1a", "a-b-c", "a" * 64])
def test_a_lowercase_hyphen_name_is_accepted(tmp_path: Path, name: str) -> None:
    assert AgentSkill.from_directory(make(tmp_path, name)).name == name


@pytest.mark.parametrize("name", ["A", "a_b", "a b", "-a", "a-", "a--b", "ä", "a.b", "a\n", "٣", "a" * 65])
def test_another_name_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(AgentSkillError, match="directory name"):
        AgentSkill.from_directory(make(tmp_path, name))


def test_the_name_of_the_current_directory_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(make(tmp_path))
    assert AgentSkill.from_directory(".").name == "tiny-skill"


@pytest.mark.parametrize(
    "text",
    [
        "---\nname: tiny-skill\n---\n",
        "---\nname: tiny-skill\n---",
        "---\r\nname: tiny-skill\r\n---\r\nHi\r\n",
        '---\ndescription: a\nname: "tiny-skill"\n---\nname: other\n',
        "---  \nname:   'tiny-skill'  \nother: name\n---  \n---\n",
    ],
)
def test_frontmatter_with_the_directorys_name_is_accepted(tmp_path: Path, text: str) -> None:
    assert AgentSkill.from_directory(make(tmp_path, text=text)).name == "tiny-skill"


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "frontmatter"),
        ("Hi\n", "frontmatter"),
        ("\n---\nname: tiny-skill\n---\n", "frontmatter"),
        ("----\nname: tiny-skill\n----\n", "frontmatter"),
        ("---\nname: tiny-skill\n", "frontmatter"),
        ("---\nname: tiny-skill\n ---\n", "frontmatter"),
        ("---\n---\nname: tiny-skill\n", "name: tiny-skill"),
        ("---\nname: other\n---\n", "'other'"),
        ("---\nname:\n---\n", "name: tiny-skill"),
        ("---\n  name: tiny-skill\n---\n", "name: tiny-skill"),
        ("---\nNAME: tiny-skill\n---\n", "name: tiny-skill"),
        (b"---\nname: tiny-skill\n---\n\xff", "not UTF-8"),
    ],
)
def test_a_skill_file_that_does_not_name_its_directory_is_refused(
    tmp_path: Path, text: str | bytes, reason: str
) -> None:
    with pytest.raises(AgentSkillError, match=reason):
        AgentSkill.from_directory(make(tmp_path, text=text))


def test_a_directory_without_skill_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "tiny-skill").mkdir()
    with pytest.raises(AgentSkillError, match=r"no SKILL\.md"):
        AgentSkill.from_directory(tmp_path / "tiny-skill")


def test_links_and_special_files_are_refused(tmp_path: Path) -> None:
    linked, piped = make(tmp_path, "linked"), make(tmp_path, "piped")
    (linked / "link").symlink_to("/etc/passwd")
    os.mkfifo(piped / "fifo")
    (tmp_path / "alias").symlink_to(make(tmp_path / "real", "alias"))
    for name in ("linked", "piped", "alias", "alias/", "missing"):
        with pytest.raises(AgentSkillError):
            AgentSkill.from_directory(f"{tmp_path}/{name}")


def test_a_skill_over_its_limits_is_refused(tmp_path: Path) -> None:
    source = make(tmp_path)
    (source / "big").write_bytes(bytes(1000))
    for limits in (ProgramLimits(max_files=1), ProgramLimits(max_file_bytes=999), ProgramLimits(max_total_bytes=1000)):
        with pytest.raises(AgentSkillError):
            AgentSkill.from_directory(source, limits=limits)


@pytest.mark.parametrize("wrong", [0, {}, "big"])
def test_limits_of_another_type_are_a_type_error(tmp_path: Path, wrong: Any) -> None:
    with pytest.raises(TypeError, match="ProgramLimits"):
        AgentSkill.from_directory(make(tmp_path), limits=wrong)


def test_a_skill_error_is_a_value_error(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="no such directory"):
        AgentSkill.from_directory(tmp_path / "missing")


def test_skills_of_a_run_are_kept_in_order(tmp_path: Path) -> None:
    skills = [AgentSkill.from_directory(make(tmp_path, name)) for name in ("b", "a")]
    assert check_skills(skills) == tuple(skills)
    assert check_skills(()) == ()


def test_two_skills_of_one_name_are_refused(tmp_path: Path) -> None:
    first = AgentSkill.from_directory(make(tmp_path / "1"))
    second = AgentSkill.from_directory(make(tmp_path / "2"))
    with pytest.raises(AgentSkillError, match="two Skills are named 'tiny-skill'"):
        check_skills([first, second])


def test_a_run_may_have_16_skills(tmp_path: Path) -> None:
    skills = [AgentSkill.from_directory(make(tmp_path, f"s{number}")) for number in range(17)]
    assert len(check_skills(skills[:16])) == 16
    with pytest.raises(AgentSkillError, match="17 Skills; a Run may have 16"):
        check_skills(skills)


def test_skills_of_a_run_have_2048_files_and_64_mib_together(tmp_path: Path) -> None:
    many, large = make(tmp_path, "many"), make(tmp_path, "large")
    for number in range(2046):
        (many / f"{number}").write_bytes(b"")
    (large / "a").write_bytes(bytes((64 << 20) - 100))
    assert AgentSkill.from_directory(many).file_count == 2047
    both = [AgentSkill.from_directory(many), AgentSkill.from_directory(large)]
    with pytest.raises(AgentSkillError, match="2049 Skill files; a Run may have 2048"):
        check_skills(both)
    other = make(tmp_path, "other")
    (other / "b").write_bytes(bytes(100))
    with pytest.raises(AgentSkillError, match="bytes of Skills"):
        check_skills([both[1], AgentSkill.from_directory(other)])


def test_something_else_among_skills_is_a_type_error() -> None:
    with pytest.raises(TypeError, match="AgentSkill"):
        check_skills(["skill"])  # type: ignore[list-item]  # that is the point
