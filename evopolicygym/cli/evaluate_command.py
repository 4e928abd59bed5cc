"""``evopolicygym evaluate``: one Program on fresh Episodes, or two on the same ones, without any Agent."""

import contextlib
import statistics
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from rich.console import Group, RenderableType
from rich.table import Column, Table
from rich.text import Text

from evopolicygym.analysis import PairedChange, mean_interval, paired_change
from evopolicygym.cli.consoles import can_animate, result_console, show
from evopolicygym.cli.documents import EvaluationReport, ProgramEvaluation
from evopolicygym.cli.evaluation_display import EvaluationDisplay, Playing
from evopolicygym.cli.frames import change_text
from evopolicygym.cli.numbers import aligned_text, column_decimals, digest_text, duration_text, signed_text
from evopolicygym.cli.policy_errors import ErrorGroup, error_line, feedback_groups
from evopolicygym.cli.references import program_reference
from evopolicygym.cli.report import change_entry, error_entries, print_json
from evopolicygym.cli.settings import load_settings
from evopolicygym.evaluation import Evaluation, Evaluator, plan_episodes
from evopolicygym.policy_json import to_json
from evopolicygym.program import Program
from evopolicygym.record import visible_diagnostics
from evopolicygym.results import EpisodeSummary
from evopolicygym.run.console import inert_text, score_text
from evopolicygym.spec import ResolvedEvaluation, load_spec

_EPISODES_SHOWN = 20


@dataclass(frozen=True, slots=True)
class Evaluated:
    """One Program and what came of it."""

    label: str
    program: Program
    evaluation: Evaluation

    @property
    def rewards(self) -> dict[int, float | None]:
        """Reward by position; None where the Policy failed."""
        return {position: episode.reward for position, episode in enumerate(self.evaluation.episodes)}

    @property
    def groups(self) -> Sequence[ErrorGroup]:
        """Policy errors."""
        evaluation = self.evaluation
        return policy_error_groups(evaluation)


def evaluate_spec(
    path: Path,
    overrides: Sequence[str],
    program: Path | None,
    *,
    split: str,
    episodes: int,
    seed: int,
    against: str | None,
    as_json: bool,
) -> None:
    """Evaluate the spec's Program, or another, and print what came out.

    Args:
        against: another Program, ``RUN:SUBMISSION``, to compare with on the same Episodes.
    """
    load_settings().set_workers()
    other = None if against is None else program_reference(against)
    resolved = load_spec(path, overrides).resolve_evaluation(program)
    benchmark, config = resolved.benchmark, resolved.config
    plan = plan_episodes(benchmark, split=split, master_seed=seed, count=episodes)
    programs = [("the spec's Program" if program is None else str(program), resolved.program)]
    programs += [] if other is None else [other]
    playing = [Playing(label, episodes) for label, _ in programs]
    with (
        _display(playing),
        Evaluator(
            benchmark,
            resolved.execution,
            episode_timeout_seconds=config.episode_timeout_seconds,
            environment_timeout_seconds=config.environment_timeout_seconds,
            on_notice=_note,
        ) as evaluator,
    ):
        evaluated = [
            Evaluated(label, one, evaluator.evaluate(one, plan, on_episode=shown.on_episode))
            for (label, one), shown in zip(programs, playing, strict=True)
        ]
    theirs = evaluated[1] if len(evaluated) > 1 else None
    change = None if theirs is None else paired_change(theirs.rewards, evaluated[0].rewards)
    if as_json:
        print_json(_report(resolved, evaluated[0], theirs, change, split=split, seed=seed))
    else:
        _show(resolved, evaluated[0], theirs, change, split=split, seed=seed)


def policy_error_groups(evaluation: Evaluation) -> Sequence[ErrorGroup]:
    """Policy errors of an Evaluation, grouped."""
    indices = range(len(evaluation.episodes))
    told = visible_diagnostics(indices, evaluation.episodes, evaluation.diagnostics, policy_diagnostics="traceback")
    return feedback_groups(told)


def episode_rewards(episodes: Sequence[EpisodeSummary]) -> list[float]:
    """Rewards of the Episodes that completed."""
    return [episode.reward for episode in episodes if episode.reward is not None]


def _failures(evaluation: Evaluation) -> int:
    return sum(episode.failure is not None for episode in evaluation.episodes)


