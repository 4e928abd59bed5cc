"""The fixed-size records that Host, supervisor and keepers exchange, and descriptors passed along with them."""

from __future__ import annotations

import _socket  # what `socket` wraps, without the 7 ms of its imports
import array

TYPE_CHECKING = False  # type checkers take it as true; see the package's __init__
if TYPE_CHECKING:
    from collections.abc import Sequence

# Host → supervisor
START = b"J"  # number: bytes of the marshalled job that follow; descriptors: control end, then the job's
SETTLE = b"Q"  # number: process id of a keeper that is gone without a word; answered by SETTLE, survivors

# Host → keeper
TERMINATE = b"t"  # number: grace in milliseconds
KILL = b"k"  # number: 0

# Keeper → Host, in this order, then the end of the stream
KEEPER = b"K"  # number: process id of the keeper
STARTED = b"S"  # number: process id of the job's main process
FAILED = b"F"  # number: errno of what kept it from being started; nothing follows
ENDED = b"X"  # number: raw wait status of the main process
GONE = b"G"  # number: how many processes could not be ended

RECORD_BYTES = 9
DESCRIPTORS_MAX = 250  # the kernel passes 253 at most


def record(tag: bytes, number: int) -> bytes:
    """Encode one record: a byte of kind and a signed 64-bit number."""
    return tag + number.to_bytes(8, "big", signed=True)


def parse(data: bytes) -> tuple[bytes, int]:
    """Decode one record."""
    return data[:1], int.from_bytes(data[1:RECORD_BYTES], "big", signed=True)


def receive(peer: _socket.socket, size: int) -> bytes:
    """Receive exactly `size` bytes; fewer only at the end of the stream.

    A peer that closes with something of ours unread ends the stream with a reset, after all it has sent.
    """
    chunks = []
    while size > 0:
        try:
            chunk = peer.recv(size)
        except ConnectionResetError:
            break
        if not chunk:
            break
        chunks.append(chunk)
        size -= len(chunk)
    return b"".join(chunks)


def send_with_descriptors(peer: _socket.socket, data: bytes, descriptors: Sequence[int]) -> None:
    """Send `data` whole, duplicates of `descriptors` arriving with its first byte."""
    rights = [(_socket.SOL_SOCKET, _socket.SCM_RIGHTS, array.array("i", descriptors))]
    sent = peer.sendmsg([data], rights)
    peer.sendall(data[sent:])


def receive_with_descriptors(peer: _socket.socket, size: int) -> tuple[bytes, list[int], bool]:
    """Receive up to `size` bytes with what was passed along: (data, descriptors, whether some were lost).

    Descriptors are lost when this process has no room for them (RLIMIT_NOFILE).
    """
    width = array.array("i").itemsize
    room = _socket.CMSG_SPACE(DESCRIPTORS_MAX * width)
    close_on_exec = getattr(_socket, "MSG_CMSG_CLOEXEC", 0)  # macOS has none: the receiver sets it
    data, ancillary, flags, _ = peer.recvmsg(size, room, close_on_exec)
    descriptors = array.array("i")
    for level, kind, content in ancillary:
        if level == _socket.SOL_SOCKET and kind == _socket.SCM_RIGHTS:
            descriptors.frombytes(content[: len(content) - len(content) % width])
    return data, descriptors.tolist(), bool(flags & _socket.MSG_CTRUNC)
