"""Frames of the Policy channel: u32 length, u8 kind, payload; at most 16 MiB each.

The channel is a pair of pipes private to one Episode. The Policy process reads and writes it blocking; the
other side never blocks on it longer than the Episode's remaining time.
"""

from __future__ import annotations

import os
import struct

TYPE_CHECKING = False  # type checkers take it as true; importing typing would cost every template process

__all__ = [
    "ACTION",
    "ATOMIC_BYTES",
    "FAILED",
    "FRAME_MAX_BYTES",
    "HEADER",
    "OBSERVATION",
    "READY",
    "READ_BYTES",
    "REFUSED",
    "frame",
    "read_exactly",
    "read_rest",
    "write_blocking",
]

FRAME_MAX_BYTES = 16 * 1024 * 1024

# Host side to Policy process.
OBSERVATION = 1

# Policy process to Host side.
READY = 2  # set up, about to load the Program: from here its time counts
ACTION = 3
FAILED = 4  # Policy code raised; the payload is the encoded report
REFUSED = 5  # Policy code returned something that is no Policy value; the payload says what

HEADER = struct.Struct("<IB")  # the length counts the kind byte and the payload

READ_BYTES = 65_536  # the default capacity of a pipe

# A pipe takes less than a page in one piece (POSIX: PIPE_BUF, on Linux 4,096), and gives it back in one piece.
ATOMIC_BYTES = 512


def frame(kind: int, payload: bytes) -> bytes:
    """One frame, ready to be written."""
    return HEADER.pack(len(payload) + 1, kind) + payload


def read_rest(descriptor: int, data: bytes) -> bytes:
    """The whole frame, header included, of which a trusted writer's first ``data`` were read."""
    end = int.from_bytes(data[:4], "little") + 4
    if len(data) == end:
        return data
    return data + read_exactly(descriptor, end - len(data))


def read_exactly(descriptor: int, size: int) -> bytes:
    """The next ``size`` bytes from a trusted writer, fewer only if it breaks off."""
    data = os.read(descriptor, size)
    if len(data) == size or not data:
        return data
    parts = [data]
    missing = size - len(data)
    while missing and (part := os.read(descriptor, missing)):
        parts.append(part)
        missing -= len(part)
    return b"".join(parts)


def write_blocking(descriptor: int, data: bytes) -> None:
    """Write all of ``data``."""
    written = os.write(descriptor, data)
    if written != len(data):
        rest = memoryview(data)[written:]
        while rest:
            rest = rest[os.write(descriptor, rest) :]
