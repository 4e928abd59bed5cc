"""What random actions earn in a Gymnasium environment: a first idea of how bad a return can be."""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from evopolicygym.benchmarks.failure_floors import known_failure_return
from evopolicygym.benchmarks.gymnasium import find_environment
from evopolicygym.errors import BenchmarkError

__all__ = ["RandomPlay", "random_returns"]

ASSUMED_STEP_LIMIT = 1000
"""For an id that is registered without one."""


@dataclass(frozen=True, slots=True)
class RandomPlay:
    """Episodes of random actions.

    Args:
        returns: of each Episode; at least one.
        max_episode_steps: the limit in force.
        step_limit_assumed: whether the id is registered without one.
        known_failure_return: the documented floor of the id, None if there is none.
    """

    returns: Sequence[float]
    max_episode_steps: int
    step_limit_assumed: bool
    known_failure_return: float | None


def random_returns(env_id: str, *, episodes: int, seconds: float = 20.0) -> RandomPlay:
    """Play random Episodes, fixed by their numbers as seeds.

    Args:
        env_id: as for ``GymnasiumBenchmark``.
        episodes: how many.
        seconds: after so long no further Episode is begun.

    Raises:
        BenchmarkError: the id is unknown, or the environment cannot be made or fails.
    """
    import gymnasium

    registered = find_environment(env_id)
    limit = registered.max_episode_steps or ASSUMED_STEP_LIMIT
    try:
        environment: gymnasium.Env[Any, Any] = gymnasium.make(
            registered, max_episode_steps=limit, disable_env_checker=True
        )
        try:
            returns = _play(environment, episodes, limit, seconds)
        finally:
            environment.close()
    except Exception as error:
        raise BenchmarkError(f"{registered.id}: random play failed: {type(error).__name__}: {error}") from error
    floor = known_failure_return(
        registered.id,
        entry_point=registered.entry_point,
        argument_names=registered.kwargs,
        max_episode_steps=limit,
    )
    return RandomPlay(returns, limit, registered.max_episode_steps is None, floor)


def _play(environment: Any, episodes: int, limit: int, seconds: float) -> list[float]:
    returns: list[float] = []
    deadline = time.monotonic() + seconds
    environment.action_space.seed(0)
    for number in range(episodes):
        environment.reset(seed=number)
        total = 0.0
        for _ in range(limit):
            _, reward, terminated, truncated, _ = environment.step(environment.action_space.sample())
            total += float(reward)
            if terminated or truncated:
                break
        returns.append(total)
        if time.monotonic() > deadline:
            break
    return returns
