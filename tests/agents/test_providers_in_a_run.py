import os
from pathlib import Path

import pytest
from run_scenarios import initial_program, journal, manifest
from target_benchmark import TargetBenchmark

from evopolicygym.agents import ClaudeCode, command_invocation
from evopolicygym.errors import AgentRunError
from evopolicygym.execution import ProcessExecution
from evopolicygym.run import RunConfig, agent_phase, run

KEY = 'sk-made-"up"-0123456789'
START = r"""
import json, os, sys, time
def say(**line):
    print(json.dumps(line), flush=True)
task = sys.stdin.read()
assert "evopolicygym-session" in task
say(type="system", subtype="init", session_id="s", model="m", claude_code_version="2.1.332")
"""
LIVES_ON = START + 'say(type="result", subtype="success", is_error=False, num_turns=1)\ntime.sleep(600)\n'
TELLS_ITS_KEY = (
    START
    + r"""
key = os.environ["ANTHROPIC_API_KEY"]
use = {"type": "tool_use", "id": "t", "name": "Bash", "input": {"command": "echo " + key}}
say(type="assistant", message={"id": "a", "content": [{"type": "text", "text": "My key is " + key}, use]})
print(key, file=sys.stderr, flush=True)
time.sleep(2.5)
say(type="result", subtype="success", is_error=True, api_error_status=401, result="the key " + key + " is wrong")
sys.exit(1)
"""
)


def start(folder: Path, agent: object, **limits: object):
    record = folder / "record"
    result = run(
        initial_program(folder),
        TargetBenchmark(),
        agent=agent,
        execution=ProcessExecution.unsafe(workers=0),
        record_to=record,
        config=RunConfig(episode_budget=4, **{"agent_timeout_seconds": 60.0, **limits}),
    )
    return result, record


@pytest.fixture
def claude(tmp_path, monkeypatch):
    """A program called claude that runs a script."""
    monkeypatch.setenv("ANTHROPIC_API_KEY", KEY)

    def make(script):
        path = tmp_path / "claude"
        path.write_text(f"#!/usr/bin/env python3\n{script}")
        path.chmod(0o755)
        return ClaudeCode(model="m", effort="low", executable=str(path), allow_root=True)

    return make


def test_a_program_that_lives_on_after_its_end_is_ended_and_has_not_failed(claude, tmp_path, monkeypatch):
    monkeypatch.setattr(agent_phase, "LIVING_ON_SECONDS", 1.0)
    monkeypatch.setattr(agent_phase, "LOOK_SECONDS", 0.2)
    result, record = start(tmp_path, claude(LIVES_ON), agent_timeout_seconds=100.0)
    assert result.terminal_reason == "agent_exited"
    end = manifest(record)["agent_end"]
    assert end["reason"] == "lived_on"
    assert end["seconds"] < 50


def test_a_key_that_a_program_tells_stands_in_no_file_of_the_record(claude, tmp_path):
    result, record = start(tmp_path, claude(TELLS_ITS_KEY))
    assert result.terminal_reason == "agent_failed"
    made = manifest(record)
    assert made["agent_end"]["reason"] == "authentication"
    assert made["agent"]["session"]["text"] == "Claude Code 2.1.332"
    assert "ANTHROPIC_API_KEY" in made["agent"]["environment_names"]
    middle = KEY.split('"')[2]
    files = [path for path in record.rglob("*") if path.is_file()]
    assert [path.name for path in files if middle in path.read_text(errors="replace")] == []
    assert "[redacted:ANTHROPIC_API_KEY]" in (record / "agent" / "stdout.log").read_text()
    actions = [str(event.get("last_action")) for event in journal(record) if event["event"] == "agent_event"]
    assert any("[redacted:ANTHROPIC_API_KEY]" in action for action in actions)


def test_a_state_that_cannot_be_prepared_ends_the_run_with_its_reason(tmp_path):
    class Unprepared:
        def build_invocation(self, task):
            return command_invocation(["true"], task, identity="unprepared", prepare_state=self.prepare)

        def prepare(self, directory):
            raise AgentRunError("the log-in is broken; log in again")

    result, record = start(tmp_path, Unprepared())
    assert result.terminal_reason == "agent_failed"
    assert "log in again" in manifest(record)["agent_end"]["message"]


def test_claude_as_root_is_refused_before_there_is_a_record(claude, tmp_path, monkeypatch):
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    agent = ClaudeCode(model="m", effort="low", executable=claude(LIVES_ON).executable)
    with pytest.raises(AgentRunError, match="allow_root"):
        start(tmp_path, agent)
    assert not (tmp_path / "record").exists()
