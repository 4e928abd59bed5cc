"""What ``run.json`` says: who ran on what with which limits, and what came of it."""

import platform
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from importlib import metadata
from typing import TypeAlias

import evopolicygym
from evopolicygym.agents import AgentInvocation
from evopolicygym.authoring import Benchmark
from evopolicygym.identities import seed_is_guessable
from evopolicygym.policy_json import to_json
from evopolicygym.record import RUN_SCHEMA
from evopolicygym.results import (
    AssessmentResult,
    RunResult,
    SubmissionResult,
    ValidationCandidateResult,
    ValidationResult,
)
from evopolicygym.run.preparation import PreparedRun
from evopolicygym.run.progress import AgentAttempt, RunProgress
from evopolicygym.run.task import TASK_VERSION, specification_json

__all__ = [
    "agent_facts",
    "assessment_report",
    "final_manifest",
    "first_manifest",
    "host_facts",
    "measured_report",
    "resumed_manifest",
    "seed_strength",
    "validation_report",
]

Facts: TypeAlias = Mapping[str, object]


def first_manifest(
    prepared: PreparedRun, *, agent: Mapping[str, object], execution_facts: Facts, repeatable: bool, started: datetime
) -> dict[str, object]:
    """The manifest of a Run that has been prepared and not yet ended.

    Args:
        prepared: the Run.
        agent: :func:`agent_facts`, or what is known of it.
        execution_facts: how Episodes are run.
        repeatable: whether there is a run spec to repeat it from.
        started: when it began.
    """
    spec, config = prepared.spec, prepared.config
    return {
        "schema": RUN_SCHEMA,
        "library_version": evopolicygym.__version__,
        "status": "running",
        "repeatable": repeatable,
        "started": _text(started),
        "ended": None,
        "benchmark": {
            "id": spec.id,
            "environment_digest": spec.environment_digest,
            "environment_parameters": to_json(dict(spec.environment_parameters)),
            "specification": specification_json(spec),
        },
        "initial_program": {"digest": prepared.initial_program.digest},
        "config": asdict(config),
        "seed_strength": seed_strength(config.seed),
        "pool": {
            "split": config.split,
            "size": config.episode_pool_size,
            "digest": prepared.pool_digest,
            "derivation": "evopolicygym/training-pool/v1",
        },
        "agent": dict(agent),
        "skills": [{"name": skill.name, "digest": skill.digest} for skill in prepared.skills],
        "host": host_facts(prepared.benchmark, execution_facts),
        "resumed": [],
    }


_FIRST_KEYS = (
    *("schema", "library_version", "status", "repeatable", "started", "ended", "benchmark", "initial_program"),
    *("config", "seed_strength", "pool", "agent", "skills", "host", "resumed"),
)


def resumed_manifest(
    first: Mapping[str, object],
    prepared: PreparedRun,
    *,
    attempt: int,
    phase: str,
    overrides: Sequence[str],
    execution_facts: Facts,
    now: datetime,
) -> dict[str, object]:
    """The manifest of a Run that another Host process goes on with.

    Args:
        first: what the manifest says so far, whatever state it is in.
        prepared: the Run, with its limits as they are now.
        attempt: which Host process this is.
        phase: what it goes on with.
        overrides: limits that are changed from now on.
        execution_facts: how Episodes are run from now on.
        now: the time.
    """
    kept = {key: first[key] for key in _FIRST_KEYS if key in first}
    earlier = first.get("resumed")
    # A Host that was gone right after it had written this has left no other trace: its number comes again.
    before = [e for e in earlier if isinstance(e, dict) and _before(e, attempt)] if isinstance(earlier, list) else []
    resumed = {
        "attempt": attempt,
        "time": _text(now),
        "phase": phase,
        "overrides": list(overrides),
        "library_version": evopolicygym.__version__,
        "host": host_facts(prepared.benchmark, execution_facts),
    }
    return {
        **kept,
        "status": "running",
        "ended": None,
        "config": asdict(prepared.config),
        "resumed": [*before, resumed],
    }


def _before(entry: Mapping[object, object], attempt: int) -> bool:
    number = entry.get("attempt")
    return type(number) is int and number < attempt


def host_facts(benchmark: Benchmark, execution_facts: Facts) -> dict[str, object]:
    """What a Host process is, and what it runs Episodes with."""
    return {
        "python": platform.python_version(),
        "implementation": sys.implementation.name,
        "platform": platform.platform(),
        "packages": package_versions(benchmark),
        **execution_facts,
    }


def agent_facts(invocation: AgentInvocation) -> dict[str, object]:
    """Who the Agent is, for the manifest."""
    identity = invocation.identity
    return {
        "identity": identity if isinstance(identity, str) else dict(identity),
        "command": list(invocation.recorded_command),
        "stdout_media_type": invocation.stdout_media_type,
        "task_version": TASK_VERSION,
    }


