"""The supervisor process: forks a keeper for every job, and ends all of them when the Host is gone."""

from __future__ import annotations

import _socket
import errno
import gc
import marshal
import os
import select
import sys
import time

from evopolicygym.process import wire
from evopolicygym.process.descendants import KILL_WAIT_SECONDS, become_subreaper, kill_descendants
from evopolicygym.process.keeper import keep, receive_signals

# Keepers are told to kill at once and each may take KILL_WAIT_SECONDS; then they are killed themselves.
KEEPERS_WAIT_SECONDS = KILL_WAIT_SECONDS + 2.0


def main() -> None:
    """Serve the Host: arguments are the number of the inherited socket and the Host's process id."""
    descriptor, host = map(int, sys.argv[-2:])
    os.set_inheritable(descriptor, False)
    become_subreaper()  # so that a job cannot get away by killing its keeper
    gc.disable()  # nothing here makes cycles, and a collection would copy the pages shared with the keepers
    _SupervisorProcess(_socket.socket(fileno=descriptor), host).run()


class _SupervisorProcess:
    """The loop of the supervisor process."""

    def __init__(self, host: _socket.socket, host_pid: int) -> None:
        self._host = host
        self._signals = receive_signals()
        self._keepers: set[int] = set()
        # Closed when this process ends, however it ends: every keeper waits for that.
        self._lifeline, self._lifeline_end = os.pipe()
        self._host_process = _open_host(host_pid)

    def run(self) -> None:
        """Serve until the Host closes its end or dies; then end everything."""
        poller = select.poll()
        for descriptor in (self._host.fileno(), self._signals, self._host_process):
            if descriptor is not None:
                poller.register(descriptor, select.POLLIN)
        while True:
            ready = {descriptor for descriptor, _ in poller.poll()}
            if self._signals in ready:
                self._note_signals()
            if self._host_process in ready:
                break
            if self._host.fileno() in ready and not self._serve_one():
                break
        self._end_all()

    def _serve_one(self) -> bool:
        """Answer one request; False when there will be no more."""
        try:
            data, descriptors, lost = wire.receive_with_descriptors(self._host, wire.RECORD_BYTES)
            data += wire.receive(self._host, wire.RECORD_BYTES - len(data))
            tag, number = wire.parse(data)
            if tag == wire.START:
                body = wire.receive(self._host, number)
                if len(body) == number:
                    self._start(body, descriptors, lost)
                return True
            if tag == wire.SETTLE:
                self._host.sendall(wire.record(wire.SETTLE, self._settle(number)))
                return True
        except OSError:  # the Host died meanwhile
            pass
        return False

    def _start(self, body: bytes, descriptors: list[int], lost: bool) -> None:
        if not descriptors:  # no room even for the control end: the Host sees it closed
            return
        control = _socket.socket(fileno=descriptors[0])
        try:
            for descriptor in descriptors:
                os.set_inheritable(descriptor, False)
            if lost:
                raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
            pid = os.fork()
        except OSError as error:
            control.sendall(wire.record(wire.FAILED, error.errno or errno.EIO))
            pid = -1
        if pid == 0:
            self._become_keeper(body, control, descriptors[1:])
        if pid > 0:
            self._keepers.add(pid)
        control.close()
        for descriptor in descriptors[1:]:
            os.close(descriptor)

    def _become_keeper(self, body: bytes, control: _socket.socket, descriptors: list[int]) -> None:
        try:
            self._host.close()
            os.close(self._lifeline_end)
            if self._host_process is not None:
                os.close(self._host_process)
            keep(marshal.loads(body), control, descriptors, self._lifeline)
        except BaseException:  # noqa: BLE001 (told on stderr; the fork must never return)
            sys.excepthook(*sys.exc_info())
        finally:  # never back into the supervisor's loop
            os._exit(70)

    def _note_signals(self) -> None:
        try:
            while os.read(self._signals, 4096):
                pass
        except BlockingIOError:
            pass
        self._reap()

    def _reap(self) -> None:
        """Reap dead keepers; what one of them left behind has become ours, and is ended."""
        left_behind = False
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                break
            self._keepers.discard(pid)
            left_behind = left_behind or status != 0
        if left_behind:
            self._sweep()

    def _sweep(self) -> int:
        return len(kill_descendants(spare=self._keepers))

    def _settle(self, keeper: int) -> int:
        """Wait for a keeper whose socket has closed, end what it left behind; return how much is left."""
        if keeper in self._keepers:
            os.waitpid(keeper, 0)  # closing its descriptors comes just before its end
            self._keepers.discard(keeper)
        return self._sweep()

    def _end_all(self) -> None:
        os.close(self._lifeline_end)
        deadline = time.monotonic() + KEEPERS_WAIT_SECONDS
        poller = select.poll()
        poller.register(self._signals, select.POLLIN)
        self._note_signals()
        while self._keepers and (remaining := deadline - time.monotonic()) > 0:
            poller.poll(remaining * 1000 + 1)
            self._note_signals()
        kill_descendants()


def _open_host(pid: int) -> int | None:
    """Return a descriptor that is readable once the Host is dead; None where there is no such thing.

    The end of the socket tells the same, unless a process that the Host has forked still holds its end.
    """
    try:
        descriptor = os.pidfd_open(pid)
    except (AttributeError, OSError):
        return None
    if os.getppid() != pid:  # died before, and the id may belong to somebody else already
        os.close(descriptor)
        return None
    return descriptor
