"""What Evaluations and Runs give back: plain values that refuse to contradict themselves."""

import re
from dataclasses import dataclass
from itertools import pairwise
from math import isfinite
from typing import Literal, TypeAlias, get_args

from evopolicygym.artifacts import Feedback
from evopolicygym.policy import PolicyValue, as_float, copy_policy_value, type_name
from evopolicygym.program import Program

__all__ = [
    "AssessmentResult",
    "EpisodeStatus",
    "EpisodeSummary",
    "EvaluationResult",
    "Feedback",
    "PolicyFailure",
    "RunResult",
    "ScoreDirection",
    "SubmissionResult",
    "TerminalReason",
    "ValidationCandidateResult",
    "ValidationResult",
    "format_submission_id",
    "is_better",
]

EpisodeStatus: TypeAlias = Literal["completed", "policy_failed"]
PolicyFailure: TypeAlias = Literal["exception", "protocol_error", "timeout", "invalid_action"]
ScoreDirection: TypeAlias = Literal["maximize", "minimize"]
TerminalReason: TypeAlias = Literal[
    "finished",
    "agent_exited",
    "budget_exhausted",
    "agent_failed",
    "agent_timed_out",
    "interrupted",
    "evaluation_failed",
    "validation_failed",
    "assessment_failed",
]

POLICY_FAILURES: tuple[str, ...] = get_args(PolicyFailure)
SCORE_DIRECTIONS: tuple[str, ...] = get_args(ScoreDirection)
TERMINAL_REASONS: tuple[str, ...] = get_args(TerminalReason)

_DIGEST = re.compile(r"sha256:[0-9a-f]{64}")
_SUBMISSION_ID = re.compile(r"submission-[0-9]{6,}")


def format_submission_id(number: int) -> str:
    """``submission-000001`` for 1."""
    return f"submission-{number:06d}"


def is_better(score: float, than: float, direction: ScoreDirection) -> bool:
    """Whether ``score`` is strictly better ``than`` another in the Benchmark's ``direction``."""
    return score > than if direction == "maximize" else score < than


@dataclass(frozen=True, slots=True)
class EpisodeSummary:
    """How one Episode ended.

    Args:
        status: ``"completed"`` or ``"policy_failed"``.
        reward: total reward of a completed Episode, None of a failed one.
        steps: Environment steps taken.
        failure: why the Policy failed, None if it did not.

    Raises:
        ValueError: the fields contradict each other or have wrong values.
    """

    status: EpisodeStatus
    reward: float | None
    steps: int
    failure: PolicyFailure | None = None

    def __post_init__(self) -> None:
        _check_count(self.steps, "steps")
        if self.status == "completed":
            if self.failure is not None:
                raise ValueError(f"a completed Episode has no failure, found {self.failure!r}")
            object.__setattr__(self, "reward", _finite(self.reward, "the reward of a completed Episode"))
        elif self.status == "policy_failed":
            if self.failure not in POLICY_FAILURES:
                raise ValueError(f"failure must be one of {', '.join(POLICY_FAILURES)}, found {self.failure!r}")
            if self.reward is not None:
                raise ValueError(f"a failed Episode has no reward, found {self.reward!r}")
        else:
            raise ValueError(f"status must be 'completed' or 'policy_failed', found {self.status!r}")


@dataclass(frozen=True, slots=True)
class EvaluationResult:
    """One Program on the Episodes of one split.

    Args:
        benchmark_id: the Benchmark's id.
        environment_digest: identity of the Environment's parameters.
        program_digest: identity of the Program.
        feedback: what the Benchmark says about it.
        episodes: one summary an Episode, in plan order.
    """

    benchmark_id: str
    environment_digest: str
    program_digest: str
    feedback: Feedback
    episodes: tuple[EpisodeSummary, ...]

    def __post_init__(self) -> None:
        _check_text(self.benchmark_id, "benchmark_id")
        _check_digest(self.environment_digest, "environment_digest")
        _check_digest(self.program_digest, "program_digest")
        _check_type(self.feedback, Feedback, "feedback")
        _check_items(self.episodes, EpisodeSummary, "episodes")


