"""From a good spec to the objects of a Run, and to a document that repeats it."""

import tomllib
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
import tomli_w

from evopolicygym.errors import SpecError
from evopolicygym.program import Program
from evopolicygym.run import AssessmentConfig, RunConfig, ValidationConfig
from evopolicygym.spec import load_spec, spec_schema
from evopolicygym.spec.record_path import record_directory
from evopolicygym.spec.source import expand_text, literal_text

NOW = datetime(2026, 2, 3, 4, 5, 6, 789_000)


def write(text: str, name: str = "spec.toml") -> str:
    Path(name).write_text(text)
    return name


def test_every_table_becomes_its_object(good_spec: str, spec_home: Path) -> None:
    resolved = load_spec(write(good_spec)).resolve()
    assert type(resolved.benchmark).__name__ == "ToyBenchmark"
    assert resolved.benchmark.length == 3  # type: ignore[attr-defined]
    assert type(resolved.agent).__name__ == "ToyAgent"
    assert resolved.initial_program == Program.from_directory(spec_home / "my-policy")
    assert [skill.name for skill in resolved.skills] == ["good"]
    assert resolved.config == RunConfig(seed=42, max_submissions=3, episode_budget=30)
    assert resolved.record_to.parent == spec_home / "runs"


def test_validation_and_assessment_are_the_classes_of_the_python_interface(good_spec: str) -> None:
    text = good_spec + "\n[validation]\nepisodes_per_candidate = 5\n[assessment]\nepisodes = 10\nsplit = 'held-out'\n"
    config = load_spec(write(text)).config
    assert config.validation == ValidationConfig(episodes_per_candidate=5)
    assert config.assessment == AssessmentConfig(episodes=10, split="held-out")


def test_overrides_take_toml_values_and_bare_words(good_spec: str) -> None:
    overrides = ["run.seed=7", "agent.model=gpt-5.6", "validation.episodes_per_candidate=4", "skills=[]"]
    resolved = load_spec(write(good_spec), overrides).resolve()
    assert resolved.config.seed == 7
    assert resolved.config.validation == ValidationConfig(episodes_per_candidate=4)
    assert resolved.agent.model == "gpt-5.6"  # type: ignore[attr-defined]
    assert resolved.skills == ()


def test_an_override_reaches_into_an_array(good_spec: str) -> None:
    with pytest.raises(SpecError, match="frontmatter"):
        load_spec(write(good_spec), ["skills.0.path=skills/bad"]).resolve()


def test_the_word_none_stands_for_no_limit(good_spec: str) -> None:
    text = good_spec.replace("seed = 42", 'seed = 42\nenvironment_timeout_seconds = "none"')
    text = text.replace("max_submissions = 3", 'max_submissions = "none"')
    spec = load_spec(write(text))
    assert spec.config.environment_timeout_seconds is None
    assert spec.config.max_submissions == 30
    assert spec.document()["run"]["environment_timeout_seconds"] == "none"  # type: ignore[index]


def test_a_random_seed_is_drawn_once_and_written_down(good_spec: str) -> None:
    spec = load_spec(write(good_spec), ["run.seed=random"])
    other = load_spec("spec.toml", ["run.seed=random"])
    assert spec.config.seed != other.config.seed
    assert spec.resolve().spec_document["run"]["seed"] == spec.config.seed  # type: ignore[index]


def test_a_program_comes_from_a_function_with_arguments(good_spec: str, spec_home: Path) -> None:
    text = good_spec.replace('path = "my-policy"', 'use = "spec_toys:own_program"\nname = "my-policy"')
    resolved = load_spec(write(text)).resolve()
    assert resolved.initial_program == Program.from_directory(spec_home / "my-policy")


def test_an_object_that_is_ready_made_is_taken_as_it_is(good_spec: str) -> None:
    text = good_spec.replace("spec_toys:ToyBenchmark", "spec_toys:ready_made").replace("length = 3\n", "")
    assert load_spec(write(text)).resolve().benchmark.length == 7  # type: ignore[attr-defined]


