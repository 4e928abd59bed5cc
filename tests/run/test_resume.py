"""A resumed Run goes on where it stopped, keeps what is complete, and refuses what would be another Run."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import tomli_w
from run_scenarios import (
    PRELUDE,
    event_names,
    initial_program,
    journal,
    manifest,
    processes_mentioning,
    run_scripted,
    scripted_agent,
    wait_for,
)
from target_benchmark import TargetBenchmark

from evopolicygym.agents import AgentDiagnosis, CommandAgent
from evopolicygym.errors import RecordError
from evopolicygym.execution import ProcessExecution
from evopolicygym.results import RunResult
from evopolicygym.run import AssessmentConfig, RunConfig, ValidationConfig, resume, run

TESTS = Path(__file__).parent.parent

# The first start does something and dies; a later one improves and hands off.
FIRST_DIES = """
first = not os.path.exists("analysis/started")
pathlib.Path("analysis/started").touch()
if first:
    submit("0:2")
    {end}
improve()
submit("0:2,4:6")
session("finish", session("status")[1]["result"]["published"][-1]["submission_id"])
"""
DIES = FIRST_DIES.format(end="sys.exit(3)")


def resumed(record: Path, folder: Path, script: str = DIES, **options: object) -> RunResult:
    parts = {
        "benchmark": TargetBenchmark(),
        "agent": scripted_agent(folder, script, []),
        "execution": ProcessExecution.unsafe(workers=0),
    }
    return resume(record, **(parts | options))  # type: ignore[arg-type]  # as given


def test_a_failed_agent_is_followed_by_a_fresh_one_in_the_same_workspace(tmp_path):
    result, record = run_scripted(tmp_path, DIES, assessment=AssessmentConfig(episodes=2))
    assert result.terminal_reason == "agent_failed"
    result = resumed(record, tmp_path)
    assert result.terminal_reason == "finished"
    assert [s.submission_id for s in result.submissions] == ["submission-000001", "submission-000002"]
    assert result.submissions[1].episodes_remaining == 30 - 2 - 4
    assert result.assessment is not None
    assert (record / "agent/stdout.log").exists()
    assert (record / "agent/attempt-2/stdout.log").exists()
    attempts = manifest(record)["agent_attempts"]
    assert [attempt["reason"] for attempt in attempts] == ["crashed", "handed_off"]
    assert manifest(record)["resumed"][0]["phase"] == "agent"
    assert processes_mentioning(str(record)) == []


def test_the_next_agent_is_told_what_was_done_and_what_is_left(tmp_path):
    _, record = run_scripted(tmp_path, DIES)
    resumed(record, tmp_path)
    first = (record / "agent/instructions.md").read_text()
    text = (record / "agent/attempt-2/instructions.md").read_text()
    assert text.endswith(first)
    told = text.removesuffix(first)
    assert "28 of 30" in told
    assert "19 of 20" in told
    assert "submission-000001" in told
    assert "start number 2" in told
    assert "$" not in told


def test_time_of_the_agent_sums_over_its_starts_and_can_be_added(tmp_path):
    script = FIRST_DIES.format(end="time.sleep(600)")
    result, record = run_scripted(tmp_path, script, agent_timeout_seconds=2.0)
    assert result.terminal_reason == "agent_timed_out"
    before = (record / "events.jsonl").read_bytes()
    with pytest.raises(RecordError, match="--add-time"):
        resumed(record, tmp_path, script)
    assert (record / "events.jsonl").read_bytes() == before
    result = resumed(record, tmp_path, script, add_time_seconds=60.0)
    assert result.terminal_reason == "finished"
    assert manifest(record)["config"]["agent_timeout_seconds"] == 62.0
    [resumption] = [event for event in journal(record) if event["event"] == "run_resumed"]
    assert resumption["overrides"] == ["agent_timeout_seconds=62.0"]


def test_a_workspace_that_its_agent_removed_is_named(tmp_path):
    _, record = run_scripted(tmp_path, "import shutil\nshutil.rmtree(os.getcwd(), ignore_errors=True)\nsys.exit(3)")
    shutil.rmtree(record / "workspace", ignore_errors=True)
    result = resumed(record, tmp_path)
    assert result.terminal_reason == "agent_failed"
    told = str(manifest(record)["agent_end"]["message"])
    assert told.endswith(f"could not be started: {record}/workspace: No such file or directory")


def test_select_hands_off_the_best_without_an_agent(tmp_path):
    _, record = run_scripted(tmp_path, "submit('0:2')\nimprove()\nsubmit('0:2')\nsys.exit(3)")
    result = resume(record, benchmark=TargetBenchmark(), execution=ProcessExecution.unsafe(workers=0), select=True)
    assert result.terminal_reason == "finished"
    assert result.final_submission_id == "submission-000002"
    assert manifest(record)["handed_off_by"] == "host"
    assert event_names(record).count("agent_started") == 1


def test_select_without_submissions_is_refused(tmp_path):
    _, record = run_scripted(tmp_path, "sys.exit(3)")
    with pytest.raises(RecordError, match="no Submission was published"):
        resumed(record, tmp_path, select=True)


def test_an_agent_that_crashes_is_started_again_as_often_as_asked_for(tmp_path):
    script = """
