"""Agent Skills: directories of instructions that a Run puts into the Agent's workspace."""

import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from evopolicygym.errors import AgentSkillError
from evopolicygym.identities import skill_digest
from evopolicygym.policy import type_name
from evopolicygym.program import ProgramLimits
from evopolicygym.snapshot import SnapshotErrors, SnapshotFile, SnapshotLimits, read_snapshot, write_snapshot

__all__ = ["AgentSkill", "check_skills"]

MAX_SKILLS = 16
MAX_SKILL_FILES = 2048
MAX_SKILL_BYTES = 64 * 1024 * 1024

_NAME = re.compile(r"[a-z0-9]+(-[a-z0-9]+)*")
_NAME_MAX_LENGTH = 64
_FRONTMATTER = re.compile(r"\A---[ \t]*\r?\n(.*?)^---[ \t\r]*$", re.DOTALL | re.MULTILINE)
_FRONTMATTER_NAME = re.compile(r"^name:[ \t]*(.*?)[ \t\r]*$", re.MULTILINE)
_LIMITS = ProgramLimits(MAX_SKILL_FILES, MAX_SKILL_BYTES, MAX_SKILL_BYTES)
_ERRORS = SnapshotErrors(source=AgentSkillError, limit=AgentSkillError, changed=AgentSkillError)


class AgentSkill:
    """One Skill directory, frozen. Made by :meth:`from_directory`; the constructor raises TypeError."""

    __slots__ = ("_digest", "_files", "_name")

    _name: str
    _files: Mapping[str, SnapshotFile]
    _digest: str

    def __init__(self) -> None:
        raise TypeError("an AgentSkill is made by AgentSkill.from_directory(path)")

    @classmethod
    def from_directory(cls, path: str | os.PathLike[str], *, limits: ProgramLimits | None = None) -> "AgentSkill":
        """Capture a directory whose name is lowercase-hyphen and that holds ``SKILL.md``.

        Args:
            path: a real directory; its last part is the Skill's name (at most 64 characters).
            limits: defaults to 2,048 files and 64 MiB, in all and for each file.

        Raises:
            AgentSkillError: a bad name; no ``SKILL.md``, or one that is not UTF-8 or does not open with
                ``---`` frontmatter whose ``name:`` is the directory's name; links, special files, too large.
        """
        bounds = _LIMITS if limits is None else limits
        if not isinstance(bounds, ProgramLimits):
            raise TypeError(f"limits must be ProgramLimits, not {type_name(limits)}")
        source = os.fspath(path)
        name = Path(source).absolute().name
        if not _NAME.fullmatch(name) or len(name) > _NAME_MAX_LENGTH:
            raise AgentSkillError(
                f"{source}: a Skill's directory name is lowercase letters, digits and single hyphens, at most "
                f"{_NAME_MAX_LENGTH} characters; found {name!r}"
            )
        files = read_snapshot(
            source,
            limits=SnapshotLimits(bounds.max_files, bounds.max_total_bytes, bounds.max_file_bytes),
            errors=_ERRORS,
        )
        _check_skill_file(source, name, files)
        skill = cls.__new__(cls)
        skill._name = name
        skill._files = files
        skill._digest = skill_digest(name, {p: (file.executable, file.content) for p, file in files.items()})
        return skill

    @property
    def name(self) -> str:
        """The directory's name."""
        return self._name

    @property
    def digest(self) -> str:
        """``"sha256:<hex>"`` over name, paths, executable bits and contents."""
        return self._digest

    @property
    def files(self) -> tuple[str, ...]:
        """Relative POSIX paths, in order of their UTF-8 bytes."""
        return tuple(self._files)

    @property
    def file_count(self) -> int:
        """Number of files."""
        return len(self._files)

    @property
    def total_bytes(self) -> int:
        """Bytes of all files together."""
        return sum(len(file.content) for file in self._files.values())

    def read_bytes(self, path: str) -> bytes:
        """The content of one file; KeyError if there is none."""
        return self._files[path].content

    def write_to(self, directory: str | os.PathLike[str]) -> None:
        """Write the files, executable bits kept, as a new directory that appears complete or not at all.

        Raises:
            FileExistsError: ``directory`` exists.
            FileNotFoundError: its parent does not.
        """
        write_snapshot(directory, self._files)

    def __eq__(self, other: object) -> bool:
        return self._digest == other._digest if isinstance(other, AgentSkill) else NotImplemented

    def __hash__(self) -> int:
        return hash(self._digest)

    def __repr__(self) -> str:
        return f"<AgentSkill {self._name} {self._digest[:19]}…>"


def _check_skill_file(source: str, name: str, files: Mapping[str, SnapshotFile]) -> None:
    if "SKILL.md" not in files:
        raise AgentSkillError(f"{source}: there is no SKILL.md")
    try:
        text = files["SKILL.md"].content.decode("utf-8")
    except UnicodeDecodeError as error:
        raise AgentSkillError(f"{source}/SKILL.md is not UTF-8: {error.reason} at byte {error.start}") from None
    frontmatter = _FRONTMATTER.match(text)
    if frontmatter is None:
        raise AgentSkillError(f"{source}/SKILL.md must open with frontmatter between two lines of '---'")
    found = _FRONTMATTER_NAME.search(frontmatter.group(1))
    declared = found.group(1).strip("\"'") if found else None
    if declared != name:
        raise AgentSkillError(
            f"{source}/SKILL.md: its frontmatter must say 'name: {name}' like the directory; found {declared!r}"
        )


def check_skills(skills: Sequence[AgentSkill]) -> tuple[AgentSkill, ...]:
    """The Skills of a Run, checked together: at most 16, 2,048 files, 64 MiB, unique names.

    Raises:
        TypeError: something that is no AgentSkill.
        AgentSkillError: over a limit, or two of one name.
    """
    checked = tuple(skills)
    for skill in checked:
        if type(skill) is not AgentSkill:
            raise TypeError(f"skills must hold AgentSkill values, not {type(skill).__qualname__}")
    names = [skill.name for skill in checked]
    for name in names:
        if names.count(name) > 1:
            raise AgentSkillError(f"two Skills are named {name!r}")
    for what, found, limit in (
        ("Skills", len(checked), MAX_SKILLS),
        ("Skill files", sum(skill.file_count for skill in checked), MAX_SKILL_FILES),
        ("bytes of Skills", sum(skill.total_bytes for skill in checked), MAX_SKILL_BYTES),
    ):
        if found > limit:
            raise AgentSkillError(f"{found} {what}; a Run may have {limit}")
    return checked
