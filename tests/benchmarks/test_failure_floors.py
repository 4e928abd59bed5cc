"""What a failed Episode counts: never more than a finished one."""

from pathlib import Path

import gymnasium
import pytest

from evopolicygym.benchmarks.failure_floors import FAILURE_FLOORS, FailureFloor, known_failure_return
from evopolicygym.benchmarks.gymnasium import GymnasiumBenchmark
from evopolicygym.errors import BenchmarkError

DOCS = Path(__file__).parents[2] / "docs" / "gymnasium.md"


@pytest.mark.parametrize(
    ("env_id", "limit", "floor"),
    [
        ("CartPole-v1", 500, 0.0),
        ("Acrobot-v1", 500, -500.0),
        ("MountainCar-v0", 200, -200.0),
        ("MountainCarContinuous-v0", 999, -100.0),
        ("Pendulum-v1", 200, -3254.8),
        ("FrozenLake-v1", 100, 0.0),
        ("Blackjack-v1", 50, -1.0),
        ("Taxi-v4", 200, -2000.0),
        ("CliffWalking-v1", 100, -10000.0),
        ("CarRacing-v3", 1000, -200.1),
    ],
)
def test_the_floor_follows_the_step_limit(env_id, limit, floor):
    assert FAILURE_FLOORS[env_id].at(limit) == floor
    assert FAILURE_FLOORS[env_id].at(2 * limit) <= floor


WORST_KNOWN_ACTIONS = {
    "CartPole-v1": 0,
    "Acrobot-v1": 1,
    "MountainCar-v0": 1,
    "MountainCarContinuous-v0": [-1.0],
    "Pendulum-v1": [2.0],
    "Taxi-v4": 5,
    "CliffWalking-v1": 1,
    "FrozenLake-v1": 0,
}


# Which version of an environment there is depends on Gymnasium's.
@pytest.mark.parametrize("env_id", [env_id for env_id in WORST_KNOWN_ACTIONS if env_id in gymnasium.registry])
def test_a_bad_policy_never_falls_below_the_floor(env_id):
    benchmark = GymnasiumBenchmark(env_id, max_episode_steps=40)
    floor = benchmark.spec.environment_parameters["failure_return"]

    for episode in benchmark.episodes("train", seed=0, count=5):
        environment = benchmark.make_environment(episode)
        environment.reset()
        total = 0.0
        done = False
        while not done:
            step = environment.step(WORST_KNOWN_ACTIONS[env_id])
            total += step.reward
            done = step.done
        environment.close()
        assert total >= floor


def test_an_argument_that_leaves_the_bound_alone_keeps_the_floor():
    benchmark = GymnasiumBenchmark("FrozenLake-v1", env_kwargs={"map_name": "8x8", "is_slippery": False})

    assert benchmark.spec.environment_parameters["failure_return"] == 0.0


def test_an_argument_that_changes_rewards_needs_a_failure_return():
    with pytest.raises(BenchmarkError, match="CartPole-v1 needs failure_return"):
        GymnasiumBenchmark("CartPole-v1", env_kwargs={"sutton_barto_reward": True})
    benchmark = GymnasiumBenchmark("CartPole-v1", env_kwargs={"sutton_barto_reward": True}, failure_return=-1)

    assert benchmark.spec.environment_parameters["failure_return"] == -1.0


def test_an_id_that_was_registered_anew_has_no_floor():
    assert (
        known_failure_return("CartPole-v1", entry_point="mine:CartPole", argument_names=(), max_episode_steps=500)
        is None
    )


def test_the_documentation_holds_the_same_table():
    assert documented_rows() in DOCS.read_text(encoding="utf-8")


def documented_rows() -> str:
    """The rows of the table; environments with the same floor share one."""
    ids: dict[FailureFloor, list[str]] = {}
    for env_id, floor in FAILURE_FLOORS.items():
        ids.setdefault(floor, []).append(env_id)
    return "\n".join(
        f"| {quoted(names)} | {formula(floor)} | {quoted(unaffected(floor))} | {floor.reason} |"
        for floor, names in ids.items()
    )


def unaffected(floor: FailureFloor) -> list[str]:
    return sorted(floor.unaffected_by)


def quoted(names: list[str]) -> str:
    return ", ".join(f"`{name}`" for name in names) or "none"


def formula(floor: FailureFloor) -> str:
    """``"-0.1 - 0.1 × steps"`` and its kind."""
    if not floor.per_step:
        return f"{floor.fixed:g}"
    part = f"{abs(floor.per_step):g} × steps"
    return f"{floor.fixed:g} - {part}" if floor.fixed else f"-{part}"
