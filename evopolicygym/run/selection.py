"""Which Submission wins: pure rules over scores."""

from collections.abc import Iterable, Sequence

from evopolicygym.results import ScoreDirection, SubmissionResult, ValidationCandidateResult

__all__ = ["best_submissions", "select_candidate"]


def best_submissions(
    submissions: Iterable[SubmissionResult], *, direction: ScoreDirection, count: int
) -> tuple[str, ...]:
    """The ids of up to ``count`` Submissions by training score, then fewer Policy failures, then age; best first."""
    ranked = sorted(
        submissions,
        key=lambda submission: (
            _cost(submission.feedback.score, direction),
            submission.policy_failures,
            submission.submission_id,
        ),
    )
    return tuple(submission.submission_id for submission in ranked[:count])


def select_candidate(candidates: Sequence[ValidationCandidateResult], *, direction: ScoreDirection) -> str:
    """The id of the best candidate: score, then fewer Policy failures, then the order in which they were named."""
    ranked = sorted(
        enumerate(candidates),
        key=lambda item: (_cost(item[1].score, direction), item[1].policy_failures, item[0]),
    )
    return ranked[0][1].submission_id


def _cost(score: float, direction: ScoreDirection) -> float:
    return -score if direction == "maximize" else score
