"""The sandbox of an Agent: its workspace, a HOME of its own, the system read-only, and nothing else of the machine."""

from __future__ import annotations

import marshal
import os
import signal
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from evopolicygym.execution.bubblewrap import isolation_arguments
from evopolicygym.execution.cgroups import ControlGroups
from evopolicygym.execution.limits import AgentLimits
from evopolicygym.execution.log_in_files import LogInMode, copy_back, hand_out
from evopolicygym.execution.sandbox_launch import bounded_command
from evopolicygym.execution.shared_login import SharedLogIn, enclosed_log_in
from evopolicygym.execution.visible_paths import (
    agent_paths,
    command_paths,
    hiding_arguments,
    home_directory,
    is_within,
    mount_arguments,
)

__all__ = ["AgentPlaces", "AgentSandbox", "SandboxedAgent"]

_SESSION_COMMAND = "evopolicygym-session"
_SHARED_MEMORY_BYTES = str(1024 * 1024 * 1024)
DEVICES = ("null", "zero", "full", "random", "urandom", "tty")
_INTERPRETER_MAX_BYTES = 120  # of a script's first line, on every kernel


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentPlaces:
    """Where the things of one Agent phase lie on the Host.

    Args:
        record: the Record; of it the Agent sees only what is named here.
        workspace: writable.
        read_only: directories below the workspace that are not.
        files: further files that it may read.
        socket_directory: holds the Session's socket.
        state: a private directory of the Run, writable.
        session_client: the stand-alone source of ``evopolicygym-session``.
        log_in: a log-in to hand out.
    """

    record: Path
    workspace: Path
    read_only: tuple[Path, ...]
    files: tuple[Path, ...]
    socket_directory: Path
    state: Path
    session_client: Path
    log_in: SharedLogIn | None = None


@dataclass(frozen=True, slots=True)
class SandboxedAgent:
    """What to execute instead of the Agent's own command."""

    argv: tuple[str, ...]
    environment: Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentSandbox:
    """How an Agent is enclosed.

    Args:
        bubblewrap: absolute path of the program.
        landlock: the version of Landlock to use; 0: none.
        limits: what the Agent may take.
        network: ``"shared"`` with the Host, or ``"none"``.
        log_in: ``"read-only"``: a log-in from a file is shown, and cannot be changed; ``"copy-back"``: the Agent gets
            a copy, which replaces the user's file afterwards if it was renewed.
        hidden: top-level modules that cannot be imported.
        visible: further paths that it may read.
        control_groups: what holds the limits; None: the tree is watched.
    """

    bubblewrap: str
    landlock: int
    limits: AgentLimits
    network: Literal["shared", "none"]
    log_in: LogInMode
    hidden: tuple[str, ...]
    visible: tuple[str, ...]
    control_groups: ControlGroups | None

    def enclose(self, argv: Sequence[str], environment: Mapping[str, str], places: AgentPlaces) -> SandboxedAgent:
        """The command and the environment that start the Agent inside.

        Args:
            argv: executable and arguments.
            environment: the whole environment that it would have outside.
            places: where things lie.

        Raises:
            OSError: the private directory cannot be filled.
        """
        own = places.state / "sandbox"
        folders = {name: own / name for name in ("bin", "home", "tmp")}
        for folder in (own, *folders.values()):
            folder.mkdir(mode=0o700, exist_ok=True)
        _write_session_command(folders["bin"], places.session_client)
        log_in = [] if places.log_in is None else hand_out(places.log_in, places.state, self.log_in)
        inside = dict(environment)
        inside["PATH"] = os.pathsep.join([str(folders["bin"]), environment.get("PATH", os.defpath)])
        inside["TMPDIR"] = "/tmp"
        if not is_within(environment.get("HOME", ""), str(places.state)):
            inside["HOME"] = str(folders["home"])
        if places.log_in is not None:
            inside[places.log_in.variable] = str(enclosed_log_in(places.state))
        # An installation of the user's own lies below the HOME that is not there.
        inside.pop("PYTHONUSERBASE", None)
        shown = (*agent_paths(), *command_paths(argv, environment.get("PATH", "")), *self.visible)
        shown = tuple(path for path in shown if not _reveals(path, places.record))
        covered = [path for path in shown if is_within(path, "/tmp") or is_within(path, "/var/tmp")]
        masked = [home_directory(), *_records(places.record)]
        command = [
            *(self.bubblewrap, *isolation_arguments(network=self.network == "shared", user=0, group=0)),
            *mount_arguments(shown, masked=masked),
            *hiding_arguments(self.hidden, shown),
            *("--proc", "/proc", *_device_arguments()),
            *("--bind", str(folders["tmp"]), "/tmp", "--bind", str(folders["tmp"]), "/var/tmp"),
            *mount_arguments(covered, masked=masked),
            *hiding_arguments(self.hidden, covered),
            *_writable(places.state),
            *("--ro-bind", str(folders["bin"]), str(folders["bin"])),
            *log_in,
            *("--ro-bind", str(places.socket_directory), str(places.socket_directory)),
            *_writable(places.workspace),
            *(word for path in (*places.read_only, *places.files) for word in ("--ro-bind", str(path), str(path))),
            *("--remount-ro", "/", "--chdir", str(places.workspace), "--"),
            *(
                sys.executable,
                "-I",
                "-S",
                str(Path(__file__).with_name("agent_entry.py")),
                self._entry_settings(places),
            ),
            *argv,
        ]
        bounded = bounded_command(
            command,
            self.control_groups,
            name=places.state.name,
            memory_bytes=self.limits.memory_bytes,
            processes=self.limits.processes,
            shell="trap '' TERM; ",
        )
        return SandboxedAgent(tuple(bounded), inside)

    def release(self, places: AgentPlaces) -> str | None:
        """Clear up once the Agent is gone; a sentence if its log-in could not be handed back."""
        if self.control_groups is not None:
            self.control_groups.remove(places.state.name)
        if places.log_in is None or self.log_in != "copy-back":
            return None
        return copy_back(places.log_in, places.state)

    @staticmethod
    def returncode(code: int) -> int:
        """How the Agent itself ended, negative for a signal, from the exit code of what encloses it.

        That tells a signal as shells do, by 128 and its number.
        """
        return 128 - code if code - 128 in set(signal.Signals) else code

    def _entry_settings(self, places: AgentPlaces) -> str:
        limits = {
            "RLIMIT_CORE": 0,
            "RLIMIT_FSIZE": self.limits.file_bytes,
            "RLIMIT_NOFILE": self.limits.open_files,
        }
        if os.getuid() != 0:
            limits["RLIMIT_NPROC"] = self.limits.processes
        settings = {
            "landlock": self.landlock,
            "limits": limits,
            "user": os.getuid(),
            "group": os.getgid(),
            "devices": DEVICES,
            "files": [str(path) for path in places.files],
        }
        return marshal.dumps(settings).hex()


