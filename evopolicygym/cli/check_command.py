"""``evopolicygym check``: is the Benchmark sound, is the Program admitted, and do they get through an Episode?"""

import os
import sys
from collections.abc import Sequence
from pathlib import Path

from rich.console import Group, RenderableType
from rich.table import Column, Table
from rich.text import Text

from evopolicygym.authoring import BenchmarkFixture, ConformanceIssue, check_benchmark
from evopolicygym.cli.consoles import result_console, show
from evopolicygym.cli.documents import CheckedEpisode, CheckReport
from evopolicygym.cli.evaluate_command import policy_error_groups
from evopolicygym.cli.failures import EXIT_ENDED_OTHERWISE, EXIT_FINISHED
from evopolicygym.cli.numbers import counted
from evopolicygym.cli.policy_errors import ErrorGroups, error_line
from evopolicygym.cli.recorded_episodes import RecordingBenchmark
from evopolicygym.cli.report import error_entries, print_json
from evopolicygym.cli.settings import load_settings
from evopolicygym.evaluation import Evaluator, plan_episodes
from evopolicygym.run.console import inert_text, score_text
from evopolicygym.spec import ResolvedEvaluation, load_spec

# Actions of an Episode that the conformance check plays again, twice.
_FIXTURE_ACTIONS = 200


def check_spec(path: Path, overrides: Sequence[str], *, as_json: bool) -> int:
    """Check the Benchmark's conformance, the Program's admission, and play one Episode of each split in use.

    Returns:
        The exit code: 0 only if nothing was found.

    Raises:
        SpecError: the spec is wrong, or the Program is not admitted.
        EvaluationError: the Benchmark or an Environment failed during an Episode.
    """
    load_settings().set_workers()
    resolved = load_spec(path, overrides).resolve_evaluation()
    episodes, fixtures, errors = _play(resolved)
    issues = check_benchmark(resolved.benchmark, fixtures=fixtures).issues
    report: CheckReport = {
        "schema": "evopolicygym/check-report/v1",
        "passed": not issues and all(one["failure"] is None for one in episodes),
        "benchmark_id": resolved.benchmark.spec.id,
        "program_digest": resolved.program.digest,
        "program_files": resolved.program.file_count,
        "program_bytes": resolved.program.total_bytes,
        "episodes": episodes,
        "issues": [{"code": issue.code, "message": issue.message} for issue in issues],
        "policy_errors": error_entries(errors.ranked),
    }
    if as_json:
        print_json(report)
    else:
        _show(report, issues, errors)
    return EXIT_FINISHED if report["passed"] else EXIT_ENDED_OTHERWISE


def _play(resolved: ResolvedEvaluation) -> tuple[list[CheckedEpisode], list[BenchmarkFixture], ErrorGroups]:
    config = resolved.config
    splits = [config.split]
    splits += [phase.split for phase in (config.validation, config.assessment) if phase is not None]
    recording = RecordingBenchmark(resolved.benchmark)
    played: list[CheckedEpisode] = []
    fixtures: list[BenchmarkFixture] = []
    errors = ErrorGroups()
    with Evaluator(
        recording,
        resolved.execution,
        episode_timeout_seconds=config.episode_timeout_seconds,
        environment_timeout_seconds=config.environment_timeout_seconds,
        on_notice=_note,
    ) as evaluator:
        for split in dict.fromkeys(splits):
            seed = int.from_bytes(os.urandom(8), "big")
            plan = plan_episodes(resolved.benchmark, split=split, master_seed=seed, count=1)
            evaluation = evaluator.evaluate(resolved.program, plan)
            summary = evaluation.episodes[0]
            played.append(
                {
                    "split": split,
                    "status": summary.status,
                    "reward": summary.reward,
                    "steps": summary.steps,
                    "failure": summary.failure,
                }
            )
            for group in policy_error_groups(evaluation):
                errors.add(group.to_json(), group.count)
            (record,) = recording.records
            actions = tuple(transition.action for transition in record.transitions[:_FIXTURE_ACTIONS])
            fixtures.append(BenchmarkFixture(record.episode, actions))
    return played, fixtures, errors


def _show(report: CheckReport, issues: Sequence[ConformanceIssue], errors: ErrorGroups) -> None:
    grid = Table.grid(Column(no_wrap=True), Column(style="dim", no_wrap=True), Column(overflow="fold"), padding=(0, 2))
    good, bad = Text("ok", style="green"), Text("bad", style="red")
    files = counted(report["program_files"], "file")
    grid.add_row(good, "Program", Text(f"{files}, {report['program_bytes']} bytes, {report['program_digest'][:19]}…"))
    for episode in report["episodes"]:
        told = f"{inert_text(episode['split'], 40)}: "
        steps = counted(episode["steps"], "step")
        told += f"reward {score_text(episode['reward'])}, {steps}" if episode["failure"] is None else episode["failure"]
        grid.add_row(good if episode["failure"] is None else bad, "Episode", Text(told))
    kept = (
        "it keeps the Benchmark contract"
        if not issues
        else f"{counted(len(issues), 'way')} in which it breaks the contract"
    )
    grid.add_row(bad if issues else good, "Benchmark", Text(f"{inert_text(report['benchmark_id'], 80)}: {kept}"))
    parts: list[RenderableType] = [grid]
    if errors.ranked:
        parts.append(Group(Text("Policy errors", style="bold"), *map(error_line, errors.ranked)))
    if issues:
        lines = [Text.assemble((issue.code, "bold"), f"  {inert_text(issue.message, 1000)}") for issue in issues]
        parts.append(Group(Text("Broken promises", style="bold"), *lines))
    show(result_console(), *parts)


def _note(message: str) -> None:
    sys.stderr.write(f"note: {inert_text(message, 1000)}\n")
