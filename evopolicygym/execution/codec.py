"""Exact Policy values as compact bytes, and back; safe against hostile bytes.

One tag byte, then the value, little-endian:

    N T F       None, True, False
    i u         int as signed / unsigned 64 bits (u only from 2**63 on)
    d           float as IEEE-754 double
    s y         str (UTF-8) / bytes: u32 length, bytes
    l t         list / tuple: u32 count, values
    D E         list / tuple of floats only: u32 count, doubles
    I J         list / tuple of ints only, each in the signed range: u32 count, i64s
    m           dict: u32 count, then for each u32 length, UTF-8 key, value
    x           tensor: u8 dtype, u8 rank, u64 extents, raw data to its computed length
    M           any value without a tensor, marshalled; written and read by trusted processes only

`decode` accepts whatever a Policy process may have sent and raises nothing but `MalformedValueError`.
`decode_trusted` is for bytes that come from our own processes: it takes the marshalled form too and leaves
out checks that the value has already passed.
"""

from __future__ import annotations

import marshal
import struct
from math import isfinite

from evopolicygym.policy import DTYPE_BYTES, VALUE_MAX_DEPTH, TensorValue

TYPE_CHECKING = False  # type checkers take it as true; importing typing would cost every template process
if TYPE_CHECKING:
    from typing import Any

    from evopolicygym.policy import PolicyValue

__all__ = [
    "MalformedValueError",
    "decode",
    "decode_trusted",
    "encode",
    "encode_in_parts",
    "encode_trusted",
    "large_tensor_bytes",
    "tensor_like",
]

_DTYPES = tuple(DTYPE_BYTES)
_DTYPE_CODES = {name: code for code, name in enumerate(_DTYPES)}
_RANK_MAX = 255

_U32 = struct.Struct("<I")
_TAGGED_I64 = struct.Struct("<cq")
_TAGGED_U64 = struct.Struct("<cQ")
_TAGGED_F64 = struct.Struct("<cd")
_TAGGED_U32 = struct.Struct("<cI")
_I64 = struct.Struct("<q")
_U64 = struct.Struct("<Q")
_F64 = struct.Struct("<d")

_NONE, _TRUE, _FALSE = b"NTF"
_INT, _UNSIGNED, _FLOAT = b"iud"
_STR, _BYTES, _LIST, _TUPLE = b"sylt"
_FLOAT_LIST, _FLOAT_TUPLE, _INT_LIST, _INT_TUPLE = b"DEIJ"
_DICT, _TENSOR, _MARSHALLED = b"mxM"

_FLOATS = {float}
_INTS = {int}

_SMALL_BYTES = 4096

# Version 2 writes no back references, so that equal values give equal bytes.
_MARSHAL_VERSION = 2


class MalformedValueError(ValueError):
    """The bytes are no encoded Policy value."""


def encode(value: Any) -> bytes:
    """Encode an exact Policy value, checking it as `copy_policy_value` does.

    Args:
        value: anything; what it is, is told apart here.

    Raises:
        TypeError: a value, or a dict key, of another type.
        ValueError: a number out of range or not finite, invalid Unicode, nesting deeper than 128 levels.
    """
    kind = type(value)
    if kind is int:
        return _encode_int(value)
    if kind is float:
        if not isfinite(value):
            raise ValueError("not finite")
        return _TAGGED_F64.pack(b"d", value)
    parts: list[bytes] = []
    _encode_into(parts, value, 0)
    return b"".join(parts)


def encode_trusted(value: PolicyValue) -> bytes:
    """Encode a value that is known to be an exact Policy value, for `decode_trusted`."""
    if type(value) is not TensorValue:
        try:
            return b"M" + marshal.dumps(value, _MARSHAL_VERSION)  # type: ignore[arg-type]  # tensors raise
        except ValueError:  # a tensor somewhere inside
            pass
    parts: list[bytes] = []
    _encode_into(parts, value, 0)
    return b"".join(parts)


def encode_in_parts(value: PolicyValue) -> tuple[bytes, bytes]:
    """What `encode_trusted` gives, in two parts; the second is a large tensor's own data, not copied, or empty."""
    if type(value) is TensorValue and len(value.data) >= _SMALL_BYTES:
        return _tensor_head(value), value.data
    return encode_trusted(value), b""


def decode(data: bytes, start: int = 0) -> PolicyValue:
    """Decode the one value that `data[start:]` holds, whoever wrote it.

    Raises:
        MalformedValueError: it is no encoded value, or breaks a rule of Policy values.
    """
    try:
        # The commonest actions by far, kept out of the general case.
        tag = data[start]
        if tag == _INT and len(data) == start + 9:
            return _I64.unpack_from(data, start + 1)[0]  # type: ignore[no-any-return]  # exact int
        value, end = _decode_at(data, start, 0, False)
    except MalformedValueError:
        raise
    except (ValueError, TypeError, IndexError, struct.error, OverflowError, MemoryError) as error:
        raise MalformedValueError(f"malformed value: {error}") from None
    if end != len(data):
        raise MalformedValueError(f"{len(data) - end} bytes are left over after the value")
    return value


