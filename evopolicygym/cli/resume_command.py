"""``evopolicygym resume``: go on with a Run from its Record."""

import tomllib
from collections.abc import Sequence
from pathlib import Path

from evopolicygym.cli.consoles import message_console
from evopolicygym.cli.run_display import show_run
from evopolicygym.cli.settings import load_settings
from evopolicygym.errors import SpecError
from evopolicygym.record import open_run
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
    limits, parts = _split(overrides)
    record = open_run(path)
    if record.terminal_reason == "finished":
        message_console().print("The Run is finished; there is nothing to resume.")
    return show_run(
        lambda observer: resume(
            record.path,
            overrides=limits,
            part_overrides=parts,
            add_time_seconds=add_time_seconds,
            agent_retries=agent_retries,
            select=select,
            observer=observer,
        ),
        record.path,
        progress=progress or settings.display.progress,
        as_json=as_json,
        happened=lambda: open_run(record.path).events(),
    )


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
