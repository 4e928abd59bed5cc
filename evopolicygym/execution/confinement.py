"""What a process gives up for good before foreign code runs in it: mounts, capabilities, system calls, files.

Raw system calls through ctypes, the standard library only: template processes load it. Linux.
"""

from __future__ import annotations

import ctypes
import os
import resource
import struct

TYPE_CHECKING = False  # type checkers take it as true; importing typing would cost every template process
if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = [
    "LANDLOCK_SCOPES_ABI",
    "NULL_DEVICE",
    "READ",
    "WRITE",
    "Landlock",
    "become_user",
    "detach_stdin",
    "drop_capabilities",
    "install_seccomp_filter",
    "is_single_threaded",
    "landlock_abi",
    "limit_resources",
    "make_device_read_only",
    "make_kernel_settings_read_only",
    "mount_terminals",
    "mount_tmpfs",
    "no_new_privileges",
    "own_mount_namespace",
    "unmount",
]

LANDLOCK_SCOPES_ABI = 6
"""From here on Landlock also keeps a process from abstract sockets and from signalling others."""

# <linux/landlock.h>: what each ABI added to the accesses to files that can be restricted.
_ACCESS_BY_ABI = {1: 0x1FFF, 2: 0x2000, 3: 0x4000, 5: 0x8000}
READ = 0x0001 | 0x0004 | 0x0008  # execute, read file, read directory
WRITE = 0x7FFF & ~(0x0040 | 0x0800)  # all of them but device nodes and device ioctls
NULL_DEVICE = 0x0002 | 0x0004 | 0x4000  # write, read, truncate
_NET = 0x3  # bind and connect TCP
_SCOPES = 0x3  # abstract sockets, signals
_RULE_PATH_BENEATH = 1
_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446
_VERSION_FLAG = 1

_SECCOMP = {"x86_64": 317, "aarch64": 277}
_SECCOMP_SET_MODE_FILTER = 1

_PR_CAPBSET_DROP, _PR_SET_NO_NEW_PRIVS, _PR_CAP_AMBIENT, _PR_CAP_AMBIENT_CLEAR_ALL = 24, 38, 47, 4
_CAPABILITIES_MAX = 64
_CAPABILITY_HEADER = struct.pack("=Ii", 0x20080522, 0)  # version 3, this process

_MS_RDONLY, _MS_NOSUID, _MS_NODEV, _MS_NOEXEC, _MS_REMOUNT, _MS_BIND = 1, 2, 4, 8, 32, 4096
_MS_REC, _MS_PRIVATE, _MNT_DETACH = 16384, 1 << 18, 2
_CLONE_THREAD, _CLONE_NEWNS, _CLONE_NEWUSER = 0x10000, 0x20000, 0x10000000

_libc = ctypes.CDLL(None, use_errno=True)
_syscall = _libc.syscall
_syscall.restype = ctypes.c_long
_syscall.argtypes = [ctypes.c_long] * 7


def _call(what: str, number: int, *arguments: int) -> int:
    result: int = _syscall(number, *arguments, *(0,) * (6 - len(arguments)))
    if result < 0:
        raise _error(what)
    return result


def landlock_abi() -> int:
    """The version of Landlock that the kernel speaks; 0: none."""
    return max(0, int(_syscall(_CREATE_RULESET, 0, 0, _VERSION_FLAG, 0, 0, 0)))


class Landlock:
    """A Landlock domain in the making: everything that this ABI can deny is denied, but for what is allowed here.

    It is prepared once and entered in many forked processes, in which the first use of anything costs a page fault:
    all but the system calls is done beforehand.

    Args:
        abi: what the kernel speaks, at least 1.
        files: whether accesses to files and TCP are restricted; else only the scopes of ABI 6 are.
    """

    def __init__(self, abi: int, *, files: bool) -> None:
        self._known = sum(bits for since, bits in _ACCESS_BY_ABI.items() if since <= abi)
        net = _NET if files and abi >= 4 else 0
        scopes = _SCOPES if abi >= LANDLOCK_SCOPES_ABI else 0
        self._attributes = ctypes.create_string_buffer(
            struct.pack("=QQQ", self._known if files else 0, net, scopes), 24
        )
        # Older kernels take a shorter struct.
        size = 8 if abi < 4 else 16 if abi < LANDLOCK_SCOPES_ABI else 24
        self._creation = (_CREATE_RULESET, ctypes.addressof(self._attributes), size, 0, 0, 0, 0)
        self._rules: list[tuple[ctypes.Array[ctypes.c_char], int]] = []

    def allow(self, access: int, descriptor: int) -> None:
        """Allow accesses to a file, or to everything beneath a directory, by its descriptor (O_PATH will do).

        The descriptor must mean the same, and be open, where the domain is entered.
        """
        rule = ctypes.create_string_buffer(struct.pack("=Qi", access & self._known, descriptor), 12)
        self._rules.append((rule, ctypes.addressof(rule)))

    def enter(self) -> None:
        """Put this process, and all that it starts, into the domain; for good.

        Raises:
            OSError: the kernel refused.
        """
        ruleset = _syscall(*self._creation)
        if ruleset < 0:
            raise _error("landlock_create_ruleset")
        for _, address in self._rules:
            if _syscall(_ADD_RULE, ruleset, _RULE_PATH_BENEATH, address, 0, 0, 0) != 0:
                raise _error("landlock_add_rule")
        if _syscall(_RESTRICT_SELF, ruleset, 0, 0, 0, 0, 0) != 0:
            raise _error("landlock_restrict_self")
        os.close(ruleset)


