"""``evopolicygym inspect``: a Record, one Submission of it, its journal, or a folder of Records."""

import json
import shlex
import sys
from collections.abc import Mapping
from pathlib import Path

from rich.console import Console, Group, RenderableType
from rich.table import Column, Table
from rich.text import Text
from rich.tree import Tree

from evopolicygym.cli.consoles import result_console, show
from evopolicygym.cli.frames import path_text, run_summary, submissions_table
from evopolicygym.cli.recent import recent_records
from evopolicygym.cli.recorded import status_text, view_of
from evopolicygym.cli.report import submission_document, view_document
from evopolicygym.cli.run_view import RunView
from evopolicygym.errors import RecordError
from evopolicygym.policy import TensorValue
from evopolicygym.record import RunEvent, RunRecord, SubmissionRecord, open_run
from evopolicygym.run.console import inert_text, score_text

_TEXT_WIDTH = 400
_EPISODES_SHOWN = 50
_TREE_ITEMS_SHOWN = 40


def inspect_record(path: Path | None, submission: str | None, *, show_events: bool, as_json: bool) -> None:
    """Show a Record or a part of it.

    Raises:
        RecordError: there is no such Record or Submission.
    """
    console = result_console()
    if path is None:
        path = _latest()
    if _is_folder_of_records(path):
        if submission is not None or show_events:
            raise RecordError(f"{path} is a folder of Records; name one of them")
        _show_folder(path, console, as_json=as_json)
        return
    record = open_run(path)
    if show_events:
        _show_events(record, console, as_json=as_json)
        return
    view = view_of(record)
    if submission is not None:
        _show_submission(record, view, _find(record, view, submission), console, as_json=as_json)
    elif as_json:
        document = view_document(view, record.path, status=record.status, damage=tuple(record.damage))
        _print_json(document)
    else:
        _show_record(record, view, console)


def _latest() -> Path:
    known = recent_records()
    if not known:
        raise RecordError("no Record is known yet; name one: evopolicygym inspect runs/…")
    return known[0]


def _is_record(path: Path) -> bool:
    return (path / "run.json").is_file() or (path / "events.jsonl").is_file()


def _is_folder_of_records(path: Path) -> bool:
    return path.is_dir() and not _is_record(path) and any(_is_record(child) for child in path.iterdir())


def _print_json(document: object) -> None:
    sys.stdout.write(json.dumps(document, indent=2, ensure_ascii=False, allow_nan=False) + "\n")


def _show_record(record: RunRecord, view: RunView, console: Console) -> None:
    parts: list[RenderableType] = [run_summary(view, record.path, status=record.status)]
    if view.submissions:
        parts.append(submissions_table(view, width=console.width))
    if record.damage:
        parts.append(Group(*(Text(f"damaged  {inert_text(d, _TEXT_WIDTH)}", style="red") for d in record.damage)))
    show(console, *parts)
    if view.best is not None:
        where = shlex.quote(path_text(record.path))
        hint = f"evopolicygym inspect {where} {view.selected or view.best.submission_id}"
        console.print()
        console.print(Text(inert_text(hint), style="dim"), soft_wrap=True)


def _show_folder(path: Path, console: Console, *, as_json: bool) -> None:
    records = [open_run(child) for child in sorted(path.iterdir()) if _is_record(child)]
    views = [(record, view_of(record)) for record in records]
    if as_json:
        _print_json(
            [
                view_document(view, record.path, status=record.status, damage=tuple(record.damage))
                for record, view in views
            ]
        )
        return
    table = Table(box=None, padding=(0, 1), pad_edge=False, header_style="dim")
    for name in ("Record", "Benchmark", "Agent", "Outcome"):
        table.add_column(name, overflow="fold")
    for name in ("Submissions", "Training", "Assessment"):
        table.add_column(name, justify="right")
    for record, view in views:
        outcome = status_text(record, view)
        table.add_row(
            Text(inert_text(record.path.name)),
            Text(inert_text(view.benchmark_id, 40)),
            Text(inert_text(view.agent, 40)),
            Text(inert_text(outcome.replace("_", " "), 40), style="green" if outcome == "finished" else "red"),
            Text(str(len(view.published))),
            Text(score_text(view.best.score if view.best else None)),
            Text(score_text(view.assessment_score)),
        )
    show(console, table)


def _show_events(record: RunRecord, console: Console, *, as_json: bool) -> None:
    if as_json:
        for line in record.lines():
            sys.stdout.buffer.write(line + b"\n")
        return
    start: int | None = None
    for event in record.events():
        start = event.time_unix_ns if start is None else start
        console.print(_event_line(event, start), soft_wrap=True)


def _event_line(event: RunEvent, start_ns: int) -> Text:
    line = Text(f"{(event.time_unix_ns - start_ns) / 1e9:10.3f}  ", style="dim")
    line.append(inert_text(event.name), style="bold")
    for key, value in event.fields.items():
        if value is not None:
            line.append(f"  {inert_text(key)}=", style="dim")
            line.append(inert_text(", ".join(map(str, value)) if isinstance(value, tuple) else str(value), _TEXT_WIDTH))
    return line


def _find(record: RunRecord, view: RunView, wanted: str) -> SubmissionRecord:
    named = {"selected": view.selected, "best": view.best.submission_id if view.best else None}
    name = named.get(wanted) or (f"submission-{int(wanted):06d}" if wanted.isascii() and wanted.isdigit() else wanted)
    try:
        return record.submission(name)
    except KeyError:
        published = [submission.submission_id for submission in record.submissions]
        has = f"it has {published[0]} to {published[-1]}" if published else "nothing was published"
        raise RecordError(f'{record.path} has no Submission "{name}"; {has}') from None


