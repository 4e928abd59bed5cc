"""Plans are pure, checked, and carry the seeds that everybody can derive."""

from dataclasses import dataclass

import pytest
from benchmarks_for_tests import EchoBenchmark

from evopolicygym.authoring import EpisodeSpec
from evopolicygym.errors import BenchmarkError
from evopolicygym.evaluation import Cancellation, EvaluationConfig, plan_episodes, plan_pool


def test_policy_seeds_are_the_published_ones() -> None:
    planned = plan_episodes(EchoBenchmark(), split="train", master_seed=42, count=4)
    assert planned[3].policy_seed == 10710544709411615356
    pool = plan_pool(EchoBenchmark(), split="train", run_seed=42, size=6)
    assert pool[5].policy_seed == 17254460676015203078


def test_the_benchmark_is_asked_once_with_the_derived_seed() -> None:
    asked: list[tuple[str, int, int]] = []

    class Asked(EchoBenchmark):
        def episodes(self, split: str, *, seed: int, count: int) -> list[EpisodeSpec]:
            asked.append((split, seed, count))
            return super().episodes(split, seed=seed, count=count)

    plan_pool(Asked(), split="train", run_seed=42, size=3)
    plan_episodes(Asked(), split="test", master_seed=42, count=2)
    assert asked == [("train", 18379659693720673948, 3), ("test", 42, 2)]


@dataclass
class Planning(EchoBenchmark):
    planned: object = None

    def episodes(self, split: str, *, seed: int, count: int) -> list[EpisodeSpec]:
        return self.planned  # type: ignore[return-value]  # on purpose


@pytest.mark.parametrize(
    ("planned", "told"),
    [
        (None, "must return a sequence of EpisodeSpec, not NoneType"),
        ([EpisodeSpec(1)], "returned 1 Episodes, not the 2 asked for"),
        ([EpisodeSpec(1), 2], "must hold EpisodeSpec values, not int"),
    ],
)
def test_a_wrong_plan_is_a_benchmark_error(planned: object, told: str) -> None:
    with pytest.raises(BenchmarkError, match=told):
        plan_episodes(Planning(planned=planned), split="train", master_seed=1, count=2)


def test_what_is_no_benchmark_is_a_type_error() -> None:
    with pytest.raises(TypeError, match="is no Benchmark: it lacks spec, episodes, make_environment, feedback"):
        plan_episodes(object(), split="train", master_seed=1, count=1)  # type: ignore[arg-type]  # on purpose


@pytest.mark.parametrize(
    "wrong",
    [
        {"episodes": 0},
        {"episodes": True},
        {"episodes": 1.0},
        {"seed": -1},
        {"seed": 2**64},
        {"split": ""},
        {"split": None},
        {"episode_timeout_seconds": 0},
        {"episode_timeout_seconds": float("inf")},
        {"episode_timeout_seconds": "30"},
        {"episode_timeout_seconds": True},
    ],
)
def test_a_bad_config_is_a_value_error(wrong: dict[str, object]) -> None:
    with pytest.raises(ValueError, match=next(iter(wrong))):
        EvaluationConfig(**wrong)  # type: ignore[arg-type]  # on purpose


def test_the_config_has_the_published_defaults() -> None:
    config = EvaluationConfig()
    assert (config.split, config.episodes, config.seed, config.episode_timeout_seconds) == ("validation", 1, 0, 30.0)
    assert config == EvaluationConfig(episode_timeout_seconds=30)
    assert hash(config) == hash(EvaluationConfig())


def test_a_cancellation_stays_cancelled() -> None:
    import select

    with Cancellation() as cancellation:
        assert select.select([cancellation], [], [], 0)[0] == []
        cancellation.cancel()
        cancellation.cancel()
        assert select.select([cancellation], [], [], 0)[0] == [cancellation]
        assert cancellation.cancelled
    assert cancellation.cancelled
