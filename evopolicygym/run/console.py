"""Progress of a Run as plain lines of text: an observer for scripts, logs and the command line's plain mode."""

import os
import sys
import threading
import unicodedata
from collections.abc import Callable, Iterable, Mapping
from typing import TextIO

from evopolicygym.record.events import FieldValue, RunEvent

__all__ = ["ConsoleProgress", "inert_line", "inert_text", "score_text"]

_TEXT_WIDTH = 200
_STATUS_WIDTH = 60
_ZERO_WIDTH_JOINER = "\u200d"
# A line that is redrawn more often than this is only noise.
_STATUS_INTERVAL_NS = 100_000_000

Fields = Mapping[str, FieldValue]


class ConsoleProgress:
    """Writes one line for each event that is worth reading.

    Args:
        stream: where the lines go; standard error if None.
        mode: ``"plain"`` writes lines only. ``"auto"`` also keeps one line up to date with the running Evaluation
            if the stream is a terminal that can do so.

    Raises:
        ValueError: another mode.
    """

    def __init__(self, stream: TextIO | None = None, *, mode: str = "auto") -> None:
        if mode not in ("auto", "plain"):
            raise ValueError(f'mode must be "auto" or "plain", not {mode!r}')
        self._stream = sys.stderr if stream is None else stream
        self._redraws = mode == "auto" and _can_redraw(self._stream)
        self._lock = threading.Lock()
        self._started_ns: int | None = None
        self._direction = "maximize"
        self._best: float | None = None
        self._planned = 0
        self._completed = 0
        self._status_shown = False
        self._status_ns = 0

    def on_event(self, event: RunEvent) -> None:
        """Write the line of this event, if it has one."""
        with self._lock:
            if self._started_ns is None:
                self._started_ns = event.monotonic_ns
            write = _LINES.get(event.name)
            line = write(self, event.fields) if write else None
            if line is not None:
                self._write_line(event, line)
            elif self._redraws and event.name.endswith("episode_completed"):
                self._draw_status(event)

    def catch_up(self, events: Iterable[RunEvent]) -> None:
        """Take in, without a word, what happened before: the lines of a resumed Run go on from there."""
        for event in events:
            write = _LINES.get(event.name)
            if write is not None:
                write(self, event.fields)

    def _write_line(self, event: RunEvent, line: str) -> None:
        seconds = max(0, event.monotonic_ns - (self._started_ns or 0)) // 1_000_000_000
        clock = f"{seconds // 3600}:{seconds // 60 % 60:02d}:{seconds % 60:02d}"
        erase = "\r\x1b[K" if self._status_shown else ""
        self._status_shown = False
        self._print(f"{erase}[{clock}] {line}\n")

    def _draw_status(self, event: RunEvent) -> None:
        if event.monotonic_ns - self._status_ns < _STATUS_INTERVAL_NS and self._completed < self._planned:
            return
        self._status_ns = event.monotonic_ns
        name = event.fields.get("submission_id") or "assessment"
        status = f"{name}: {self._completed} of {self._planned} Episodes"[:_STATUS_WIDTH]
        self._print(f"\r\x1b[K{status}")
        self._status_shown = True

    def _print(self, text: str) -> None:
        encoding = getattr(self._stream, "encoding", None) or "utf-8"
        self._stream.write(text.encode(encoding, "replace").decode(encoding))
        self._stream.flush()

    # One method an event: the line to write, or None.

    def _run_started(self, fields: Fields) -> str:
        self._direction = str(fields.get("score_direction"))
        return (
            f"Run started: {_text(fields, 'benchmark_id')}, Agent {_text(fields, 'agent')}, "
            f"{fields.get('episode_budget')} Episodes in at most {fields.get('max_submissions')} Submissions"
        )

    def _agent_started(self, fields: Fields) -> str:
        return f"Agent started{_attempt(fields)}"

    def _agent_ended(self, fields: Fields) -> str:
        message = fields.get("message")
        detail = f": {inert_text(str(message), _TEXT_WIDTH)}" if message else ""
        return f"Agent ended ({_text(fields, 'reason')}) after {_seconds(fields)}{detail}"

    def _evaluation_started(self, fields: Fields) -> str:
        self._begin(fields.get("episode_count"))
        return f"{_text(fields, 'submission_id')}: evaluating {_count(fields.get('episode_count'), 'Episode')}"

    def _episode_completed(self, _fields: Fields) -> None:
        self._completed += 1

    def _submission_published(self, fields: Fields) -> str:
        score, failures = fields.get("score"), fields.get("policy_failures")
        line = f"{_text(fields, 'submission_id')}: score {score_text(score)}"
        if isinstance(score, int | float):
            if self._best is None:
                self._best = float(score)
            elif score > self._best if self._direction == "maximize" else score < self._best:
                line += f", best so far (was {score_text(self._best)})"
                self._best = float(score)
        if failures:
            line += f", {_count(failures, 'Policy failure')}"
        return f"{line}, {_seconds(fields)}, {fields.get('episodes_remaining')} Episodes left"

    def _refused(self, fields: Fields) -> str:
        return f"refused ({_text(fields, 'code')}): {_text(fields, 'message')}"

    def _evaluation_failed(self, fields: Fields) -> str:
        return (
            f"{_text(fields, 'submission_id')}: not published ({_text(fields, 'reason')}): {_text(fields, 'message')}"
        )

    def _finish_requested(self, fields: Fields) -> str:
        candidates = fields.get("candidate_submission_ids")
        names = ", ".join(map(str, candidates)) if isinstance(candidates, tuple | list) else str(candidates)
        by_host = " by the Host" if fields.get("handed_off_by") == "host" else ""
        return f"handed off{by_host}: {inert_text(names, _TEXT_WIDTH)}"

    def _validation_started(self, fields: Fields) -> str:
        candidates = fields.get("candidate_submission_ids")
        number = len(candidates) if isinstance(candidates, tuple | list) else 0
        self._begin(fields.get("episodes_per_candidate"))
        return f"Validation: {_count(number, 'candidate')}, {fields.get('episodes_per_candidate')} Episodes each"

    def _validation_candidate_completed(self, fields: Fields) -> str:
        self._completed = 0
        return f"Validation: {_text(fields, 'submission_id')} scores {score_text(fields.get('score'))}"

    def _candidate_selected(self, fields: Fields) -> str:
        return f"selected: {_text(fields, 'submission_id')}"

    def _assessment_started(self, fields: Fields) -> str:
        self._begin(fields.get("episodes"))
        return f"Assessment: {_text(fields, 'submission_id')} on {fields.get('episodes')} held-out Episodes"

    def _assessment_completed(self, fields: Fields) -> str:
        return f"Assessment: score {score_text(fields.get('score'))}"

    def _validation_failed(self, fields: Fields) -> str:
        return f"Validation failed: {_text(fields, 'message')}"

    def _assessment_failed(self, fields: Fields) -> str:
        return f"Assessment failed: {_text(fields, 'message')}"

    def _notice(self, fields: Fields) -> str:
        return f"note: {_text(fields, 'message')}"

    def _interrupted(self, fields: Fields) -> str:
        return f"interrupted by {_text(fields, 'signal')}; the Record is being closed"

    def _run_resumed(self, fields: Fields) -> str:
        return f"Run resumed{_attempt(fields)}"

    def _run_committed(self, fields: Fields) -> str:
        return f"Run ended: {_text(fields, 'terminal_reason')}"

    def _begin(self, planned: FieldValue) -> None:
        self._planned = planned if isinstance(planned, int) else 0
        self._completed = 0


