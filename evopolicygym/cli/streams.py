"""The three standard streams, whatever they were left as by what started the command."""

import contextlib
import io
import os
import sys
from typing import IO, Any

STANDARD_OUTPUT = "standard output"
"""What an error of it has for a file name."""

# What is behind descriptors 1 and 2, whatever a library puts before it later.
_ours: dict[int, IO[str]] = {}


def use_standard_streams() -> None:
    """Let what is closed lead nowhere, and what cannot be written to standard output say so.

    A closed descriptor would be given to the next file that is opened, and a Record would get what is meant for a user.
    """
    for descriptor in (0, 1, 2):
        try:
            os.fstat(descriptor)
        except OSError:
            os.set_inheritable(os.open(os.devnull, os.O_RDWR), True)  # the lowest that is free: this one
    if sys.stdin is None:
        sys.stdin = open(0, closefd=False)  # noqa: SIM115  # open as long as the process
    if sys.stderr is None:
        sys.stderr = open(2, "w", closefd=False)  # noqa: SIM115
    shown: IO[Any] | None = sys.stdout
    sys.stdout = _ours[1] = io.TextIOWrapper(
        io.BufferedWriter(_StandardOutput(1, "w", closefd=False)),
        encoding=shown.encoding if isinstance(shown, io.TextIOWrapper) else "utf-8",
        line_buffering=os.isatty(1),
    )
    _ours[2] = sys.stderr


def write_error(text: str) -> None:
    """Write to standard error, if it can be written: there is nowhere else to complain."""
    with contextlib.suppress(OSError):
        sys.stderr.write(text)


def lead_nowhere(descriptor: int) -> None:
    """Let whatever is still written to a descriptor vanish."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), descriptor)


def settle_standard_streams() -> None:
    """At the very end: what cannot be written leads nowhere, so that the interpreter adds nothing of its own."""
    for descriptor, stream in _ours.items():
        try:
            stream.flush()
        except (OSError, ValueError):
            lead_nowhere(descriptor)


class _StandardOutput(io.FileIO):
    """The descriptor, with errors that name it."""

    def write(self, data: Any) -> int:  # any buffer, as FileIO takes it
        try:
            return super().write(data)
        except OSError as error:
            error.filename = STANDARD_OUTPUT
            raise
