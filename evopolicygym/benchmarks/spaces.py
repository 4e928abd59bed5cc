"""Gymnasium spaces as Policy values: observations out, actions in, both exact, and a description of each.

A codec is built once for a space; what it returns are closures over everything that can be known before
the first step, since they run for every step of every Episode.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias, TypeVar, cast

import numpy as np
import numpy.typing as npt
from gymnasium import spaces

from evopolicygym.authoring import InvalidAction
from evopolicygym.errors import BenchmarkError
from evopolicygym.policy import DTYPE_BYTES, PolicyValue, TensorValue

__all__ = ["LIST_MAX_ELEMENTS", "Decode", "Encode", "SpaceCodec", "space_codec"]

LIST_MAX_ELEMENTS = 64

_Array: TypeAlias = npt.NDArray[Any]
_Number = TypeVar("_Number", bool, int, float)
Encode: TypeAlias = Callable[[Any], PolicyValue]  # Any: whatever the simulator returns
Decode: TypeAlias = Callable[[PolicyValue], Any]  # Any: whatever the simulator takes


@dataclass(frozen=True, slots=True)
class SpaceCodec:
    """One space, both ways.

    Args:
        encode: observation of the simulator → exact Policy value. Raises BenchmarkError if the observation
            has another shape than its space, or values that its dtype cannot hold.
        decode: Policy value → action for the simulator. Raises InvalidAction unless the value has exactly the
            types, shape and bounds of the space; nothing is clipped.
        description: the space as a Policy value that JSON can hold.
        phrase: the Policy value in words, such as ``"a list of 4 floats"``.
    """

    encode: Encode
    decode: Decode
    description: dict[str, PolicyValue]
    phrase: str


def space_codec(space: "spaces.Space[Any]", place: str) -> SpaceCodec:
    """The codec of ``space``.

    Args:
        space: Discrete, Box, MultiDiscrete, MultiBinary, Text, or a Dict or Tuple of these.
        place: what the space is, for messages, such as ``"the action space"``.

    Raises:
        BenchmarkError: a space that has no Policy value; the space and its place are named.
    """
    for kind, build in _BUILDERS.items():
        if isinstance(space, kind):
            return build(space, place)
    supported = ", ".join(kind.__name__ for kind in _BUILDERS)
    raise BenchmarkError(
        f"{place} is a {type(space).__name__} space, which has no Policy value; supported: {supported}. "
        "Wrap the environment so that it uses one of these."
    )


# Discrete ---------------------------------------------------------------------------------------------------


def _discrete(space: "spaces.Discrete[Any]", place: str) -> SpaceCodec:
    first = int(space.start)
    last = first + int(space.n) - 1

    int64 = np.int64

    def encode(observation: Any) -> PolicyValue:
        kind = type(observation)
        if kind is int:
            return observation  # type: ignore[no-any-return]  # exact int
        return int(observation) if kind is int64 else _exact_int(observation, place)

    def decode(value: PolicyValue) -> int:
        if type(value) is int and first <= value <= last:
            return value
        raise InvalidAction

    return SpaceCodec(
        encode,
        decode,
        {"type": "Discrete", "n": last - first + 1, "start": first, "value": "int"},
        f"an int from {first} to {last}",
    )


def _exact_int(observation: Any, place: str) -> int:
    if isinstance(observation, np.generic | np.ndarray):
        observation = observation.item()
    try:
        return int(observation.__index__())
    except AttributeError:
        raise BenchmarkError(f"{place}: expected an integer, the simulator returned {observation!r}") from None


# Box --------------------------------------------------------------------------------------------------------


def _box(space: spaces.Box, place: str) -> SpaceCodec:
    dtype = space.dtype
    name = np.dtype(dtype).name
    if name not in DTYPE_BYTES:
        raise BenchmarkError(
            f"{place} is a Box of dtype {name}, which has no Policy value; supported: {', '.join(DTYPE_BYTES)}"
        )
    size = int(np.prod(space.shape, dtype=np.int64))
    description: dict[str, PolicyValue] = {
        "type": "Box",
        "shape": list(space.shape),
        "dtype": name,
        "low": _bound(space.low),
        "high": _bound(space.high),
    }
    range_text = _range_text(description["low"], description["high"])
    if size > LIST_MAX_ELEMENTS:
        return _box_tensor(space, place, description, range_text)
    return _box_list(space, place, description, range_text)


def _box_list(space: spaces.Box, place: str, description: dict[str, PolicyValue], range_text: str) -> SpaceCodec:
    dtype = np.dtype(space.dtype)
    element = {"f": "float", "b": "bool"}.get(dtype.kind, "int")
    low, high = _effective_bounds(space)
    decode: Decode
    if element == "float":
        decode = _float_list_decoder(space.shape, dtype, low, high)
        accepts = "float or int, not bool; checked as float64 against the bounds, then rounded to the dtype"
    else:
        decode = _exact_list_decoder(space.shape, dtype, low, high, bool if element == "bool" else int)
        accepts = f"{element} only"
    description["value"] = _nested(element, space.shape)
    description["action_elements"] = accepts
    return SpaceCodec(
        _list_encoder(space.shape, dtype, place),
        decode,
        description,
        f"{_elements_phrase(element, space.shape)} {range_text}",
    )


def _box_tensor(space: spaces.Box, place: str, description: dict[str, PolicyValue], range_text: str) -> SpaceCodec:
    dtype = np.dtype(space.dtype)
    floating = dtype.kind == "f"
    accepted = ("float16", "float32", "float64") if floating else (dtype.name,)
    description["value"] = "TensorValue"
    description["action_elements"] = (
        "a tensor of dtype float16, float32 or float64; checked as float64 against the bounds, then rounded"
        if floating
        else f"a tensor of dtype {dtype.name}"
    )
    shape = "×".join(map(str, space.shape))
    return SpaceCodec(
        _tensor_encoder(space.shape, dtype, place),
        _tensor_decoder(space, accepted),
        description,
        f"a TensorValue of dtype {dtype.name} and shape {shape} {range_text}",
    )


def _effective_bounds(space: spaces.Box) -> tuple[_Array, _Array]:
    """Bounds that also keep a float64 from overflowing when it is rounded to the Box's dtype."""
    if np.dtype(space.dtype).kind != "f":
        return space.low, space.high
    limit = float(np.finfo(space.low.dtype.name).max)
    low = np.maximum(space.low.astype(np.float64), -limit)
    high = np.minimum(space.high.astype(np.float64), limit)
    return low, high


