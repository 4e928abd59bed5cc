"""Policy errors of a Run, grouped: what was raised, where, how often. Read from the Host's own logs in the Record."""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from rich.text import Text

from evopolicygym.record.layout import POLICY_LOG_FILE, POLICY_LOGS, RecordLayout
from evopolicygym.run.console import inert_text

# Of one Submission's log; its groups show in far less.
_LOG_MAX_BYTES = 4 * 1024 * 1024
_MESSAGE_WIDTH = 400


@dataclass(slots=True)
class ErrorGroup:
    """Failures of one kind at one place.

    Args:
        failure: the failure code.
        exception_type: what was raised; empty if it is not known.
        where: the innermost frame inside the Program, such as ``"policy.py:31 in act"``; empty if not known.
        message: of the first of them.
        count: how many.
    """

    failure: str
    exception_type: str = ""
    where: str = ""
    message: str = ""
    count: int = 0

    def to_json(self) -> dict[str, object]:
        """As in ``feedback.json``."""
        return {
            "count": self.count,
            "failure": self.failure,
            "exception_type": self.exception_type or None,
            "where": self.where or None,
            "message": self.message or None,
        }


class ErrorGroups:
    """Groups failures as they come to be known, each Submission once."""

    def __init__(self) -> None:
        self._groups: dict[tuple[str, str, str], ErrorGroup] = {}
        self._seen: set[str] = set()

    def read(self, record: Path, submission_ids: Iterable[str]) -> None:
        """Add the logs of Submissions that were not read yet."""
        layout = RecordLayout(record)
        for identifier in submission_ids:
            if identifier not in self._seen:
                self._seen.add(identifier)
                for entry in _log(layout.submission(identifier) / POLICY_LOGS / POLICY_LOG_FILE):
                    self.add(entry)

    def add(self, entry: Mapping[str, object], count: int = 1) -> None:
        """Count a failure, told as in a log or as a group of ``feedback.json``; an Episode without one is none."""
        if not entry.get("failure"):
            return
        frames = entry.get("frames")
        where = frames[-1] if isinstance(frames, list) and frames else entry.get("where")
        group = ErrorGroup(
            str(entry["failure"]),
            str(entry.get("exception_type") or ""),
            str(where or ""),
            str(entry.get("message") or ""),
        )
        known = self._groups.setdefault((group.failure, group.exception_type, group.where), group)
        known.count += count

    @property
    def ranked(self) -> Sequence[ErrorGroup]:
        """The groups, most frequent first."""
        return sorted(self._groups.values(), key=lambda group: -group.count)


def feedback_groups(diagnostics: Mapping[str, object]) -> Sequence[ErrorGroup]:
    """The groups that ``feedback.json`` tells the Agent of."""
    groups = ErrorGroups()
    told = diagnostics.get("groups")
    for entry in told if isinstance(told, list) else ():
        count = entry.get("count") if isinstance(entry, Mapping) else None
        if isinstance(entry, Mapping) and isinstance(count, int):
            groups.add(entry, count)
    return groups.ranked


def error_line(group: ErrorGroup, limit: int = _MESSAGE_WIDTH) -> Text:
    """``×12 IndexError at policy.py:31 in act: …``"""
    line = Text(f"×{group.count} ", style="red")
    line.append(inert_text(group.exception_type or group.failure, 120), style="bold")
    if group.where:
        line.append(f" at {inert_text(group.where, 120)}", style="not bold")
    if group.message:
        line.append(f": {inert_text(group.message, limit)}", style="not bold")
    return line


def _log(path: Path) -> Iterator[Mapping[str, object]]:
    try:
        with open(path, "rb") as file:
            read = 0
            for line in file:
                read += len(line)
                if read > _LOG_MAX_BYTES:
                    return
                try:
                    entry = json.loads(line)
                except ValueError:
                    continue
                if isinstance(entry, dict):
                    yield entry
    except OSError:  # a Record without this log, or one that is being written
        return
