"""Ctrl-C and SIGTERM in each phase: the Record is committed, nothing is left, exit code 130."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import tomli_w
from run_scenarios import PRELUDE, WHOLE_JOB, initial_program, manifest, processes_mentioning, wait_for

SCRIPTS = {
    "agent": "time.sleep(600)",
    "evaluation": "submit('0:30')",
    "grace": WHOLE_JOB + "time.sleep(600)",
}
SLOW = {
    "evaluation": {"step_seconds": 0.3},
    "validation": {"step_seconds": 0.1},
    "assessment": {"step_seconds": 0.1},
}

# The journal line after which the signal is sent, for each phase.
PHASES = {
    "agent": "agent_started",
    "evaluation": "episode_completed",
    "grace": "finish_requested",
    "validation": "validation_episode_completed",
    "assessment": "assessment_episode_completed",
}


def interrupted_command(tmp_path: Path, phase: str, signals: list[int]) -> tuple[int, Path]:
    """``evopolicygym run`` that gets ``signals`` in ``phase``; its exit code and Record."""
    (tmp_path / "agent.py").write_text(PRELUDE + SCRIPTS.get(phase, WHOLE_JOB))
    initial_program(tmp_path)
    spec = {
        "run": {"record_to": "record", "episode_budget": 30, "episode_pool_size": 60, "seed": 1},
        "benchmark": {"use": "target_benchmark:TargetBenchmark", **SLOW.get(phase, {})},
        "program": {"path": "initial-program"},
        "agent": {"use": "command", "command": [sys.executable, str(tmp_path / "agent.py")]},
        "execution": {"use": "unsafe-process", "workers": 1},
        "validation": {"episodes_per_candidate": 60 if phase == "validation" else 4},
        "assessment": {"episodes": 60},
    }
    (tmp_path / "spec.toml").write_text(tomli_w.dumps(spec))
    environment = os.environ | {"PYTHONPATH": str(Path(__file__).parent.parent)}
    with (tmp_path / "terminal").open("wb") as terminal:
        host = subprocess.Popen(
            [sys.executable, "-m", "evopolicygym", "run", "spec.toml"],
            cwd=tmp_path,
            env=environment,
            stdout=terminal,
            stderr=terminal,
            start_new_session=True,
        )
    record = tmp_path / "record"
    events = record / "events.jsonl"
    try:
        seen = wait_for(lambda: events.exists() and f'"{PHASES[phase]}"' in events.read_text(), 60)
        assert seen, (tmp_path / "terminal").read_text()
        for number in signals:
            os.kill(host.pid, number)
            time.sleep(0.05)
        code = host.wait(60)
    finally:
        host.kill()
        host.wait()
    assert "Traceback" not in (tmp_path / "terminal").read_text()
    return code, record


def committed(record: Path) -> None:
    final = manifest(record)
    assert final["terminal_reason"] == "interrupted"
    assert final["status"] == "ended"
    names = [json.loads(line)["event"] for line in (record / "events.jsonl").read_text().splitlines()]
    assert names[-1] == "run_committed"
    assert "interrupted" in names
    assert wait_for(lambda: processes_mentioning(str(record)) == [])


@pytest.mark.parametrize("phase", PHASES)
def test_one_signal_ends_the_run_in_order(tmp_path, phase):
    code, record = interrupted_command(tmp_path, phase, [signal.SIGINT])
    assert code == 130
    committed(record)


@pytest.mark.parametrize("phase", PHASES)
def test_three_quick_signals_end_the_run_just_as_well(tmp_path, phase):
    code, record = interrupted_command(tmp_path, phase, [signal.SIGINT] * 3)
    assert code == 130
    committed(record)


def test_sigterm_is_an_interruption_too(tmp_path):
    code, record = interrupted_command(tmp_path, "evaluation", [signal.SIGTERM])
    assert code == 130
    committed(record)


def test_nothing_survives_a_killed_host(tmp_path):
    code, record = interrupted_command(tmp_path, "evaluation", [signal.SIGKILL])
    assert code == -signal.SIGKILL
    assert wait_for(lambda: processes_mentioning(str(record)) == [])
    assert manifest(record)["status"] == "running"
