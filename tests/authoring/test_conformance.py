"""check_benchmark: silent about a good Benchmark, and a stable code for each broken promise."""

import itertools
import sys
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from evopolicygym.authoring import (
    Benchmark,
    BenchmarkFixture,
    BenchmarkSpec,
    Environment,
    EpisodeRecord,
    EpisodeSpec,
    Feedback,
    InvalidAction,
    Step,
    check_benchmark,
)
from evopolicygym.errors import BenchmarkError


class Walk:
    """Walk right from 0 until the goal, or for 5 steps."""

    def __init__(self, episode: EpisodeSpec) -> None:
        self.goal = 1 + episode.environment_seed % 3
        self.place = 0
        self.steps = 0

    def reset(self) -> Any:
        return self.place

    def step(self, action: Any) -> Any:
        if type(action) is not int or action not in (0, 1):
            raise InvalidAction
        self.place += action
        self.steps += 1
        arrived = self.place == self.goal
        return Step(self.place, float(arrived), arrived, self.steps >= 5)

    def close(self) -> None:
        pass


class Walks:
    """A Benchmark without a fault."""

    environment: Callable[[EpisodeSpec], Any] = Walk

    @property
    def spec(self) -> Any:
        return BenchmarkSpec("tests/walks", "Walk right.", {}, {}, {}, 5, "mean_return", "maximize")

    def episodes(self, split: str, *, seed: int, count: int) -> Any:
        if split not in ("train", "validation", "test"):
            raise ValueError(f"unknown split {split!r}")
        return tuple(EpisodeSpec(seed + number) for number in range(count))

    def make_environment(self, episode: EpisodeSpec) -> Any:
        return type(self).environment(episode)

    def feedback(self, records: Sequence[EpisodeRecord]) -> Any:
        returns = [0.0 if record.policy_failure else record.total_reward for record in records]
        return Feedback(sum(returns) / len(returns))


FIXTURES = (
    BenchmarkFixture(EpisodeSpec(1), (1, 1, 0, 1)),
    BenchmarkFixture(EpisodeSpec(2), (0, 0, 0, 0, 0, 0)),
    BenchmarkFixture(EpisodeSpec(3), (1, "left", 1)),
)


def with_environment(**members: Any) -> Walks:
    changed = type("Changed", (Walk,), members)
    return type("Changed", (Walks,), {"environment": changed})()  # type: ignore[no-any-return]  # a Walks


def with_benchmark(**members: Any) -> Walks:
    return type("Changed", (Walks,), members)()  # type: ignore[no-any-return]  # a Walks


def failing(*arguments: object, **named: object) -> Any:
    raise RuntimeError("boom")


def codes(benchmark: Any, fixtures: Sequence[BenchmarkFixture] = FIXTURES) -> set[str]:
    return {issue.code for issue in check_benchmark(benchmark, fixtures=fixtures).issues}


def test_the_interfaces_are_structural() -> None:
    assert isinstance(Walks(), Benchmark)
    assert isinstance(Walk(EpisodeSpec(1)), Environment)
    assert not isinstance(Walk(EpisodeSpec(1)), Benchmark)


def test_a_good_benchmark_passes() -> None:
    report = check_benchmark(Walks(), fixtures=FIXTURES)
    assert (report.benchmark_id, report.issues, report.passed) == ("tests/walks", (), True)
    report.raise_for_errors()


def test_a_benchmark_without_every_split_passes() -> None:
    def episodes(self: Walks, split: str, *, seed: int, count: int) -> Any:
        if split != "train":
            raise ValueError("only train")
        return [EpisodeSpec(seed + number) for number in range(count)]

    assert codes(with_benchmark(episodes=episodes)) == set()


def test_every_environment_is_closed_once() -> None:
    closed: list[Walk] = []
    made: list[Walk] = []

    def make(self: Walks, episode: EpisodeSpec) -> Walk:
        made.append(Walk(episode))
        made[-1].close = lambda one=made[-1]: closed.append(one)  # type: ignore[method-assign, misc]  # to watch it
        return made[-1]

    assert codes(with_benchmark(make_environment=make)) == set()
    assert closed == made
    assert len(made) == 2 * len(FIXTURES)


def test_an_environment_that_changes_its_action_changes_no_fixture() -> None:
    def step(self: Walk, action: Any) -> Step:
        action.append(0)
        return Step(None, len(action), True)

    fixture = BenchmarkFixture(EpisodeSpec(1), ([1],))
    assert codes(with_environment(step=step), (fixture,)) == set()
    assert fixture.actions == ([1],)


def lazy_plan(self: Walks, split: str, *, seed: int, count: int) -> Any:
    return (EpisodeSpec(seed + number) for number in range(count))


def plan_of_seeds(self: Walks, split: str, *, seed: int, count: int) -> Any:
    return list(range(count))


def short_plan(self: Walks, split: str, *, seed: int, count: int) -> Any:
    return [EpisodeSpec(seed)]


def changing_plan(self: Any, split: str, *, seed: int, count: int, numbers: Any = itertools.count()) -> Any:  # noqa: B008  # shared on purpose
    return [EpisodeSpec(next(numbers)) for _ in range(count)]


def endless_step(self: Walk, action: Any) -> Step:
    return Step(0, 0.0, False)


