"""The part of a sandbox that is inside it: what a template gives up once, and each Policy process before it starts.

The template is the first process of its own PID namespace, where no other process can end, stop or inspect it. Two
ways keep one Episode's files from the next one's:

    Landlock      the Policy may write beneath its scratch directory only; the template makes that anew each time
    namespaces    (kernels without Landlock) the Policy gets a mount namespace and a tmpfs of its own, which costs
                  some milliseconds an Episode
"""

# ruff: noqa: PTH101, PTH102, PTH120 (pathlib costs more to import than all of this)

from __future__ import annotations

import fcntl
import os
import resource

from evopolicygym.execution import confinement
from evopolicygym.execution.scratch import remove_tree
from evopolicygym.execution.seccomp import policy_filter

TYPE_CHECKING = False  # type checkers take it as true; importing typing would cost every template process
if TYPE_CHECKING:
    from typing import TypedDict

    class SandboxSettings(TypedDict):
        """What a template in a sandbox is told."""

        landlock: int  # the ABI to use; 0: namespaces for each Episode
        program_root: str  # the directory that holds the copy of the Program, read-only
        compile_root: str  # the same directory, writable; out of reach once the template has started
        scratch: str  # the directory of an Episode; its parent is a tmpfs
        scratch_bytes: int
        limits: dict[str, int]  # by the names of the resource module
        cpu_seconds: int


__all__ = ["TemplateSandbox"]

_NULL_DEVICE = "/dev/null"

# Kept out of the way of the descriptors that an Episode's channel gets.
_SCRATCH_DESCRIPTOR = 32
_HIGH_DESCRIPTORS = 33


class TemplateSandbox:
    """What a template does about its sandbox."""

    def __init__(self, settings: SandboxSettings) -> None:
        self._settings = settings
        self._abi = settings["landlock"]
        self._scratch = settings["scratch"]
        self._scratch_parent = os.path.dirname(settings["scratch"])
        self._filter = policy_filter()
        hard = resource.getrlimit(resource.RLIMIT_CPU)[1]
        seconds = settings["cpu_seconds"] if hard == resource.RLIM_INFINITY else min(settings["cpu_seconds"], hard)
        self._cpu_seconds = (seconds, seconds)
        self._landlock: confinement.Landlock | None = None
        self._compiling: confinement.Landlock | None = None
        self._compile_root = -1

    def thread_count(self) -> int:
        """1, or 2 for more than one: without /proc that is all that can be told."""
        return 1 if confinement.is_single_threaded() else 2

    def settle(self) -> None:
        """Give up what neither the template nor any Policy will need; nothing foreign has run yet.

        Raises:
            OSError: the kernel refused; the sandbox would not hold.
        """
        settings = self._settings
        confinement.make_device_read_only(_NULL_DEVICE)
        # By this descriptor alone from now on: no path leads there, and a Policy, as its owner, could mark what is
        # writable even where Landlock forbids it to write.
        self._compile_root = _path_descriptor(settings["compile_root"])
        confinement.unmount(settings["compile_root"])
        if self._abi:
            self._landlock, self._compiling = self._domain(_SCRATCH_DESCRIPTOR), self._domain(self._compile_root)
            confinement.drop_capabilities()
        confinement.limit_resources(settings["limits"])
        if self._abi:
            confinement.install_seccomp_filter(self._filter)

    def before_episode(self) -> None:
        """Have the scratch directory fresh and empty, in a parent that tells nothing of earlier Episodes."""
        if not self._abi:
            return
        remove_tree(self._scratch)
        parent = self._scratch_parent
        # A Policy cannot write there, but as its owner could set these.
        os.chmod(parent, 0o700)
        for name in os.listxattr(parent):
            os.removexattr(parent, name)
        os.mkdir(self._scratch, 0o700)
        os.utime(parent, (0, 0))
        low = os.open(self._scratch, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        os.dup2(low, _SCRATCH_DESCRIPTOR, False)
        os.close(low)

    def enter(self) -> None:
        """Confine this process, a fresh fork of the template, to what a Policy may do."""
        confinement.detach_stdin()
        if self._landlock is not None:
            self._landlock.enter()
        else:
            confinement.own_mount_namespace()
            confinement.mount_tmpfs(self._scratch_parent, self._settings["scratch_bytes"])
            os.mkdir(self._scratch, 0o700)
            confinement.drop_capabilities()
            confinement.install_seccomp_filter(self._filter)
        resource.setrlimit(resource.RLIMIT_CPU, self._cpu_seconds)

    def enter_for_compiling(self, directory: str) -> str:
        """Confine this process, a fresh fork of the template, to writing byte code.

        Returns:
            The directory of a Program's copy by the name by which it is writable.
        """
        os.closerange(3, _SCRATCH_DESCRIPTOR)  # the template's socket is among them
        os.fchdir(self._compile_root)
        if self._compiling is not None:
            self._compiling.enter()
        else:
            confinement.drop_capabilities()
            confinement.install_seccomp_filter(self._filter)
        resource.setrlimit(resource.RLIMIT_CPU, self._cpu_seconds)
        return os.path.relpath(directory, self._settings["program_root"])

    def _domain(self, writable: int) -> confinement.Landlock:
        domain = confinement.Landlock(self._abi, files=True)
        # What is to be read at all is a matter of what is mounted. Few rules, since each costs some microseconds.
        domain.allow(confinement.READ, _path_descriptor("/"))
        domain.allow(confinement.NULL_DEVICE, _path_descriptor(_NULL_DEVICE))
        domain.allow(confinement.READ | confinement.WRITE, writable)
        return domain


def _path_descriptor(path: str) -> int:
    low = os.open(path, os.O_PATH | os.O_CLOEXEC)
    try:
        return fcntl.fcntl(low, fcntl.F_DUPFD_CLOEXEC, _HIGH_DESCRIPTORS)
    finally:
        os.close(low)
