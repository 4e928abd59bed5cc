"""The task text: what an Agent is told, the same for every provider."""

from collections.abc import Sequence
from importlib import resources
from string import Template

from evopolicygym.authoring import BenchmarkSpec
from evopolicygym.policy_json import dumps, to_json
from evopolicygym.results import format_submission_id
from evopolicygym.run.progress import LOST, RunProgress
from evopolicygym.run_config import RunConfig
from evopolicygym.session import LedgerLimits
from evopolicygym.skills import AgentSkill

__all__ = ["CONTINUATION_VERSION", "TASK_VERSION", "continued_task_text", "specification_json", "task_text"]

TASK_VERSION = "evopolicygym/task/v1"
"""Changes whenever the text does; the Record says which version ran."""
CONTINUATION_VERSION = "evopolicygym/continuation/v1"
"""The same for the text that stands before it at every further start of the Agent."""

_SHOWN_SUBMISSIONS = 40


def task_text(spec: BenchmarkSpec, config: RunConfig, skills: Sequence[AgentSkill]) -> str:
    """The whole task for one Run."""
    assert config.episode_pool_size is not None
    cap = config.max_episodes_per_submission or min(config.episode_pool_size, config.episode_budget)
    template = Template(resources.files("evopolicygym.run").joinpath("task.md").read_text(encoding="utf-8"))
    return template.substitute(
        benchmark_id=spec.id,
        description=spec.description.strip(),
        specification=dumps(specification_json(spec), indent=2),
        skills_paragraph=_skills_paragraph(skills),
        skills_hint=" and your skills," if skills else "",
        episode_timeout=f"{config.episode_timeout_seconds:g}",
        pool_size=config.episode_pool_size,
        pool_last=config.episode_pool_size - 1,
        episode_budget=config.episode_budget,
        max_submissions=config.max_submissions,
        submission_cap=cap,
        agent_timeout=f"{config.agent_timeout_seconds:g}",
        max_candidates=config.max_candidates,
        finish_rule=_finish_rule(config),
        finish_example=" ".join(format_submission_id(number) for number in range(2, 2 + min(config.max_candidates, 2))),
        primary_metric=spec.primary_metric,
        direction_sentence="higher is better." if spec.score_direction == "maximize" else "lower is better.",
        selection_sentence=_selection_sentence(config),
        unfinished_sentence=_unfinished_sentence(config),
    )


def continued_task_text(
    task: str, progress: RunProgress, limits: LedgerLimits, *, attempt: int, seconds_left: float
) -> str:
    """The task text for an Agent that goes on with earlier work: what was done, what is left, then the whole task.

    Args:
        task: as it was at the first start.
        progress: what was done.
        limits: of the budget.
        attempt: which start of the Agent this is.
        seconds_left: its wall-clock time.
    """
    ledger = progress.ledger
    template = Template(resources.files("evopolicygym.run").joinpath("task_continued.md").read_text(encoding="utf-8"))
    return (
        template.substitute(
            ended=_ended_sentence(progress),
            attempt=attempt,
            episodes_left=limits.episodes_remaining(ledger),
            episode_budget=limits.episode_budget,
            submissions_left=limits.submissions_remaining(ledger),
            max_submissions=limits.max_submissions,
            seconds_left=f"{seconds_left:.0f}",
            published=_published_lines(progress),
            lost=_lost_sentence(progress),
        )
        + task
    )


def _ended_sentence(progress: RunProgress) -> str:
    attempt = progress.last_attempt
    if attempt is None or attempt.reason == LOST:
        return "the Host was stopped"
    return {
        "interrupted": "the Host was stopped",
        "fault": "the Host had a fault",
        "timed_out": "its time was up",
    }.get(attempt.reason, f"it ended ({attempt.reason})")


def _published_lines(progress: RunProgress) -> str:
    published = progress.ledger.published
    lines = [f"    {entry.submission_id}   score {entry.score:g}   Episodes {entry.episodes}" for entry in published]
    if len(lines) > _SHOWN_SUBMISSIONS:
        lines = [f"    … {len(lines) - _SHOWN_SUBMISSIONS} earlier ones", *lines[-_SHOWN_SUBMISSIONS:]]
    return "\n".join(line if len(line) <= 110 else line[:109] + "…" for line in lines) or "    nothing"


def _lost_sentence(progress: RunProgress) -> str:
    lost = [entry.submission_id for entry in progress.ledger.submissions if entry.status != "published"]
    if not lost:
        return ""
    shown = ", ".join(lost[-5:])
    return f"Charged, but never published, since their Evaluation did not end: {shown}.\n\n"


def specification_json(spec: BenchmarkSpec) -> dict[str, object]:
    """A BenchmarkSpec as JSON objects, for the task text and the Record."""
    return {
        "id": spec.id,
        "description": spec.description,
        "observation_space": to_json(dict(spec.observation_space)),
        "action_space": to_json(dict(spec.action_space)),
        "metadata": to_json(dict(spec.metadata)),
        "environment_parameters": to_json(dict(spec.environment_parameters)),
        "max_episode_steps": spec.max_episode_steps,
        "primary_metric": spec.primary_metric,
        "score_direction": spec.score_direction,
    }


def _skills_paragraph(skills: Sequence[AgentSkill]) -> str:
    if not skills:
        return ""
    names = ", ".join(f"`skills/{skill.name}/SKILL.md`" for skill in skills)
    return f"\nRead these first: {names}.\n"


def _finish_rule(config: RunConfig) -> str:
    if config.finish_budget_policy == "require_budget_exhaustion":
        return "You must spend the whole Episode budget before you can `finish`."
    return "You need not spend all of it."


def _selection_sentence(config: RunConfig) -> str:
    if config.max_candidates == 1:
        return "Name the one Submission that you believe to be the best."
    return (
        f"Name up to {config.max_candidates} Submissions, the best first; they are then compared on\n"
        "Episodes that nobody has seen, and one is selected."
    )


def _unfinished_sentence(config: RunConfig) -> str:
    if config.when_unfinished == "select":
        return "is judged by the Submissions with the best training scores"
    return "counts for nothing"
