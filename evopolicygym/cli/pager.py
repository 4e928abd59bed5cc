"""Long output on a terminal goes through the user's pager; everywhere else it is written as it is."""

import contextlib
import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from typing import IO

from rich.console import Console, RenderableType

from evopolicygym.cli.consoles import rendered, result_console

_PAGER_VARIABLES = ("EVOPOLICYGYM_PAGER", "PAGER")
# -R keeps colours, -F leaves at once if all fits on a screen, -X keeps the text there afterwards.
_LESS_OPTIONS = "-RFX"
_NO_PAGER = ("", "cat")

_wanted = True


def use_pager(wanted: bool) -> None:
    """Callback of ``--pager / --no-pager``."""
    global _wanted
    _wanted = wanted


def show_paged(*parts: RenderableType) -> None:
    """Print parts with an empty line between them, through the pager if they are higher than the terminal."""
    console = result_console()
    text = rendered(console, *parts)
    if text.count("\n") < console.height:
        sys.stdout.write(text)
        sys.stdout.flush()
        return
    with paged() as stream:
        stream.write(text)


@contextlib.contextmanager
def paged_console() -> Iterator[Console]:
    """A console whose output may be long and comes bit by bit."""
    with paged() as stream:
        if stream is sys.stdout:
            yield result_console()
            return
        width = result_console().width
        yield Console(file=stream, width=width, force_terminal=True, markup=False, highlight=False, emoji=False)


@contextlib.contextmanager
def paged() -> Iterator[IO[str]]:
    """Standard output, or the standard input of the pager; a pager that is left early ends the output quietly."""
    command = _pager_command()
    if command is None:
        yield sys.stdout
        sys.stdout.flush()
        return
    environment = os.environ | ({"LESS": _LESS_OPTIONS} if "LESS" not in os.environ else {})
    encoding = sys.stdout.encoding or "utf-8"
    process = subprocess.Popen(
        command, stdin=subprocess.PIPE, encoding=encoding, errors=sys.stdout.errors, env=environment
    )
    assert process.stdin is not None
    try:
        yield process.stdin
    except BrokenPipeError:
        pass  # the reader has seen enough
    finally:
        with contextlib.suppress(BrokenPipeError):
            process.stdin.close()
        # Ctrl-C belongs to the pager while it shows something.
        while True:
            try:
                process.wait()
                break
            except KeyboardInterrupt:
                continue


def _pager_command() -> list[str] | None:
    console = result_console()
    if not _wanted or not (sys.stdout.isatty() and sys.stdin.isatty()) or console.is_dumb_terminal:
        return None
    for name in _PAGER_VARIABLES:
        if name in os.environ:
            words = shlex.split(os.environ[name])
            return None if not words or words[0] in _NO_PAGER or not shutil.which(words[0]) else words
    return ["less"] if shutil.which("less") else None
