"""A Benchmark that hands everything on to another and keeps the records that it is asked to score."""

from collections.abc import Sequence

from evopolicygym.authoring import Benchmark, BenchmarkSpec, Environment, EpisodeRecord, EpisodeSpec, Feedback


class RecordingBenchmark:
    """Stands in for ``inner`` in an Evaluation.

    Args:
        inner: the Benchmark.

    ``records`` are those of the last Evaluation.
    """

    def __init__(self, inner: Benchmark) -> None:
        self._inner = inner
        self.records: tuple[EpisodeRecord, ...] = ()
        # An author's word on where Environments must live holds for this stand-in too.
        process = getattr(inner, "environment_process", None)
        if process is not None:
            self.environment_process = process

    @property
    def spec(self) -> BenchmarkSpec:
        """Of the inner Benchmark."""
        return self._inner.spec

    def episodes(self, split: str, *, seed: int, count: int) -> Sequence[EpisodeSpec]:
        """Of the inner Benchmark."""
        return self._inner.episodes(split, seed=seed, count=count)

    def make_environment(self, episode: EpisodeSpec) -> Environment:
        """Of the inner Benchmark."""
        return self._inner.make_environment(episode)

    def feedback(self, records: Sequence[EpisodeRecord]) -> Feedback:
        """Of the inner Benchmark; the records are kept."""
        self.records = tuple(records)
        return self._inner.feedback(records)