def install_seccomp_filter(program: bytes) -> None:
    """Put this process, and all that it starts, under the filter; for good."""
    no_new_privileges()
    code = ctypes.create_string_buffer(program, len(program))
    header = ctypes.create_string_buffer(struct.pack("@HP", len(program) // 8, ctypes.addressof(code)))
    number = _SECCOMP[os.uname().machine]
    _call("seccomp", number, _SECCOMP_SET_MODE_FILTER, 0, ctypes.addressof(header))


def no_new_privileges() -> None:
    """No program that is executed from now on gets more than this process has (set-user-ID and the like)."""
    _prctl("PR_SET_NO_NEW_PRIVS", _PR_SET_NO_NEW_PRIVS, 1)


def drop_capabilities() -> None:
    """Give up every capability, also those that executing a program could bring back."""
    for capability in range(_CAPABILITIES_MAX):
        if _libc.prctl(_PR_CAPBSET_DROP, capability, 0, 0, 0) != 0:
            break  # beyond the last one that this kernel knows, or dropped by the sandbox already
    _libc.prctl(_PR_CAP_AMBIENT, _PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0)
    if _libc.capset(_CAPABILITY_HEADER, bytes(24)) != 0:
        raise _error("capset")


def make_device_read_only(path: str) -> None:
    """Remount a device node that is bound from outside: it can be used, but its mode and times cannot be changed.

    Its inode is the machine's own, and the sandbox's user may be its owner. Needs CAP_SYS_ADMIN.
    """
    flags = _MS_REMOUNT | _MS_BIND | _MS_RDONLY | _MS_NOSUID | _MS_NOEXEC
    _mount(None, path, None, flags, None)


def own_mount_namespace() -> None:
    """Mounts that this process makes and undoes from now on are seen by it alone. Needs CAP_SYS_ADMIN."""
    if _libc.unshare(_CLONE_NEWNS) != 0:
        raise _error("unshare")
    _mount(None, "/", None, _MS_REC | _MS_PRIVATE, None)


def unmount(path: str) -> None:
    """Undo a mount. Needs CAP_SYS_ADMIN."""
    if _libc.umount2(os.fsencode(path), _MNT_DETACH) != 0:
        raise _error(f"umount of {path}")


def mount_tmpfs(path: str, size: int) -> None:
    """Mount a tmpfs of at most so many bytes. Needs CAP_SYS_ADMIN."""
    _mount(b"tmpfs", path, b"tmpfs", _MS_NOSUID | _MS_NODEV, b"mode=0700,size=%d" % size)


def make_kernel_settings_read_only() -> None:
    """Remount everything in /proc that is no process's. Much of it is writable for user 0, without any capability.

    Needs CAP_SYS_ADMIN.
    """
    for entry in os.scandir("/proc"):
        if entry.name.isdigit() or entry.is_symlink():
            continue
        if entry.is_dir(follow_symlinks=False) or entry.stat(follow_symlinks=False).st_mode & 0o222:
            _mount(os.fsencode(entry.path), entry.path, None, _MS_BIND, None)
            flags = _MS_REMOUNT | _MS_BIND | _MS_RDONLY | _MS_NOSUID | _MS_NODEV | _MS_NOEXEC
            _mount(None, entry.path, None, flags, None)


def mount_terminals(path: str) -> None:
    """A set of pseudo-terminals that is nobody else's. Needs CAP_SYS_ADMIN and to be user 0."""
    _mount(b"devpts", path, b"devpts", _MS_NOSUID | _MS_NOEXEC, b"newinstance,ptmxmode=0666,mode=620")


def become_user(user: int, group: int) -> None:
    """Go by another number from now on, in a user namespace more; user 0 of this one is who that is."""
    if _libc.unshare(_CLONE_NEWUSER) != 0:
        raise _error("unshare")
    for name, text in (("setgroups", "deny"), ("uid_map", f"{user} 0 1"), ("gid_map", f"{group} 0 1")):
        with open(f"/proc/self/{name}", "w") as file:
            file.write(text)


def is_single_threaded() -> bool:
    """Whether this process has one thread: nobody else can ask for what CLONE_THREAD would unshare."""
    return int(_libc.unshare(_CLONE_THREAD)) == 0


def detach_stdin() -> None:
    """Standard input at its end, and of this process alone: an inode that it shares with nobody."""
    reader, writer = os.pipe()
    os.close(writer)
    os.dup2(reader, 0)
    os.close(reader)


def limit_resources(limits: Mapping[str, int]) -> None:
    """Set limits such as ``{"RLIMIT_NOFILE": 256}``, never above those that are in force."""
    for name, value in limits.items():
        number = getattr(resource, name)
        hard = resource.getrlimit(number)[1]
        wanted = value if hard == resource.RLIM_INFINITY else min(value, hard)
        resource.setrlimit(number, (wanted, wanted))


def _error(what: str) -> OSError:
    code = ctypes.get_errno()
    return OSError(code, f"{what}: {os.strerror(code)}")


def _prctl(what: str, option: int, argument: int) -> None:
    if _libc.prctl(option, argument, 0, 0, 0) != 0:
        raise _error(f"prctl({what})")


def _mount(source: bytes | None, target: str, kind: bytes | None, flags: int, data: bytes | None) -> None:
    if _libc.mount(source, os.fsencode(target), kind, ctypes.c_ulong(flags), data) != 0:
        raise _error(f"mount on {target}")
