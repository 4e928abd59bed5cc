"""``evopolicygym resume``: go on with a Run from its Record."""

import contextlib
import sys
import tomllib
from collections.abc import Iterator, Sequence
from pathlib import Path

from evopolicygym.cli.consoles import message_console
from evopolicygym.cli.failures import (
    EXIT_ENDED_OTHERWISE,
    EXIT_FINISHED,
    EXIT_INTERRUPTED,
    EXIT_USAGE,
    complain,
    ignore_interrupts,
)
from evopolicygym.cli.observers import EventLines, Observers, ViewKeeper
from evopolicygym.cli.recent import remember
from evopolicygym.cli.run_command import _close, _mode
from evopolicygym.cli.settings import load_settings
from evopolicygym.errors import SpecError
from evopolicygym.record import RunObserver, open_run
from evopolicygym.run.console import ConsoleProgress, inert_text
from evopolicygym.spec.models import NO_VALUE


def resume_record(
    path: Path,
    overrides: Sequence[str],
    *,
    add_time_seconds: float,
    agent_retries: int,
    select: bool,
    progress: str | None,
    as_json: bool,
) -> int:
    """Go on with a Run and show what comes of it.

    Returns:
        The exit code: 0 only if the Run is finished.
    """
    from evopolicygym.run import resume

    settings = load_settings()
    settings.set_workers()
    mode = _mode(progress or settings.display.progress)
    if as_json and mode == "json":
        complain("--json and --progress json both want standard output; choose one")
        return EXIT_USAGE
    limits, parts = _split(overrides)
    record = open_run(path)
    keeper = ViewKeeper()
    for event in record.events():
        keeper.on_event(event)
    if keeper.view.terminal_reason == "finished":
        message_console().print("The Run is finished; there is nothing to resume.")
    try:
        with _display(mode, record.path) as display:
            observers: list[RunObserver] = [keeper]
            if display is not None:
                observers.append(display)
            resume(
                record.path,
                overrides=limits,
                part_overrides=parts,
                add_time_seconds=add_time_seconds,
                agent_retries=agent_retries,
                select=select,
                observer=Observers(observers),
            )
    except KeyboardInterrupt:
        ignore_interrupts()
        _close(keeper.view, record.path, mode, as_json)
        complain("interrupted")
        return EXIT_INTERRUPTED
    remember(record.path)
    _close(keeper.view, record.path, mode, as_json)
    if keeper.view.terminal_reason == "finished":
        return EXIT_FINISHED
    detail = keeper.view.agent_message or next(iter(reversed(keeper.view.faults)), "")
    complain(f"the Run ended: {keeper.view.terminal_reason}" + (f": {inert_text(detail, 500)}" if detail else ""))
    return EXIT_ENDED_OTHERWISE


def _split(overrides: Sequence[str]) -> tuple[dict[str, object], list[str]]:
    """``--set`` of limits, by the names that the Run knows them by; and those of the spec's other parts.

    Raises:
        SpecError: one is of neither kind.
    """
    limits: dict[str, object] = {}
    parts: list[str] = []
    for text in overrides:
        key, equals, value = text.partition("=")
        table, _, name = key.strip().partition(".")
        if equals and name and table in ("agent", "execution"):
            parts.append(text.strip())
        elif equals and name and table in ("run", "validation", "assessment"):
            limits[name if table == "run" else f"{table}.{name}"] = _value(value)
        else:
            raise SpecError(
                f"--set {text}: of a Run that has begun only limits, Agent and execution can change, as in "
                "--set run.episode_budget=60 or --set execution.workers=4"
            )
    return limits, parts


def _value(text: str) -> object:
    try:
        value = tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        value = text
    return None if value == NO_VALUE else value


@contextlib.contextmanager
def _display(mode: str, record: Path) -> Iterator[RunObserver | None]:
    if mode == "live":
        from evopolicygym.cli.live import LiveProgress

        with LiveProgress(record) as live:
            for event in open_run(record).events():
                live.on_event(event)
            yield live
    elif mode == "json":
        yield EventLines(sys.stdout)
    elif mode == "plain":
        lines = ConsoleProgress(sys.stderr, mode="plain")
        lines.catch_up(open_run(record).events())
        yield lines
    else:
        yield None
