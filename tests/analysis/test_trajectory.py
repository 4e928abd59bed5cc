"""Diagnostics of a score curve, against numbers worked out by hand."""

import pytest

from evopolicygym.analysis import Trajectory, TrajectoryPoint, trajectory


def points(*pairs: tuple[int, float]) -> list[TrajectoryPoint]:
    return [TrajectoryPoint(f"submission-{n:06d}", spent, score) for n, (spent, score) in enumerate(pairs, 1)]


def test_the_area_is_the_mean_best_score_over_the_budget() -> None:
    # 10 from 0 to 30, 20 from 30 to 50, 40 from 50 to 100; the drop in between is no part of the curve.
    found = trajectory(points((10, 10), (30, 20), (40, 5), (50, 40)), episode_budget=100, score_direction="maximize")
    assert found.score_area == pytest.approx((10 * 30 + 20 * 20 + 40 * 50) / 100)
    assert found.gain_area == pytest.approx((27 - 10) / 30)
    assert (found.best_score, found.best_submission_id) == (40, "submission-000004")
    assert (found.submissions, found.episodes_spent) == (4, 50)


def test_the_shares_of_the_gain_are_reached_at_these_costs() -> None:
    found = trajectory(
        points((10, 0), (20, 49), (30, 50), (60, 79), (90, 100)), episode_budget=100, score_direction="maximize"
    )
    assert (found.episodes_to_half_gain, found.episodes_to_most_gain) == (30, 90)


def test_a_lower_score_is_better_where_the_benchmark_minimizes() -> None:
    found = trajectory(
        points((10, 100), (20, 60), (30, 80), (40, 20)),
        episode_budget=50,
        score_direction="minimize",
        selected_submission_id="submission-000004",
        validation_score=25.0,
        assessment_score=30.0,
    )
    assert found.best_score == 20
    assert (found.episodes_to_half_gain, found.episodes_to_most_gain) == (20, 40)
    assert (found.validation_gap, found.heldout_gap) == (5.0, 10.0)


def test_gaps_are_positive_if_training_looked_better() -> None:
    found = trajectory(
        points((10, 1), (20, 9), (30, 8)),
        episode_budget=30,
        score_direction="maximize",
        selected_submission_id="submission-000003",
        validation_score=7.5,
        assessment_score=6.0,
    )
    assert (found.validation_gap, found.heldout_gap) == (0.5, 3.0)


def test_without_a_gain_no_share_of_it_is_reached() -> None:
    found = trajectory(points((10, 5), (20, 4)), episode_budget=20, score_direction="maximize")
    assert (found.gain_area, found.episodes_to_half_gain, found.episodes_to_most_gain) == (None, None, None)
    assert found.score_area == 5


def test_a_run_without_submissions_has_spent_what_it_has_spent() -> None:
    assert trajectory([], episode_budget=10, score_direction="maximize", episodes_spent=4) == Trajectory(0, 4)


def test_the_values_go_to_json_by_name() -> None:
    told = trajectory(points((1, 1.0)), episode_budget=1, score_direction="maximize").to_json()
    assert told["score_area"] == 1.0
    assert set(told) == set(Trajectory.__dataclass_fields__)
