"""``evopolicygym compare``: Runs side by side, what they have in common, and what keeps them from being compared."""

import csv
import os
import statistics
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from rich.console import Group, RenderableType
from rich.table import Column as GridColumn
from rich.table import Table
from rich.text import Text

from evopolicygym.analysis import PairedChange, mean_interval, paired_change
from evopolicygym.cli.columns import Column, fitted_table
from evopolicygym.cli.comparison import compared_run, differences, heldout_rewards, pairing_key, private_pairing_key
from evopolicygym.cli.consoles import result_console
from evopolicygym.cli.documents import ComparedRun, ComparisonReport, GroupEntry, PairEntry
from evopolicygym.cli.frames import change_text
from evopolicygym.cli.inspect_command import is_record
from evopolicygym.cli.numbers import aligned_text, column_decimals, counted
from evopolicygym.cli.pager import show_paged
from evopolicygym.cli.recorded import RecordedRun, open_recorded
from evopolicygym.cli.report import change_entry, print_json
from evopolicygym.errors import RecordError
from evopolicygym.run.console import inert_text, score_text


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
        _show(report, reference, {name: run.view.maximizes for name, run in zip(names, runs, strict=True)})


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
        "groups": _groups(compared, runs),
        "pairs": _pairs(runs, compared, reference),
        "differences": differences(runs),
        "warnings": _warnings(compared),
    }


