"""The numbers of a JSON file as one vector, and back.

Every JSON number written with a point or an exponent is a parameter, however deep it lies in objects and arrays.
Integers are left alone, as sizes, counts and versions are written so: write ``0.0`` for a parameter that starts at
zero. Booleans, strings and nulls are left alone too.
"""

import json
import math
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

from evopolicygym.agents.parameter_tuner.failure import TunerError

__all__ = ["Parameters", "read_parameters", "write_json"]

JsonPath: TypeAlias = tuple[str | int, ...]


@dataclass(frozen=True, slots=True)
class Parameters:
    """A JSON document and the parameters in it, in the order of the document.

    Args:
        document: The whole document.
        paths: Where each parameter lies.
        values: What each parameter is now.
    """

    document: object
    paths: tuple[JsonPath, ...]
    values: tuple[float, ...]

    @property
    def names(self) -> tuple[str, ...]:
        """Readable places, such as ``layers[0].bias``."""
        return tuple(_name(path) for path in self.paths)

    def with_values(self, values: Sequence[float]) -> object:
        """A copy of the document with these values in place of the parameters."""
        if len(values) != len(self.paths):
            raise ValueError(f"{len(values)} values for {len(self.paths)} parameters")
        return _replaced(self.document, iter(values))


def read_parameters(path: Path) -> Parameters:
    """Read a parameter file.

    Raises:
        TunerError: it is missing, no JSON, or holds no parameter.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise TunerError(
            f"there is no {path}; write the Policy's tunable numbers into it as JSON, and let policy.py read them"
        ) from None
    except (OSError, UnicodeDecodeError) as error:
        raise TunerError(f"{path} cannot be read: {error}") from error
    try:
        document = json.loads(text)
        found = tuple(_numbers(document, ()))
    except (ValueError, RecursionError) as error:
        raise TunerError(f"{path} is no JSON that can be tuned: {error}") from error
    if not found:
        raise TunerError(f"{path} holds no number to tune; integers stay as they are, so write 0.0 in place of 0")
    for place, value in found:
        if not math.isfinite(value):
            raise TunerError(f"{path}: {_name(place)} is {value}; every parameter must be finite")
    return Parameters(document, tuple(place for place, _ in found), tuple(value for _, value in found))


def write_json(path: Path, document: object, *, staging: Path) -> None:
    """Replace a file at once, so that nobody ever reads half of it.

    Args:
        path: The file.
        document: What it shall hold; floats must be finite.
        staging: A directory on the same file system for the half-written one: a file beside ``path`` could be captured.
    """
    temporary = staging / f".{path.name}.part"
    temporary.write_text(json.dumps(document, indent=2, allow_nan=False, ensure_ascii=False) + "\n", encoding="utf-8")
    os.replace(temporary, path)  # noqa: PTH105  # the pair says what is meant


def _numbers(node: object, path: JsonPath) -> Iterator[tuple[JsonPath, float]]:
    if isinstance(node, float):
        yield path, node
    elif isinstance(node, dict):
        for key, child in node.items():
            yield from _numbers(child, (*path, key))
    elif isinstance(node, list):
        for index, child in enumerate(node):
            yield from _numbers(child, (*path, index))


def _replaced(node: object, values: Iterator[float]) -> object:
    """The same walk as :func:`_numbers`."""
    if isinstance(node, float):
        return float(next(values))
    if isinstance(node, dict):
        return {key: _replaced(child, values) for key, child in node.items()}
    if isinstance(node, list):
        return [_replaced(child, values) for child in node]
    return node


def _name(path: JsonPath) -> str:
    text = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in path)
    return text.removeprefix(".") or "the document itself"
