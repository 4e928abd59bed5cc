"""JSON on disk: strict when written (finite numbers, valid UTF-8), careful when read."""

import json

from evopolicygym.errors import RecordError
from evopolicygym.policy_json import dumps

__all__ = ["json_document", "json_line", "parse_object", "valid_text"]

_LINE = json.JSONEncoder(allow_nan=False, ensure_ascii=False, separators=(",", ":"))
_EXPANDED_DEPTH = 2


def valid_text(text: str) -> str:
    """``text`` with every lone surrogate replaced by U+FFFD, so that it can be encoded."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return text


def json_line(value: object) -> bytes:
    """``value`` as one line of compact JSON, newline included.

    Raises:
        RecordError: a number that is not finite, or an object that JSON has no form for.
    """
    try:
        return valid_text(_LINE.encode(value) + "\n").encode()
    except (ValueError, TypeError, RecursionError) as error:
        raise RecordError(f"this cannot be written as JSON: {error}") from error


def json_document(value: object) -> bytes:
    """``value`` as a JSON document that a person can read: outer containers one item a line, inner ones compact.

    Raises:
        RecordError: a number that is not finite, or an object that JSON has no form for.
    """
    try:
        return valid_text(_readable(value, 0) + "\n").encode()
    except (ValueError, TypeError, RecursionError) as error:
        raise RecordError(f"this cannot be written as JSON: {error}") from error


def _readable(value: object, depth: int) -> str:
    margin = "  " * (depth + 1)
    if depth < _EXPANDED_DEPTH and isinstance(value, dict) and value:
        items = [f"{margin}{_key(key)}: {_readable(item, depth + 1)}" for key, item in value.items()]
        return "{\n" + ",\n".join(items) + "\n" + "  " * depth + "}"
    if depth < _EXPANDED_DEPTH and isinstance(value, list | tuple) and any(_is_container(item) for item in value):
        # Items of a list stay compact: one Episode, Artifact or Submission a line.
        return "[\n" + ",\n".join(margin + dumps(item) for item in value) + "\n" + "  " * depth + "]"
    return dumps(value)


def _is_container(value: object) -> bool:
    return isinstance(value, dict | list | tuple)


def _key(key: object) -> str:
    if type(key) is not str:
        raise TypeError(f"keys must be str, not {type(key).__qualname__}")
    return dumps(key)


def parse_object(data: bytes) -> dict[str, object]:
    """The JSON object in ``data``; its texts are valid Unicode, its numbers finite.

    Raises:
        ValueError: anything else, with the reason as text.
    """
    try:
        value = json.loads(data.decode("utf-8"), parse_constant=_no_constant)
    except UnicodeDecodeError as error:
        raise ValueError(f"not UTF-8 at byte {error.start}") from None
    except json.JSONDecodeError as error:
        raise ValueError(f"not valid JSON: {error.msg} at character {error.pos}") from None
    except RecursionError:
        raise ValueError("nested too deeply") from None
    if not isinstance(value, dict):
        raise ValueError(f"a JSON object is needed, found {type(value).__name__}")
    if b"\\ud" in data or b"\\uD" in data:  # only an escape can bring in a lone surrogate
        value = _valid_texts(value)
        assert isinstance(value, dict)
    return value


def _no_constant(name: str) -> object:
    raise ValueError(f"{name} is no JSON number")


def _valid_texts(value: object) -> object:
    if isinstance(value, str):
        return valid_text(value)
    if isinstance(value, list):
        return [_valid_texts(item) for item in value]
    if isinstance(value, dict):
        return {valid_text(key): _valid_texts(item) for key, item in value.items()}
    return value
