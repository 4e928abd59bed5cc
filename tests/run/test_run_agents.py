"""How Agents end a Run: well, badly, late, or never."""

import json
import os
import sys
import time
from pathlib import Path

import pytest
from run_scenarios import (
    WHOLE_JOB,
    event_names,
    initial_program,
    journal,
    manifest,
    processes_mentioning,
    run_scripted,
)
from target_benchmark import TargetBenchmark

from evopolicygym.agents import CommandAgent
from evopolicygym.execution import ProcessExecution
from evopolicygym.execution.scratch import remove_tree
from evopolicygym.run import AssessmentConfig, RunConfig, ValidationConfig, run


def nothing_is_left(record: Path) -> bool:
    return processes_mentioning(str(record)) == []


def test_exit_0_without_finish_is_agent_exited(tmp_path):
    result, record = run_scripted(tmp_path, "submit('0:2')")
    assert result.terminal_reason == "agent_exited"
    assert len(result.submissions) == 1
    assert result.final_program is None
    assert manifest(record)["agent_end"]["returncode"] == 0


def test_exit_0_without_finish_and_without_budget_is_budget_exhausted(tmp_path):
    result, _ = run_scripted(tmp_path, "submit('0:4')", episode_budget=4)
    assert result.terminal_reason == "budget_exhausted"


def test_exit_0_without_finish_and_without_submissions_is_budget_exhausted(tmp_path):
    result, _ = run_scripted(tmp_path, "submit('0:4')", max_submissions=1)
    assert result.terminal_reason == "budget_exhausted"


def test_exit_3_is_agent_failed(tmp_path):
    result, record = run_scripted(tmp_path, "print('partial'); sys.exit(3)")
    assert result.terminal_reason == "agent_failed"
    assert manifest(record)["agent_end"]["returncode"] == 3
    assert (record / "agent/stdout.log").read_text() == "partial\n"


def test_a_killed_agent_is_agent_failed(tmp_path):
    result, record = run_scripted(tmp_path, "os.kill(os.getpid(), signal.SIGKILL)")
    assert result.terminal_reason == "agent_failed"
    assert manifest(record)["agent_end"]["returncode"] == -9


def test_an_agent_that_cannot_be_executed_is_agent_failed(tmp_path):
    broken = tmp_path / "broken"
    broken.write_text("#!/no/such/interpreter\n")
    broken.chmod(0o755)
    result = run(
        initial_program(tmp_path),
        TargetBenchmark(),
        agent=CommandAgent([str(broken)]),
        execution=ProcessExecution.unsafe(workers=1),
        record_to=tmp_path / "record",
    )
    assert result.terminal_reason == "agent_failed"
    assert "could not be started" in manifest(tmp_path / "record")["agent_end"]["message"]


def test_an_agent_that_ignores_sigterm_past_its_time_is_ended(tmp_path):
    script = "signal.signal(signal.SIGTERM, signal.SIG_IGN)\nsubmit('0:2')\nprint('up', flush=True)\ntime.sleep(600)"
    started = time.monotonic()
    result, record = run_scripted(tmp_path, script, agent_timeout_seconds=3.0)
    assert result.terminal_reason == "agent_timed_out"
    assert time.monotonic() - started < 40
    assert len(result.submissions) == 1
    assert (record / "agent/stdout.log").read_text() == "up\n"
    assert nothing_is_left(record)


def test_a_grandchild_in_another_session_that_holds_stdout_is_ended(tmp_path):
    script = """
subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"], start_new_session=True)
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        time.sleep(600)
    os._exit(0)
improve()
submit("0:2")
session("finish", "submission-000001")
"""
    result, record = run_scripted(tmp_path, script)
    assert result.terminal_reason == "finished"
    assert nothing_is_left(record)


def test_what_is_submitted_after_the_agents_time_is_not_accepted(tmp_path):
    script = """
signal.signal(signal.SIGTERM, signal.SIG_IGN)
while True:
    print(submit("0:1"), flush=True)
    time.sleep(0.05)
"""
    result, record = run_scripted(
        tmp_path, script, agent_timeout_seconds=3.0, episode_budget=1000, max_submissions=None
    )
    assert result.terminal_reason == "agent_timed_out"
    names = event_names(record)
    assert "submission_published" not in names[names.index("agent_ended") :]
    assert "evaluation_started" not in names[names.index("agent_ended") :]
    assert len(result.submissions) == names.count("submission_published")


