"""Names that other packages import: nothing may vanish, and what is added is added on purpose."""

import importlib

import pytest

import evopolicygym

SURFACE = {
    "evopolicygym": [
        "Benchmark",
        "EvaluationConfig",
        "EvaluationResult",
        "Program",
        "RunResult",
        "__version__",
        "evaluate",
    ],
    "evopolicygym.artifacts": [
        "ARTIFACT_MAX_BYTES",
        "Artifact",
        "ArtifactRetention",
        "FEEDBACK_MAX_ARTIFACTS",
        "Feedback",
    ],
    "evopolicygym.authoring": [
        "ARTIFACT_MAX_BYTES",
        "Artifact",
        "ArtifactRetention",
        "Benchmark",
        "BenchmarkFixture",
        "BenchmarkSpec",
        "ConformanceIssue",
        "ConformanceReport",
        "Environment",
        "EpisodeRecord",
        "EpisodeSpec",
        "Feedback",
        "InvalidAction",
        "PolicyFailure",
        "ScoreDirection",
        "Step",
        "Transition",
        "TransitionSequence",
        "check_benchmark",
    ],
    "evopolicygym.benchmark": ["Benchmark", "BenchmarkSpec"],
    "evopolicygym.errors": [
        "AgentRunError",
        "AgentSkillError",
        "BenchmarkError",
        "EvaluationError",
        "EvoPolicyGymError",
        "ExecutionUnavailableError",
        "ProgramChangedError",
        "ProgramError",
        "ProgramLimitError",
        "ProgramSourceError",
        "RecordError",
        "SpecError",
    ],
    "evopolicygym.policy": [
        "POLICY_ABI_VERSION",
        "Policy",
        "PolicyContext",
        "PolicyValue",
        "TensorValue",
        "copy_policy_value",
    ],
    "evopolicygym.program": ["Program", "ProgramLimits"],
    "evopolicygym.results": [
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
    ],
    "evopolicygym.skills": ["AgentSkill", "check_skills"],
}


@pytest.mark.parametrize("module", SURFACE)
def test_a_module_exports_exactly_its_public_names(module: str) -> None:
    assert sorted(importlib.import_module(module).__all__) == SURFACE[module]


@pytest.mark.parametrize(("module", "name"), [(module, name) for module in SURFACE for name in SURFACE[module]])
def test_every_exported_name_is_there(module: str, name: str) -> None:
    assert getattr(importlib.import_module(module), name) is not None


@pytest.mark.parametrize("module", SURFACE)
def test_every_public_class_and_function_has_a_docstring(module: str) -> None:
    loaded = importlib.import_module(module)
    bare = [
        name
        for name in SURFACE[module]
        if callable(getattr(loaded, name))
        and getattr(loaded, name).__module__.startswith("evopolicygym")
        and not (getattr(loaded, name).__doc__ or "").strip()
    ]
    assert bare == []


def test_the_version_is_of_the_0_3_line() -> None:
    assert evopolicygym.__version__.split(".")[:2] == ["0", "3"]


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="'evopolicygym' has no attribute 'nothing'"):
        evopolicygym.nothing  # noqa: B018  # the access is the test


def test_run_is_not_exported_at_the_top() -> None:
    assert "run" not in evopolicygym.__all__


def test_names_that_live_in_two_places_are_one_object() -> None:
    from evopolicygym import artifacts, authoring, benchmark, evaluation, program, results

    assert evopolicygym.Benchmark is authoring.Benchmark is benchmark.Benchmark
    assert authoring.BenchmarkSpec is benchmark.BenchmarkSpec
    assert authoring.Feedback is artifacts.Feedback is results.Feedback
    assert evopolicygym.Program is program.Program
    assert evopolicygym.evaluate is evaluation.evaluate
    assert evopolicygym.EvaluationConfig is evaluation.EvaluationConfig
    assert evopolicygym.RunResult is results.RunResult


@pytest.mark.parametrize("name", SURFACE["evopolicygym.errors"])
def test_every_error_has_the_root_error_above_it(name: str) -> None:
    errors = importlib.import_module("evopolicygym.errors")
    assert issubclass(getattr(errors, name), errors.EvoPolicyGymError)


def test_errors_of_directories_are_value_errors_and_the_others_are_not() -> None:
    errors = importlib.import_module("evopolicygym.errors")
    value_errors = {name for name in errors.__all__ if issubclass(getattr(errors, name), ValueError)}
    program_errors = {"ProgramError", "ProgramSourceError", "ProgramLimitError", "ProgramChangedError"}
    assert value_errors == program_errors | {"AgentSkillError"}
    assert {name for name in errors.__all__ if issubclass(getattr(errors, name), errors.ProgramError)} == program_errors
