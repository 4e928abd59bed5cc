"""The diagnostics that ``run.json`` carries, composed from what a Run has in hand at its end."""

from collections import Counter
from collections.abc import Sequence

from evopolicygym.analysis.code import code_metrics
from evopolicygym.analysis.trajectory import TrajectoryPoint, trajectory
from evopolicygym.program import Program
from evopolicygym.results import AssessmentResult, ScoreDirection, SubmissionResult, ValidationResult

__all__ = ["run_diagnostics"]


def run_diagnostics(
    initial_program: Program,
    submissions: Sequence[SubmissionResult],
    *,
    episode_budget: int,
    episodes_spent: int | None = None,
    score_direction: ScoreDirection,
    selected_submission_id: str | None = None,
    validation: ValidationResult | None = None,
    assessment: AssessmentResult | None = None,
) -> dict[str, object]:
    """Trajectory, code metrics and kinds of edits as JSON values.

    Args:
        initial_program: what the Agent started from.
        submissions: published Submissions in their order.
        episode_budget: Episodes that could be charged.
        episodes_spent: Episodes charged, those of lost Evaluations included; None: those up to the last Submission.
        score_direction: whether a higher score is better.
        selected_submission_id: the final one.
        validation, assessment: their results, if there are any.

    Returns:
        ``{"trajectory": {…}, "edits": {kind: count}, "code": [{"submission_id", …}, …]}``.
    """
    validation_score = None
    if validation is not None:
        scores = {candidate.submission_id: candidate.score for candidate in validation.candidates}
        validation_score = scores.get(validation.selected_submission_id)
    curve = trajectory(
        [
            TrajectoryPoint(one.submission_id, episode_budget - one.episodes_remaining, one.feedback.score)
            for one in submissions
        ],
        episode_budget=episode_budget,
        score_direction=score_direction,
        episodes_spent=episodes_spent,
        selected_submission_id=selected_submission_id,
        validation_score=validation_score,
        assessment_score=None if assessment is None else assessment.score,
    )
    metrics = code_metrics(initial_program, [submission.program for submission in submissions])
    return {
        "trajectory": curve.to_json(),
        "edits": dict(Counter(one.edit for one in metrics)),
        "code": [
            {"submission_id": submission.submission_id} | one.to_json()
            for submission, one in zip(submissions, metrics, strict=True)
        ],
    }
