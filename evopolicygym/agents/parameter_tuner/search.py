"""CMA-ES over a vector whose entries may differ in size by orders of magnitude."""

import statistics
from collections.abc import Sequence

import cmaes
import numpy

__all__ = ["CovarianceSearch", "scales"]

DEFAULT_SIGMA = 0.5
SEPARABLE_FROM = 200
"""From so many parameters on the covariance matrix is kept diagonal: a full one costs n² memory and n³ time."""


class CovarianceSearch:
    """Proposes vectors and learns from their losses.

    Args:
        start: Where the search starts.
        seed: Of its random numbers, unsigned 64-bit.
        population_size: Proposals of one generation, at least 2.
        sigma: First standard deviation, in units of each parameter's scale.
    """

    def __init__(self, start: Sequence[float], *, seed: int, population_size: int, sigma: float) -> None:
        self._start = numpy.asarray(start, dtype=float)
        self._scales = numpy.asarray(scales(start), dtype=float)
        # One parameter is searched beside a second one without effect: CMA-ES is defined from two on.
        self._padding = 1 if len(start) == 1 else 0
        dimension = len(start) + self._padding
        kind = cmaes.CMA if dimension < SEPARABLE_FROM else cmaes.SepCMA
        self._strategy = kind(
            mean=numpy.zeros(dimension),
            sigma=sigma,
            # NumPy's legacy generator, which the strategy uses, takes 32 bits.
            seed=int(numpy.random.SeedSequence(seed).generate_state(1)[0]),
            population_size=population_size,
        )
        self._asked: list[numpy.ndarray[tuple[int, ...], numpy.dtype[numpy.float64]]] = []
        self.generations = 0

    @property
    def population_size(self) -> int:
        """Proposals of one generation."""
        return int(self._strategy.population_size)

    def ask(self) -> tuple[float, ...]:
        """The next proposal."""
        point = self._strategy.ask()
        self._asked.append(point)
        return self._vector(point)

    def tell(self, losses: Sequence[float]) -> None:
        """Learn from a whole generation: one loss (lower is better) a proposal, in the order of asking."""
        self._strategy.tell(list(zip(self._asked, losses, strict=True)))
        self._asked.clear()
        self.generations += 1

    @property
    def mean(self) -> tuple[float, ...]:
        """The centre of the search: with noisy losses a better guess than any single proposal."""
        return self._vector(self._strategy.mean)

    @property
    def exhausted(self) -> bool:
        """Whether the search has shrunk to a point, or its numbers have run away."""
        return bool(self._strategy.should_stop())

    def _vector(self, point: "numpy.ndarray[tuple[int, ...], numpy.dtype[numpy.float64]]") -> tuple[float, ...]:
        values = self._start + self._scales * point[: len(self._start)]
        return tuple(float(value) for value in values)


def scales(start: Sequence[float]) -> tuple[float, ...]:
    """How far each parameter may reasonably move: its own size, or the typical size where it is smaller.

    The typical size is the median of the sizes that are not zero, or 1 where all are zero.
    """
    sizes = [abs(value) for value in start]
    typical = statistics.median([size for size in sizes if size > 0] or [1.0])
    return tuple(max(size, typical) for size in sizes)
