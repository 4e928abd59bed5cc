"""Result values refuse to contradict themselves."""

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from evopolicygym.artifacts import Feedback
from evopolicygym.program import Program
from evopolicygym.results import (
    AssessmentResult,
    EpisodeSummary,
    EvaluationResult,
    RunResult,
    SubmissionResult,
    ValidationCandidateResult,
    ValidationResult,
    format_submission_id,
    is_better,
)

DIGEST = "sha256:" + "0a" * 32
DONE = EpisodeSummary("completed", 1.0, 3)
FAILED = EpisodeSummary("policy_failed", None, 0, "timeout")


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Program:
    source = tmp_path_factory.mktemp("program")
    (source / "policy.py").write_text("def make_policy(context): ...\n")
    return Program.from_directory(source)


@pytest.fixture(scope="module")
def other_program(tmp_path_factory: pytest.TempPathFactory) -> Program:
    source: Path = tmp_path_factory.mktemp("other")
    (source / "policy.py").write_text("# another\n")
    return Program.from_directory(source)


def submission(program: Program, number: int = 1, **changes: Any) -> SubmissionResult:
    fields: dict[str, Any] = {
        "submission_id": format_submission_id(number),
        "program": program,
        "episode_indices": (0, 4),
        "episodes_used": 2,
        "episodes_remaining": 8,
        "feedback": Feedback(1.0),
        "episodes": (DONE, FAILED),
    }
    return SubmissionResult(**(fields | changes))


def candidate(program: Program, number: int = 1, **changes: Any) -> ValidationCandidateResult:
    fields: dict[str, Any] = {
        "submission_id": format_submission_id(number),
        "program_digest": program.digest,
        "score": 1.5,
        "episodes": 5,
        "policy_failures": 1,
    }
    return ValidationCandidateResult(**(fields | changes))


def validation(*candidates: ValidationCandidateResult, **changes: Any) -> ValidationResult:
    fields: dict[str, Any] = {
        "split": "validation",
        "episodes_per_candidate": 5,
        "primary_metric": "mean_return",
        "score_direction": "maximize",
        "candidates": candidates,
        "selected_submission_id": candidates[0].submission_id if candidates else "submission-000001",
    }
    return ValidationResult(**(fields | changes))


def assessment(program: Program, number: int = 1, **changes: Any) -> AssessmentResult:
    fields: dict[str, Any] = {
        "submission_id": format_submission_id(number),
        "program_digest": program.digest,
        "split": "test",
        "episodes": 5,
        "primary_metric": "mean_return",
        "score_direction": "minimize",
        "score": 2,
        "policy_failures": 0,
    }
    return AssessmentResult(**(fields | changes))


def finished(program: Program, **changes: Any) -> RunResult:
    fields: dict[str, Any] = {
        "final_program": program,
        "final_submission_id": "submission-000001",
        "submissions": (submission(program),),
        "terminal_reason": "finished",
        "candidate_submission_ids": ("submission-000001",),
    }
    return RunResult(**(fields | changes))


@pytest.mark.parametrize("reward", [2, 2.0, np.float64(2.0)])
def test_the_reward_of_a_completed_episode_is_an_exact_float(reward: float) -> None:
    assert type(EpisodeSummary("completed", reward, 0).reward) is float


@pytest.mark.parametrize(
    "fields",
    [
        ("completed", None, 1),
        ("completed", True, 1),
        ("completed", "1", 1),
        ("completed", float("nan"), 1),
        ("completed", 10**400, 1),
        ("completed", 1.0, 1, "timeout"),
        ("policy_failed", None, 1),
        ("policy_failed", 1.0, 1, "timeout"),
        ("policy_failed", None, 1, "tired"),
        ("policy_failed", None, -1, "timeout"),
        ("completed", 1.0, True),
        ("completed", 1.0, 1.0),
        ("running", 1.0, 1),
        (None, 1.0, 1),
    ],
)
def test_a_contradictory_episode_summary_is_a_value_error(fields: Any) -> None:
    with pytest.raises(ValueError, match=r"."):
        EpisodeSummary(*fields)


