"""A log-in of the user's own that an Agent in a sandbox may be given."""

from dataclasses import dataclass
from pathlib import Path

__all__ = ["SharedLogIn"]


@dataclass(frozen=True, slots=True, kw_only=True)
class SharedLogIn:
    """A log-in that lies in a file of the user's.

    Args:
        variable: names, for the program, the directory that it looks in.
        directory: the user's own such directory.
        files: what of it the program needs, by name.
    """

    variable: str
    directory: Path
    files: tuple[str, ...]
