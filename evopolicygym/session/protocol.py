"""What goes over the Session socket: one JSON object a line in, one out, both bounded and strict."""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, TypeAlias

__all__ = [
    "MAX_LINE_BYTES",
    "PROTOCOL",
    "ErrorCode",
    "FinishRequest",
    "Refusal",
    "Request",
    "StatusRequest",
    "SubmitRequest",
    "WaitRequest",
    "decode_request",
    "encode_answer",
    "refusal_answer",
    "success_answer",
]

PROTOCOL: Final = 1
MAX_LINE_BYTES: Final = 1024 * 1024
_MAX_MESSAGE_CHARACTERS = 4096


class ErrorCode(StrEnum):
    """Why the Host refuses a request. Every code there is; ``docs/session.md`` explains each."""

    REQUEST_INVALID = "request_invalid"
    TOO_MANY_REQUESTS = "too_many_requests"
    SESSION_CLOSED = "session_closed"
    EVALUATION_RUNNING = "evaluation_running"
    HOST_FAILED = "host_failed"
    PROGRAM_PATH_INVALID = "program_path_invalid"
    PROGRAM_INVALID = "program_invalid"
    SELECTOR_INVALID = "selector_invalid"
    OVER_BUDGET = "over_budget"
    OVER_CAP = "over_cap"
    BUDGET_EXHAUSTED = "budget_exhausted"
    SUBMISSIONS_EXHAUSTED = "submissions_exhausted"
    BUDGET_UNREACHABLE = "budget_unreachable"
    BUDGET_REMAINING = "budget_remaining"
    SUBMISSION_UNKNOWN = "submission_unknown"
    SUBMISSION_FAILED = "submission_failed"
    CANDIDATES_INVALID = "candidates_invalid"


class Refusal(Exception):  # noqa: N818 - no error: an answer
    """The Host does not do what was asked; nothing is charged.

    Args:
        code: which rule.
        message: what was found and what to do next, for the Agent.
    """

    def __init__(self, code: ErrorCode, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.message = message


@dataclass(frozen=True, slots=True)
class SubmitRequest:
    """``submit``.

    Args:
        program: the path as the Agent wrote it.
        resolved_program: the same, absolute and with links followed, where the client runs.
        episodes: the selector, unparsed.
        wait: False to be answered once the budget is reserved.
    """

    program: str
    resolved_program: str
    episodes: str
    wait: bool


@dataclass(frozen=True, slots=True)
class StatusRequest:
    """``status``."""


@dataclass(frozen=True, slots=True)
class WaitRequest:
    """``wait``; without an id for the running Submission."""

    submission_id: str | None


@dataclass(frozen=True, slots=True)
class FinishRequest:
    """``finish``; the ids in order of preference."""

    submission_ids: tuple[str, ...]


Request: TypeAlias = SubmitRequest | StatusRequest | WaitRequest | FinishRequest


def decode_request(line: bytes) -> Request:
    """One request, from a line without its newline.

    Raises:
        Refusal: ``request_invalid``: no JSON object, another protocol, or fields that are missing, unknown or
            of the wrong type.
    """
    document = _decode_object(line)
    protocol = document.pop("protocol", None)
    if type(protocol) is not int or protocol != PROTOCOL:
        raise _invalid(f"protocol must be {PROTOCOL}; use the evopolicygym-session command of this Run's PATH")
    command = document.pop("command", None)
    decode = _DECODERS.get(command) if isinstance(command, str) else None
    if decode is None:
        raise _invalid(f"command must be one of {', '.join(_DECODERS)}")
    request = decode(document)
    if document:
        raise _invalid(f"{command} has no field {_shown(next(iter(document)))}")
    return request


def success_answer(result: Mapping[str, object]) -> dict[str, object]:
    """The answer to a request that was carried out."""
    return {"ok": True, "result": dict(result)}


def refusal_answer(refusal: Refusal) -> dict[str, object]:
    """The answer to a request that was refused."""
    message = refusal.message[:_MAX_MESSAGE_CHARACTERS]
    return {"ok": False, "error": {"code": refusal.code.value, "message": message}}


def encode_answer(answer: Mapping[str, object]) -> bytes:
    """One line of ASCII JSON (which every shell and locale prints), newline included, within the bound.

    A receipt that is too long loses what ``feedback.json`` holds as well: first its diagnostics, then its list
    of indices, each replaced by None, and names what is missing under ``omitted``.

    Raises:
        ValueError: the answer is too long and is no receipt, or holds a number that is not finite.
    """
    line = _encode(answer)
    result = answer.get("result")
    if len(line) > MAX_LINE_BYTES and isinstance(result, Mapping):
        kept = dict(result)
        omitted: list[str] = []
        for field in ("diagnostics", "episode_indices"):
            if field in kept and len(line) > MAX_LINE_BYTES:
                kept[field] = None
                omitted.append(field)
                line = _encode({**answer, "result": {**kept, "omitted": omitted}})
    if len(line) > MAX_LINE_BYTES:
        raise ValueError(f"an answer of {len(line)} bytes is longer than {MAX_LINE_BYTES}")
    return line


def _encode(answer: Mapping[str, object]) -> bytes:
    return json.dumps(answer, allow_nan=False).encode("ascii") + b"\n"


def _decode_object(line: bytes) -> dict[str, object]:
    try:
        document = json.loads(line.decode("utf-8"), object_pairs_hook=_unique_keys, parse_constant=_refuse_constant)
    except (ValueError, RecursionError) as error:
        raise _invalid(f"it is no strict UTF-8 JSON ({str(error)[:200]})") from None
    if not isinstance(document, dict):
        raise _invalid(f"it is a JSON {type(document).__name__}; send one object")
    return document


def _unique_keys(pairs: list[tuple[str, object]]) -> dict[str, object]:
    document = dict(pairs)
    if len(document) != len(pairs):
        raise ValueError("a key stands twice in one object")
    return document


def _refuse_constant(constant: str) -> object:
    raise ValueError(f"{constant} is no JSON number")


def _decode_submit(document: dict[str, object]) -> SubmitRequest:
    wait = document.pop("wait", None)
    if type(wait) is not bool:
        raise _invalid("wait must be true or false")
    return SubmitRequest(
        program=_text(document, "program"),
        resolved_program=_text(document, "resolved_program"),
        episodes=_text(document, "episodes"),
        wait=wait,
    )


def _decode_status(_: dict[str, object]) -> StatusRequest:
    return StatusRequest()


def _decode_wait(document: dict[str, object]) -> WaitRequest:
    if document.get("submission_id") is None:
        document.pop("submission_id", None)
        return WaitRequest(None)
    return WaitRequest(_text(document, "submission_id"))


def _decode_finish(document: dict[str, object]) -> FinishRequest:
    ids = document.pop("submission_ids", None)
    if not isinstance(ids, list) or not all(isinstance(item, str) for item in ids):
        raise _invalid("submission_ids must be a list of strings")
    return FinishRequest(tuple(ids))


_DECODERS: Final[Mapping[str, Callable[[dict[str, object]], Request]]] = {
    "submit": _decode_submit,
    "status": _decode_status,
    "wait": _decode_wait,
    "finish": _decode_finish,
}


def _text(document: dict[str, object], field: str) -> str:
    value = document.pop(field, None)
    if not isinstance(value, str):
        raise _invalid(f"{field} must be a string")
    return value


def _invalid(reason: str) -> Refusal:
    return Refusal(ErrorCode.REQUEST_INVALID, f"the request is not understood: {reason}")


def _shown(text: str) -> str:
    return repr(text[:40])
