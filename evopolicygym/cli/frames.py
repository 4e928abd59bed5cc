"""Draws a Run: the frame of the live display and the summary at the end. All text from the Run is shown inert."""

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from rich.console import Group, RenderableType
from rich.progress_bar import ProgressBar
from rich.rule import Rule
from rich.table import Column, Table
from rich.text import Text

from evopolicygym.analysis import PairedChange
from evopolicygym.cli.numbers import (
    aligned_text,
    clock_text,
    column_decimals,
    counted,
    duration_text,
    short_signed_text,
    signed_text,
)
from evopolicygym.cli.policy_errors import ErrorGroup, error_line
from evopolicygym.cli.recorded import Changes
from evopolicygym.cli.run_view import Progress, RunView, SubmissionRow, sparkline
from evopolicygym.run.console import inert_text, score_text

_NARROW = 64
# Of a table without borders, between two cells.
_CELL_PADDING = 2
# Title, place, rule, three bars, the running Evaluation, what is left out, the table's head, the cursor.
_HEAD_LINES = 10
_LEAST_ROWS = 3
_BAR_WIDTH = 32
_ERRORS_SHOWN = 3
_GOOD, _BAD, _QUIET, _STRONG = "green", "red", "dim", "bold"
# What needs no further word: the Agent handed off, or the user ended it.
_PLAIN_ENDS = ("handed_off", "finished", "interrupted")
_PHASES = {
    "preparing": "preparing",
    "agent": "Agent at work",
    "selection": "selecting",
    "validation": "Validation",
    "assessment": "Assessment",
    "ended": "ended",
}


def live_frame(
    view: RunView,
    record: Path | None,
    *,
    width: int,
    height: int,
    now_ns: int,
    errors: Sequence[ErrorGroup] = (),
) -> RenderableType:
    """One frame of the live display.

    Args:
        view: the Run so far.
        record: its directory.
        errors: Policy errors of the published Submissions, most frequent first.
        width, height: of the terminal, in cells.
        now_ns: the Host's monotonic clock.
    """
    head: list[RenderableType] = [_header(view, record, width)]
    if view.episode_budget:
        head.append(_bars(view, width, now_ns))
    if view.running is not None:
        head.append(_running_line(view.running, now_ns))
    foot: list[RenderableType] = [_curve(view, width)] if view.published else []
    foot.extend(_agent_lines(_usage(view), _inert(view.last_action or "", 200), width))
    if errors:
        foot.extend(_one_line(error_line(group)) for group in errors[:_ERRORS_SHOWN])
        if len(errors) > _ERRORS_SHOWN:
            foot.append(Text(f"and {len(errors) - _ERRORS_SHOWN} other kinds of Policy errors", style=_QUIET))
    elif view.policy_failures:
        foot.append(_line(f"Policy failures  {_failures(view)}", style=_BAD, width=width))
    if view.last_refusal:
        foot.append(_line(f"refused ×{view.refusals}  {view.last_refusal}", style="yellow", width=width))
    foot.extend(_line(f"note  {note}", style=_QUIET, width=width) for note in view.notices[-2:])
    foot.extend(_line(fault, style=_BAD, width=width) for fault in view.faults[-2:])
    if not view.submissions:
        return Group(*head, *foot)
    rows = max(_LEAST_ROWS, height - _HEAD_LINES - len(foot))
    return Group(*head, submissions_table(view, width=width, limit=rows), *foot)


def run_summary(
    view: RunView,
    record: Path,
    *,
    status: str | None = None,
    errors: Sequence[ErrorGroup] = (),
    diagnostics: Mapping[str, object] | None = None,
) -> RenderableType:
    """What became of a Run, in a screenful.

    Args:
        view: the Run.
        record: its directory.
        status: what to say in place of the terminal reason, such as ``"running"``.
        errors: Policy errors, most frequent first.
        diagnostics: as in ``run.json``.
    """
    title = Text.assemble(
        (_inert(view.benchmark_id or "Run", 60), _STRONG), "  ", (_outcome(view, status), _outcome_style(view, status))
    )
    facts = Table.grid(Column(style=_QUIET, no_wrap=True), Column(overflow="fold"), padding=(0, 2))
    for name, value in _facts(view, record, errors, diagnostics or {}):
        facts.add_row(name, value)
    return Group(title, facts)


