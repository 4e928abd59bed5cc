"""TransitionSequence: looks like a tuple of Transitions, but may decode an item only when it is asked for."""

import copy
import pickle
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from evopolicygym.authoring import EpisodeRecord, EpisodeSpec, Step, Transition, TransitionSequence


class Counted(TransitionSequence):
    """Makes Transition i on access, and remembers which were asked for."""

    __slots__ = ("asked", "length")

    def __init__(self, length: int) -> None:
        self.length = length
        self.asked: list[int] = []

    def __len__(self) -> int:
        return self.length

    def transition(self, index: int) -> Transition:
        self.asked.append(index)
        return Transition([index], Step({"at": index}, index, False))


def plain(length: int) -> tuple[Transition, ...]:
    return tuple(Counted(length))


def test_an_item_is_decoded_alone() -> None:
    sequence = Counted(1_000_000)
    assert sequence[123_456].action == [123_456]
    assert sequence.asked == [123_456]


def test_an_item_is_equal_but_not_identical_at_each_access() -> None:
    sequence = Counted(3)
    assert sequence[1] == sequence[1]
    assert sequence[1] is not sequence[1]


@pytest.mark.parametrize("index", [0, 1, 2, -1, -2, -3, True, np.int64(2), np.int64(-1)])
def test_an_index_means_what_it_means_in_a_tuple(index: Any) -> None:
    assert Counted(3)[index] == plain(3)[index]


@pytest.mark.parametrize("index", [3, -4, 2**70, -(2**70)])
def test_an_index_out_of_range_is_an_index_error(index: int) -> None:
    with pytest.raises(IndexError):
        Counted(3)[index]


@pytest.mark.parametrize("index", ["0", 1.0, None, (0,)])
def test_an_index_of_another_type_is_a_type_error(index: Any) -> None:
    with pytest.raises(TypeError):
        Counted(3)[index]


@pytest.mark.parametrize(
    "cut", [slice(None), slice(1, 3), slice(-2, None), slice(None, None, -1), slice(5, 99), slice(4, 0, -2)]
)
def test_a_slice_is_a_tuple(cut: slice) -> None:
    part = Counted(5)[cut]
    assert type(part) is tuple
    assert part == plain(5)[cut]


def test_it_equals_a_tuple_both_ways() -> None:
    sequence: Any = Counted(4)
    assert sequence == plain(4)
    assert plain(4) == sequence
    assert (sequence != plain(4)) is False
    assert (plain(4) != sequence) is False
    assert sequence == Counted(4)


def test_it_differs_from_others_both_ways() -> None:
    sequence: Any = Counted(4)
    for other in (plain(3), plain(5), plain(4)[::-1], (), list(plain(4)), None):
        assert sequence != other
        assert other != sequence


def test_an_empty_one_is_false_and_equals_the_empty_tuple() -> None:
    sequence: Any = Counted(0)
    assert not sequence
    assert sequence == ()
    assert hash(sequence) == hash(())


def test_it_iterates_forward_and_backward() -> None:
    assert list(Counted(4)) == list(plain(4))
    assert list(reversed(Counted(4))) == list(reversed(plain(4)))


def test_it_finds_and_counts_equal_items() -> None:
    sequence, wanted = Counted(4), plain(4)[2]
    assert wanted in sequence
    assert sequence.index(wanted) == 2
    assert sequence.count(wanted) == 1


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_it_is_pickled_as_a_tuple(protocol: int) -> None:
    again = pickle.loads(pickle.dumps(Counted(3), protocol))
    assert type(again) is tuple
    assert again == plain(3)


def test_it_is_copied_as_a_tuple() -> None:
    copied: object = copy.deepcopy(Counted(3))
    assert type(copied) is tuple
    assert copy.copy(Counted(3)) == plain(3)


def test_it_is_immutable() -> None:
    sequence: Any = Counted(3)
    with pytest.raises(TypeError):
        sequence[0] = sequence[1]
    with pytest.raises(TypeError):
        del sequence[0]


def test_it_is_a_sequence_and_does_not_print_its_items() -> None:
    sequence = Counted(1_000_000)
    assert isinstance(sequence, Sequence)
    assert repr(sequence) == "<1000000 transitions>"
    assert sequence.asked == []


def test_the_base_class_cannot_be_made() -> None:
    with pytest.raises(TypeError, match="abstract"):
        TransitionSequence()  # type: ignore[abstract]  # that is the point


def test_a_record_holds_it_as_it_is_and_equals_one_with_a_tuple() -> None:
    lazy, eager = (EpisodeRecord(EpisodeSpec(1), 2, None, moves) for moves in (Counted(4), plain(4)))
    assert isinstance(lazy.transitions, Counted)
    assert lazy == eager
    assert eager == lazy
    assert (lazy.steps, lazy.total_reward) == (4, 6.0)


def test_making_a_record_decodes_nothing() -> None:
    moves = Counted(1000)
    assert EpisodeRecord(EpisodeSpec(1), 2, None, moves).steps == 1000
    assert moves.asked == []


def test_a_record_with_it_is_pickled_with_a_tuple() -> None:
    made = EpisodeRecord(EpisodeSpec(1), 2, None, Counted(3))
    again = pickle.loads(pickle.dumps(made))
    assert again == made
    assert type(again.transitions) is tuple
