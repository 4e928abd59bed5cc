"""TensorValue: exact bytes, finite floats, and the way from and to NumPy."""

import json
import struct
import subprocess
import sys
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from policy_values import tensors

from evopolicygym.policy import DTYPE_BYTES, TensorValue, floats_are_finite

WITHOUT_NUMPY = """
import json, sys
from evopolicygym.policy import floats_are_finite
cases = json.load(sys.stdin)
answers = [floats_are_finite(bytes.fromhex(data), size) for size, data in cases]
assert "numpy" not in sys.modules
json.dump(answers, sys.stdout)
"""


@pytest.mark.parametrize(
    ("fields", "error", "message"),
    [
        ((b"uint8", (1,), b"a"), TypeError, "dtype must be str"),
        (("uint8", [1], b"a"), TypeError, "shape must be a tuple"),
        (("uint8", (1,), bytearray(b"a")), TypeError, "data must be bytes"),
        (("uint8", (1,), memoryview(b"a")), TypeError, "data must be bytes"),
        (("uint8", (True,), b"a"), TypeError, "extents must be int"),
        (("uint8", (1.0,), b"a"), TypeError, "extents must be int"),
        (("uint8", (np.int64(1),), b"a"), TypeError, r"extents must be int, not numpy\.int64"),
        (("uint8", (-1,), b""), ValueError, ">= 0"),
        (("uint8", (-1, -1), b"a"), ValueError, ">= 0"),
        (("complex64", (1,), b"a" * 8), ValueError, "unknown tensor dtype 'complex64'"),
        (("float", (1,), b"a" * 8), ValueError, "unknown tensor dtype"),
        (("<f4", (1,), b"a" * 4), ValueError, "unknown tensor dtype"),
        (("uint8", (2,), b"a"), ValueError, "holds 2 bytes, found 1"),
        (("uint16", (2,), b"aaa"), ValueError, "holds 4 bytes, found 3"),
        (("uint8", (), b""), ValueError, "holds 1 bytes, found 0"),
        (("uint8", (0,), b"a"), ValueError, "holds 0 bytes, found 1"),
        (("bool", (2,), b"\x01\x02"), ValueError, "0 or 1"),
        (("float32", (1,), struct.pack("<f", float("nan"))), ValueError, "finite"),
        (("float64", (1,), struct.pack("<d", float("-inf"))), ValueError, "finite"),
        (("float16", (1,), struct.pack("<e", float("inf"))), ValueError, "finite"),
    ],
)
def test_a_wrong_field_is_refused(fields: tuple[Any, Any, Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        TensorValue(*fields)


@pytest.mark.parametrize("dtype", sorted(DTYPE_BYTES))
def test_every_dtype_holds_a_scalar_and_nothing(dtype: str) -> None:
    assert TensorValue(dtype, (), bytes(DTYPE_BYTES[dtype])).shape == ()
    assert TensorValue(dtype, (3, 0), b"").data == b""


def test_a_tensor_is_frozen_hashable_and_compared_by_value() -> None:
    tensor = TensorValue("uint8", (2,), b"ab")
    assert tensor == TensorValue("uint8", (2,), b"ab")
    assert hash(tensor) == hash(TensorValue("uint8", (2,), b"ab"))
    assert tensor != TensorValue("int8", (2,), b"ab")
    with pytest.raises(AttributeError):
        tensor.data = b"xy"  # type: ignore[misc]  # that is the point


def exponent_cases() -> list[tuple[int, bytes]]:
    """Every float16; for the wider ones every top half, with a mantissa of zeros, of ones, and of one low bit."""
    cases = [(2, struct.pack("<H", bits)) for bits in range(2**16)]
    for size, low in ((4, 16), (8, 48)):
        for top in range(2**16):
            for rest in (0, 1, 2**low - 1):
                cases.append((size, ((top << low) | rest).to_bytes(size, "little")))
    return cases


def is_finite(size: int, data: bytes) -> bool:
    value = struct.unpack({2: "<e", 4: "<f", 8: "<d"}[size], data)[0]
    return bool(np.isfinite(value))


def test_finiteness_is_exact_with_numpy_loaded() -> None:
    assert "numpy" in sys.modules
    sample = exponent_cases()[::7] + [(2, struct.pack("<H", bits)) for bits in range(0x7B00, 0x8001)]
    wrong = [case for case in sample if floats_are_finite(case[1], case[0]) != is_finite(*case)]
    assert wrong == []


def test_finiteness_is_exact_without_numpy() -> None:
    cases = exponent_cases()
    told = subprocess.run(
        [sys.executable, "-c", WITHOUT_NUMPY],
        input=json.dumps([(size, data.hex()) for size, data in cases]),
        capture_output=True,
        text=True,
        check=True,
        timeout=100,
    )
    answers = json.loads(told.stdout)
    expected = [is_finite(*case) for case in cases]
    assert [case for case, a, b in zip(cases, answers, expected, strict=True) if a != b] == []


def test_one_bad_float_is_found_at_any_place_without_numpy() -> None:
    cases = []
    for size, code in ((2, "e"), (4, "f"), (8, "d")):
        top = {"e": 65504.0, "f": 3.4028234663852886e38, "d": 1.7976931348623157e308}[code]
        for place in range(5):
            values = [top, -top, 0.0, 1.0, top]
            cases.append((size, struct.pack(f"<5{code}", *values).hex(), True))
            values[place] = float("nan")
            cases.append((size, struct.pack(f"<5{code}", *values).hex(), False))
        cases.append((size, "", True))
    told = subprocess.run(
        [sys.executable, "-c", WITHOUT_NUMPY],
        input=json.dumps([case[:2] for case in cases]),
        capture_output=True,
        text=True,
        check=True,
        timeout=100,
    )
    assert json.loads(told.stdout) == [case[2] for case in cases]


@given(tensors())
def test_a_tensor_survives_the_way_over_numpy(tensor: TensorValue) -> None:
    array = tensor.to_numpy()
    assert array.dtype.name == tensor.dtype
    assert array.shape == tensor.shape
    assert TensorValue.from_numpy(array) == tensor


@pytest.mark.parametrize("dtype", sorted(DTYPE_BYTES))
@pytest.mark.parametrize("order", ["<", ">"])
def test_an_array_of_either_byte_order_becomes_little_endian(dtype: str, order: str) -> None:
    plain = np.arange(6).reshape(2, 3) % 2
    tensor = TensorValue.from_numpy(plain.astype(np.dtype(dtype).newbyteorder(order)))  # type: ignore[arg-type]
    assert tensor.dtype == dtype
    assert tensor.data == plain.astype(np.dtype(dtype).newbyteorder("<")).tobytes()
    assert np.array_equal(tensor.to_numpy(), plain)


@pytest.mark.parametrize(
    "view",
    [
        lambda a: a.T,
        lambda a: a[::-1],
        lambda a: a[:, ::2],
        lambda a: np.asfortranarray(a),
        lambda a: np.broadcast_to(a[0], (5, 4)),
        lambda a: a[1:, 1:],
    ],
)
def test_an_array_of_any_layout_is_written_in_c_order(view: Any) -> None:
    array = view(np.arange(12, dtype=np.int32).reshape(3, 4))
    tensor = TensorValue.from_numpy(array)
    assert tensor.shape == array.shape
    assert np.array_equal(tensor.to_numpy(), array)


def test_a_tensor_is_detached_from_its_array() -> None:
    array = np.zeros(3, dtype=np.uint8)
    tensor = TensorValue.from_numpy(array)
    array[0] = 9
    assert tensor.data == b"\0\0\0"


def test_an_array_of_a_tensor_is_a_read_only_view() -> None:
    array = TensorValue("uint8", (3,), b"abc").to_numpy()
    assert not array.flags.owndata
    with pytest.raises(ValueError, match="read-only"):
        array[0] = 1


def test_a_scalar_array_keeps_its_shape() -> None:
    assert TensorValue.from_numpy(np.array(2.5)).shape == ()


@pytest.mark.parametrize(
    "array",
    [
        np.zeros(2, dtype=np.complex128),
        np.array(["a"]),
        np.array([b"a"]),
        np.array([None], dtype=object),
        np.zeros(2, dtype="datetime64[ns]"),
        np.zeros(2, dtype=[("a", "u1")]),
        np.zeros(2, dtype=np.longdouble),
        [1, 2],
        np.float64(1.0),
    ],
)
def test_what_is_no_array_of_a_known_dtype_is_a_type_error(array: Any) -> None:
    with pytest.raises(TypeError):
        TensorValue.from_numpy(array)


@given(st.sampled_from(["float16", "float32", "float64"]), st.sampled_from([np.nan, np.inf, -np.inf]))
def test_an_array_with_a_float_that_is_not_finite_is_a_value_error(dtype: str, bad: float) -> None:
    with pytest.raises(ValueError, match="finite"):
        TensorValue.from_numpy(np.array([0.0, bad], dtype=dtype))