def submissions_table(
    view: RunView,
    *,
    width: int,
    limit: int | None = None,
    changes: Mapping[str, Changes] | None = None,
    edits: Mapping[str, str] | None = None,
) -> RenderableType:
    """The Submissions, best one marked.

    Args:
        limit: most rows to show: the latest, and the best and the selected wherever they stand.
        changes: paired changes by Submission; shown as far as there is room.
        edits: kinds of edits by Submission; likewise.
    """
    best = view.best
    rows = list(view.submissions.values())
    shown = shown_rows(view, limit)
    columns = _columns(view, width, shown, changes or {}, edits or {})
    table = Table(box=None, padding=(0, 1), pad_edge=False, header_style=_QUIET)
    for column in columns:
        table.add_column(column.title, justify=column.justify, no_wrap=True)
    for row in shown:
        table.add_row(*(column.cell(row) for column in columns), style=_STRONG if row is best else "")
    if len(shown) < len(rows):
        left_out = len(rows) - len(shown)
        return Group(Text(f"{left_out} earlier Submissions not shown", style=_QUIET), table)
    return table


def path_text(path: Path) -> str:
    """A path as short as it can be typed from here."""
    absolute = str(path)
    relative = os.path.relpath(absolute)
    return relative if not relative.startswith(f"..{os.sep}..") and len(relative) < len(absolute) else absolute


def _header(view: RunView, record: Path | None, width: int) -> RenderableType:
    title = Text(no_wrap=True, overflow="ellipsis")
    title.append(_inert(view.benchmark_id or "…", 60), style=_STRONG)
    phase = _PHASES.get(view.phase, view.phase)
    agent = _inert(view.agent, 60)
    if agent and title.cell_len + len(agent) + len(phase) + 4 <= width:
        title.append(f"  {agent}")
    title.append(f"  {phase}", style="cyan")
    where = Text(inert_text(path_text(record)) if record else "", style=_QUIET, no_wrap=True, overflow="ellipsis")
    return Group(title, where, Rule(style=_QUIET, characters="─" if width else "-"))


def _bars(view: RunView, width: int, now_ns: int) -> RenderableType:
    bars = Table.grid(Column(no_wrap=True), Column(), Column(no_wrap=True, justify="right"), padding=(0, 2))
    bar_width = max(8, min(_BAR_WIDTH, width - 40))
    seconds = view.agent_seconds
    if seconds is None:
        started = view.agent_started_ns
        seconds = 0.0 if started is None else max(0.0, (now_ns - started) / 1e9)
    limit = view.agent_timeout_seconds
    for name, done, total, text in (
        ("Episodes", view.episodes_used, view.episode_budget, f"{view.episodes_used} / {view.episode_budget}"),
        (
            "Submissions",
            len(view.submissions),
            view.max_submissions,
            f"{len(view.submissions)} / {view.max_submissions}",
        ),
        ("Agent time", seconds, limit, f"{clock_text(seconds)} / {clock_text(limit)}"),
    ):
        bars.add_row(
            name,
            ProgressBar(
                total=max(total, 1e-9),
                completed=min(done, total),
                width=bar_width,
                complete_style="cyan",
                finished_style="cyan",
            ),
            text,
        )
    return bars


def _running_line(running: Progress, now_ns: int) -> RenderableType:
    elapsed = max(1e-9, (now_ns - running.started_ns) / 1e9)
    line = Text(no_wrap=True, overflow="ellipsis")
    line.append("▸ ", style="cyan")
    line.append(inert_text(running.title, 40), style=_STRONG)
    line.append(f"  {running.completed} of {counted(running.planned, 'Episode')}")
    if running.completed and elapsed > 0.2:
        rate = running.completed / elapsed
        line.append(f"  {rate:.0f}/s" if rate >= 10 else f"  {rate:.1f}/s", style=_QUIET)
        left = (running.planned - running.completed) / rate
        line.append(f"  {duration_text(left)} left", style=_QUIET)
    if running.failed:
        line.append(f"  {running.failed} failed", style=_BAD)
    return line


def _curve(view: RunView, width: int) -> RenderableType:
    scores = [row.score for row in view.published if row.score is not None]
    best = view.best
    if not scores or best is None:
        return Text("")
    line = Text(no_wrap=True, overflow="ellipsis")
    line.append(f"{_inert(view.primary_metric, 24)} ", style=_QUIET)
    line.append(sparkline(scores, width=max(8, width - 50)), style="cyan")
    line.append(f"  best {score_text(best.score)}", style=_GOOD)
    line.append(f"  first {score_text(scores[0])}", style=_QUIET)
    return line


@dataclass(frozen=True, slots=True)
class _Column:
    """One column; the higher its ``rank``, the sooner it is left out where there is no room for all."""

    title: str
    cell: Callable[[SubmissionRow], Text]
    justify: Literal["left", "right"] = "right"
    rank: int = 0


