"""Hypothesis strategies for Policy values, and an equality that tells types and bits apart."""

import struct

from hypothesis import strategies as st

from evopolicygym.policy import DTYPE_BYTES, INT_MAX, INT_MIN, PolicyValue, TensorValue

__all__ = ["identical", "keys", "policy_values", "scalars", "tensors"]

_BORDER_INTS = (INT_MIN, INT_MIN + 1, -(2**31), -1, 0, 1, 2**31, 2**53 + 1, 2**63 - 1, 2**63, INT_MAX)
_BORDER_FLOATS = (0.0, -0.0, 5e-324, 1e308, -1e308, 1.0, 2.0**53)

keys = st.one_of(st.text(max_size=8), st.sampled_from(["$type", "items", "base64", "", "é", "\0", "\n"]))

scalars: st.SearchStrategy[PolicyValue] = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(INT_MIN, INT_MAX),
    st.sampled_from(_BORDER_INTS),
    st.floats(allow_nan=False, allow_infinity=False),
    st.sampled_from(_BORDER_FLOATS),
    st.text(max_size=16),
    st.binary(max_size=16),
)


@st.composite
def tensors(draw: st.DrawFn) -> TensorValue:
    """Tensors of every dtype, of rank 0 to 4, empty ones among them."""
    dtype = draw(st.sampled_from(sorted(DTYPE_BYTES)))
    shape = tuple(draw(st.lists(st.integers(0, 3), max_size=4)))
    count = 1
    for extent in shape:
        count *= extent
    if dtype.startswith("float"):
        width = {"float16": 16, "float32": 32, "float64": 64}[dtype]
        code = {"float16": "e", "float32": "f", "float64": "d"}[dtype]
        numbers = draw(
            st.lists(
                st.floats(width=width, allow_nan=False, allow_infinity=False),  # type: ignore[arg-type]  # 16, 32, 64
                min_size=count,
                max_size=count,
            )
        )
        data = struct.pack(f"<{count}{code}", *numbers)
    elif dtype == "bool":
        data = bytes(draw(st.lists(st.integers(0, 1), min_size=count, max_size=count)))
    else:
        size = count * DTYPE_BYTES[dtype]
        data = draw(st.binary(min_size=size, max_size=size))
    return TensorValue(dtype, shape, data)


def _containers(children: st.SearchStrategy[PolicyValue]) -> st.SearchStrategy[PolicyValue]:
    items = st.lists(children, max_size=4)
    return st.one_of(items, items.map(tuple), st.dictionaries(keys, children, max_size=4))


policy_values: st.SearchStrategy[PolicyValue] = st.recursive(
    st.one_of(scalars, tensors()),
    _containers,
    max_leaves=12,
)


def identical(first: object, second: object) -> bool:
    """Whether two values agree in type and bits: ``1``, ``1.0`` and ``True`` differ, as do ``0.0`` and ``-0.0``."""
    if type(first) is not type(second):
        return False
    if isinstance(first, float) and isinstance(second, float):
        return struct.pack("<d", first) == struct.pack("<d", second)
    if isinstance(first, list | tuple) and isinstance(second, list | tuple):
        return len(first) == len(second) and all(map(identical, first, second))
    if isinstance(first, dict) and isinstance(second, dict):
        return list(first) == list(second) and all(identical(first[key], second[key]) for key in first)
    return first == second
