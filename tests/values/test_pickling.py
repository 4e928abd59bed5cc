"""Values travel between processes: every one survives pickling, copying and, where it is a dataclass, replacing."""

import copy
import dataclasses
import pickle
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from policy_values import identical, policy_values

from evopolicygym.artifacts import Artifact, Feedback
from evopolicygym.authoring import (
    BenchmarkFixture,
    BenchmarkSpec,
    ConformanceIssue,
    ConformanceReport,
    EpisodeRecord,
    EpisodeSpec,
    InvalidAction,
    Step,
    Transition,
)
from evopolicygym.policy import PolicyContext, PolicyValue, TensorValue
from evopolicygym.program import Program, ProgramLimits
from evopolicygym.results import AssessmentResult, EpisodeSummary, EvaluationResult, RunResult, SubmissionResult
from evopolicygym.skills import AgentSkill

DIGEST = "sha256:" + "0a" * 32
STEP = Step([1.0], 1, False, metrics={"x": (1, b"y")})
SUMMARY = EpisodeSummary("completed", 1.0, 3)
VALUES: list[Any] = [
    TensorValue("float32", (1,), bytes(4)),
    PolicyContext({"a": [1]}, {}, {}, {}, 2**64 - 1),
    Artifact("a/b", "text/plain", b"x", "bulk"),
    Feedback(1, {"a": (1,)}, (Artifact("a", "text/plain", b""),)),
    EpisodeSpec(5, {"map": ["#", "."]}),
    STEP,
    Transition((1, 2), STEP),
    EpisodeRecord(EpisodeSpec(5), 6, [0.0], (Transition(1, STEP),), "timeout"),
    BenchmarkSpec("id", "text", {"a": 1}, {}, {}, 5, "mean", "minimize", {"b": None}),
    BenchmarkFixture(EpisodeSpec(5), (1, [2])),
    ConformanceReport("id", (ConformanceIssue("code", "text"),)),
    ProgramLimits(max_files=3),
    SUMMARY,
    EvaluationResult("id", DIGEST, DIGEST, Feedback(1), (SUMMARY,)),
    AssessmentResult("submission-000001", DIGEST, "test", 5, "mean", "maximize", 1.0, 0, {"a": [1]}),
    RunResult(None, None, (), "agent_exited"),
]


def each(values: list[Any]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("value", values, ids=[type(value).__name__ for value in values])


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Program:
    source: Path = tmp_path_factory.mktemp("program")
    (source / "policy.py").write_bytes(b"#\n")
    return Program.from_directory(source)


@each(VALUES)
@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_a_value_survives_pickling(value: Any, protocol: int) -> None:
    again = pickle.loads(pickle.dumps(value, protocol))
    assert again == value
    assert type(again) is type(value)


@each(VALUES)
def test_a_value_survives_deep_copying(value: Any) -> None:
    assert copy.deepcopy(value) == value
    assert copy.copy(value) == value


@each(VALUES)
def test_a_value_can_be_replaced_by_itself(value: Any) -> None:
    assert dataclasses.replace(value) == value


@each(VALUES)
def test_a_value_is_frozen_and_takes_no_new_attribute(value: Any) -> None:
    for name in (dataclasses.fields(value)[0].name, "something_new"):
        with pytest.raises((AttributeError, TypeError)):
            setattr(value, name, 1)


@given(policy_values)
def test_every_policy_value_survives_pickling_bit_by_bit(value: PolicyValue) -> None:
    assert identical(pickle.loads(pickle.dumps(value)), value)


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_programs_and_submissions_survive_pickling(program: Program, protocol: int) -> None:
    made = SubmissionResult("submission-000001", program, (3,), 1, 0, Feedback(1))
    again = pickle.loads(pickle.dumps(made, protocol))
    assert again == made
    assert again.program.read_bytes("policy.py") == b"#\n"


def test_a_program_survives_deep_copying(program: Program) -> None:
    assert copy.deepcopy(program) == program


def test_a_skill_survives_pickling(tmp_path: Path) -> None:
    (tmp_path / "tiny").mkdir()
    (tmp_path / "tiny" / "SKILL.md").write_text("---\nname: tiny\n---\n")
    skill = AgentSkill.from_directory(tmp_path / "tiny")
    again = pickle.loads(pickle.dumps(skill))
    assert (again, again.name, again.files) == (skill, "tiny", ("SKILL.md",))


def test_mappings_are_read_only_after_pickling_too() -> None:
    for mapping in (pickle.loads(pickle.dumps(STEP)).metrics, pickle.loads(pickle.dumps(VALUES[1])).metadata):
        with pytest.raises(TypeError):
            mapping["new"] = 1


def test_an_invalid_action_survives_pickling() -> None:
    assert type(pickle.loads(pickle.dumps(InvalidAction()))) is InvalidAction
