"""Find, end and reap the descendants of a process; light enough for template processes to load."""

# ruff: noqa: PTH110, PTH115, PTH208
# (Importing pathlib costs more than all that is done here.)

from __future__ import annotations

import errno
import os
import select
import signal
import sys
import time

TYPE_CHECKING = False  # type checkers take it as true; see the package's __init__
if TYPE_CHECKING:
    from collections.abc import Callable, Collection

# SIGKILL ends a process at once, unless it sleeps in the kernel (a dead network disk): then give up and tell.
KILL_WAIT_SECONDS = 10.0

# Between two rounds of killing. A round catches what got away from the round before it.
ROUND_WAIT_SECONDS = 0.1

# Where a dying process cannot be waited for by descriptor (no pidfd, or no descriptor left).
BLIND_WAIT_SECONDS = 0.001

_PR_SET_CHILD_SUBREAPER = 36  # <linux/prctl.h>
_LISTED_CHILDREN_MAX = 65_536  # macOS: room for the answer of proc_listchildpids


def become_subreaper() -> bool:
    """Make this process inherit every orphaned descendant, so that none can escape it (prctl(2)).

    Returns True on Linux; False where the system has no such thing (macOS).

    Raises:
        OSError: the kernel refused.
    """
    if sys.platform != "linux":
        return False
    import ctypes

    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) != 0:
        code = ctypes.get_errno()
        raise OSError(code, f"prctl(PR_SET_CHILD_SUBREAPER): {os.strerror(code)}")
    return True


def descendants(pid: int) -> list[int]:
    """List the descendants of `pid`, parents before their children; zombies count until they are reaped.

    A snapshot: what is forked meanwhile may be missing. Returns an empty list if `pid` does not exist.

    Raises:
        OSError: Linux without a usable /proc.
    """
    _require_own_proc()
    found: list[int] = []
    pending = [pid]
    while pending:
        children = _children(pending.pop())
        found += children
        pending += children
    return found


def kill_descendants(
    *,
    spare: Collection[int] = (),
    wait_seconds: float = KILL_WAIT_SECONDS,
    on_reaped: Callable[[int, int], None] | None = None,
) -> list[int]:
    """End every descendant of this process with SIGKILL, reap, and repeat until none is left.

    For a subreaper (`become_subreaper`) the empty answer is proof: all living descendants hang on a chain of
    parents that ends here, so a process without children has no descendants. Costs a few microseconds when
    there is nothing to end.

    Args:
        spare: direct children to leave alone, each with everything below it.
        wait_seconds: bound for the whole of it.
        on_reaped: called with (pid, raw wait status) of every child that was reaped here.

    Returns:
        The direct children that were still there after `wait_seconds` (-1: something that cannot
        be named, as in a PID namespace without /proc); empty: nothing is left.

    Raises:
        OSError: there are children, on Linux without a usable /proc.
    """
    if not spare and _has_no_children():
        return []
    if not spare and os.getpid() == 1 and not _has_own_proc():
        return _kill_namespace(wait_seconds, on_reaped)
    deadline = time.monotonic() + wait_seconds
    while True:
        living, reaped = _reap(spare, on_reaped)
        # Where a child was found dead, what it left behind may have come to us after the look: look again.
        if not living and not reaped and (spare or _has_no_children()):
            return []
        for pid in _stop_trees(spare, deadline):
            _send(pid, signal.SIGKILL)
        remaining = deadline - time.monotonic()
        if remaining <= 0:
            return living or [-1]
        if living:
            _await_exit(living[0], min(ROUND_WAIT_SECONDS, remaining))


def signal_descendants(number: int) -> None:
    """Send signal `number` to every descendant of this process, once, as far as they can be seen."""
    for pid in descendants(os.getpid()):
        _send(pid, number)


def _has_no_children() -> bool:
    if sys.platform == "darwin":  # has no waitid before Python 3.13
        return not _children(os.getpid())
    try:
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return True
    return False


def _reap(spare: Collection[int], on_reaped: Callable[[int, int], None] | None) -> tuple[list[int], bool]:
    """Reap every dead child outside `spare`; return the living ones outside it, and whether any was dead."""
    living = []
    reaped = False
    for child in _own_children():
        if child in spare:
            continue
        try:
            pid, status = os.waitpid(child, os.WNOHANG)
        except ChildProcessError:  # somebody else in this process has reaped it
            continue
        if pid == 0:
            living.append(child)
            continue
        reaped = True
        if on_reaped is not None:
            on_reaped(pid, status)
    return living, reaped


