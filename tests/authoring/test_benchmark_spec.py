"""BenchmarkSpec: the public description, checked and read-only."""

from typing import Any

import numpy as np
import pytest

from evopolicygym.authoring import BenchmarkSpec
from evopolicygym.identities import environment_digest


def spec(**changes: Any) -> BenchmarkSpec:
    fields: dict[str, Any] = {
        "id": "tests/walk",
        "description": "Walk.",
        "observation_space": {"type": "int"},
        "action_space": {"type": "int"},
        "metadata": {"walls": [1, 2]},
        "max_episode_steps": 10,
        "primary_metric": "mean_return",
        "score_direction": "maximize",
    }
    return BenchmarkSpec(**(fields | changes))


MAPPINGS = ("observation_space", "action_space", "metadata", "environment_parameters")
TEXTS = ("id", "description", "primary_metric", "score_direction")


def test_parameters_of_the_environment_may_be_left_out() -> None:
    assert spec().environment_parameters == {}
    assert spec().environment_digest == environment_digest({})


def test_the_environment_digest_is_that_of_the_parameters_alone() -> None:
    parameters = {"gravity": 9.8}
    assert spec(environment_parameters=parameters).environment_digest == environment_digest(parameters)
    assert spec(id="other", metadata={}).environment_digest == spec().environment_digest


@pytest.mark.parametrize("field", TEXTS)
@pytest.mark.parametrize("wrong", [None, 1, b"text", ["text"], np.str_("maximize")])
def test_a_text_of_another_type_is_a_type_error(field: str, wrong: Any) -> None:
    with pytest.raises(TypeError, match=f"{field} must be str"):
        spec(**{field: wrong})


@pytest.mark.parametrize("field", TEXTS)
@pytest.mark.parametrize("wrong", ["", "  \n", "a\ud800"])
def test_an_empty_or_invalid_text_is_a_value_error(field: str, wrong: str) -> None:
    with pytest.raises(ValueError, match=field):
        spec(**{field: wrong})


@pytest.mark.parametrize("direction", ["max", "Maximize", "maximize ", "minimise"])
def test_an_unknown_direction_is_a_value_error(direction: str) -> None:
    with pytest.raises(ValueError, match="'maximize' or 'minimize'"):
        spec(score_direction=direction)


@pytest.mark.parametrize("steps", [0, -1, True, 10.0, "10", None, np.int64(10)])
def test_a_step_limit_that_is_no_positive_int_is_a_value_error(steps: Any) -> None:
    with pytest.raises(ValueError, match="max_episode_steps"):
        spec(max_episode_steps=steps)


@pytest.mark.parametrize("field", MAPPINGS)
@pytest.mark.parametrize("wrong", [None, [], "text", {1: 2}, {"a": {1}}])
def test_what_is_no_mapping_of_policy_values_is_a_type_error(field: str, wrong: Any) -> None:
    with pytest.raises(TypeError, match=field):
        spec(**{field: wrong})


@pytest.mark.parametrize("field", MAPPINGS)
def test_a_bound_that_is_not_finite_is_a_value_error(field: str) -> None:
    with pytest.raises(ValueError, match=rf"{field}\['high'\]"):
        spec(**{field: {"high": float("inf")}})


@pytest.mark.parametrize("field", MAPPINGS)
def test_mappings_are_detached_and_read_only(field: str) -> None:
    inner = [1]
    given = {"a": inner}
    made = spec(**{field: given})
    inner.append(2)
    given["b"] = []
    assert getattr(made, field) == {"a": [1]}
    with pytest.raises(TypeError):
        getattr(made, field)["c"] = 1


def test_specs_are_compared_by_value_and_frozen() -> None:
    assert spec() == spec()
    assert spec() != spec(max_episode_steps=11)
    with pytest.raises(AttributeError):
        spec().id = "other"  # type: ignore[misc]  # that is the point
