"""Runs a command and ends it if its process tree takes more than it may: for machines without control groups.

Started by path, outside the sandbox: ``python -I -S tree_watch.py MEMORY_BYTES PROCESSES COMMAND…``. The tree is
looked at several times a second, so a limit is a bound within that time, not at every instant.
"""

# ruff: noqa: PTH100, PTH120 (pathlib costs more to import than all of this)

from __future__ import annotations

import os
import select
import signal
import sys

if __name__ == "__main__":
    sys.path.append(os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))))

from evopolicygym.process.descendants import descendants

_LOOK_SECONDS = 0.05

# What the sandbox itself needs: this process's child and the sandbox's first process.
_OWN_PROCESSES = 3


def main(argv: list[str]) -> int:
    """Run it; the exit code is the command's, or 128 and the signal's number, as shells have it."""
    memory, processes, command = int(argv[1]), int(argv[2]), argv[3:]
    pid = os.posix_spawn(command[0], command, os.environ)
    os.closerange(3, 64)  # the command's alone: their ends must be seen when it ends
    pidfd = os.pidfd_open(pid)
    poller = select.poll()
    poller.register(pidfd, select.POLLIN)
    while not poller.poll(_LOOK_SECONDS * 1000):
        tree = descendants(pid)
        if _tasks(tree) > processes + _OWN_PROCESSES or _resident_bytes(tree) > memory:
            os.kill(pid, signal.SIGKILL)  # the whole namespace goes with it
    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    return 128 - code if code < 0 else code


def _tasks(tree: list[int]) -> int:
    return sum(_number(f"/proc/{pid}/stat", 17) for pid in tree)


def _resident_bytes(tree: list[int]) -> int:
    """Memory that is no file's; pages that several have count for each."""
    return sum(_memory(pid) for pid in tree)


def _memory(pid: int) -> int:
    try:
        with open(f"/proc/{pid}/status", "rb") as file:
            lines = file.read().splitlines()
    except OSError:
        return 0
    return sum(int(line.split()[1]) for line in lines if line.startswith((b"RssAnon:", b"RssShmem:"))) * 1024


def _number(path: str, field: int) -> int:
    """A field of a line of /proc, counted after the process's name where there is one; 0 if it is gone."""
    try:
        with open(path, "rb") as file:
            words = file.read().rpartition(b")")[2].split()
    except OSError:
        return 0
    return int(words[field])


if __name__ == "__main__":
    sys.exit(main(sys.argv))
