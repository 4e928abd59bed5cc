"""Everything that is checked and planned before a Run touches the disk."""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from evopolicygym.agents import AgentInvocation, AgentTask, CodingAgent
from evopolicygym.authoring import Benchmark, BenchmarkSpec
from evopolicygym.errors import AgentRunError, BenchmarkError, RecordError
from evopolicygym.evaluation import PlannedEpisode, plan_episodes, plan_pool
from evopolicygym.evaluation.plan import benchmark_spec
from evopolicygym.identities import plan_digest
from evopolicygym.policy import type_name
from evopolicygym.program import Program
from evopolicygym.record.layout import RecordLayout
from evopolicygym.run.task import task_text
from evopolicygym.run_config import RunConfig
from evopolicygym.skills import AgentSkill, check_skills

__all__ = ["AgentStart", "PreparedRun", "plan_start", "prepare", "prepare_in"]


@dataclass(frozen=True, slots=True)
class AgentStart:
    """One start of the Agent that can be made here.

    Args:
        attempt: counted from 1.
        task: what it is told.
        invocation: how it is started.
    """

    attempt: int
    task: AgentTask
    invocation: AgentInvocation

    @property
    def instructions(self) -> str:
        """The text that reaches it."""
        return self.invocation.instructions or self.task.instructions


@dataclass(frozen=True, slots=True)
class PreparedRun:
    """A Run whose whole input is sound: nothing has been written, nothing started."""

    initial_program: Program
    benchmark: Benchmark
    spec: BenchmarkSpec
    config: RunConfig
    skills: tuple[AgentSkill, ...]
    record_to: Path
    pool: tuple[PlannedEpisode, ...]

    @property
    def pool_digest(self) -> str:
        """Identity of the planned pool."""
        return plan_digest(
            (planned.episode.environment_seed, planned.episode.scenario, planned.policy_seed) for planned in self.pool
        )

    @property
    def task(self) -> str:
        """What the Agent is told at its first start."""
        return task_text(self.spec, self.config, self.skills)


def prepare(
    initial_program: Program,
    benchmark: Benchmark,
    *,
    agent: CodingAgent,
    record_to: str | os.PathLike[str],
    config: RunConfig | None,
    skills: Sequence[AgentSkill],
    sandboxed: bool = False,
) -> tuple[PreparedRun, AgentStart]:
    """Check the input of a new Run, plan its pool and its Agent's first start.

    Raises:
        TypeError: an argument of the wrong type.
        AgentSkillError: too many Skills, or two of one name.
        BenchmarkError: the Benchmark breaks its contract.
        AgentRunError: the Agent cannot be started here, or its task fits into no argument.
        RecordError: ``record_to`` exists.
    """
    if type(initial_program) is not Program:
        raise TypeError(f"initial_program must be a Program, not {type_name(initial_program)}")
    settings = RunConfig() if config is None else config
    if not isinstance(settings, RunConfig):
        raise TypeError(f"config must be a RunConfig, not {type_name(config)}")
    spec = benchmark_spec(benchmark)
    if not hasattr(agent, "build_invocation"):
        raise TypeError(f"{type_name(agent)} is no CodingAgent: it has no build_invocation")
    target = Path(record_to).absolute()
    if os.path.lexists(target):
        raise RecordError(f"{target} already exists; a Record is written to a new directory")
    checked_skills = check_skills(skills)
    task = task_text(spec, settings, checked_skills)
    start = plan_start(agent, task, RecordLayout(target), attempt=1, sandboxed=sandboxed)
    pool = _pool(benchmark, settings)
    _check_private_splits(benchmark, settings)
    return PreparedRun(initial_program, benchmark, spec, settings, checked_skills, target, pool), start


def prepare_in(
    layout: RecordLayout,
    benchmark: Benchmark,
    *,
    config: RunConfig,
    initial_program: Program,
    skills: Sequence[AgentSkill],
) -> PreparedRun:
    """The same for a Run that has its Record already: check and plan, without an Agent.

    Raises:
        TypeError, BenchmarkError: as :func:`prepare`.
    """
    spec = benchmark_spec(benchmark)
    pool = _pool(benchmark, config)
    return PreparedRun(initial_program, benchmark, spec, config, tuple(skills), layout.root, pool)


def plan_start(agent: CodingAgent, task: str, layout: RecordLayout, *, attempt: int, sandboxed: bool) -> AgentStart:
    """How the Agent is started with this task, in a sandbox of ours or without.

    Raises:
        AgentRunError: it cannot be started here, or its task fits into no argument.
    """
    invocation = agent.build_invocation(AgentTask(task))
    if type(invocation) is not AgentInvocation:
        raise AgentRunError(
            f"build_invocation of {type_name(agent)} must return an AgentInvocation, not {type_name(invocation)}"
        )
    invocation.check_startable(sandboxed=sandboxed)
    invocation.arguments(AgentTask(task), task_file=layout.agent(attempt) / "instructions.md")
    return AgentStart(attempt, AgentTask(task), invocation)


def _check_private_splits(benchmark: Benchmark, config: RunConfig) -> None:
    """A split that there is not is told now, and not when an Agent has done all its work."""
    for name, phase in (("validation", config.validation), ("assessment", config.assessment)):
        if phase is not None:
            try:
                plan_episodes(benchmark, split=phase.split, master_seed=0, count=1)
            except BenchmarkError as error:
                raise BenchmarkError(f"{name}.split: {error}") from error


def _pool(benchmark: Benchmark, config: RunConfig) -> tuple[PlannedEpisode, ...]:
    assert config.episode_pool_size is not None
    return plan_pool(benchmark, split=config.split, run_seed=config.seed, size=config.episode_pool_size)
