"""Registered Gymnasium environments as Benchmarks."""

import pickle
import subprocess
import sys
from typing import Any

import cloudpickle
import gymnasium
import numpy as np
import pytest

from evopolicygym.authoring import (
    Benchmark,
    BenchmarkFixture,
    EpisodeRecord,
    InvalidAction,
    Transition,
    check_benchmark,
)
from evopolicygym.benchmarks.gymnasium import GymnasiumBenchmark
from evopolicygym.errors import BenchmarkError
from evopolicygym.policy import TensorValue, copy_policy_value
from evopolicygym.policy_json import dumps, to_json

TAXI = "Taxi-v4" if "Taxi-v4" in gymnasium.registry else "Taxi-v3"


class Camera(gymnasium.Env):
    """A picture that darkens towards the action."""

    observation_space = gymnasium.spaces.Box(0, 255, (12, 10, 3), np.uint8)
    action_space = gymnasium.spaces.Box(-1.0, 1.0, (2,), np.float32)
    closed = 0

    def __init__(self, fault: str | None = None) -> None:
        self.fault = fault

    def reset(self, *, seed: int | None = None, options: dict | None = None) -> tuple[np.ndarray, dict]:
        super().reset(seed=seed)
        self.picture = self.np_random.integers(0, 256, (12, 10, 3), dtype=np.uint8)
        return self.picture, {}

    def step(self, action: np.ndarray) -> tuple[np.ndarray, Any, Any, bool, dict]:
        if self.fault == "step":
            raise RuntimeError("the simulator broke")
        assert action.dtype == np.float32
        self.picture //= 2  # in place: what was returned before must not change
        return self.picture, np.float32(action.sum()), np.bool_(self.picture.max() == 0), False, {}

    def close(self) -> None:
        Camera.closed += 1


class Listener(gymnasium.Env):
    """Its actions have no Policy value."""

    observation_space = gymnasium.spaces.Discrete(2)
    action_space = gymnasium.spaces.Sequence(gymnasium.spaces.Discrete(2))


class Unmakeable(gymnasium.Env):
    """Its constructor fails."""

    def __init__(self) -> None:
        raise OSError("no display")


@pytest.fixture(autouse=True, scope="module")
def _registered():
    gymnasium.register("tests/Camera-v0", entry_point=Camera, max_episode_steps=20)
    gymnasium.register("tests/Listener-v0", entry_point=Listener, max_episode_steps=20)
    gymnasium.register("tests/Unmakeable-v0", entry_point=Unmakeable, max_episode_steps=20)
    yield
    for name in ("Camera", "Listener", "Unmakeable"):
        del gymnasium.registry[f"tests/{name}-v0"]


CASES: dict[str, tuple[dict[str, Any], list[Any]]] = {
    "CartPole-v1": ({}, [0, 1] * 250),
    "Acrobot-v1": ({}, [0, 1, 2] * 170),
    "MountainCarContinuous-v0": ({}, [[1.0], [-0.25], [0]] * 333),
    "Pendulum-v1": ({}, [[2.0], [-0.1]] * 100),
    "Blackjack-v1": ({"max_episode_steps": 20}, [1] * 20),
    "FrozenLake-v1": ({}, [0, 1, 2, 3] * 25),
    TAXI: ({}, [0, 1, 2, 3, 4, 5] * 40),
    "tests/Camera-v0": ({"failure_return": -40.0}, [[0.5, -1.0]] * 20),
}


@pytest.fixture(params=CASES)
def case(request: pytest.FixtureRequest) -> tuple[GymnasiumBenchmark, list[Any]]:
    arguments, actions = CASES[request.param]
    return GymnasiumBenchmark(request.param, **arguments), actions


def play(benchmark: GymnasiumBenchmark, actions: list[Any], *, seed: int = 5) -> EpisodeRecord:
    [episode] = benchmark.episodes("train", seed=seed, count=1)
    environment = benchmark.make_environment(episode)
    first = copy_policy_value(environment.reset())
    transitions = []
    for action in actions:
        step = environment.step(action)
        transitions.append(Transition(action, step))
        if step.done:
            break
    environment.close()
    return EpisodeRecord(episode, 1, first, tuple(transitions))


def test_it_is_a_benchmark():
    assert isinstance(GymnasiumBenchmark("CartPole-v1"), Benchmark)


def test_every_case_passes_the_conformance_check(case):
    benchmark, actions = case
    fixtures = [
        BenchmarkFixture(episode, tuple(actions))
        for split in ("train", "validation", "test")
        for episode in benchmark.episodes(split, seed=0, count=1)
    ]

    check_benchmark(benchmark, fixtures=fixtures).raise_for_errors()