def test_an_evaluation_that_outlasts_the_agents_time_is_cancelled_and_stays_charged(tmp_path):
    script = "submit('0:1')\nprint(submit('0:20'))"
    result, record = run_scripted(
        tmp_path, script, benchmark=TargetBenchmark(step_seconds=0.1), agent_timeout_seconds=4.0
    )
    assert result.terminal_reason == "agent_timed_out"
    assert [s.submission_id for s in result.submissions] == ["submission-000001"]
    failed = [event for event in journal(record) if event["event"] == "evaluation_failed"]
    assert [(event["submission_id"], event["reason"]) for event in failed] == [("submission-000002", "cancelled")]
    assert not (record / "submissions/submission-000002").exists()


def test_an_evaluation_that_runs_when_the_agent_exits_is_published(tmp_path):
    result, record = run_scripted(tmp_path, "submit('0:4', '--no-wait')", benchmark=TargetBenchmark(step_seconds=0.1))
    assert result.terminal_reason == "agent_exited"
    assert len(result.submissions) == 1
    assert (record / "workspace/feedback/submissions/submission-000001/feedback.json").exists()


def test_what_an_agent_leaves_behind_cannot_submit_after_it(tmp_path):
    script = """
code = "import subprocess, time; time.sleep(1); " + \
    "subprocess.run(['evopolicygym-session', 'submit', 'program', '--episodes', '0:1'])"
subprocess.Popen([sys.executable, "-c", code], start_new_session=True)
submit("0:4", "--no-wait")
"""
    result, record = run_scripted(tmp_path, script, benchmark=TargetBenchmark(step_seconds=0.1))
    assert len(result.submissions) == 1
    assert event_names(record).count("evaluation_started") == 1


def test_five_megabytes_on_one_line_and_random_bytes_are_kept_whole(tmp_path):
    script = """
os.write(1, b"x" * 5_000_000)
os.write(1, bytes(range(256)) * 100)
os.write(2, bytes(reversed(range(256))))
"""
    result, record = run_scripted(tmp_path, script)
    assert result.terminal_reason == "agent_exited"
    assert (record / "agent/stdout.log").read_bytes() == b"x" * 5_000_000 + bytes(range(256)) * 100
    assert (record / "agent/stderr.log").read_bytes() == bytes(reversed(range(256)))


def test_an_agent_that_never_exits_after_finish_is_ended_after_a_grace(tmp_path, monkeypatch):
    monkeypatch.setattr("evopolicygym.run.agent_phase.FINISH_GRACE_SECONDS", 1.0)
    result, record = run_scripted(tmp_path, WHOLE_JOB + "time.sleep(600)", assessment=AssessmentConfig(episodes=2))
    assert result.terminal_reason == "finished"
    assert result.assessment is not None
    assert nothing_is_left(record)


def test_requests_after_finish_are_refused(tmp_path):
    script = WHOLE_JOB + "print(json.dumps(submit('8:9')[1]['error']['code']))"
    result, record = run_scripted(tmp_path, script)
    assert result.terminal_reason == "finished"
    assert (record / "agent/stdout.log").read_text().splitlines()[-1] == '"session_closed"'
    assert len(result.submissions) == 2


def test_a_fault_of_the_benchmark_ends_the_run_and_is_never_the_policys(tmp_path):
    result, record = run_scripted(tmp_path, "print(submit('0:2'))", benchmark=TargetBenchmark(fail_at_step=2))
    assert result.terminal_reason == "evaluation_failed"
    assert result.submissions == ()
    assert "the simulator broke" in manifest(record)["error"]
    assert not any((record / "submissions").iterdir())
    assert nothing_is_left(record)


def test_a_fault_in_validation_keeps_the_candidates_and_selects_none(tmp_path):
    result, record = run_scripted(
        tmp_path,
        WHOLE_JOB,
        benchmark=TargetBenchmark(fail_split="validation"),
        validation=ValidationConfig(episodes_per_candidate=2),
        assessment=AssessmentConfig(episodes=2),
    )
    assert result.terminal_reason == "validation_failed"
    assert result.candidate_submission_ids == ("submission-000002",)
    assert result.final_program is None
    assert "no Environment for validation" in manifest(record)["error"]