def _show(
    resolved: ResolvedEvaluation,
    ours: Evaluated,
    theirs: Evaluated | None,
    change: PairedChange | None,
    *,
    split: str,
    seed: int,
) -> None:
    spec = resolved.benchmark.spec
    title = Text.assemble((inert_text(spec.id, 80), "bold"), "  ")
    title.append(score_text(ours.evaluation.feedback.score), style="bold green")
    title.append(f" {inert_text(spec.primary_metric, 40)}", style="dim")
    facts = Table.grid(Column(style="dim", no_wrap=True), Column(overflow="fold"), padding=(0, 2))
    number = len(ours.evaluation.episodes)
    facts.add_row("Episodes", Text(f'{number} of split "{inert_text(split, 40)}", seed {seed}'))
    _add_program(facts, ours)
    parts: list[RenderableType] = []
    if theirs is not None:
        facts.add_row("", "")
        facts.add_row("Against", Text(inert_text(theirs.label, 200)))
        score = Text(score_text(theirs.evaluation.feedback.score), style="bold")
        facts.add_row("Score", score.append(f" {inert_text(spec.primary_metric, 40)}", style="not bold dim"))
        _add_program(facts, theirs)
        facts.add_row("", "")
        difference = change_text(change, maximizes=spec.score_direction != "minimize", words=True)
        facts.add_row("Difference", difference)
    parts.append(Group(title, facts))
    errors = [error_line(group) for group in ours.groups]
    if errors:
        parts.append(Group(Text("Policy errors", style="bold"), *errors))
    parts.append(_episodes(ours, theirs))
    show(result_console(), *parts)


def _add_program(facts: Table, evaluated: Evaluated) -> None:
    evaluation = evaluated.evaluation
    facts.add_row("Program", Text(digest_text(evaluated.program.digest)))
    rewards = episode_rewards(evaluation.episodes)
    failures = _failures(evaluation)
    if rewards:
        mean = f"mean {score_text(statistics.fmean(rewards))}"
        interval = mean_interval(rewards)
        if interval:
            mean += f" (95 % interval {score_text(interval[0])} to {score_text(interval[1])})"
        mean += f", {score_text(min(rewards))} to {score_text(max(rewards))}"
        facts.add_row("Reward", Text(mean + (" over the Episodes that did not fail" if failures else "")))
    facts.add_row("Failures", Text(str(failures), style="red" if failures else ""))
    rate = len(evaluation.episodes) / max(evaluation.seconds, 1e-9)
    facts.add_row("Time", Text(f"{duration_text(evaluation.seconds)} ({rate:.0f} Episodes/s)"))


def _episodes(ours: Evaluated, theirs: Evaluated | None) -> RenderableType:
    table = Table(box=None, padding=(0, 1), pad_edge=False, header_style="dim")
    for name in ("Episode", "Reward", "Steps"):
        table.add_column(name, justify="right", no_wrap=True)
    if theirs is not None:
        table.add_column("Against", justify="right", no_wrap=True)
        table.add_column("Difference", justify="right", no_wrap=True)
    table.add_column("", no_wrap=True)
    episodes = ours.evaluation.episodes
    others = () if theirs is None else theirs.evaluation.episodes
    decimals = column_decimals(one.reward for one in (*episodes[:_EPISODES_SHOWN], *others[:_EPISODES_SHOWN]))
    for position, episode in enumerate(episodes[:_EPISODES_SHOWN]):
        cells = [Text(str(position)), Text(aligned_text(episode.reward, decimals)), Text(str(episode.steps))]
        failure: str = episode.failure or ""
        if others:
            other = others[position]
            both = episode.reward is not None and other.reward is not None
            difference = (episode.reward or 0.0) - (other.reward or 0.0)
            cells += [
                Text(aligned_text(other.reward, decimals)),
                Text(signed_text(difference, decimals) if both else "–"),
            ]
            failure = failure or (f"other: {other.failure}" if other.failure else "")
        table.add_row(*cells, Text(inert_text(failure, 40), style="red"))
    left = len(episodes) - _EPISODES_SHOWN
    return Group(table, Text(f"{left} more; --json lists all", style="dim")) if left > 0 else table


def _report(
    resolved: ResolvedEvaluation,
    ours: Evaluated,
    theirs: Evaluated | None,
    change: PairedChange | None,
    *,
    split: str,
    seed: int,
) -> EvaluationReport:
    spec = resolved.benchmark.spec
    return {
        "schema": "evopolicygym/evaluation-report/v1",
        "benchmark_id": spec.id,
        "environment_digest": spec.environment_digest,
        "split": split,
        "seed": seed,
        "primary_metric": spec.primary_metric,
        "score_direction": spec.score_direction,
        **_program_evaluation(ours),
        "against": None
        if theirs is None
        else {"evaluation": _program_evaluation(theirs), "paired": change_entry(change)},
    }


def _program_evaluation(evaluated: Evaluated) -> ProgramEvaluation:
    evaluation = evaluated.evaluation
    rewards = episode_rewards(evaluation.episodes)
    interval = mean_interval(rewards)
    return {
        "program": evaluated.label,
        "program_digest": evaluated.program.digest,
        "score": evaluation.feedback.score,
        "mean_reward": statistics.fmean(rewards) if rewards else None,
        "mean_reward_interval_95": list(interval) if interval else None,
        "policy_failures": _failures(evaluation),
        "policy_errors": error_entries(evaluated.groups),
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
def _display(playing: Sequence[Playing]) -> Iterator[None]:
    if not can_animate(sys.stderr):
        yield
        return
    with EvaluationDisplay(playing):
        yield
