"""Which log-in a provider's program will use, and whether its state is the Run's own or the user's."""

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeAlias

__all__ = ["LogIn", "LogInKind", "LogInTable", "find_login", "user_home"]

LogInKind: TypeAlias = Literal["key", "configured", "token", "file", "unknown", "none"]


@dataclass(frozen=True, slots=True, kw_only=True)
class LogInTable:
    """Where a program looks for its log-in.

    Args:
        home_variable: Names the directory that holds its state.
        home_directory: That directory below HOME, where the variable is not set.
        files: Files of that directory that hold a log-in.
        key_variables: Variables that hold an API key, the first that is set wins.
        token_variables: Variables that hold a log-in of a subscription, for use by programs.
        keychain: Whether a log-in may also lie in the keychain of macOS.
        advice: How to log in.
    """

    home_variable: str
    home_directory: str
    files: tuple[str, ...] = ()
    key_variables: tuple[str, ...] = ()
    token_variables: tuple[str, ...] = ()
    keychain: bool = False
    advice: str = ""


@dataclass(frozen=True, slots=True)
class LogIn:
    """A log-in that was found.

    Args:
        kind: ``"key"``, ``"token"``: from a variable; ``"configured"``: a key in the program's own configuration;
            ``"file"``: from the state directory; ``"unknown"``: there is a state directory and nothing in it that is
            known as a log-in; ``"none"``: there is nothing.
        source: Name of the variable, or path of the file; never a value.
        home: The state directory that the program would use by itself.
    """

    kind: LogInKind
    source: str
    home: Path

    @property
    def private(self) -> bool:
        """Whether the program gets a state directory of the Run's own.

        Not with a log-in from a file: its refresh tokens are good for one use, so a copy would log the original out.
        """
        return self.kind in ("key", "configured", "token", "none")


def find_login(
    table: LogInTable, environment: Mapping[str, str], *, key_variable: str | None = None, keyless: bool = False
) -> LogIn:
    """Look for a log-in, as the program itself would.

    Args:
        table: Where to look.
        environment: The environment of the Host.
        key_variable: The user's own choice of a variable; it alone counts.
        keyless: Whether a server of the user's own is used, for which only a key can count, and none is needed.
    """
    home = user_home(table, environment)
    for name in (key_variable,) if key_variable else table.key_variables:
        if environment.get(name):
            return LogIn("key", name, home)
    if keyless or key_variable:
        return LogIn("none", "", home)
    for name in table.token_variables:
        if environment.get(name):
            return LogIn("token", name, home)
    for name in table.files:
        if (home / name).is_file():
            return LogIn("file", str(home / name), home)
    if home.is_dir() or (table.keychain and sys.platform == "darwin"):
        return LogIn("unknown", str(home), home)
    return LogIn("none", "", home)


def user_home(table: LogInTable, environment: Mapping[str, str]) -> Path:
    """The state directory that the program uses when nobody says otherwise."""
    chosen = environment.get(table.home_variable)
    if chosen:
        return Path(chosen).absolute()
    try:
        home = environment.get("HOME") or Path.home()
    except RuntimeError:  # a user whom the machine does not know
        home = "/"
    return Path(home) / table.home_directory