def changing_step(self: Any, action: Any, numbers: Any = itertools.count()) -> Step:  # noqa: B008  # shared on purpose
    return Step(next(numbers), 0.0, True)


def changing_feedback(self: Any, records: Any, numbers: Any = itertools.count()) -> Feedback:  # noqa: B008  # shared on purpose
    return Feedback(next(numbers))


def feedback_without_failures(self: Walks, records: Sequence[EpisodeRecord]) -> Feedback:
    return Feedback(sum(record.total_reward / record.steps for record in records))


@pytest.mark.parametrize(
    ("benchmark", "code"),
    [
        (object(), "missing_member"),
        (with_benchmark(spec=property(failing)), "spec_failed"),
        (with_benchmark(spec={"id": "tests/walks"}), "spec_type"),
        (with_benchmark(spec=None), "spec_type"),
        (Walks, "spec_type"),
        (with_benchmark(episodes=failing), "episodes_failed"),
        (with_benchmark(episodes=lambda self, split, seed: []), "episodes_failed"),
        (with_benchmark(episodes=lazy_plan), "episodes_type"),
        (with_benchmark(episodes=plan_of_seeds), "episodes_type"),
        (with_benchmark(episodes=short_plan), "episodes_count"),
        (with_benchmark(episodes=changing_plan), "episodes_not_deterministic"),
        (with_benchmark(make_environment=failing), "make_environment_failed"),
        (with_benchmark(make_environment=lambda self, episode: None), "missing_member"),
        (with_environment(reset=failing), "reset_failed"),
        (with_environment(reset=lambda self: {1, 2}), "reset_failed"),
        (with_environment(reset=lambda self: float("nan")), "reset_failed"),
        (with_environment(reset=None), "reset_failed"),
        (with_environment(step=failing), "step_failed"),
        (with_environment(step=lambda self, action: sys.exit()), "step_failed"),
        (with_environment(step=lambda self, action: Step(0, float("nan"), False)), "step_failed"),
        (with_environment(step=lambda self, action: (0, 0.0, False, False, {})), "step_type"),
        (with_environment(step=endless_step), "too_many_steps"),
        (with_environment(step=changing_step), "not_deterministic"),
        (with_environment(close=failing), "close_failed"),
        (with_environment(close=None), "close_failed"),
        (with_environment(close=property(failing)), "close_failed"),
        (with_benchmark(feedback=failing), "feedback_failed"),
        (with_benchmark(feedback=lambda self, records: 1.0), "feedback_type"),
        (with_benchmark(feedback=changing_feedback), "feedback_not_deterministic"),
        (with_benchmark(feedback=feedback_without_failures), "feedback_of_failures_failed"),
    ],
)
def test_a_broken_promise_has_its_code(benchmark: Any, code: str) -> None:
    assert code in codes(benchmark)


def test_a_benchmark_that_fails_while_it_says_why_is_reported_too() -> None:
    class MuteError(Exception):
        pass

    def mute(self: Walks, episode: EpisodeSpec) -> Any:
        raise MuteError

    report = check_benchmark(with_benchmark(make_environment=mute), fixtures=FIXTURES)
    assert report.issues[0].message == "fixture 0: make_environment raised MuteError"


def test_every_missing_member_is_named() -> None:
    report = check_benchmark(object(), fixtures=FIXTURES)  # type: ignore[arg-type]  # that is the point
    told = " ".join(issue.message for issue in report.issues)
    assert all(member in told for member in ("spec", "episodes", "make_environment", "feedback"))


def test_a_failed_report_raises_every_issue_at_once() -> None:
    report = check_benchmark(with_benchmark(feedback=failing, episodes=failing), fixtures=FIXTURES)
    assert not report.passed
    with pytest.raises(BenchmarkError, match=r"tests/walks breaks .*\n.*episodes_failed.*\n.*feedback_failed"):
        report.raise_for_errors()


@pytest.mark.parametrize("fixtures", [(), []])
def test_no_fixtures_are_a_value_error(fixtures: Any) -> None:
    with pytest.raises(ValueError, match="at least one BenchmarkFixture"):
        check_benchmark(Walks(), fixtures=fixtures)


def test_fixtures_may_come_from_a_generator() -> None:
    lazy: Any = (fixture for fixture in FIXTURES)
    broken = with_environment(step=failing)
    assert len(check_benchmark(broken, fixtures=lazy).issues) == len(check_benchmark(broken, fixtures=FIXTURES).issues)


@pytest.mark.parametrize("fixture", [None, (EpisodeSpec(1), (1,)), EpisodeSpec(1)])
def test_a_fixture_of_another_type_is_a_type_error(fixture: Any) -> None:
    with pytest.raises(TypeError, match="must hold BenchmarkFixture"):
        check_benchmark(Walks(), fixtures=(fixture,))


@pytest.mark.parametrize("fields", [(1, ()), (EpisodeSpec(1), None), (EpisodeSpec(1), "ab"), (EpisodeSpec(1), ({1},))])
def test_a_fixture_with_a_wrong_field_is_a_type_error(fields: Any) -> None:
    with pytest.raises(TypeError, match=r"fixture|action"):
        BenchmarkFixture(*fields)


def test_actions_of_a_fixture_are_detached() -> None:
    actions: Any = [[1]]
    fixture = BenchmarkFixture(EpisodeSpec(1), actions)
    actions[0].append(2)
    assert fixture.actions == ([1],)
