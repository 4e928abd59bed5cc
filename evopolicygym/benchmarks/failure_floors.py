"""What a failed Episode counts in well-known Gymnasium environments: a bound that no finished Episode is below.

A floor that is too kind lets a crash pay: a Policy that is losing could raise an exception and be better
off. So a floor stands here only where it follows from the reward function, and only for the environment's
own entry point, called with arguments that leave that bound alone.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

__all__ = ["FAILURE_FLOORS", "FailureFloor", "known_failure_return"]

_OWN_ENTRY_POINTS = "gymnasium.envs."


@dataclass(frozen=True, slots=True)
class FailureFloor:
    """A lower bound of the return, as a function of the step limit.

    Args:
        fixed: what is lost at most once in an Episode.
        per_step: what is lost at most in each step.
        unaffected_by: names of ``env_kwargs`` that leave the bound true.
        reason: why the bound holds, in one sentence.
    """

    fixed: float
    per_step: float
    unaffected_by: frozenset[str]
    reason: str

    def at(self, max_episode_steps: int) -> float:
        """The floor for Episodes of at most ``max_episode_steps`` steps."""
        return round(self.fixed + self.per_step * max_episode_steps, 6)


def _floor(fixed: float, per_step: float, reason: str, *unaffected_by: str) -> FailureFloor:
    return FailureFloor(fixed, per_step, frozenset(unaffected_by), reason)


_CART_POLE = _floor(0.0, 0.0, "every step rewards 1")
_MOUNTAIN_CAR = _floor(0.0, -1.0, "every step rewards -1", "goal_velocity")
_MOUNTAIN_CAR_CONTINUOUS = _floor(
    -0.1, -0.1, "a step costs at most 0.1 (0.1 times the squared action)", "goal_velocity"
)
_ACROBOT = _floor(0.0, -1.0, "a step rewards -1 or 0")
_PENDULUM = _floor(0.0, -16.274, "a step costs at most pi**2 + 0.1 * 8**2 + 0.001 * 2**2 = 16.2736", "g")
_BLACKJACK = _floor(-1.0, 0.0, "a hand loses at most 1", "natural", "sab")
_FROZEN_LAKE = _floor(0.0, 0.0, "a step rewards 0 or 1", "desc", "map_name", "is_slippery", "success_rate")
_CLIFF_WALKING = _floor(0.0, -100.0, "a step rewards -1 or, into the cliff, -100", "is_slippery")
_TAXI = _floor(
    0.0,
    -10.0,
    "a step costs at most 10 (an illegal pick-up or drop-off)",
    "is_rainy",
    "fickle_passenger",
    "rainy_probability",
    "fickle_probability",
)
_CAR_RACING = _floor(
    -100.1,
    -0.1,
    "a step costs 0.1, and leaving the playfield costs 100 and ends the Episode",
    "lap_complete_percent",
    "domain_randomize",
    "continuous",
)
_INVERTED_PENDULUM = _floor(0.0, 0.0, "a step rewards 0 or 1")

FAILURE_FLOORS: Mapping[str, FailureFloor] = MappingProxyType(
    {
        "CartPole-v0": _CART_POLE,
        "CartPole-v1": _CART_POLE,
        "MountainCar-v0": _MOUNTAIN_CAR,
        "MountainCarContinuous-v0": _MOUNTAIN_CAR_CONTINUOUS,
        "Acrobot-v1": _ACROBOT,
        "Pendulum-v1": _PENDULUM,
        "Blackjack-v1": _BLACKJACK,
        "FrozenLake-v1": _FROZEN_LAKE,
        "FrozenLake8x8-v1": _FROZEN_LAKE,
        "CliffWalking-v0": _CLIFF_WALKING,
        "CliffWalking-v1": _CLIFF_WALKING,
        "CliffWalkingSlippery-v1": _CLIFF_WALKING,
        "Taxi-v3": _TAXI,
        "Taxi-v4": _TAXI,
        "CarRacing-v3": _CAR_RACING,
        "InvertedPendulum-v4": _INVERTED_PENDULUM,
        "InvertedPendulum-v5": _INVERTED_PENDULUM,
    }
)


def known_failure_return(
    env_id: str, *, entry_point: object, argument_names: Iterable[str], max_episode_steps: int
) -> float | None:
    """The documented floor of an environment, None if there is none for it as it is asked for here.

    Args:
        env_id: the registered id.
        entry_point: what the id is registered with; an id that was registered anew has no floor.
        argument_names: the names of all constructor arguments, registered ones included.
        max_episode_steps: the step limit in force.
    """
    floor = FAILURE_FLOORS.get(env_id)
    if floor is None or not isinstance(entry_point, str) or not entry_point.startswith(_OWN_ENTRY_POINTS):
        return None
    if set(argument_names) - floor.unaffected_by - {"render_mode"}:
        return None
    return floor.at(max_episode_steps)