def _columns(
    view: RunView, width: int, rows: Sequence[SubmissionRow], changes: Mapping[str, Changes], edits: Mapping[str, str]
) -> list[_Column]:
    best, maximizes, narrow = view.best, view.maximizes, width < _NARROW
    decimals = column_decimals(row.score for row in rows)

    def name(row: SubmissionRow) -> Text:
        text = inert_text(row.submission_id, 40)
        if narrow:
            text = text.removeprefix("submission-").lstrip("0") or text
        return Text(f"{text}{' ★' if row is best else ''}")

    def against(which: Callable[[Changes], PairedChange | None]) -> Callable[[SubmissionRow], Text]:
        def cell(row: SubmissionRow) -> Text:
            found = changes.get(row.submission_id)
            return change_text(None if found is None else which(found), maximizes=maximizes)

        return cell

    columns = [
        _Column("#" if narrow else "Submission", name, "left"),
        _Column("Eps" if narrow else "Episodes", lambda row: Text(str(row.episodes)), rank=6),
        _Column("Score", lambda row: _score_cell(row, view, decimals)),
        _Column("Change", lambda row: _change_cell(row, decimals)),
        _Column("vs previous", against(lambda one: one.previous), rank=5),
        _Column("vs best", against(lambda one: one.best), rank=4),
        _Column("Failures", _failures_cell, rank=2 if any(row.policy_failures for row in rows) else 8),
        _Column("Edit", lambda row: Text(edits.get(row.submission_id, ""), style=_QUIET), "left", rank=7),
        _Column("Seconds", _seconds_cell, rank=9),
        _Column("", lambda row: Text(_role(row, view), style="cyan"), "left", rank=3),
    ]
    columns = [column for column in columns if not column.rank or any(column.cell(row).plain for row in rows)]
    while _table_width(columns, rows) > width and any(column.rank for column in columns):
        columns.remove(max(columns, key=lambda column: column.rank))
    return columns


def _table_width(columns: Sequence[_Column], rows: Sequence[SubmissionRow]) -> int:
    widths = (max(len(column.title), *(column.cell(row).cell_len for row in rows)) for column in columns)
    return sum(width + _CELL_PADDING for width in widths) - _CELL_PADDING


def _seconds_cell(row: SubmissionRow) -> Text:
    return Text("" if row.seconds is None else f"{row.seconds:.2f}")


def _score_cell(row: SubmissionRow, view: RunView, decimals: int | None) -> Text:
    if row.state == "running":
        return Text("…" if view.phase != "ended" else "lost", style=_QUIET)
    return Text("none", style=_BAD) if row.score is None else Text(aligned_text(row.score, decimals))


def _change_cell(row: SubmissionRow, decimals: int | None) -> Text:
    if row.change is None:
        return Text("")
    # Without a colour: the two scores may be of other Episodes; "vs previous" and "vs best" tell what is clear.
    return Text(signed_text(row.change, decimals))


def _failures_cell(row: SubmissionRow) -> Text:
    failures = row.policy_failures
    return Text("" if failures is None else str(failures), style=_BAD if failures else "")


def _role(row: SubmissionRow, view: RunView) -> str:
    if row.submission_id == view.selected:
        return "selected"
    if row.submission_id in view.candidates:
        return "candidate"
    return "initial Program" if row.program_digest and row.program_digest == view.program_digest else ""


def shown_rows(view: RunView, limit: int | None) -> Sequence[SubmissionRow]:
    """The latest Submissions, and the best and the selected one wherever they stand."""
    rows = list(view.submissions.values())
    if limit is None or len(rows) <= limit:
        return rows
    shown = rows[-limit:]
    wanted = [view.best, view.submissions.get(view.selected or "")]
    marked = [row for row in wanted if row is not None and row not in shown]
    marked = sorted({row.submission_id: row for row in marked}.values(), key=rows.index)
    return [*marked, *shown[len(marked) :]]