@dataclass(frozen=True, slots=True)
class SubmissionResult:
    """One published Submission.

    Args:
        submission_id: ``"submission-000001"`` …
        program: what was evaluated.
        episode_indices: pool indices, strictly increasing.
        episodes_used: indices charged for this Submission.
        episodes_remaining: budget left after it.
        feedback: what the Agent was told.
        episodes: one summary an index, in the same order; may be left out.
    """

    submission_id: str
    program: Program
    episode_indices: tuple[int, ...]
    episodes_used: int
    episodes_remaining: int
    feedback: Feedback
    episodes: tuple[EpisodeSummary, ...] = ()

    def __post_init__(self) -> None:
        _check_submission_id(self.submission_id)
        _check_type(self.program, Program, "program")
        _check_type(self.feedback, Feedback, "feedback")
        _check_type(self.episode_indices, tuple, "episode_indices")
        for index in self.episode_indices:
            _check_count(index, "an item of episode_indices")
        _check_items(self.episodes, EpisodeSummary, "episodes")
        _check_count(self.episodes_used, "episodes_used", minimum=1)
        _check_count(self.episodes_remaining, "episodes_remaining")
        indices = self.episode_indices
        if any(a >= b for a, b in pairwise(indices)):
            raise ValueError("episode_indices must be strictly increasing")
        if self.episodes_used != len(indices):
            raise ValueError(f"episodes_used is {self.episodes_used}, but there are {len(indices)} episode_indices")
        if self.episodes and len(self.episodes) != len(indices):
            raise ValueError(f"{len(self.episodes)} episodes do not match {len(indices)} episode_indices")

    @property
    def program_digest(self) -> str:
        """Identity of the Program."""
        return self.program.digest

    @property
    def policy_failures(self) -> int:
        """How many of its Episodes the Policy failed."""
        return sum(episode.status == "policy_failed" for episode in self.episodes)


@dataclass(frozen=True, slots=True)
class ValidationCandidateResult:
    """One candidate on the private Validation Episodes.

    Args:
        submission_id: the candidate.
        program_digest: identity of its Program.
        score: the Benchmark's score.
        episodes: how many Episodes.
        policy_failures: in how many of them the Policy failed.
        feedback_content: the Feedback's content, if kept.
    """

    submission_id: str
    program_digest: str
    score: float
    episodes: int
    policy_failures: int
    feedback_content: PolicyValue = None

    def __post_init__(self) -> None:
        _check_measured(self)


@dataclass(frozen=True, slots=True)
class ValidationResult:
    """All candidates on the same private Episodes, and which of them was selected.

    Args:
        split: the Benchmark split.
        episodes_per_candidate: Episodes that each candidate ran.
        primary_metric: what the score is.
        score_direction: ``"maximize"`` or ``"minimize"``.
        candidates: in the Agent's order, at least one.
        selected_submission_id: one of them.
    """

    split: str
    episodes_per_candidate: int
    primary_metric: str
    score_direction: ScoreDirection
    candidates: tuple[ValidationCandidateResult, ...]
    selected_submission_id: str

    def __post_init__(self) -> None:
        _check_text(self.split, "split")
        _check_text(self.primary_metric, "primary_metric")
        _check_direction(self.score_direction)
        _check_count(self.episodes_per_candidate, "episodes_per_candidate", minimum=1)
        _check_items(self.candidates, ValidationCandidateResult, "candidates")
        ids = [candidate.submission_id for candidate in self.candidates]
        if len(set(ids)) != len(ids):
            raise ValueError("a candidate stands twice in candidates")
        if self.selected_submission_id not in ids:
            raise ValueError(f"selected_submission_id {self.selected_submission_id!r} is no candidate")
        for candidate in self.candidates:
            if candidate.episodes != self.episodes_per_candidate:
                raise ValueError(
                    f"{candidate.submission_id} ran {candidate.episodes} Episodes, not {self.episodes_per_candidate}"
                )


@dataclass(frozen=True, slots=True)
class AssessmentResult:
    """The selected Program on the held-out split; a measurement that changes nothing.

    Args:
        submission_id: the selected Submission.
        program_digest: identity of its Program.
        split: the Benchmark split.
        episodes: how many Episodes.
        primary_metric: what the score is.
        score_direction: ``"maximize"`` or ``"minimize"``.
        score: the Benchmark's score.
        policy_failures: in how many Episodes the Policy failed.
        feedback_content: the Feedback's content, if kept.
    """

    submission_id: str
    program_digest: str
    split: str
    episodes: int
    primary_metric: str
    score_direction: ScoreDirection
    score: float
    policy_failures: int
    feedback_content: PolicyValue = None

    def __post_init__(self) -> None:
        _check_measured(self)
        _check_text(self.split, "split")
        _check_text(self.primary_metric, "primary_metric")
        _check_direction(self.score_direction)