number = len(os.listdir("analysis"))
pathlib.Path(f"analysis/{number}").touch()
submit(f"{number}:{number + 1}")
if number < 3:
    sys.exit(3)
session("finish", "submission-000004")
"""
    _, record = run_scripted(tmp_path, script)
    result = resumed(record, tmp_path, script, agent_retries=1)
    assert result.terminal_reason == "agent_failed"
    assert event_names(record).count("agent_started") == 3
    result = resumed(record, tmp_path, script, agent_retries=1)
    assert result.terminal_reason == "finished"
    assert [attempt["attempt"] for attempt in manifest(record)["agent_attempts"]] == [1, 2, 3, 4]
    assert "start number 3" in (record / "agent/attempt-3/instructions.md").read_text()


def test_a_finished_run_is_left_as_it_is(tmp_path):
    result, record = run_scripted(tmp_path, "submit('0:2')\nsession('finish', 'submission-000001')")
    before = {path: path.stat().st_mtime_ns for path in record.rglob("*")}
    again = resume(record)
    assert {path: path.stat().st_mtime_ns for path in record.rglob("*")} == before
    assert again == result


def test_a_fault_of_the_benchmark_reopens_the_session_and_gives_nothing_back(tmp_path):
    script = "submit('0:2')\nimprove()\nsubmit('4:6')\nsession('finish', 'submission-000002')"
    result, record = run_scripted(tmp_path, script, benchmark=TargetBenchmark(fail_at_step=2))
    assert result.terminal_reason == "evaluation_failed"
    result = resumed(record, tmp_path, "improve()\n" + script)
    assert result.terminal_reason == "finished"
    assert [s.submission_id for s in result.submissions] == ["submission-000002", "submission-000003"]
    assert result.submissions[0].episodes_remaining == 30 - 2 - 2
    told = (record / "agent/attempt-2/instructions.md").read_text()
    assert "never published" in told


@pytest.mark.parametrize(("split", "repeated"), [("validation", "validation"), ("test", "assessment")])
def test_after_a_fault_in_a_private_phase_only_that_is_repeated(tmp_path, split, repeated):
    script = "improve()\nsubmit('0:2')\nsubmit('2:4')\nsession('finish', 'submission-000001', 'submission-000002')"
    result, record = run_scripted(
        tmp_path,
        script,
        benchmark=TargetBenchmark(fail_split=split),
        validation=ValidationConfig(episodes_per_candidate=2),
        assessment=AssessmentConfig(episodes=2),
    )
    assert result.terminal_reason == f"{repeated}_failed"
    before = event_names(record)
    result = resume(record, benchmark=TargetBenchmark(), execution=ProcessExecution.unsafe(workers=0))
    assert result.terminal_reason == "finished"
    assert result.validation is not None
    assert result.assessment is not None
    assert result.assessment.feedback_content == {"mean": 5.0, "returns": [5.0, 5.0]}
    assert all(candidate.feedback_content is not None for candidate in result.validation.candidates)
    after = event_names(record)[len(before) :]
    assert after[0] == "run_resumed"
    assert ("validation_episode_completed" in after) == (repeated == "validation")
    assert "agent_started" not in after


def test_a_changed_limit_is_refused_unless_it_is_said_and_then_it_is_recorded(tmp_path):
    _, record = run_scripted(tmp_path, DIES, episode_budget=4)
    config = manifest(record)["config"]
    (record / "run.json").write_text(json.dumps(manifest(record) | {"config": config | {"episode_budget": 6}}))
    with pytest.raises(RecordError, match=r"run\.json: episode_budget is 6 there, and 4 in events\.jsonl:1"):
        resumed(record, tmp_path)
    (record / "run.json").write_text(json.dumps(manifest(record) | {"config": config}))
    result = resumed(record, tmp_path, overrides={"episode_budget": 20})
    assert result.terminal_reason == "finished"
    assert result.submissions[-1].episodes_remaining == 20 - 2 - 4
    assert manifest(record)["config"]["episode_budget"] == 20
    assert manifest(record)["resumed"][0]["overrides"] == ["episode_budget=20"]


@pytest.mark.parametrize(
    ("overrides", "reason"),
    [
        ({"seed": 3}, "fixes the Episodes"),
        ({"episode_pool_size": 3}, "fixes the Episodes"),
        ({"episode_budgets": 3}, "there is no limit 'episode_budgets'"),
        ({"episode_budget": 0}, "greater than or equal to 1"),
        ({"validation.episodes_per_candidate": 3}, "has no validation"),
    ],
)
def test_limits_that_cannot_change_are_named(tmp_path, overrides, reason):
    _, record = run_scripted(tmp_path, "sys.exit(3)")
    with pytest.raises(RecordError, match=reason):
        resumed(record, tmp_path, overrides=overrides)


def test_another_pool_is_refused(tmp_path):
    class Shifted(TargetBenchmark):
        def episodes(self, split, *, seed, count):
            return super().episodes(split, seed=seed + 1, count=count)

    _, record = run_scripted(tmp_path, "sys.exit(3)")
    with pytest.raises(RecordError, match="plans other training Episodes"):
        resumed(record, tmp_path, benchmark=Shifted())
    with pytest.raises(RecordError, match="another Benchmark: its environment digest"):
        resumed(record, tmp_path, benchmark=TargetBenchmark(length=6))


def test_a_run_without_a_spec_needs_its_parts(tmp_path):
    _, record = run_scripted(tmp_path, "sys.exit(3)")
    with pytest.raises(RecordError, match=r"benchmark=… and execution=…"):
        resume(record)
    with pytest.raises(RecordError, match="pass agent="):
        resume(record, benchmark=TargetBenchmark(), execution=ProcessExecution.unsafe(workers=0))


def test_a_run_that_goes_on_cannot_be_resumed(tmp_path):
    host = tmp_path / "host.py"
    host.write_text(
        "import sys\nfrom pathlib import Path\nfrom run_scenarios import run_scripted\n"
        "run_scripted(Path(sys.argv[1]), 'time.sleep(600)')\n"
    )
    process = subprocess.Popen(
        [sys.executable, str(host), str(tmp_path)],
        env=os.environ | {"PYTHONPATH": os.pathsep.join([str(TESTS.parent), str(TESTS)])},
        stderr=subprocess.DEVNULL,
    )
    record = tmp_path / "record"
    try:
        assert wait_for(
            lambda: (record / "events.jsonl").exists() and "agent_started" in (record / "events.jsonl").read_text()
        )
        with pytest.raises(RecordError, match="in use by another process"):
            resume(record)
    finally:
        process.send_signal(signal.SIGINT)
        process.wait(30)
    assert manifest(record)["terminal_reason"] == "interrupted"


def test_a_run_that_never_began_says_what_to_do(tmp_path):
    record = tmp_path / "record"
    record.mkdir()
    (record / "events.jsonl").touch()
    with pytest.raises(RecordError, match=r"never begun.*remove"):
        resume(record)


def test_when_unfinished_select_is_carried_out_by_the_next_host(tmp_path):
    """A Host that is killed between the Agent's end and what comes of it leaves the decision to the next one."""
    _, record = run_scripted(tmp_path, "submit('0:2')\nsys.exit(3)", when_unfinished="select")
    lines = (record / "events.jsonl").read_text().splitlines(keepends=True)
    kept = [line for line in lines if json.loads(line)["event"] not in _AFTER_THE_AGENT]
    (record / "events.jsonl").write_text("".join(kept))
    (record / "run.json").write_text(json.dumps(manifest(record) | {"status": "running", "terminal_reason": None}))
    result = resumed(record, tmp_path)
    assert result.terminal_reason == "finished"
    assert manifest(record)["handed_off_by"] == "host"
    assert event_names(record).count("agent_started") == 1


