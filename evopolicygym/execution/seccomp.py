"""Which system calls confined code may make: a filter for the kernel, as bytes (seccomp(2), classic BPF).

What is listed is refused with EPERM, as if a privilege were missing, so that libraries fall back; what is younger than
the list is refused with ENOSYS; all else is allowed.
"""

import os
import struct

__all__ = ["agent_filter", "policy_filter"]

# <asm/unistd.h>: x86-64, aarch64; None where the architecture has no such call.
_NUMBERS: dict[str, tuple[int | None, int | None]] = {
    "accept": (43, 202),
    "accept4": (288, 242),
    "acct": (163, 89),
    "add_key": (248, 217),
    "adjtimex": (159, 171),
    "bind": (49, 200),
    "bpf": (321, 280),
    "chroot": (161, 51),
    "clock_adjtime": (305, 266),
    "clock_settime": (227, 112),
    "clone": (56, 220),
    "clone3": (435, 435),
    "connect": (42, 203),
    "delete_module": (176, 106),
    "fanotify_init": (300, 262),
    "finit_module": (313, 273),
    "fsconfig": (431, 431),
    "fsmount": (432, 432),
    "fsopen": (430, 430),
    "fspick": (433, 433),
    "init_module": (175, 105),
    "io_uring_enter": (426, 426),
    "io_uring_register": (427, 427),
    "io_uring_setup": (425, 425),
    "ioctl": (16, 29),
    "ioperm": (173, None),
    "iopl": (172, None),
    "ioprio_set": (251, 30),
    "kcmp": (312, 272),
    "kexec_file_load": (320, 294),
    "kexec_load": (246, 104),
    "keyctl": (250, 219),
    "listen": (50, 201),
    "listmount": (458, 458),
    "memfd_create": (319, 279),
    "memfd_secret": (447, 447),
    "migrate_pages": (256, 238),
    "modify_ldt": (154, None),
    "mount": (165, 40),
    "mount_setattr": (442, 442),
    "move_mount": (429, 429),
    "move_pages": (279, 239),
    "mq_open": (240, 180),
    "mq_unlink": (241, 181),
    "msgctl": (71, 187),
    "msgget": (68, 186),
    "msgrcv": (70, 188),
    "msgsnd": (69, 189),
    "name_to_handle_at": (303, 264),
    "open_by_handle_at": (304, 265),
    "open_tree": (428, 428),
    "perf_event_open": (298, 241),
    "pidfd_getfd": (438, 438),
    "pivot_root": (155, 41),
    "prlimit64": (302, 261),
    "process_madvise": (440, 440),
    "process_vm_readv": (310, 270),
    "process_vm_writev": (311, 271),
    "ptrace": (101, 117),
    "quotactl": (179, 60),
    "quotactl_fd": (443, 443),
    "reboot": (169, 142),
    "request_key": (249, 218),
    "sched_setaffinity": (203, 122),
    "sched_setattr": (314, 274),
    "sched_setparam": (142, 118),
    "sched_setscheduler": (144, 119),
    "semctl": (66, 191),
    "semget": (64, 190),
    "semop": (65, 193),
    "semtimedop": (220, 192),
    "sendto": (44, 206),
    "setdomainname": (171, 162),
    "sethostname": (170, 161),
    "setns": (308, 268),
    "setpriority": (141, 140),
    "settimeofday": (164, 170),
    "shmat": (30, 196),
    "shmctl": (31, 195),
    "shmdt": (67, 197),
    "shmget": (29, 194),
    "socket": (41, 198),
    "socketpair": (53, 199),
    "statmount": (457, 457),
    "swapoff": (168, 225),
    "swapon": (167, 224),
    "syslog": (103, 116),
    "umount2": (166, 39),
    "unshare": (272, 97),
    "userfaultfd": (323, 282),
    "vhangup": (153, 58),
}

