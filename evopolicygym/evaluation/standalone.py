"""One Program on one split, without a Run."""

from __future__ import annotations

from evopolicygym.authoring import Benchmark
from evopolicygym.evaluation.config import EvaluationConfig
from evopolicygym.evaluation.evaluator import Evaluator, Execution, check_execution
from evopolicygym.evaluation.plan import benchmark_spec, plan_episodes
from evopolicygym.policy import type_name
from evopolicygym.program import Program
from evopolicygym.results import EvaluationResult

__all__ = ["evaluate"]


def evaluate(
    program: Program, benchmark: Benchmark, *, execution: Execution, config: EvaluationConfig | None = None
) -> EvaluationResult:
    """Run ``program`` on Episodes of ``benchmark``; the same inputs give the same result.

    Args:
        program: the Program.
        benchmark: the Benchmark.
        execution: how Policies are run, such as ``ProcessExecution.unsafe()``.
        config: which Episodes; the defaults of :class:`EvaluationConfig` if None.

    Returns:
        The Benchmark's Feedback and one summary an Episode, in plan order.

    Raises:
        TypeError: an argument is of the wrong type.
        BenchmarkError: the Benchmark does not plan as it promises, or knows no such split.
        EvaluationError: something trusted failed while Episodes ran.

    Example:
        >>> evaluate(Program.from_directory("my-policy"), CartPoleBenchmark(),
        ...          execution=ProcessExecution.unsafe()).feedback.score  # doctest: +SKIP
        9.4
    """
    if not isinstance(program, Program):
        raise TypeError(f"program must be a Program, not {type_name(program)}")
    if config is None:
        config = EvaluationConfig()
    elif type(config) is not EvaluationConfig:
        raise TypeError(f"config must be EvaluationConfig, not {type_name(config)}")
    check_execution(execution)
    spec = benchmark_spec(benchmark)
    plan = plan_episodes(benchmark, split=config.split, master_seed=config.seed, count=config.episodes)
    with Evaluator(benchmark, execution, episode_timeout_seconds=config.episode_timeout_seconds) as evaluator:
        evaluation = evaluator.evaluate(program, plan)
    return EvaluationResult(spec.id, spec.environment_digest, program.digest, evaluation.feedback, evaluation.episodes)
