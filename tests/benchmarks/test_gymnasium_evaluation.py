"""Gymnasium environments stepped where Evaluations step them: in worker processes, against real Policies."""

from pathlib import Path

import gymnasium
import numpy as np
import pytest

from evopolicygym.benchmarks.gymnasium import GymnasiumBenchmark
from evopolicygym.evaluation import EvaluationConfig, evaluate
from evopolicygym.execution import ProcessExecution
from evopolicygym.program import Program

PUSH_TOWARDS_THE_LEAN = """
class Policy:
    def act(self, observation):
        return 1 if observation[2] + 0.25 * observation[3] > 0 else 0

def make_policy(context):
    return Policy()
"""

LOOK_AT_THE_PICTURE = """
class Policy:
    def act(self, observation):
        assert (observation.dtype, observation.shape) == ("uint8", (6, 6, 3))
        return {"bright": observation.data[0] > 127 and 1 or 0, "reach": [0.5, -0.25]}

def make_policy(context):
    return Policy()
"""

ALWAYS = """
class Policy:
    def act(self, observation):
        return {action!r}

def make_policy(context):
    return Policy()
"""


class Flicker(gymnasium.Env):
    """A random picture; the reward is what was reached for, once more if the brightness was told right."""

    observation_space = gymnasium.spaces.Box(0, 255, (6, 6, 3), np.uint8)
    action_space = gymnasium.spaces.Dict(
        {"bright": gymnasium.spaces.Discrete(2), "reach": gymnasium.spaces.Box(-1.0, 1.0, (2,), np.float32)}
    )

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.picture = self._flicker()
        return self.picture, {}

    def step(self, action):
        right = action["bright"] == (self.picture[0, 0, 0] > 127)
        self.picture = self._flicker()
        return self.picture, np.float32(action["reach"].sum() + right), False, False, {}

    def _flicker(self):
        return self.np_random.integers(0, 256, (6, 6, 3), dtype=np.uint8)


@pytest.fixture
def _flicker_registered():
    gymnasium.register("tests/Flicker-v0", entry_point=Flicker, max_episode_steps=12)
    yield
    del gymnasium.registry["tests/Flicker-v0"]


def program(folder: Path, source: str) -> Program:
    folder.mkdir()
    (folder / "policy.py").write_text(source)
    return Program.from_directory(folder)


def evaluated(policy: Program, benchmark: GymnasiumBenchmark, *, workers: int = 1, episodes: int = 3):
    config = EvaluationConfig(split="test", episodes=episodes, seed=11)
    return evaluate(policy, benchmark, execution=ProcessExecution.unsafe(workers=workers), config=config)


def test_a_good_policy_balances_the_pole(tmp_path):
    result = evaluated(program(tmp_path / "p", PUSH_TOWARDS_THE_LEAN), GymnasiumBenchmark("CartPole-v1"))

    assert result.feedback.score > 400
    assert all(episode.status == "completed" for episode in result.episodes)


@pytest.mark.usefixtures("_flicker_registered")
def test_an_id_that_the_caller_registered_plays_the_same_in_workers_and_in_the_host(tmp_path):
    policy = program(tmp_path / "p", LOOK_AT_THE_PICTURE)
    benchmark = GymnasiumBenchmark("tests/Flicker-v0", failure_return=-20)
    in_worker = evaluated(policy, benchmark, workers=1)
    in_host = evaluated(policy, benchmark, workers=0)

    assert in_worker.feedback.score == 12 * 1.25
    assert (in_worker.feedback, in_worker.episodes) == (in_host.feedback, in_host.episodes)


def test_an_action_outside_the_space_fails_the_episode_and_counts_the_floor(tmp_path):
    policy = program(tmp_path / "p", ALWAYS.format(action=[2.0000001]))
    result = evaluated(policy, GymnasiumBenchmark("Pendulum-v1", max_episode_steps=10), episodes=2)

    assert [episode.failure for episode in result.episodes] == ["invalid_action"] * 2
    assert result.feedback.score == -162.74


def test_a_crash_never_pays(tmp_path):
    benchmark = GymnasiumBenchmark("Pendulum-v1", max_episode_steps=10)
    worst = evaluated(program(tmp_path / "worst", ALWAYS.format(action=[2.0])), benchmark)
    crash = evaluated(program(tmp_path / "crash", "raise RuntimeError"), benchmark)

    assert crash.feedback.score < worst.feedback.score
