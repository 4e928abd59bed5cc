"""What the Host and its workers say to each other: pickled tuples with a length before them; both sides are trusted.

    Host to worker      BEGIN and two descriptors: a job file (pickled `Job`) and the file for its records
                        EPISODE, position
                        REST: there is nothing to do until the next BEGIN
    worker to Host      READY
                        FINISHED, FinishedEpisode, the core that it holds or None
                        NEEDS_HOST, why Environments must be stepped in the Host process
                        FAULT, message, traceback

The socket's end tells a worker to end.
"""

import array
import os
import pickle
import socket
import struct
from dataclasses import dataclass

from evopolicygym.evaluation.plan import PlannedEpisode
from evopolicygym.execution.launch import PolicyLaunch
from evopolicygym.program import Program

__all__ = [
    "BEGIN",
    "EPISODE",
    "FAULT",
    "FINISHED",
    "NEEDS_HOST",
    "READY",
    "REST",
    "Job",
    "MessageReader",
    "Setup",
    "send",
]

BEGIN, EPISODE, REST = "begin", "episode", "rest"
READY, FINISHED, NEEDS_HOST, FAULT = "ready", "finished", "needs-host", "fault"

_LENGTH = struct.Struct("<I")
_DESCRIPTORS_MAX = 2
_READ_BYTES = 256 * 1024


@dataclass(frozen=True, slots=True)
class Setup:
    """What a worker is told once.

    Args:
        benchmark: the pickled Benchmark.
        launch: how Policy processes come to be.
        root: a private directory of the worker's own.
        episode_timeout_seconds: Policy time of one Episode.
    """

    benchmark: bytes
    launch: PolicyLaunch
    root: str
    episode_timeout_seconds: float


@dataclass(frozen=True, slots=True)
class Job:
    """What a worker is told for each Evaluation."""

    program: Program
    plan: tuple[PlannedEpisode, ...]


def send(peer: socket.socket, message: tuple[object, ...], descriptors: tuple[int, ...] = ()) -> None:
    """Send one message, with descriptors that the peer gets duplicates of.

    Raises:
        OSError: the peer is gone.
    """
    payload = pickle.dumps(message, pickle.HIGHEST_PROTOCOL)
    data = _LENGTH.pack(len(payload)) + payload
    ancillary = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", descriptors))] if descriptors else []
    sent = peer.sendmsg([data], ancillary)
    if sent != len(data):
        peer.sendall(memoryview(data)[sent:])


class MessageReader:
    """Takes messages from a socket, whole ones only."""

    def __init__(self, peer: socket.socket) -> None:
        self._peer = peer
        self._buffer = bytearray()
        self._descriptors: list[int] = []

    def read(self) -> bool:
        """Read what there is (waiting for something if the socket blocks); False at its end."""
        data, ancillary, _, _ = self._peer.recvmsg(_READ_BYTES, socket.CMSG_SPACE(4 * _DESCRIPTORS_MAX))
        for level, kind, content in ancillary:
            if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
                self._descriptors += array.array("i", content)
        for descriptor in self._descriptors:
            os.set_inheritable(descriptor, False)  # the peer's private files are no business of its children
        self._buffer += data
        return bool(data)

    def next(self) -> tuple[object, ...] | None:
        """The next whole message among what was read; None if there is none."""
        if len(self._buffer) < _LENGTH.size:
            return None
        end = _LENGTH.size + _LENGTH.unpack_from(self._buffer)[0]
        if len(self._buffer) < end:
            return None
        message: tuple[object, ...] = pickle.loads(memoryview(self._buffer)[_LENGTH.size : end])
        del self._buffer[:end]
        return message

    def wait(self) -> tuple[object, ...] | None:
        """The next message; None at the socket's end."""
        while (message := self.next()) is None:
            if not self.read():
                return None
        return message

    def take_descriptors(self) -> list[int]:
        """The descriptors that came so far; they are the caller's now."""
        taken, self._descriptors = self._descriptors, []
        return taken