_AFTER_THE_AGENT = ("finish_requested", "candidate_selected", "run_committed")


def test_a_torn_last_line_is_cut_and_not_added_to(tmp_path):
    _, record = run_scripted(tmp_path, DIES)
    with (record / "events.jsonl").open("ab") as file:
        file.write(b'{"seq":99,"event":"submission_publ')
    assert resumed(record, tmp_path).terminal_reason == "finished"
    assert [event["seq"] for event in journal(record)] == list(range(1, len(journal(record)) + 1))


# Why an Agent ended.


class ProviderAgent(CommandAgent):
    """A scripted Agent whose provider explains its end from what it said last."""

    reason = "usage_limit"

    def build_invocation(self, task):
        from dataclasses import replace

        def diagnose(end):
            said = [event.text for event in end.events if event.kind == "error"]
            return AgentDiagnosis(self.reason, f"until 15:00: {said[-1]}") if said else None

        return replace(super().build_invocation(task), diagnose=diagnose)


LIMITED = """
print(json.dumps({"kind": "error", "text": "You have hit your limit", "fatal": True}), flush=True)
"""


def with_provider(folder: Path, script: str, reason: str = "usage_limit") -> ProviderAgent:
    path = folder / "agent.py"
    path.write_text(PRELUDE + script)
    agent = ProviderAgent([sys.executable, str(path)], parser="events")
    agent.reason = reason
    return agent


