"""``evopolicygym evaluate``: one Program on fresh Episodes, without any Agent."""

import contextlib
import json
import math
import statistics
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from rich.console import Group
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Column, Table
from rich.text import Text

from evopolicygym.cli.consoles import can_animate, message_console, result_console, show
from evopolicygym.cli.inspect_command import error_line
from evopolicygym.cli.settings import load_settings
from evopolicygym.evaluation import EpisodeCompleted, Evaluation, Evaluator, plan_episodes
from evopolicygym.policy_json import to_json
from evopolicygym.record import visible_diagnostics
from evopolicygym.run.console import inert_text, score_text
from evopolicygym.spec import ResolvedEvaluation, load_spec

REPORT_SCHEMA = "evopolicygym/evaluation-report/v1"

_CONFIDENCE = 0.95


def evaluate_spec(
    path: Path,
    overrides: Sequence[str],
    program: Path | None,
    *,
    split: str,
    episodes: int,
    seed: int,
    as_json: bool,
) -> None:
    """Evaluate the spec's Program, or another, and print what came out."""
    load_settings().set_workers()
    resolved = load_spec(path, overrides).resolve_evaluation(program)
    benchmark, config = resolved.benchmark, resolved.config
    plan = plan_episodes(benchmark, split=split, master_seed=seed, count=episodes)
    with (
        _progress(episodes) as on_episode,
        Evaluator(
            benchmark,
            resolved.execution,
            episode_timeout_seconds=config.episode_timeout_seconds,
            environment_timeout_seconds=config.environment_timeout_seconds,
            on_notice=_note,
        ) as evaluator,
    ):
        evaluation = evaluator.evaluate(resolved.program, plan, on_episode=on_episode)
    if as_json:
        document = _document(resolved, evaluation, split=split, seed=seed)
        sys.stdout.write(json.dumps(document, indent=2, ensure_ascii=False, allow_nan=False) + "\n")
    else:
        _show(resolved, evaluation, split=split, seed=seed)


def mean_interval(values: Sequence[float]) -> tuple[float, float] | None:
    """The 95 % interval of a mean by Student's t; None for fewer than four values, where it says nothing.

    The quantile of t is expanded from the normal one (Abramowitz and Stegun, 26.7.5).
    """
    count = len(values)
    if count < 4:
        return None
    degrees = count - 1
    z = statistics.NormalDist().inv_cdf((1 + _CONFIDENCE) / 2)
    quantile = (
        z
        + (z**3 + z) / (4 * degrees)
        + (5 * z**5 + 16 * z**3 + 3 * z) / (96 * degrees**2)
        + (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / (384 * degrees**3)
    )
    half = quantile * statistics.stdev(values) / math.sqrt(count)
    mean = statistics.fmean(values)
    return mean - half, mean + half


def _rewards(evaluation: Evaluation) -> list[float]:
    return [episode.reward for episode in evaluation.episodes if episode.reward is not None]


def _failures(evaluation: Evaluation) -> int:
    return sum(episode.failure is not None for episode in evaluation.episodes)


def _show(resolved: ResolvedEvaluation, evaluation: Evaluation, *, split: str, seed: int) -> None:
    console = result_console()
    spec = resolved.benchmark.spec
    rewards = _rewards(evaluation)
    title = Text.assemble((inert_text(spec.id, 80), "bold"), "  ")
    title.append(score_text(evaluation.feedback.score), style="bold green")
    title.append(f" {inert_text(spec.primary_metric, 40)}", style="dim")
    facts = Table.grid(Column(style="dim", no_wrap=True), Column(overflow="fold"), padding=(0, 2))
    facts.add_row("Program", Text(resolved.program.digest))
    facts.add_row("Episodes", Text(f'{len(evaluation.episodes)} of split "{inert_text(split, 40)}", seed {seed}'))
    if rewards:
        mean = f"mean {score_text(statistics.fmean(rewards))}"
        interval = mean_interval(rewards)
        if interval:
            mean += f" (95 % interval {score_text(interval[0])} to {score_text(interval[1])})"
        mean += f", {score_text(min(rewards))} to {score_text(max(rewards))}"
        facts.add_row("Reward", Text(mean + (" over the Episodes that did not fail" if _failures(evaluation) else "")))
    facts.add_row("Failures", Text(str(_failures(evaluation)), style="red" if _failures(evaluation) else ""))
    rate = len(evaluation.episodes) / max(evaluation.seconds, 1e-9)
    facts.add_row("Seconds", Text(f"{evaluation.seconds:.2f} ({rate:.0f} Episodes/s)"))
    show(console, Group(title, facts, *map(error_line, _groups(evaluation))))


def _groups(evaluation: Evaluation) -> list[dict[str, object]]:
    indices = range(len(evaluation.episodes))
    told = visible_diagnostics(indices, evaluation.episodes, evaluation.diagnostics, policy_diagnostics="traceback")
    groups = told["groups"]
    return [group for group in groups if isinstance(group, dict)] if isinstance(groups, list) else []


def _document(resolved: ResolvedEvaluation, evaluation: Evaluation, *, split: str, seed: int) -> dict[str, object]:
    rewards = _rewards(evaluation)
    spec = resolved.benchmark.spec
    return {
        "schema": REPORT_SCHEMA,
        "benchmark_id": spec.id,
        "environment_digest": spec.environment_digest,
        "program_digest": resolved.program.digest,
        "split": split,
        "seed": seed,
        "primary_metric": spec.primary_metric,
        "score_direction": spec.score_direction,
        "score": evaluation.feedback.score,
        "mean_reward": statistics.fmean(rewards) if rewards else None,
        "mean_reward_interval_95": mean_interval(rewards),
        "policy_failures": _failures(evaluation),
        "policy_errors": _groups(evaluation),
        "content": to_json(evaluation.feedback.content),
        "seconds": evaluation.seconds,
        "episodes": [
            {"status": one.status, "reward": one.reward, "steps": one.steps, "failure": one.failure}
            for one in evaluation.episodes
        ],
    }


def _note(message: str) -> None:
    sys.stderr.write(f"note: {inert_text(message, 1000)}\n")


@contextlib.contextmanager
def _progress(episodes: int) -> Iterator[Callable[[EpisodeCompleted], None] | None]:
    if not can_animate(sys.stderr):
        yield None
        return
    columns = (TextColumn("Evaluating"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=message_console(), transient=True) as progress:
        task = progress.add_task("", total=episodes)

        def advance(_: EpisodeCompleted) -> None:
            progress.advance(task)

        yield advance
