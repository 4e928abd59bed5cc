"""The Host's side: a supervisor process of its own, and a handle for every process started through it."""

from __future__ import annotations

import errno
import marshal
import math
import os
import select
import signal
import socket
import subprocess
import sys
import threading
import time
import weakref
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from evopolicygym.errors import EvoPolicyGymError
from evopolicygym.process import wire
from evopolicygym.process.descendants import KILL_WAIT_SECONDS, descendants
from evopolicygym.process.supervisor_process import KEEPERS_WAIT_SECONDS

# From the request until the program is executed: two forks and an exec, which a slow network disk may delay.
START_WAIT_SECONDS = 60.0

# Beyond the grace and the keeper's own bound: time for its last word to arrive on a busy machine.
KEEPER_WAIT_SECONDS = KILL_WAIT_SECONDS + 5.0

# The supervisor's own bound for ending all keepers, then for ending what they could not.
CLOSE_WAIT_SECONDS = KEEPERS_WAIT_SECONDS + KILL_WAIT_SECONDS + 5.0

# The supervisor process sees as little of the Host as it can: what finds its shared libraries, no more.
_SUPERVISOR_ENVIRONMENT = ("LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH", "DYLD_FALLBACK_LIBRARY_PATH")

# The package's directory goes last on the path, so that nothing beside it can shadow the standard library.
_SUPERVISOR_PROGRAM = (
    "import sys; sys.path.append(sys.argv[1]); from evopolicygym.process.supervisor_process import main; main()"
)


class SupervisorLostError(EvoPolicyGymError):
    """The supervisor process is gone or does not answer, and with it the processes started through it."""


