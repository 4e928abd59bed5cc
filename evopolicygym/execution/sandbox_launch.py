"""How a template is started in a sandbox: what bubblewrap is told, and what holds its limits."""

from __future__ import annotations

import marshal
import os
import sys
from dataclasses import dataclass
from pathlib import Path

from evopolicygym.execution.bubblewrap import POLICY_USER, isolation_arguments
from evopolicygym.execution.cgroups import ControlGroups, joining_script
from evopolicygym.execution.launch import CONTROL_DESCRIPTOR, PolicyLaunch
from evopolicygym.execution.limits import PolicyLimits
from evopolicygym.execution.visible_paths import hiding_arguments, home_directory, mount_arguments

__all__ = ["SandboxLaunch", "bounded_command", "limits_held_by"]

# What a template and bubblewrap need beside the Policy's own processes.
_OWN_PROCESSES = 4
_OWN_MEMORY_BYTES = 128 * 1024 * 1024

_SHELL = "/bin/sh"

# When memory runs out it goes before the Host does.
_FIRST_TO_GO = "echo 500 > /proc/self/oom_score_adj; "


@dataclass(frozen=True, slots=True, kw_only=True)
class SandboxLaunch(PolicyLaunch):
    """Templates in a sandbox of their own each.

    Args:
        bubblewrap: absolute path of the program.
        landlock: the version of Landlock to use; 0: a mount namespace for each Episode.
        limits: what a Policy may take.
        paths: what is visible, read-only.
        hidden: top-level modules that cannot be imported.
        control_groups: what holds memory and processes; None: the tree is watched.
    """

    bubblewrap: str
    landlock: int
    limits: PolicyLimits
    paths: tuple[str, ...]
    hidden: tuple[str, ...]
    control_groups: ControlGroups | None

    def command(self, *, root: Path, preload: tuple[str, ...]) -> list[str]:
        """The argv of a template: limits, around bubblewrap, around the template."""
        settings = {
            "fork": True,
            "preload": preload,
            "sandbox": {
                "landlock": self.landlock,
                "program_root": str(root),
                "compile_root": f"{root}-compile",
                "scratch": self._scratch(root),
                "scratch_bytes": self.limits.scratch_bytes,
                "limits": self._resource_limits(),
                "cpu_seconds": self.limits.cpu_seconds,
            },
        }
        sandboxed = [
            *(self.bubblewrap, *isolation_arguments(network=False, user=POLICY_USER, group=POLICY_USER), "--as-pid-1"),
            *mount_arguments(self.paths, masked=[home_directory()]),
            *hiding_arguments(self.hidden, self.paths),
            *("--dev-bind", "/dev/null", "/dev/null"),
            *("--ro-bind", str(root), str(root), "--bind", str(root), f"{root}-compile"),
            *("--perms", "0700", "--size", str(self.limits.scratch_bytes), "--tmpfs", f"{root}-scratch"),
            *("--remount-ro", "/", "--chdir", "/", "--"),
            *(sys.executable, "-P", str(Path(__file__).with_name("template.py"))),
            *(str(CONTROL_DESCRIPTOR), marshal.dumps(settings).hex()),
        ]
        return bounded_command(
            sandboxed,
            self.control_groups,
            name=_group_name(root),
            memory_bytes=self.limits.memory_bytes + _OWN_MEMORY_BYTES,
            processes=self.limits.processes + _OWN_PROCESSES,
        )

    def release(self, *, root: Path) -> None:
        """Remove the control group."""
        if self.control_groups is not None:
            self.control_groups.remove(_group_name(root))

    def environment(self, *, root: Path) -> dict[str, str]:
        """The whole environment of a template, and so of its Policy processes."""
        plain = PolicyLaunch.environment(self, root=root)
        return plain | dict.fromkeys(("EVOPOLICYGYM_SCRATCH", "HOME", "TMPDIR"), self._scratch(root))

    @staticmethod
    def _scratch(root: Path) -> str:
        return f"{root}-scratch/episode"

    def _resource_limits(self) -> dict[str, int]:
        limits = {
            "RLIMIT_AS": self.limits.memory_bytes,
            "RLIMIT_FSIZE": self.limits.file_bytes,
            "RLIMIT_NOFILE": self.limits.open_files,
            "RLIMIT_MSGQUEUE": 0,
            "RLIMIT_MEMLOCK": 0,
        }
        if os.getuid() != 0:  # does not bind root, whose other processes would count, too
            limits["RLIMIT_NPROC"] = self.limits.processes + _OWN_PROCESSES
        return limits


def bounded_command(
    command: list[str], groups: ControlGroups | None, *, name: str, memory_bytes: int, processes: int, shell: str = ""
) -> list[str]:
    """A command under limits that bind its whole tree.

    Args:
        command: what to execute; the first item is an absolute path.
        groups: where control groups can be made; None: the tree is watched, and ended above a limit.
        name: of the control group.
        memory_bytes, processes: the limits.
        shell: commands for the shell that joins the group, before all else.
    """
    join, watch = "", []
    if groups is not None:
        made = groups.make(name, memory_bytes=memory_bytes, processes=processes)
        join = joining_script(made)
    else:
        script = str(Path(__file__).with_name("tree_watch.py"))
        watch = [sys.executable, "-I", "-S", script, str(memory_bytes), str(processes)]
    return [_SHELL, "-c", f'{shell}{join}{_FIRST_TO_GO}exec "$@"', "sandbox", *watch, *command]


def limits_held_by(groups: ControlGroups | None) -> str:
    """What holds memory and processes to their limits, in words; for the rest it is the kernel's resource limits."""
    if groups is not None:
        return f"cgroup v{groups.version}"
    watched = "watching the process tree"
    return watched if os.getuid() == 0 else f"resource limits, and {watched}"


def _group_name(root: Path) -> str:
    return f"{root.parent.name}-{root.name}"
