"""The index of recent Records in the user's state directory, so that ``inspect`` alone opens the latest."""

import contextlib
import json
import os
import time
from pathlib import Path

import platformdirs

# The latter: no home directory is known.
_NO_INDEX = (OSError, RuntimeError)
_KEPT = 200
_REWRITTEN_AT_BYTES = 256 * 1024


def remember(record: Path) -> None:
    """Note a new Record; a state directory that cannot be written, or is not known, is no reason to fail a Run."""
    line = json.dumps({"path": str(record.absolute()), "time": time.time()}) + "\n"
    with contextlib.suppress(*_NO_INDEX):
        index = _index()
        index.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        if index.exists() and index.stat().st_size > _REWRITTEN_AT_BYTES:
            _shorten(index)
        with index.open("a", encoding="utf-8") as stream:
            stream.write(line)


def recent_records() -> list[Path]:
    """Known Records that are still there, the latest first."""
    try:
        lines = _index().read_text(encoding="utf-8", errors="replace").splitlines()
    except _NO_INDEX:
        return []
    paths: dict[Path, None] = {}
    for line in reversed(lines):
        with contextlib.suppress(ValueError, KeyError, TypeError):
            paths.setdefault(Path(json.loads(line)["path"]))
    return [path for path in paths if (path / "run.json").is_file() or (path / "events.jsonl").is_file()]


def _index() -> Path:
    return Path(platformdirs.user_state_dir("evopolicygym", appauthor=False)) / "recent.jsonl"


def _shorten(index: Path) -> None:
    lines = index.read_text(encoding="utf-8").splitlines(keepends=True)[-_KEPT:]
    shorter = index.with_name(f"{index.name}.{os.getpid()}")
    shorter.write_text("".join(lines), encoding="utf-8")
    shorter.replace(index)