def decode_trusted(data: bytes, start: int = 0) -> PolicyValue:
    """Decode bytes that one of our own processes wrote with `encode_trusted` (or `encode`)."""
    if data[start] == _MARSHALLED:
        # A small copy costs less than a view.
        return marshal.loads(data[start + 1 :] if len(data) < _SMALL_BYTES else memoryview(data)[start + 1 :])  # type: ignore[no-any-return]  # as it was encoded
    return _decode_at(data, start, 0, True)[0]


def large_tensor_bytes(value: PolicyValue) -> int:
    """How much data ``value`` holds, if it is a tensor that `encode_in_parts` gives in two parts; else 0."""
    return len(value.data) if type(value) is TensorValue and len(value.data) >= _SMALL_BYTES else 0


def tensor_like(value: PolicyValue, data: bytes) -> TensorValue:
    """A tensor of the dtype and shape of the tensor ``value``, with ``data`` that came from a trusted process."""
    assert type(value) is TensorValue
    return _unchecked_tensor(value.dtype, value.shape, data)


def _encode_int(value: int) -> bytes:
    if -0x8000000000000000 <= value <= 0x7FFFFFFFFFFFFFFF:
        return _TAGGED_I64.pack(b"i", value)
    if 0 < value <= 0xFFFFFFFFFFFFFFFF:
        return _TAGGED_U64.pack(b"u", value)
    raise ValueError("an int must lie in [-2**63, 2**64-1]")


def _encode_into(parts: list[bytes], value: Any, depth: int) -> None:
    # Any: the body tells the exact types apart itself.
    kind = type(value)
    if kind is list or kind is tuple:
        _encode_items(parts, value, depth, kind is list)
    elif kind is float:
        if not isfinite(value):
            raise ValueError(f"a float must be finite, found {value!r}")
        parts.append(_TAGGED_F64.pack(b"d", value))
    elif kind is int:
        parts.append(_encode_int(value))
    elif kind is str:
        text = value.encode()
        parts.append(_TAGGED_U32.pack(b"s", len(text)) + text)
    elif value is None:
        parts.append(b"N")
    elif kind is bool:
        parts.append(b"T" if value else b"F")
    elif kind is bytes:
        parts.append(_TAGGED_U32.pack(b"y", len(value)))
        parts.append(value)
    elif kind is TensorValue:
        _encode_tensor(parts, value)
    elif kind is dict:
        if depth >= VALUE_MAX_DEPTH:
            raise ValueError(f"nested deeper than {VALUE_MAX_DEPTH} levels")
        parts.append(_TAGGED_U32.pack(b"m", len(value)))
        for key, item in value.items():
            if type(key) is not str:
                raise TypeError(f"a dict key must be str, not {type(key).__name__}")
            text = key.encode()
            parts.append(_U32.pack(len(text)) + text)
            _encode_into(parts, item, depth + 1)
    else:
        raise TypeError(f"{kind.__module__}.{kind.__qualname__} is not a PolicyValue")


def _encode_items(parts: list[bytes], value: list[Any] | tuple[Any, ...], depth: int, is_list: bool) -> None:
    if depth >= VALUE_MAX_DEPTH:
        raise ValueError(f"nested deeper than {VALUE_MAX_DEPTH} levels")
    count = len(value)
    kinds = set(map(type, value))
    if kinds == _FLOATS:
        # A sum of finite floats may overflow; only then each is looked at.
        if not isfinite(sum(value)) and not all(map(isfinite, value)):
            raise ValueError("a float must be finite")
        parts.append(struct.pack(f"<cI{count}d", b"D" if is_list else b"E", count, *value))
        return
    if kinds == _INTS and min(value) >= -0x8000000000000000 and max(value) <= 0x7FFFFFFFFFFFFFFF:
        parts.append(struct.pack(f"<cI{count}q", b"I" if is_list else b"J", count, *value))
        return
    parts.append(_TAGGED_U32.pack(b"l" if is_list else b"t", count))
    for item in value:
        _encode_into(parts, item, depth + 1)


def _encode_tensor(parts: list[bytes], tensor: TensorValue) -> None:
    parts.append(_tensor_head(tensor))
    parts.append(tensor.data)


def _tensor_head(tensor: TensorValue) -> bytes:
    rank = len(tensor.shape)
    if rank > _RANK_MAX:
        raise ValueError(f"a tensor of {rank} dimensions; at most {_RANK_MAX} can be sent")
    return struct.pack(f"<cBB{rank}Q", b"x", _DTYPE_CODES[tensor.dtype], rank, *tensor.shape)


