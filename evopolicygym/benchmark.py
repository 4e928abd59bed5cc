"""The Benchmark interface and its specification, under the name that other packages import them by."""

from evopolicygym.authoring import Benchmark, BenchmarkSpec

__all__ = ["Benchmark", "BenchmarkSpec"]