def test_a_fault_in_assessment_keeps_the_selection(tmp_path):
    result, _ = run_scripted(
        tmp_path, WHOLE_JOB, benchmark=TargetBenchmark(fail_split="test"), assessment=AssessmentConfig(episodes=2)
    )
    assert result.terminal_reason == "assessment_failed"
    assert result.final_submission_id == "submission-000002"
    assert result.assessment is None


TWO_UNFINISHED = "submit('0:2')\nimprove()\nsubmit('0:2')\nsys.exit({code})"


@pytest.mark.parametrize("code", [0, 3])
def test_when_unfinished_select_hands_off_the_best_submission(tmp_path, code):
    result, record = run_scripted(tmp_path, TWO_UNFINISHED.format(code=code), when_unfinished="select")
    assert result.terminal_reason == "finished"
    assert result.final_submission_id == "submission-000002"
    assert manifest(record)["handed_off_by"] == "host"


def test_when_unfinished_select_hands_off_as_many_as_validation_takes(tmp_path):
    result, _ = run_scripted(
        tmp_path,
        TWO_UNFINISHED.format(code=0),
        when_unfinished="select",
        validation=ValidationConfig(episodes_per_candidate=2, max_candidates=2),
    )
    assert result.candidate_submission_ids == ("submission-000002", "submission-000001")


def test_when_unfinished_select_without_submissions_hands_off_nothing(tmp_path):
    result, _ = run_scripted(tmp_path, "pass", when_unfinished="select")
    assert result.terminal_reason == "agent_exited"


def test_finish_is_refused_while_a_budget_is_left_that_must_be_exhausted(tmp_path):
    script = """
submit("0:4")
print(json.dumps(session("finish", "submission-000001")[1]["error"]["code"]))
submit("0:4")
session("finish", "submission-000001")
"""
    result, record = run_scripted(tmp_path, script, episode_budget=8, finish_budget_policy="require_budget_exhaustion")
    assert result.terminal_reason == "finished"
    assert (record / "agent/stdout.log").read_text() == '"budget_remaining"\n'


REFUSED_SELECTORS = [
    "",
    "3:3",
    "5:2",
    "0:2,1:3",
    "1,1",
    " 0",
    "-1",
    "0:",
    "٣",
    "1e3",
    "60",
    "0:31",
    "0:11",
    "0:99999999999",
]


def test_refused_submissions_charge_nothing_and_say_why(tmp_path):
    script = f"""
answers = []
for selector in {REFUSED_SELECTORS!r}:
    answers.append([selector, *submit(selector)])
os.makedirs("other"); pathlib.Path("other/policy.py").write_text(RIGHT_POLICY)
answers.append(["other", *session("submit", "other", "--episodes", "0:2")])
os.symlink("/etc/hostname", "program/link"); answers.append(["link", *submit("0:2")]); os.unlink("program/link")
os.mkfifo("program/fifo"); answers.append(["fifo", *submit("0:2")]); os.unlink("program/fifo")
os.rename("program/policy.py", "program/p.py"); answers.append(["no policy.py", *submit("0:2")])
os.rename("program/p.py", "program/policy.py")
pathlib.Path("analysis/answers.json").write_text(json.dumps([answers, session("status")]))
"""
    result, record = run_scripted(tmp_path, script, max_episodes_per_submission=10)
    assert result.terminal_reason == "agent_exited"
    answers, (code, status) = json.loads((record / "workspace/analysis/answers.json").read_text())
    assert len(answers) == len(REFUSED_SELECTORS) + 4
    for name, exit_code, answer in answers:
        assert exit_code == 1, (name, answer)
        assert answer["ok"] is False
        assert answer["error"]["code"]
        assert len(answer["error"]["message"]) > 20, name
    assert code == 0
    assert status["result"]["episodes_remaining"] == 30
    assert status["result"]["submissions_remaining"] == 20
    assert "evaluation_started" not in event_names(record)
    assert event_names(record).count("submission_refused") == len(answers)