def test_an_episode_ends_within_the_step_limit(case):
    benchmark, actions = case
    record = play(benchmark, actions)

    assert record.transitions[-1].step.done
    assert record.steps <= benchmark.spec.max_episode_steps


def test_the_same_seed_gives_the_same_episode(case):
    benchmark, actions = case

    assert play(benchmark, actions) == play(benchmark, actions)


def test_a_pickled_benchmark_plays_the_same_episode(case):
    benchmark, actions = case
    copied = pickle.loads(cloudpickle.dumps(benchmark))

    assert copied.spec == benchmark.spec
    assert play(copied, actions) == play(benchmark, actions)


def test_making_an_environment_changes_nothing_in_the_benchmark(case):
    benchmark, actions = case
    before = dict(vars(benchmark))
    play(benchmark, actions)

    assert vars(benchmark).keys() == before.keys()
    assert all(value is before[name] for name, value in vars(benchmark).items())


def test_the_specification_can_be_told_as_json(case):
    benchmark, _ = case
    spec = benchmark.spec

    for told in (spec.observation_space, spec.action_space, spec.metadata, spec.environment_parameters):
        assert dumps(to_json(dict(told)))


def test_the_limit_truncates_an_episode():
    record = play(GymnasiumBenchmark("Pendulum-v1", max_episode_steps=7), [[0.0]] * 7)

    assert record.steps == 7
    assert record.transitions[-1].step.truncated
    assert not record.transitions[-1].step.terminated


def test_cartpole_needs_no_arguments():
    spec = GymnasiumBenchmark("CartPole-v1").spec

    assert spec.id == "gymnasium/CartPole-v1"
    assert spec.max_episode_steps == 500
    assert (spec.primary_metric, spec.score_direction) == ("mean_return", "maximize")
    assert spec.environment_parameters == {
        "env_id": "CartPole-v1",
        "env_kwargs": {},
        "max_episode_steps": 500,
        "failure_return": 0.0,
    }


def test_the_description_tells_spaces_limit_and_floor():
    description = GymnasiumBenchmark("Acrobot-v1", max_episode_steps=100).spec.description

    for told in ("Acrobot-v1", "a list of 6 floats", "an int from 0 to 2", "at most 100 steps", "counts -100.0"):
        assert told in description


def test_the_documentation_of_the_environment_is_passed_on():
    assert "pole" in GymnasiumBenchmark("CartPole-v1").spec.metadata["documentation"]


def test_the_identity_does_not_depend_on_the_way_the_arguments_are_given():
    default = GymnasiumBenchmark("CartPole-v1").spec
    explicit = GymnasiumBenchmark("CartPole-v1", env_kwargs={}, max_episode_steps=500, failure_return=0).spec

    assert default.environment_digest == explicit.environment_digest


def test_another_floor_is_another_identity():
    default = GymnasiumBenchmark("CartPole-v1").spec
    lower = GymnasiumBenchmark("CartPole-v1", failure_return=-1).spec

    assert default.environment_digest != lower.environment_digest


def test_arguments_reach_the_environment():
    record = play(GymnasiumBenchmark("FrozenLake-v1", env_kwargs={"is_slippery": False}), [2, 2, 1, 1, 1, 2])

    assert record.total_reward == 1.0
    assert [transition.step.observation for transition in record.transitions] == [1, 2, 6, 10, 14, 15]


def test_a_tuple_space_becomes_a_tuple_of_exact_values():
    first = play(GymnasiumBenchmark("Blackjack-v1", max_episode_steps=5), [0]).initial_observation

    assert type(first) is tuple
    assert [type(value) for value in first] == [int, int, int]