@pytest.mark.parametrize("failure", ["exception", "protocol_error", "timeout", "invalid_action"])
def test_every_policy_failure_is_a_summary(failure: Any) -> None:
    assert EpisodeSummary("policy_failed", None, 2, failure).failure == failure


@pytest.mark.parametrize(
    ("fields", "error"),
    [
        (("", DIGEST, DIGEST, Feedback(1), ()), ValueError),
        (("id", "sha256:0a", DIGEST, Feedback(1), ()), ValueError),
        (("id", DIGEST, DIGEST.upper(), Feedback(1), ()), ValueError),
        (("id", DIGEST, DIGEST + "\n", Feedback(1), ()), ValueError),
        (("id", DIGEST, DIGEST, 1.0, ()), TypeError),
        (("id", DIGEST, DIGEST, Feedback(1), [DONE]), TypeError),
        (("id", DIGEST, DIGEST, Feedback(1), (None,)), TypeError),
    ],
)
def test_an_inconsistent_evaluation_result_is_refused(fields: Any, error: type[Exception]) -> None:
    assert EvaluationResult("id", DIGEST, DIGEST, Feedback(1), (DONE,)).episodes == (DONE,)
    with pytest.raises(error):
        EvaluationResult(*fields)


def test_a_submission_tells_its_program_and_failures(program: Program) -> None:
    made = submission(program)
    assert made.program_digest == program.digest
    assert made.policy_failures == 1


def test_episodes_of_a_submission_may_be_left_out(program: Program) -> None:
    assert submission(program, episodes=()).episodes == ()


@pytest.mark.parametrize(
    ("changes", "error"),
    [
        ({"submission_id": "submission-1"}, ValueError),
        ({"submission_id": "submission-٠٠٠٠٠١"}, ValueError),
        ({"submission_id": 1}, ValueError),
        ({"program": None}, TypeError),
        ({"feedback": None}, TypeError),
        ({"episode_indices": [0, 4]}, TypeError),
        ({"episode_indices": (4, 0)}, ValueError),
        ({"episode_indices": (4, 4)}, ValueError),
        ({"episode_indices": (-1, 4)}, ValueError),
        ({"episode_indices": (False, 4)}, ValueError),
        ({"episode_indices": (0.0, 4)}, ValueError),
        ({"episode_indices": (), "episodes_used": 0, "episodes": ()}, ValueError),
        ({"episodes_used": 3}, ValueError),
        ({"episodes_remaining": -1}, ValueError),
        ({"episodes_remaining": None}, ValueError),
        ({"episodes": (DONE,)}, ValueError),
        ({"episodes": [DONE, FAILED]}, TypeError),
        ({"episodes": (DONE, None)}, TypeError),
    ],
)
def test_an_inconsistent_submission_is_refused(program: Program, changes: Any, error: type[Exception]) -> None:
    with pytest.raises(error):
        submission(program, **changes)


@pytest.mark.parametrize(
    "changes",
    [
        {"submission_id": "first"},
        {"program_digest": "0a" * 32},
        {"score": float("inf")},
        {"score": True},
        {"score": "1"},
        {"score": 10**400},
        {"episodes": 0},
        {"policy_failures": 6},
        {"policy_failures": -1},
    ],
)
def test_inconsistent_measurements_are_a_value_error(program: Program, changes: Any) -> None:
    with pytest.raises(ValueError, match=r"."):
        candidate(program, **changes)
    with pytest.raises(ValueError, match=r"."):
        assessment(program, **changes)


def test_measured_scores_are_exact_floats(program: Program) -> None:
    assert type(assessment(program, score=2).score) is float
    assert type(candidate(program, score=np.float64(2)).score) is float


@pytest.mark.parametrize(
    "changes",
    [
        {"split": ""},
        {"primary_metric": ""},
        {"score_direction": "up"},
        {"episodes_per_candidate": 4},
        {"episodes_per_candidate": 0},
        {"selected_submission_id": "submission-000009"},
    ],
)
def test_an_inconsistent_validation_is_a_value_error(program: Program, changes: Any) -> None:
    with pytest.raises(ValueError, match=r"."):
        validation(candidate(program), **changes)


