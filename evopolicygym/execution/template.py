"""The template process: starts one fresh Policy process an Episode, ends it, and tells how it ended.

Started by path (``python -P …/template.py CONTROL SETTINGS``), it imports the Policy ABI, perhaps numpy and
its like, and nothing of any Program; a fork of it is a Policy process. It is the subreaper of what it forks,
so that whatever a Policy starts is ended with its Episode. Around it stands a *keeper*, the process that was
started: if a Policy kills the template, the keeper ends all that is left. (In a sandbox it is the first process of a
PID namespace instead, and no Policy can kill it.)

It serves one request at a time on a Unix stream socket, each ``REQUEST`` and a marshalled payload:

    COMPILE   write byte code into a fresh copy of a Program; answer: one byte
    PROGRAM   the cores to stay on, the directory of the copy, the context, the names that the Program shadows; no
              answer
    EPISODE   the Policy's seed; carries two descriptors: observations to read, actions to write; the Policy
              process says READY on the second
    END       end the Policy process and all its descendants; answer: ``ANSWER`` and the tails of its output; the
              payload is not empty if the Policy process seems to be ending already

The socket's end ends everything.
"""

# ruff: noqa: PTH100, PTH108, PTH120, PTH208 (pathlib costs more to import than all of this)

from __future__ import annotations

import _socket
import array
import fcntl
import gc
import marshal
import os
import resource
import select
import signal
import struct
import sys
import traceback

if __name__ == "__main__":
    # Started by path: the package may not be on the path, and this file's own place must not be.
    # And another one may be: the package of this file it has to be.
    _root = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    sys.path.insert(0, _root)
    import evopolicygym.policy  # noqa: F401

    sys.path.remove(_root)
    sys.path.append(_root)
    # `random` reseeds itself in every forked process: a tenth of what a fork costs, and here it is seeded anyway. A
    # Policy process makes up for it, so that its own forks are reseeded.
    _register_at_fork = os.register_at_fork
    os.register_at_fork = lambda **_: None
    import random  # noqa: F401

    os.register_at_fork = _register_at_fork

from evopolicygym.execution import policy_process
from evopolicygym.process.descendants import become_subreaper, kill_descendants

TYPE_CHECKING = False  # type checkers take it as true; importing typing would cost every template process
if TYPE_CHECKING:
    from types import CodeType, ModuleType
    from typing import NoReturn, TypedDict

    from evopolicygym.execution.policy_sandbox import SandboxSettings, TemplateSandbox
    from evopolicygym.policy import PolicyContext

    class Settings(TypedDict):
        """What a template is told when it is started."""

        fork: bool  # else every Policy process is a new interpreter
        preload: tuple[str, ...]  # third-party modules to import
        sandbox: SandboxSettings | None  # the sandbox that it is in


REQUEST = struct.Struct("<IB")  # payload bytes, kind
STARTED = struct.Struct("<B")  # first thing sent: how many threads the template has (0: not known)
ANSWER = struct.Struct("<iBBII")  # wait status, ended by itself, survivors, bytes of stdout and of stderr

PROGRAM, COMPILE, EPISODE, END = 1, 2, 3, 4
COMPILED = b"C"

# What is kept of each of a Policy's output streams: its last bytes.
OUTPUT_TAIL_BYTES = 16_384

# What takes longer to compile is compiled in every Episode instead, on the Policy's time.
_COMPILE_SECONDS = 10.0

# A dying process closes its descriptors some time before it is dead.
_LAST_BREATH_SECONDS = 0.1

_READ_BYTES = 65_536
_ANCILLARY_BYTES = _socket.CMSG_SPACE(4 * 2)
_CLOSE_ON_EXEC = getattr(_socket, "MSG_CMSG_CLOEXEC", 0)

# Where no system call closes them all at once, each number costs one.
_DESCRIPTORS_MAX = 1024 * 1024

# The template keeps its own descriptors at or above this number.
_OWN_DESCRIPTORS = 16


