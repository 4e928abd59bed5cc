"""The Benchmark: what is public, which Episodes there are, how they run, how they are scored."""

import json
from collections.abc import Sequence
from hashlib import sha256
from random import Random
from statistics import fmean

from cartpole.physics import ANGLE_LIMIT, FORCE, POSITION_LIMIT, TIME_STEP, State, advance
from evopolicygym.authoring import (
    Artifact,
    BenchmarkSpec,
    EpisodeRecord,
    EpisodeSpec,
    Feedback,
    InvalidAction,
    Step,
)
from evopolicygym.policy import PolicyValue

__all__ = ["CartPoleBenchmark", "CartPoleEnvironment"]

SPLITS = ("train", "validation", "test")
MAX_STEPS = 500
START_RANGE = 0.05

# The fewest steps that any Policy can get are more than 0, so a failed Episode is never better than a bad one.
FAILED_EPISODE_STEPS = 0

SPEC = BenchmarkSpec(
    id="cartpole",
    description=(
        "Balance a pole on a cart by pushing the cart to the left or to the right, 50 times a second.\n"
        "Observation: [position in m, velocity in m/s, angle in rad, angular velocity in rad/s]; a positive angle "
        "leans to the right.\n"
        "Action: 0 pushes to the left, 1 to the right, both with 10 N.\n"
        f"An Episode ends when the pole leans more than 12 degrees, when the cart is more than {POSITION_LIMIT} m from "
        f"the middle, or after {MAX_STEPS} steps.\n"
        "Score: the mean number of steps; an Episode in which the Policy fails counts 0."
    ),
    observation_space={
        "type": "list of float",
        "length": 4,
        "elements": ["position", "velocity", "angle", "angular_velocity"],
    },
    action_space={"type": "int", "values": [0, 1]},
    metadata={"source": "Barto, Sutton, Anderson 1983, doi:10.1109/TSMC.1983.6313077"},
    max_episode_steps=MAX_STEPS,
    primary_metric="mean_steps",
    score_direction="maximize",
    environment_parameters={
        "force": FORCE,
        "time_step": TIME_STEP,
        "position_limit": POSITION_LIMIT,
        "angle_limit": ANGLE_LIMIT,
        "start_range": START_RANGE,
        "max_episode_steps": MAX_STEPS,
        "failed_episode_steps": FAILED_EPISODE_STEPS,
    },
)


class CartPoleEnvironment:
    """One cart and one pole, for one Episode."""

    def __init__(self, seed: int) -> None:
        random = Random(seed)
        self._state = State(*(random.uniform(-START_RANGE, START_RANGE) for _ in range(4)))
        self._steps = 0

    def reset(self) -> PolicyValue:
        """The first observation."""
        return self._observation()

    def step(self, action: PolicyValue) -> Step:
        """Push, and see where the cart and the pole are a fiftieth of a second later.

        Raises:
            InvalidAction: the action is neither 0 nor 1.
        """
        # The exact type: True == 1 and 1.0 == 1, but neither is an action.
        if type(action) is not int or action not in (0, 1):
            raise InvalidAction
        self._state = advance(self._state, FORCE if action == 1 else -FORCE)
        self._steps += 1
        terminated = self._state.fell or self._state.left_track
        truncated = not terminated and self._steps >= MAX_STEPS
        return Step(
            self._observation(),
            reward=1.0,
            terminated=terminated,
            truncated=truncated,
            metrics={"end": self._end()} if terminated or truncated else None,
        )

    def close(self) -> None:
        """Nothing to release."""

    def _observation(self) -> PolicyValue:
        state = self._state
        return [state.position, state.velocity, state.angle, state.angular_velocity]

    def _end(self) -> str:
        if self._state.fell:
            return "pole_fell"
        return "left_track" if self._state.left_track else "time_up"


class CartPoleBenchmark:
    """Balance a pole on a cart; the score is the mean number of steps, at most 500."""

    spec = SPEC

    def episodes(self, split: str, *, seed: int, count: int) -> tuple[EpisodeSpec, ...]:
        """``count`` Episodes of a split, always the same ones for the same arguments.

        Raises:
            ValueError: an unknown split.
        """
        if split not in SPLITS:
            raise ValueError(f"unknown split {split!r}; allowed: {', '.join(SPLITS)}")
        return tuple(EpisodeSpec(_environment_seed(split, seed, position)) for position in range(count))

    def make_environment(self, episode: EpisodeSpec) -> CartPoleEnvironment:
        """A fresh cart and pole."""
        return CartPoleEnvironment(episode.environment_seed)

    def feedback(self, records: Sequence[EpisodeRecord]) -> Feedback:
        """The mean number of steps, and how each Episode ended."""
        steps = [_counted_steps(record) for record in records]
        ends = [_end(record) for record in records]
        content: dict[str, PolicyValue] = {
            "mean_steps": fmean(steps),
            "fewest_steps": min(steps),
            "most_steps": max(steps),
            "ends": {end: ends.count(end) for end in sorted(set(ends))},
        }
        # What an Agent may know about an Episode: how it went, not which one it was.
        episodes = [{"steps": count, "end": end} for count, end in zip(steps, ends, strict=True)]
        artifact = Artifact("episodes.json", "application/json", json.dumps(episodes).encode())
        return Feedback(fmean(steps), content, (artifact,))


def _environment_seed(split: str, seed: int, position: int) -> int:
    """62 bits of a hash over everything, and two bits that number the split, so that no two splits meet."""
    hashed = sha256(f"cartpole/{split}/{seed}/{position}".encode()).digest()
    return int.from_bytes(hashed[:8], "big") >> 2 << 2 | SPLITS.index(split)


def _counted_steps(record: EpisodeRecord) -> int:
    return record.steps if record.policy_failure is None else FAILED_EPISODE_STEPS


def _end(record: EpisodeRecord) -> str:
    if record.policy_failure is not None:
        return f"failed_{record.policy_failure}"
    last = record.transitions[-1].step.metrics if record.transitions else None
    return str(last["end"]) if last else "unfinished"