def _bound(bound: _Array) -> PolicyValue:
    """One side of a Box: a number if it is the same everywhere, else nested lists; None where unbounded.

    More elements than a list of values may have are summed up as ``{"min", "max"}``.
    """
    if bound.size == 0:
        return None
    smallest, largest = _finite(bound.min()), _finite(bound.max())
    if bound.min() == bound.max():
        return smallest
    if bound.size > LIST_MAX_ELEMENTS:
        return {"min": smallest, "max": largest}
    flat = [_finite(number) for number in bound.ravel()]
    return _reshape(flat, bound.shape)


def _finite(number: Any) -> PolicyValue:
    item = number.item()
    return item if np.isfinite(number) else None


def _reshape(flat: list[PolicyValue], shape: tuple[int, ...]) -> PolicyValue:
    if len(shape) <= 1:
        return flat if shape else flat[0]
    width = len(flat) // shape[0]
    return [_reshape(flat[start : start + width], shape[1:]) for start in range(0, len(flat), width)]


def _range_text(low: PolicyValue, high: PolicyValue) -> str:
    if low is None and high is None:
        return "without bounds"
    if isinstance(low, list | dict) or isinstance(high, list | dict):
        return "within the bounds given in the space"
    least = "any number" if low is None else repr(low)
    most = "any number" if high is None else repr(high)
    return f"from {least} to {most}"


def _nested(element: str, shape: tuple[int, ...]) -> str:
    return "list of " * len(shape) + element


def _elements_phrase(element: str, shape: tuple[int, ...]) -> str:
    """``"a float"``, ``"a list of 4 floats"``, ``"a list of 2 lists of 3 ints"``."""
    if not shape:
        return f"an {element}" if element == "int" else f"a {element}"
    lists = " of ".join(f"{extent} lists" for extent in shape[:-1])
    last = f"{shape[-1]} {element}" + ("" if shape[-1] == 1 else "s")
    return f"a list of {lists} of {last}" if lists else f"a list of {last}"


# Arrays → Policy values -------------------------------------------------------------------------------------


def _list_encoder(shape: tuple[int, ...], dtype: "np.dtype[Any]", place: str) -> Encode:
    ndarray = np.ndarray

    def encode(observation: Any) -> PolicyValue:
        if type(observation) is not ndarray or observation.dtype != dtype:
            observation = _as_array(observation, dtype, place)
        if observation.shape != shape:
            raise _wrong_shape(observation, shape, place)
        return observation.tolist()  # type: ignore[no-any-return]  # nested lists of Python numbers

    return encode


