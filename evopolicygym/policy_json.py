"""The JSON form of Policy values: plain where JSON has the type, tagged with ``$type`` where it has not."""

import base64
import binascii
import json

from evopolicygym.policy import PolicyValue, TensorValue, copy_policy_value

__all__ = ["dumps", "from_json", "to_json"]

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
    return copy_policy_value(_decode(obj))


def _decode(obj: object) -> object:
    if isinstance(obj, list):
        return [_decode(item) for item in obj]
    if not isinstance(obj, dict):
        return obj
    if _TAG not in obj:
        return {key: _decode(item) for key, item in obj.items()}
    kind = obj[_TAG]
    try:
        if kind == "bytes":
            return base64.b64decode(obj["base64"], validate=True)
        if kind == "tensor":
            data = base64.b64decode(obj["base64"], validate=True)
            return TensorValue(obj["dtype"], tuple(obj["shape"]), data)
        if kind == "tuple":
            return tuple(_decode(item) for item in obj["items"])
        if kind == "dict":
            return {key: _decode(item) for key, item in obj["items"]}
    except KeyError as missing:
        raise ValueError(f"a value of $type {kind!r} lacks the key {missing}") from None
    except binascii.Error as broken:
        raise ValueError(f"a value of $type {kind!r} holds broken base64: {broken}") from None
    raise ValueError(f"unknown $type {kind!r}")


def dumps(obj: object, *, indent: int | None = None) -> str:
    """Strict JSON text: no NaN, no infinity; compact unless ``indent`` is given.

    Raises:
        ValueError: a number that is not finite.
        TypeError: an object that JSON has no form for.
    """
    separators = (",", ":") if indent is None else (",", ": ")
    return json.dumps(obj, allow_nan=False, ensure_ascii=False, indent=indent, separators=separators)
