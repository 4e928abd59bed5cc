"""Frames of the Policy channel: u32 length, u8 kind, payload; at most 16 MiB each.

The channel is a pair of pipes private to one Episode. The Policy process reads and writes it blocking; the
other side never blocks on it longer than the Episode's remaining time.
"""

from __future__ import annotations

import os
import struct

TYPE_CHECKING = False  # type checkers take it as true; importing typing would cost every template process

__all__ = ["ACTION", "FAILED", "FRAME_MAX_BYTES", "HEADER", "OBSERVATION", "READY", "REFUSED", "frame", "read_blocking"]

FRAME_MAX_BYTES = 16 * 1024 * 1024

# Host side to Policy process.
OBSERVATION = 1

# Policy process to Host side.
READY = 2  # set up, about to load the Program: from here its time counts
ACTION = 3
FAILED = 4  # Policy code raised; the payload is the encoded report
REFUSED = 5  # Policy code returned something that is no Policy value; the payload says what

HEADER = struct.Struct("<IB")  # the length counts the kind byte and the payload
_READ_BYTES = 65_536  # the default capacity of a pipe


def frame(kind: int, payload: bytes) -> bytes:
    """One frame, ready to be written."""
    return HEADER.pack(len(payload) + 1, kind) + payload


def read_blocking(descriptor: int) -> bytes:
    """Read the next frame, header included, from a trusted writer; empty at the end of the stream."""
    data = os.read(descriptor, _READ_BYTES)
    if len(data) >= 4 and int.from_bytes(data[:4], "little") + 4 == len(data):
        return data  # nearly always: it came whole
    buffer = bytearray(data)
    while data:
        if len(buffer) >= 4 and len(buffer) >= int.from_bytes(buffer[:4], "little") + 4:
            return bytes(buffer)
        wanted = int.from_bytes(buffer[:4], "little") + 4 - len(buffer) if len(buffer) >= 4 else _READ_BYTES
        data = os.read(descriptor, min(wanted, 1024 * 1024))
        buffer += data
    return b""


def write_blocking(descriptor: int, data: bytes) -> None:
    """Write all of ``data``."""
    written = os.write(descriptor, data)
    if written != len(data):
        rest = memoryview(data)[written:]
        while rest:
            rest = rest[os.write(descriptor, rest) :]