_ARCHITECTURES = {"x86_64": (0, 0xC000003E), "aarch64": (1, 0xC00000B7)}  # index above, AUDIT_ARCH_*

# What nobody in a sandbox needs: other namespaces and mounts, the kernel's own doors, keys of the user.
_FOR_ALL = [
    "acct",
    "add_key",
    "adjtimex",
    "bpf",
    "chroot",
    "clock_adjtime",
    "clock_settime",
    "delete_module",
    "fanotify_init",
    "finit_module",
    "fsconfig",
    "fsmount",
    "fsopen",
    "fspick",
    "init_module",
    "io_uring_enter",
    "io_uring_register",
    "io_uring_setup",
    "ioperm",
    "iopl",
    "kcmp",
    "kexec_file_load",
    "kexec_load",
    "keyctl",
    "listmount",
    "mount",
    "mount_setattr",
    "move_mount",
    "name_to_handle_at",
    "open_by_handle_at",
    "open_tree",
    "perf_event_open",
    "pidfd_getfd",
    "pivot_root",
    "quotactl",
    "quotactl_fd",
    "reboot",
    "request_key",
    "setdomainname",
    "sethostname",
    "setns",
    "settimeofday",
    "statmount",
    "swapoff",
    "swapon",
    "syslog",
    "umount2",
    "unshare",
    "userfaultfd",
    "vhangup",
]

# What could reach another process, or stay for the next Episode. Memory of a memfd is bounded by no limit of a process.
_FOR_POLICIES = [
    "accept",
    "accept4",
    "bind",
    "connect",
    "listen",
    "memfd_create",
    "memfd_secret",
    "migrate_pages",
    "modify_ldt",
    "move_pages",
    "mq_open",
    "mq_unlink",
    "msgctl",
    "msgget",
    "msgrcv",
    "msgsnd",
    "process_madvise",
    "process_vm_readv",
    "process_vm_writev",
    "ptrace",
    "semctl",
    "semget",
    "semop",
    "semtimedop",
    "shmat",
    "shmctl",
    "shmdt",
    "shmget",
    "socket",
]

# Policies may change these of their own process only: another one's (the template's) would be inherited.
_OWN_PROCESS_ONLY = ("prlimit64", "sched_setaffinity", "sched_setattr", "sched_setparam", "sched_setscheduler")

_CLONE_NEW = 0x7E020000  # every CLONE_NEW* flag of clone(2)
_IOCTLS_FOR_ALL = (0x5412, 0x541C)  # TIOCSTI, TIOCLINUX: typing into somebody's terminal
_IOCTLS_FOR_POLICIES = (0x40086602, 0x401C5820)  # FS_IOC_SETFLAGS, FS_IOC_FSSETXATTR: attributes of a directory
_AF_UNIX = 1

_EPERM, _ENOSYS = 1, 38
_ALLOW, _KILL_PROCESS, _ERRNO = 0x7FFF0000, 0x80000000, 0x00050000  # SECCOMP_RET_*

_LOAD, _EQUAL, _ANY_BIT, _AT_LEAST, _RETURN = 0x20, 0x15, 0x45, 0x35, 0x06  # BPF: ld [k], jeq, jset, jge, ret k
_OFFSET_NUMBER, _OFFSET_ARCHITECTURE, _OFFSET_ARGUMENTS = 0, 4, 16  # struct seccomp_data

# What came after mseal (Linux 6.10) was not looked at here, and is not there for confined code, as on an older kernel;
# nor is the second set of calls that x86-64 has from 0x40000000 on (x32).
_FIRST_UNKNOWN = 463


