"""Artifact and Feedback: what a Benchmark may say in public."""

import enum
from pathlib import PurePosixPath
from typing import Any

import numpy as np
import pytest

from evopolicygym.artifacts import ARTIFACT_MAX_BYTES, FEEDBACK_MAX_ARTIFACTS, Artifact, Feedback


class Mark(enum.IntEnum):
    GOOD = 3


def named(name: str) -> Artifact:
    return Artifact(name, "text/plain", b"")


def test_the_limits_are_those_of_the_contract() -> None:
    assert ARTIFACT_MAX_BYTES == 16 * 1024 * 1024
    assert FEEDBACK_MAX_ARTIFACTS == 1024


def test_an_artifact_tells_size_content_and_retention() -> None:
    artifact = Artifact("a/b.json", "application/json", b"{}")
    assert (artifact.size, artifact.read_bytes(), artifact.retention) == (2, b"{}", "permanent")
    assert Artifact("a", "text/plain", b"", retention="bulk").retention == "bulk"


@pytest.mark.parametrize(
    "name",
    ["a", "a.b", "a/b/c.txt", "é.txt", "with space", "...", "..a", "a..", ".hidden", "C:x", "x" * 255, "日本/🙂"],
)
def test_a_safe_relative_posix_path_is_a_name(name: str) -> None:
    assert named(name).name == name


@pytest.mark.parametrize(
    "name",
    [
        "",
        "/",
        "/etc/passwd",
        "a/",
        "a//b",
        ".",
        "..",
        "./a",
        "../a",
        "a/../b",
        "a/.",
        "a/..",
        "a\\b",
        "..\\a",
        "a\0b",
        "a\nb",
        "a\x7f",
        "a\x85b",
        "\ud800",
        "e\u0301",
        "x" * 256,
        "é" * 128,
        "/".join(["x" * 200] * 6),
    ],
)
def test_an_unsafe_name_is_a_value_error(name: str) -> None:
    with pytest.raises(ValueError, match="artifact name"):
        named(name)


@pytest.mark.parametrize(
    "media_type",
    ["text/plain", "application/json", "image/svg+xml", "text/plain; charset=utf-8", "text/plain;charset=utf-8"],
)
def test_a_media_type_is_accepted(media_type: str) -> None:
    assert Artifact("a", media_type, b"").media_type == media_type


@pytest.mark.parametrize(
    "media_type",
    [
        "",
        "text",
        "text/",
        "/plain",
        "text/plain\n",
        "text/plain\n; a=b",
        "text /plain",
        "te\u212at/plain",
        "text/plain;",
    ],
)
def test_a_malformed_media_type_is_a_value_error(media_type: str) -> None:
    with pytest.raises(ValueError, match="media type"):
        Artifact("a", media_type, b"")


@pytest.mark.parametrize(
    "fields",
    [
        (PurePosixPath("a"), "text/plain", b""),
        (b"a", "text/plain", b""),
        ("a", None, b""),
        ("a", "text/plain", "text"),
        ("a", "text/plain", bytearray(b"")),
        ("a", "text/plain", memoryview(b"")),
        ("a", "text/plain", None),
        ("a", "text/plain", b"", None),
        ("a", "text/plain", b"", ["bulk"]),
    ],
)
def test_a_field_of_another_type_is_a_type_error(fields: Any) -> None:
    with pytest.raises(TypeError, match="must be"):
        Artifact(*fields)


def test_an_unknown_retention_is_a_value_error() -> None:
    with pytest.raises(ValueError, match="'permanent' or 'bulk'"):
        Artifact("a", "text/plain", b"", "forever")  # type: ignore[arg-type]  # that is the point


def test_an_artifact_holds_up_to_16_mib() -> None:
    assert Artifact("a", "text/plain", bytes(ARTIFACT_MAX_BYTES)).size == ARTIFACT_MAX_BYTES
    with pytest.raises(ValueError, match="at most 16777216"):
        Artifact("a", "text/plain", bytes(ARTIFACT_MAX_BYTES + 1))


def test_an_artifact_is_frozen_and_does_not_print_its_content() -> None:
    artifact = Artifact("a", "text/plain", b"content")
    assert "content" not in repr(artifact)
    with pytest.raises(AttributeError):
        artifact.content = b""  # type: ignore[misc]  # that is the point


@pytest.mark.parametrize("score", [3, 3.0, np.float64(3.0), Mark.GOOD])
def test_a_score_is_kept_as_an_exact_float(score: float) -> None:
    kept = Feedback(score).score
    assert type(kept) is float
    assert kept == 3.0


@pytest.mark.parametrize("score", [True, np.bool_(True), "3", None, np.float32(3.0), np.int64(3), 3j, [3.0]])
def test_a_score_of_another_type_is_a_type_error(score: Any) -> None:
    with pytest.raises(TypeError, match="a score must be an int or float"):
        Feedback(score)


@pytest.mark.parametrize("score", [float("nan"), float("inf"), float("-inf"), np.float64("nan"), 10**400, -(10**400)])
def test_a_score_that_is_not_finite_is_a_value_error(score: float) -> None:
    with pytest.raises(ValueError, match="a score must be finite"):
        Feedback(score)


def test_content_is_a_detached_copy() -> None:
    returns: Any = [1.0]
    feedback = Feedback(1.0, {"returns": returns})
    returns.append(2.0)
    assert feedback.content == {"returns": [1.0]}


@pytest.mark.parametrize(("content", "error"), [({"a": {1}}, TypeError), ([float("nan")], ValueError)])
def test_content_that_is_no_policy_value_is_refused_by_name(content: Any, error: type[Exception]) -> None:
    with pytest.raises(error, match=r"^content\["):
        Feedback(1.0, content)


@pytest.mark.parametrize("artifacts", [None, "a", {"a": 1}, named("a"), iter(())])
def test_artifacts_that_are_no_tuple_are_a_type_error(artifacts: Any) -> None:
    with pytest.raises(TypeError, match="artifacts must be a tuple"):
        Feedback(1.0, None, artifacts)


@pytest.mark.parametrize("item", [None, "a", ("a", "text/plain", b"")])
def test_an_artifact_of_another_type_is_a_type_error(item: Any) -> None:
    with pytest.raises(TypeError, match="must hold Artifact"):
        Feedback(1.0, None, (item,))


def test_a_list_of_artifacts_is_kept_as_a_tuple() -> None:
    given: Any = [named("a")]
    feedback = Feedback(1.0, None, given)
    given.append(named("b"))
    assert feedback.artifacts == (named("a"),)


def test_a_feedback_holds_up_to_1024_artifacts() -> None:
    many = tuple(named(f"a/{number}") for number in range(FEEDBACK_MAX_ARTIFACTS + 1))
    assert len(Feedback(1.0, None, many[1:]).artifacts) == FEEDBACK_MAX_ARTIFACTS
    with pytest.raises(ValueError, match="at most 1024"):
        Feedback(1.0, None, many)


@pytest.mark.parametrize("names", [("a", "a"), ("a", "a/b"), ("a/b/c", "a/b"), ("x/y", "x/y/z/w")])
def test_names_that_cannot_live_side_by_side_are_a_value_error(names: tuple[str, ...]) -> None:
    with pytest.raises(ValueError, match="artifact"):
        Feedback(1.0, None, tuple(map(named, names)))


def test_names_that_share_a_beginning_live_side_by_side() -> None:
    names = ("a", "ab", "b/a", "b/ab/c", "a.b")
    assert len(Feedback(1.0, None, tuple(map(named, names))).artifacts) == 5
