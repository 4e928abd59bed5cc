"""What the shell offers when Tab is pressed; light, and silent about whatever goes wrong."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

_MOST = 200


def spec_files(incomplete: str) -> list[str]:
    """TOML files, and directories that may hold some."""
    return list(_paths(incomplete, lambda path: path.suffix == ".toml"))


def record_paths(incomplete: str) -> list[str]:
    """Records, directories that may hold some, and recent Records elsewhere."""
    found = list(_paths(incomplete, lambda _: False))
    if not incomplete:
        from evopolicygym.cli.recent import recent_records

        found += [str(path) for path in recent_records()[:10]]
    return found


def submission_names(ctx: Any, incomplete: str) -> list[str]:
    """Ids of the Submissions of the Record named before, and their short names."""
    record = ctx.params.get("record")
    names = ["best", "selected"]
    if record:
        try:
            names += sorted(entry.name for entry in (Path(record) / "submissions").iterdir() if entry.name[0] != ".")
        except OSError:
            pass
    return [name for name in names if name.startswith(incomplete)][:_MOST]


def _paths(incomplete: str, wanted: Any) -> Iterator[str]:
    head, separator, begun = incomplete.rpartition("/")
    folder = Path(head + separator or ".").expanduser()
    try:
        entries = sorted(folder.iterdir())
    except OSError:
        return
    for entry in entries[: 20 * _MOST]:
        if not entry.name.startswith(begun) or (entry.name.startswith(".") and not begun):
            continue
        if entry.is_dir():
            yield f"{head}{separator}{entry.name}/"
        elif wanted(entry):
            yield f"{head}{separator}{entry.name}"