def test_a_registered_name_is_written_down_as_its_import_path(good_spec: str) -> None:
    text = good_spec.replace('use = "spec_toys:ToyAgent"', 'use = "command"\ncommand = ["true"]')
    document = load_spec(write(text)).resolve().spec_document
    assert document["agent"]["use"] == "evopolicygym.agents:CommandAgent"  # type: ignore[index]


def test_the_directory_of_a_command_is_relative_to_the_spec(
    good_spec: str, spec_home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for written, meant in (('directory = "scripts"', spec_home / "scripts"), ("", spec_home)):
        command = f'use = "command"\ncommand = ["sh", "{{directory}}/agent.sh"]\n{written}'
        monkeypatch.chdir(spec_home)
        spec = Path(write(good_spec.replace('use = "spec_toys:ToyAgent"', command))).absolute()
        monkeypatch.chdir(tmp_path)
        resolved = load_spec(spec).resolve()
        assert resolved.agent.directory == meant  # type: ignore[attr-defined]  # a CommandAgent has it
        assert resolved.spec_document["agent"]["directory"] == str(meant)  # type: ignore[index]


def test_the_resolved_document_points_at_the_records_own_copies(good_spec: str) -> None:
    resolved = load_spec(write(good_spec)).resolve()
    assert resolved.spec_document["program"] == {
        "path": "initial/program",
        "digest": resolved.initial_program.digest,
    }
    assert resolved.spec_document["skills"] == [{"path": "initial/skills/good", "digest": resolved.skills[0].digest}]


def test_the_resolved_document_has_every_default_and_is_toml(good_spec: str, spec_home: Path) -> None:
    resolved = load_spec(write(good_spec)).resolve()
    document: dict[str, Any] = tomllib.loads(tomli_w.dumps(resolved.spec_document))
    assert document["run"]["record_to"] == f"{spec_home}/runs/toy-{{time}}"
    assert document["run"]["python_path"] == [str(spec_home)]
    assert document["run"]["agent_timeout_seconds"] == 3600.0
    assert document["run"]["episode_pool_size"] == 30
    assert document["benchmark"] == {"use": "spec_toys:ToyBenchmark", "length": 3, "label": "toy", "ratio": 0.5}
    assert document["agent"]["model"] == "small"


def test_a_resolved_document_repeats_the_run_from_anywhere(
    good_spec: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = load_spec(write(good_spec)).resolve()
    record = tmp_path / "record"
    (record / "initial" / "skills").mkdir(parents=True)
    first.initial_program.write_to(record / "initial" / "program")
    first.skills[0].write_to(record / "initial" / "skills" / "good")
    (record / "spec.toml").write_text(tomli_w.dumps(first.spec_document))
    monkeypatch.chdir(tmp_path)
    again = load_spec(record / "spec.toml").resolve()
    assert again.config == first.config
    assert again.initial_program == first.initial_program
    assert again.skills == first.skills
    assert again.record_to.parent == first.record_to.parent
    assert again.spec_document == first.spec_document


def test_variables_stay_unexpanded_in_the_resolved_document(good_spec: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EPG_MODEL", "from-the-environment")
    monkeypatch.setenv("EPG_RUNS", "/somewhere")
    text = good_spec.replace('ToyAgent"', 'ToyAgent"\nmodel = "${EPG_MODEL}"').replace('"runs/', '"${EPG_RUNS}/')
    resolved = load_spec(write(text)).resolve()
    assert resolved.agent.model == "from-the-environment"  # type: ignore[attr-defined]
    assert resolved.record_to.parent == Path("/somewhere")
    assert "from-the-environment" not in str(resolved.spec_document)
    assert resolved.spec_document["agent"]["model"] == "${EPG_MODEL}"  # type: ignore[index]
    assert resolved.spec_document["run"]["record_to"] == "${EPG_RUNS}/toy-{time}"  # type: ignore[index]


def test_variables_have_defaults_and_can_be_written_literally() -> None:
    assert expand_text("a ${X} b ${Y:-z} ${E:-e}", {"X": "1", "E": ""}) == "a 1 b z e"
    assert expand_text("$${X} $5", {}) == "${X} $5"
    assert expand_text(literal_text("${X}"), {}) == "${X}"


def test_placeholders_name_the_record(tmp_path: Path) -> None:
    path = record_directory("r/{name}-{seed}-{time}-{{x}}", tmp_path, name="a/b", seed=7, now=NOW)
    assert path == tmp_path / "r" / "a-b-7-20260203-040506-789-{x}"


def test_a_taken_placeholder_name_gets_the_next_free_suffix(tmp_path: Path) -> None:
    for taken in ("run-7", "run-7-2"):
        (tmp_path / taken).mkdir()
    assert record_directory("run-{seed}", tmp_path, name="n", seed=7, now=NOW) == tmp_path / "run-7-3"


def test_the_schema_knows_every_limit_of_the_python_interface() -> None:
    schema: Any = spec_schema()
    keys = schema["$defs"]["RunTable"]["properties"]
    assert set(RunConfig.__pydantic_fields__) - {"validation", "assessment"} <= set(keys)  # type: ignore[attr-defined]
    assert all(key.get("description") for key in keys.values())
    assert keys["episode_budget"] == {
        "default": 1000,
        "description": "Episode indices charged over all Submissions.",
        "minimum": 1,
        "type": "integer",
    }
    assert "null" not in str(schema)
    assert schema["additionalProperties"] is False


def test_an_evaluation_needs_no_agent_to_be_there(good_spec: str) -> None:
    text = good_spec.replace("spec_toys:ToyAgent", "nowhere:Agent")
    resolved = load_spec(write(text)).resolve_evaluation("my-policy")
    assert resolved.program.file_count == 1


@pytest.mark.parametrize(
    ("source", "body"),
    [("r:submission-000002", "# 2\n"), ("r:initial", "# 0\n"), ("r", "# 1\n"), ("./r/", "# 1\n")],
)
def test_a_program_comes_from_an_earlier_record(
    good_spec: str, spec_home: Path, tmp_path: Path, source: str, body: str
) -> None:
    for number, place in enumerate(("initial", "submissions/submission-000001", "submissions/submission-000002")):
        program = tmp_path / "r" / place / "program"
        program.mkdir(parents=True)
        (program / "policy.py").write_text(f"# {number}\n")
    (tmp_path / "r" / "run.json").write_text('{"status": "finished", "selected_submission_id": "submission-000001"}')
    text = good_spec.replace('path = "my-policy"', f'from = "{source}"').partition("[[skills]]")[0]
    spec = tmp_path / "spec.toml"
    spec.write_text(text.replace("seed = 42", f'seed = 42\npython_path = ["{spec_home}"]'))
    assert load_spec(spec).resolve().initial_program.read_bytes("policy.py") == body.encode()


def test_a_record_has_no_submission_of_that_name(good_spec: str, spec_home: Path) -> None:
    record = spec_home / "earlier"
    (record / "submissions" / "submission-000003" / "program").mkdir(parents=True, exist_ok=True)
    (record / "run.json").write_text("{}")
    text = good_spec.replace('path = "my-policy"', 'from = "earlier:submission-000030"')
    with pytest.raises(SpecError, match='no Submission "submission-000030"; it has submission-000003 to') as caught:
        load_spec(write(text)).resolve()
    assert 'Did you mean "submission-000003"?' in str(caught.value)
    with pytest.raises(SpecError, match="selected no Submission; name one: earlier:submission-000001"):
        load_spec(write(text.replace(":submission-000030", ""))).resolve()
