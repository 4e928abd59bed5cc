"""What a Policy is and which values cross its boundary (Policy ABI ``policy/v2``).

Standard library only: submitted code imports this module in every Policy process.
"""

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from math import inf, isfinite
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, Union, runtime_checkable

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

__all__ = [
    "POLICY_ABI_VERSION",
    "Policy",
    "PolicyContext",
    "PolicyValue",
    "TensorValue",
    "copy_policy_value",
]

POLICY_ABI_VERSION = "policy/v2"

INT_MIN = -(2**63)
INT_MAX = 2**64 - 1
SEED_MAX = 2**64 - 1
VALUE_MAX_DEPTH = 128
_SHOWN_KEY_LENGTH = 80

DTYPE_BYTES: Mapping[str, int] = MappingProxyType(
    {
        "bool": 1,
        "int8": 1,
        "int16": 2,
        "int32": 4,
        "int64": 8,
        "uint8": 1,
        "uint16": 2,
        "uint32": 4,
        "uint64": 8,
        "float16": 2,
        "float32": 4,
        "float64": 8,
    }
)


@dataclass(frozen=True, slots=True)
class TensorValue:
    """A dense array as plain bytes: little-endian, C order.

    Args:
        dtype: one of bool, int8 … int64, uint8 … uint64, float16, float32, float64.
        shape: the extent of each axis, as exact ints >= 0; ``()`` is a scalar.
        data: exactly ``prod(shape) * itemsize`` bytes. Bool bytes are 0 or 1, floats are finite.

    Raises:
        TypeError: a field has the wrong type.
        ValueError: unknown dtype, negative extent, wrong number of bytes, a bool byte that is
            neither 0 nor 1, a float that is not finite.
    """

    dtype: str
    shape: tuple[int, ...]
    data: bytes

    def __post_init__(self) -> None:
        if type(self.dtype) is not str:
            raise TypeError(f"a tensor's dtype must be str, not {type_name(self.dtype)}")
        if type(self.shape) is not tuple:
            raise TypeError(f"a tensor's shape must be a tuple, not {type_name(self.shape)}")
        if type(self.data) is not bytes:
            raise TypeError(f"a tensor's data must be bytes, not {type_name(self.data)}")
        itemsize = DTYPE_BYTES.get(self.dtype)
        if itemsize is None:
            raise ValueError(f"unknown tensor dtype {self.dtype!r}; allowed: {', '.join(DTYPE_BYTES)}")
        expected = itemsize
        for extent in self.shape:
            if type(extent) is not int:
                raise TypeError(f"a tensor's extents must be int, not {type_name(extent)}")
            if extent < 0:
                raise ValueError(f"a tensor's extents must be >= 0, found {extent}")
            expected *= extent
        if len(self.data) != expected:
            raise ValueError(
                f"a {self.dtype} tensor of shape {self.shape} holds {expected} bytes, found {len(self.data)}"
            )
        if self.dtype == "bool":
            if self.data.translate(None, b"\x00\x01"):
                raise ValueError("a bool tensor's bytes must be 0 or 1")
        elif self.dtype.startswith("float") and not floats_are_finite(self.data, itemsize):
            raise ValueError(f"a {self.dtype} tensor must hold finite values only")

    @classmethod
    def from_numpy(cls, array: "npt.NDArray[np.generic]") -> "TensorValue":
        """Copy a NumPy array of a supported dtype, in whatever byte order and layout it has.

        Raises:
            TypeError: not an array, or its dtype has no counterpart here.
            ValueError: a float that is not finite.
        """
        import numpy as np

        if not isinstance(array, np.ndarray):
            raise TypeError(f"from_numpy takes a numpy.ndarray, not {type_name(array)}")
        name = array.dtype.name
        if name not in DTYPE_BYTES:
            raise TypeError(f"a numpy array of dtype {array.dtype} is no tensor; allowed: {', '.join(DTYPE_BYTES)}")
        little = array.astype(array.dtype.newbyteorder("<"), copy=False)
        return cls(name, tuple(int(extent) for extent in array.shape), little.tobytes(order="C"))

    def to_numpy(self) -> "npt.NDArray[np.generic]":
        """A read-only NumPy view of the bytes (a copy only on a big-endian machine)."""
        import numpy as np

        dtype = np.dtype(self.dtype).newbyteorder("<")
        array: npt.NDArray[np.generic] = np.frombuffer(self.data, dtype=dtype).reshape(self.shape)
        if not dtype.isnative:
            array = array.astype(dtype.newbyteorder("="))
            array.flags.writeable = False
        return array


