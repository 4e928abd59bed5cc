"""Cart-pole as an EvoPolicyGym Benchmark, in plain Python."""

from cartpole.baseline_program import baseline_program
from cartpole.benchmark import CartPoleBenchmark

__all__ = ["CartPoleBenchmark", "baseline_program"]
