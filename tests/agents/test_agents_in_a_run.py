import json
import shutil
from pathlib import Path

import pytest

from evopolicygym.agents import CommandAgent, ParameterTuner
from evopolicygym.benchmarks.gymnasium import GymnasiumBenchmark
from evopolicygym.execution import ProcessExecution
from evopolicygym.program import Program
from evopolicygym.run import RunConfig, ValidationConfig, run

QUICKSTART = Path(__file__).parents[2] / "configs" / "quickstart"

AGENT = """\
import json, subprocess, sys
from pathlib import Path
task = Path(sys.argv[1]).read_text()
assert "evopolicygym-session" in task
print("I have read", len(task), "characters", flush=True)
path = Path("program/params.json")
path.write_text(json.dumps({"weights": [0.0, 0.1, 1.0, 1.0]}))
subprocess.run(["evopolicygym-session", "submit", "program", "--episodes", "0:2"], check=True)
subprocess.run(["evopolicygym-session", "finish", "submission-000001"], check=True)
"""


@pytest.fixture
def record(tmp_path):
    path = tmp_path / "record"
    yield path
    for directory in [path, *path.rglob("*")]:
        if directory.is_dir() and not directory.is_symlink():
            directory.chmod(0o700)
    shutil.rmtree(path, ignore_errors=True)


def start(agent, record, **limits):
    return run(
        Program.from_directory(QUICKSTART / "program"),
        GymnasiumBenchmark(env_id="CartPole-v1"),
        agent=agent,
        execution=ProcessExecution.unsafe(workers=1),
        record_to=record,
        config=RunConfig(seed=42, agent_timeout_seconds=90.0, **limits),
    )


def test_the_tuner_improves_the_quickstart_policy_in_a_real_run(record):
    validation = ValidationConfig(episodes_per_candidate=2, max_candidates=2)
    result = start(ParameterTuner(), record, episode_budget=80, max_submissions=20, validation=validation)
    assert result.terminal_reason == "finished"
    assert len(result.candidate_submission_ids) == 2
    scores = {submission.submission_id: submission.feedback.score for submission in result.submissions}
    assert scores["submission-000001"] < 20
    assert max(scores[name] for name in result.candidate_submission_ids) > 100
    kinds = [json.loads(line)["kind"] for line in (record / "agent" / "transcript.jsonl").read_text().splitlines()]
    assert kinds.count("tool_call") >= len(result.submissions)


def test_the_tuner_spends_the_whole_budget_of_a_run_that_asks_for_it(record):
    result = start(
        ParameterTuner(),
        record,
        episode_budget=23,
        max_submissions=4,
        max_episodes_per_submission=7,
        finish_budget_policy="require_budget_exhaustion",
    )
    assert result.terminal_reason == "finished"
    assert result.submissions[-1].episodes_remaining == 0


def test_a_script_is_an_agent(record, tmp_path):
    (tmp_path / "agent.py").write_text(AGENT)
    agent = CommandAgent("python3 {directory}/agent.py {task_file}", task="file", directory=tmp_path)
    result = start(agent, record, episode_budget=10, max_submissions=2)
    assert result.terminal_reason == "finished"
    assert result.submissions[0].feedback.score > 100
    transcript = (record / "agent" / "transcript.jsonl").read_text().splitlines()
    assert json.loads(transcript[0])["text"].startswith("I have read")
