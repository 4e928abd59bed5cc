"""What ``run.json`` says: who ran on what with which limits, and what came of it."""

import platform
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from importlib import metadata

import evopolicygym
from evopolicygym.authoring import Benchmark
from evopolicygym.identities import seed_is_guessable
from evopolicygym.policy_json import to_json
from evopolicygym.record import RUN_SCHEMA
from evopolicygym.results import (
    AssessmentResult,
    SubmissionResult,
    ValidationCandidateResult,
    ValidationResult,
)
from evopolicygym.run.agent_phase import PhaseEnd
from evopolicygym.run.outcome import Outcome
from evopolicygym.run.preparation import PreparedRun
from evopolicygym.run.task import TASK_VERSION, specification_json

__all__ = ["assessment_report", "final_manifest", "first_manifest", "seed_strength", "validation_report"]


def first_manifest(
    prepared: PreparedRun, *, execution_facts: Mapping[str, object], repeatable: bool, started: datetime
) -> dict[str, object]:
    """The manifest of a Run that has been prepared and not yet ended."""
    spec, config, invocation = prepared.spec, prepared.config, prepared.invocation
    identity = invocation.identity
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
        "agent": {
            "identity": identity if isinstance(identity, str) else dict(identity),
            "command": list(invocation.recorded_command),
            "stdout_media_type": invocation.stdout_media_type,
            "task_version": TASK_VERSION,
        },
        "skills": [{"name": skill.name, "digest": skill.digest} for skill in prepared.skills],
        "host": {
            "python": platform.python_version(),
            "implementation": sys.implementation.name,
            "platform": platform.platform(),
            "packages": package_versions(prepared.benchmark),
            **execution_facts,
        },
    }


def final_manifest(
    first: Mapping[str, object],
    *,
    submissions: Sequence[SubmissionResult],
    seconds: Mapping[str, float],
    phase_end: PhaseEnd | None,
    outcome: Outcome,
    execution_facts: Mapping[str, object],
    ended: datetime,
) -> dict[str, object]:
    """The manifest of a Run that has ended."""
    agent = dict(_mapping(first["agent"]))
    if phase_end is not None:
        agent["usage"] = phase_end.usage.to_json()
        if phase_end.session:
            agent["session"] = dict(phase_end.session)
        agent["environment_names"] = list(phase_end.passed_names)
    validation, assessment = outcome.validation, outcome.assessment
    return {
        **first,
        "status": "finished" if outcome.terminal_reason == "finished" else "ended",
        "ended": _text(ended),
        "agent": agent,
        "host": {**_mapping(first["host"]), **execution_facts},
        "agent_end": None
        if phase_end is None
        else {
            "reason": phase_end.reason,
            "returncode": phase_end.returncode,
            "seconds": phase_end.seconds,
            "message": phase_end.message,
        },
        "terminal_reason": outcome.terminal_reason,
        "error": outcome.error,
        "submissions": [_submission(submission, seconds) for submission in submissions],
        "handed_off_by": outcome.handed_off_by,
        "candidate_submission_ids": list(outcome.candidates),
        "selected_submission_id": outcome.selected,
        "validation": None if validation is None else validation_report(validation, content=False),
        "assessment": None if assessment is None else assessment_report(assessment, content=False),
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
