"""Validation and Assessment: private Episodes, after the Agent is gone."""

import time
from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

from evopolicygym.authoring import Benchmark, BenchmarkSpec
from evopolicygym.evaluation import (
    Cancellation,
    EpisodeCompleted,
    Evaluation,
    Evaluator,
    PlannedEpisode,
    plan_episodes,
)
from evopolicygym.identities import assessment_seed, validation_seed
from evopolicygym.program import Program
from evopolicygym.record import Journal, events
from evopolicygym.results import (
    AssessmentResult,
    EpisodeSummary,
    SubmissionResult,
    ValidationCandidateResult,
    ValidationResult,
)
from evopolicygym.run.interruption import BackgroundCall, Interruption, wait_readable
from evopolicygym.run.selection import select_candidate
from evopolicygym.run_config import AssessmentConfig, ValidationConfig

__all__ = ["PrivateEvaluations", "RunInterrupted"]

CANCELLATION_SECONDS = 10.0
"""How long a cancelled Evaluation may take to end before its thread is left behind (``feedback()`` has no bound)."""

_Result = TypeVar("_Result")


class RunInterrupted(Exception):  # noqa: N818  # not an error
    """A signal arrived at the Host; what had begun was cancelled."""


class PrivateEvaluations:
    """Evaluates Programs on Episodes that nobody has seen, journalling as it goes.

    Each Evaluation runs in a thread of its own, so that a signal ends it at once.
    """

    def __init__(
        self,
        benchmark: Benchmark,
        spec: BenchmarkSpec,
        *,
        run_seed: int,
        evaluator: Evaluator,
        journal: Journal,
        interruption: Interruption,
    ) -> None:
        self._benchmark = benchmark
        self._spec = spec
        self._run_seed = run_seed
        self._evaluator = evaluator
        self._journal = journal
        self._interruption = interruption

    def validate(
        self,
        candidates: Sequence[SubmissionResult],
        config: ValidationConfig,
        *,
        done: Mapping[str, ValidationCandidateResult],
        keep: Callable[[ValidationCandidateResult], None],
    ) -> ValidationResult:
        """Every candidate on the same Episodes; the best is selected.

        Args:
            candidates: in the order of the hand-off.
            config: how many Episodes, of which split.
            done: results of candidates that are not evaluated again, by id.
            keep: called with each new result before its line is journalled.

        Raises:
            RunInterrupted: a signal arrived.
            EvaluationError, BenchmarkError: a trusted fault.
            RecordError: the Record cannot be written.
        """
        results = dict(done)
        owed = [candidate for candidate in candidates if candidate.submission_id not in done]
        if owed:
            self._journal.append(
                events.ValidationStarted(
                    split=config.split,
                    episodes_per_candidate=config.episodes_per_candidate,
                    candidate_submission_ids=tuple(candidate.submission_id for candidate in candidates),
                )
            )
            plan = self._plan(config.split, validation_seed(self._run_seed), config.episodes_per_candidate)
            for candidate in owed:
                results[candidate.submission_id] = self._validate_candidate(candidate, plan, keep)
        ordered = tuple(results[candidate.submission_id] for candidate in candidates)
        return ValidationResult(
            split=config.split,
            episodes_per_candidate=config.episodes_per_candidate,
            primary_metric=self._spec.primary_metric,
            score_direction=self._spec.score_direction,
            candidates=ordered,
            selected_submission_id=select_candidate(ordered, direction=self._spec.score_direction),
        )

    def _validate_candidate(
        self,
        candidate: SubmissionResult,
        plan: Sequence[PlannedEpisode],
        keep: Callable[[ValidationCandidateResult], None],
    ) -> ValidationCandidateResult:
        def completed(episode: EpisodeCompleted) -> None:
            self._journal.append(
                events.ValidationEpisodeCompleted(
                    submission_id=candidate.submission_id,
                    position=episode.position,
                    status=episode.summary.status,
                    reward=episode.summary.reward,
                    steps=episode.summary.steps,
                    failure=episode.summary.failure,
                    seconds=episode.seconds,
                )
            )

        started = time.monotonic()
        evaluation = self._evaluate(candidate.program, plan, completed)
        result = ValidationCandidateResult(
            submission_id=candidate.submission_id,
            program_digest=candidate.program_digest,
            score=evaluation.feedback.score,
            episodes=len(plan),
            policy_failures=_failures(evaluation.episodes),
            feedback_content=evaluation.feedback.content,
        )
        keep(result)
        self._journal.append(
            events.ValidationCandidateCompleted(
                submission_id=result.submission_id,
                score=result.score,
                policy_failures=result.policy_failures,
                seconds=time.monotonic() - started,
            )
        )
        return result

    def assess(
        self, submission: SubmissionResult, config: AssessmentConfig, *, keep: Callable[[AssessmentResult], None]
    ) -> AssessmentResult:
        """The selected Submission on the held-out split.

        Args:
            submission: the selected one.
            config: how many Episodes, of which split.
            keep: called with the result before its line is journalled.

        Raises:
            RunInterrupted: a signal arrived.
            EvaluationError, BenchmarkError: a trusted fault.
        """

        def completed(episode: EpisodeCompleted) -> None:
            self._journal.append(
                events.AssessmentEpisodeCompleted(
                    position=episode.position,
                    status=episode.summary.status,
                    reward=episode.summary.reward,
                    steps=episode.summary.steps,
                    failure=episode.summary.failure,
                    seconds=episode.seconds,
                )
            )

        self._journal.append(
            events.AssessmentStarted(
                submission_id=submission.submission_id, split=config.split, episodes=config.episodes
            )
        )
        started = time.monotonic()
        plan = self._plan(config.split, assessment_seed(self._run_seed), config.episodes)
        evaluation = self._evaluate(submission.program, plan, completed)
        result = AssessmentResult(
            submission_id=submission.submission_id,
            program_digest=submission.program_digest,
            split=config.split,
            episodes=config.episodes,
            primary_metric=self._spec.primary_metric,
            score_direction=self._spec.score_direction,
            score=evaluation.feedback.score,
            policy_failures=_failures(evaluation.episodes),
            feedback_content=evaluation.feedback.content,
        )
        keep(result)
        self._journal.append(
            events.AssessmentCompleted(
                submission_id=result.submission_id,
                score=result.score,
                policy_failures=result.policy_failures,
                seconds=time.monotonic() - started,
            )
        )
        return result

    def _plan(self, split: str, master_seed: int, count: int) -> tuple[PlannedEpisode, ...]:
        return self._interruptibly(
            lambda _: plan_episodes(self._benchmark, split=split, master_seed=master_seed, count=count)
        )

    def _evaluate(
        self, program: Program, plan: Sequence[PlannedEpisode], completed: Callable[[EpisodeCompleted], None]
    ) -> Evaluation:
        return self._interruptibly(
            lambda cancellation: self._evaluator.evaluate(
                program, plan, on_episode=completed, cancellation=cancellation
            )
        )

    def _interruptibly(self, call: Callable[[Cancellation], _Result]) -> _Result:
        if self._interruption.noted:
            raise RunInterrupted
        cancellation = Cancellation()
        background = BackgroundCall(lambda: call(cancellation))
        ready = wait_readable([background.fileno(), self._interruption.fileno()], None)
        if background.fileno() in ready:
            cancellation.close()
            return background.result(timeout=None)
        cancellation.cancel()
        try:
            background.result(timeout=CANCELLATION_SECONDS)
        except TimeoutError:
            raise RunInterrupted from None  # its thread still uses the cancellation
        except Exception as error:  # EvaluationCancelled, or a fault that no longer matters
            cancellation.close()
            raise RunInterrupted from error
        cancellation.close()
        raise RunInterrupted


def _failures(episodes: Sequence[EpisodeSummary]) -> int:
    return sum(episode.status == "policy_failed" for episode in episodes)
