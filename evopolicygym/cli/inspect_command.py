"""``evopolicygym inspect``: a Record, a part of it, or a folder of Records."""

import shlex
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console, Group, RenderableType
from rich.text import Text

from evopolicygym.cli.columns import Column, fitted_table
from evopolicygym.cli.consoles import result_console, show
from evopolicygym.cli.frames import path_text, run_summary, shown_rows, submissions_table
from evopolicygym.cli.numbers import aligned_text, column_decimals
from evopolicygym.cli.pager import paged_console, show_paged
from evopolicygym.cli.recorded import RecordedRun, open_recorded
from evopolicygym.cli.references import find_program, find_submission, latest_record
from evopolicygym.cli.report import print_json, run_report, submission_report
from evopolicygym.errors import RecordError
from evopolicygym.record import RUN_SCHEMA, RunEvent
from evopolicygym.run.console import inert_text

_TEXT_WIDTH = 400
_ROWS_SHOWN = 60
_DAMAGE_SHOWN = 20


@dataclass(frozen=True, slots=True)
class Wanted:
    """What of a Record to show; its summary if nothing is named.

    Args:
        submission: one Submission.
        diff: two Programs to compare.
        agent: the Agent's transcript.
        events: the journal.
        follow: what is to come, too.
        all_rows: every Submission, however many.
        as_json: as JSON.
    """

    submission: str | None = None
    diff: tuple[str, str] | None = None
    agent: bool = False
    events: bool = False
    follow: bool = False
    all_rows: bool = False
    as_json: bool = False

    @property
    def parts(self) -> list[str]:
        """The parts that are named."""
        named = {
            "SUBMISSION": self.submission,
            "--diff": self.diff,
            "--agent": self.agent,
            "--events": self.events,
        }
        return [name for name, value in named.items() if value]


def inspect_record(path: Path | None, wanted: Wanted) -> None:
    """Show a Record or a part of it.

    Raises:
        RecordError: there is no such Record or Submission, or parts that exclude each other are named.
    """
    if path is None:
        path = latest_record()
    if len(wanted.parts) > 1:
        raise RecordError(f"{' and '.join(wanted.parts)} exclude each other; ask for one of them")
    if _is_folder_of_records(path):
        if wanted.parts or wanted.follow:
            raise RecordError(f"{path} is a folder of Records; name one of them")
        _show_folder(path, as_json=wanted.as_json)
        return
    run = open_recorded(path)
    if wanted.follow and wanted.parts not in ([], ["--events"]):
        raise RecordError(f"--follow shows the Run or its --events, not {wanted.parts[0]}")
    if wanted.events:
        _show_events(run, wanted)
    elif wanted.follow:
        _follow(run, wanted)
    elif wanted.agent:
        _show_agent(run, as_json=wanted.as_json)
    elif wanted.diff is not None:
        _show_diff(run, *wanted.diff, as_json=wanted.as_json)
    elif wanted.submission is not None:
        _show_submission(run, wanted.submission, as_json=wanted.as_json)
    elif wanted.as_json:
        print_json(run_report(run))
    else:
        _show_record(run, _ROWS_SHOWN if not wanted.all_rows else None)


def is_record(path: Path) -> bool:
    """Whether a directory looks like a Record."""
    return (path / "run.json").is_file() or (path / "events.jsonl").is_file()


def _is_folder_of_records(path: Path) -> bool:
    return path.is_dir() and not is_record(path) and any(is_record(child) for child in path.iterdir())


def record_parts(run: RecordedRun, *, width: int, limit: int | None) -> list[RenderableType]:
    """Summary, Submissions and damage of a Run, to be shown with an empty line between them."""
    view, record = run.view, run.record
    summary = run_summary(view, record.path, status=record.status, errors=run.errors, diagnostics=run.diagnostics)
    parts: list[RenderableType] = [summary]
    if view.submissions:
        shown = [row.submission_id for row in shown_rows(view, limit)]
        parts.append(
            submissions_table(view, width=width, limit=limit, changes=run.changes(shown), edits=run.edits),
        )
    if record.damage:
        damage = record.damage
        lines = [Text(f"damaged  {inert_text(one, _TEXT_WIDTH)}", style="red") for one in damage[:_DAMAGE_SHOWN]]
        if len(damage) > _DAMAGE_SHOWN:
            lines.append(Text(f"and {len(damage) - _DAMAGE_SHOWN} more; --json lists all", style="red"))
        parts.append(Group(*lines))
    return parts