@pytest.mark.parametrize("reason", ["usage_limit", "authentication", "overloaded", "network"])
def test_what_lies_outside_the_agents_work_keeps_the_run_open(tmp_path, reason):
    record = tmp_path / "record"
    script = FIRST_DIES.format(end=LIMITED.strip() + "; sys.exit(1)")
    result = run(
        initial_program(tmp_path),
        TargetBenchmark(),
        agent=with_provider(tmp_path, script, reason),
        execution=ProcessExecution.unsafe(workers=0),
        record_to=record,
        config=RunConfig(episode_budget=30, when_unfinished="select"),
    )
    assert result.terminal_reason == "agent_failed"
    end = manifest(record)["agent_end"]
    assert (end["reason"], end["resumable"]) == (reason, True)
    assert "until 15:00: You have hit your limit" in end["message"]
    assert resumed(record, tmp_path, script).terminal_reason == "finished"


@pytest.mark.parametrize(
    ("script", "reason", "terminal"),
    [
        ("pass", "finished_without_handoff", "agent_exited"),
        ("sys.exit(3)", "crashed", "agent_failed"),
        ("os.kill(os.getpid(), signal.SIGSEGV)", "crashed", "agent_failed"),
        ("submit('0:2')\nsession('finish', 'submission-000001')", "handed_off", "finished"),
    ],
)
def test_an_end_that_no_provider_explains_has_a_name_of_ours(tmp_path, script, reason, terminal):
    result, record = run_scripted(tmp_path, script)
    assert result.terminal_reason == terminal
    assert manifest(record)["agent_end"]["reason"] == reason


