"""A small, fast Benchmark for tests of whole Runs: say the number that you are shown."""

import json
import random
import time

from evopolicygym.authoring import (
    Artifact,
    BenchmarkSpec,
    EpisodeRecord,
    EpisodeSpec,
    Feedback,
    InvalidAction,
    Step,
)

SECRET_SCENARIO = "scenario-that-nobody-may-see"


class TargetEnvironment:
    def __init__(self, benchmark: "TargetBenchmark", episode: EpisodeSpec) -> None:
        self._random = random.Random(episode.environment_seed)
        self._benchmark = benchmark
        self._steps = 0
        self._target = 0

    def reset(self) -> object:
        self._target = self._random.randrange(10)
        return self._target

    def step(self, action: object) -> Step:
        if type(action) is not int or not 0 <= action < 10:
            raise InvalidAction
        if self._benchmark.fail_at_step == self._steps:
            raise RuntimeError("the simulator broke")
        if self._benchmark.step_seconds:
            time.sleep(self._benchmark.step_seconds)
        reward = 1.0 if action == self._target else 0.0
        self._target = self._random.randrange(10)
        self._steps += 1
        return Step(self._target, reward, terminated=self._steps == self._benchmark.length)

    def close(self) -> None:
        pass


class TargetBenchmark:
    """Score: mean number of right answers in an Episode of ``length`` steps; a failed Episode counts 0."""

    def __init__(
        self,
        length: int = 5,
        step_seconds: float = 0.0,
        fail_at_step: int | None = None,
        bulk_bytes: int = 0,
        fail_split: str | None = None,
        feedback_seconds: float = 0.0,
    ) -> None:
        self.length = length
        self.step_seconds = step_seconds
        self.fail_at_step = fail_at_step
        self.bulk_bytes = bulk_bytes
        self.fail_split = fail_split
        self.feedback_seconds = feedback_seconds

    @property
    def spec(self) -> BenchmarkSpec:
        return BenchmarkSpec(
            id="test/target",
            description="Say the number that you are shown.",
            observation_space={"type": "int", "low": 0, "high": 9},
            action_space={"type": "int", "low": 0, "high": 9},
            metadata={},
            max_episode_steps=self.length,
            primary_metric="mean_right_answers",
            score_direction="maximize",
            environment_parameters={"length": self.length},
        )

    def episodes(self, split: str, *, seed: int, count: int) -> list[EpisodeSpec]:
        if split not in ("train", "validation", "test"):
            raise ValueError(f"unknown split {split!r}")
        stream = random.Random(f"{split}/{seed}")
        scenario = {"secret": SECRET_SCENARIO, "split": split}
        return [EpisodeSpec(stream.getrandbits(64), scenario) for _ in range(count)]

    def make_environment(self, episode: EpisodeSpec) -> TargetEnvironment:
        assert isinstance(episode.scenario, dict)
        if self.fail_split == episode.scenario["split"]:
            raise RuntimeError(f"no Environment for {self.fail_split}")
        return TargetEnvironment(self, episode)

    def feedback(self, records: list[EpisodeRecord]) -> Feedback:
        time.sleep(self.feedback_seconds)
        returns = [0.0 if record.policy_failure else record.total_reward for record in records]
        artifacts = [Artifact("returns.json", "application/json", json.dumps(returns).encode())]
        if self.bulk_bytes:
            artifacts.append(Artifact("bulk.bin", "application/octet-stream", b"x" * self.bulk_bytes, "bulk"))
        mean = sum(returns) / len(returns)
        return Feedback(mean, {"mean": mean, "returns": returns}, tuple(artifacts))


CONSTANT_POLICY = """\
class Policy:
    def act(self, observation):
        return 3


def make_policy(context):
    return Policy()
"""

RIGHT_POLICY = CONSTANT_POLICY.replace("return 3", "return observation")
