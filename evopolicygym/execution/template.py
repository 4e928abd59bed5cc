"""The template process: starts one fresh Policy process an Episode, ends it, and tells how it ended.

Started by path (``python -P …/template.py CONTROL SETTINGS``), it imports the Policy ABI, perhaps numpy and
its like, and nothing of any Program; a fork of it is a Policy process. It is the subreaper of what it forks,
so that whatever a Policy starts is ended with its Episode. Around it stands a *keeper*, the process that was
started: if a Policy kills the template, the keeper ends all that is left.

It serves one request at a time on a Unix stream socket, each ``REQUEST`` and a marshalled payload:

    PROGRAM   the context and the names that the Program shadows; no answer
    EPISODE   where and with what seed to run; carries two descriptors: observations to read, actions to write;
              the Policy process says READY on the second
    END       end the Policy process and all its descendants; answer: ``ANSWER`` and the tails of its output

The socket's end ends everything.
"""

# ruff: noqa: PTH (importing pathlib costs more than all of this)

from __future__ import annotations

import _socket
import array
import gc
import marshal
import os
import select
import signal
import struct
import sys

TYPE_CHECKING = False  # type checkers take it as true; importing typing would cost every template process
if TYPE_CHECKING:
    from typing import NoReturn, TypedDict

    from evopolicygym.policy import PolicyContext

    class Settings(TypedDict):
        """What a template is told when it is started."""

        core: int | None  # the CPU to stay on
        fork: bool  # else every Policy process is a new interpreter
        preload: tuple[str, ...]  # third-party modules to import

    class Episode(TypedDict):
        """What an EPISODE request says."""

        directory: str
        scratch: str
        policy_seed: int


REQUEST = struct.Struct("<IB")  # payload bytes, kind
STARTED = struct.Struct("<B")  # first thing sent: how many threads the template has (0: not known)
ANSWER = struct.Struct("<iBBII")  # wait status, ended by itself, survivors, bytes of stdout and of stderr

PROGRAM, EPISODE, END = 1, 2, 3

# What is kept of each of a Policy's output streams: its last bytes.
OUTPUT_TAIL_BYTES = 16_384

_READ_BYTES = 65_536
_PASSED_DESCRIPTORS = 2


def main(argv: list[str]) -> None:
    """Be a template (or, if ``argv`` says so, one spawned Policy process)."""
    root = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    if root not in sys.path:
        sys.path.append(root)
    if argv[1] == "policy":
        _be_spawned(int(argv[2]))
    control = int(argv[1])
    settings: Settings = marshal.loads(bytes.fromhex(argv[2]))
    from evopolicygym.execution import policy_process
    from evopolicygym.process.descendants import become_subreaper

    become_subreaper()
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    pid = os.fork()
    if pid != 0:
        _keep(control, pid)
    become_subreaper()  # a fork does not inherit it
    _be_first_to_go()
    if settings["core"] is not None:
        os.sched_setaffinity(0, {settings["core"]})
    if settings["fork"]:
        policy_process.preload(settings["preload"])
    gc.collect()
    gc.freeze()  # a collection in a child must not touch, and so copy, the template's pages
    os.write(control, STARTED.pack(_thread_count()))
    os.set_inheritable(control, False)
    _Template(_socket.socket(fileno=control), settings).serve()


def _keep(control: int, template: int) -> NoReturn:
    """Wait for the template; then end whatever it has left behind."""
    from evopolicygym.process.descendants import kill_descendants

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

    def __init__(self, control: _socket.socket, settings: Settings) -> None:
        self._control = control
        self._settings = settings
        self._contexts: tuple[bytes, ...] = ()
        self._context: PolicyContext | None = None
        self._shadowed: tuple[str, ...] = ()
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
        except EOFError:
            pass
        finally:
            if self._running is not None:
                self._running.end()
            os._exit(0)

    def _serve_one(self) -> None:
        kind, payload, descriptors = self._receive()
        if kind == EPISODE:
            self._start(marshal.loads(payload), descriptors)
        elif kind == END:
            self._end()
        else:
            self._contexts, self._shadowed = marshal.loads(payload)
            if self._settings["fork"]:
                from evopolicygym.execution.policy_process import make_context

                self._context = make_context(self._contexts)
                gc.collect()
                gc.freeze()

    def _receive(self) -> tuple[int, bytes, list[int]]:
        descriptors: list[int] = []
        data = bytearray()
        wanted = REQUEST.size
        while len(data) < wanted:
            chunk, ancillary, _, _ = self._control.recvmsg(
                min(wanted - len(data), 1024 * 1024), _socket.CMSG_SPACE(4 * _PASSED_DESCRIPTORS)
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

    def _start(self, episode: Episode, channel: list[int]) -> None:
        self._running = _Running(self._poller)
        outputs = self._running.outputs
        if self._settings["fork"]:
            pid = os.fork()
            if pid == 0:
                from evopolicygym.execution.policy_process import run_policy_process

                assert self._context is not None
                run_policy_process(
                    channel=(channel[0], channel[1]),
                    output=outputs,
                    shadowed=self._shadowed,
                    context=self._context,
                    **episode,
                )
        else:
            pid = self._spawn(episode, channel, outputs)
        for descriptor in (*channel, *outputs):
            os.close(descriptor)
        self._running.watch(pid)

    def _spawn(self, episode: Episode, channel: list[int], outputs: tuple[int, int]) -> int:
        job = marshal.dumps((episode, self._contexts, self._shadowed, self._settings["preload"]))
        handover = _unnamed_file(job)
        try:
            # The numbers below 3 and those of the hand-over are rearranged by the new process itself.
            passed = [*channel, *outputs, handover]
            actions = [(os.POSIX_SPAWN_DUP2, _raised(descriptor), 3 + at) for at, descriptor in enumerate(passed)]
            try:
                return os.posix_spawn(
                    sys.executable,
                    [sys.executable, "-P", os.path.abspath(__file__), "policy", str(3 + len(passed) - 1)],
                    os.environ,
                    file_actions=actions,
                )
            finally:
                for _, descriptor, _ in actions:
                    os.close(descriptor)
        finally:
            os.close(handover)

    def _end(self) -> None:
        running = self._running
        if running is None:
            raise EOFError  # out of step: nothing sensible can follow
        self._running = None
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
            self._by_itself = True
            self._kill()
        elif not self._read(descriptor):
            self._poller.unregister(descriptor)

    def end(self) -> bytes:
        """End the process and everything below it; the answer to END."""
        if not self._ended:
            self._by_itself = os.waitid(os.P_PID, self._pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None
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
        from evopolicygym.process.descendants import kill_descendants

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


def _raised(descriptor: int) -> int:
    """A duplicate above the numbers that a spawned process gets, so that none is overwritten by another."""
    import fcntl

    return fcntl.fcntl(descriptor, fcntl.F_DUPFD_CLOEXEC, 16)


def _be_spawned(handover: int) -> NoReturn:
    """Be the Policy process that a template has spawned."""
    from evopolicygym.execution import policy_process

    with open(handover, "rb") as file:
        episode, contexts, shadowed, preload = marshal.load(file)
    policy_process.preload(preload)
    policy_process.run_policy_process(
        channel=(3, 4), output=(5, 6), shadowed=shadowed, context=policy_process.make_context(contexts), **episode
    )


if __name__ == "__main__":
    main(sys.argv)
