"""Which Episodes an Evaluation runs: a pure function of Benchmark, split, seed and count."""

from collections.abc import Sequence
from dataclasses import dataclass

from evopolicygym.authoring import Benchmark, BenchmarkSpec, EpisodeSpec
from evopolicygym.authoring.interfaces import FAULTS, missing_members
from evopolicygym.errors import BenchmarkError
from evopolicygym.identities import policy_seed, training_policy_seed, training_pool_seed
from evopolicygym.policy import check_seed, type_name

__all__ = ["PlannedEpisode", "benchmark_spec", "plan_episodes", "plan_pool"]


@dataclass(frozen=True, slots=True)
class PlannedEpisode:
    """One Episode to run, and the seed of its Policy. Private.

    Args:
        episode: the Benchmark's own plan.
        policy_seed: unsigned 64-bit.
    """

    episode: EpisodeSpec
    policy_seed: int

    def __post_init__(self) -> None:
        if type(self.episode) is not EpisodeSpec:
            raise TypeError(f"episode must be EpisodeSpec, not {type_name(self.episode)}")
        check_seed(self.policy_seed, "policy_seed")


def plan_episodes(benchmark: Benchmark, *, split: str, master_seed: int, count: int) -> tuple[PlannedEpisode, ...]:
    """The Episodes of ``evaluate()``, Validation and Assessment.

    Raises:
        BenchmarkError: the Benchmark does not plan as it promises, or knows no such split.
    """
    episodes = _planned(benchmark, split, master_seed, count)
    return tuple(
        PlannedEpisode(episode, policy_seed(master_seed, position)) for position, episode in enumerate(episodes)
    )


def plan_pool(benchmark: Benchmark, *, split: str, run_seed: int, size: int) -> tuple[PlannedEpisode, ...]:
    """The training pool of a Run.

    Raises:
        BenchmarkError: the Benchmark does not plan as it promises, or knows no such split.
    """
    episodes = _planned(benchmark, split, training_pool_seed(run_seed), size)
    return tuple(
        PlannedEpisode(episode, training_policy_seed(run_seed, index)) for index, episode in enumerate(episodes)
    )


def benchmark_spec(benchmark: Benchmark) -> BenchmarkSpec:
    """The Benchmark's specification, checked.

    Raises:
        TypeError: it is no Benchmark.
        BenchmarkError: its ``spec`` cannot be had, or is no BenchmarkSpec.
    """
    missing = missing_members(benchmark, Benchmark)
    if missing:
        raise TypeError(f"{type_name(benchmark)} is no Benchmark: it lacks {', '.join(missing)}")
    try:
        spec = benchmark.spec
    except FAULTS as error:
        raise BenchmarkError(f"{type_name(benchmark)}.spec raised {type_name(error)}: {error}") from error
    if type(spec) is not BenchmarkSpec:
        raise BenchmarkError(f"{type_name(benchmark)}.spec must be BenchmarkSpec, not {type_name(spec)}")
    return spec


def _planned(benchmark: Benchmark, split: str, seed: int, count: int) -> Sequence[EpisodeSpec]:
    name = benchmark_spec(benchmark).id
    try:
        episodes = benchmark.episodes(split, seed=seed, count=count)
    except FAULTS as error:
        raise BenchmarkError(
            f"{name}: episodes({split!r}, count={count}) raised {type_name(error)}: {error}"
        ) from error
    if not isinstance(episodes, Sequence):
        raise BenchmarkError(f"{name}: episodes() must return a sequence of EpisodeSpec, not {type_name(episodes)}")
    if len(episodes) != count:
        raise BenchmarkError(
            f"{name}: episodes({split!r}) returned {len(episodes)} Episodes, not the {count} asked for"
        )
    for episode in episodes:
        if type(episode) is not EpisodeSpec:
            raise BenchmarkError(f"{name}: episodes() must hold EpisodeSpec values, not {type_name(episode)}")
    return episodes
