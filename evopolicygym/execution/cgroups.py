"""Control groups: limits that hold for a whole process tree, whoever it runs as. Version 2 if delegated, else 1."""

from __future__ import annotations

import contextlib
import os
import subprocess
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

__all__ = ["ControlGroups", "find_control_groups", "joining_script"]

_PREFIX = "evopolicygym-"


@dataclass(frozen=True, slots=True)
class ControlGroups:
    """Where groups can be made.

    Args:
        version: 1 or 2.
        memory, processes: the directories that new groups go into; the same one with version 2.
    """

    version: int
    memory: str
    processes: str

    def directories(self, name: str) -> tuple[Path, ...]:
        """The directories of the group of this name and of this process."""
        return tuple(Path(place) / f"{_PREFIX}{os.getpid()}-{name}" for place in self._places())

    def make(self, name: str, *, memory_bytes: int, processes: int) -> tuple[Path, ...]:
        """Make a group, or set the limits of one that is there.

        Returns:
            Its directories; a process joins by writing its number to ``cgroup.procs`` in each.

        Raises:
            OSError: it cannot be made after all.
        """
        directories = self.directories(name)
        for directory in directories:
            directory.mkdir(exist_ok=True)
        (directories[-1] / "pids.max").write_text(str(processes))
        if self.version == 1:
            (directories[0] / "memory.limit_in_bytes").write_text(str(memory_bytes))
        else:
            (directories[0] / "memory.max").write_text(str(memory_bytes))
            with contextlib.suppress(OSError):  # a kernel without swap accounting
                (directories[0] / "memory.swap.max").write_text("0")
        return directories

    def remove(self, name: str) -> None:
        """Remove a group whose processes are gone; one that is not there is no error."""
        for directory in self.directories(name):
            with contextlib.suppress(OSError):  # the kernel may need a moment; swept up later
                directory.rmdir()

    def sweep(self) -> None:
        """Remove the groups of processes that were killed before they could."""
        for place in self._places():
            for directory in Path(place).glob(f"{_PREFIX}*"):
                owner = directory.name.removeprefix(_PREFIX).partition("-")[0]
                if not owner.isdigit() or not Path(f"/proc/{owner}").exists():
                    with contextlib.suppress(OSError):  # in use after all
                        directory.rmdir()

    def _places(self) -> tuple[str, ...]:
        return (self.memory,) if self.version == 2 else (self.memory, self.processes)


def joining_script(directories: Sequence[Path]) -> str:
    """Commands with which a shell joins a group, or ends with 70."""
    groups = " ".join(f"'{directory}'" for directory in directories)
    return f'for group in {groups}; do echo $$ > "$group/cgroup.procs" || exit 70; done; '


@cache
def find_control_groups(membership: str = "/proc/self/cgroup", root: str = "/sys/fs/cgroup") -> ControlGroups | None:
    """Where this process may make groups that limit memory and processes; None if nowhere.

    Args:
        membership: the file that tells which groups this process is in.
        root: where control groups are mounted.
    """
    try:
        memberships = Path(membership).read_text().splitlines()
    except OSError:
        return None
    own = {}
    for line in memberships:
        _, controllers, path = line.split(":", 2)
        own.update(dict.fromkeys(controllers.split(","), path.lstrip("/")))
    unified = Path(root)
    if "" in own and (unified / "cgroup.controllers").exists():
        # A group that has processes may have no limited groups in it (but the root may): beside it, else in it.
        here = unified / own[""]
        places = (here.parent, here) if here != unified else (here,)
        return _first_that_works([ControlGroups(2, str(place), str(place)) for place in places])
    if "memory" not in own or "pids" not in own:
        return None
    memories, processes = ((unified / name / own[name], unified / name) for name in ("memory", "pids"))
    return _first_that_works([ControlGroups(1, str(memory), str(count)) for memory in memories for count in processes])


def _first_that_works(candidates: Iterable[ControlGroups]) -> ControlGroups | None:
    return next((groups for groups in candidates if _works(groups)), None)


def _works(groups: ControlGroups) -> bool:
    """Whether a group can be made and a process can join it, which the rights on its files alone do not tell."""
    try:
        directories = groups.make("probe", memory_bytes=1 << 30, processes=100)
        joined = subprocess.run(
            ["/bin/sh", "-c", joining_script(directories)], stdin=subprocess.DEVNULL, capture_output=True, check=False
        )
        return joined.returncode == 0
    except OSError:
        return False
    finally:
        groups.remove("probe")
