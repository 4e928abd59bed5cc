"""Runs and Submissions as JSON documents: what ``run --json`` and ``inspect --json`` print."""

import json
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import cast

from evopolicygym.analysis import PairedChange
from evopolicygym.cli.documents import (
    AssessmentEntry,
    CandidateEntry,
    ErrorGroupEntry,
    PairedChangeEntry,
    RunReport,
    SubmissionReport,
)
from evopolicygym.cli.encoding import writes_unicode
from evopolicygym.cli.policy_errors import ErrorGroup
from evopolicygym.cli.recorded import Changes, RecordedRun, open_recorded
from evopolicygym.cli.run_view import RunView
from evopolicygym.errors import RecordError
from evopolicygym.record import SubmissionRecord


def print_json(document: object) -> None:
    """One document on standard output."""
    ascii_only = not writes_unicode()
    sys.stdout.write(json.dumps(document, indent=2, ensure_ascii=ascii_only, allow_nan=False) + "\n")


def run_report(run: RecordedRun) -> RunReport:
    """The state of a recorded Run in JSON values."""
    view, record = run.view, run.record
    changes = run.changes([row.submission_id for row in view.published])
    best = view.best
    return {
        "schema": "evopolicygym/run-report/v1",
        "record": str(record.path.absolute()),
        "record_schema": record.schema,
        "status": record.status,
        "terminal_reason": run.record.terminal_reason or view.terminal_reason,
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
                "paired_with_previous": paired_entry(changes, row.submission_id, "previous"),
                "paired_with_best": paired_entry(changes, row.submission_id, "best"),
                "edit": run.edits.get(row.submission_id),
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
        "validation": [cast("CandidateEntry", asdict(row)) for row in view.validation.values()] or None,
        "assessment": _assessment(view),
        "agent_end": None
        if view.agent_end is None
        else {
            "reason": view.agent_end,
            "seconds": view.agent_seconds,
            "message": view.agent_message,
            "resumable": view.agent_resumable,
        },
        "usage": {
            "turns": view.turns,
            "tool_calls": view.tool_calls,
            "input_tokens": view.input_tokens,
            "cached_tokens": view.cached_tokens,
            "output_tokens": view.output_tokens,
            "cost_usd": view.cost_usd,
        },
        "policy_failures": view.policy_failures,
        "policy_errors": error_entries(run.errors),
        "diagnostics": dict(run.diagnostics),
        "refusals": view.refusals,
        "notices": view.notices,
        "faults": view.faults,
        "damage": list(record.damage),
    }


def finished_report(record: Path) -> RunReport | None:
    """The report of a Run that was just recorded; None if its Record cannot be opened."""
    try:
        return run_report(open_recorded(record))
    except RecordError:
        return None


def submission_report(run: RecordedRun, submission: SubmissionRecord) -> SubmissionReport:
    """One Submission in JSON values: its Feedback as published, and where things lie."""
    changes = run.changes([submission.submission_id])
    return {
        "schema": "evopolicygym/submission-report/v1",
        "record": str(run.record.path.absolute()),
        "submission_id": submission.submission_id,
        "program_path": str(submission.program_path),
        "feedback": dict(submission.feedback),
        "artifacts": [
            {"name": artifact.name, "size": artifact.size, "path": str(artifact.path) if artifact.path else None}
            for artifact in submission.artifacts
        ],
        "paired_with_previous": paired_entry(changes, submission.submission_id, "previous"),
        "paired_with_best": paired_entry(changes, submission.submission_id, "best"),
    }


def paired_entry(changes: dict[str, Changes], submission_id: str, which: str) -> PairedChangeEntry | None:
    """One paired change as JSON values; None if there is none."""
    found = changes.get(submission_id)
    return None if found is None else change_entry(getattr(found, which))


def change_entry(change: PairedChange | None) -> PairedChangeEntry | None:
    """A paired change as JSON values."""
    return None if change is None else cast("PairedChangeEntry", change.to_json())


def error_entries(groups: Sequence[ErrorGroup]) -> list[ErrorGroupEntry]:
    """Groups of Policy errors as JSON values."""
    return [cast("ErrorGroupEntry", group.to_json()) for group in groups]


def _assessment(view: RunView) -> AssessmentEntry | None:
    if view.assessment_score is None:
        return None
    return {
        "submission_id": view.selected,
        "split": view.assessment_split,
        "episodes": view.assessment_episodes,
        "score": view.assessment_score,
        "policy_failures": view.assessment_failures,
    }