# Union and not "|", so that it is a real type at run time (``PolicyValue | None``) though it is recursive.
PolicyValue: TypeAlias = Union[
    bool,
    int,
    float,
    str,
    bytes,
    TensorValue,
    "list[PolicyValue]",
    "tuple[PolicyValue, ...]",
    "dict[str, PolicyValue]",
    None,
]


def copy_policy_value(value: object, *, name: str = "value") -> PolicyValue:
    """Check that ``value`` is an exact PolicyValue and return a detached deep copy of it.

    Types are exact: a NumPy scalar, an ``IntEnum`` member or a ``dict`` subclass is refused.

    Args:
        value: anything.
        name: what error messages call it.

    Raises:
        TypeError: a value, or a dict key, of another type; the type and the place are named.
        ValueError: an int outside [-2**63, 2**64-1], a float that is not finite, text that is not
            valid Unicode, or nesting deeper than 128 levels (a cycle among them).
    """
    try:
        return _copy(value, 0)
    except _RefusedError as refused:
        raise refused.error(f"{name}{''.join(reversed(refused.path))}: {refused.reason}") from None


class _RefusedError(Exception):
    """A value was refused; the containers around it add their part of the path on the way out."""

    def __init__(self, error: type[TypeError] | type[ValueError], reason: str) -> None:
        super().__init__(reason)
        self.error = error
        self.reason = reason
        self.path: list[str] = []


def _copy(value: Any, depth: int) -> PolicyValue:
    # Any: the body tells the exact types apart itself; each branch returns what it has checked.
    kind = type(value)
    if kind is float:
        if not isfinite(value):
            raise _RefusedError(ValueError, f"a float must be finite, found {value!r}")
        return value  # type: ignore[no-any-return]  # exact float
    if kind is int:
        if not INT_MIN <= value <= INT_MAX:
            raise _RefusedError(ValueError, "an int must lie in [-2**63, 2**64-1]")
        return value  # type: ignore[no-any-return]  # exact int
    if kind is str:
        _check_text(value)
        return value  # type: ignore[no-any-return]  # exact str
    if value is None or kind is bool or kind is bytes or kind is TensorValue:
        return value  # type: ignore[no-any-return]  # exact type, immutable
    if kind is not list and kind is not tuple and kind is not dict:
        raise _RefusedError(TypeError, f"{type_name(value)} is not a PolicyValue")
    if depth >= VALUE_MAX_DEPTH:
        raise _RefusedError(ValueError, f"nested deeper than {VALUE_MAX_DEPTH} levels")
    if kind is dict:
        return _copy_dict(value, depth)
    items: list[PolicyValue] = []
    try:
        for item in value:
            # The commonest item by far, kept out of the call.
            items.append(item if type(item) is float and isfinite(item) else _copy(item, depth + 1))
    except _RefusedError as refused:
        refused.path.append(f"[{len(items)}]")
        raise
    return items if kind is list else tuple(items)


def _copy_dict(value: dict[object, object], depth: int) -> dict[str, PolicyValue]:
    copied: dict[str, PolicyValue] = {}
    for key, item in value.items():
        if type(key) is not str:
            raise _RefusedError(TypeError, f"a dict key must be str, not {type_name(key)}")
        try:
            _check_text(key)
            copied[key] = _copy(item, depth + 1)
        except _RefusedError as refused:
            refused.path.append(f"[{_shortened(key)!r}]")
            raise
    return copied


def _shortened(key: str) -> str:
    return key if len(key) <= _SHOWN_KEY_LENGTH else key[:_SHOWN_KEY_LENGTH] + "…"