def _facts(
    view: RunView, record: Path, errors: Sequence[ErrorGroup], diagnostics: Mapping[str, object]
) -> list[tuple[str, Text]]:
    facts: list[tuple[str, Text]] = [("Record", Text(inert_text(path_text(record))))]
    best = view.best
    if best is not None:
        text = Text.assemble(
            ("best ", ""),
            (score_text(best.score), f"{_STRONG} {_GOOD}"),
            f" ({_inert(best.submission_id, 40)})",
        )
        initial, first = view.initial_score, view.published[0].score
        text.append(
            f", initial Program {score_text(initial)}" if initial is not None else f", first {score_text(first)}"
        )
        text.append(f"  {sparkline([row.score or 0.0 for row in view.published], width=40)}", style="cyan")
        facts.append(("Training", text))
    facts.extend(_diagnostics_facts(diagnostics))
    if view.episode_budget:
        used = f"{view.episodes_used} of {counted(view.episode_budget, 'Episode')}, "
        used += f"{len(view.submissions)} of {counted(view.max_submissions, 'Submission')}"
        facts.append(("Budget", Text(used)))
    agent = _inert(view.agent, 60)
    if view.agent_end:
        agent += f", {_inert(view.agent_end.replace('_', ' '), 40)}"
    if view.agent_seconds is not None:
        agent += f" after {duration_text(view.agent_seconds)}"
    usage = _usage(view)
    if agent or usage:
        facts.append(("Agent", Text(agent + (f"; {usage}" if usage else ""))))
    if view.agent_message and view.agent_end not in _PLAIN_ENDS and view.terminal_reason != "finished":
        facts.append(("", Text(_inert(view.agent_message, 300), style="yellow")))
    if errors:
        lines = [error_line(group, 120) for group in errors[:_ERRORS_SHOWN]]
        if len(errors) > _ERRORS_SHOWN:
            lines.append(Text(f"and {len(errors) - _ERRORS_SHOWN} other kinds", style=_QUIET))
        facts.extend(("" if index else "Policy errors", line) for index, line in enumerate(lines))
    elif view.policy_failures:
        facts.append(("Policy failures", Text(_failures(view), style=_BAD)))
    if view.refusals:
        facts.append(
            ("Refused", Text(f"{counted(view.refusals, 'request')}, the last: {_inert(view.last_refusal or '', 200)}"))
        )
    if view.validation:
        facts.extend(_validation_facts(view))
    if view.selected:
        how = {"validation": "by Validation", "only_candidate": "the only candidate"}.get(view.selected_by or "", "")
        host = ", handed off by the Host" if view.handed_off_by == "host" else ""
        facts.append(("Selected", Text(f"{_inert(view.selected, 40)}{f' ({how}{host})' if how else ''}")))
    if view.assessment_score is not None:
        facts.append(("Assessment", _assessment_fact(view)))
    if view.seed_strength == "derivable":
        note = 'the run seed is small: hidden Episodes can be derived from what a Policy sees; use seed = "random"'
        facts.append(("Note", Text(note, style="yellow")))
    facts.extend(("Note", Text(_inert(note, 300), style="yellow")) for note in view.notices[-5:])
    facts.extend(("Fault", Text(_inert(fault, 600), style=_BAD)) for fault in view.faults[-5:])
    return facts


def _diagnostics_facts(diagnostics: Mapping[str, object]) -> list[tuple[str, Text]]:
    curve, edits = diagnostics.get("trajectory"), diagnostics.get("edits")
    facts: list[tuple[str, Text]] = []
    if isinstance(curve, Mapping):
        half, most = curve.get("episodes_to_half_gain"), curve.get("episodes_to_most_gain")
        if half is not None and most is not None:
            area, gain = curve.get("score_area"), curve.get("gain_area")
            text = f"50 % of the gain after {half} Episodes, 80 % after {most}; mean best score over the budget "
            text += score_text(area)
            text += f" ({100 * gain:.0f} % of the gain)" if isinstance(gain, int | float) else ""
            facts.append(("Trajectory", Text(inert_text(text, 200))))
        gaps = [
            f"{whose} score equal to {than}"
            if not gap
            else f"{whose} score {score_text(abs(gap))} {'better' if gap > 0 else 'worse'} than {than}"
            for key, whose, than in (
                ("validation_gap", "training", "Validation"),
                ("heldout_gap", "best training", "held-out"),
            )
            if isinstance(gap := curve.get(key), int | float)
        ]
        if gaps:
            facts.append(("Gaps", Text(inert_text(", ".join(gaps), 200))))
    if isinstance(edits, Mapping) and edits:
        told = [f"{number} {'unchanged' if kind == 'none' else kind}" for kind, number in edits.items()]
        facts.append(("Edits", Text(inert_text(", ".join(told), 200))))
    return facts


def _validation_facts(view: RunView) -> list[tuple[str, Text]]:
    facts: list[tuple[str, Text]] = []
    for row in view.validation.values():
        label = "" if facts else "Validation"
        text = f"{_inert(row.submission_id, 40)}  {score_text(row.score)}"
        if row.policy_failures:
            text += f"  {row.policy_failures} failed"
        if not facts:
            text += f"  on {view.validation_episodes} private Episodes"
        facts.append((label, Text(text, style=_STRONG if row.submission_id == view.selected else "")))
    return facts


