"""Draws a Run: the frame of the live display and the summary at the end. All text from the Run is shown inert."""

import os
from collections.abc import Sequence
from pathlib import Path

from rich.console import Group, RenderableType
from rich.progress_bar import ProgressBar
from rich.rule import Rule
from rich.table import Column, Table
from rich.text import Text

from evopolicygym.cli.run_view import Progress, RunView, SubmissionRow, sparkline
from evopolicygym.run.console import inert_text, score_text

_NARROW = 64
_FIXED_LINES = 13
_LEAST_ROWS = 3
_BAR_WIDTH = 32
_GOOD, _BAD, _QUIET, _STRONG = "green", "red", "dim", "bold"
_PHASES = {
    "preparing": "preparing",
    "agent": "Agent at work",
    "selection": "selecting",
    "validation": "Validation",
    "assessment": "Assessment",
    "ended": "ended",
}


def live_frame(view: RunView, record: Path | None, *, width: int, height: int, now_ns: int) -> RenderableType:
    """One frame of the live display.

    Args:
        view: the Run so far.
        record: its directory.
        width, height: of the terminal, in cells.
        now_ns: the Host's monotonic clock.
    """
    rows = max(_LEAST_ROWS, height - _FIXED_LINES)
    parts: list[RenderableType] = [_header(view, record, width), _bars(view, width, now_ns)]
    if view.running is not None:
        parts.append(_running_line(view.running, now_ns))
    if view.submissions:
        parts.append(submissions_table(view, width=width, limit=rows))
        parts.append(_curve(view, width))
    agent = _agent_line(view)
    if agent:
        parts.append(_line(f"Agent  {agent}", style="", width=width))
    if view.policy_failures:
        parts.append(_line(f"Policy failures  {_failures(view)}", style=_BAD, width=width))
    if view.last_refusal:
        parts.append(_line(f"refused ×{view.refusals}  {view.last_refusal}", style="yellow", width=width))
    parts.extend(_line(f"note  {note}", style=_QUIET, width=width) for note in view.notices[-2:])
    parts.extend(_line(fault, style=_BAD, width=width) for fault in view.faults[-2:])
    return Group(*parts)


def run_summary(view: RunView, record: Path, *, status: str | None = None) -> RenderableType:
    """What became of a Run, in a screenful.

    Args:
        view: the Run.
        record: its directory.
        status: what to say in place of the terminal reason, such as ``"running"``.
    """
    title = Text.assemble(
        (_inert(view.benchmark_id or "Run", 60), _STRONG), "  ", (_outcome(view, status), _outcome_style(view, status))
    )
    facts = Table.grid(Column(style=_QUIET, no_wrap=True), Column(overflow="fold"), padding=(0, 2))
    for name, value in _facts(view, record):
        facts.add_row(name, value)
    return Group(title, facts)


def submissions_table(view: RunView, *, width: int, limit: int | None = None) -> RenderableType:
    """The Submissions, best one marked.

    Args:
        limit: most rows to show: the latest, and the best wherever it stands.
    """
    narrow = width < _NARROW
    table = Table(box=None, padding=(0, 1), pad_edge=False, header_style=_QUIET)
    table.add_column("Submission", no_wrap=True)
    table.add_column("Episodes", justify="right")
    table.add_column("Score", justify="right", no_wrap=True)
    table.add_column("Change", justify="right", no_wrap=True)
    if not narrow:
        table.add_column("Failures", justify="right")
        table.add_column("Seconds", justify="right")
        table.add_column("", no_wrap=True)
    best = view.best
    rows = list(view.submissions.values())
    for row in _shown_rows(rows, best, limit):
        cells = _cells(row, view, is_best=row is best, narrow=narrow)
        table.add_row(*(cells[:4] if narrow else cells), style=_STRONG if row is best else "")
    left_out = len(rows) - min(len(rows), limit or len(rows))
    if left_out:
        return Group(Text(f"{left_out} earlier Submissions not shown", style=_QUIET), table)
    return table


def duration_text(seconds: float) -> str:
    """``"7 s"``, ``"3:07"`` or ``"1:03:07"``."""
    if seconds < 60:
        return f"{seconds:.1f} s" if seconds < 10 else f"{seconds:.0f} s"
    whole = int(seconds)
    hours, minutes, rest = whole // 3600, whole // 60 % 60, whole % 60
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"


