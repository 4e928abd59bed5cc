"""A published Submission, read back as the very value that was published."""

from hashlib import sha256

from evopolicygym.artifacts import Artifact, Feedback
from evopolicygym.errors import RecordError
from evopolicygym.policy_json import from_json
from evopolicygym.record import layout as names
from evopolicygym.record.reader import ArtifactRecord, SubmissionRecord
from evopolicygym.results import EpisodeSummary, SubmissionResult

__all__ = ["published_submission"]


def published_submission(record: SubmissionRecord) -> SubmissionResult:
    """The Submission with its Program, Feedback and those artifacts that are still there.

    Raises:
        RecordError: something of it is missing or damaged; the text names the file. A bulk artifact may be missing.
    """
    where = f"{record.path}/{names.FEEDBACK_FILE}"
    try:
        document = record.feedback
        if not document:
            raise ValueError("it is missing or damaged")
        if document.get("submission_id") != record.submission_id:
            raise ValueError(f"it is that of {document.get('submission_id')!r:.60}")
        episodes = tuple(_summary(episode) for episode in record.episodes)
        artifacts = tuple(_content(artifact) for artifact in record.artifacts if not _may_be_gone(artifact))
        score = document.get("score")
        if isinstance(score, bool) or not isinstance(score, int | float):
            raise ValueError(f"the score {score!r:.60} is no number")
        feedback = Feedback(float(score), from_json(document.get("content")), artifacts)
        where = f"{record.path}/{names.PROGRAM}"
        program = record.program()
        if program.digest != record.program_digest:
            raise ValueError(f"its digest is {program.digest}, and {names.FEEDBACK_FILE} says {record.program_digest}")
        where = f"{record.path}/{names.FEEDBACK_FILE}"
        return SubmissionResult(
            submission_id=record.submission_id,
            program=program,
            episode_indices=record.episode_indices,
            episodes_used=_whole(record.episodes_used),
            episodes_remaining=_whole(record.episodes_remaining),
            feedback=feedback,
            episodes=episodes,
        )
    except RecordError:
        raise
    except (ValueError, TypeError, ArithmeticError, OSError, RecursionError) as error:
        raise RecordError(f"{where}: {error}; the Submission was published and is damaged now") from error


def _summary(episode: object) -> EpisodeSummary:
    assert isinstance(episode, dict)
    reward = episode.get("reward")
    return EpisodeSummary(
        status=episode.get("status"),  # type: ignore[arg-type]  # checked by the constructor
        reward=reward,
        steps=episode.get("steps"),  # type: ignore[arg-type]  # as above
        failure=episode.get("failure"),
    )


def _may_be_gone(artifact: ArtifactRecord) -> bool:
    return artifact.path is None and artifact.retention == "bulk"


def _content(artifact: ArtifactRecord) -> Artifact:
    if artifact.path is None:
        raise ValueError(f"its artifact {artifact.name} is missing")
    content = artifact.path.read_bytes()
    if sha256(content).hexdigest() != artifact.sha256:
        raise ValueError(f"its artifact {artifact.name} has another content than when it was published")
    return Artifact(artifact.name, artifact.media_type, content, artifact.retention)  # type: ignore[arg-type]  # checked


def _whole(value: int | None) -> int:
    if value is None:
        raise ValueError("episodes_used or episodes_remaining is missing or no whole number")
    return value
