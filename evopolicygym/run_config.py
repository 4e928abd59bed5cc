"""The limits of a Run: one definition for Python, the run spec and its JSON Schema."""

import functools
from typing import Annotated, Literal, TypeVar

from pydantic import ConfigDict, Field, ValidationError, field_validator
from pydantic.dataclasses import dataclass

__all__ = ["AssessmentConfig", "LimitError", "RunConfig", "ValidationConfig"]

_CONFIG = ConfigDict(strict=True, extra="forbid", use_attribute_docstrings=True)
_SEED_MAX = 2**64 - 1
_TEN_YEARS = 10 * 365 * 24 * 3600.0

PositiveInt = Annotated[int, Field(ge=1)]
Seconds = Annotated[float, Field(gt=0, le=_TEN_YEARS, allow_inf_nan=False)]
SplitName = Annotated[str, Field(min_length=1)]

ConfigT = TypeVar("ConfigT")


class LimitError(ValueError):
    """Limits are missing or wrong, or contradict each other.

    Args:
        findings: for each, the name of the field (empty if it is several) and what is wrong.
    """

    def __init__(self, *findings: tuple[str, str]) -> None:
        super().__init__(*findings)
        self.findings = findings

    def __str__(self) -> str:
        return "; ".join(f"{name}: {message}" if name else message for name, message in self.findings)


def _plain_errors(config: type[ConfigT]) -> type[ConfigT]:
    """Let a class say in one line what is wrong; pydantic would add types, the whole input and a link."""
    initialize = config.__init__

    @functools.wraps(initialize)
    def plainly(self: ConfigT, *args: object, **values: object) -> None:
        try:
            initialize(self, *args, **values)
        except ValidationError as error:
            found = error.errors(include_url=False, include_input=False)
            raise LimitError(
                *((".".join(map(str, one["loc"])), one["msg"].removeprefix("Value error, ")) for one in found)
            ) from None

    config.__init__ = plainly  # type: ignore[method-assign, assignment]
    return config


@_plain_errors
@dataclass(frozen=True, kw_only=True, config=_CONFIG, slots=True)
class ValidationConfig:
    """Private Episodes that select one of the candidates.

    Raises:
        ValueError: a field is missing or has a wrong value; the text says which and why.
    """

    episodes_per_candidate: PositiveInt
    """Episodes that each candidate runs; all run the same ones."""
    split: SplitName = "validation"
    """Benchmark split."""
    max_candidates: PositiveInt = 3
    """How many Submissions may be handed off."""


@_plain_errors
@dataclass(frozen=True, kw_only=True, config=_CONFIG, slots=True)
class AssessmentConfig:
    """Held-out Episodes that measure the selected Program and change nothing.

    Raises:
        ValueError: a field is missing or has a wrong value; the text says which and why.
    """

    episodes: PositiveInt
    """Held-out Episodes."""
    split: SplitName = "test"
    """Benchmark split."""


@_plain_errors
@dataclass(frozen=True, kw_only=True, config=_CONFIG, slots=True)
class RunConfig:
    """The limits and choices of one Run.

    | Use | Configuration |
    | --- | --- |
    | defaults | ``RunConfig()`` |
    | a small budget, fixed pool | ``RunConfig(episode_budget=30, episode_pool_size=60, seed=42)`` |
    | select and measure | ``RunConfig(validation=ValidationConfig(episodes_per_candidate=5), assessment=AssessmentConfig(episodes=10))`` |
    | nothing from Policies but a failure code | ``RunConfig(policy_diagnostics="none")`` |

    ``episode_pool_size`` and ``max_submissions`` read back resolved, never as None.

    Raises:
        ValueError: a field has a wrong value, or two contradict each other; the text says which and why.
        TypeError: ``validation`` or ``assessment`` is of another class.
    """  # noqa: E501  # a table row

    split: SplitName = "train"
    """Benchmark split that the Agent may use."""
    max_submissions: PositiveInt | None = 20
    """Accepted Submissions; None means as many as the Episode budget."""
    episode_budget: PositiveInt = 1000
    """Episode indices charged over all Submissions."""
    episode_pool_size: PositiveInt | None = None
    """Fixed training Episodes of this Run; None means as many as the Episode budget."""
    max_episodes_per_submission: PositiveInt | None = None
    """Cap for one Submission; not above budget or pool."""
    seed: Annotated[int, Field(ge=0, le=_SEED_MAX)] = 0
    """Run seed, unsigned 64-bit."""
    episode_timeout_seconds: Seconds = 30.0
    """Policy time of one Episode, in seconds."""
    agent_timeout_seconds: Seconds = 3600.0
    """Wall-clock time of the Agent process, in seconds."""
    agent_idle_timeout_seconds: Seconds | None = None
    """Longest silence of the Agent (no output, no request, no Evaluation), in seconds; None: no limit."""
    validation: ValidationConfig | None = None
    """Private selection, or None."""
    assessment: AssessmentConfig | None = None
    """Held-out measurement, or None."""
    finish_budget_policy: Literal["allow_early", "require_budget_exhaustion"] = "allow_early"
    """Whether ``finish`` is refused while budget is left."""
    bulk_feedback_retention_bytes: Annotated[int, Field(ge=0)] = 1024**3
    """Bytes of bulk artifacts kept; the oldest are evicted beyond it, the newest Submission is kept whole."""
    policy_diagnostics: Literal["none", "traceback", "output"] = "traceback"
    """What the Agent sees of Policy failures: the code alone, tracebacks, or tracebacks and output."""
    environment_timeout_seconds: Seconds | None = 600.0
    """Longest make_environment, reset, step or close before it is a trusted fault, in seconds; None: no limit."""
    when_unfinished: Literal["discard", "select"] = "discard"
    """What becomes of published Submissions if the Agent ends without ``finish``."""

    @field_validator("validation", mode="before")
    @classmethod
    def _check_validation(cls, value: object) -> object:
        return _require(value, ValidationConfig, "validation")

    @field_validator("assessment", mode="before")
    @classmethod
    def _check_assessment(cls, value: object) -> object:
        return _require(value, AssessmentConfig, "assessment")

    def __post_init__(self) -> None:
        if self.max_submissions is None:
            object.__setattr__(self, "max_submissions", self.episode_budget)
        if self.episode_pool_size is None:
            object.__setattr__(self, "episode_pool_size", self.episode_budget)
        assert self.max_submissions is not None
        assert self.episode_pool_size is not None
        cap = self.max_episodes_per_submission
        if cap is not None and cap > min(self.episode_budget, self.episode_pool_size):
            raise ValueError(
                f"max_episodes_per_submission is {cap}, above the episode_budget ({self.episode_budget}) or the "
                f"episode_pool_size ({self.episode_pool_size}); lower it"
            )
        largest = min(cap or self.episode_pool_size, self.episode_pool_size)
        if self.finish_budget_policy == "require_budget_exhaustion":
            reachable = self.max_submissions * largest
            if reachable < self.episode_budget:
                raise ValueError(
                    f"the budget can never be exhausted: {self.max_submissions} Submissions of at most {largest} "
                    f"Episodes reach {reachable} of {self.episode_budget}; finish_budget_policy needs a smaller "
                    "episode_budget, more max_submissions or a larger cap"
                )

    @property
    def max_candidates(self) -> int:
        """How many Submissions may be handed off: one, unless there is a Validation to choose among them."""
        return self.validation.max_candidates if self.validation else 1


def _require(value: object, expected: type, name: str) -> object:
    if value is not None and not isinstance(value, expected):
        raise TypeError(f"{name} must be {expected.__name__} or None, not {type(value).__qualname__}")
    return value
