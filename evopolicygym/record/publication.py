"""One Submission as the files that are published, with Feedback as the Agent reads it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256

from evopolicygym.artifacts import Artifact
from evopolicygym.policy_json import to_json
from evopolicygym.program import Program
from evopolicygym.record import layout as names
from evopolicygym.record.events import RunEvent
from evopolicygym.record.retention import BulkArtifact
from evopolicygym.results import SubmissionResult

__all__ = ["Publication", "bulk_artifacts", "feedback_document", "program_files"]


@dataclass(frozen=True, slots=True)
class Publication:
    """What became of one publication.

    Args:
        event: the journal event that committed it.
        feedback_path: ``feedback.json`` relative to the workspace; None if the Agent's copy could not be written.
        diagnostics_summary: counts and groups of failures that a receipt tells the Agent.
    """

    event: RunEvent
    feedback_path: str | None
    diagnostics_summary: Mapping[str, object]


def feedback_document(submission: SubmissionResult, diagnostics: Mapping[str, object]) -> dict[str, object]:
    """The content of ``feedback.json``: the keys of ``evopolicygym/feedback/v2``, and ours under ``diagnostics``."""
    feedback = submission.feedback
    return {
        "schema": names.FEEDBACK_SCHEMA,
        "submission_id": submission.submission_id,
        "program_digest": submission.program_digest,
        "episode_indices": list(submission.episode_indices),
        "episodes_used": submission.episodes_used,
        "episodes_remaining": submission.episodes_remaining,
        "score": feedback.score,
        "content": to_json(feedback.content),
        "episodes": [
            {
                "episode_index": index,
                "status": episode.status,
                "reward": episode.reward,
                "steps": episode.steps,
                "failure": episode.failure,
            }
            for index, episode in zip(submission.episode_indices, submission.episodes, strict=False)
        ],
        "artifacts": [_artifact_entry(artifact) for artifact in feedback.artifacts],
        "diagnostics": dict(diagnostics),
    }


def _artifact_entry(artifact: Artifact) -> dict[str, object]:
    return {
        "name": artifact.name,
        "media_type": artifact.media_type,
        "path": f"{names.ARTIFACTS}/{artifact.name}",
        "size": artifact.size,
        "sha256": sha256(artifact.content).hexdigest(),
        "retention": artifact.retention,
    }


def bulk_artifacts(submission_id: str, artifacts: Sequence[Artifact]) -> list[BulkArtifact]:
    """Those artifacts of a Submission that may be evicted."""
    return [
        BulkArtifact(submission_id, artifact.name, artifact.size, sha256(artifact.content).hexdigest())
        for artifact in artifacts
        if artifact.retention == "bulk"
    ]


def program_files(program: Program, folder: str) -> dict[str, bytes]:
    """A Program's files by their path below ``folder``."""
    return {f"{folder}/{path}": program.read_bytes(path) for path in program.files}