def _assessment_fact(view: RunView) -> Text:
    text = Text.assemble((score_text(view.assessment_score), f"{_STRONG} {_GOOD}"))
    text.append(f" on {view.assessment_episodes} held-out Episodes")
    if view.assessment_failures:
        text.append(f", {view.assessment_failures} failed", style=_BAD)
    whose, before = "initial Program", view.initial_score
    if before is None and view.published:
        whose, before = "first Submission", view.published[0].score
    score = view.assessment_score
    if before is not None and score is not None:
        text.append(f"; the {whose} had {score_text(before)} in training")
        if view.maximizes and before > 0 and score > 0:
            text.append(f" ({score / before:.1f}×)", style=_GOOD if score > before else "")
    return text


def _agent_lines(usage: str, action: str, width: int) -> list[RenderableType]:
    """One line, or two where one has no room for both."""
    label = "Agent  "
    if usage and action and len(label) + len(usage) + 2 + min(len(action), 40) > width:
        action_line = Text(" " * len(label), no_wrap=True, overflow="ellipsis").append(action, style="cyan")
        return [*_agent_lines(usage, "", width), action_line]
    if not usage and not action:
        return []
    line = Text(label, style=_QUIET, no_wrap=True, overflow="ellipsis")
    line.append(usage, style="not dim")
    line.append("  " if usage and action else "")
    line.append(action, style="not dim cyan")
    return [line]


def _one_line(text: Text) -> Text:
    text.no_wrap, text.overflow = True, "ellipsis"
    return text


def _usage(view: RunView) -> str:
    counts = (view.input_tokens, view.cached_tokens, view.output_tokens, view.cost_usd)
    return usage_text(view.turns, view.tool_calls, *counts)


def usage_text(
    turns: int | None,
    tool_calls: int | None,
    input_tokens: int | None,
    cached_tokens: int | None,
    output_tokens: int | None,
    cost_usd: float | None,
) -> str:
    """``"3 turns, 7 tool calls, 12k tokens in (9k cached), 1k out, $0.12"``; what is not known or zero is left out."""
    parts = []
    if turns:
        parts.append(counted(turns, "turn"))
    if tool_calls:
        parts.append(counted(tool_calls, "tool call"))
    if input_tokens or output_tokens:
        cached = f" ({_short(cached_tokens)} cached)" if cached_tokens else ""
        parts.append(f"{_short(input_tokens or 0)} tokens in{cached}, {_short(output_tokens or 0)} out")
    if cost_usd:
        parts.append(f"${cost_usd:.2f}")
    return ", ".join(parts)


def change_text(change: PairedChange | None, *, maximizes: bool, words: bool = False) -> Text:
    """``+3.2 (+1.1 … +5)``: green if clearly better, red if clearly worse, dim if it may be noise.

    Args:
        change: None if the two share no Episode.
        maximizes: whether a higher reward is meant to be better.
        words: say it as a sentence, for a place where there is room.
    """
    if change is None:
        return Text("no Episode in common" if words else "", style=_QUIET)
    if change.mean is None:
        return Text("no Episode that both completed" if words else "", style=_QUIET)
    better = (change.mean > 0) == maximizes
    text = Text(short_signed_text(change.mean), style=(_GOOD if better else _BAD) if change.is_clear else _QUIET)
    if change.low is not None and change.high is not None:
        text.append(f" ({short_signed_text(change.low)} … {short_signed_text(change.high)})")
    if words:
        text.append(f" mean reward on {counted(change.pairs, 'shared Episode')}")
        if change.left_out:
            text.append(f", {change.left_out} left out where a Policy failed")
        if change.low is not None and not change.is_clear:
            text.append("; no difference" if change.low == change.high == 0 else "; may be noise")
    return text


def _short(number: int) -> str:
    return str(number) if number < 10_000 else f"{number / 1000:.0f}k" if number < 10**6 else f"{number / 1e6:.1f}M"


def _failures(view: RunView) -> str:
    ordered = sorted(view.policy_failures.items(), key=lambda item: -item[1])
    return ", ".join(f"{_inert(code, 40)} ×{count}" for code, count in ordered)


def _outcome(view: RunView, status: str | None) -> str:
    return _inert((view.terminal_reason or status or view.phase).replace("_", " "), 40)


def _outcome_style(view: RunView, status: str | None) -> str:
    if view.terminal_reason == "finished":
        return f"{_STRONG} {_GOOD}"
    return "cyan" if status == "running" else f"{_STRONG} {_BAD}"


def _line(text: str, *, style: str, width: int) -> Text:
    return Text(inert_text(text, max(20, 2 * width)), style=style, no_wrap=True, overflow="ellipsis")


def _inert(text: str, limit: int) -> str:
    return inert_text(text, limit)
