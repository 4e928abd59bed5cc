"""One Submission on a screen: Feedback as a tree, Policy errors, Episodes, artifacts."""

from collections.abc import Mapping

from rich.console import Group, RenderableType
from rich.table import Column, Table
from rich.text import Text
from rich.tree import Tree

from evopolicygym.cli.frames import change_text, path_text
from evopolicygym.cli.numbers import aligned_text, column_decimals, counted, digest_text, duration_text
from evopolicygym.cli.policy_errors import error_line, feedback_groups
from evopolicygym.cli.recorded import RecordedRun
from evopolicygym.policy import TensorValue
from evopolicygym.record import SubmissionRecord
from evopolicygym.run.console import inert_text, score_text

_TEXT_WIDTH = 400
_EPISODES_SHOWN = 50
_TREE_ITEMS_SHOWN = 40
_NARROW = 64


def submission_view(run: RecordedRun, submission: SubmissionRecord, *, width: int) -> list[RenderableType]:
    """The parts, to be shown with an empty line between them."""
    view, name = run.view, submission.submission_id
    row = view.submissions.get(name)
    title = Text.assemble((name, "bold"), "  ", (score_text(submission.score), "bold green"))
    title.append(f" {inert_text(view.primary_metric, 40)}", style="dim")
    if view.best is not None and name == view.best.submission_id:
        title.append("  best", style="cyan")
    if name == view.selected:
        title.append("  selected", style="cyan")
    facts = Table.grid(Column(style="dim", no_wrap=True), Column(overflow="fold"), padding=(0, 2))
    changes = run.changes([name]).get(name)
    if changes is not None:
        facts.add_row("Vs previous", change_text(changes.previous, maximizes=view.maximizes, words=True))
        facts.add_row("Vs best before", change_text(changes.best, maximizes=view.maximizes, words=True))
    facts.add_row("Program", Text(inert_text(path_text(submission.program_path))))
    facts.add_row("", Text(inert_text(digest_text(submission.program_digest or ""))))
    code = _code(run, name)
    if code:
        facts.add_row("Code", Text(code))
    used, left = submission.episodes_used, submission.episodes_remaining
    if used is not None:
        facts.add_row("Budget", Text(f"{counted(used, 'Episode')} used" + ("" if left is None else f", {left} left")))
    if row is not None and row.selector:
        facts.add_row("Pool", Text(f"Episodes {inert_text(row.selector, _TEXT_WIDTH)}"))
    if row is not None and row.seconds is not None:
        facts.add_row("Time", Text(duration_text(row.seconds)))
    parts = (
        _feedback(submission),
        _errors(submission),
        _episodes(submission),
        _artifacts(submission, narrow=width < _NARROW),
    )
    return [Group(title, facts), *(part for part in parts if part is not None)]


def _code(run: RecordedRun, name: str) -> str:
    code = run.diagnostics.get("code")
    for entry in code if isinstance(code, list) else ():
        if isinstance(entry, Mapping) and entry.get("submission_id") == name:
            functions = entry.get("functions")
            told = f"{entry.get('source_lines')} source lines"
            told += f", {counted(functions, 'function')}" if isinstance(functions, int) else ""
            size = f"+{entry.get('lines_added')} -{entry.get('lines_removed')} lines"
            return inert_text(f"{told}; {entry.get('edit')} edit, {size}")
    return ""


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
    groups = feedback_groups(submission.diagnostics)
    if not groups:
        return None
    return Group(Text("Policy errors", style="bold"), *map(error_line, groups))


def _episodes(submission: SubmissionRecord) -> RenderableType | None:
    episodes = submission.episodes
    if not episodes:
        return None
    table = Table(box=None, padding=(0, 1), pad_edge=False, header_style="dim", title_justify="left")
    table.add_column("Episode", justify="right")
    table.add_column("Reward", justify="right")
    table.add_column("Steps", justify="right")
    table.add_column("", no_wrap=True)
    decimals = column_decimals(episode.get("reward") for episode in episodes[:_EPISODES_SHOWN])
    for episode in episodes[:_EPISODES_SHOWN]:
        table.add_row(
            Text(str(episode.get("episode_index"))),
            Text(aligned_text(episode.get("reward"), decimals)),
            Text(str(episode.get("steps"))),
            Text(inert_text(str(episode.get("failure") or ""), 40), style="red"),
        )
    if len(episodes) > _EPISODES_SHOWN:
        left = f"{len(episodes) - _EPISODES_SHOWN} more in {path_text(submission.path / 'feedback.json')}"
        return Group(table, Text(inert_text(left), style="dim"))
    return table


def _artifacts(submission: SubmissionRecord, *, narrow: bool) -> RenderableType | None:
    artifacts = submission.artifacts
    if not artifacts:
        return None
    table = Table(box=None, padding=(0, 1), pad_edge=False, header_style="dim")
    table.add_column("Artifact", overflow="fold")
    table.add_column("Size", justify="right", no_wrap=True)
    if not narrow:
        table.add_column("Path", overflow="fold")
    for artifact in artifacts:
        where = path_text(artifact.path) if artifact.path else "evicted or missing"
        cells = [Text(inert_text(artifact.name, 120)), Text(_bytes(artifact.size)), Text(inert_text(where))]
        table.add_row(*(cells[:2] if narrow else cells))
    if narrow:
        return Group(table, Text(inert_text(f"in {path_text(submission.path / 'artifacts')}"), style="dim"))
    return table


def _bytes(size: int) -> str:
    if size < 1024:
        return f"{size} B"
    return f"{size / 1024:.1f} KiB" if size < 1024**2 else f"{size / 1024**2:.1f} MiB"