def test_an_image_becomes_a_tensor_that_later_steps_leave_alone():
    record = play(GymnasiumBenchmark("tests/Camera-v0", failure_return=-40), [[0.5, 0.25]] * 3)
    first = record.initial_observation

    assert isinstance(first, TensorValue)
    assert (first.dtype, first.shape) == ("uint8", (12, 10, 3))
    halves = record.transitions[0].step.observation
    assert np.array_equal(halves.to_numpy(), first.to_numpy() // 2)
    assert record.transitions[0].step.reward == 0.75


def test_an_action_outside_the_space_is_invalid_and_never_clipped():
    benchmark = GymnasiumBenchmark("Pendulum-v1")
    [episode] = benchmark.episodes("train", seed=0, count=1)
    environment = benchmark.make_environment(episode)
    environment.reset()

    for action in ([2.1], 2.0, [True], [2.0, 0.0], None):
        with pytest.raises(InvalidAction):
            environment.step(action)
    environment.close()


def test_an_exception_of_the_simulator_is_raised_as_it_is():
    benchmark = GymnasiumBenchmark("tests/Camera-v0", env_kwargs={"fault": "step"}, failure_return=-40)
    [episode] = benchmark.episodes("train", seed=0, count=1)
    environment = benchmark.make_environment(episode)
    environment.reset()

    with pytest.raises(RuntimeError, match="the simulator broke"):
        environment.step([0.0, 0.0])


def test_close_closes_the_simulator():
    benchmark = GymnasiumBenchmark("tests/Camera-v0", failure_return=-40)
    before = Camera.closed
    play(benchmark, [[0.0, 0.0]])

    assert Camera.closed == before + 1


def test_an_unknown_split_is_refused():
    with pytest.raises(ValueError, match="unknown split 'holdout'"):
        GymnasiumBenchmark("CartPole-v1").episodes("holdout", seed=0, count=1)


def test_feedback_counts_a_failed_episode_with_the_floor():
    benchmark = GymnasiumBenchmark("Acrobot-v1", max_episode_steps=50)
    good = play(benchmark, [0] * 50)
    failed = EpisodeRecord(good.episode, 1, good.initial_observation, good.transitions[:3], "exception")

    assert benchmark.feedback([good, failed]).content["min_return"] == -50.0


def test_the_simulator_is_named():
    assert GymnasiumBenchmark("CartPole-v1").simulator_modules == ("gymnasium",)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"env_id": "CartPole-v9"}, "CartPole-v9"),
        ({"env_id": "CartPole"}, "'CartPole' needs a version; registered: CartPole-v0, CartPole-v1"),
        ({"env_id": "NoSuchThing-v0"}, "write 'its_module:NoSuchThing-v0'"),
        ({"env_id": "no_such_module:Thing-v0"}, "'no_such_module' that should register 'Thing-v0'"),
        ({"env_id": "!"}, "no environment '!'"),
        ({"env_id": 7}, "env_id must be a str"),
        ({"env_id": "Acrobot-v0"}, "no environment 'Acrobot-v0' any more.*use `Acrobot-v1`"),
        ({"env_id": "Blackjack-v1"}, "registered without a step limit.*max_episode_steps=100"),
        ({"env_id": "tests/Camera-v0"}, "needs failure_return here.*crashing pays"),
        ({"env_id": "tests/Listener-v0", "failure_return": 0}, "the action space is a Sequence space"),
        ({"env_id": "tests/Unmakeable-v0", "failure_return": 0}, "failed: OSError: no display"),
        ({"env_id": "CartPole-v1", "max_episode_steps": 0}, "max_episode_steps must be an int >= 1, found 0"),
        ({"env_id": "CartPole-v1", "max_episode_steps": True}, "found True"),
        ({"env_id": "CartPole-v1", "max_episode_steps": 5.0}, r"found 5\.0"),
        ({"env_id": "CartPole-v1", "failure_return": "0"}, "failure_return must be a finite number"),
        ({"env_id": "CartPole-v1", "failure_return": float("nan")}, "failure_return must be a finite number"),
        ({"env_id": "CartPole-v1", "failure_return": False}, "failure_return must be a finite number"),
        ({"env_id": "CartPole-v1", "env_kwargs": {"render_mode": 1j}}, "env_kwargs must be a mapping"),
        ({"env_id": "CartPole-v1", "env_kwargs": {"disable_env_checker": True}}, "must not hold 'disable_env_checker'"),
        ({"env_id": "CartPole-v1", "env_kwargs": {"colour": 1}, "failure_return": 0}, "unexpected keyword argument"),
    ],
    ids=str,
)
def test_a_bad_argument_is_told(arguments, message):
    with pytest.raises(BenchmarkError, match=f"(?s){message}"):
        GymnasiumBenchmark(**arguments)


def test_without_gymnasium_the_command_that_installs_it_is_told():
    code = "import sys; sys.modules['gymnasium'] = None; import evopolicygym.benchmarks.gymnasium"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)

    assert done.returncode == 1
    assert "python -m pip install 'evopolicygym[gymnasium]'" in done.stderr


def test_the_package_itself_loads_neither_gymnasium_nor_numpy():
    code = "import sys, evopolicygym.benchmarks; print({'gymnasium', 'numpy'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)

    assert done.stdout.strip() == "set()"
