"""Requests and answers on the wire."""

import json
from pathlib import Path

import pytest

from evopolicygym.session.protocol import (
    MAX_LINE_BYTES,
    ErrorCode,
    FinishRequest,
    Refusal,
    StatusRequest,
    SubmitRequest,
    WaitRequest,
    decode_request,
    encode_answer,
    refusal_answer,
    success_answer,
)

SUBMIT = {
    "protocol": 1,
    "command": "submit",
    "program": "program",
    "resolved_program": "/w/program",
    "episodes": "0",
    "wait": True,
}


def test_each_command_is_decoded() -> None:
    assert decode_request(json.dumps(SUBMIT).encode()) == SubmitRequest("program", "/w/program", "0", True)
    assert decode_request(b'{"protocol": 1, "command": "status"}') == StatusRequest()
    assert decode_request(b'{"protocol": 1, "command": "wait"}') == WaitRequest(None)
    assert decode_request(b'{"protocol": 1, "command": "wait", "submission_id": null}') == WaitRequest(None)
    assert decode_request(b'{"protocol": 1, "command": "wait", "submission_id": "x"}') == WaitRequest("x")
    assert decode_request(b'{"protocol": 1, "command": "finish", "submission_ids": ["x"]}') == FinishRequest(("x",))


@pytest.mark.parametrize(
    "line",
    [
        b"",
        b"hello",
        b"[]",
        b"null",
        b"\xff\xfe{}",
        b"{" * 100_000,
        b"[" * 100_000,
        b'{"a":' * 100_000,
        b"9" * 100_000,
        b'{"protocol": NaN, "command": "status"}',
        b'{"protocol": 1, "command": "status", "x": Infinity}',
        b'{"protocol": 1, "protocol": 1, "command": "status"}',
        b'{"protocol": 1, "command": "status", "extra": {"a": 1, "a": 2}}',
        b'{"command": "status"}',
        b'{"protocol": true, "command": "status"}',
        b'{"protocol": 1.0, "command": "status"}',
        b'{"protocol": 2, "command": "status"}',
        b'{"protocol": 1}',
        b'{"protocol": 1, "command": "steal"}',
        b'{"protocol": 1, "command": ["status"]}',
        b'{"protocol": 1, "command": "status", "verbose": true}',
        b'{"protocol": 1, "command": "wait", "submission_id": 1}',
        b'{"protocol": 1, "command": "finish"}',
        b'{"protocol": 1, "command": "finish", "submission_ids": "submission-000001"}',
        b'{"protocol": 1, "command": "finish", "submission_ids": [1]}',
        json.dumps({**SUBMIT, "wait": 1}).encode(),
        json.dumps({**SUBMIT, "episodes": [0]}).encode(),
        json.dumps({**SUBMIT, "seed": 1}).encode(),
        json.dumps({key: value for key, value in SUBMIT.items() if key != "program"}).encode(),
    ],
    ids=range(29),
)
def test_anything_else_is_refused(line: bytes) -> None:
    with pytest.raises(Refusal) as refused:
        decode_request(line)
    assert refused.value.code is ErrorCode.REQUEST_INVALID
    assert len(refused.value.message) < 400


def test_an_answer_is_one_line_of_ascii_json() -> None:
    line = encode_answer(success_answer({"note": "ü\n\u2028\ud800"}))
    assert line.isascii()
    assert line.count(b"\n") == 1
    assert line.endswith(b"\n")
    assert json.loads(line) == {"ok": True, "result": {"note": "ü\n\u2028\ud800"}}


def test_a_refusal_is_bounded() -> None:
    answer = refusal_answer(Refusal(ErrorCode.PROGRAM_INVALID, "x" * 10_000_000))
    assert len(encode_answer(answer)) < 10_000


def test_a_receipt_that_is_too_long_loses_its_diagnostics_first() -> None:
    result = {"score": 1.0, "episode_indices": [1, 2], "diagnostics": {"text": "x" * MAX_LINE_BYTES}}
    line = encode_answer(success_answer(result))
    assert len(line) <= MAX_LINE_BYTES
    assert json.loads(line)["result"] == {
        "score": 1.0,
        "episode_indices": [1, 2],
        "diagnostics": None,
        "omitted": ["diagnostics"],
    }


def test_a_receipt_with_too_many_indices_loses_them_too() -> None:
    result = {"score": 1.0, "episode_indices": list(range(300_000)), "diagnostics": {}}
    document = json.loads(encode_answer(success_answer(result)))
    assert document["result"]["omitted"] == ["diagnostics", "episode_indices"]


def test_a_number_that_is_not_finite_is_never_sent() -> None:
    with pytest.raises(ValueError, match="JSON"):
        encode_answer(success_answer({"score": float("nan")}))


def test_the_documentation_lists_every_error_code() -> None:
    text = (Path(__file__).parents[2] / "docs" / "session.md").read_text(encoding="utf-8")
    listed = [line.split("`")[1] for line in text.splitlines() if line.startswith("| `")]
    documented = [name for name in listed if name in {code.value for code in ErrorCode}]
    assert sorted(documented) == sorted(code.value for code in ErrorCode)
