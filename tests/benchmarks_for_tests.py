"""Small Benchmarks for tests of the engine: honest ones, and ones that break in every way."""

import hashlib
import os
import random
import signal
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path

from evopolicygym.authoring import (
    Artifact,
    BenchmarkSpec,
    EpisodeRecord,
    EpisodeSpec,
    Feedback,
    InvalidAction,
    Step,
)
from evopolicygym.policy import TensorValue
from evopolicygym.program import Program


def program(directory: Path, source: str, **files: str) -> Program:
    """A Program of one ``policy.py`` and further files; ``helper`` stands for ``helper.py``."""
    directory.mkdir(parents=True)
    (directory / "policy.py").write_text(source)
    for name, content in files.items():
        (directory / f"{name}.py").write_text(content)
    return Program.from_directory(directory)


def acting(body: str, *, before: str = "", setup: str = "pass") -> str:
    """Source of a Policy whose ``act(self, observation)`` has ``body``."""
    indented = "\n".join("        " + line for line in body.splitlines())
    prepared = "\n".join("        " + line for line in setup.splitlines())
    return f"""
{before}
class Policy:
    def __init__(self, context):
        self.context = context
{prepared}
    def act(self, observation):
{indented}

def make_policy(context):
    return Policy(context)
"""


ALWAYS_ONE = acting("return 1")


def _spec(name: str, steps: int) -> BenchmarkSpec:
    return BenchmarkSpec(
        id=name,
        description="for tests",
        observation_space={"kind": "anything"},
        action_space={"kind": "anything"},
        metadata={"note": "hello", "nested": [1, (2.5, None)]},
        max_episode_steps=steps,
        primary_metric="mean return",
        score_direction="maximize",
        environment_parameters={"steps": steps},
    )


class _Planned:
    """What all Benchmarks here share: planning and scoring."""

    name = "test"
    steps = 5

    @property
    def spec(self) -> BenchmarkSpec:
        return _spec(f"test/{self.name}", self.steps)

    def episodes(self, split: str, *, seed: int, count: int) -> list[EpisodeSpec]:
        if split not in ("train", "validation", "test"):
            raise ValueError(f"unknown split {split!r}")
        source = random.Random(f"{split}/{seed}")
        return [EpisodeSpec(source.getrandbits(64), scenario={"position": position}) for position in range(count)]

    def feedback(self, records: list[EpisodeRecord]) -> Feedback:
        returns = [record.total_reward for record in records if record.policy_failure is None]
        lines = [
            _digest(
                repr(
                    (
                        record.policy_failure,
                        record.initial_observation,
                        [(t.action, t.step) for t in record.transitions],
                    )
                )
            )
            for record in records
        ]
        return Feedback(
            score=sum(returns) / max(1, len(returns)),
            content={"failures": [record.policy_failure for record in records], "returns": returns},
            artifacts=(Artifact("trace.txt", "text/plain", "\n".join(lines).encode()),),
        )


def _digest(line: str) -> str:
    return f"{hashlib.sha256(line.encode()).hexdigest()} {line[:4000]}"


@dataclass
class EchoBenchmark(_Planned):
    """Observations are given; the reward of a step is 1; any action is taken unless it is the text "refuse"."""

    observation: object = field(default_factory=lambda: [0.5, -1.0])
    steps: int = 5
    name: str = "echo"

    def make_environment(self, episode: EpisodeSpec) -> "EchoEnvironment":
        return EchoEnvironment(self.observation, self.steps)


class EchoEnvironment:
    def __init__(self, observation: object, steps: int) -> None:
        self._observation = observation
        self._steps = steps
        self._done = 0

    def reset(self) -> object:
        return self._observation

    def step(self, action: object) -> Step:
        if action == "refuse" or (isinstance(action, bytes) and len(action) > 1_000_000):
            raise InvalidAction
        self._done += 1
        return Step(self._observation, 1.0, False, truncated=self._done >= self._steps, metrics={"action": action})

    def close(self) -> None:
        pass


@dataclass
class ShowingBenchmark(_Planned):
    """Shows ``observations`` one after the other; an action must be the digest of what was shown."""

    observations: list[object]
    name: str = "showing"

    @property
    def steps(self) -> int:
        return len(self.observations)

    def make_environment(self, episode: EpisodeSpec) -> "ShowingEnvironment":
        return ShowingEnvironment(self.observations)


class ShowingEnvironment:
    def __init__(self, observations: list[object]) -> None:
        self._observations = observations
        self._shown = 0

    def reset(self) -> object:
        return self._observations[0]

    def step(self, action: object) -> Step:
        if action != digest(self._observations[self._shown]):
            raise InvalidAction
        self._shown += 1
        ended = self._shown == len(self._observations)
        return Step(None if ended else self._observations[self._shown], 1.0, ended)

    def close(self) -> None:
        pass


def digest(value: object) -> str:
    return hashlib.sha256(repr(value).encode()).hexdigest()


class GlobalRandomBenchmark(_Planned):
    """Leans on the global generators, in every phase; rewards depend on what the Policy draws."""

    name = "global-random"
    steps = 12

    def make_environment(self, episode: EpisodeSpec) -> "GlobalRandomEnvironment":
        return GlobalRandomEnvironment()


