"""How a budget of Episodes and Submissions becomes generations, candidates and a final: pure arithmetic."""

import math
from dataclasses import dataclass, replace

__all__ = ["Limits", "Plan", "default_population_size", "plan_search", "shares", "window"]

FINALIST_FACTOR = 3
"""A finalist plays this many times the Episodes of a candidate, since the best of many noisy scores flatters."""

TARGET_GENERATIONS = 25
"""Beyond it, more Episodes a candidate serve better than more generations."""

FEW_GENERATIONS = 6
"""The population shrinks until the budget pays for so many, but not below ``SMALLEST_POPULATION``."""

SMALLEST_POPULATION = 6
CANDIDATE_EPISODES_MAX = 64
"""Beyond it the noise of a mean is no longer what holds the search up."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What is left of a Run's budget.

    Args:
        episodes: Episodes that may still be charged.
        submissions: Submissions that may still be made.
        pool_size: Episodes in the pool.
        largest_submission: The most Episodes of one Submission.
        max_candidates: Submissions that may be handed off.
        spend_all: Whether finishing needs every Episode spent.
    """

    episodes: int
    submissions: int
    pool_size: int
    largest_submission: int
    max_candidates: int = 1
    spend_all: bool = False

    @property
    def least(self) -> int:
        """The fewest Episodes that the next Submission may take so that the rest can still all be spent."""
        if not self.spend_all:
            return 1
        return max(1, self.episodes - max(self.submissions - 1, 0) * self.largest_submission)

    @property
    def most(self) -> int:
        """The most Episodes that the next Submission may take."""
        return min(self.episodes, self.largest_submission) if self.submissions else 0

    def after(self, episodes: int) -> "Limits":
        """What is left after a Submission of so many Episodes."""
        return replace(self, episodes=self.episodes - episodes, submissions=self.submissions - 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """A search that fits a budget; the initial parameters are tried before it.

    Args:
        population_size: Candidates of one generation.
        candidates: Candidates in all; the last generation may be a part of one.
        episodes_per_candidate: Episodes of each candidate, and of the initial parameters.
        finalists: How many of the best are played again, on other Episodes.
        episodes_per_finalist: Episodes of each of them, if all goes to plan.
    """

    population_size: int
    candidates: int
    episodes_per_candidate: int
    finalists: int
    episodes_per_finalist: int

    @property
    def generations(self) -> int:
        """Whole generations."""
        return self.candidates // self.population_size


def default_population_size(dimension: int) -> int:
    """Candidates of a generation for so many parameters: 4 + floor(3 ln n) (Hansen, "The CMA Evolution Strategy")."""
    return 4 + int(3 * math.log(dimension))


def plan_search(
    limits: Limits,
    dimension: int,
    *,
    population_size: int | None = None,
    episodes_per_candidate: int | None = None,
    generations: int | None = None,
) -> Plan:
    """Divide a budget.

    Args:
        limits: The budget, at least one Episode and one Submission.
        dimension: How many parameters are tuned.
        population_size: Fixed by the caller, else chosen.
        episodes_per_candidate: Fixed by the caller (still cut to what the budget allows), else chosen.
        generations: The most generations.

    Returns:
        A plan whose Submissions and Episodes, the initial parameters included, fit the limits.
    """
    finalists = _finalists(limits)
    candidates = max(limits.submissions - 1 - finalists, 0)
    wanted = population_size or default_population_size(dimension)
    if generations is not None:
        candidates = min(candidates, wanted * generations)
    useful = min(candidates, wanted * TARGET_GENERATIONS)
    each = episodes_per_candidate or min(
        limits.episodes // (1 + useful + FINALIST_FACTOR * finalists), CANDIDATE_EPISODES_MAX
    )
    each = max(1, min(each, limits.most))
    if limits.episodes < each * (1 + FINALIST_FACTOR * finalists) * 2:
        finalists = 0
    for_search = limits.episodes - each * FINALIST_FACTOR * finalists
    candidates = min(candidates, max(for_search // each - 1, 0))
    if population_size is None:
        wanted = min(wanted, max(SMALLEST_POPULATION, candidates // FEW_GENERATIONS))
        if generations is not None:
            candidates = min(candidates, wanted * generations)
    left = limits.episodes - each * (1 + candidates)
    return Plan(
        population_size=wanted,
        candidates=candidates,
        episodes_per_candidate=each,
        finalists=finalists,
        episodes_per_finalist=min(limits.largest_submission, left // finalists) if finalists else 0,
    )


def _finalists(limits: Limits) -> int:
    """None of a few Submissions; else some more than may be handed off, but no more than a fifth of them."""
    if limits.submissions < 8:
        return 0
    return max(2, min(max(3, limits.max_candidates + 1), limits.submissions // 5))


def window(start: int, count: int, pool_size: int) -> tuple[int, ...]:
    """``count`` successive pool indices from ``start`` on, around the end of the pool, in increasing order."""
    if count > pool_size:
        raise ValueError(f"{count} Episodes of a pool of {pool_size}")
    return tuple(sorted((start + offset) % pool_size for offset in range(count)))


def shares(total: int, parts: int) -> tuple[int, ...]:
    """``total`` in ``parts`` whole shares that differ by one at most, the larger first."""
    share, larger = divmod(total, parts)
    return tuple(share + (position < larger) for position in range(parts))