def _tensor_encoder(shape: tuple[int, ...], dtype: "np.dtype[Any]", place: str) -> Encode:
    little = dtype.newbyteorder("<")
    name = dtype.name
    ndarray = np.ndarray

    def encode(observation: Any) -> PolicyValue:
        if type(observation) is not ndarray or observation.dtype != little:
            observation = _as_array(observation, little, place)
        if observation.shape != shape:
            raise _wrong_shape(observation, shape, place)
        return TensorValue(name, shape, observation.tobytes())

    return encode


def _as_array(observation: Any, dtype: "np.dtype[Any]", place: str) -> _Array:
    """An observation that is no array of its space's dtype, made one; values must survive, floats may round."""
    found = np.asarray(observation)
    with np.errstate(all="ignore"):  # what does not survive is told below
        array = found.astype(dtype)
    survived = np.isfinite(array).all() if dtype.kind == "f" else np.array_equal(array, found)
    if not survived:
        raise BenchmarkError(
            f"{place} has dtype {dtype.name}, which cannot hold what the simulator returned: {found.tolist()!r}"
        )
    return array


def _wrong_shape(observation: _Array, shape: tuple[int, ...], place: str) -> BenchmarkError:
    return BenchmarkError(f"{place} has shape {shape}, the simulator returned shape {observation.shape}")


# Policy values → arrays -------------------------------------------------------------------------------------


def _float_list_decoder(shape: tuple[int, ...], dtype: "np.dtype[Any]", low: _Array, high: _Array) -> Decode:
    if len(shape) != 1:
        return _nested_decoder(shape, dtype, low, high, (float, int), float)
    length = shape[0]
    bounds = list(zip(low.tolist(), high.tolist(), strict=True))

    def decode(value: PolicyValue) -> _Array:
        if type(value) is not list or len(value) != length:
            raise InvalidAction
        numbers = []
        for item, (least, most) in zip(value, bounds, strict=True):
            if type(item) is not float:
                if type(item) is not int:
                    raise InvalidAction
                item = float(item)
            if not least <= item <= most:
                raise InvalidAction
            numbers.append(item)
        return np.array(numbers, dtype)

    return decode


def _exact_list_decoder(
    shape: tuple[int, ...], dtype: "np.dtype[Any]", low: _Array, high: _Array, kind: type[_Number]
) -> Decode:
    return _nested_decoder(shape, dtype, low, high, (kind,), kind)


def _nested_decoder(
    shape: tuple[int, ...],
    dtype: "np.dtype[Any]",
    low: _Array,
    high: _Array,
    accepted: tuple[type, ...],
    convert: Callable[[Any], bool | int | float],
) -> Decode:
    bounds = list(zip(low.ravel().tolist(), high.ravel().tolist(), strict=True))

    def decode(value: PolicyValue) -> _Array:
        flat: list[Any] = []
        _flatten(value, shape, flat)
        numbers = []
        for item, (least, most) in zip(flat, bounds, strict=True):
            if type(item) not in accepted:
                raise InvalidAction
            number = convert(item)
            if not least <= number <= most:
                raise InvalidAction
            numbers.append(number)
        return np.array(numbers, dtype).reshape(shape)

    return decode


def _flatten(value: PolicyValue, shape: tuple[int, ...], flat: list[Any]) -> None:
    if not shape:
        flat.append(value)
        return
    if type(value) is not list or len(value) != shape[0]:
        raise InvalidAction
    if len(shape) == 1:
        flat.extend(value)
        return
    for item in value:
        _flatten(item, shape[1:], flat)


def _tensor_decoder(space: spaces.Box, accepted: tuple[str, ...]) -> Decode:
    shape = space.shape
    dtype = np.dtype(space.dtype)
    low, high = _effective_bounds(space)
    floating = dtype.kind == "f"

    def decode(value: PolicyValue) -> _Array:
        if type(value) is not TensorValue or value.shape != shape or value.dtype not in accepted:
            raise InvalidAction
        array = value.to_numpy()
        if floating:
            array = array.astype(np.float64)
        if not np.logical_and(low <= array, array <= high).all():
            raise InvalidAction
        return array.astype(dtype)  # a copy of its own, which a simulator may write to

    return decode


# MultiDiscrete, MultiBinary, Text ---------------------------------------------------------------------------


def _multi_discrete(space: "spaces.MultiDiscrete[Any]", place: str) -> SpaceCodec:
    dtype = np.dtype(space.dtype)
    first = np.asarray(space.start, dtype=np.int64)
    counts = np.asarray(space.nvec, dtype=np.int64)
    last = first + counts - 1
    shape = tuple(counts.shape)
    return SpaceCodec(
        _list_encoder(shape, dtype, place),
        _exact_list_decoder(shape, dtype, first, last, int),
        {
            "type": "MultiDiscrete",
            "shape": list(shape),
            "dtype": dtype.name,
            "n": counts.tolist(),
            "start": first.tolist(),
            "value": _nested("int", shape),
        },
        f"{_elements_phrase('int', shape)}, each from its own start to start + n - 1",
    )


