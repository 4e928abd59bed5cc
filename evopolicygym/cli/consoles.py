"""Where output goes: results to standard output, everything else to standard error, as the environment wishes."""

import os
import sys
from typing import TextIO

from rich.console import Console, RenderableType

# A pipe has no width; a table cut to 80 columns would lose what a script or a pager wants to see.
_PIPE_WIDTH = 120


def result_console() -> Console:
    """The console for results."""
    return console_for(sys.stdout)


def message_console() -> Console:
    """The console for progress, notes and errors."""
    return console_for(sys.stderr)


def console_for(stream: TextIO) -> Console:
    """A console that interprets nothing in the text that it is given.

    NO_COLOR, FORCE_COLOR, COLUMNS and dumb terminals are honoured by Rich itself.
    """
    width = None if stream.isatty() or "COLUMNS" in os.environ else _PIPE_WIDTH
    return Console(file=stream, width=width, markup=False, highlight=False, emoji=False, soft_wrap=False)


def can_animate(stream: TextIO) -> bool:
    """Whether a display that redraws itself would work on this stream."""
    console = console_for(stream)
    return stream.isatty() and not console.is_dumb_terminal


def show(console: Console, *parts: RenderableType) -> None:
    """Print parts with an empty line between them."""
    console.file.write(rendered(console, *parts))
    console.file.flush()


def rendered(console: Console, *parts: RenderableType) -> str:
    """Parts with an empty line between them; for a pipe without blanks at the ends of lines."""
    with console.capture() as capture:
        for index, part in enumerate(parts):
            if index:
                console.print()
            console.print(part)
    text = capture.get()
    return text if console.is_terminal else "\n".join(line.rstrip() for line in text.split("\n"))
