"""The two interfaces of a Benchmark, as structural types: nothing needs to be subclassed."""

import inspect
from collections.abc import Sequence
from typing import Protocol, runtime_checkable

from evopolicygym.artifacts import Feedback
from evopolicygym.authoring.records import EpisodeRecord, EpisodeSpec, Step
from evopolicygym.authoring.specification import BenchmarkSpec
from evopolicygym.policy import PolicyValue

__all__ = ["FAULTS", "Benchmark", "Environment", "InvalidAction", "missing_members"]

FAULTS = (Exception, SystemExit)
"""What ends in a finding or a trusted fault when a Benchmark raises it; some simulators call ``sys.exit()``."""


class InvalidAction(Exception):  # noqa: N818  # the public name of the 0.3 line
    """Raised by :meth:`Environment.step`: the action is outside the action space.

    It carries no message, since what an Environment thinks of an action could tell what it hides. The
    Episode ends with the failure ``invalid_action``; the Environment is not stepped again.
    """

    def __init__(self) -> None:
        super().__init__()


@runtime_checkable
class Environment(Protocol):
    """One simulator instance that serves exactly one Episode. Trusted."""

    def reset(self) -> PolicyValue:
        """Start the Episode and return the first observation. Called once."""
        ...

    def step(self, action: PolicyValue) -> Step:
        """Apply one complete, unmodified action.

        Raises:
            InvalidAction: the action is outside the action space.
        """
        ...

    def close(self) -> None:
        """Release everything. Called once, also after a failure."""
        ...


@runtime_checkable
class Benchmark(Protocol):
    """Plans Episodes, makes Environments, scores. Trusted.

    ``make_environment`` and ``feedback`` share nothing but the records, so that Environments may be made in
    worker processes. A Benchmark that keeps state between them sets ``environment_process = "host"`` as a class
    attribute; its Environments are then stepped in the Host process, one Episode at a time.
    """

    @property
    def spec(self) -> BenchmarkSpec:
        """The public description."""
        ...

    def episodes(self, split: str, *, seed: int, count: int) -> Sequence[EpisodeSpec]:
        """Plan Episodes; a pure function of its arguments.

        Args:
            split: name of one of the Benchmark's splits, such as ``"train"``, ``"validation"`` or ``"test"``.
            seed: unsigned 64-bit; other seeds give other Episodes.
            count: how many, >= 1.

        Returns:
            Exactly ``count`` Episodes.

        Raises:
            ValueError: an unknown split.
        """
        ...

    def make_environment(self, episode: EpisodeSpec) -> Environment:
        """A fresh Environment.

        Args:
            episode: the one Episode that it will serve, planned by :meth:`episodes`.
        """
        ...

    def feedback(self, records: Sequence[EpisodeRecord]) -> Feedback:
        """Score one Evaluation.

        Args:
            records: at least one, in plan order; of failed Episodes too, whose transitions may be empty.
        """
        ...


_MEMBERS: dict[type, tuple[str, ...]] = {
    Benchmark: ("spec", "episodes", "make_environment", "feedback"),
    Environment: ("reset", "step", "close"),
}


def missing_members(value: object, interface: type) -> list[str]:
    """Which members of an interface ``value`` lacks, found without evaluating any property.

    (``isinstance`` with a runtime-checkable Protocol evaluates properties on Python 3.11.)
    """
    missing = []
    for name in _MEMBERS[interface]:
        try:
            inspect.getattr_static(value, name)
        except AttributeError:
            missing.append(name)
    return missing