_LINES: Mapping[str, Callable[[ConsoleProgress, Fields], str | None]] = {
    "run_started": ConsoleProgress._run_started,
    "agent_started": ConsoleProgress._agent_started,
    "agent_ended": ConsoleProgress._agent_ended,
    "evaluation_started": ConsoleProgress._evaluation_started,
    "episode_completed": ConsoleProgress._episode_completed,
    "submission_published": ConsoleProgress._submission_published,
    "submission_refused": ConsoleProgress._refused,
    "finish_refused": ConsoleProgress._refused,
    "evaluation_failed": ConsoleProgress._evaluation_failed,
    "finish_requested": ConsoleProgress._finish_requested,
    "validation_started": ConsoleProgress._validation_started,
    "validation_episode_completed": ConsoleProgress._episode_completed,
    "validation_candidate_completed": ConsoleProgress._validation_candidate_completed,
    "validation_failed": ConsoleProgress._validation_failed,
    "candidate_selected": ConsoleProgress._candidate_selected,
    "assessment_started": ConsoleProgress._assessment_started,
    "assessment_episode_completed": ConsoleProgress._episode_completed,
    "assessment_completed": ConsoleProgress._assessment_completed,
    "assessment_failed": ConsoleProgress._assessment_failed,
    "notice": ConsoleProgress._notice,
    "interrupted": ConsoleProgress._interrupted,
    "run_resumed": ConsoleProgress._run_resumed,
    "run_committed": ConsoleProgress._run_committed,
}


def inert_text(text: str, limit: int | None = None) -> str:
    """Text from an Agent or a Policy as one line that cannot steer a terminal.

    Line breaks and runs of blanks become one blank; control, format and unassigned characters are written out as
    ``\\x1b``.

    Args:
        text: anything.
        limit: longest result in characters; the rest is cut and marked by ``…``.
    """
    if limit is not None:
        text = text[: 8 * limit]  # enough to fill the line, and no work for megabytes
    return _cut(_escaped(" ".join(text.split())), limit)


def inert_line(line: str, limit: int | None = None) -> str:
    """One line of text, such as of a source file, as :func:`inert_text` but with its blanks kept."""
    return _cut(_escaped((line if limit is None else line[: 8 * limit]).expandtabs(4)), limit)


def _escaped(line: str) -> str:
    if line.isascii() and line.isprintable():
        return line
    return "".join(
        character
        if character == _ZERO_WIDTH_JOINER or unicodedata.category(character)[0] != "C"
        else character.encode("unicode_escape").decode("ascii")
        for character in line
    )


def _cut(shown: str, limit: int | None) -> str:
    return shown if limit is None or len(shown) <= limit else shown[: limit - 1] + "…"


def score_text(score: object) -> str:
    """A score with as many digits as a reader can use."""
    if isinstance(score, bool) or not isinstance(score, int | float):
        return "–"
    magnitude = abs(score)
    if not magnitude:
        return "0"
    if not 1e-3 <= magnitude < 1e7:
        return f"{score:.4g}"
    digits = 1 if magnitude >= 1000 else 2 if magnitude >= 10 else 3 if magnitude >= 1 else 4
    return f"{score:.{digits}f}"


def _can_redraw(stream: TextIO) -> bool:
    return stream.isatty() and os.environ.get("TERM", "") not in ("", "dumb")


def _text(fields: Fields, name: str) -> str:
    return inert_text(str(fields.get(name, "?")), _TEXT_WIDTH)


def _seconds(fields: Fields) -> str:
    seconds = fields.get("seconds")
    return f"{seconds:.1f} s" if isinstance(seconds, int | float) else "? s"


def _attempt(fields: Fields) -> str:
    attempt = fields.get("attempt")
    return f" (attempt {attempt})" if isinstance(attempt, int) and attempt > 1 else ""


def _count(number: FieldValue, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