class GlobalRandomEnvironment:
    def __init__(self) -> None:
        self._offset = random.random()
        self._length = random.randrange(3, 13)
        self._steps = 0

    def reset(self) -> object:
        return {"offset": self._offset, "draw": (random.random(), 7)}

    def step(self, action: object) -> Step:
        if type(action) is not float:
            raise InvalidAction
        self._steps += 1
        draw = random.random()
        return Step({"offset": draw, "draw": ()}, draw * action, self._steps >= self._length)

    def close(self) -> None:
        pass


class NumpyRandomBenchmark(_Planned):
    """The same with NumPy, which it imports late, and tensors."""

    name = "numpy-random"
    steps = 6

    def make_environment(self, episode: EpisodeSpec) -> "NumpyRandomEnvironment":
        return NumpyRandomEnvironment()


class NumpyRandomEnvironment:
    def __init__(self) -> None:
        import numpy as np

        self._np = np
        self._offset = np.random.random()
        self._steps = 0

    def reset(self) -> object:
        return TensorValue.from_numpy(self._np.random.random((4, 5)).astype("float32"))

    def step(self, action: object) -> Step:
        if type(action) is not float:
            raise InvalidAction
        self._steps += 1
        reward = self._np.random.random() * action + self._offset
        observation = TensorValue.from_numpy(self._np.random.random((4, 5)).astype("float32"))
        return Step(observation, reward, False, self._steps >= 6, metrics={"steps": self._steps})

    def close(self) -> None:
        pass


@dataclass
class WalkBenchmark(_Planned):
    """A random walk from the Episode's own seed."""

    steps: int = 40
    name: str = "walk"

    def make_environment(self, episode: EpisodeSpec) -> "WalkEnvironment":
        return WalkEnvironment(random.Random(episode.environment_seed), self.steps)


class WalkEnvironment:
    def __init__(self, source: random.Random, steps: int) -> None:
        self._source = source
        self._position = 0
        self._left = steps

    def reset(self) -> object:
        return [self._position, "start", None, True]

    def step(self, action: object) -> Step:
        if type(action) is not int or action not in (-1, 0, 1):
            raise InvalidAction
        self._left -= 1
        self._position += action + self._source.choice((-1, 1))
        ended = abs(self._position) > 6
        return Step([self._position, "on", b"\0\1", False], float(-abs(self._position)), ended, self._left == 0)

    def close(self) -> None:
        pass


@dataclass
class FaultyBenchmark(_Planned):
    """Breaks in Episode ``position``, at ``where`` (make, reset, step, close, feedback), in the way of ``how``."""

    where: str
    how: str
    position: int = 0
    steps: int = 5
    name: str = "faulty"

    def make_environment(self, episode: EpisodeSpec) -> "FaultyEnvironment":
        if self.where == "make":
            self.strike(episode)
        return FaultyEnvironment(self, episode)

    def feedback(self, records: list[EpisodeRecord]) -> Feedback:
        if self.where == "feedback":
            if self.how == "wrong":
                return "no feedback"  # type: ignore[return-value]  # on purpose
            if self.how == "exit":
                sys.exit("no more feedback")
            raise RuntimeError("feedback is broken")
        return super().feedback(records)

    def strike(self, episode: EpisodeSpec) -> object:
        if episode.scenario["position"] != self.position:
            return None
        if self.how == "raise":
            raise RuntimeError("the simulator is broken")
        if self.how == "exit":
            sys.exit(3)
        if self.how == "hang":
            time.sleep(600)
        if self.how == "doze":
            time.sleep(2.0)
        if self.how == "segfault":
            print("last words of a simulator", file=sys.stderr, flush=True)
            os.kill(os.getpid(), signal.SIGSEGV)
        if self.how == "wait":
            time.sleep(1.0)
        return "wrong"


class FaultyEnvironment:
    def __init__(self, benchmark: FaultyBenchmark, episode: EpisodeSpec) -> None:
        self._benchmark = benchmark
        self._episode = episode
        self._steps = 0

    def _strike(self, where: str, otherwise: object) -> object:
        if self._benchmark.where == where:
            return self._benchmark.strike(self._episode) or otherwise
        return otherwise

    def reset(self) -> object:
        wrong = self._strike("reset", 0)
        return object() if wrong == "wrong" and self._benchmark.how == "wrong" else 0

    def step(self, action: object) -> Step:
        self._steps += 1
        step = Step(0, 1.0, False, self._steps >= self._benchmark.steps)
        wrong = self._strike("step", step)
        if self._benchmark.how == "endless":
            return Step(0, 1.0, False)
        return wrong if self._benchmark.how == "wrong" else step  # type: ignore[return-value]  # on purpose

    def close(self) -> None:
        self._strike("close", None)


class StatefulBenchmark(EchoBenchmark):
    """Keeps state of its own in ``make_environment``: every Episode counts."""

    def make_environment(self, episode: EpisodeSpec) -> EchoEnvironment:
        self.made = getattr(self, "made", 0) + 1
        return super().make_environment(episode)

    def feedback(self, records: list[EpisodeRecord]) -> Feedback:
        return Feedback(score=float(self.made))


class HostBenchmark(EchoBenchmark):
    """Says that it belongs into the Host process, and sees that it is there."""

    environment_process = "host"

    def make_environment(self, episode: EpisodeSpec) -> EchoEnvironment:
        self.process = os.getpid()
        return super().make_environment(episode)

    def feedback(self, records: list[EpisodeRecord]) -> Feedback:
        return Feedback(score=float(self.process == os.getpid()))


class UnpicklableBenchmark(EchoBenchmark):
    """Cannot be sent anywhere."""

    def __reduce__(self) -> str:
        raise TypeError("not this one")