def path_text(path: Path) -> str:
    """A path as short as it can be typed from here."""
    absolute = str(path)
    relative = os.path.relpath(absolute)
    return relative if not relative.startswith(f"..{os.sep}..") and len(relative) < len(absolute) else absolute


def _header(view: RunView, record: Path | None, width: int) -> RenderableType:
    title = Text(no_wrap=True, overflow="ellipsis")
    title.append(_inert(view.benchmark_id or "…", 60), style=_STRONG)
    if view.agent:
        title.append(f"  {_inert(view.agent, 60)}")
    title.append(f"  {_PHASES.get(view.phase, view.phase)}", style="cyan")
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
        ("Agent time", seconds, limit, f"{duration_text(seconds)} / {duration_text(limit)}"),
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
    line.append(f"  {running.completed} of {running.planned} Episodes")
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


def _cells(row: SubmissionRow, view: RunView, *, is_best: bool, narrow: bool) -> list[Text]:
    name = inert_text(row.submission_id, 40)
    if narrow:
        name = name.removeprefix("submission-").lstrip("0") or name
    if row.state == "running":
        score = Text("…" if view.phase != "ended" else "lost", style=_QUIET)
    elif row.score is None:
        score = Text("none", style=_BAD)
    else:
        score = Text(score_text(row.score))
    change = Text("")
    if row.change is not None:
        sign = "+" if row.change > 0 else "−" if row.change < 0 else "±"
        style = _GOOD if row.change > 0 else _QUIET
        change = Text(f"{sign}{score_text(abs(row.change))}" if row.change else "±0", style=style)
    failures = row.policy_failures
    return [
        Text(f"{name}{' ★' if is_best else ''}"),
        Text(str(row.episodes)),
        score,
        change,
        Text("" if failures is None else str(failures), style=_BAD if failures else ""),
        Text("" if row.seconds is None else f"{row.seconds:.2f}"),
        Text(_role(row, view), style="cyan"),
    ]


def _role(row: SubmissionRow, view: RunView) -> str:
    if row.submission_id == view.selected:
        return "selected"
    if row.submission_id in view.candidates:
        return "candidate"
    return "initial Program" if row.program_digest and row.program_digest == view.program_digest else ""


def _shown_rows(
    rows: Sequence[SubmissionRow], best: SubmissionRow | None, limit: int | None
) -> Sequence[SubmissionRow]:
    if limit is None or len(rows) <= limit:
        return rows
    shown = list(rows[-limit:])
    if best is not None and best not in shown:
        shown = [best, *shown[1:]]
    return shown


def _facts(view: RunView, record: Path) -> list[tuple[str, Text]]:
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
    used = f"{view.episodes_used} of {view.episode_budget} Episodes, "
    used += f"{len(view.submissions)} of {view.max_submissions} Submissions"
    facts.append(("Budget", Text(used)))
    agent = _inert(view.agent, 60)
    if view.agent_end:
        agent += f", {_inert(view.agent_end.replace('_', ' '), 40)}"
    if view.agent_seconds is not None:
        agent += f" after {duration_text(view.agent_seconds)}"
    usage = _usage(view)
    facts.append(("Agent", Text(agent + (f"; {usage}" if usage else ""))))
    if view.agent_message and view.terminal_reason != "finished":
        facts.append(("", Text(_inert(view.agent_message, 300), style="yellow")))
    if view.policy_failures:
        facts.append(("Policy failures", Text(_failures(view), style=_BAD)))
    if view.refusals:
        number = "1 request" if view.refusals == 1 else f"{view.refusals} requests"
        facts.append(("Refused", Text(f"{number}, the last: {_inert(view.last_refusal or '', 200)}")))
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


def _agent_line(view: RunView) -> str:
    return " · ".join(part for part in (_usage(view), _inert(view.last_action or "", 200)) if part)


def _usage(view: RunView) -> str:
    parts = []
    if view.turns:
        parts.append(f"{view.turns} turns")
    if view.tool_calls:
        parts.append(f"{view.tool_calls} tool calls")
    if view.input_tokens or view.output_tokens:
        parts.append(f"{_short(view.input_tokens or 0)} tokens in, {_short(view.output_tokens or 0)} out")
    if view.cost_usd:
        parts.append(f"${view.cost_usd:.2f}")
    return ", ".join(parts)


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