def _show_submission(
    record: RunRecord, view: RunView, submission: SubmissionRecord, console: Console, *, as_json: bool
) -> None:
    if as_json:
        _print_json(submission_document(submission, record.path))
        return
    row = view.submissions.get(submission.submission_id)
    title = Text.assemble((submission.submission_id, "bold"), "  ", (score_text(submission.score), "bold green"))
    title.append(f" {inert_text(view.primary_metric, 40)}", style="dim")
    if submission.submission_id == view.selected:
        title.append("  selected", style="cyan")
    facts = Table.grid(Column(style="dim", no_wrap=True), Column(overflow="fold"), padding=(0, 2))
    facts.add_row("Program", Text(inert_text(path_text(submission.program_path))))
    facts.add_row("", Text(inert_text(submission.program_digest or "")))
    budget = f"{submission.episodes_used} Episodes used, {submission.episodes_remaining} left after it"
    facts.add_row("Budget", Text(budget))
    if row is not None and row.selector:
        facts.add_row("Indices", Text(inert_text(row.selector, _TEXT_WIDTH)))
    if row is not None and row.seconds is not None:
        facts.add_row("Seconds", Text(f"{row.seconds:.2f}"))
    parts = (_feedback(submission), _errors(submission), _episodes(submission), _artifacts(submission))
    show(console, Group(title, facts), *(part for part in parts if part is not None))


def _feedback(submission: SubmissionRecord) -> RenderableType | None:
    content = submission.content
    if content is None:
        return None
    tree = Tree(Text("Feedback", style="bold"), guide_style="dim")
    _grow(tree, content)
    return tree


def _grow(tree: Tree, value: object) -> None:
    if isinstance(value, Mapping):
        items = [(str(key), item) for key, item in value.items()]
    elif isinstance(value, list | tuple):
        items = [(str(index), item) for index, item in enumerate(value)]
    else:
        tree.add(Text(_leaf(value)))
        return
    for key, item in items[:_TREE_ITEMS_SHOWN]:
        label = Text(inert_text(key, 80), style="cyan")
        if isinstance(item, Mapping | list | tuple) and item:
            _grow(tree.add(label), item)
        else:
            tree.add(label.append(f"  {_leaf(item)}", style="default"))
    if len(items) > _TREE_ITEMS_SHOWN:
        tree.add(Text(f"… {len(items) - _TREE_ITEMS_SHOWN} more", style="dim"))


def _leaf(value: object) -> str:
    if isinstance(value, float):
        return score_text(value)
    if isinstance(value, TensorValue):
        return f"tensor {value.dtype} {tuple(value.shape)}"
    if isinstance(value, bytes):
        return f"{len(value)} bytes"
    return inert_text(str(value), _TEXT_WIDTH)


def _errors(submission: SubmissionRecord) -> RenderableType | None:
    groups = submission.diagnostics.get("groups")
    if not isinstance(groups, list) or not groups:
        return None
    lines = [Text("Policy errors", style="bold")]
    lines.extend(error_line(group) for group in groups if isinstance(group, Mapping))
    return Group(*lines)


def error_line(group: Mapping[str, object]) -> Text:
    """``×12 IndexError at policy.py:31 in act: …`` of one group of failures."""
    line = Text(f"×{group.get('count')} ", style="red")
    line.append(inert_text(str(group.get("exception_type") or group.get("failure")), 120), style="bold")
    if group.get("where"):
        line.append(f" at {inert_text(str(group['where']), 120)}")
    if group.get("message"):
        line.append(f": {inert_text(str(group['message']), _TEXT_WIDTH)}")
    return line


def _episodes(submission: SubmissionRecord) -> RenderableType | None:
    episodes = submission.episodes
    if not episodes:
        return None
    table = Table(box=None, padding=(0, 1), pad_edge=False, header_style="dim", title_justify="left")
    table.add_column("Episode", justify="right")
    table.add_column("Reward", justify="right")
    table.add_column("Steps", justify="right")
    table.add_column("", no_wrap=True)
    for episode in episodes[:_EPISODES_SHOWN]:
        table.add_row(
            Text(str(episode.get("episode_index"))),
            Text(score_text(episode.get("reward"))),
            Text(str(episode.get("steps"))),
            Text(inert_text(str(episode.get("failure") or ""), 40), style="red"),
        )
    if len(episodes) > _EPISODES_SHOWN:
        left = f"{len(episodes) - _EPISODES_SHOWN} more in {path_text(submission.path / 'feedback.json')}"
        return Group(table, Text(inert_text(left), style="dim"))
    return table


def _artifacts(submission: SubmissionRecord) -> RenderableType | None:
    artifacts = submission.artifacts
    if not artifacts:
        return None
    table = Table(box=None, padding=(0, 1), pad_edge=False, header_style="dim")
    table.add_column("Artifact")
    table.add_column("Size", justify="right")
    table.add_column("Path", overflow="fold")
    for artifact in artifacts:
        where = path_text(artifact.path) if artifact.path else "evicted or missing"
        table.add_row(Text(inert_text(artifact.name, 120)), Text(_bytes(artifact.size)), Text(inert_text(where)))
    return table


def _bytes(size: int) -> str:
    if size < 1024:
        return f"{size} B"
    return f"{size / 1024:.1f} KiB" if size < 1024**2 else f"{size / 1024**2:.1f} MiB"