def final_manifest(
    first: Mapping[str, object],
    *,
    submissions: Sequence[SubmissionResult],
    progress: RunProgress,
    environment_names: Sequence[str] | None,
    agent_told: Mapping[str, object],
    result: RunResult,
    error: str | None,
    execution_facts: Facts,
    ended: datetime,
) -> dict[str, object]:
    """The manifest of a Run that has ended.

    Args:
        first: what the manifest has said so far.
        submissions: all that were published.
        progress: what the journal tells.
        environment_names: names of the variables that the Agent was given last; None leaves them as they are.
        agent_told: what the Agent told of itself at its start; nothing leaves it as it is.
        result: what came of the Run.
        error: the fault behind a ``…_failed`` reason.
        execution_facts: how Episodes were run.
        ended: the time.
    """
    agent = dict(_mapping(first.get("agent", {})))
    if progress.attempts:
        agent["usage"] = progress.usage.to_json()
    if agent_told:
        agent["session"] = dict(agent_told)
    if environment_names is not None:
        agent["environment_names"] = list(environment_names)
    last, validation, assessment = progress.last_attempt, result.validation, result.assessment
    return {
        **_with_execution(first, execution_facts),
        "status": "finished" if result.terminal_reason == "finished" else "ended",
        "ended": _text(ended),
        "agent": agent,
        "agent_end": None if last is None else _attempt(last),
        "agent_attempts": [{"attempt": attempt.attempt, **_attempt(attempt)} for attempt in progress.attempts],
        "terminal_reason": result.terminal_reason,
        "error": error,
        "submissions": [_submission(submission, progress.published_seconds) for submission in submissions],
        "handed_off_by": progress.ledger.handed_off_by,
        "candidate_submission_ids": list(result.candidate_submission_ids),
        "selected_submission_id": result.final_submission_id,
        "validation": None if validation is None else validation_report(validation, content=False),
        "assessment": None if assessment is None else assessment_report(assessment, content=False),
    }


def _with_execution(first: Mapping[str, object], execution_facts: Facts) -> Mapping[str, object]:
    """What turned out about the execution belongs to the Host process that ran it."""
    resumed = first.get("resumed")
    if isinstance(resumed, list) and resumed:
        last = _mapping(resumed[-1])
        host = {**_mapping(last["host"]), **execution_facts}
        return {**first, "resumed": [*resumed[:-1], {**last, "host": host}]}
    return {**first, "host": {**_mapping(first.get("host", {})), **execution_facts}}


def _attempt(attempt: AgentAttempt) -> dict[str, object]:
    return {
        "reason": attempt.reason,
        "returncode": attempt.returncode,
        "seconds": attempt.seconds,
        "message": attempt.message,
        "resumable": attempt.resumable,
    }


def validation_report(validation: ValidationResult, *, content: bool = True) -> dict[str, object]:
    """The whole Validation as JSON objects; without ``content``, its Feedback is left out."""
    return {
        "split": validation.split,
        "episodes_per_candidate": validation.episodes_per_candidate,
        "primary_metric": validation.primary_metric,
        "score_direction": validation.score_direction,
        "selected_submission_id": validation.selected_submission_id,
        "candidates": [_measured(candidate, content=content) for candidate in validation.candidates],
    }


def assessment_report(assessment: AssessmentResult, *, content: bool = True) -> dict[str, object]:
    """The whole Assessment as JSON objects; without ``content``, its Feedback is left out."""
    return {
        "split": assessment.split,
        "primary_metric": assessment.primary_metric,
        "score_direction": assessment.score_direction,
        **_measured(assessment, content=content),
    }


def measured_report(result: ValidationCandidateResult) -> dict[str, object]:
    """One candidate's Validation as JSON objects."""
    return _measured(result, content=True)


def _measured(result: ValidationCandidateResult | AssessmentResult, *, content: bool) -> dict[str, object]:
    measured: dict[str, object] = {
        "submission_id": result.submission_id,
        "program_digest": result.program_digest,
        "score": result.score,
        "episodes": result.episodes,
        "policy_failures": result.policy_failures,
    }
    if content:
        measured["feedback_content"] = to_json(result.feedback_content)
    return measured


def seed_strength(seed: int) -> str:
    """``"derivable"`` if hidden Episodes can be derived from a ``policy_seed``, else ``"strong"``."""
    return "derivable" if seed_is_guessable(seed) else "strong"


def package_versions(benchmark: Benchmark) -> dict[str, str]:
    """Versions of the distributions that the Benchmark and its simulator come from, by name.

    An editable installation does not tell which modules it holds; one that is named like its module is found.
    """
    modules = {type(benchmark).__module__.partition(".")[0], "evopolicygym"}
    modules.update(getattr(benchmark, "simulator_modules", ()))  # such as gymnasium and ale_py
    by_module = metadata.packages_distributions()
    versions = {}
    for name in {name for module in modules for name in by_module.get(module, [module])}:
        try:
            versions[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue  # a script of the user's own
    return dict(sorted(versions.items()))


def _submission(submission: SubmissionResult, seconds: Mapping[str, float]) -> dict[str, object]:
    return {
        "submission_id": submission.submission_id,
        "program_digest": submission.program_digest,
        "episode_indices": list(submission.episode_indices),
        "episodes_used": submission.episodes_used,
        "episodes_remaining": submission.episodes_remaining,
        "score": submission.feedback.score,
        "policy_failures": submission.policy_failures,
        "seconds": seconds.get(submission.submission_id),
    }


def _mapping(value: object) -> Mapping[str, object]:
    assert isinstance(value, Mapping)
    return value


def _text(moment: datetime) -> str:
    return moment.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