def test_a_silent_agent_is_stalled(tmp_path):
    started = time.monotonic()
    result, record = run_scripted(tmp_path, "submit('0:2')\ntime.sleep(600)", agent_idle_timeout_seconds=1.0)
    assert time.monotonic() - started < 40
    assert result.terminal_reason == "agent_failed"
    assert manifest(record)["agent_end"]["reason"] == "stalled"
    assert len(result.submissions) == 1


def test_output_requests_and_evaluations_are_signs_of_life(tmp_path):
    script = """
for _ in range(2):
    time.sleep(0.6)
    print("still here", flush=True)
for _ in range(2):
    time.sleep(0.6)
    session("status")
submit("0:2")
session("finish", "submission-000001")
"""
    result, _ = run_scripted(
        tmp_path, script, benchmark=TargetBenchmark(step_seconds=0.25), agent_idle_timeout_seconds=1.5
    )
    assert result.terminal_reason == "finished"


# The command.


def command(tmp_path: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "evopolicygym", *arguments],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": os.pathsep.join([str(TESTS.parent), str(TESTS)])},
        capture_output=True,
        text=True,
        timeout=100,
    )


def write_spec(tmp_path: Path, script: str) -> None:
    (tmp_path / "agent.py").write_text(PRELUDE + script)
    initial_program(tmp_path)
    spec = {
        "run": {"record_to": "record", "episode_budget": 30, "episode_pool_size": 60, "seed": 1},
        "benchmark": {"use": "target_benchmark:TargetBenchmark"},
        "program": {"path": "initial-program"},
        "agent": {"use": "command", "command": [sys.executable, str(tmp_path / "agent.py")]},
        "execution": {"use": "unsafe-process", "workers": 0},
        "validation": {"episodes_per_candidate": 2},
        "assessment": {"episodes": 2},
    }
    (tmp_path / "spec.toml").write_text(tomli_w.dumps(spec))


def test_the_command_goes_on_from_the_spec_in_the_record(tmp_path):
    write_spec(tmp_path, DIES)
    assert command(tmp_path, "run", "spec.toml").returncode == 1
    done = command(tmp_path, "resume", "record", "--set", "run.episode_budget=40", "--json")
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert report["terminal_reason"] == "finished"
    assert report["budget"]["episodes_used"] == 6
    again = command(tmp_path, "resume", "record")
    assert again.returncode == 0
    assert "nothing to resume" in again.stderr
    assert "Traceback" not in again.stderr


def test_a_spec_that_was_edited_in_the_record_is_refused(tmp_path):
    write_spec(tmp_path, DIES)
    command(tmp_path, "run", "spec.toml")
    spec = tmp_path / "record/spec.toml"
    spec.write_text(spec.read_text().replace("episode_budget = 30", "episode_budget = 31"))
    done = command(tmp_path, "resume", "record")
    assert done.returncode == 2
    assert "spec.toml: episode_budget is 31 there, and the Run has 30" in done.stderr
    assert command(tmp_path, "resume", "record", "--set", "run.episode_budget=31").returncode == 0


def test_a_damaged_manifest_is_made_anew_from_the_spec(tmp_path):
    write_spec(tmp_path, DIES)
    command(tmp_path, "run", "spec.toml")
    record = tmp_path / "record"
    (record / "run.json").write_text("{")
    done = command(tmp_path, "resume", "record")
    assert done.returncode == 0, done.stderr
    assert manifest(record)["benchmark"]["id"] == "test/target"
    assert manifest(record)["config"]["episode_budget"] == 30
    assert manifest(record)["terminal_reason"] == "finished"