@dataclass(frozen=True, slots=True)
class RunResult:
    """What a Run came to.

    Args:
        final_program: the selected Program; None if nothing was handed off.
        final_submission_id: its Submission; None likewise.
        submissions: every published Submission, in order.
        terminal_reason: why the Run ended.
        candidate_submission_ids: what was handed off, in order.
        validation: None if there was none, or it did not complete.
        assessment: None if there was none, or it did not complete.
    """

    final_program: Program | None
    final_submission_id: str | None
    submissions: tuple[SubmissionResult, ...]
    terminal_reason: TerminalReason
    candidate_submission_ids: tuple[str, ...] = ()
    validation: ValidationResult | None = None
    assessment: AssessmentResult | None = None

    def __post_init__(self) -> None:
        _check_items(self.submissions, SubmissionResult, "submissions")
        _check_items(self.candidate_submission_ids, str, "candidate_submission_ids")
        if self.terminal_reason not in TERMINAL_REASONS:
            raise ValueError(
                f"terminal_reason must be one of {', '.join(TERMINAL_REASONS)}, found {self.terminal_reason!r}"
            )
        for name, kind in (
            ("final_program", Program),
            ("validation", ValidationResult),
            ("assessment", AssessmentResult),
        ):
            if getattr(self, name) is not None:
                _check_type(getattr(self, name), kind, name)
        if (self.final_program is None) != (self.final_submission_id is None):
            raise ValueError("final_program and final_submission_id are given together or not at all")
        if self.terminal_reason == "finished" and self.final_program is None:
            raise ValueError("a finished Run has a final Program")
        programs = {submission.submission_id: submission.program for submission in self.submissions}
        if len(programs) != len(self.submissions):
            raise ValueError("a Submission stands twice in submissions")
        unknown = [name for name in self.candidate_submission_ids if name not in programs]
        if unknown or len(set(self.candidate_submission_ids)) != len(self.candidate_submission_ids):
            raise ValueError(f"candidates must be published Submissions, each once; found {unknown or 'a repeat'}")
        self._check_selection(programs)

    def _check_selection(self, programs: dict[str, Program]) -> None:
        final = self.final_submission_id
        if final is None:
            if self.assessment is not None or self.validation is not None:
                raise ValueError("a Validation or an Assessment needs a final Submission")
            return
        if final not in self.candidate_submission_ids:
            raise ValueError(f"final_submission_id {final!r} is no candidate")
        if programs[final] != self.final_program:
            raise ValueError(f"final_program is not the Program of {final}")
        measured = list(self.validation.candidates) if self.validation is not None else []
        if measured and [candidate.submission_id for candidate in measured] != list(self.candidate_submission_ids):
            raise ValueError("Validation measures exactly the candidates, in their order")
        if self.validation is not None and self.validation.selected_submission_id != final:
            raise ValueError(f"Validation selected {self.validation.selected_submission_id}, not {final}")
        if self.assessment is not None and self.assessment.submission_id != final:
            raise ValueError(f"Assessment measured {self.assessment.submission_id}, not {final}")
        for result in (*measured, self.assessment):
            if result is not None and result.program_digest != programs[result.submission_id].digest:
                raise ValueError(f"{result.submission_id} was measured with the Program of another Submission")


def _check_measured(result: ValidationCandidateResult | AssessmentResult) -> None:
    _check_submission_id(result.submission_id)
    _check_digest(result.program_digest, "program_digest")
    _check_count(result.episodes, "episodes", minimum=1)
    _check_count(result.policy_failures, "policy_failures")
    if result.policy_failures > result.episodes:
        raise ValueError(f"{result.policy_failures} policy_failures in {result.episodes} episodes")
    object.__setattr__(result, "score", _finite(result.score, "score"))
    object.__setattr__(result, "feedback_content", copy_policy_value(result.feedback_content, name="feedback_content"))


def _check_type(value: object, expected: type, name: str) -> None:
    if type(value) is not expected:
        raise TypeError(f"{name} must be {expected.__name__}, not {type_name(value)}")


def _check_items(values: object, expected: type, name: str) -> None:
    if type(values) is not tuple:
        raise TypeError(f"{name} must be a tuple, not {type_name(values)}")
    for value in values:
        _check_type(value, expected, f"an item of {name}")


def _check_text(value: object, name: str) -> None:
    if type(value) is not str or not value:
        raise ValueError(f"{name} must be a non-empty str, found {value!r}")


def _check_count(value: object, name: str, *, minimum: int = 0) -> None:
    if type(value) is not int or value < minimum:
        raise ValueError(f"{name} must be an int >= {minimum}, found {value!r}")


def _check_digest(value: object, name: str) -> None:
    if type(value) is not str or not _DIGEST.fullmatch(value):
        raise ValueError(f"{name} must be 'sha256:' and 64 hex digits, found {value!r}")


def _check_submission_id(value: object) -> None:
    if type(value) is not str or not _SUBMISSION_ID.fullmatch(value):
        raise ValueError(f"submission_id must look like 'submission-000001', found {value!r}")


def _check_direction(value: object) -> None:
    if value not in SCORE_DIRECTIONS:
        raise ValueError(f"score_direction must be 'maximize' or 'minimize', found {value!r}")


def _finite(value: object, name: str) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ValueError(f"{name} must be a finite number, found {value!r}")
    number = as_float(value)
    if not isfinite(number):
        raise ValueError(f"{name} must be a finite number, found {number!r}")
    return number