def _device_arguments() -> list[str]:
    """A /dev with what programs expect; bubblewrap's own would put a user namespace between its mounts and us."""
    devices = [f"/dev/{name}" for name in DEVICES if Path("/dev", name).exists()]
    links = {"fd": "/proc/self/fd", "stdin": "fd/0", "stdout": "fd/1", "stderr": "fd/2", "ptmx": "pts/ptmx"}
    return [
        *("--tmpfs", "/dev", "--dir", "/dev/pts", "--size", _SHARED_MEMORY_BYTES, "--tmpfs", "/dev/shm"),
        *(word for device in devices for word in ("--dev-bind", device, device)),
        *(word for name, target in links.items() for word in ("--symlink", target, f"/dev/{name}")),
        *("--remount-ro", "/dev"),
    ]


def _writable(path: Path) -> list[str]:
    return ["--bind", str(path), str(path)]


def _records(record: Path) -> list[str]:
    """The Record, and those beside it, which may lie in something that is shown."""
    others = [path.parent for path in record.parent.glob("*/events.jsonl")]
    return [text for path in {record, *others} for text in {str(path), os.path.realpath(path)}]


def _reveals(path: str, record: Path) -> bool:
    """Whether a path lies in the Record."""
    return is_within(path, str(record)) or is_within(os.path.realpath(path), os.path.realpath(record))


def _write_session_command(folder: Path, client: Path) -> None:
    """The Session's command as one file: the standard library, isolated from whatever the Agent has installed."""
    command = folder / _SESSION_COMMAND
    command.write_text(f"{_first_line(sys.executable)}\n{client.read_text()}")
    command.chmod(0o755)


def _first_line(interpreter: str) -> str:
    if " " not in interpreter and len(interpreter) < _INTERPRETER_MAX_BYTES:
        return f"#!{interpreter} -I"
    # The kernel splits at the blank, or cuts the line. The second one is a command to the shell, a string to Python.
    return f"#!/bin/sh\n''''exec \"{interpreter}\" -I \"$0\" \"$@\" # '''"
