"""EpisodeSpec, Step, Transition, EpisodeRecord, InvalidAction: exact types, detached, frozen."""

import enum
from collections import OrderedDict
from types import MappingProxyType
from typing import Any

import numpy as np
import pytest

from evopolicygym.authoring import EpisodeRecord, EpisodeSpec, InvalidAction, Step, Transition


class Prize(enum.IntEnum):
    SMALL = 2


STEP = Step([0.5], 1.0, False)
MOVE = Transition(1, STEP)


def record(**changes: Any) -> EpisodeRecord:
    fields: dict[str, Any] = {
        "episode": EpisodeSpec(1),
        "policy_seed": 2,
        "initial_observation": [0.0],
        "transitions": (MOVE,),
    }
    return EpisodeRecord(**(fields | changes))


@pytest.mark.parametrize("seed", [0, 2**64 - 1])
def test_an_episode_has_an_unsigned_64_bit_seed(seed: int) -> None:
    assert EpisodeSpec(seed) == EpisodeSpec(environment_seed=seed, scenario=None)


@pytest.mark.parametrize("seed", [-1, 2**64, True, 1.0, "1", None, np.int64(1)])
def test_another_seed_is_a_value_error(seed: Any) -> None:
    with pytest.raises(ValueError, match="environment_seed"):
        EpisodeSpec(seed)
    with pytest.raises(ValueError, match="policy_seed"):
        record(policy_seed=seed)


def test_a_scenario_is_detached() -> None:
    walls: Any = [1]
    episode = EpisodeSpec(1, {"walls": walls})
    walls.append(2)
    assert episode.scenario == {"walls": [1]}


@pytest.mark.parametrize(
    ("value", "error"), [({1}, TypeError), (np.float32(1), TypeError), (float("nan"), ValueError), (2**64, ValueError)]
)
def test_what_is_no_policy_value_is_refused_by_the_name_of_its_field(value: Any, error: type[Exception]) -> None:
    with pytest.raises(error, match=r"^scenario: "):
        EpisodeSpec(1, value)
    with pytest.raises(error, match=r"^observation: "):
        Step(value, 1.0, False)
    with pytest.raises(error, match=r"^metrics\['m'\]: "):
        Step(None, 1.0, False, metrics={"m": value})
    with pytest.raises(error, match=r"^action: "):
        Transition(value, STEP)
    with pytest.raises(error, match=r"^initial_observation: "):
        record(initial_observation=value)


@pytest.mark.parametrize("reward", [2, 2.0, np.float64(2.0), Prize.SMALL])
def test_a_reward_is_kept_as_an_exact_float(reward: float) -> None:
    kept = Step(None, reward, False).reward
    assert type(kept) is float
    assert kept == 2.0


@pytest.mark.parametrize(
    "reward",
    [True, np.bool_(True), np.float32(1), np.int64(1), "1", None, 1j, float("nan"), float("-inf"), 10**400, -(10**400)],
)
def test_another_reward_is_a_value_error(reward: Any) -> None:
    with pytest.raises(ValueError, match="a reward must be"):
        Step(None, reward, False)


@pytest.mark.parametrize("flag", [0, 1, None, "", np.bool_(False)])
def test_a_flag_that_is_no_exact_bool_is_a_type_error(flag: Any) -> None:
    with pytest.raises(TypeError, match="terminated and truncated must be bool"):
        Step(None, 1.0, flag)
    with pytest.raises(TypeError, match="terminated and truncated must be bool"):
        Step(None, 1.0, False, flag)


@pytest.mark.parametrize(("terminated", "truncated"), [(False, False), (True, False), (False, True), (True, True)])
def test_a_step_is_done_if_it_terminated_or_was_truncated(terminated: bool, truncated: bool) -> None:
    assert Step(None, 0, terminated, truncated).done is (terminated or truncated)


