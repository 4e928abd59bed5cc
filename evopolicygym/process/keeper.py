"""The keeper: a process that owns one job, its main process and all that descends from it, until all is gone."""

# ruff: noqa: PTH118
# (Importing pathlib costs more than all that is done here.)

from __future__ import annotations

import _socket
import errno
import fcntl
import os
import select
import signal
import sys
import time

from evopolicygym.process import wire
from evopolicygym.process.descendants import become_subreaper, kill_descendants, signal_descendants

TYPE_CHECKING = False  # type checkers take it as true; see the package's __init__
if TYPE_CHECKING:
    from typing import NoReturn, TypedDict

    class Job(TypedDict):
        """What to execute; `targets` are the numbers its descriptors get, in the order they are passed."""

        arguments: list[bytes]
        environment: dict[bytes, bytes]
        directory: bytes
        targets: list[int]


_ERRNO_BYTES = 4


def receive_signals() -> int:
    """Turn signals into bytes on a pipe, whose read end is returned; none of them ends this process.

    Handlers, not SIG_IGN: what is executed later starts with the defaults again.
    """
    reader, writer = os.pipe()
    os.set_blocking(reader, False)
    os.set_blocking(writer, False)
    for number in (signal.SIGCHLD, signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT):
        signal.signal(number, _note)
    signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
    return reader


def keep(job: Job, control: _socket.socket, descriptors: list[int], lifeline: int) -> NoReturn:
    """Start `job` and serve the Host on `control` until nothing of the job is left; never returns.

    Everything is ended at once when `control` or `lifeline` reaches its end: the Host, or the supervisor, is
    gone. The exit code is 0 only if nothing was left.
    """
    inherits_orphans = become_subreaper()
    signals = receive_signals()
    _tell(control, wire.KEEPER, os.getpid())
    try:
        main = _start(job, descriptors)
    except OSError as error:
        _tell(control, wire.FAILED, error.errno or errno.EIO)
        survivors = kill_descendants()
        os._exit(1 if survivors else 0)
    for descriptor in descriptors:
        os.close(descriptor)
    _tell(control, wire.STARTED, main)
    survivors = _Keeper(main, control, lifeline, signals, inherits_orphans).run()
    _tell(control, wire.GONE, len(survivors))
    os._exit(1 if survivors else 0)


class _Keeper:
    """The loop of one keeper."""

    def __init__(self, main: int, control: _socket.socket, lifeline: int, signals: int, inherits_orphans: bool) -> None:
        self._main = main
        self._control = control
        self._lifeline = lifeline
        self._signals = signals
        self._inherits_orphans = inherits_orphans
        self._kill_at: float | None = None  # monotonic seconds

    def run(self) -> list[int]:
        """Wait and obey until nothing is left; return what could not be ended."""
        poller = select.poll()
        for descriptor in (self._control.fileno(), self._lifeline, self._signals):
            poller.register(descriptor, select.POLLIN)
        while self._reap_dead():
            remaining = None if self._kill_at is None else self._kill_at - time.monotonic()
            if remaining is not None and remaining <= 0:
                return self._kill()
            ready = {fd for fd, _ in poller.poll(None if remaining is None else remaining * 1000 + 1)}
            if self._signals in ready:
                _drain(self._signals)
            if self._lifeline in ready:
                self._end_within(0)
            if self._control.fileno() in ready:
                self._obey()
        return []

    def _reap_dead(self) -> bool:
        """Reap what has died; tell whether anything is left."""
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return not self._inherits_orphans and _is_living_group(self._main)
            if pid == 0:
                return True
            self._on_reaped(pid, status)

    def _on_reaped(self, pid: int, status: int) -> None:
        if pid == self._main:
            _tell(self._control, wire.ENDED, status)

    def _obey(self) -> None:
        try:
            command = wire.receive(self._control, wire.RECORD_BYTES)
        except OSError:
            command = b""
        tag, number = wire.parse(command)
        if tag != wire.TERMINATE:  # KILL, or the Host is gone
            self._end_within(0)
            return
        self._end_within(number / 1000)
        signal_descendants(signal.SIGTERM)
        signal_descendants(signal.SIGCONT)  # a stopped process would not hear the other one
        if not self._inherits_orphans:
            _signal_group(self._main, signal.SIGTERM)

    def _end_within(self, seconds: float) -> None:
        at = time.monotonic() + seconds
        self._kill_at = at if self._kill_at is None else min(at, self._kill_at)

    def _kill(self) -> list[int]:
        if not self._inherits_orphans:
            _signal_group(self._main, signal.SIGKILL)
        return kill_descendants(on_reaped=self._on_reaped)