def main(argv: list[str]) -> None:
    """Be a template (or, if ``argv`` says so, one spawned Policy process)."""
    if argv[1] == "policy":
        _be_spawned(*map(int, argv[2:]))
    control = _alone(int(argv[1]))
    settings: Settings = marshal.loads(bytes.fromhex(argv[2]))
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    sandbox = None
    if settings["sandbox"] is None:
        _leave_to_keeper(control)
        _be_first_to_go()
    else:  # the first process of a namespace needs no keeper: the kernel ends all when it ends
        from evopolicygym.execution.policy_sandbox import TemplateSandbox

        sandbox = TemplateSandbox(settings["sandbox"])
    resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))
    if settings["fork"]:
        policy_process.prepare_streams()
        policy_process.preload(settings["preload"])
    threads = _thread_count() if sandbox is None else sandbox.thread_count()
    if sandbox is not None:
        sandbox.settle()
    gc.collect()
    gc.freeze()  # a collection in a child must not touch, and so copy, the template's pages
    os.write(control, STARTED.pack(threads))
    _Template(_socket.socket(fileno=control), settings, sandbox).serve()


def _leave_to_keeper(control: int) -> None:
    """Go on in a fork; this process becomes its keeper."""
    become_subreaper()
    pid = os.fork()
    if pid != 0:
        _keep(control, pid)
    become_subreaper()  # a fork does not inherit it


def _keep(control: int, template: int) -> NoReturn:
    """Wait for the template; then end whatever it has left behind."""

    def end(*_: object) -> NoReturn:
        os._exit(1 if kill_descendants() else 0)

    signal.signal(signal.SIGTERM, end)
    os.close(control)
    while True:
        pid, status = os.waitpid(-1, os.WUNTRACED)  # orphans of a dead template may come first
        if pid == template and os.WIFSTOPPED(status):
            os.kill(template, signal.SIGCONT)  # a Policy has stopped it
        elif pid == template:
            end()


def _be_first_to_go() -> None:
    """When memory runs out, the kernel shall end a Policy process rather than a worker or the Host."""
    try:
        with open("/proc/self/oom_score_adj", "w") as file:
            file.write("500")
    except OSError:  # not Linux, or no /proc
        pass


def _thread_count() -> int:
    try:
        return min(255, len(os.listdir("/proc/self/task")))
    except OSError:
        return 0


