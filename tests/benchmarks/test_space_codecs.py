"""Spaces as Policy values: exact both ways."""

import numpy as np
import pytest
from gymnasium import spaces

from evopolicygym.authoring import InvalidAction
from evopolicygym.benchmarks.spaces import LIST_MAX_ELEMENTS, space_codec
from evopolicygym.errors import BenchmarkError
from evopolicygym.policy import TensorValue, copy_policy_value
from evopolicygym.policy_json import dumps, from_json, to_json

SPACES = {
    "discrete": spaces.Discrete(5),
    "discrete-from-minus-two": spaces.Discrete(3, start=-2),
    "float-box": spaces.Box(-1.5, 2.5, (4,), np.float32),
    "unbounded-box": spaces.Box(-np.inf, np.inf, (3,), np.float64),
    "half-box": spaces.Box(-1, 1, (2, 3), np.float16),
    "scalar-box": spaces.Box(0.0, 1.0, (), np.float32),
    "empty-box": spaces.Box(0.0, 1.0, (0,), np.float32),
    "own-bounds-box": spaces.Box(np.array([-1, -np.inf]), np.array([np.inf, 7]), dtype=np.float64),
    "int-box": spaces.Box(-3, 3, (2, 2, 2), np.int16),
    "widest-list": spaces.Box(0.0, 1.0, (LIST_MAX_ELEMENTS,), np.float64),
    "smallest-tensor": spaces.Box(0.0, 1.0, (LIST_MAX_ELEMENTS + 1,), np.float32),
    "image": spaces.Box(0, 255, (8, 8, 3), np.uint8),
    "wide-int-tensor": spaces.Box(-(2**40), 2**40, (70,), np.int64),
    "multi-discrete": spaces.MultiDiscrete([2, 3, 4], start=[0, -1, 10]),
    "multi-discrete-grid": spaces.MultiDiscrete([[2, 3], [4, 5]]),
    "multi-binary": spaces.MultiBinary(6),
    "multi-binary-grid": spaces.MultiBinary((2, 3)),
    "text": spaces.Text(max_length=6, min_length=2, charset="abcé"),
    "dict": spaces.Dict({"where": spaces.Box(-1, 1, (2,)), "kind": spaces.Discrete(3)}),
    "tuple": spaces.Tuple((spaces.Discrete(2), spaces.Text(4), spaces.Box(-1, 1, (65,)))),
    "nested": spaces.Dict({"a": spaces.Tuple((spaces.Dict({"b": spaces.MultiBinary(2)}), spaces.Discrete(2)))}),
}


@pytest.fixture(params=SPACES, ids=str)
def space(request: pytest.FixtureRequest) -> spaces.Space:
    space = SPACES[request.param]
    space.seed(7)
    return space


def same(left: object, right: object) -> bool:
    """Equal in value and, for arrays, in dtype."""
    if isinstance(left, np.ndarray):
        return isinstance(right, np.ndarray) and left.dtype == right.dtype and np.array_equal(left, right)
    if isinstance(left, dict):
        return left.keys() == right.keys() and all(same(left[key], right[key]) for key in left)
    if isinstance(left, tuple):
        return isinstance(right, tuple) and all(map(same, left, right))
    return left == right


def refuses(codec, value: object) -> bool:
    try:
        codec.decode(value)
    except InvalidAction:
        return True
    return False


def test_every_sample_becomes_an_exact_policy_value(space):
    codec = space_codec(space, "the space")

    for _ in range(50):
        value = codec.encode(space.sample())
        assert copy_policy_value(value) == value


def test_every_sample_survives_both_ways(space):
    codec = space_codec(space, "the space")

    for _ in range(50):
        sample = space.sample()
        action = codec.decode(codec.encode(sample))
        assert same(sample, action)
        assert space.contains(action)


def test_every_description_is_json(space):
    description = space_codec(space, "the space").description

    assert from_json(to_json(description)) == description
    assert dumps(to_json(description)).startswith('{"type":')
    assert "value" in description


@pytest.mark.parametrize("value", [None, True, 1.0, "1", -3, 1, [0], 2**63, TensorValue("int64", (), b"\0" * 8)])
def test_a_discrete_action_is_an_exact_int_in_range(value):
    assert refuses(space_codec(spaces.Discrete(3, start=-2), "it"), value)


def test_a_discrete_action_counts_from_the_start():
    codec = space_codec(spaces.Discrete(3, start=-2), "it")

    assert [codec.decode(value) for value in (-2, -1, 0)] == [-2, -1, 0]


@pytest.mark.parametrize(
    "value",
    [
        None,
        0.5,
        (0.5, 0.5),
        [0.5],
        [0.5, 0.5, 0.5],
        [0.5, True],
        [0.5, "0.5"],
        [0.5, None],
        [0.5, [0.5]],
        [0.5, 1.0000001],
        [0.5, -1.0000001],
        [0.5, 2],
        [0.5, float("nan")],
        [0.5, float("inf")],
        TensorValue("float32", (2,), b"\0" * 8),
    ],
    ids=repr,
)
def test_a_float_box_refuses_what_is_not_exactly_in_it(value):
    assert refuses(space_codec(spaces.Box(-1, 1, (2,), np.float32), "it"), value)