def _groups(compared: Iterable[ComparedRun], runs: Mapping[str, RecordedRun]) -> list[GroupEntry]:
    members: dict[tuple[object, ...], list[ComparedRun]] = {}
    for one in compared:
        key = (one["benchmark_id"], one["environment_digest"], one["agent"], one["agent_settings"])
        members.setdefault(key, []).append(one)
    groups: list[GroupEntry] = []
    for group in members.values():
        measured = {one["run"]: one["assessment"] for one in group if one["assessment"] is not None}
        scores = list(measured.values())
        interval = mean_interval(scores)
        groups.append(
            {
                "benchmark_id": group[0]["benchmark_id"],
                "agent": group[0]["agent"],
                "agent_settings": group[0]["agent_settings"],
                "runs": len(group),
                "measured": len(scores),
                "mean_assessment": statistics.fmean(scores) if scores else None,
                "mean_assessment_interval_95": list(interval) if interval else None,
                "differ_in": list(differences({name: runs[name] for name in measured})),
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
        f"{one['run']}: {_end(one)}; no score of it is counted" for one in rows if one["infrastructure_failure"]
    ]
    derivable = [one["run"] for one in rows if one["seed_strength"] == "derivable"]
    if derivable:
        warnings.append(f"{', '.join(derivable)}: a small seed, so that hidden Episodes can be derived")
    return warnings


def _end(run: ComparedRun) -> str:
    """How a Run and its Agent ended."""
    same = run["agent_end"] in (None, run["outcome"])
    told = run["outcome"] if same else f"{run['outcome']}, its Agent: {run['agent_end']}"
    return told.replace("_", " ")


def _show(report: ComparisonReport, reference: str, maximizes: Mapping[str, bool]) -> None:
    width = result_console().width
    parts: list[RenderableType] = [_table(report["runs"], width)]
    if any(group["runs"] > 1 for group in report["groups"]):
        parts.append(_group_lines(report["groups"]))
    if report["pairs"]:
        parts.append(_pair_lines(report["pairs"], maximizes))
    else:
        parts.append(Text(inert_text(_why_unpaired(report, reference)), style="dim"))
    if report["differences"]:
        parts.append(_difference_lines(report["differences"]))
    if report["warnings"]:
        parts.append(Group(*(Text(inert_text(line), style="yellow") for line in report["warnings"])))
    show_paged(*parts)


def _why_unpaired(report: ComparisonReport, reference: str) -> str:
    if any(run["run"] == reference and run["infrastructure_failure"] for run in report["runs"]):
        return f"{reference} has no score that counts, so none is paired with it; --against names another Run."
    return (
        f"No other Run has played the Episodes of {reference}, so none is paired with it. Runs with equal run.seed "
        "share their Episodes; --against names another Run."
    )


def _table(runs: Sequence[ComparedRun], width: int) -> RenderableType:
    several = {key: len({str(run[key]) for run in runs}) > 1 for key in ("benchmark_id", "agent")}

    def words(title: str, values: Iterable[str]) -> Column:
        return Column(title, [Text(inert_text(value, 60)) for value in values])

    def numbers(title: str, values: Iterable[str], style: str = "") -> Column:
        return Column(title, [Text(value, style=style) for value in values], right=True)

    def scores(title: str, values: Iterable[float | None], style: str = "") -> Column:
        column = list(values)
        decimals = column_decimals(column)
        told = any(value is not None for value in column)
        return numbers(title, [aligned_text(value, decimals) if told else "" for value in column], style)

    outcomes = words("Outcome", [run["outcome"].replace("_", " ") for run in runs])
    for run, cell in zip(runs, outcomes.cells, strict=True):
        cell.stylize("green" if run["outcome"] == "finished" else "red")
    columns = [
        words("Run", [run["run"] for run in runs]),
        words("Benchmark", [run["benchmark_id"] if several["benchmark_id"] else "" for run in runs]),
        words("Agent", [run["agent"] if several["agent"] else "" for run in runs]),
        outcomes,
        scores("Held-out", [run["assessment"] for run in runs], "bold"),
        scores("Training", [run["best_training"] for run in runs]),
        scores("Valid.", [run["validation"] for run in runs]),
        scores("Gap", [run["heldout_gap"] for run in runs]),
        numbers("Episodes", [f"{run['episodes_spent']}/{run['episode_budget']}" for run in runs]),
        numbers("Subm.", [str(run["submissions"]) for run in runs]),
        scores("Mean best", [run["score_area"] for run in runs]),
        numbers("to 50 %", [_number(run["episodes_to_half_gain"]) for run in runs]),
        numbers("to 80 %", [_number(run["episodes_to_most_gain"]) for run in runs]),
        numbers("Tokens", [_number((run["input_tokens"] or 0) + (run["output_tokens"] or 0)) for run in runs]),
        numbers("Cost", [f"${run['cost_usd']:.2f}" if run["cost_usd"] else "" for run in runs]),
    ]
    return fitted_table(columns, width=width, least=3)


def _group_lines(groups: Sequence[GroupEntry]) -> RenderableType:
    lines = [Text("Held-out, mean over Runs", style="bold")]
    for group in groups:
        settings = f" ({group['agent_settings']})" if group["agent_settings"] else ""
        line = Text(f"{inert_text(group['benchmark_id'], 60)}, {inert_text(group['agent'] + settings, 200)}: ")
        line.append(score_text(group["mean_assessment"]), style="bold")
        interval = group["mean_assessment_interval_95"]
        if interval:
            line.append(f" (95 % interval {score_text(interval[0])} to {score_text(interval[1])})")
        line.append(f" over {counted(group['measured'], 'Run')}")
        left_out = group["runs"] - group["measured"]
        line.append(f", {left_out} without a score" if left_out else "", style="yellow")
        apart = group["differ_in"]
        line.append(f"; they differ in {inert_text(', '.join(apart), 200)}" if apart else "", style="yellow")
        lines.append(line)
    return Group(*lines)


def _pair_lines(pairs: Sequence[PairEntry], maximizes: Mapping[str, bool]) -> RenderableType:
    grid = Table.grid(
        GridColumn(overflow="fold"), GridColumn(style="dim", no_wrap=True), GridColumn(overflow="fold"), padding=(0, 2)
    )
    for pair in pairs:
        told = pair["change"]
        low, high = told["interval_95"] or (None, None)
        change = PairedChange(told["pairs"], told["left_out"], told["mean"], low, high)
        text = change_text(change, maximizes=maximizes[pair["run"]], words=True)
        grid.add_row(Text(inert_text(pair["run"], 60)), pair["episodes"], text)
    return Group(Text(f"On the same Episodes, against {inert_text(pairs[0]['against'], 60)}", style="bold"), grid)


def _difference_lines(found: Mapping[str, Mapping[str, Sequence[str]]]) -> RenderableType:
    grid = Table.grid(
        GridColumn(style="yellow"), GridColumn(overflow="fold"), GridColumn(overflow="fold"), padding=(0, 2)
    )
    for name, values in found.items():
        for index, (value, runs) in enumerate(values.items()):
            told = (Text("" if index else name), Text(inert_text(value, 60)), Text(inert_text(", ".join(runs), 300)))
            grid.add_row(*told)
    return Group(Text("These Runs differ in", style="bold"), grid)


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
