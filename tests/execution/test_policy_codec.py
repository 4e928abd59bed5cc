"""The codec: every Policy value comes back exactly, and hostile bytes do nothing but raise the one error."""

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st
from policy_values import policy_values

from evopolicygym.execution.codec import (
    MalformedValueError,
    decode,
    decode_trusted,
    encode,
    encode_in_parts,
    encode_trusted,
)
from evopolicygym.policy import PolicyValue, TensorValue, copy_policy_value


def exact(value: object) -> object:
    """``value`` with every type spelled out, so that 1, 1.0 and True differ, and -0.0 and 0.0 do."""
    if isinstance(value, list | tuple):
        return type(value), [exact(item) for item in value]
    if isinstance(value, dict):
        return dict, [(key, exact(item)) for key, item in value.items()]
    return type(value), repr(value)


@given(policy_values)
def test_every_value_comes_back_exactly(value: PolicyValue) -> None:
    assert exact(decode(encode(value))) == exact(value)
    assert exact(decode_trusted(encode_trusted(value))) == exact(value)
    assert exact(decode_trusted(encode(value))) == exact(value)
    assert exact(decode_trusted(b"".join(encode_in_parts(value)))) == exact(value)


@pytest.mark.parametrize(
    "value",
    [
        [1.0, 2.0],
        (1.0, -0.0),
        [1, 2],
        (1, -(2**63)),
        [2**63, 1],
        [True, False],
        [1, True],
        [1.0, 1],
        [],
        (),
        {},
        [[]],
        [1e308, 1e308],
        2**64 - 1,
        -(2**63),
        TensorValue("float32", (0, 3), b""),
        TensorValue("uint8", (), b"\7"),
        TensorValue("uint8", (100, 100), bytes(10_000)),
    ],
)
def test_values_at_the_edges_of_the_compact_forms_come_back(value: PolicyValue) -> None:
    assert exact(decode(encode(value))) == exact(value)
    assert exact(decode_trusted(b"".join(encode_in_parts(value)))) == exact(value)


class Int(int):
    pass


@pytest.mark.parametrize(
    "value",
    [
        float("nan"),
        [1.0, float("inf")],
        [float("inf"), float("-inf")],
        {"a": float("nan")},
        2**64,
        [2**64],
        -(2**63) - 1,
        Int(1),
        [Int(1)],
        {1: 2},
        {"a": {2: 3}},
        "\ud800",
        {"\ud800": 1},
        bytearray(b"x"),
        {1, 2},
        object(),
        1j,
    ],
)
def test_what_is_no_policy_value_is_refused_as_elsewhere(value: object) -> None:
    with pytest.raises((TypeError, ValueError)) as elsewhere:
        copy_policy_value(value)
    with pytest.raises(elsewhere.type if elsewhere.type in (TypeError, ValueError) else ValueError):
        encode(value)


def test_nesting_is_bounded_on_both_sides() -> None:
    value: PolicyValue = 1
    for _ in range(128):
        value = [value, 0.5]
    assert exact(decode(encode(value))) == exact(value)
    with pytest.raises(ValueError, match="nested deeper"):
        encode([value, 0.5])
    with pytest.raises(MalformedValueError, match="nested deeper"):
        decode(b"l\1\0\0\0" * 1000 + b"N")


@given(st.binary(max_size=200))
def test_random_bytes_only_raise_the_one_error(data: bytes) -> None:
    try:
        value = decode(data)
    except MalformedValueError:
        return
    assert exact(copy_policy_value(value)) == exact(value)


@given(policy_values, st.data())
def test_damaged_encodings_only_raise_the_one_error(value: PolicyValue, data: st.DataObject) -> None:
    encoded = bytearray(encode(value))
    for _ in range(data.draw(st.integers(1, 4))):
        encoded[data.draw(st.integers(0, len(encoded) - 1))] = data.draw(st.integers(0, 255))
    cut = data.draw(st.integers(0, len(encoded)))
    try:
        decoded = decode(bytes(encoded[:cut]))
    except MalformedValueError:
        return
    assert exact(copy_policy_value(decoded)) == exact(decoded)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"M\xe9\x01\0\0\0",  # marshalled: for trusted bytes only
        b"z",
        b"i\1",
        b"NN",
        b"u" + struct.pack("<Q", 5),
        b"d" + struct.pack("<d", float("nan")),
        b"D" + struct.pack("<Id", 1, float("inf")),
        b"D\xff\xff\xff\xff",
        b"l\xff\xff\xff\xffN",
        b"m\xff\xff\xff\xff",
        b"s\4\0\0\0ab",
        b"s\1\0\0\0\xff",
        b"m\2\0\0\0" + 2 * b"\1\0\0\0aN",
        b"x\x63\0",
        b"x\0\1" + struct.pack("<Q", 2**63),
        b"x\0\1" + struct.pack("<Q", 1) + b"\2",
        b"x\x0a\1" + struct.pack("<Qf", 1, float("nan")),
        b"x\0\xff",
    ],
)
def test_malformed_values_are_told_apart_from_values(data: bytes) -> None:
    with pytest.raises(MalformedValueError):
        decode(data)


def test_decoding_starts_where_it_is_told() -> None:
    for value in (7, [1.0], "x"):
        assert decode(b"head" + encode(value), 4) == value
        assert decode_trusted(b"head" + encode_trusted(value), 4) == value


def test_equal_values_have_equal_trusted_encodings() -> None:
    shared = ["a" * 3, [1, 2]]
    assert encode_trusted([shared, shared]) == encode_trusted([["aaa", [1, 2]], ["a" + "aa", [1, 2]]])