def test_a_float_box_takes_ints_and_rounds_to_its_dtype_only():
    codec = space_codec(spaces.Box(-1, 1, (3,), np.float32), "it")

    action = codec.decode([1, 0.1, -1.0])

    assert action.dtype == np.float32
    assert action.tolist() == [1.0, float(np.float32(0.1)), -1.0]


def test_bounds_are_compared_before_rounding():
    high = float(np.float32(0.1))  # a little above 0.1
    codec = space_codec(spaces.Box(0, 0.1, (1,), np.float32), "it")

    assert codec.decode([high]).tolist() == [high]
    assert refuses(codec, [float(np.nextafter(high, 1.0))])  # would round to the bound


def test_an_unbounded_box_refuses_what_its_dtype_cannot_hold():
    codec = space_codec(spaces.Box(-np.inf, np.inf, (1,), np.float32), "it")

    assert codec.decode([3e38]).dtype == np.float32
    assert refuses(codec, [1e39])


def test_an_unbounded_tensor_refuses_what_its_dtype_cannot_hold():
    codec = space_codec(spaces.Box(-np.inf, np.inf, (65,), np.float32), "it")

    assert refuses(codec, TensorValue.from_numpy(np.full(65, 1e39)))


@pytest.mark.parametrize("value", [[1, 2.0], [1, True], [1, 4], [1, -4], [1], (1, 2), [[1], [2]]], ids=repr)
def test_an_int_box_takes_exact_ints_only(value):
    assert refuses(space_codec(spaces.Box(-3, 3, (2,), np.int8), "it"), value)


@pytest.mark.parametrize(
    "value",
    [[[1.0, 2.0]], [[1.0], [2.0]], [1.0, 2.0, 3.0, 4.0], [[1.0, 2.0], [3.0]], [[1.0, 2.0], (3.0, 4.0)]],
    ids=repr,
)
def test_a_grid_is_nested_by_its_shape(value):
    codec = space_codec(spaces.Box(0, 9, (2, 2), np.float64), "it")

    assert codec.decode([[1.0, 2.0], [3.0, 4.0]]).tolist() == [[1.0, 2.0], [3.0, 4.0]]
    assert refuses(codec, value)


def test_a_scalar_box_takes_a_bare_number():
    codec = space_codec(spaces.Box(0, 1, (), np.float32), "it")

    assert codec.decode(0.5).shape == ()
    assert refuses(codec, [0.5])


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_a_large_float_box_takes_tensors_of_any_float_dtype(dtype):
    codec = space_codec(spaces.Box(-1, 1, (9, 9), np.float32), "it")

    action = codec.decode(TensorValue.from_numpy(np.full((9, 9), 0.5, dtype)))

    assert action.dtype == np.float32
    assert action.flags.writeable
    assert (action == 0.5).all()


def large(fill: float, shape: tuple[int, ...] = (9, 9), dtype: str = "float32") -> TensorValue:
    return TensorValue.from_numpy(np.full(shape, fill, dtype))


@pytest.mark.parametrize(
    "value",
    [large(1.5), large(0.5, (81,)), large(0.5, (9, 8)), large(0, dtype="int8"), [[0.5] * 9] * 9, b"\0" * 324],
    ids=lambda value: repr(value)[:40],
)
def test_a_large_box_refuses_other_tensors(value):
    assert refuses(space_codec(spaces.Box(-1, 1, (9, 9), np.float32), "it"), value)


def test_a_large_int_box_takes_its_own_dtype_only():
    codec = space_codec(spaces.Box(0, 9, (9, 9), np.uint8), "it")

    assert codec.decode(large(9, dtype="uint8")).dtype == np.uint8
    assert refuses(codec, large(9, dtype="int64"))
    assert refuses(codec, large(10, dtype="uint8"))


@pytest.mark.parametrize(
    "value", [[0, 9, 10], [2, -1, 10], [0, -1, 14], [0.0, -1, 10], [0, -1], [0, -1, True]], ids=repr
)
def test_a_multi_discrete_action_has_each_number_in_its_own_range(value):
    codec = space_codec(spaces.MultiDiscrete([2, 3, 4], start=[0, -1, 10]), "it")

    assert codec.decode([1, 1, 13]).tolist() == [1, 1, 13]
    assert refuses(codec, value)


@pytest.mark.parametrize("value", [[0, 2], [True, 0], [0, -1], [0], "01"], ids=repr)
def test_a_multi_binary_action_is_ints_of_zero_or_one(value):
    assert refuses(space_codec(spaces.MultiBinary(2), "it"), value)


@pytest.mark.parametrize("value", ["a", "abcabca", "abd", b"ab", ["a", "b"], None], ids=repr)
def test_a_text_action_keeps_length_and_characters(value):
    assert refuses(space_codec(spaces.Text(6, min_length=2, charset="abc"), "it"), value)


