"""Records to look at, and a way to run the command as a user does."""

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from recorded_runs import HOSTILE, Command, write_record
from run_scenarios import PRELUDE
from target_benchmark import CONSTANT_POLICY

COMMAND_SECONDS = 60.0


@pytest.fixture
def command() -> Command:
    """Run ``python -m evopolicygym …`` in a pipe."""

    def run(*arguments: str | Path, **environment: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "evopolicygym", *map(str, arguments)],
            capture_output=True,
            text=True,
            encoding="utf-8",
            timeout=COMMAND_SECONDS,
            stdin=subprocess.DEVNULL,
            env={name: value for name, value in os.environ.items() if name != "COLUMNS"} | environment,
        )

    return run


@pytest.fixture(scope="session")
def records(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A folder with a finished, a failed and a crashed Record; the failed one holds hostile text."""
    home = tmp_path_factory.mktemp("records")
    runs = home / "runs"
    write_record(runs / "finished", home / "a")
    write_record(runs / "failed", home / "b", terminal_reason="agent_failed", text=HOSTILE)
    write_record(runs / "crashed", home / "c", terminal_reason=None)
    yield runs
    subprocess.run(["chmod", "-R", "u+w", str(home)], check=True)


@pytest.fixture
def write_spec(tmp_path: Path) -> Callable[[str], Path]:
    """Write a spec whose Agent runs the given Python script; gives the spec's path."""

    def write(script: str, *, benchmark: str = "") -> Path:
        (tmp_path / "policy").mkdir()
        (tmp_path / "policy" / "policy.py").write_text(CONSTANT_POLICY)
        (tmp_path / "agent.py").write_text(PRELUDE + script)
        spec = tmp_path / "target.toml"
        spec.write_text(
            f"""
[run]
python_path = ["{Path(__file__).parent.parent}"]
seed = "random"
episode_budget = 30
agent_timeout_seconds = 60
[benchmark]
use = "target_benchmark:TargetBenchmark"
{benchmark}
[program]
path = "policy"
[agent]
use = "command"
command = ["{sys.executable}", "{tmp_path / "agent.py"}"]
[execution]
use = "unsafe-process"
workers = 1
[validation]
episodes_per_candidate = 2
[assessment]
episodes = 2
"""
        )
        return spec

    return write