def test_another_agent_is_refused_unless_it_is_said(tmp_path):
    write_spec(tmp_path, DIES)
    command(tmp_path, "run", "spec.toml")
    spec = tmp_path / "record/spec.toml"
    whole = spec.read_text()
    spec.write_text(whole.replace("[agent]\n", '[agent]\nname = "somebody-else"\n'))
    done = command(tmp_path, "resume", "record")
    assert done.returncode == 2
    assert "'somebody-else'" in done.stderr
    spec.write_text(whole)
    done = command(tmp_path, "resume", "record", "--set", "agent.name=somebody-else", "--set", "execution.workers=1")
    assert done.returncode == 0, done.stderr
    record = tmp_path / "record"
    assert manifest(record)["resumed"][0]["overrides"] == ["agent.name=somebody-else", "execution.workers=1"]
    assert manifest(record)["resumed"][0]["host"]["workers"] == 1
    assert json.loads((record / "agent/attempt-2/invocation.json").read_text())["identity"]["name"] == "somebody-else"


def test_another_execution_is_refused_unless_it_is_said(tmp_path):
    write_spec(tmp_path, DIES)
    command(tmp_path, "run", "spec.toml")
    manifest_file = tmp_path / "record/run.json"
    whole = manifest_file.read_text()
    manifest_file.write_text(whole.replace('"unsafe-process"', '"sandbox"'))
    done = command(tmp_path, "resume", "record")
    assert done.returncode == 2
    assert "use of its execution is 'unsafe-process', and the Run began with 'sandbox'" in done.stderr
    done = command(tmp_path, "resume", "record", "--set", "execution.use=unsafe-process")
    assert done.returncode == 0, done.stderr
    assert manifest(tmp_path / "record")["resumed"][0]["overrides"] == ["execution.use=unsafe-process"]


def test_two_that_resume_at_once_do_not_both_go_on(tmp_path):
    write_spec(tmp_path, DIES)
    command(tmp_path, "run", "spec.toml")
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(TESTS.parent), str(TESTS)])}
    both = [
        subprocess.Popen(
            [sys.executable, "-m", "evopolicygym", "resume", "record", "--progress", "off"],
            cwd=tmp_path,
            env=environment,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        for _ in range(2)
    ]
    codes = sorted(process.wait(60) for process in both)
    assert codes in ([0, 2], [0, 0])  # refused, or so late that the Run was finished already
    assert event_names(tmp_path / "record").count("run_resumed") == 1


def test_what_cannot_be_set_is_named(tmp_path):
    _, record = run_scripted(tmp_path, "sys.exit(3)")
    done = command(tmp_path, "resume", str(record), "--set", "benchmark.length=9")
    assert done.returncode == 2
    assert "only limits, Agent and execution can change" in done.stderr


def test_secrets_in_the_logs_of_an_agent_whose_host_was_killed_are_taken_out_or_told(tmp_path, monkeypatch):
    for name in ("FAKE_PROVIDER_KEY", "ANOTHER_KEY"):
        monkeypatch.setenv(name, f"sk-this-is-a-fake-{name}")
    host = f"""
import sys; from pathlib import Path; sys.path.insert(0, {str(TESTS)!r})
from run_scenarios import run_scripted
run_scripted(Path({str(tmp_path)!r}), '''
print(os.environ["FAKE_PROVIDER_KEY"], flush=True)
print(os.environ["ANOTHER_KEY"], file=sys.stderr, flush=True)
submit("0:2")
session("finish", "submission-000001")
os.kill(HOST, signal.SIGKILL)
time.sleep(60)
'''.replace("HOST", str(__import__("os").getpid())),
    agent_options={{"inherited_environment": ["FAKE_PROVIDER_KEY", "ANOTHER_KEY"]}})
"""
    assert subprocess.run([sys.executable, "-c", host], check=False).returncode == -signal.SIGKILL
    record = tmp_path / "record"
    wait_for(lambda: processes_mentioning(str(record)) == [])
    assert "sk-this-is" in (record / "agent/stdout.log").read_text()
    monkeypatch.delenv("ANOTHER_KEY")
    assert resumed(record, tmp_path).terminal_reason == "finished"
    assert (record / "agent/stdout.log").read_text() == "[redacted:FAKE_PROVIDER_KEY]\n"
    notices = [event["message"] for event in journal(record) if event["event"] == "notice"]
    assert notices[-1].endswith("when its Host was killed: ANOTHER_KEY")
