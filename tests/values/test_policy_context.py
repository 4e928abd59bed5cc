"""PolicyContext and the Policy protocol."""

from types import MappingProxyType
from typing import Any

import pytest

from evopolicygym.policy import POLICY_ABI_VERSION, Policy, PolicyContext


def context(**changes: Any) -> PolicyContext:
    fields: dict[str, Any] = {
        "observation_space": {"type": "box", "low": [0.0]},
        "action_space": {"type": "discrete"},
        "metadata": {},
        "environment_parameters": {"gravity": 9.8},
        "policy_seed": 7,
    }
    return PolicyContext(**(fields | changes))


MAPPINGS = ("observation_space", "action_space", "metadata", "environment_parameters")


def test_the_policy_abi_is_version_2() -> None:
    assert POLICY_ABI_VERSION == "policy/v2"


@pytest.mark.parametrize("field", MAPPINGS)
def test_mappings_are_read_only(field: str) -> None:
    with pytest.raises(TypeError):
        getattr(context(), field)["new"] = 1


def test_mappings_are_detached_from_what_was_given() -> None:
    low = [0.0]
    made = context(observation_space={"low": low})
    low.append(1.0)
    assert made.observation_space["low"] == [0.0]


def test_any_mapping_is_accepted() -> None:
    assert context(metadata=MappingProxyType({"a": (1,)})).metadata == {"a": (1,)}


@pytest.mark.parametrize("field", MAPPINGS)
@pytest.mark.parametrize("wrong", [None, [("a", 1)], "a", {1: 2}, {"a": object()}])
def test_what_is_no_mapping_of_policy_values_is_a_type_error_that_names_the_field(field: str, wrong: object) -> None:
    with pytest.raises(TypeError, match=field):
        context(**{field: wrong})


@pytest.mark.parametrize("seed", [-1, 2**64, True, 1.0, "7", None])
def test_a_seed_that_is_no_unsigned_64_bit_int_is_a_value_error(seed: object) -> None:
    with pytest.raises(ValueError, match="policy_seed"):
        context(policy_seed=seed)


def test_the_outermost_seeds_are_allowed() -> None:
    assert context(policy_seed=0).policy_seed == 0
    assert context(policy_seed=2**64 - 1).policy_seed == 2**64 - 1


def test_a_context_is_frozen() -> None:
    with pytest.raises(AttributeError):
        context().policy_seed = 1  # type: ignore[misc]  # that is the point


def test_contexts_are_compared_by_value() -> None:
    assert context() == context()
    assert context() != context(policy_seed=8)


def test_an_object_with_act_is_a_policy_and_another_is_not() -> None:
    class Acts:
        def act(self, observation: object) -> object:
            return None

    assert isinstance(Acts(), Policy)
    assert not isinstance(object(), Policy)
