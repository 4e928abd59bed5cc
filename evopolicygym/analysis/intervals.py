"""Intervals that keep noise from being read as progress."""

import math
import random
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

__all__ = ["LEAST_VALUES", "PairedChange", "mean_interval", "paired_change", "resamples_for"]

LEAST_VALUES = 4
"""With fewer values an interval says nothing."""

_CONFIDENCE = 0.95
_RESAMPLES = 2000
_LEAST_RESAMPLES = 200
_SEED = 20260207


@dataclass(frozen=True, slots=True)
class PairedChange:
    """How much better one Program is than another on the very same Episodes.

    Args:
        pairs: Episodes that both completed.
        left_out: Episodes that both played and at least one of them failed, so that there is no reward to compare.
        mean: mean difference of the rewards, after minus before; None if there is no pair.
        low, high: 95 % bootstrap interval of that mean; None for fewer than four pairs.
    """

    pairs: int
    left_out: int
    mean: float | None
    low: float | None = None
    high: float | None = None

    @property
    def is_clear(self) -> bool:
        """Whether the interval leaves zero out."""
        return self.low is not None and self.high is not None and (self.low > 0 or self.high < 0)

    def to_json(self) -> dict[str, object]:
        """The values as a JSON object."""
        return {
            "pairs": self.pairs,
            "left_out": self.left_out,
            "mean": self.mean,
            "interval_95": None if self.low is None else [self.low, self.high],
        }


def paired_change(
    before: Mapping[int, float | None], after: Mapping[int, float | None], *, resamples: int = _RESAMPLES
) -> PairedChange | None:
    """Compare two Programs on the Episodes that both played.

    The interval is that of the percentile bootstrap (Efron 1979) over Episodes, with a fixed seed: the same values
    give the same interval.

    Args:
        before, after: reward by Episode index; None where the Policy failed.
        resamples: how often the differences are drawn anew.

    Returns:
        None if no Episode is shared.
    """
    shared = sorted(before.keys() & after.keys())
    if not shared:
        return None
    differences = []
    for index in shared:
        first, second = before[index], after[index]
        if first is not None and second is not None:
            differences.append(second - first)
    left_out = len(shared) - len(differences)
    if not differences:
        return PairedChange(0, left_out, None)
    mean = math.fsum(differences) / len(differences)
    if len(differences) < LEAST_VALUES:
        return PairedChange(len(differences), left_out, mean)
    low, high = _bootstrap(differences, resamples)
    return PairedChange(len(differences), left_out, mean, low, high)


def resamples_for(comparisons: int, episodes: int) -> int:
    """How many resamples keep many comparisons quick: a fraction of a second of work, and no fewer than 200.

    Args:
        comparisons: how many intervals are wanted.
        episodes: Episodes in each.
    """
    return max(_LEAST_RESAMPLES, min(_RESAMPLES, 1_500_000 // max(1, comparisons * episodes)))


def mean_interval(values: Sequence[float]) -> tuple[float, float] | None:
    """The 95 % interval of a mean by Student's t; None for fewer than four values.

    The quantile of t is expanded from the normal one (Abramowitz and Stegun, 26.7.5).
    """
    count = len(values)
    if count < LEAST_VALUES:
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


def _bootstrap(values: Sequence[float], resamples: int) -> tuple[float, float]:
    count = len(values)
    if min(values) == max(values):
        return values[0], values[0]
    drawn = random.Random(_SEED).choices(values, k=count * resamples)
    means = sorted(sum(drawn[start : start + count]) / count for start in range(0, len(drawn), count))
    tail = (1 - _CONFIDENCE) / 2
    last = resamples - 1
    return means[math.floor(tail * last)], means[math.ceil((1 - tail) * last)]
