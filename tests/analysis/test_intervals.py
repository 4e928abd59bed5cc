"""Intervals of means and of paired differences."""

import pytest

from evopolicygym.analysis import mean_interval, paired_change
from evopolicygym.analysis.intervals import resamples_for


def test_the_t_interval_is_that_of_the_tables() -> None:
    # t(0.975, 4) = 2.7764; the standard error of 1..5 is sqrt(2.5 / 5).
    low, high = mean_interval([1.0, 2.0, 3.0, 4.0, 5.0]) or (0.0, 0.0)
    assert (low, high) == pytest.approx((3 - 2.7764 * 0.70711, 3 + 2.7764 * 0.70711), abs=0.01)


def test_few_values_have_no_interval() -> None:
    assert mean_interval([1.0, 2.0, 3.0]) is None


def test_programs_are_compared_on_the_episodes_that_both_played() -> None:
    change = paired_change({0: 1.0, 1: 2.0, 2: 3.0}, {1: 5.0, 2: 4.0, 9: 100.0})
    assert change is not None
    assert (change.pairs, change.left_out, change.mean) == (2, 0, 2.0)


def test_without_a_shared_episode_there_is_nothing_to_compare() -> None:
    assert paired_change({0: 1.0}, {1: 1.0}) is None


def test_episodes_in_which_a_policy_failed_are_left_out_and_counted() -> None:
    change = paired_change({0: 1.0, 1: None, 2: 1.0}, {0: 2.0, 1: 9.0, 2: None})
    assert change is not None
    assert (change.pairs, change.left_out, change.mean) == (1, 2, 1.0)
    nothing = paired_change({0: None}, {0: 1.0})
    assert nothing is not None
    assert (nothing.pairs, nothing.mean) == (0, None)


def test_a_steady_gain_is_clear_and_noise_is_not() -> None:
    before = {index: float(index % 7) for index in range(20)}
    gain = paired_change(before, {index: value + 1 + index % 3 for index, value in before.items()})
    noise = paired_change(before, {index: value + (-1) ** index * 3 for index, value in before.items()})
    assert gain is not None
    assert noise is not None
    assert gain.is_clear
    assert not noise.is_clear
    assert noise.low is not None
    assert noise.high is not None
    assert noise.low < 0 < noise.high


def test_the_same_values_give_the_same_interval() -> None:
    before = {index: float(index) for index in range(9)}
    after = {index: float(index * index % 5) for index in range(9)}
    assert paired_change(before, after) == paired_change(before, after)


def test_equal_differences_have_an_interval_of_no_width() -> None:
    change = paired_change(dict.fromkeys(range(5), 1.0), dict.fromkeys(range(5), 3.0))
    assert change is not None
    assert (change.low, change.high) == (2.0, 2.0)


def test_three_pairs_have_a_mean_and_no_interval() -> None:
    change = paired_change(dict.fromkeys(range(3), 1.0), dict.fromkeys(range(3), 3.0))
    assert change is not None
    assert change.mean == 2.0
    assert change.low is None
    assert change.to_json()["interval_95"] is None


def test_many_comparisons_are_drawn_less_often() -> None:
    assert resamples_for(1, 10) == 2000
    assert resamples_for(2000, 10) == 200