def _show_record(run: RecordedRun, limit: int | None) -> None:
    view = run.view
    parts = record_parts(run, width=result_console().width, limit=limit)
    where = shlex.quote(path_text(run.record.path))
    hints = []
    if run.status == "running":
        hints.append(f"evopolicygym inspect {where} --follow")
    if limit is not None and len(view.submissions) > limit:
        hints.append(f"evopolicygym inspect {where} --all")
    if view.best is not None:
        hints.append(f"evopolicygym inspect {where} {view.selected or view.best.submission_id}")
    if run.outcome not in ("finished", "running") and run.record.schema == RUN_SCHEMA:
        hints.append(f"evopolicygym resume {where}")
    if hints:
        parts.append(Group(*(Text(inert_text(hint), style="dim", overflow="fold") for hint in hints)))
    show_paged(*parts)


def _show_folder(path: Path, *, as_json: bool) -> None:
    runs = [open_recorded(child) for child in sorted(path.iterdir()) if is_record(child)]
    if as_json:
        print_json([run_report(run) for run in runs])
        return
    best = [None if run.view.best is None else run.view.best.score for run in runs]
    assessed = [run.view.assessment_score for run in runs]
    outcomes = [run.outcome for run in runs]
    columns = (
        Column("Record", [Text(inert_text(run.record.path.name)) for run in runs]),
        Column(
            "Outcome",
            [
                Text(inert_text(outcome.replace("_", " "), 40), style="green" if outcome == "finished" else "red")
                for outcome in outcomes
            ],
        ),
        Column("Held-out", _score_cells(assessed), right=True),
        Column("Training", _score_cells(best), right=True),
        Column("Submissions", [Text(str(len(run.view.published))) for run in runs], right=True),
        Column("Benchmark", [Text(inert_text(run.view.benchmark_id, 40)) for run in runs]),
        Column("Agent", [Text(inert_text(run.view.agent, 40)) for run in runs]),
    )
    hint = f"evopolicygym compare {shlex.quote(path_text(path))}" if len(runs) > 1 else ""
    table = fitted_table(columns, width=result_console().width, least=3)
    show_paged(table, *([Text(inert_text(hint), style="dim", overflow="fold")] if hint else []))


def _score_cells(scores: Sequence[float | None]) -> list[Text]:
    decimals = column_decimals(scores)
    return [Text(aligned_text(score, decimals)) for score in scores]


def _show_submission(run: RecordedRun, wanted: str, *, as_json: bool) -> None:
    submission = find_submission(run, wanted)
    if as_json:
        print_json(submission_report(run, submission))
        return
    from evopolicygym.cli.submission_view import submission_view

    show_paged(*submission_view(run, submission, width=result_console().width))


def _show_diff(run: RecordedRun, first: str, second: str, *, as_json: bool) -> None:
    from evopolicygym.cli.program_diff import NamedProgram, diff_document, print_diff

    before, after = (NamedProgram(*find_program(run, name)) for name in (first, second))
    if as_json:
        print_json(diff_document(before, after))
        return
    with paged_console() as console:
        print_diff(before, after, console)


def _show_agent(run: RecordedRun, *, as_json: bool) -> None:
    from evopolicygym.cli.conversation import print_conversation, print_transcript_report

    if as_json:
        print_transcript_report(run.record, sys.stdout)
        return
    with paged_console() as console:
        print_conversation(run.record, console)


def _follow(run: RecordedRun, wanted: Wanted) -> None:
    from evopolicygym.cli.follow import follow_run

    follow_run(run.record, as_json=wanted.as_json)
    if not wanted.as_json:
        again = open_recorded(run.record.path)
        show(result_console(), *record_parts(again, width=result_console().width, limit=_ROWS_SHOWN))


def _show_events(run: RecordedRun, wanted: Wanted) -> None:
    record = run.record
    events: Iterable[RunEvent]
    if wanted.follow:
        if wanted.as_json:
            _follow(run, wanted)
            return
        events = record.follow()
        _print_events(events, result_console(), flush=True)
    elif wanted.as_json:
        for line in record.lines():
            sys.stdout.buffer.write(line + b"\n")
    else:
        with paged_console() as console:
            _print_events(record.events(), console)


def _print_events(events: Iterable[RunEvent], console: Console, *, flush: bool = False) -> None:
    start: int | None = None
    for event in events:
        start = event.time_unix_ns if start is None else start
        line = _event_line(event, start)
        if console.is_terminal:
            console.print(line, soft_wrap=True)
        else:  # the same without styles, for journals of a million lines
            console.file.write(f"{line.plain}\n")
            if flush:
                console.file.flush()


def _event_line(event: RunEvent, start_ns: int) -> Text:
    line = Text(f"{(event.time_unix_ns - start_ns) / 1e9:10.3f}  ", style="dim")
    line.append(inert_text(event.name), style="bold")
    for key, value in event.fields.items():
        if value is not None:
            line.append(f"  {inert_text(key)}=", style="dim")
            line.append(inert_text(", ".join(map(str, value)) if isinstance(value, tuple) else str(value), _TEXT_WIDTH))
    return line
