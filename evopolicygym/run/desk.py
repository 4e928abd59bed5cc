"""The Run as its Session sees it: capture, journal, evaluate, publish."""

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from evopolicygym.evaluation import Cancellation, EpisodeCompleted, EvaluationCancelled, Evaluator
from evopolicygym.program import Program
from evopolicygym.record import RecordWriter, events
from evopolicygym.results import SubmissionResult
from evopolicygym.run.preparation import PreparedRun

__all__ = ["SessionDesk"]


class SessionDesk:
    """Does what the Session asks for, and keeps what has been published.

    Args:
        prepared: the Run.
        writer: its Record.
        evaluator: warm workers.
        seconds_remaining: the Agent's remaining wall-clock time.
        published: what was published before, in order.
    """

    def __init__(
        self,
        prepared: PreparedRun,
        writer: RecordWriter,
        evaluator: Evaluator,
        seconds_remaining: Callable[[], float],
        published: Sequence[SubmissionResult] = (),
    ) -> None:
        self._prepared = prepared
        self._writer = writer
        self._evaluator = evaluator
        self._publishing = threading.Lock()
        self._sealed = False
        self._seconds_remaining = seconds_remaining
        self.submissions = [self._as_kept(submission) for submission in published]

    def capture_program(self) -> Program:
        """A snapshot of ``workspace/program``; a ProgramError says why there is none."""
        return self._writer.capture_workspace_program()

    def commit(self, event: events.Event) -> None:
        """Append to the journal."""
        self._writer.journal.append(event)

    def seconds_remaining(self) -> float:
        """Wall-clock seconds that the Agent has left, >= 0."""
        return max(self._seconds_remaining(), 0.0)

    def evaluate(
        self,
        submission_id: str,
        program: Program,
        indices: tuple[int, ...],
        episodes_remaining: int,
        cancellation: Cancellation,
    ) -> Mapping[str, object]:
        """Evaluate a Program on pool Episodes, publish the Submission and return its receipt.

        Raises:
            EvaluationCancelled: cancelled before it was published.
            EvaluationError: a trusted fault.
            RecordError, OSError: it could not be published.
        """

        def completed(episode: EpisodeCompleted) -> None:
            self._writer.journal.append(_episode_event(submission_id, indices, episode))

        started = time.monotonic()
        evaluation = self._evaluator.evaluate(
            program,
            [self._prepared.pool[index] for index in indices],
            on_episode=completed,
            cancellation=cancellation,
        )
        submission = SubmissionResult(
            submission_id=submission_id,
            program=program,
            episode_indices=indices,
            episodes_used=len(indices),
            episodes_remaining=episodes_remaining,
            feedback=evaluation.feedback,
            episodes=evaluation.episodes,
        )
        with self._publishing:
            if self._sealed or cancellation.cancelled:
                raise EvaluationCancelled
            publication = self._writer.publish(
                submission,
                evaluation.diagnostics,
                policy_diagnostics=self._prepared.config.policy_diagnostics,
                seconds=time.monotonic() - started,
            )
            self.submissions = [self._as_kept(one) for one in (*self.submissions, submission)]
        return {
            "submission_id": submission_id,
            "program_digest": program.digest,
            "score": evaluation.feedback.score,
            "episode_indices": list(indices),
            "episodes_used": len(indices),
            "episodes_remaining": episodes_remaining,
            "feedback": publication.feedback_path,
            "diagnostics": publication.diagnostics_summary,
        }

    def _as_kept(self, submission: SubmissionResult) -> SubmissionResult:
        """Without the artifacts that the Record no longer holds, so that memory does not hold them for ever either."""
        feedback, gone = submission.feedback, self._writer.evicted(submission.submission_id)
        kept = tuple(artifact for artifact in feedback.artifacts if artifact.name not in gone)
        if len(kept) == len(feedback.artifacts):
            return submission
        return replace(submission, feedback=replace(feedback, artifacts=kept))

    def seal(self) -> None:
        """From now on nothing is published; waits for a publication that has begun."""
        with self._publishing:
            self._sealed = True

    def unseal(self) -> None:
        """Another start of the Agent may publish."""
        with self._publishing:
            self._sealed = False


def _episode_event(submission_id: str, indices: tuple[int, ...], episode: EpisodeCompleted) -> events.Event:
    return events.EpisodeCompleted(
        submission_id=submission_id,
        episode_index=indices[episode.position],
        position=episode.position,
        status=episode.summary.status,
        reward=episode.summary.reward,
        steps=episode.summary.steps,
        failure=episode.summary.failure,
        seconds=episode.seconds,
    )
