"""The public description of a Benchmark."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from evopolicygym.identities import environment_digest
from evopolicygym.policy import PolicyValue, copy_policy_value, read_only_mapping, type_name
from evopolicygym.results import SCORE_DIRECTIONS, ScoreDirection

__all__ = ["BenchmarkSpec"]


@dataclass(frozen=True, slots=True)
class BenchmarkSpec:
    """What everybody, the Agent included, may know about a Benchmark.

    Args:
        id: short unique name, such as ``"gymnasium/CartPole-v1"``.
        description: what the task is, for a reader who has never seen it.
        observation_space: description of observations.
        action_space: description of actions.
        metadata: what else helps.
        max_episode_steps: upper bound of Environment steps in one Episode, >= 1.
        primary_metric: the name of what ``Feedback.score`` is.
        score_direction: ``"maximize"`` or ``"minimize"``.
        environment_parameters: public parameters of the Environment; they make up its identity.

    The mappings are detached and read-only.

    Raises:
        TypeError: a field has the wrong type.
        ValueError: an empty text, a bad number, an unknown direction, a value that is no PolicyValue.
    """

    id: str
    description: str
    observation_space: Mapping[str, PolicyValue]
    action_space: Mapping[str, PolicyValue]
    metadata: Mapping[str, PolicyValue]
    max_episode_steps: int
    primary_metric: str
    score_direction: ScoreDirection
    environment_parameters: Mapping[str, PolicyValue] = field(default_factory=lambda: MappingProxyType({}))

    def __post_init__(self) -> None:
        for name in ("id", "description", "primary_metric", "score_direction"):
            value = getattr(self, name)
            if type(value) is not str:
                raise TypeError(f"a BenchmarkSpec's {name} must be str, not {type_name(value)}")
            if not value.strip():
                raise ValueError(f"a BenchmarkSpec's {name} must not be empty")
            copy_policy_value(value, name=name)  # valid Unicode
        if self.score_direction not in SCORE_DIRECTIONS:
            raise ValueError(f"score_direction must be 'maximize' or 'minimize', found {self.score_direction!r}")
        if type(self.max_episode_steps) is not int or self.max_episode_steps < 1:
            raise ValueError(f"max_episode_steps must be an int >= 1, found {self.max_episode_steps!r}")
        for name in ("observation_space", "action_space", "metadata", "environment_parameters"):
            object.__setattr__(self, name, read_only_mapping(getattr(self, name), name))

    @property
    def environment_digest(self) -> str:
        """Identity of the Environment's parameters, ``"sha256:<hex>"``."""
        return environment_digest(self.environment_parameters)

    def __reduce__(self) -> tuple[type["BenchmarkSpec"], tuple[object, ...]]:
        return BenchmarkSpec, (
            self.id,
            self.description,
            dict(self.observation_space),
            dict(self.action_space),
            dict(self.metadata),
            self.max_episode_steps,
            self.primary_metric,
            self.score_direction,
            dict(self.environment_parameters),
        )