def _check_text(text: str) -> None:
    if not text.isascii():
        try:
            text.encode()
        except UnicodeEncodeError:
            raise _RefusedError(ValueError, "text must be valid Unicode, found a lone surrogate") from None


def floats_are_finite(data: bytes, itemsize: int) -> bool:
    """Whether packed little-endian IEEE-754 floats of 2, 4 or 8 bytes hold no NaN and no infinity.

    A float is not finite exactly if all its exponent bits are set. With NumPy already loaded the test is
    one vector operation; else the two bytes that hold the exponent are looked at, without making a float
    object for each element.
    """
    numpy = sys.modules.get("numpy")
    if numpy is not None and hasattr(numpy, "isfinite"):
        array = numpy.frombuffer(data, dtype=f"<f{itemsize}")
        return bool(numpy.isfinite(array).all())
    top = data[itemsize - 1 :: itemsize]
    if itemsize == 2:  # sign 1, exponent 5: the low seven bits of the top byte are 11111xx
        return all((byte & 0x7C) != 0x7C for byte in set(top))
    if b"\x7f" not in top and b"\xff" not in top:
        return True
    mask = 0x80 if itemsize == 4 else 0xF0  # exponent bits that spill into the second byte
    second = data[itemsize - 2 :: itemsize]
    return all((low & mask) != mask for high, low in zip(top, second, strict=True) if (high & 0x7F) == 0x7F)


def type_name(value: object) -> str:
    """The name of a value's type, with its module unless it is built in; for error messages."""
    kind = type(value)
    return kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"


@dataclass(frozen=True, slots=True)
class PolicyContext:
    """What ``make_policy(context)`` is told, once an Episode.

    Args:
        observation_space: the Benchmark's public description of observations.
        action_space: the Benchmark's public description of actions.
        metadata: what else the Benchmark says in public.
        environment_parameters: the public parameters of the Environment.
        policy_seed: unsigned 64-bit seed of this Episode's Policy.

    The mappings are read-only.

    Raises:
        TypeError: a mapping is none, or holds something that is no PolicyValue.
        ValueError: the seed is no int in [0, 2**64-1].
    """

    observation_space: Mapping[str, PolicyValue]
    action_space: Mapping[str, PolicyValue]
    metadata: Mapping[str, PolicyValue]
    environment_parameters: Mapping[str, PolicyValue]
    policy_seed: int

    def __post_init__(self) -> None:
        for field in ("observation_space", "action_space", "metadata", "environment_parameters"):
            object.__setattr__(self, field, read_only_mapping(getattr(self, field), field))
        check_seed(self.policy_seed, "policy_seed")

    def __reduce__(self) -> tuple[type["PolicyContext"], tuple[object, ...]]:
        mappings = (self.observation_space, self.action_space, self.metadata, self.environment_parameters)
        return PolicyContext, (*map(dict, mappings), self.policy_seed)


def read_only_mapping(value: object, name: str) -> Mapping[str, PolicyValue]:
    """A detached, read-only copy of a mapping of PolicyValues; TypeError or ValueError if it is none."""
    if not isinstance(value, Mapping):
        raise TypeError(f"{name} must be a mapping with str keys, not {type_name(value)}")
    copied = copy_policy_value(dict(value), name=name)
    assert isinstance(copied, dict)
    return MappingProxyType(copied)


def as_float(value: float) -> float:
    """The exact float for a number; one that no float can hold becomes an infinity, for the caller to refuse."""
    try:
        return float(value)
    except OverflowError:
        return inf if value > 0 else -inf


def check_seed(value: object, name: str) -> int:
    """``value`` if it is an exact int in [0, 2**64-1]; else ValueError."""
    if type(value) is not int or not 0 <= value <= SEED_MAX:
        raise ValueError(f"{name} must be an int in [0, 2**64-1], found {value!r}")
    return value


@runtime_checkable
class Policy(Protocol):
    """What ``make_policy(context)`` returns: an object that maps an observation to an action."""

    def act(self, observation: PolicyValue) -> PolicyValue:
        """The action for ``observation``; called until the Episode ends."""
        ...