def test_the_parsed_output_of_an_agent_becomes_a_transcript_and_totals(tmp_path):
    script = """
print(json.dumps({"kind": "message", "text": "I look around."}))
print("not JSON")
print(json.dumps({"kind": "tool_call", "tool": "shell", "command": "ls", "exit_code": 0}))
print(json.dumps({"kind": "usage", "turns": 2, "input_tokens": 100, "cached_tokens": 10, "output_tokens": 5}))
print(json.dumps({"kind": "cost", "cost_usd": 0.25}), flush=True)
"""
    _, record = run_scripted(tmp_path, script, agent_options={"parser": "events"})
    transcript = [json.loads(line) for line in (record / "agent/transcript.jsonl").read_text().splitlines()]
    assert [event["kind"] for event in transcript] == ["message", "tool_call", "usage", "cost"]
    usage = manifest(record)["agent"]["usage"]
    assert (usage["turns"], usage["tool_calls"], usage["input_tokens"], usage["cost_usd"]) == (2, 1, 100, 0.25)


def test_the_host_leaves_no_descriptor_open(tmp_path):
    (tmp_path / "warm").mkdir()
    (tmp_path / "measured").mkdir()
    run_scripted(tmp_path / "warm", WHOLE_JOB)
    before = len(os.listdir("/proc/self/fd"))
    run_scripted(tmp_path / "measured", WHOLE_JOB)
    assert len(os.listdir("/proc/self/fd")) == before


def test_the_agent_starts_in_its_workspace_with_little_of_the_environment(tmp_path, monkeypatch):
    monkeypatch.setenv("UNRELATED_VARIABLE", "1")
    script = "print(json.dumps([os.getcwd(), sorted(os.environ), os.environ['PATH'], sys.stdin.read()]))"
    _, record = run_scripted(tmp_path, script, agent_options={"task": "file"}, arguments=["{task_file}"])
    folder, names, path, stdin = json.loads((record / "agent/stdout.log").read_text())
    assert folder == str(record / "workspace")
    assert "UNRELATED_VARIABLE" not in names
    assert path.split(os.pathsep)[0] == str(Path(sys.executable).parent)
    assert stdin == ""


def test_the_task_tells_the_limits_and_nothing_private(tmp_path):
    _, record = run_scripted(tmp_path, "print(sys.stdin.read())", agent_options={"task": "stdin"}, seed=123456789012345)
    task = (record / "agent/stdout.log").read_text()
    assert task.strip() == (record / "agent/instructions.md").read_text().strip()
    assert "test/target" in task
    assert "0 to 59" in task
    assert "30" in task
    assert "123456789012345" not in task
    assert "$" not in task
    assert RunConfig().split in task


def test_an_agent_cannot_hurt_the_host_by_what_it_leaves_in_its_workspace(tmp_path, monkeypatch):
    monkeypatch.setenv("FAKE_PROVIDER_KEY", "sk-this-is-a-fake-key-0123456789")
    script = WHOLE_JOB + (
        'open("sk-this-is-a-fake-key-0123456789", "w").write(os.environ["FAKE_PROVIDER_KEY"])\n'
        'open("huge", "w").truncate(2**40)\n'
        "for _ in range(1500):\n"
        '    os.mkdir("deep"); os.chdir("deep")\n'
    )
    result, record = run_scripted(tmp_path, script, agent_options={"inherited_environment": ["FAKE_PROVIDER_KEY"]})
    assert result.terminal_reason == "finished"
    notices = [event["message"] for event in journal(record) if event["event"] == "notice"]
    assert "the workspace holds a secret that was passed on to the Agent: [redacted:FAKE_PROVIDER_KEY]" in notices
    assert any(notice.startswith("not all of the workspace was searched for secrets; ") for notice in notices)
    assert "sk-this-is" not in (record / "events.jsonl").read_text()
    remove_tree(record / "workspace")  # too deep for pytest


class UnspeakableBenchmark(TargetBenchmark):
    def feedback(self, records):
        raise ValueError("half a character: \ud800")


def test_a_fault_whose_message_no_file_can_hold_ends_the_run_well(tmp_path):
    result, record = run_scripted(tmp_path, "submit('0:2')", benchmark=UnspeakableBenchmark())
    assert result.terminal_reason == "evaluation_failed"
    assert manifest(record)["agent_end"]["message"].endswith("ValueError: half a character: \ufffd")
