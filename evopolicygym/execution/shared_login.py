"""A log-in of the user's own that an Agent in a sandbox may be given."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

__all__ = ["SharedLogIn", "enclosed_log_in"]


@dataclass(frozen=True, slots=True, kw_only=True)
class SharedLogIn:
    """A log-in that lies in a file of the user's.

    Args:
        variable: names, for the program, the directory that it looks in.
        directory: the user's own such directory.
        files: what of it the program needs, by name; a name may lead through directories.
        written: configuration that the program needs beside them, by name; no secrets.
    """

    variable: str
    directory: Path
    files: tuple[str, ...]
    written: Mapping[str, str] = field(default_factory=dict)


def enclosed_log_in(state: Path) -> Path:
    """Where a sandbox has the log-in, below the private directory of an Agent's start."""
    return state / "sandbox" / "log-in"
