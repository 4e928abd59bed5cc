"""The JSON form of Policy values: plain where JSON has the type, tagged with ``$type`` where it has not."""

import base64
import binascii
import json
from typing import TypeVar

from evopolicygym.policy import PolicyValue, TensorValue, copy_policy_value

__all__ = ["dumps", "from_json", "to_json"]

_T = TypeVar("_T")

_TAG = "$type"


def to_json(value: PolicyValue) -> object:
    """``value`` as objects that :mod:`json` can write.

    bytes become ``{"$type": "bytes", "base64"}``, tensors ``{"$type": "tensor", "dtype", "shape", "base64"}``,
    tuples ``{"$type": "tuple", "items"}``; a dict that itself has a ``$type`` key becomes
    ``{"$type": "dict", "items": [[key, value], …]}`` so that nothing is ambiguous.

    Raises:
        TypeError: the value is no PolicyValue.
    """
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, bytes):
        return {_TAG: "bytes", "base64": base64.b64encode(value).decode("ascii")}
    if isinstance(value, TensorValue):
        return {
            _TAG: "tensor",
            "dtype": value.dtype,
            "shape": list(value.shape),
            "base64": base64.b64encode(value.data).decode("ascii"),
        }
    if isinstance(value, list):
        return [to_json(item) for item in value]
    if isinstance(value, tuple):
        return {_TAG: "tuple", "items": [to_json(item) for item in value]}
    if isinstance(value, dict):
        if _TAG in value:
            return {_TAG: "dict", "items": [[key, to_json(item)] for key, item in value.items()]}
        return {key: to_json(item) for key, item in value.items()}
    raise TypeError(f"{type(value).__qualname__} is not a PolicyValue")


def from_json(obj: object) -> PolicyValue:
    """The PolicyValue that :func:`to_json` turned into ``obj``.

    Raises:
        ValueError: an unknown ``$type``, a missing part, broken base64, a value out of range.
        TypeError: something that JSON does not hold.
    """
    try:
        return copy_policy_value(_decode(obj))
    except RecursionError:
        raise ValueError("a value is nested too deeply") from None


def _decode(obj: object) -> object:
    if isinstance(obj, list):
        return [_decode(item) for item in obj]
    if not isinstance(obj, dict):
        return obj
    if _TAG not in obj:
        return {key: _decode(item) for key, item in obj.items()}
    match obj[_TAG]:
        case "bytes":
            return _bytes(obj)
        case "tensor":
            try:
                return TensorValue(_part(obj, "dtype", str), tuple(_part(obj, "shape", list)), _bytes(obj))
            except TypeError as error:
                raise ValueError(str(error)) from None
        case "tuple":
            return tuple(_decode(item) for item in _part(obj, "items", list))
        case "dict":
            return _pairs(_part(obj, "items", list))
    raise ValueError(f"unknown $type {obj[_TAG]!r}")


def _part(obj: dict[str, object], key: str, kind: type[_T]) -> _T:
    part = obj.get(key)
    if not isinstance(part, kind):
        raise ValueError(f"a value of $type {obj[_TAG]!r} needs a {kind.__name__} under {key!r}")
    return part


def _bytes(obj: dict[str, object]) -> bytes:
    try:
        return base64.b64decode(_part(obj, "base64", str), validate=True)
    except binascii.Error as broken:
        raise ValueError(f"a value of $type {obj[_TAG]!r} holds broken base64: {broken}") from None


def _pairs(items: list[object]) -> dict[object, object]:
    decoded: dict[object, object] = {}
    for item in items:
        if not isinstance(item, list) or len(item) != 2 or not isinstance(item[0], str) or item[0] in decoded:
            raise ValueError("a value of $type 'dict' needs [key, value] pairs with different text keys")
        decoded[item[0]] = _decode(item[1])
    return decoded


def dumps(obj: object, *, indent: int | None = None) -> str:
    """Strict JSON text that UTF-8 can hold: no NaN, no infinity; compact unless ``indent`` is given.

    A lone surrogate, which text of a failed Policy may hold, is written as U+FFFD.

    Raises:
        ValueError: a number that is not finite.
        TypeError: an object that JSON has no form for.
    """
    separators = (",", ":") if indent is None else (",", ": ")
    text = json.dumps(obj, allow_nan=False, ensure_ascii=False, indent=indent, separators=separators)
    if text.isascii():
        return text
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