def _decode_at(data: bytes, at: int, depth: int, trusted: bool) -> tuple[PolicyValue, int]:
    tag = data[at]
    at += 1
    if tag == _INT:
        return _I64.unpack_from(data, at)[0], at + 8
    if tag == _FLOAT:
        number = _F64.unpack_from(data, at)[0]
        if not isfinite(number):
            raise MalformedValueError(f"a float must be finite, found {number!r}")
        return number, at + 8
    if tag in (_FLOAT_LIST, _FLOAT_TUPLE):
        (count,) = _U32.unpack_from(data, at)
        floats = struct.unpack_from(f"<{_fitting(data, at + 4, count, 8)}d", data, at + 4)
        if not isfinite(sum(floats)) and not all(map(isfinite, floats)):
            raise MalformedValueError("a float must be finite")
        return (list(floats) if tag == _FLOAT_LIST else floats), at + 4 + 8 * count
    if tag in (_INT_LIST, _INT_TUPLE):
        (count,) = _U32.unpack_from(data, at)
        ints = struct.unpack_from(f"<{_fitting(data, at + 4, count, 8)}q", data, at + 4)
        return (list(ints) if tag == _INT_LIST else ints), at + 4 + 8 * count
    if tag == _STR:
        return _text(data, at)
    if tag == _TRUE:
        return True, at
    if tag == _FALSE:
        return False, at
    if tag == _NONE:
        return None, at
    if tag == _UNSIGNED:
        (number,) = _U64.unpack_from(data, at)
        if number <= 0x7FFFFFFFFFFFFFFF:
            raise MalformedValueError("an int below 2**63 must be in its signed form")
        return number, at + 8
    if tag == _BYTES:
        (size,) = _U32.unpack_from(data, at)
        end = at + 4 + _fitting(data, at + 4, size, 1)
        return data[at + 4 : end], end
    if tag == _TENSOR:
        return _tensor(data, at, trusted)
    if tag in (_LIST, _TUPLE, _DICT):
        if depth >= VALUE_MAX_DEPTH:
            raise MalformedValueError(f"nested deeper than {VALUE_MAX_DEPTH} levels")
        if tag == _DICT:
            return _dict(data, at, depth, trusted)
        return _items(data, at, depth, trusted, tag == _LIST)
    raise MalformedValueError(f"unknown tag {tag:#04x}")


def _fitting(data: bytes, at: int, count: int, width: int) -> int:
    """`count` if so many items of `width` bytes are there; checked before anything is allocated for them."""
    if count * width > len(data) - at:
        raise MalformedValueError(f"{count} items of {width} bytes do not fit in the {len(data) - at} that are left")
    return count


def _text(data: bytes, at: int) -> tuple[str, int]:
    (size,) = _U32.unpack_from(data, at)
    end = at + 4 + _fitting(data, at + 4, size, 1)
    return data[at + 4 : end].decode(), end


def _items(data: bytes, at: int, depth: int, trusted: bool, is_list: bool) -> tuple[PolicyValue, int]:
    (count,) = _U32.unpack_from(data, at)
    at += 4
    _fitting(data, at, count, 1)
    items: list[PolicyValue] = []
    for _ in range(count):
        item, at = _decode_at(data, at, depth + 1, trusted)
        items.append(item)
    return (items if is_list else tuple(items)), at


def _dict(data: bytes, at: int, depth: int, trusted: bool) -> tuple[PolicyValue, int]:
    (count,) = _U32.unpack_from(data, at)
    at += 4
    _fitting(data, at, count, 5)
    found: dict[str, PolicyValue] = {}
    for _ in range(count):
        key, at = _text(data, at)
        found[key], at = _decode_at(data, at, depth + 1, trusted)
    if len(found) != count:
        raise MalformedValueError("a dict key stands twice")
    return found, at


def _tensor(data: bytes, at: int, trusted: bool) -> tuple[PolicyValue, int]:
    code, rank = data[at], data[at + 1]
    if code >= len(_DTYPES):
        raise MalformedValueError(f"unknown tensor dtype code {code}")
    dtype = _DTYPES[code]
    at += 2
    shape: tuple[int, ...] = struct.unpack_from(f"<{rank}Q", data, at)
    at += 8 * rank
    size = DTYPE_BYTES[dtype]
    for extent in shape:
        size *= extent
    end = at + _fitting(data, at, size, 1)
    content = data[at:end]
    if not trusted:
        return TensorValue(dtype, shape, content), end
    return _unchecked_tensor(dtype, shape, content), end


def _unchecked_tensor(dtype: str, shape: tuple[int, ...], data: bytes) -> TensorValue:
    tensor = object.__new__(TensorValue)
    write = object.__setattr__
    write(tensor, "dtype", dtype)
    write(tensor, "shape", shape)
    write(tensor, "data", data)
    return tensor