def _multi_binary(space: spaces.MultiBinary, place: str) -> SpaceCodec:
    dtype = np.dtype(space.dtype)
    shape = tuple(space.shape)
    return SpaceCodec(
        _list_encoder(shape, dtype, place),
        _exact_list_decoder(shape, dtype, np.zeros(shape, np.int64), np.ones(shape, np.int64), int),
        {"type": "MultiBinary", "shape": list(shape), "dtype": dtype.name, "value": _nested("int", shape)},
        f"{_elements_phrase('int', shape)}, each 0 or 1",
    )


def _text(space: spaces.Text, place: str) -> SpaceCodec:
    least, most = int(space.min_length), int(space.max_length)
    allowed = frozenset(space.character_set)

    def encode(observation: Any) -> PolicyValue:
        if not isinstance(observation, str):
            raise BenchmarkError(f"{place}: expected text, the simulator returned {observation!r}")
        return str(observation)

    def decode(value: PolicyValue) -> str:
        if type(value) is str and least <= len(value) <= most and allowed.issuperset(value):
            return value
        raise InvalidAction

    return SpaceCodec(
        encode,
        decode,
        {
            "type": "Text",
            "min_length": least,
            "max_length": most,
            "characters": "".join(sorted(allowed)),
            "value": "str",
        },
        f"a str of {least} to {most} characters",
    )


# Dict, Tuple ------------------------------------------------------------------------------------------------


def _dict(space: spaces.Dict, place: str) -> SpaceCodec:
    for key in space.spaces:
        if type(key) is not str:
            raise BenchmarkError(f"{place} is a Dict space with the key {key!r}; keys must be str")
    parts = {key: space_codec(part, f"{place}[{key!r}]") for key, part in space.spaces.items()}
    encoders = {key: part.encode for key, part in parts.items()}
    decoders = {key: part.decode for key, part in parts.items()}

    def encode(observation: Any) -> PolicyValue:
        if not isinstance(observation, Mapping) or observation.keys() != encoders.keys():
            raise BenchmarkError(f"{place} is a Dict of {list(encoders)}, the simulator returned {observation!r}")
        return {key: encode_part(observation[key]) for key, encode_part in encoders.items()}

    def decode(value: PolicyValue) -> dict[str, Any]:
        if type(value) is not dict or value.keys() != decoders.keys():
            raise InvalidAction
        return {key: decode_part(value[key]) for key, decode_part in decoders.items()}

    return SpaceCodec(
        encode,
        decode,
        {
            "type": "Dict",
            "spaces": cast("PolicyValue", {key: part.description for key, part in parts.items()}),
            "value": "dict",
        },
        "a dict with " + "; ".join(f"{key!r}: {part.phrase}" for key, part in parts.items()),
    )


def _tuple(space: "spaces.Tuple[Any]", place: str) -> SpaceCodec:
    parts = [space_codec(part, f"{place}[{index}]") for index, part in enumerate(space.spaces)]
    encoders = [part.encode for part in parts]
    decoders = [part.decode for part in parts]
    length = len(parts)

    def encode(observation: Any) -> PolicyValue:
        if len(observation) != length:
            raise BenchmarkError(f"{place} is a Tuple of {length}, the simulator returned {observation!r}")
        return tuple([encode_part(item) for encode_part, item in zip(encoders, observation, strict=True)])

    def decode(value: PolicyValue) -> tuple[Any, ...]:
        if type(value) is not tuple or len(value) != length:
            raise InvalidAction
        return tuple([decode_part(item) for decode_part, item in zip(decoders, value, strict=True)])

    return SpaceCodec(
        encode,
        decode,
        {
            "type": "Tuple",
            "spaces": cast("PolicyValue", [part.description for part in parts]),
            "value": "tuple",
        },
        f"a tuple of {length}: " + "; ".join(part.phrase for part in parts),
    )


_BUILDERS: Mapping[type, Callable[[Any, str], SpaceCodec]] = {
    spaces.Discrete: _discrete,
    spaces.Box: _box,
    spaces.MultiDiscrete: _multi_discrete,
    spaces.MultiBinary: _multi_binary,
    spaces.Text: _text,
    spaces.Dict: _dict,
    spaces.Tuple: _tuple,
}
