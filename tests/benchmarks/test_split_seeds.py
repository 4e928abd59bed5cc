"""Seeds of splits: deterministic, disjoint, different."""

import pytest

from evopolicygym.benchmarks.split_seeds import SPLITS, split_seeds


def test_the_same_arguments_give_the_same_seeds():
    assert split_seeds("train", seed=3, count=50) == split_seeds("train", seed=3, count=50)


def test_known_seeds_stay_as_they_are():
    assert split_seeds("train", seed=42, count=2) == [5514151569029622932, 4169845222638588412]
    assert split_seeds("test", seed=42, count=1) == [4882059253098728334]


def test_a_longer_list_begins_with_the_shorter_one():
    assert split_seeds("test", seed=3, count=50)[:20] == split_seeds("test", seed=3, count=20)


def test_seeds_within_a_call_are_different():
    assert len(set(split_seeds("train", seed=3, count=5000))) == 5000


def test_splits_cannot_share_a_seed_whatever_they_are_asked_with():
    for number, split in enumerate(SPLITS):
        for seed in (0, 1, 2**64 - 1):
            assert {value % 4 for value in split_seeds(split, seed=seed, count=200)} == {number}


def test_other_seeds_give_other_streams():
    assert not set(split_seeds("train", seed=1, count=500)) & set(split_seeds("train", seed=2, count=500))


def test_seeds_fit_signed_64_bit_integers():
    assert all(0 <= value < 2**63 for value in split_seeds("test", seed=9, count=500))


def test_an_unknown_split_is_refused_with_the_allowed_ones():
    with pytest.raises(ValueError, match="unknown split 'dev'; allowed: train, validation, test"):
        split_seeds("dev", seed=0, count=1)


@pytest.mark.parametrize(
    ("seed", "count"), [(-1, 1), (2**64, 1), (True, 1), (1.0, 1), (0, 0), (0, -1), (0, 2.0), (0, True)]
)
def test_a_seed_or_count_out_of_range_is_refused(seed, count):
    with pytest.raises(ValueError, match="must be an int"):
        split_seeds("train", seed=seed, count=count)
