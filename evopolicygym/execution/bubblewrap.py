"""bubblewrap, the program that makes the namespaces of a sandbox: found, understood, tried out."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from evopolicygym.errors import ExecutionUnavailableError
from evopolicygym.execution.visible_paths import mount_arguments, policy_paths, system_links

__all__ = ["INSTALL_COMMANDS", "NAMESPACES", "POLICY_USER", "SandboxMachine", "examine_machine", "isolation_arguments"]

INSTALL_COMMANDS = (
    "apt-get install bubblewrap (Debian, Ubuntu), dnf install bubblewrap (Fedora), pacman -S bubblewrap (Arch)"
)

NAMESPACES = (
    "user",
    "pid",
    "mount",
    "ipc",
    "uts",
    *(["cgroup"] if Path("/proc/self/ns/cgroup").exists() else []),
    "net",
)
"""What every sandbox has of its own; where a network is shared, all but the last."""

POLICY_USER = 1000
"""Who a Policy is inside, whoever the Host is."""

# 0.7.0 brought --size for tmpfs.
_OLDEST_VERSION = (0, 7)
_MACHINES = ("x86_64", "aarch64")
_PROBE_SECONDS = 30.0

# Inside: what the kernel says of Landlock, as the last line.
_PROBE = (
    "import sys; sys.path.append(sys.argv[1]); from evopolicygym.execution import confinement as c, seccomp; "
    "c.make_device_read_only('/dev/null'); abi = c.landlock_abi(); c.drop_capabilities(); "
    "c.install_seccomp_filter(seccomp.policy_filter()); print('landlock', abi)"
)


@dataclass(frozen=True, slots=True)
class SandboxMachine:
    """What this machine can do.

    Args:
        bubblewrap: absolute path of the program.
        version: its version.
        landlock: the version of Landlock that the kernel speaks inside; 0 for none.
    """

    bubblewrap: str
    version: str
    landlock: int


def isolation_arguments(*, network: bool, user: int, group: int) -> list[str]:
    """Namespaces of its own for everything, no capability but those that finish the set-up.

    Args:
        network: whether the Host's network is shared.
        user, group: the numbers that this user and its group have inside.
    """
    return [
        *("--unshare-user", "--unshare-pid", "--unshare-ipc", "--unshare-uts", "--unshare-cgroup-try"),
        *([] if network else ["--unshare-net"]),
        *("--uid", str(user), "--gid", str(group)),
        *("--hostname", "sandbox", "--new-session", "--die-with-parent"),
        # Given up before foreign code runs: to finish mounts, to give up the rest for good, to go by another number.
        *("--cap-drop", "ALL", "--cap-add", "CAP_SYS_ADMIN", "--cap-add", "CAP_SETPCAP", "--cap-add", "CAP_SETFCAP"),
        *(word for name, target in system_links() for word in ("--symlink", target, name)),
    ]


def examine_machine() -> SandboxMachine:
    """Find bubblewrap and try it out; a sandbox that works is remembered.

    Raises:
        ExecutionUnavailableError: there is no sandbox to be had here; the message says what is missing and how to
            get it.
    """
    if sys.platform != "linux":
        raise ExecutionUnavailableError(
            f"the sandbox needs Linux, and this is {sys.platform}; run in a Linux machine or container, or choose"
            ' use = "unsafe-process" for code that you trust'
        )
    if os.uname().machine not in _MACHINES:
        raise ExecutionUnavailableError(
            f"the sandbox knows the system calls of {' and '.join(_MACHINES)} only, and this is {os.uname().machine}"
        )
    found = shutil.which("bwrap")
    if found is None:
        raise ExecutionUnavailableError(
            f"the sandbox needs bubblewrap, and no program bwrap is on PATH; install it: {INSTALL_COMMANDS}"
        )
    return _examined(str(Path(found).absolute()))


@cache
def _examined(bubblewrap: str) -> SandboxMachine:
    version = _version(bubblewrap)
    command = [
        *(
            bubblewrap,
            *isolation_arguments(network=False, user=POLICY_USER, group=POLICY_USER),
            *mount_arguments(policy_paths()),
        ),
        *("--dev-bind", "/dev/null", "/dev/null", "--size", "65536", "--tmpfs", "/scratch", "--remount-ro", "/", "--"),
        *(sys.executable, "-I", "-S", "-c", _PROBE, str(Path(__file__).parents[2])),
    ]
    ended = _run(command)
    words = ended.stdout.split()
    if ended.returncode != 0 or len(words) != 2:
        told = ended.stderr.strip() or f"it ended with exit code {ended.returncode} and said nothing"
        raise ExecutionUnavailableError(f"bubblewrap ({bubblewrap}) cannot make a sandbox here: {told}{_advice(told)}")
    return SandboxMachine(bubblewrap, version, int(words[1]))


def _version(bubblewrap: str) -> str:
    told = _run([bubblewrap, "--version"]).stdout
    found = re.search(r"(\d+)\.(\d+)[.\d]*", told)
    if found is None:
        raise ExecutionUnavailableError(
            f"{bubblewrap} does not tell its version as bubblewrap does (it said {told!r});"
            f" install it: {INSTALL_COMMANDS}"
        )
    if (int(found[1]), int(found[2])) < _OLDEST_VERSION:
        raise ExecutionUnavailableError(
            f"bubblewrap {found[0]} is too old, 0.7.0 is needed; install a newer one: {INSTALL_COMMANDS}"
        )
    return found[0]


def _run(command: list[str]) -> subprocess.CompletedProcess[str]:
    try:
        return subprocess.run(
            command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=_PROBE_SECONDS, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise ExecutionUnavailableError(
            f"bubblewrap could not be tried out: {error}; install it anew: {INSTALL_COMMANDS}"
        ) from error


def _advice(told: str) -> str:
    """What to do about a refusal of the kernel."""
    if "uid map" in told or "namespace" in told.lower() or "RTM_NEWADDR" in told or "Operation not permitted" in told:
        switches = []
        if _setting("kernel/apparmor_restrict_unprivileged_userns") == "1":
            switches.append("sysctl -w kernel.apparmor_restrict_unprivileged_userns=0")
        if _setting("kernel/unprivileged_userns_clone") == "0":
            switches.append("sysctl -w kernel.unprivileged_userns_clone=1")
        if _setting("user/max_user_namespaces") == "0":
            switches.append("sysctl -w user.max_user_namespaces=10000")
        if switches:
            return f". The kernel allows no user namespaces; as root: {'; '.join(switches)}"
        return (
            ". User namespaces are refused; in a container, allow them (docker run --security-opt seccomp=unconfined"
            " --security-opt apparmor=unconfined, or --privileged)"
        )
    return ""


def _setting(name: str) -> str:
    try:
        return Path("/proc/sys", name).read_text().strip()
    except OSError:
        return ""
