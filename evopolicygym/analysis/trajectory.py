"""How a Run's training score rose while its budget was spent."""

from collections.abc import Sequence
from dataclasses import dataclass, fields

from evopolicygym.results import ScoreDirection, is_better

__all__ = ["Trajectory", "TrajectoryPoint", "trajectory"]

_HALF, _MOST = 0.5, 0.8


@dataclass(frozen=True, slots=True)
class TrajectoryPoint:
    """One published Submission.

    Args:
        submission_id: its id.
        spent: Episodes charged up to and with it, those of lost Evaluations included.
        score: its training score.
    """

    submission_id: str
    spent: int
    score: float


@dataclass(frozen=True, slots=True)
class Trajectory:
    """Diagnostics of the score curve: the best training score so far, as a step function of the budget spent.

    The curve starts at the first Submission's score and is held to the end of the budget, so that an Agent that
    stops early keeps what it has. Training scores are noisy and come from Episodes that the Agent chose; a
    curve tells how an Agent worked, not how good its Policy is.

    Args:
        submissions: published Submissions.
        episodes_spent: Episodes charged.
        first_score: of the first Submission.
        best_score, best_submission_id: the best; the earliest of several.
        score_area: area under the curve divided by the budget: the mean best score over the budget, in the score's
            unit.
        gain_area: the same as a share of the final gain: 1 if all of it came with the first Submission that gained,
            at no cost; None without a gain.
        episodes_to_half_gain, episodes_to_most_gain: Episodes spent when 50 % and 80 % of the final gain were
            reached; None without a gain.
        validation_gap: training score of the selected Submission minus its Validation score; positive if training
            looked better than it was, in either score direction.
        heldout_gap: best training score minus Assessment score, with the same sign.
    """

    submissions: int
    episodes_spent: int
    first_score: float | None = None
    best_score: float | None = None
    best_submission_id: str | None = None
    score_area: float | None = None
    gain_area: float | None = None
    episodes_to_half_gain: int | None = None
    episodes_to_most_gain: int | None = None
    validation_gap: float | None = None
    heldout_gap: float | None = None

    def to_json(self) -> dict[str, object]:
        """All fields as a JSON object."""
        return {field.name: getattr(self, field.name) for field in fields(self)}


def trajectory(
    points: Sequence[TrajectoryPoint],
    *,
    episode_budget: int,
    score_direction: ScoreDirection,
    episodes_spent: int | None = None,
    selected_submission_id: str | None = None,
    validation_score: float | None = None,
    assessment_score: float | None = None,
) -> Trajectory:
    """Diagnose a score curve; see :class:`Trajectory`.

    Args:
        points: published Submissions in their order.
        episode_budget: Episodes that could be charged in all.
        score_direction: whether a higher score is better.
        episodes_spent: Episodes charged in all; those of the last point if None.
        selected_submission_id: the final one.
        validation_score: its Validation score.
        assessment_score: its Assessment score.
    """
    spent = episodes_spent if episodes_spent is not None else points[-1].spent if points else 0
    if not points:
        return Trajectory(0, spent)
    best = points[0]
    curve = [best]
    for point in points[1:]:
        if is_better(point.score, best.score, score_direction):
            best = point
            curve.append(point)
    first = points[0].score
    gain = best.score - first
    area = _area(curve, max(episode_budget, spent, 1))
    sign = 1.0 if score_direction == "maximize" else -1.0
    trained = next((point.score for point in points if point.submission_id == selected_submission_id), None)
    return Trajectory(
        submissions=len(points),
        episodes_spent=spent,
        first_score=first,
        best_score=best.score,
        best_submission_id=best.submission_id,
        score_area=area,
        gain_area=(area - first) / gain if gain else None,
        episodes_to_half_gain=_reached(curve, first, gain * _HALF),
        episodes_to_most_gain=_reached(curve, first, gain * _MOST),
        validation_gap=_gap(trained, validation_score, sign),
        heldout_gap=_gap(best.score, assessment_score, sign),
    )


def _area(curve: Sequence[TrajectoryPoint], budget: int) -> float:
    ends = [point.spent for point in curve[1:]] + [budget]
    starts = [0, *ends[:-1]]
    return sum(point.score * (end - start) for point, start, end in zip(curve, starts, ends, strict=True)) / budget


def _reached(curve: Sequence[TrajectoryPoint], first: float, gain: float) -> int | None:
    if not gain:
        return None
    return next(point.spent for point in curve if abs(point.score - first) >= abs(gain))


def _gap(training: float | None, private: float | None, sign: float) -> float | None:
    return None if training is None or private is None else sign * (training - private)
