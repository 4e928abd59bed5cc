"""``evopolicygym compare``: Runs side by side, what they have in common, and what keeps them from being compared."""

import csv
import os
import statistics
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from rich.console import Group, RenderableType
from rich.table import Column, Table
from rich.text import Text

from evopolicygym.analysis import PairedChange, mean_interval, paired_change
from evopolicygym.cli.comparison import compared_run, differences, heldout_rewards, pairing_key, private_pairing_key
from evopolicygym.cli.consoles import result_console
from evopolicygym.cli.documents import ComparedRun, ComparisonReport, GroupEntry, PairEntry
from evopolicygym.cli.frames import change_text
from evopolicygym.cli.inspect_command import is_record
from evopolicygym.cli.pager import show_paged
from evopolicygym.cli.recorded import RecordedRun, open_recorded
from evopolicygym.cli.report import change_entry, print_json
from evopolicygym.errors import RecordError
from evopolicygym.run.console import inert_text, score_text

_NARROW = 64


def compare_runs(paths: Sequence[Path], *, against: str | None, as_json: bool, as_csv: bool) -> None:
    """Compare the Runs of these Records; a folder stands for all Records in it.

    Args:
        paths: Records and folders of them.
        against: name or path of the Run that the others are paired with; the first if None.

    Raises:
        RecordError: there is no such Record, or not two of them.
    """
    if as_json and as_csv:
        raise RecordError("--json and --csv exclude each other; ask for one of them")
    records = list(_records(paths))
    if len(records) < 2:
        raise RecordError(f"a comparison needs two Records or more; found {len(records)}")
    runs = [open_recorded(path) for path in records]
    names = _names(records)
    reference = _reference(against, names, records)
    report = comparison(dict(zip(names, runs, strict=True)), reference)
    if as_json:
        print_json(report)
    elif as_csv:
        writer = csv.DictWriter(sys.stdout, list(report["runs"][0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(report["runs"])
    else:
        _show(report, {name: run.view.maximizes for name, run in zip(names, runs, strict=True)})


def comparison(runs: Mapping[str, RecordedRun], reference: str) -> ComparisonReport:
    """The whole comparison in JSON values.

    Args:
        runs: by name.
        reference: name of the Run that the others are paired with.
    """
    compared = [compared_run(name, run) for name, run in runs.items()]
    return {
        "schema": "evopolicygym/comparison/v1",
        "runs": compared,
        "groups": _groups(compared),
        "pairs": _pairs(runs, compared, reference),
        "differences": differences(runs),
        "warnings": _warnings(compared),
    }


def _groups(compared: Iterable[ComparedRun]) -> list[GroupEntry]:
    members: dict[tuple[str, str], list[ComparedRun]] = {}
    for one in compared:
        members.setdefault((one["benchmark_id"], one["agent"]), []).append(one)
    groups: list[GroupEntry] = []
    for (benchmark, agent), group in members.items():
        scores = [one["assessment"] for one in group if one["assessment"] is not None]
        interval = mean_interval(scores)
        groups.append(
            {
                "benchmark_id": benchmark,
                "agent": agent,
                "runs": len(group),
                "measured": len(scores),
                "mean_assessment": statistics.fmean(scores) if scores else None,
                "mean_assessment_interval_95": list(interval) if interval else None,
            }
        )
    return groups


def _pairs(runs: Mapping[str, RecordedRun], compared: Sequence[ComparedRun], reference: str) -> list[PairEntry]:
    sound = {one["run"] for one in compared if not one["infrastructure_failure"]}
    base = runs[reference]
    pairs: list[PairEntry] = []
    if reference not in sound:
        return pairs
    base_heldout = heldout_rewards(base)
    base_best = base.view.submissions.get(base.view.selected or "") or base.view.best
    for name, run in runs.items():
        if name == reference or name not in sound:
            continue
        if private_pairing_key(base) is not None and private_pairing_key(base) == private_pairing_key(run):
            change = change_entry(paired_change(base_heldout, heldout_rewards(run)))
            if change is not None:
                pairs.append({"run": name, "against": reference, "episodes": "held-out", "change": change})
        best = run.view.submissions.get(run.view.selected or "") or run.view.best
        if base_best is None or best is None or pairing_key(base) is None or pairing_key(base) != pairing_key(run):
            continue
        change = change_entry(paired_change(base.rewards(base_best.submission_id), run.rewards(best.submission_id)))
        if change is not None:
            pairs.append({"run": name, "against": reference, "episodes": "training", "change": change})
    return pairs


def _warnings(compared: Iterable[ComparedRun]) -> list[str]:
    rows = list(compared)
    warnings = [
        f"{one['run']}: {one['outcome'].replace('_', ' ')}; no score of it is counted"
        for one in rows
        if one["infrastructure_failure"]
    ]
    derivable = [one["run"] for one in rows if one["seed_strength"] == "derivable"]
    if derivable:
        warnings.append(f"{', '.join(derivable)}: a small seed, so that hidden Episodes can be derived")
    return warnings


def _show(report: ComparisonReport, maximizes: Mapping[str, bool]) -> None:
    width = result_console().width
    parts: list[RenderableType] = [_table(report["runs"], width)]
    if any(group["runs"] > 1 for group in report["groups"]):
        parts.append(_group_lines(report["groups"]))
    if report["pairs"]:
        parts.append(_pair_lines(report["pairs"], maximizes))
    if report["differences"]:
        parts.append(_difference_lines(report["differences"]))
    if report["warnings"]:
        parts.append(Group(*(Text(inert_text(line), style="yellow") for line in report["warnings"])))
    show_paged(*parts)


def _table(runs: Sequence[ComparedRun], width: int) -> RenderableType:
    several = {key: len({str(run[key]) for run in runs}) > 1 for key in ("benchmark_id", "agent")}
    columns: list[tuple[str, str, list[str]]] = [
        ("Run", "left", [run["run"] for run in runs]),
        ("Benchmark", "left", [run["benchmark_id"] if several["benchmark_id"] else "" for run in runs]),
        ("Agent", "left", [run["agent"] if several["agent"] else "" for run in runs]),
        ("Outcome", "left", [run["outcome"].replace("_", " ") for run in runs]),
        ("Held-out", "right", [score_text(run["assessment"]) for run in runs]),
        ("Training", "right", [score_text(run["best_training"]) for run in runs]),
        ("Valid.", "right", [_score(run["validation"]) for run in runs]),
        ("Gap", "right", [_score(run["heldout_gap"]) for run in runs]),
        ("Episodes", "right", [f"{run['episodes_spent']}/{run['episode_budget']}" for run in runs]),
        ("Subm.", "right", [str(run["submissions"]) for run in runs]),
        ("Mean best", "right", [_score(run["score_area"]) for run in runs]),
        ("to 50 %", "right", [_number(run["episodes_to_half_gain"]) for run in runs]),
        ("to 80 %", "right", [_number(run["episodes_to_most_gain"]) for run in runs]),
        ("Tokens", "right", [_number((run["input_tokens"] or 0) + (run["output_tokens"] or 0)) for run in runs]),
        ("Cost", "right", [f"${run['cost_usd']:.2f}" if run["cost_usd"] else "" for run in runs]),
    ]
    columns = [column for column in columns if any(column[2])]
    # Where there is no room for all, the right-hand ones go first.
    while len(columns) > 3 and _width(columns) > width:
        columns.pop()
    table = Table(box=None, padding=(0, 1), pad_edge=False, header_style="dim")
    for title, justify, _ in columns:
        table.add_column(title, justify="right" if justify == "right" else "left", overflow="fold")
    for index, run in enumerate(runs):
        cells = [Text(inert_text(values[index], 60)) for _, _, values in columns]
        for (title, _, _), cell in zip(columns, cells, strict=True):
            if title == "Outcome":
                cell.stylize("green" if run["outcome"] == "finished" else "red")
            elif title == "Held-out":
                cell.stylize("bold")
        table.add_row(*cells)
    return table


def _width(columns: Sequence[tuple[str, str, list[str]]]) -> int:
    return sum(2 + max(len(title), *map(len, values)) for title, _, values in columns) - 2


def _group_lines(groups: Sequence[GroupEntry]) -> RenderableType:
    lines = [Text("Held-out, mean over Runs", style="bold")]
    for group in groups:
        line = Text(f"{inert_text(group['benchmark_id'], 60)}, {inert_text(group['agent'], 60)}: ")
        line.append(score_text(group["mean_assessment"]), style="bold")
        interval = group["mean_assessment_interval_95"]
        if interval:
            line.append(f" (95 % interval {score_text(interval[0])} to {score_text(interval[1])})")
        line.append(f", {group['measured']} of {group['runs']} Runs measured", style="dim")
        lines.append(line)
    return Group(*lines)


def _pair_lines(pairs: Sequence[PairEntry], maximizes: Mapping[str, bool]) -> RenderableType:
    grid = Table.grid(
        Column(overflow="fold"), Column(style="dim", no_wrap=True), Column(overflow="fold"), padding=(0, 2)
    )
    for pair in pairs:
        told = pair["change"]
        low, high = told["interval_95"] or (None, None)
        change = PairedChange(told["pairs"], told["left_out"], told["mean"], low, high)
        text = change_text(change, maximizes=maximizes[pair["run"]], words=True)
        grid.add_row(Text(inert_text(pair["run"], 60)), pair["episodes"], text)
    return Group(Text(f"On the same Episodes, against {inert_text(pairs[0]['against'], 60)}", style="bold"), grid)


def _difference_lines(found: Mapping[str, Mapping[str, Sequence[str]]]) -> RenderableType:
    lines = [Text("These Runs differ in", style="bold")]
    for name, values in found.items():
        told = "; ".join(
            f"{inert_text(value, 60)}: {inert_text(', '.join(runs), 120)}" for value, runs in values.items()
        )
        lines.append(Text.assemble((f"{name}  ", "yellow"), told))
    return Group(*lines)


def _score(value: float | None) -> str:
    return "" if value is None else score_text(value)


def _number(value: int | None) -> str:
    if not value:
        return ""
    return str(value) if value < 100_000 else f"{value / 1000:.0f}k" if value < 10**7 else f"{value / 1e6:.1f}M"


def _records(paths: Sequence[Path]) -> Iterable[Path]:
    for path in paths:
        if path.is_dir() and not is_record(path):
            children = sorted(child for child in path.iterdir() if is_record(child))
            if not children:
                raise RecordError(f"{path} is no Record and holds none")
            yield from children
        else:
            yield path


def _names(records: Sequence[Path]) -> list[str]:
    """The last part of each path where that tells them apart, else as much of it as does."""
    resolved = [Path(os.path.abspath(path)) for path in records]  # noqa: PTH100  # links keep their names
    for length in range(1, 6):
        names = ["/".join(path.parts[-length:]) for path in resolved]
        if len(set(names)) == len(names):
            return names
    if len(set(resolved)) < len(resolved):
        raise RecordError("a Record is named twice; name each once")
    return [str(path) for path in resolved]


def _reference(against: str | None, names: Sequence[str], records: Sequence[Path]) -> str:
    if against is None:
        return names[0]
    for name, path in zip(names, records, strict=True):
        if against == name or Path(against).absolute() == path.absolute():
            return name
    raise RecordError(f"--against {against}: it is not one of the Runs compared, {', '.join(names)}")