@pytest.mark.parametrize("value", [{"a": 0}, {"a": 0, "b": 0, "c": 0}, {"a": 0, "b": 2}, [0, 0], {}], ids=repr)
def test_a_dict_action_has_exactly_the_keys(value):
    codec = space_codec(spaces.Dict({"a": spaces.Discrete(2), "b": spaces.Discrete(2)}), "it")

    assert codec.decode({"b": 1, "a": 0}) == {"a": 0, "b": 1}
    assert refuses(codec, value)


@pytest.mark.parametrize("value", [[0, 1], (0,), (0, 1, 1), (0, 2)], ids=repr)
def test_a_tuple_action_is_an_exact_tuple(value):
    assert refuses(space_codec(spaces.Tuple((spaces.Discrete(2), spaces.Discrete(2))), "it"), value)


@pytest.mark.parametrize("observation", [3, np.int64(3), np.array(3), np.uint8(3)], ids=repr)
def test_a_discrete_observation_becomes_an_exact_int(observation):
    assert type(space_codec(spaces.Discrete(5), "it").encode(observation)) is int


@pytest.mark.parametrize("observation", [True, np.True_], ids=repr)
def test_a_bool_from_a_discrete_space_becomes_an_int(observation):
    value = space_codec(spaces.Discrete(2), "it").encode(observation)

    assert type(value) is int
    assert value == 1


def test_a_float_from_a_discrete_space_is_a_fault_of_the_simulator():
    with pytest.raises(BenchmarkError, match=r"the observation space: expected an integer, .* returned 2\.5"):
        space_codec(spaces.Discrete(5), "the observation space").encode(2.5)


def test_an_observation_of_another_float_type_is_rounded_to_the_dtype_of_its_space():
    codec = space_codec(spaces.Box(-1, 1, (2,), np.float32), "it")

    assert codec.encode([0.1, 1]) == [float(np.float32(0.1)), 1.0]


def test_an_observation_of_the_wrong_shape_is_a_fault_of_the_simulator():
    codec = space_codec(spaces.Box(-1, 1, (2,), np.float32), "it")

    with pytest.raises(BenchmarkError, match=r"it has shape \(2,\), the simulator returned shape \(3,\)"):
        codec.encode(np.zeros(3, np.float32))


def test_an_observation_that_its_dtype_cannot_hold_is_a_fault_of_the_simulator():
    codec = space_codec(spaces.Box(0, 255, (2,), np.uint8), "it")

    with pytest.raises(BenchmarkError, match="dtype uint8, which cannot hold"):
        codec.encode([1, 256])


def test_an_image_becomes_its_raw_bytes():
    image = np.arange(192, dtype=np.uint8).reshape(8, 8, 3)

    value = space_codec(SPACES["image"], "it").encode(image)

    assert value == TensorValue("uint8", (8, 8, 3), bytes(range(192)))


def test_a_strided_view_becomes_a_tensor_in_c_order():
    image = np.arange(192, dtype=np.uint8).reshape(8, 3, 8).transpose(0, 2, 1)

    value = space_codec(SPACES["image"], "it").encode(image)

    assert np.array_equal(value.to_numpy(), image)


def test_infinite_bounds_are_described_as_none():
    description = space_codec(SPACES["own-bounds-box"], "it").description

    assert description["low"] == [-1.0, None]
    assert description["high"] == [None, 7.0]


def test_equal_bounds_are_described_once():
    description = space_codec(SPACES["image"], "it").description

    assert (description["low"], description["high"]) == (0, 255)


@pytest.mark.parametrize(
    ("name", "phrase"),
    [
        ("discrete-from-minus-two", "an int from -2 to 0"),
        ("float-box", "a list of 4 floats from -1.5 to 2.5"),
        ("unbounded-box", "a list of 3 floats without bounds"),
        ("half-box", "a list of 2 lists of 3 floats from -1.0 to 1.0"),
        ("scalar-box", "a float from 0.0 to 1.0"),
        ("image", "a TensorValue of dtype uint8 and shape 8×8×3 from 0 to 255"),
        ("multi-binary", "a list of 6 ints, each 0 or 1"),
        ("text", "a str of 2 to 6 characters"),
    ],
)
def test_a_space_is_told_in_words(name, phrase):
    assert space_codec(SPACES[name], "it").phrase == phrase


@pytest.mark.parametrize(
    "unsupported",
    [
        spaces.Sequence(spaces.Discrete(2)),
        spaces.Graph(spaces.Discrete(2), None),
        spaces.OneOf((spaces.Discrete(2), spaces.Discrete(3))),
    ],
    ids=lambda space: type(space).__name__,
)
def test_a_space_without_policy_value_is_refused_by_name(unsupported):
    space = spaces.Dict({"inner": unsupported})

    with pytest.raises(BenchmarkError, match=rf"the action space\['inner'\] is a {type(unsupported).__name__} space"):
        space_codec(space, "the action space")


def test_a_box_of_a_dtype_without_policy_value_is_refused():
    if np.dtype(np.longdouble).name == "float64":
        pytest.skip("long double is float64 on this platform")
    with pytest.raises(BenchmarkError, match="which has no Policy value"):
        space_codec(spaces.Box(-1, 1, (2,), np.longdouble), "it")
