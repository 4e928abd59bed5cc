"""Records in a file answer exactly as the objects would."""

import pickle

import pytest
from hypothesis import given
from hypothesis import strategies as st
from policy_values import policy_values

from evopolicygym.authoring import EpisodeRecord, EpisodeSpec, Step, Transition
from evopolicygym.evaluation.encoded_record import RecordFile, RecordWriter, decode_record
from evopolicygym.evaluation.plan import PlannedEpisode
from evopolicygym.execution.codec import encode, encode_in_parts
from evopolicygym.policy import TensorValue

PLANNED = PlannedEpisode(EpisodeSpec(5, "scenario"), 9)

steps = st.builds(
    Step,
    policy_values,
    st.floats(-1e300, 1e300),
    st.booleans(),
    st.booleans(),
    st.none() | st.dictionaries(st.text(max_size=5), policy_values, max_size=3),
)
transitions = st.lists(st.builds(Transition, policy_values, steps), max_size=6)


def written(episodes: list[tuple[object, list[Transition]]]) -> list[EpisodeRecord]:
    file = RecordFile.create()
    writer = RecordWriter(file.descriptor)
    found = []
    for initial, items in episodes:
        writer.begin(*encode_in_parts(initial))
        for item in items:
            writer.add(encode(item.action), *encode_in_parts(item.step.observation), item.step)
        found.append(writer.finish())
    return [decode_record(file, encoded, PLANNED, None) for encoded in found]


@given(st.lists(st.tuples(policy_values, transitions), min_size=1, max_size=3))
def test_records_equal_those_made_of_objects(episodes: list[tuple[object, list[Transition]]]) -> None:
    records = written(episodes)
    for record, (initial, items) in zip(records, episodes, strict=True):
        expected = EpisodeRecord(PLANNED.episode, PLANNED.policy_seed, initial, tuple(items))
        assert repr(record.initial_observation) == repr(expected.initial_observation)
        assert record.transitions == expected.transitions
        assert expected.transitions == record.transitions
        assert repr(tuple(record.transitions)) == repr(expected.transitions)
        assert [repr(record.transitions[i]) for i in range(len(items))] == [repr(item) for item in items]
        assert record.total_reward == expected.total_reward
        assert record.steps == len(items)


def some(count: int, size: int = 3) -> list[Transition]:
    return [
        Transition(number, Step([float(number)] * (size + number % 2), float(number), False, number == count - 1))
        for number in range(count)
    ]


def test_items_are_found_from_both_ends_and_by_slices() -> None:
    items = some(10)
    found = written([(None, items)])[0].transitions
    assert found[-1] == items[-1]
    assert found[2:5] == tuple(items[2:5])
    assert found[::-3] == tuple(items[::-3])
    with pytest.raises(IndexError):
        found[10]
    with pytest.raises(IndexError):
        found[-11]


def test_a_record_is_pickled_as_a_plain_one() -> None:
    record = written([(None, some(4))])[0]
    again = pickle.loads(pickle.dumps(record))
    assert type(again.transitions) is tuple
    assert again == record


def test_long_episodes_and_large_observations_are_written_in_pieces() -> None:
    many = some(10_000)
    picture = TensorValue("uint8", (100, 100), bytes(10_000))
    large = [Transition(1, Step(picture, 1.0, False, False, {"n": n})) for n in range(50)]
    texts = [Transition("x" * n * 1000, Step("y" * n * 1000, 1.0, False)) for n in range(40)]
    records = written([(picture, many), (None, large), ("start", texts)])
    assert [list(record.transitions) for record in records] == [many, large, texts]
    assert records[0].initial_observation == picture


def test_a_record_of_no_steps_is_empty() -> None:
    record = written([([1.0], [])])[0]
    assert (len(record.transitions), list(record.transitions), record.total_reward) == (0, [], 0.0)


def test_decoded_values_are_detached_from_each_other() -> None:
    found = written([(None, some(2))])[0].transitions
    first = found[0]
    first.step.observation.append(1.0)  # type: ignore[union-attr]  # a list
    assert found[0] != first