def _note(number: int, frame: object) -> None:
    """Handle a signal: the byte on the wakeup pipe says it all."""


def _drain(descriptor: int) -> None:
    try:
        while os.read(descriptor, 4096):
            pass
    except BlockingIOError:
        pass


def _tell(control: _socket.socket, tag: bytes, number: int) -> None:
    try:
        control.sendall(wire.record(tag, number))
    except OSError:  # the Host is gone, which the loop sees too
        pass


def _is_living_group(group: int) -> bool:
    try:
        os.killpg(group, 0)
    except OSError:  # none, or on macOS: zombies only
        return False
    return True


def _signal_group(group: int, number: int) -> None:
    try:
        os.killpg(group, number)
    except OSError:  # gone
        pass


def _start(job: Job, descriptors: list[int]) -> int:
    """Fork and execute `job`; return its process id once it runs, raise the OSError that prevented it."""
    clear = max([2, *job["targets"]]) + 1  # numbers from here on are out of the way of all targets
    reader, low = os.pipe()
    writer = fcntl.fcntl(low, fcntl.F_DUPFD_CLOEXEC, clear)  # closed by a successful exec
    os.close(low)
    pid = os.fork()
    if pid == 0:
        try:
            _execute(job, descriptors, clear)
        except OSError as error:
            code = error.errno or errno.EIO
        except BaseException:  # noqa: BLE001 (told on stderr; the fork must never return)
            code = errno.EINVAL
            sys.excepthook(*sys.exc_info())
        os.write(writer, code.to_bytes(_ERRNO_BYTES, "big"))
        os._exit(127)
    os.close(writer)
    told = os.read(reader, _ERRNO_BYTES)
    os.close(reader)
    if told:
        code = int.from_bytes(told, "big")
        raise OSError(code, os.strerror(code))
    return pid


def _execute(job: Job, descriptors: list[int], clear: int) -> NoReturn:
    """Become the job's main process: own session, default signals, its descriptors and no others."""
    os.setsid()
    for name in ("SIGPIPE", "SIGXFZ", "SIGXFSZ"):  # Python ignores them, and what is ignored stays so
        if hasattr(signal, name):
            signal.signal(getattr(signal, name), signal.SIG_DFL)
    os.chdir(job["directory"])
    targets = job["targets"]
    # First out of the way of all targets, then each to its own. Everything else closes on exec.
    parked = [fcntl.fcntl(descriptor, fcntl.F_DUPFD_CLOEXEC, clear) for descriptor in descriptors]
    for descriptor, target in zip(parked, targets, strict=True):
        os.dup2(descriptor, target)
    for standard in {0, 1, 2}.difference(targets):
        null = os.open(os.devnull, os.O_RDWR)
        os.dup2(null, standard)
    _execute_by_name(job["arguments"], job["environment"])


def _execute_by_name(arguments: list[bytes], environment: dict[bytes, bytes]) -> NoReturn:
    """execve(2), a name without a slash looked up along the PATH of `environment`, as a shell does."""
    name = arguments[0]
    if b"/" in name:
        os.execve(name, arguments, environment)
    refused: OSError | None = None
    for directory in environment.get(b"PATH", os.defpath.encode()).split(b":"):
        try:
            os.execve(os.path.join(directory or b".", name), arguments, environment)
        except (FileNotFoundError, NotADirectoryError):
            continue
        except OSError as error:  # found but not to be run; a later directory may hold a better one
            refused = refused or error
    raise refused or FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT))