class Supervisor:
    """Starts processes that end, with everything they have started, when told to or when the Host is gone.

    Owns one small process, the supervisor, in a session of its own. It forks a *keeper* for every started
    process; a keeper is the subreaper of exactly that process's tree, so that neither `setsid` nor a double
    fork leads out of it. If the Host dies, SIGKILL included, all of it ends. The Host itself is never made a
    subreaper and needs no signal handler. On macOS, which has no subreapers, a descendant that leaves its
    session may escape.

    Every method may be called from any thread. Use it as a context manager.

    Raises:
        OSError: the supervisor process cannot be started.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()  # one request on the socket at a time
        self._children: set[Child] = set()
        self._closed = False
        here, there = socket.socketpair()
        with there:
            try:
                self._process = subprocess.Popen(
                    [
                        sys.executable,
                        *("-I", "-S", "-c", _SUPERVISOR_PROGRAM, str(Path(__file__).parents[2])),
                        *(str(there.fileno()), str(os.getpid())),
                    ],
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                    pass_fds=[there.fileno()],
                    env={name: os.environ[name] for name in _SUPERVISOR_ENVIRONMENT if name in os.environ},
                    cwd="/",
                    start_new_session=True,
                )
            except BaseException as error:
                here.close()
                if isinstance(error, OSError):
                    raise OSError(error.errno, f"the supervisor process cannot be started: {error.strerror}") from error
                raise
        self._socket = here

    def start(
        self,
        argv: Sequence[str],
        *,
        env: Mapping[str, str],
        cwd: str | os.PathLike[str] | None = None,
        stdin: int | None = None,
        stdout: int | None = None,
        stderr: int | None = None,
        pass_fds: Mapping[int, int] = {},
    ) -> Child:
        """Start `argv` in a session of its own and return once it is executing.

        Args:
            argv: program and arguments; a program without a slash is looked up along the PATH of `env`.
            env: the whole environment of the process.
            cwd: its working directory; None: the Host's.
            stdin: descriptor that becomes its standard input; None: /dev/null. So for `stdout`, `stderr`.
                The caller's descriptors stay open here.
            pass_fds: further descriptors, {number in the process: descriptor here}. It gets no others.

        Raises:
            OSError: it cannot be executed, with the `errno` of the failed call (ChildProcessError: its keeper
                was killed before it could tell of the start).
            ValueError: an argument is empty, holds a zero byte, or the Supervisor is closed.
            SupervisorLostError: the supervisor process is gone.
        """
        wanted = {0: stdin, 1: stdout, 2: stderr, **pass_fds}
        passed = {target: descriptor for target, descriptor in wanted.items() if descriptor is not None}
        directory = _working_directory() if cwd is None else Path(cwd)
        job = marshal.dumps(
            {
                "arguments": _encode_arguments(argv),
                "environment": _encode_environment(env),
                "directory": os.fsencode(directory),
                "targets": list(passed),
            }
        )
        here, there = socket.socketpair()
        try:
            with there:
                self._send(wire.record(wire.START, len(job)) + job, [there.fileno(), *passed.values()])
            usable = directory.is_dir() and os.access(directory, os.X_OK)
            keeper, pid = self._receive_start(here, argv[0] if usable else directory)
            child = Child(self, here, keeper, pid)
        except BaseException:
            here.close()
            raise
        with self._lock:
            if not self._closed:
                self._children.add(child)
        return child

    def close(self) -> None:
        """End and reap everything that was started through this Supervisor, and its own process.

        Safe to call again. Handles stay usable: `wait()` answers how their process ended.
        """
        with self._lock:
            self._closed = True
            if self._process.returncode is None:
                self._shut()
                self._wake()
                if not _is_hung_up(self._socket, CLOSE_WAIT_SECONDS):
                    self._process.kill()
                self._process.wait()  # its last descriptor is closed, so it is ending; or it is killed
            self._socket.close()
            children = list(self._children)
        for child in children:
            child.kill_tree()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def _send(self, request: bytes, descriptors: Sequence[int]) -> None:
        with self._lock:
            if self._closed:
                raise ValueError("this Supervisor is closed: nothing can be started through it any more")
            try:
                wire.send_with_descriptors(self._socket, request, descriptors)
            except (BrokenPipeError, ConnectionResetError) as error:
                raise SupervisorLostError(_LOST) from error
            except OSError:  # a bad descriptor: nothing was sent
                raise
            except BaseException:  # a KeyboardInterrupt may have left half a request on the socket
                self._shut()
                raise

    def _receive_start(self, control: socket.socket, culprit: str | os.PathLike[str]) -> tuple[int, int]:
        """Return the process ids of keeper and main process, or raise what kept it from being started.

        `culprit` is the path that an error names.
        """
        deadline = time.monotonic() + START_WAIT_SECONDS
        keeper = 0
        while True:
            answer = _receive_record(control, max(0.0, deadline - time.monotonic()))
            if answer is None:
                self._settle(keeper)
                raise ChildProcessError(errno.ECHILD, "its keeper process was killed at the start", os.fspath(culprit))
            tag, number = answer
            if tag == wire.KEEPER:
                keeper = number
            elif tag == wire.STARTED:
                return keeper, number
            else:
                raise OSError(number, os.strerror(number), os.fspath(culprit))

    def _settle(self, keeper: int) -> int:
        """Have everything ended that a dead keeper left behind; return how many processes are left."""
        with self._lock:
            if self._closed:
                return 0
            try:
                self._socket.sendall(wire.record(wire.SETTLE, keeper))
                answer = _receive_record(self._socket, KEEPER_WAIT_SECONDS)
            except OSError as error:
                raise SupervisorLostError(_LOST) from error
            except BaseException:  # the answer would be taken for that of the next request
                self._shut()
                raise
            if answer is None:
                raise SupervisorLostError(_LOST)
            return answer[1]

    def _shut(self) -> None:
        """Tell the supervisor that no more requests come, on which it ends everything."""
        try:
            self._socket.shutdown(socket.SHUT_WR)
        except OSError:  # it is gone already
            pass

    def _wake(self) -> None:
        """Let the supervisor run on if a job has stopped it."""
        self._process.send_signal(signal.SIGCONT)

    def _forget(self, child: Child) -> None:
        with self._lock:
            self._children.discard(child)


class Child:
    """One started process and, as its tree, everything that descends from it.

    The tree stays owned after the process itself has ended, until `kill_tree()`, `terminate()`, `close()` or
    the end of the Supervisor. Every method may be called from any thread, again and again.

    Attributes:
        pid: id of the process, and of its session and process group.
        survivors: how many processes even SIGKILL could not end (they hang in the kernel, or belong to another
            user); known, and nearly always 0, after the tree was ended.
    """

    def __init__(self, supervisor: Supervisor, control: socket.socket, keeper: int, pid: int) -> None:
        self.pid = pid
        self.survivors = 0
        self._supervisor = supervisor
        self._control = control
        self._keeper = keeper
        self._lock = threading.Lock()
        self._returncode: int | None = None
        self._gone = False
        weakref.finalize(self, control.close)  # not __del__: in a cycle, the socket's might come first and warn

    def fileno(self) -> int:
        """Return a descriptor that becomes readable when the process has ended, and stays so."""
        return self._control.fileno()

    @property
    def returncode(self) -> int | None:
        """How the process ended, as far as known without waiting; None: it is running."""
        return self.wait(0)

    def wait(self, timeout: float | None) -> int | None:
        """Wait for the process itself, up to `timeout` seconds (None: for ever).

        Returns:
            Its exit code; a negative number is the signal that ended it; None: still running.
        """
        if self._returncode is None and _is_readable(self._control, timeout):
            with self._lock:
                self._read_end()
        return self._returncode

    def stragglers(self) -> list[int]:
        """List the process ids of everything else in the tree that is alive now; a snapshot."""
        return [] if self._gone else [pid for pid in descendants(self._keeper) if pid != self.pid]

    def terminate(self, *, grace_seconds: float) -> int:
        """Ask the whole tree to end with SIGTERM; what is left after `grace_seconds` gets SIGKILL.

        Returns as soon as nothing is left of the tree, not before (see `survivors`).

        Returns:
            How the process ended, as `wait()` has it.

        Raises:
            SupervisorLostError: the jobs have killed supervisor and keeper; what is left cannot be known.
        """
        if not 0 <= grace_seconds < math.inf:
            raise ValueError(f"grace_seconds must be a finite number >= 0, found {grace_seconds!r}")
        return self._end(wire.record(wire.TERMINATE, round(grace_seconds * 1000)), grace_seconds)

    def kill_tree(self) -> int:
        """End the whole tree with SIGKILL; returns and raises like `terminate()`."""
        return self._end(wire.record(wire.KILL, 0), 0.0)

    def close(self) -> None:
        """End the tree and release the descriptor; the handle then only answers `returncode` and `wait`."""
        self.kill_tree()
        self._control.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<Child pid={self.pid} returncode={self._returncode}>"

    def _end(self, command: bytes, grace_seconds: float) -> int:
        if not self._gone:
            try:
                self._control.sendall(command)
            except OSError:  # the keeper is gone already
                pass
            if not _is_hung_up(self._control, grace_seconds + KEEPER_WAIT_SECONDS):
                self._kill_keeper()
            self._note_gone()
        assert self._returncode is not None
        return self._returncode

    def _kill_keeper(self) -> None:
        """End a keeper that does not answer, as when a job has stopped it; the supervisor takes over."""
        self._supervisor._wake()
        try:
            os.kill(self._keeper, signal.SIGKILL)
        except ProcessLookupError:
            return
        _is_hung_up(self._control, KEEPER_WAIT_SECONDS)

    def _read_end(self) -> None:
        if self._returncode is not None:
            return
        try:
            # Only a look: consumed, it would no longer make the descriptor readable.
            told = self._control.recv(wire.RECORD_BYTES, socket.MSG_PEEK)
        except ConnectionResetError:  # killed with a command of ours unread
            told = b""
        tag, number = wire.parse(told)
        if tag == wire.ENDED:
            self._returncode = os.waitstatus_to_exitcode(number)
        else:  # the keeper was killed; the supervisor then kills what it kept
            self._returncode = -signal.SIGKILL

    def _note_gone(self) -> None:
        with self._lock:
            if self._gone:
                return
            self._read_end()
            told = wire.receive(self._control, 3 * wire.RECORD_BYTES)
            tag, number = wire.parse(told[-wire.RECORD_BYTES :])
            self.survivors = number if tag == wire.GONE else self._supervisor._settle(self._keeper)
            self._gone = True
        self._supervisor._forget(self)


_LOST = (
    "the supervisor process ended unexpectedly (killed from outside, or out of memory?): "
    "the processes started through it are ended too; start the command again"
)


def describe_returncode(code: int) -> str:
    """Say in words how a process ended: "exit code 3", "killed by SIGKILL"."""
    if code >= 0:
        return f"exit code {code}"
    try:
        return f"killed by {signal.Signals(-code).name}"
    except ValueError:
        return f"killed by signal {-code}"


def _working_directory() -> Path:
    try:
        return Path.cwd()
    except FileNotFoundError as error:
        error.filename = "the working directory"
        raise


def _encode_arguments(argv: Sequence[str]) -> list[bytes]:
    arguments = [os.fsencode(argument) for argument in argv]
    if not arguments or not arguments[0]:
        raise ValueError("argv is empty: its first item must name the program to start")
    for argument in arguments:
        if b"\0" in argument:
            raise ValueError(f"an argument holds a zero byte, which no process can receive: {argument[:80]!r}")
    return arguments


def _encode_environment(env: Mapping[str, str]) -> dict[bytes, bytes]:
    environment = {os.fsencode(name): os.fsencode(value) for name, value in env.items()}
    for name, value in environment.items():
        if not name or b"=" in name or b"\0" in name + value:
            raise ValueError(f"environment variable {name!r}: empty name, '=' in the name, or a zero byte")
    return environment


def _receive_record(peer: socket.socket, timeout: float) -> tuple[bytes, int] | None:
    """Receive one record; None at the end of the stream. Records are sent whole, so the wait is for one."""
    if not _is_readable(peer, timeout):
        raise TimeoutError(f"the supervisor process did not answer within {timeout:g} s")
    data = wire.receive(peer, wire.RECORD_BYTES)
    return wire.parse(data) if len(data) == wire.RECORD_BYTES else None


def _is_readable(peer: socket.socket, timeout: float | None) -> bool:
    return _poll(peer, select.POLLIN, timeout)


def _is_hung_up(peer: socket.socket, timeout: float) -> bool:
    """Wait for the other end to be closed, whatever is still to be read."""
    return _poll(peer, 0, timeout)


def _poll(peer: socket.socket, events: int, timeout: float | None) -> bool:
    poller = select.poll()
    poller.register(peer, events)  # POLLHUP is always told
    return bool(poller.poll(None if timeout is None else math.ceil(timeout * 1000)))
