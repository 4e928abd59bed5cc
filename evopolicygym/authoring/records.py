"""What happened in an Episode: its plan, its steps, its end."""

import operator
from abc import abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import fsum, isfinite
from typing import overload

from evopolicygym.policy import PolicyValue, as_float, check_seed, copy_policy_value, read_only_mapping, type_name
from evopolicygym.results import POLICY_FAILURES, PolicyFailure

__all__ = ["EpisodeRecord", "EpisodeSpec", "Step", "Transition", "TransitionSequence"]


@dataclass(frozen=True, slots=True)
class EpisodeSpec:
    """One planned Episode. Private: neither field ever reaches an Agent or a Policy.

    Args:
        environment_seed: unsigned 64-bit.
        scenario: whatever else the Benchmark needs to make the Environment; kept as a detached copy.

    Raises:
        ValueError: the seed is no int in [0, 2**64-1]; a scenario value out of range.
        TypeError: the scenario is no PolicyValue.
    """

    environment_seed: int
    scenario: PolicyValue = None

    def __post_init__(self) -> None:
        check_seed(self.environment_seed, "environment_seed")
        object.__setattr__(self, "scenario", copy_policy_value(self.scenario, name="scenario"))


@dataclass(frozen=True, slots=True)
class Step:
    """What an Environment answers to one action.

    Args:
        observation: a PolicyValue; kept as a detached copy.
        reward: a finite int or float (subclasses such as numpy.float64 included, bool not); kept as float.
        terminated: the task itself ended.
        truncated: the Episode was cut off, by a step limit for example.
        metrics: extra named values for the Benchmark's own scoring; the Policy never sees them.

    Raises:
        TypeError: the wrong type of observation, flag or metrics.
        ValueError: a reward that is no finite number; an observation or metric out of range.
    """

    observation: PolicyValue
    reward: float
    terminated: bool
    truncated: bool = False
    metrics: Mapping[str, PolicyValue] | None = None

    def __post_init__(self) -> None:
        write = object.__setattr__
        write(self, "observation", copy_policy_value(self.observation, name="observation"))
        reward = self.reward
        if type(reward) is not float:
            if isinstance(reward, bool) or not isinstance(reward, int | float):
                raise ValueError(f"a reward must be an int or float, not {type_name(reward)}")
            reward = as_float(reward)
            write(self, "reward", reward)
        if not isfinite(reward):
            raise ValueError(f"a reward must be finite, found {reward!r}")
        if type(self.terminated) is not bool or type(self.truncated) is not bool:
            raise TypeError(
                f"terminated and truncated must be bool, not {type_name(self.terminated)} and "
                f"{type_name(self.truncated)}"
            )
        if self.metrics is not None:
            write(self, "metrics", read_only_mapping(self.metrics, "metrics"))

    @property
    def done(self) -> bool:
        """Whether the Episode is over."""
        return self.terminated or self.truncated

    def __reduce__(self) -> tuple[type["Step"], tuple[object, ...]]:
        metrics = None if self.metrics is None else dict(self.metrics)
        return Step, (self.observation, self.reward, self.terminated, self.truncated, metrics)


@dataclass(frozen=True, slots=True)
class Transition:
    """One action and the Environment's answer to it.

    Raises:
        TypeError: the action is no PolicyValue, or the step no Step.
        ValueError: an action value out of range.
    """

    action: PolicyValue
    step: Step

    def __post_init__(self) -> None:
        object.__setattr__(self, "action", copy_policy_value(self.action, name="action"))
        if type(self.step) is not Step:
            raise TypeError(f"a Transition's step must be Step, not {type_name(self.step)}")


class TransitionSequence(Sequence[Transition]):
    """An immutable sequence of Transitions that may decode them on access.

    It compares equal to a tuple of equal Transitions, both ways; slices are tuples; it pickles as a tuple.
    A subclass gives ``__len__`` and :meth:`transition`.
    """

    __slots__ = ()

    @abstractmethod
    def transition(self, index: int) -> Transition:
        """Item ``index``, 0 <= index < len, in constant time."""

    def rewards(self) -> Iterable[float]:
        """The reward of every step, in order."""
        return (transition.step.reward for transition in self)

    @overload
    def __getitem__(self, index: int) -> Transition: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[Transition, ...]: ...
    def __getitem__(self, index: int | slice) -> Transition | tuple[Transition, ...]:
        if isinstance(index, slice):
            return tuple(self.transition(i) for i in range(*index.indices(len(self))))
        position = operator.index(index)
        if position < 0:
            position += len(self)
        if not 0 <= position < len(self):
            raise IndexError(f"transition {index} of {len(self)}")
        return self.transition(position)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, tuple | TransitionSequence):
            return NotImplemented
        return len(self) == len(other) and all(a == b for a, b in zip(self, other, strict=True))

    def __hash__(self) -> int:
        return hash(tuple(self))

    def __repr__(self) -> str:
        return f"<{len(self)} transitions>"

    def __reduce__(self) -> tuple[type[tuple[Transition, ...]], tuple[list[Transition]]]:
        return tuple, (list(self),)


@dataclass(frozen=True, slots=True)
class EpisodeRecord:
    """One Episode as it happened. Private, like its plan.

    Args:
        episode: the plan.
        policy_seed: the seed that the Policy saw, unsigned 64-bit.
        initial_observation: what ``reset`` returned.
        transitions: a tuple, or a :class:`TransitionSequence` if it comes from an Evaluation.
        policy_failure: why the Policy failed, None if it did not.

    Raises:
        TypeError: a field has the wrong type.
        ValueError: a bad seed, an unknown failure.
    """

    episode: EpisodeSpec
    policy_seed: int
    initial_observation: PolicyValue
    transitions: Sequence[Transition]
    policy_failure: PolicyFailure | None = None

    def __post_init__(self) -> None:
        if type(self.episode) is not EpisodeSpec:
            raise TypeError(f"episode must be EpisodeSpec, not {type_name(self.episode)}")
        check_seed(self.policy_seed, "policy_seed")
        initial = copy_policy_value(self.initial_observation, name="initial_observation")
        object.__setattr__(self, "initial_observation", initial)
        if not isinstance(self.transitions, TransitionSequence):
            if type(self.transitions) is not tuple:
                raise TypeError(f"transitions must be a tuple of Transition, not {type_name(self.transitions)}")
            for transition in self.transitions:
                if type(transition) is not Transition:
                    raise TypeError(f"transitions must hold Transition values, not {type_name(transition)}")
        failure: object = self.policy_failure
        if failure is None:
            return
        if type(failure) is not str:
            raise TypeError(f"policy_failure must be None or str, not {type_name(failure)}")
        if failure not in POLICY_FAILURES:
            raise ValueError(
                f"policy_failure must be None or one of {', '.join(POLICY_FAILURES)}, found {self.policy_failure!r}"
            )

    @property
    def total_reward(self) -> float:
        """Sum of the rewards, rounded once (``math.fsum``), so that it is the same on every Python version."""
        if isinstance(self.transitions, TransitionSequence):
            return fsum(self.transitions.rewards())
        return fsum(transition.step.reward for transition in self.transitions)

    @property
    def steps(self) -> int:
        """Number of Environment steps."""
        return len(self.transitions)
