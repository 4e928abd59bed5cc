"""A whole Run, from the first file to the last."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from run_scenarios import WHOLE_JOB, event_names, initial_program, journal, manifest, run_scripted
from target_benchmark import SECRET_SCENARIO, TargetBenchmark

from evopolicygym.agents import CommandAgent
from evopolicygym.errors import AgentRunError, BenchmarkError, RecordError
from evopolicygym.execution import ProcessExecution
from evopolicygym.identities import assessment_seed, validation_seed
from evopolicygym.run import AssessmentConfig, ValidationConfig, resume, run
from evopolicygym.skills import AgentSkill


@pytest.fixture
def skill(tmp_path: Path) -> AgentSkill:
    folder = tmp_path / "read-me-first"
    folder.mkdir()
    (folder / "SKILL.md").write_text("---\nname: read-me-first\n---\nBe quick.\n")
    return AgentSkill.from_directory(folder)


def test_an_agent_that_improves_the_policy_finishes_with_its_better_submission(tmp_path, skill):
    result, record = run_scripted(
        tmp_path,
        WHOLE_JOB,
        validation=ValidationConfig(episodes_per_candidate=3),
        assessment=AssessmentConfig(episodes=4),
        skills=(skill,),
    )
    assert result.terminal_reason == "finished"
    assert result.final_submission_id == "submission-000002"
    assert result.candidate_submission_ids == ("submission-000002",)
    first, second = result.submissions
    assert second.episode_indices == (0, 1, 4, 5, 6, 7)
    assert (second.episodes_used, second.episodes_remaining) == (6, 22)
    assert first.feedback.score < second.feedback.score == 5.0
    assert result.validation is not None
    assert result.assessment is not None
    assert result.assessment.score == 5.0
    assert result.assessment.episodes == 4
    assert event_names(record)[:3] == ["run_started", "notice", "agent_started"]
    assert event_names(record)[-1] == "run_committed"
    final = manifest(record)
    assert final["status"] == "finished"
    assert final["terminal_reason"] == "finished"
    assert final["selected_submission_id"] == "submission-000002"
    assert final["skills"] == [{"name": "read-me-first", "digest": skill.digest}]
    assert (record / "workspace/skills/read-me-first/SKILL.md").read_text().endswith("Be quick.\n")
    assert json.loads((record / "validation/report.json").read_text())["selected_submission_id"] == "submission-000002"
    assert json.loads((record / "assessment/report.json").read_text())["score"] == 5.0


def test_the_record_holds_what_was_evaluated_and_what_the_agent_was_told(tmp_path):
    result, record = run_scripted(tmp_path, WHOLE_JOB)
    for submission in result.submissions:
        host = record / "submissions" / submission.submission_id
        agent = record / "workspace/feedback/submissions" / submission.submission_id
        assert (host / "program/policy.py").read_bytes() == submission.program.read_bytes("policy.py")
        assert (host / "feedback.json").read_bytes() == (agent / "feedback.json").read_bytes()
        told = json.loads((agent / "feedback.json").read_text())
        assert told["score"] == submission.feedback.score
        assert told["episode_indices"] == list(submission.episode_indices)
        returns = json.loads((agent / "artifacts/returns.json").read_text())
        assert sum(returns) / len(returns) == submission.feedback.score
    latest = json.loads((record / "workspace/feedback/latest.json").read_text())
    assert latest["submission_id"] == "submission-000002"


def test_the_same_run_twice_gives_the_same_scores(tmp_path):
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    results = [
        run_scripted(tmp_path / name, WHOLE_JOB, assessment=AssessmentConfig(episodes=3), seed=7)[0] for name in "ab"
    ]
    first, second = results
    assert [s.feedback for s in first.submissions] == [s.feedback for s in second.submissions]
    assert [s.episodes for s in first.submissions] == [s.episodes for s in second.submissions]
    assert first.assessment == second.assessment


def test_nothing_private_is_found_in_the_workspace(tmp_path):
    _, record = run_scripted(
        tmp_path,
        WHOLE_JOB,
        seed=2**63 + 12345,
        validation=ValidationConfig(episodes_per_candidate=3),
        assessment=AssessmentConfig(episodes=3),
    )
    benchmark = TargetBenchmark()
    seeds = [validation_seed(2**63 + 12345), assessment_seed(2**63 + 12345), 2**63 + 12345]
    for split in ("train", "validation", "test"):
        for seed in list(seeds):
            seeds += [episode.environment_seed for episode in benchmark.episodes(split, seed=seed, count=3)]
    private = [SECRET_SCENARIO, "validation", "assessment", *map(str, seeds), *(f"{seed:x}" for seed in seeds)]
    searched = 0
    for path in (record / "workspace").rglob("*"):
        if path.is_file():
            searched += 1
            text = path.read_bytes()
            assert not [word for word in private if word.encode() in text], path
        assert not [word for word in private if word in path.name]
    assert searched >= 5


def test_every_json_file_is_strict_and_no_value_of_the_environment_is_kept(tmp_path, monkeypatch):
    monkeypatch.setenv("FAKE_PROVIDER_KEY", "sk-this-is-a-fake-key-0123456789")
    monkeypatch.setenv("ANOTHER_SECRET", "another-secret-value-42")
    # The last line is so long that what is told of it ends in the middle of the key.
    script = (
        WHOLE_JOB
        + 'print(os.environ); print(os.environ["FAKE_PROVIDER_KEY"], file=sys.stderr)\n'
        + 'print("x" * 180 + os.environ["FAKE_PROVIDER_KEY"])\n'
    )
    _, record = run_scripted(tmp_path, script, agent_options={"inherited_environment": ["FAKE_PROVIDER_KEY"]})
    refuse = lambda constant: pytest.fail(f"{constant} is no JSON")  # noqa: E731
    for path in record.rglob("*.json"):
        json.loads(path.read_text(), parse_constant=refuse)
    for path in record.rglob("*.jsonl"):
        for line in path.read_text().splitlines():
            json.loads(line, parse_constant=refuse)
    for path in record.rglob("*"):
        if path.is_file():
            content = path.read_bytes()
            assert b"sk-this-is" not in content, path
            assert b"another-secret-value" not in content, path
    assert "[redacted:FAKE_PROVIDER_KEY]" in (record / "agent/stdout.log").read_text()
    assert "FAKE_PROVIDER_KEY" in manifest(record)["agent"]["environment_names"]


def test_an_agent_that_cannot_be_found_leaves_no_record(tmp_path):
    with pytest.raises(AgentRunError, match="no-such-agent"):
        run(
            initial_program(tmp_path),
            TargetBenchmark(),
            agent=CommandAgent(["no-such-agent"]),
            execution=ProcessExecution.unsafe(workers=1),
            record_to=tmp_path / "record",
        )
    assert not (tmp_path / "record").exists()


def test_a_secret_that_an_encoder_has_escaped_is_not_kept_either(tmp_path, monkeypatch):
    monkeypatch.setenv("FAKE_PROVIDER_KEY", "sk-this/is-a-fake-key-0123456789")
    script = r"""
