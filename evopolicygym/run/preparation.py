"""Everything that is checked and planned before a Run touches the disk."""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from evopolicygym.agents import AgentInvocation, AgentTask, CodingAgent
from evopolicygym.authoring import Benchmark, BenchmarkSpec
from evopolicygym.authoring.interfaces import missing_members
from evopolicygym.errors import AgentRunError, BenchmarkError, RecordError
from evopolicygym.evaluation import PlannedEpisode, plan_pool
from evopolicygym.identities import plan_digest
from evopolicygym.policy import type_name
from evopolicygym.program import Program
from evopolicygym.record.layout import RecordLayout
from evopolicygym.run.config import RunConfig
from evopolicygym.run.task import task_text
from evopolicygym.skills import AgentSkill, check_skills

__all__ = ["PreparedRun", "prepare"]


@dataclass(frozen=True, slots=True)
class PreparedRun:
    """A Run whose whole input is sound: nothing has been written, nothing started."""

    initial_program: Program
    benchmark: Benchmark
    spec: BenchmarkSpec
    config: RunConfig
    skills: tuple[AgentSkill, ...]
    record_to: Path
    task: str
    invocation: AgentInvocation
    pool: tuple[PlannedEpisode, ...]

    @property
    def pool_digest(self) -> str:
        """Identity of the planned pool."""
        return plan_digest(
            (planned.episode.environment_seed, planned.episode.scenario, planned.policy_seed) for planned in self.pool
        )


def prepare(
    initial_program: Program,
    benchmark: Benchmark,
    *,
    agent: CodingAgent,
    record_to: str | os.PathLike[str],
    config: RunConfig | None,
    skills: Sequence[AgentSkill],
) -> PreparedRun:
    """Check the input of a Run, plan its pool and build the Agent's invocation.

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
    missing = missing_members(benchmark, Benchmark)
    if missing:
        raise TypeError(f"{type_name(benchmark)} is no Benchmark: it has no {', '.join(missing)}")
    if not hasattr(agent, "build_invocation"):
        raise TypeError(f"{type_name(agent)} is no CodingAgent: it has no build_invocation")
    target = Path(record_to).absolute()
    if os.path.lexists(target):
        raise RecordError(f"{target} already exists; a Record is written to a new directory")
    spec = benchmark.spec
    if type(spec) is not BenchmarkSpec:
        raise BenchmarkError(f"the spec of {type_name(benchmark)} must be a BenchmarkSpec, not {type_name(spec)}")
    checked_skills = check_skills(skills)
    task = task_text(spec, settings, checked_skills)
    invocation = agent.build_invocation(AgentTask(task))
    if type(invocation) is not AgentInvocation:
        raise AgentRunError(
            f"build_invocation of {type_name(agent)} must return an AgentInvocation, not {type_name(invocation)}"
        )
    invocation.check_startable()
    invocation.arguments(AgentTask(task), task_file=RecordLayout(target).agent() / "instructions.md")
    assert settings.episode_pool_size is not None
    pool = plan_pool(benchmark, split=settings.split, run_seed=settings.seed, size=settings.episode_pool_size)
    return PreparedRun(initial_program, benchmark, spec, settings, checked_skills, target, task, invocation, pool)
