"""The JSON form of Policy values: lossless, unambiguous, strict."""

import json
import math
from typing import Any

import pytest
from hypothesis import given
from policy_values import identical, policy_values

from evopolicygym.policy import PolicyValue, TensorValue
from evopolicygym.policy_json import dumps, from_json, to_json


def refuse(name: str) -> object:
    raise AssertionError(f"{name} is no JSON")


@given(policy_values)
def test_every_policy_value_survives_the_way_over_json_text(value: PolicyValue) -> None:
    text = dumps(to_json(value))
    assert identical(from_json(json.loads(text, parse_constant=refuse)), value)


@given(policy_values)
def test_json_text_is_one_line_that_utf8_can_hold(value: PolicyValue) -> None:
    text = dumps(to_json(value))
    assert "\n" not in text
    assert text.encode().decode() == text


@pytest.mark.parametrize(
    ("value", "form"),
    [
        (b"\x00\xff", {"$type": "bytes", "base64": "AP8="}),
        (
            TensorValue("int16", (1, 1), b"\x01\x00"),
            {"$type": "tensor", "dtype": "int16", "shape": [1, 1], "base64": "AQA="},
        ),
        ((1, [2]), {"$type": "tuple", "items": [1, [2]]}),
        ({"$type": "bytes"}, {"$type": "dict", "items": [["$type", "bytes"]]}),
        ({"a": {"b": None}}, {"a": {"b": None}}),
        (2**64 - 1, 2**64 - 1),
    ],
)
def test_values_have_their_documented_form(value: PolicyValue, form: object) -> None:
    assert to_json(value) == form
    assert identical(from_json(form), value)


def test_key_order_is_kept() -> None:
    assert dumps(to_json({"b": 1, "a": 2})) == '{"b":1,"a":2}'


@pytest.mark.parametrize("value", [object(), {1}, 1j, bytearray(b"a")])
def test_what_is_no_policy_value_has_no_form(value: Any) -> None:
    with pytest.raises(TypeError, match="is not a PolicyValue"):
        to_json([value])


@pytest.mark.parametrize(
    "form",
    [
        {"$type": "set", "items": []},
        {"$type": None},
        {"$type": ["bytes"]},
        {"$type": "bytes"},
        {"$type": "bytes", "base64": 5},
        {"$type": "bytes", "base64": "A"},
        {"$type": "bytes", "base64": "A P8="},
        {"$type": "bytes", "base64": "é"},
        {"$type": "tuple"},
        {"$type": "tuple", "items": "ab"},
        {"$type": "tuple", "items": {"a": 1}},
        {"$type": "dict", "items": [["a"]]},
        {"$type": "dict", "items": ["ab"]},
        {"$type": "dict", "items": [[1, 2]]},
        {"$type": "dict", "items": [["a", 1], ["a", 2]]},
        {"$type": "dict", "items": {}},
        {"$type": "tensor", "dtype": "uint8", "shape": 1, "base64": "AA=="},
        {"$type": "tensor", "dtype": "uint8", "shape": [1.0], "base64": "AA=="},
        {"$type": "tensor", "dtype": "uint8", "shape": [2], "base64": "AA=="},
        {"$type": "tensor", "dtype": 8, "shape": [1], "base64": "AA=="},
        {"$type": "tensor", "dtype": "float32", "shape": [1], "base64": "AADAfw=="},
        math.nan,
        [math.inf],
        2**64,
        "\ud800",
    ],
)
def test_a_damaged_form_is_a_value_error(form: object) -> None:
    with pytest.raises(ValueError, match=r"."):
        from_json([form])


@pytest.mark.parametrize("levels", [200, 100_000])
def test_a_form_nested_too_deep_is_a_value_error(levels: int) -> None:
    form: object = 1
    for _ in range(levels):
        form = {"$type": "tuple", "items": [form]}
    with pytest.raises(ValueError, match="nested"):
        from_json(form)


@pytest.mark.parametrize("number", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("indent", [None, 2])
def test_a_number_that_is_not_finite_is_never_written(number: float, indent: int | None) -> None:
    for form in (number, [number], {"a": number}, {number: 1}):
        with pytest.raises(ValueError, match="JSON compliant"):
            dumps(form, indent=indent)


def test_what_json_has_no_form_for_is_a_type_error() -> None:
    with pytest.raises(TypeError):
        dumps({"a": b"bytes"})


def test_text_is_written_as_it_reads() -> None:
    assert dumps({"é": "日本 🙂"}) == '{"é":"日本 🙂"}'


def test_a_lone_surrogate_is_written_as_a_replacement_character() -> None:
    assert dumps(["a\ud800b", "\udcff🙂"]) == '["a\ufffdb","\ufffd🙂"]'


def test_text_may_be_indented() -> None:
    assert dumps({"a": [1]}, indent=2) == '{\n  "a": [\n    1\n  ]\n}'