@pytest.mark.parametrize("metrics", [[("a", 1)], "a", 1, {1: 1}, {b"a": 1}])
def test_metrics_that_are_no_mapping_of_text_are_a_type_error(metrics: Any) -> None:
    with pytest.raises(TypeError, match="metrics"):
        Step(None, 1.0, False, metrics=metrics)


@pytest.mark.parametrize("metrics", [{"a": [1]}, OrderedDict(a=[1]), MappingProxyType({"a": [1]})])
def test_metrics_are_a_detached_read_only_mapping(metrics: Any) -> None:
    step = Step(None, 1.0, False, metrics=metrics)
    metrics["a"].append(2)
    assert step.metrics == {"a": [1]}
    with pytest.raises(TypeError):
        step.metrics["b"] = 1  # type: ignore[index]  # that is the point


def test_a_step_without_metrics_has_none() -> None:
    assert STEP.metrics is None
    assert Step(None, 1.0, False, metrics={}).metrics == {}


def test_an_observation_is_detached() -> None:
    observation = [[1.0]]
    step = Step(observation, 1.0, False)  # type: ignore[arg-type]  # list is invariant
    observation[0].append(2.0)
    assert step.observation == [[1.0]]


def test_an_action_is_detached() -> None:
    action = [1.0]
    transition = Transition(action, STEP)  # type: ignore[arg-type]  # list is invariant
    action.append(2.0)
    assert transition.action == [1.0]


@pytest.mark.parametrize("step", [None, (None, 1.0, False), "step"])
def test_a_transition_holds_an_exact_step(step: Any) -> None:
    with pytest.raises(TypeError, match="must be Step"):
        Transition(1, step)


def test_steps_are_compared_by_value() -> None:
    assert Step([1], 1, False, metrics={"a": 1}) == Step([1], 1.0, False, metrics={"a": 1})
    assert Step([1], 1, False, metrics={"a": 1}) != Step([1], 1, False, metrics={"a": 2})


def test_a_record_counts_steps_and_sums_rewards_with_one_rounding() -> None:
    rewards = [1e16, 1.0, -1e16, 0.1, 0.1, 0.1]
    made = record(transitions=tuple(Transition(0, Step(None, reward, False)) for reward in rewards))
    assert made.steps == 6
    assert made.total_reward == 1.3


def test_an_episode_without_steps_has_no_reward() -> None:
    made = record(transitions=(), policy_failure="exception")
    assert (made.steps, made.total_reward) == (0, 0.0)


def test_a_tuple_of_transitions_is_kept_as_it_is() -> None:
    transitions = (MOVE, MOVE)
    assert record(transitions=transitions).transitions is transitions


@pytest.mark.parametrize("transitions", [[MOVE], None, iter(()), {"a": MOVE}, (1,), (MOVE, None), ((1, STEP),)])
def test_transitions_of_another_type_are_a_type_error(transitions: Any) -> None:
    with pytest.raises(TypeError, match="transitions must"):
        record(transitions=transitions)


@pytest.mark.parametrize("episode", [None, 1, (1, None)])
def test_a_record_holds_an_exact_episode(episode: Any) -> None:
    with pytest.raises(TypeError, match="must be EpisodeSpec"):
        record(episode=episode)


@pytest.mark.parametrize("failure", [None, "exception", "protocol_error", "timeout", "invalid_action"])
def test_every_policy_failure_may_end_a_record(failure: Any) -> None:
    assert record(policy_failure=failure).policy_failure == failure


@pytest.mark.parametrize(
    ("failure", "error"), [("tired", ValueError), ("", ValueError), (1, TypeError), (False, TypeError), ([], TypeError)]
)
def test_another_policy_failure_is_refused(failure: Any, error: type[Exception]) -> None:
    with pytest.raises(error, match="policy_failure"):
        record(policy_failure=failure)


def test_an_invalid_action_takes_no_message() -> None:
    assert str(InvalidAction()) == ""
    with pytest.raises(TypeError):
        InvalidAction("out of range")  # type: ignore[call-arg]  # that is the point