def _own_children() -> list[int]:
    if _has_no_children():
        return []
    _require_own_proc()
    me = os.getpid()
    # The kernel's list may leave out a child while a sibling exits; a scan of all processes does not.
    return _children(me) or _children_by_scan(me)


def _kill_namespace(wait_seconds: float, on_reaped: Callable[[int, int], None] | None) -> list[int]:
    """`kill_descendants` for the init of a PID namespace: the kernel ends all of it but the caller."""
    deadline = time.monotonic() + wait_seconds
    while True:
        _send(-1, signal.SIGKILL)
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return []
        if pid == 0 and time.monotonic() >= deadline:
            return [-1]  # something is left, and without /proc it has no name
        if pid == 0:
            time.sleep(BLIND_WAIT_SECONDS)
        elif on_reaped is not None:
            on_reaped(pid, status)


def _stop_trees(spare: Collection[int], deadline: float) -> list[int]:
    """Stop everything below this process but `spare`, until a look finds nothing new; return what was stopped.

    Stopped before killed: what is killed makes room for what others fork. What is stopped forks no more, keeps
    its place, and no longer competes with us for the processor.
    """
    stopped: dict[int, None] = {}  # in order of discovery
    while True:
        before = len(stopped)
        pending = [child for child in _own_children() if child not in spare]
        while pending:
            pid = pending.pop()
            if pid not in stopped:
                stopped[pid] = None
                _send(pid, signal.SIGSTOP)
            pending += _children(pid)
        if len(stopped) == before or time.monotonic() >= deadline:
            return list(stopped)


def _send(pid: int, number: int) -> None:
    try:
        os.kill(pid, number)
    except (ProcessLookupError, PermissionError):  # gone, or of another user: told as left over at the end
        pass


def _await_exit(pid: int, timeout: float) -> None:
    """Wait up to `timeout` seconds until the child `pid` has died; it stays to be reaped."""
    try:
        descriptor = os.pidfd_open(pid)
    except (AttributeError, OSError):
        time.sleep(BLIND_WAIT_SECONDS)
        return
    try:
        poller = select.poll()
        poller.register(descriptor, select.POLLIN)
        poller.poll(timeout * 1000)
    finally:
        os.close(descriptor)


def _has_own_proc() -> bool:
    try:
        return os.readlink("/proc/self") == str(os.getpid())
    except OSError:
        return False


def _require_own_proc() -> None:
    """Refuse to act on process ids of another PID namespace than ours."""
    if sys.platform == "linux" and not _has_own_proc():
        raise OSError(errno.ENOSYS, "cannot list processes: /proc is not mounted, or belongs to another PID namespace")


def _children(pid: int) -> list[int]:
    if sys.platform != "linux":
        return _children_by_libproc(pid)
    try:
        threads = os.listdir(f"/proc/{pid}/task")
    except OSError:  # gone
        return []
    children: list[int] = []
    for thread in threads:
        try:
            descriptor = os.open(f"/proc/{pid}/task/{thread}/children", os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            if os.path.exists(f"/proc/{pid}/task/{thread}"):
                return _children_by_scan(pid)  # a kernel without CONFIG_PROC_CHILDREN
            continue
        except OSError:
            continue
        try:
            while chunk := os.read(descriptor, 65_536):
                # One process id and a blank at a time, so the kernel never cuts one between two reads.
                children += map(int, chunk.split())
        except OSError:
            pass
        finally:
            os.close(descriptor)
    return children


def _children_by_scan(parent: int) -> list[int]:
    if sys.platform != "linux":
        return _children_by_libproc(parent)
    children = []
    for name in os.listdir("/proc"):
        if not name.isdigit():
            continue
        try:
            with open(f"/proc/{name}/stat", "rb") as file:
                stat = file.read()
        except OSError:  # gone
            continue
        # pid (name) state ppid …; the name may hold blanks and parentheses of its own.
        if int(stat[stat.rindex(b")") + 2 :].split(None, 2)[1]) == parent:
            children.append(int(name))
    return children


def _children_by_libproc(pid: int) -> list[int]:
    """macOS: proc_listchildpids(3) of libproc, which lives in libSystem."""
    import ctypes

    buffer = (ctypes.c_int * _LISTED_CHILDREN_MAX)()
    if ctypes.CDLL(None).proc_listchildpids(pid, buffer, ctypes.sizeof(buffer)) <= 0:
        return []
    # Systems differ in whether the answer counts bytes or ids; the zeros behind the last id do not.
    children: list[int] = []
    for child in buffer:
        if child == 0:
            break
        children.append(child)
    return children