def policy_filter() -> bytes:
    """The filter for Policies; empty on an architecture whose numbers are not known here."""
    program = _Program()
    for name in (*_FOR_ALL, *_FOR_POLICIES):
        program.refuse(name)
    for name in _OWN_PROCESS_ONLY:
        program.refuse_unless_zero(name, 0)
    # Of this process only: PRIO_PROCESS (0), and IOPRIO_WHO_PROCESS (1), with the number 0.
    program.refuse_unless_zero("setpriority", 0, 1)
    program.refuse_unless_zero("ioprio_set", 1)
    program.refuse_unless_zero("sendto", 4)  # an address
    program.refuse_unless("socketpair", _AF_UNIX)
    return program.finish((*_IOCTLS_FOR_ALL, *_IOCTLS_FOR_POLICIES))


def agent_filter() -> bytes:
    """The filter for Agents; empty on an architecture whose numbers are not known here."""
    program = _Program()
    for name in _FOR_ALL:
        program.refuse(name)
    return program.finish(_IOCTLS_FOR_ALL)


class _Program:
    """Instructions in the making; each test leaves the call's number in the accumulator."""

    def __init__(self) -> None:
        self._index, self._architecture = _ARCHITECTURES.get(os.uname().machine, (0, 0))
        self._code = [
            _instruction(_LOAD, _OFFSET_ARCHITECTURE),
            _instruction(_EQUAL, self._architecture, 1, 0),
            _instruction(_RETURN, _KILL_PROCESS),
            _instruction(_LOAD, _OFFSET_NUMBER),
            _instruction(_AT_LEAST, _FIRST_UNKNOWN, 0, 1),
            _instruction(_RETURN, _ERRNO | _ENOSYS),
        ]

    def refuse(self, name: str, error: int = _EPERM) -> None:
        self._when(name, [_instruction(_RETURN, _ERRNO | error)])

    def refuse_unless_zero(self, name: str, *arguments: int) -> None:
        """Refuse the call unless all of these arguments are 0, in both halves of 64 bits."""
        code = []
        for argument in arguments:
            for half in (0, 4):
                code += [
                    _instruction(_LOAD, _OFFSET_ARGUMENTS + 8 * argument + half),
                    _instruction(_EQUAL, 0, 1, 0),
                    _instruction(_RETURN, _ERRNO | _EPERM),
                ]
        self._when(name, [*code, _instruction(_RETURN, _ALLOW)])

    def refuse_unless(self, name: str, value: int) -> None:
        """Refuse the call unless its first argument, an int, has this value."""
        code = [
            _instruction(_LOAD, _OFFSET_ARGUMENTS),
            _instruction(_EQUAL, value, 1, 0),
            _instruction(_RETURN, _ERRNO | _EPERM),
            _instruction(_RETURN, _ALLOW),
        ]
        self._when(name, code)

    def finish(self, ioctls: tuple[int, ...]) -> bytes:
        if not self._architecture:
            return b""
        # glibc then uses clone, whose flags a filter can read; those of clone3 lie behind a pointer.
        self.refuse("clone3", _ENOSYS)
        namespaces = [
            _instruction(_LOAD, _OFFSET_ARGUMENTS),
            _instruction(_ANY_BIT, _CLONE_NEW, 0, 1),
            _instruction(_RETURN, _ERRNO | _EPERM),
            _instruction(_RETURN, _ALLOW),
        ]
        self._when("clone", namespaces)
        requests = [_instruction(_LOAD, _OFFSET_ARGUMENTS + 8)]  # the kernel looks at 32 bits, and so does this
        for number in ioctls:
            requests += [_instruction(_EQUAL, number, 0, 1), _instruction(_RETURN, _ERRNO | _EPERM)]
        self._when("ioctl", [*requests, _instruction(_RETURN, _ALLOW)])
        return b"".join([*self._code, _instruction(_RETURN, _ALLOW)])

    def _when(self, name: str, code: list[bytes]) -> None:
        number = _NUMBERS[name][self._index]
        if number is not None:
            self._code += [_instruction(_EQUAL, number, 0, len(code)), *code]


def _instruction(code: int, operand: int, if_true: int = 0, if_false: int = 0) -> bytes:
    return struct.pack("=HBBI", code, if_true, if_false, operand)  # struct sock_filter