class _Template:
    """The loop of the template: nothing here runs in a Policy process but the way into it."""

    def __init__(self, control: _socket.socket, settings: Settings, sandbox: TemplateSandbox | None) -> None:
        self._control = control
        self._settings = settings
        self._sandbox = sandbox
        self._directory = ""
        self._contexts = (b"", b"", b"", b"")
        self._context: PolicyContext | None = None
        self._shadowed: tuple[str, ...] = ()
        self._forgotten: list[str] = []
        self._code: CodeType | None = None
        self._module: ModuleType | None = None
        self._running: _Running | None = None
        self._poller = select.poll()
        self._poller.register(control.fileno(), select.POLLIN)

    def serve(self) -> NoReturn:
        """Serve until the socket ends; never returns."""
        try:
            while True:
                for descriptor, _ in self._poller.poll():
                    if descriptor == self._control.fileno():
                        self._serve_one()
                    elif self._running is not None:
                        self._running.attend(descriptor)
        except (EOFError, BrokenPipeError, ConnectionResetError):
            pass  # told to end, or its worker is gone
        except BaseException:  # noqa: BLE001 (whoever started this process reads it off stderr)
            traceback.print_exc()
        finally:
            if self._running is not None:
                self._running.end()
            os._exit(0)

    def _serve_one(self) -> None:
        kind, payload, descriptors = self._receive()
        if kind == EPISODE:
            self._start(marshal.loads(payload), descriptors)
        elif kind == END:
            self._end(bool(payload))
        elif kind == COMPILE:
            self._compile(*marshal.loads(payload))
            self._control.sendall(COMPILED)
        else:
            cores, self._directory, self._contexts, self._shadowed = marshal.loads(payload)
            if cores:
                os.sched_setaffinity(0, cores)
            self._code = policy_process.load_code(self._directory)
            self._module = policy_process.make_module(self._directory)
            self._context = policy_process.make_context(self._contexts)
            self._forgotten = policy_process.modules_to_forget(self._shadowed)
            gc.freeze()

    def _receive(self) -> tuple[int, bytes, list[int]]:
        descriptors: list[int] = []
        data = bytearray()
        wanted = REQUEST.size
        while len(data) < wanted:
            chunk, ancillary, _, _ = self._control.recvmsg(
                min(wanted - len(data), 1024 * 1024), _ANCILLARY_BYTES, _CLOSE_ON_EXEC
            )
            if not chunk:
                raise EOFError
            data += chunk
            for level, kind, content in ancillary:
                if level == _socket.SOL_SOCKET and kind == _socket.SCM_RIGHTS:
                    descriptors += array.array("i", content)
            if wanted == REQUEST.size <= len(data):
                wanted += REQUEST.unpack_from(data)[0]
        return REQUEST.unpack_from(data)[1], bytes(data[REQUEST.size :]), descriptors

    def _compile(self, directory: str, paths: list[str]) -> None:
        pid = os.fork()
        if pid == 0:
            try:
                if self._sandbox is None:
                    policy_process.compile_program(directory, paths, directory)
                else:
                    written_to = self._sandbox.enter_for_compiling(directory)
                    policy_process.compile_program(directory, paths, written_to)
            finally:
                os._exit(0)
        try:
            descriptor = os.pidfd_open(pid)
        except (AttributeError, OSError):  # no way to wait with a bound: a compiler is not known to hang
            os.waitpid(pid, 0)
            return
        poller = select.poll()
        poller.register(descriptor, select.POLLIN)
        if not poller.poll(_COMPILE_SECONDS * 1000):
            os.kill(pid, signal.SIGKILL)
        os.close(descriptor)
        os.waitpid(pid, 0)

    def _start(self, policy_seed: int, channel: list[int]) -> None:
        self._running = _Running(self._poller)
        outputs = self._running.outputs
        if self._settings["fork"]:
            assert self._context is not None
            assert self._module is not None
            object.__setattr__(self._context, "policy_seed", policy_seed)
            policy_process.seed_generators(policy_seed)
            if self._sandbox is not None:
                self._sandbox.before_episode()
            pid = os.fork()
            if pid == 0:
                policy_process.run_policy_process(
                    channel=(channel[0], channel[1]),
                    output=outputs,
                    directory=self._directory,
                    forgotten=self._forgotten,
                    code=self._code,
                    context=self._context,
                    module=self._module,
                    confine=None if self._sandbox is None else self._sandbox.enter,
                )
        else:
            pid = self._spawn(policy_seed, channel, outputs)
        for descriptor in (*channel, *outputs):
            os.close(descriptor)
        self._running.watch(pid)

    def _spawn(self, policy_seed: int, channel: list[int], outputs: tuple[int, int]) -> int:
        preload = self._settings["preload"]
        job = marshal.dumps((self._directory, policy_seed, self._contexts, self._shadowed, preload))
        handover = _unnamed_file(job)
        passed = (*channel, *outputs, handover)
        for descriptor in passed:
            os.set_inheritable(descriptor, True)
        arguments = [sys.executable, "-P", os.path.abspath(__file__), "policy", *map(str, passed)]
        try:
            return os.posix_spawn(sys.executable, arguments, os.environ)
        finally:
            os.close(handover)

    def _end(self, seems_to_be_ending: bool) -> None:
        running = self._running
        if running is None:
            raise EOFError  # out of step: nothing sensible can follow
        self._running = None
        if seems_to_be_ending:
            running.let_end()
        answer = running.end()
        self._control.sendall(answer)


