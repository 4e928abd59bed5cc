"""copy_policy_value: exact types in, a detached copy out, and errors that name the place."""

import collections
import enum
import sys
from typing import NamedTuple

import numpy as np
import pytest
from hypothesis import given
from policy_values import identical, policy_values

from evopolicygym.policy import INT_MAX, INT_MIN, VALUE_MAX_DEPTH, PolicyValue, TensorValue, copy_policy_value


class Colour(enum.IntEnum):
    RED = 1


class Name(str):
    __slots__ = ()


class Pair(NamedTuple):
    a: int
    b: int


class Tensor(TensorValue):
    pass


@given(policy_values)
def test_every_policy_value_is_copied_to_an_identical_one(value: PolicyValue) -> None:
    assert identical(copy_policy_value(value), value)


@given(policy_values)
def test_a_copy_shares_no_mutable_container_with_its_original(value: PolicyValue) -> None:
    def containers(item: object) -> set[int]:
        if isinstance(item, dict):
            return {id(item)}.union(*map(containers, item.values()))
        if isinstance(item, list | tuple):
            mine = {id(item)} if isinstance(item, list) else set()
            return mine.union(*map(containers, item))
        return set()

    copied = copy_policy_value(value)
    assert not containers(copied) & containers(value)


@pytest.mark.parametrize(
    ("value", "named"),
    [
        (np.float64(1.0), "numpy.float64"),
        (np.int64(1), "numpy.int64"),
        (np.bool_(True), "numpy.bool"),
        (np.str_("a"), "numpy.str_"),
        (np.zeros(2), "numpy.ndarray"),
        (Colour.RED, "Colour"),
        (Name("a"), "Name"),
        (collections.OrderedDict(), "collections.OrderedDict"),
        (collections.defaultdict(list), "collections.defaultdict"),
        (Pair(1, 2), "Pair"),
        (Tensor("bool", (), b"\1"), "Tensor"),
        (bytearray(b"a"), "bytearray"),
        (memoryview(b"a"), "memoryview"),
        ({1, 2}, "set"),
        (frozenset(), "frozenset"),
        (range(3), "range"),
        (1j, "complex"),
        (object(), "object"),
        (int, "type"),
        (..., "ellipsis"),
    ],
)
def test_a_value_of_another_type_is_a_type_error_that_names_the_type(value: object, named: str) -> None:
    with pytest.raises(TypeError, match=rf"^value: .*{named}.* is not a PolicyValue"):
        copy_policy_value(value)


@pytest.mark.parametrize("container", [lambda v: [v], lambda v: (v,), lambda v: {"k": v}])
def test_a_foreign_type_is_refused_within_every_container(container: object) -> None:
    with pytest.raises(TypeError, match=r"numpy\.float64"):
        copy_policy_value(container(np.float64(0.5)))  # type: ignore[operator]  # a function of one value


@pytest.mark.parametrize("key", [1, None, b"a", Name("a"), np.str_("a"), ("a",)])
def test_a_dict_key_that_is_no_exact_str_is_a_type_error(key: object) -> None:
    with pytest.raises(TypeError, match="a dict key must be str, not"):
        copy_policy_value({key: 1})


@pytest.mark.parametrize("number", [float("nan"), float("inf"), float("-inf")])
@pytest.mark.parametrize("container", [lambda v: v, lambda v: [v], lambda v: (1.0, v), lambda v: {"k": v}])
def test_a_float_that_is_not_finite_is_a_value_error_everywhere(container: object, number: float) -> None:
    with pytest.raises(ValueError, match="must be finite"):
        copy_policy_value(container(number))  # type: ignore[operator]  # a function of one value


@pytest.mark.parametrize("number", [INT_MIN, INT_MAX])
def test_the_outermost_ints_are_allowed(number: int) -> None:
    assert copy_policy_value(number) == number


@pytest.mark.parametrize("number", [INT_MIN - 1, INT_MAX + 1, 2**16000], ids=["below", "above", "of 4817 digits"])
def test_an_int_out_of_range_is_a_value_error(number: int) -> None:
    with pytest.raises(ValueError, match=r"\[-2\*\*63, 2\*\*64-1\]"):
        copy_policy_value([number])


@pytest.mark.parametrize("value", ["\ud800", {"\udc80": 1}, ["ok", "\udfff"]])
def test_text_that_is_not_valid_unicode_is_a_value_error(value: object) -> None:
    with pytest.raises(ValueError, match="lone surrogate"):
        copy_policy_value(value)


@pytest.mark.parametrize(
    ("value", "place"),
    [
        ([0, [1, {"a": (2, object())}]], r"^value\[1\]\[1\]\['a'\]\[1\]: object is"),
        ([1.0, 2.0, float("nan")], r"^value\[2\]: "),
        ({"a": {"b": {3: 4}}}, r"^value\['a'\]\['b'\]: a dict key"),
        ({"a": 1, "it's": [2**64]}, r"^value\[\"it's\"\]\[0\]: "),
    ],
)
def test_an_error_names_the_place_of_the_offending_value(value: object, place: str) -> None:
    with pytest.raises((TypeError, ValueError), match=place):
        copy_policy_value(value)


def test_an_error_may_call_the_value_by_another_name() -> None:
    with pytest.raises(TypeError, match=r"^observation\[0\]: set is not a PolicyValue"):
        copy_policy_value([set()], name="observation")


def test_an_error_stays_short_though_a_key_is_long() -> None:
    with pytest.raises(TypeError) as caught:
        copy_policy_value({"k" * 1_000_000: object()})
    assert len(str(caught.value)) < 300


def test_a_cycle_is_a_value_error() -> None:
    ring: list[object] = []
    ring.append({"again": ring})
    with pytest.raises(ValueError, match=f"nested deeper than {VALUE_MAX_DEPTH}"):
        copy_policy_value(ring)


def nested(levels: int) -> object:
    value: object = 1
    for level in range(levels):
        value = ([value], (value,), {"k": value})[level % 3]
    return value


def test_values_nested_as_deep_as_allowed_are_copied() -> None:
    value = nested(VALUE_MAX_DEPTH)
    assert copy_policy_value(value) == value


@pytest.mark.parametrize("levels", [VALUE_MAX_DEPTH + 1, 100_000])
def test_values_nested_too_deep_are_a_value_error(levels: int) -> None:
    value: object = 1
    for _ in range(levels):
        value = [value]
    with pytest.raises(ValueError, match="nested deeper"):
        copy_policy_value(value)


def test_the_deepest_value_needs_no_raised_recursion_limit() -> None:
    def under(frames: int) -> object:
        return copy_policy_value(nested(VALUE_MAX_DEPTH)) if frames == 0 else under(frames - 1)

    assert sys.getrecursionlimit() >= 1000
    assert under(300) is not None


def test_a_shared_part_is_copied_at_each_place() -> None:
    shared: list[PolicyValue] = [1]
    copied = copy_policy_value([shared, shared])
    assert isinstance(copied, list)
    assert copied == [[1], [1]]
    assert copied[0] is not copied[1]