key = os.environ["FAKE_PROVIDER_KEY"]
print('{"kind": "message", "text": "it is ' + key.replace("/", r"\/") + '"}')
print('{"kind": "tool_call", "tool": "x", "command": "echo ' + key.replace("-", r"\u002d") + '"}')
"""
    options = {"inherited_environment": ["FAKE_PROVIDER_KEY"], "parser": "events"}
    _, record = run_scripted(tmp_path, script, agent_options=options)
    transcript = [json.loads(line) for line in (record / "agent/transcript.jsonl").read_text().splitlines()]
    assert transcript[0]["text"] == "it is [redacted:FAKE_PROVIDER_KEY]"
    assert transcript[1]["command"] == "echo [redacted:FAKE_PROVIDER_KEY]"
    assert journal(record)[-3]["last_action"] == "$ echo [redacted:FAKE_PROVIDER_KEY]"


def test_output_that_cannot_be_read_in_time_is_told_and_left(tmp_path, monkeypatch):
    monkeypatch.setattr("evopolicygym.run.transcript.STOP_SECONDS", 0.01)
    script = """print('{"kind": "message", "text": "a"}\\n' * 1_000_000)"""
    result, record = run_scripted(tmp_path, script, agent_options={"parser": "events"})
    assert result.terminal_reason == "agent_exited"
    assert event_names(record)[-3:] == ["notice", "agent_ended", "run_committed"]
    assert "could not be read to its end" in journal(record)[-3]["message"]


def test_a_record_is_never_written_over(tmp_path):
    (tmp_path / "record").mkdir()
    with pytest.raises(RecordError, match="exists"):
        run_scripted(tmp_path, WHOLE_JOB)
    assert list((tmp_path / "record").iterdir()) == []


class SpeclessBenchmark(TargetBenchmark):
    @property
    def spec(self):
        raise RuntimeError("no spec today")


def test_wrong_arguments_are_named_before_anything_is_written(tmp_path):
    good = {
        "agent": CommandAgent([sys.executable, "-c", "0"]),
        "execution": ProcessExecution.unsafe(workers=1),
        "record_to": tmp_path / "record",
    }
    with pytest.raises(TypeError, match="Program"):
        run("program", TargetBenchmark(), **good)
    with pytest.raises(TypeError, match="no Benchmark"):
        run(initial_program(tmp_path), object(), **good)
    with pytest.raises(TypeError, match="RunConfig"):
        run(initial_program(tmp_path), TargetBenchmark(), config={"seed": 1}, **good)
    with pytest.raises(TypeError, match="CodingAgent"):
        run(initial_program(tmp_path), TargetBenchmark(), **(good | {"agent": object()}))
    with pytest.raises(TypeError, match=r"execution must be ProcessExecution\.unsafe\(\).*the class ProcessExecution"):
        run(initial_program(tmp_path), TargetBenchmark(), **(good | {"execution": ProcessExecution}))
    with pytest.raises(BenchmarkError, match=r"SpeclessBenchmark\.spec raised RuntimeError: no spec today"):
        run(initial_program(tmp_path), SpeclessBenchmark(), **good)
    assert not (tmp_path / "record").exists()


def test_a_run_works_in_a_deep_path_with_spaces_and_other_alphabets(tmp_path):
    folder = tmp_path / ("a b/ü/🦊/" + "/".join(["deep" * 10] * 5))
    folder.mkdir(parents=True)
    assert len(str(folder)) > 200
    result, record = run_scripted(folder, WHOLE_JOB, assessment=AssessmentConfig(episodes=2))
    assert result.terminal_reason == "finished"
    assert manifest(record)["status"] == "finished"


def test_two_runs_at_once_do_not_disturb_each_other(tmp_path):
    program = (
        "import sys; from pathlib import Path; sys.path.insert(0, sys.argv[1]);"
        "from run_scenarios import WHOLE_JOB, run_scripted;"
        "result, _ = run_scripted(Path(sys.argv[2]), WHOLE_JOB); assert result.terminal_reason == 'finished'"
    )
    folders = [tmp_path / "one", tmp_path / "two"]
    tests = str(Path(__file__).parent.parent)
    running = []
    for folder in folders:
        folder.mkdir()
        running.append(subprocess.Popen([sys.executable, "-c", program, tests, str(folder)]))
    assert [process.wait(60) for process in running] == [0, 0]
    assert [manifest(folder / "record")["terminal_reason"] for folder in folders] == ["finished", "finished"]


def test_bulk_artifacts_beyond_the_retention_limit_are_evicted_and_the_newest_kept(tmp_path):
    result, record = run_scripted(
        tmp_path,
        WHOLE_JOB,
        benchmark=TargetBenchmark(bulk_bytes=1000),
        bulk_feedback_retention_bytes=1500,
    )
    assert result.terminal_reason == "finished"
    for home in (record / "submissions", record / "workspace/feedback/submissions"):
        assert not (home / "submission-000001/artifacts/bulk.bin").exists()
        assert (home / "submission-000001/availability.json").exists()
        assert (home / "submission-000001/artifacts/returns.json").exists()
        assert (home / "submission-000002/artifacts/bulk.bin").exists()
    held = [[artifact.name for artifact in submission.feedback.artifacts] for submission in result.submissions]
    assert held == [["returns.json"], ["returns.json", "bulk.bin"]]
    assert resume(record) == result


def test_an_observer_sees_every_event_and_a_broken_one_is_dropped(tmp_path):
    class Watcher:
        def __init__(self):
            self.names = []

        def on_event(self, event):
            self.names.append(event.name)

    class Broken:
        def on_event(self, event):
            raise RuntimeError("broken observer")

    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    watcher = Watcher()
    _, record = run_scripted(tmp_path / "a", WHOLE_JOB, observer=watcher)
    assert watcher.names == event_names(record)
    with pytest.warns(RuntimeWarning, match="broken observer"):
        result, _ = run_scripted(tmp_path / "b", WHOLE_JOB, observer=Broken())
    assert result.terminal_reason == "finished"


def test_a_run_in_another_thread_sets_no_signal_handlers(tmp_path):
    import threading

    outcome = []
    thread = threading.Thread(target=lambda: outcome.append(run_scripted(tmp_path, WHOLE_JOB)[0]))
    thread.start()
    thread.join(60)
    assert outcome[0].terminal_reason == "finished"


def test_a_small_seed_is_told_to_make_hidden_episodes_derivable(tmp_path):
    (tmp_path / "weak").mkdir()
    (tmp_path / "strong").mkdir()
    _, weak = run_scripted(tmp_path / "weak", WHOLE_JOB, seed=42)
    _, strong = run_scripted(tmp_path / "strong", WHOLE_JOB, seed=2**63)
    assert manifest(weak)["seed_strength"] == journal(weak)[0]["seed_strength"] == "derivable"
    assert manifest(strong)["seed_strength"] == "strong"


def test_a_record_can_be_removed_by_its_owner(tmp_path):
    _, record = run_scripted(tmp_path, WHOLE_JOB)
    assert (record.stat().st_mode & 0o777) == 0o700
    subprocess.run(["chmod", "-R", "u+w", str(record)], check=True)
    subprocess.run(["rm", "-rf", str(record)], check=True)
    assert not os.path.lexists(record)