class _Running:
    """The one Policy process that is running, its output and what it has started."""

    def __init__(self, poller: select.poll) -> None:
        self._poller = poller
        self._pid = 0
        self._pidfd: int | None = None
        self._status = 0
        self._ended = False
        self._by_itself = False
        self._survivors = 0
        readers, writers = zip(os.pipe(), os.pipe(), strict=True)
        self.outputs: tuple[int, int] = writers
        self._tails = {reader: bytearray() for reader in readers}
        for reader in readers:
            os.set_blocking(reader, False)
            poller.register(reader, select.POLLIN)

    def watch(self, pid: int) -> None:
        """Take over the process that was started."""
        self._pid = pid
        try:
            self._pidfd = os.pidfd_open(pid)
            self._poller.register(self._pidfd, select.POLLIN)
        except (AttributeError, OSError):  # not Linux, or an old kernel: found at the end only
            self._pidfd = None

    def attend(self, descriptor: int) -> None:
        """Deal with a descriptor that has become readable."""
        if descriptor == self._pidfd:
            self._poller.unregister(descriptor)
            os.close(descriptor)
            self._pidfd = None
            self._kill()
        elif not self._read(descriptor):
            self._poller.unregister(descriptor)

    def let_end(self) -> None:
        """Wait a moment for a process whose descriptors are closed: only then is it known how it ended by itself."""
        if self._pidfd is not None:
            poller = select.poll()
            poller.register(self._pidfd, select.POLLIN)
            poller.poll(_LAST_BREATH_SECONDS * 1000)

    def end(self) -> bytes:
        """End the process and everything below it; the answer to END."""
        if not self._ended:
            self._kill()
        if self._pidfd is not None:
            self._poller.unregister(self._pidfd)
            os.close(self._pidfd)
        for reader in self._tails:
            while self._read(reader):
                pass
            try:
                self._poller.unregister(reader)
            except KeyError:
                pass
            os.close(reader)
        stdout, stderr = self._tails.values()
        return (
            ANSWER.pack(self._status, self._by_itself, min(self._survivors, 255), len(stdout), len(stderr))
            + stdout
            + stderr
        )

    def _read(self, reader: int) -> bool:
        """Take what there is, keep the tail; False if there is nothing (more)."""
        try:
            data = os.read(reader, _READ_BYTES)
        except BlockingIOError:
            return False
        tail = self._tails[reader]
        tail += data
        if len(tail) > OUTPUT_TAIL_BYTES:
            del tail[:-OUTPUT_TAIL_BYTES]
        return bool(data)

    def _kill(self) -> None:
        ended, self._status = os.waitpid(self._pid, os.WNOHANG)
        self._by_itself = ended != 0
        if not self._by_itself:
            os.kill(self._pid, signal.SIGKILL)  # not reaped yet, so the number is still its own
            _, self._status = os.waitpid(self._pid, 0)
        self._ended = True
        self._survivors = len(kill_descendants())


def _unnamed_file(content: bytes) -> int:
    if hasattr(os, "memfd_create"):
        descriptor = os.memfd_create("evopolicygym-episode")
    else:
        import tempfile

        descriptor, path = tempfile.mkstemp()
        os.unlink(path)
    view = memoryview(content)
    while view:
        view = view[os.write(descriptor, view) :]
    os.lseek(descriptor, 0, os.SEEK_SET)
    return descriptor


def _alone(control: int) -> int:
    """The control socket under a high number, with every other descriptor above the standard ones closed.

    What else this process was given by mistake must not reach a Policy; and a channel that is received then gets the
    numbers that it will have.
    """
    moved = fcntl.fcntl(control, fcntl.F_DUPFD_CLOEXEC, _OWN_DESCRIPTORS)
    os.closerange(3, moved)
    os.closerange(moved + 1, min(os.sysconf("SC_OPEN_MAX"), _DESCRIPTORS_MAX))
    return moved


def _be_spawned(observations: int, actions: int, stdout: int, stderr: int, handover: int) -> NoReturn:
    """Be the Policy process that a template has spawned, on the descriptors of these numbers."""
    for descriptor in (observations, actions):
        os.set_inheritable(descriptor, False)
    with open(handover, "rb") as file:
        directory, policy_seed, contexts, shadowed, preload = marshal.load(file)
    policy_process.prepare_streams()
    policy_process.preload(preload)
    context = policy_process.make_context(contexts)
    object.__setattr__(context, "policy_seed", policy_seed)
    policy_process.seed_generators(policy_seed)
    policy_process.run_policy_process(
        channel=(observations, actions),
        output=(stdout, stderr),
        directory=directory,
        forgotten=policy_process.modules_to_forget(shadowed),
        code=policy_process.load_code(directory),
        context=context,
        module=policy_process.make_module(directory),
        confine=None,
    )


if __name__ == "__main__":
    main(sys.argv)
