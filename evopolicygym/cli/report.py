"""Runs and Submissions as JSON documents: what ``run --json`` and ``inspect --json`` print."""

from dataclasses import asdict
from pathlib import Path

from evopolicygym.cli.run_view import RunView
from evopolicygym.record import SubmissionRecord

REPORT_SCHEMA = "evopolicygym/run-report/v1"
SUBMISSION_SCHEMA = "evopolicygym/submission-report/v1"


def view_document(view: RunView, record: Path, *, status: str = "", damage: tuple[str, ...] = ()) -> dict[str, object]:
    """The state of a Run in JSON values.

    Args:
        view: the Run.
        record: its directory.
        status: as the Record's reader sees it; derived from the view if empty.
        damage: what the reader found to be broken.
    """
    best = view.best
    return {
        "schema": REPORT_SCHEMA,
        "record": str(record.absolute()),
        "status": status or ("running" if view.terminal_reason is None else "ended"),
        "terminal_reason": view.terminal_reason,
        "benchmark_id": view.benchmark_id,
        "agent": view.agent,
        "primary_metric": view.primary_metric,
        "score_direction": view.score_direction,
        "seed_strength": view.seed_strength or None,
        "budget": {
            "episodes": view.episode_budget,
            "episodes_used": view.episodes_used,
            "submissions": view.max_submissions,
            "submissions_used": len(view.submissions),
        },
        "submissions": [
            {
                "submission_id": row.submission_id,
                "state": row.state,
                "program_digest": row.program_digest,
                "episodes": row.episodes,
                "selector": row.selector,
                "score": row.score,
                "change_to_best": row.change,
                "policy_failures": row.policy_failures,
                "seconds": row.seconds,
            }
            for row in view.submissions.values()
        ],
        "best_submission_id": best.submission_id if best else None,
        "initial_score": view.initial_score,
        "candidate_submission_ids": list(view.candidates),
        "handed_off_by": view.handed_off_by,
        "selected_submission_id": view.selected,
        "validation": [asdict(row) for row in view.validation.values()] or None,
        "assessment": None
        if view.assessment_score is None
        else {
            "submission_id": view.selected,
            "split": view.assessment_split,
            "episodes": view.assessment_episodes,
            "score": view.assessment_score,
            "policy_failures": view.assessment_failures,
        },
        "agent_end": None
        if view.agent_end is None
        else {"reason": view.agent_end, "seconds": view.agent_seconds, "message": view.agent_message},
        "usage": {
            "turns": view.turns,
            "tool_calls": view.tool_calls,
            "input_tokens": view.input_tokens,
            "cached_tokens": view.cached_tokens,
            "output_tokens": view.output_tokens,
            "cost_usd": view.cost_usd,
        },
        "policy_failures": view.policy_failures,
        "refusals": view.refusals,
        "notices": view.notices,
        "faults": view.faults,
        "damage": list(damage),
    }


def submission_document(submission: SubmissionRecord, record: Path) -> dict[str, object]:
    """One Submission in JSON values: its Feedback as published, and where things lie."""
    return {
        "schema": SUBMISSION_SCHEMA,
        "record": str(record.absolute()),
        "submission_id": submission.submission_id,
        "program_path": str(submission.program_path),
        "feedback": dict(submission.feedback),
        "artifacts": [
            {"name": artifact.name, "size": artifact.size, "path": str(artifact.path) if artifact.path else None}
            for artifact in submission.artifacts
        ],
    }