def test_a_validation_without_or_with_repeated_candidates_is_a_value_error(program: Program) -> None:
    with pytest.raises(ValueError, match="no candidate"):
        validation()
    with pytest.raises(ValueError, match="twice"):
        validation(candidate(program), candidate(program))


@pytest.mark.parametrize("changes", [{"split": ""}, {"primary_metric": None}, {"score_direction": "maximise"}])
def test_an_inconsistent_assessment_is_a_value_error(program: Program, changes: Any) -> None:
    with pytest.raises(ValueError, match=r"."):
        assessment(program, **changes)


def test_a_whole_run_is_consistent(program: Program) -> None:
    made = finished(program, validation=validation(candidate(program)), assessment=assessment(program))
    assert made.final_program == program


def test_an_unfinished_run_has_neither_program_nor_candidates(program: Program) -> None:
    made = RunResult(None, None, (submission(program),), "agent_timed_out")
    assert (made.candidate_submission_ids, made.validation, made.assessment) == ((), None, None)


@pytest.mark.parametrize(
    "changes",
    [
        {"terminal_reason": "done"},
        {"terminal_reason": None},
        {"final_program": None},
        {"final_submission_id": None},
        {"final_program": None, "final_submission_id": None},
        {"final_submission_id": "submission-000002"},
        {"candidate_submission_ids": ()},
        {"candidate_submission_ids": ("submission-000001", "submission-000001")},
        {"candidate_submission_ids": ("submission-000001", "submission-000002")},
        {"submissions": ()},
    ],
)
def test_an_inconsistent_run_is_a_value_error(program: Program, changes: Any) -> None:
    with pytest.raises(ValueError, match=r"."):
        finished(program, **changes)


@pytest.mark.parametrize(
    "changes",
    [
        {"final_program": "policy.py"},
        {"submissions": [1]},
        {"submissions": (1,)},
        {"candidate_submission_ids": ["submission-000001"]},
        {"validation": "validation"},
        {"assessment": 1.0},
    ],
)
def test_a_run_with_a_field_of_another_type_is_a_type_error(program: Program, changes: Any) -> None:
    with pytest.raises(TypeError, match="must be"):
        finished(program, **changes)


def test_a_run_whose_parts_name_different_submissions_is_a_value_error(
    program: Program, other_program: Program
) -> None:
    both: dict[str, Any] = {
        "submissions": (submission(program), submission(other_program, 2)),
        "candidate_submission_ids": ("submission-000001", "submission-000002"),
    }
    first, second = candidate(program), candidate(other_program, 2)
    assert finished(program, **both, validation=validation(first, second))
    for changes in (
        {"final_program": other_program},
        {"validation": validation(second, first)},
        {"validation": validation(first)},
        {"validation": validation(first, second, selected_submission_id="submission-000002")},
        {"validation": validation(first, candidate(program, 2))},
        {"assessment": assessment(other_program, 2)},
        {"assessment": assessment(other_program, 1)},
        {"submissions": (submission(program), submission(program))},
    ):
        with pytest.raises(ValueError, match=r"."):
            finished(program, **(both | changes))


def test_private_results_without_a_final_submission_are_a_value_error(program: Program) -> None:
    for changes in ({"assessment": assessment(program)}, {"validation": validation(candidate(program))}):
        with pytest.raises(ValueError, match="final Submission"):
            RunResult(None, None, (submission(program),), "interrupted", ("submission-000001",), **changes)


def test_results_are_frozen(program: Program) -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        finished(program).terminal_reason = "agent_exited"  # type: ignore[misc]  # that is the point


def test_better_follows_the_score_direction_strictly() -> None:
    assert is_better(2.0, 1.0, "maximize")
    assert is_better(1.0, 2.0, "minimize")
    assert not is_better(1.0, 1.0, "maximize")
    assert not is_better(1.0, 1.0, "minimize")


def test_submission_ids_have_six_digits_or_more() -> None:
    assert format_submission_id(1) == "submission-000001"
    assert format_submission_id(1_234_567) == "submission-1234567"
