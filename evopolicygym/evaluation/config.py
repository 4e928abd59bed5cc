"""What `evaluate()` may be told."""

from dataclasses import dataclass
from math import isfinite

from evopolicygym.policy import check_seed, type_name

__all__ = ["EvaluationConfig", "check_seconds"]


@dataclass(frozen=True, slots=True, kw_only=True)
class EvaluationConfig:
    """Which Episodes to run, and for how long each.

    Args:
        split: the Benchmark split.
        episodes: how many, >= 1.
        seed: master seed of Episodes and Policies, unsigned 64-bit.
        episode_timeout_seconds: Policy time of one Episode, > 0: the time spent waiting for the Policy.

    Raises:
        ValueError: a bad value.
    """

    split: str = "validation"
    episodes: int = 1
    seed: int = 0
    episode_timeout_seconds: float = 30.0

    def __post_init__(self) -> None:
        if type(self.split) is not str or not self.split:
            raise ValueError(f"split must be a non-empty str, found {self.split!r}")
        if type(self.episodes) is not int or self.episodes < 1:
            raise ValueError(f"episodes must be an int >= 1, found {self.episodes!r}")
        check_seed(self.seed, "seed")
        seconds = check_seconds(self.episode_timeout_seconds, "episode_timeout_seconds")
        object.__setattr__(self, "episode_timeout_seconds", seconds)


def check_seconds(value: object, name: str) -> float:
    """``value`` as a float if it is a finite number > 0; else ValueError."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not isfinite(value) or value <= 0:
        found = repr(value) if isinstance(value, int | float) else type_name(value)
        raise ValueError(f"{name} must be a finite number of seconds > 0, found {found}")
    return float(value)
