"""How a Run is shown while it goes on and what is said at its end: the same for `run` and `resume`."""

import contextlib
import shlex
import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from rich.text import Text

from evopolicygym.cli.consoles import can_animate, result_console, show
from evopolicygym.cli.failures import (
    EXIT_ENDED_OTHERWISE,
    EXIT_FINISHED,
    EXIT_INTERRUPTED,
    EXIT_USAGE,
    complain,
    ignore_interrupts,
)
from evopolicygym.cli.frames import path_text
from evopolicygym.cli.inspect_command import record_parts
from evopolicygym.cli.observers import EventLines, Observers, RecordAnnounced, RecordRemembered, ViewKeeper
from evopolicygym.cli.recorded import open_recorded
from evopolicygym.cli.report import print_json, run_report
from evopolicygym.cli.run_view import RunView
from evopolicygym.record import RunEvent, RunObserver
from evopolicygym.run.console import ConsoleProgress, inert_text

_SUMMARY_ROWS = 15


def show_run(
    go: Callable[[RunObserver], object],
    record: Path,
    *,
    progress: str,
    as_json: bool,
    happened: Callable[[], Iterable[RunEvent]] = tuple,
) -> int:
    """Let a Run go on, show it, and say what came of it.

    Args:
        go: lets it go on, and tells the observer that it is given.
        record: where its Record is, or will be.
        progress: the display, by its name on the command line.
        as_json: print one JSON document at the end.
        happened: the events of the Run so far.

    Returns:
        The exit code: 0 only if the Run is finished.
    """
    mode = progress if progress != "auto" else ("live" if can_animate(sys.stderr) else "plain")
    if as_json and mode == "json":
        complain("--json and --progress json both want standard output; choose one")
        return EXIT_USAGE
    keeper = ViewKeeper()
    for event in happened():
        keeper.on_event(event)
    try:
        with _display(mode, record, happened) as display:
            go(Observers([keeper, RecordRemembered(record), *display]))
    except KeyboardInterrupt:
        ignore_interrupts()
        _summarize(keeper.view, record, mode, as_json)
        complain("interrupted")
        return EXIT_INTERRUPTED
    _summarize(keeper.view, record, mode, as_json)
    reason = keeper.view.terminal_reason
    if reason == "finished":
        return EXIT_FINISHED
    detail = next(iter(reversed(keeper.view.faults)), "") or keeper.view.agent_message or ""
    complain(f"the Run ended: {reason}" + (f": {inert_text(detail, 500)}" if detail else ""))
    return EXIT_ENDED_OTHERWISE


@contextlib.contextmanager
def _display(mode: str, record: Path, happened: Callable[[], Iterable[RunEvent]]) -> Iterator[list[RunObserver]]:
    if mode == "live":
        from evopolicygym.cli.live import LiveProgress

        with LiveProgress(record) as live:
            for event in happened():
                live.on_event(event)
            yield [live]
    elif mode == "json":
        yield [EventLines(sys.stdout)]
    elif mode == "plain":
        lines = ConsoleProgress(sys.stderr, mode="plain")
        lines.catch_up(happened())
        yield [RecordAnnounced(inert_text(path_text(record))), lines]
    else:
        yield []


def _summarize(view: RunView, record: Path, mode: str, as_json: bool) -> None:
    if not view.started_unix_ns:  # it was stopped before there was a Record
        return
    if as_json:
        print_json(run_report(open_recorded(record)))
        return
    if mode == "json":
        return
    console = result_console()
    show(console, *record_parts(open_recorded(record), width=console.width, limit=_SUMMARY_ROWS))
    console.print()
    where = shlex.quote(path_text(record))
    for command in ("inspect",) if view.terminal_reason == "finished" else ("inspect", "resume"):
        console.print(Text(f"evopolicygym {command} {where}", style="bold"), soft_wrap=True)
