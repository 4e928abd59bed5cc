"""Where no sandbox can be had, nothing is started, and the user is told what to do."""

import json
import os
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path

import pytest
from benchmarks_for_tests import ALWAYS_ONE, EchoBenchmark, program
from target_benchmark import CONSTANT_POLICY

from evopolicygym.errors import ExecutionUnavailableError
from evopolicygym.evaluation import EvaluationConfig, evaluate
from evopolicygym.execution import AgentLimits, PolicyLimits, SandboxExecution, sandbox_report

# Has a command run where the kernel makes no user namespaces.
WITHOUT_NAMESPACES = ("bwrap", "--unshare-user", "--disable-userns", "--dev-bind", "/", "/", "--proc", "/proc", "--")
REFUSED = "echo 'bwrap: No permissions to create new namespace' >&2; exit 1"


def fake_bubblewrap(folder: Path, *, version: str = "bubblewrap 0.8.0", otherwise: str = REFUSED) -> None:
    folder.mkdir()
    script = folder / "bwrap"
    script.write_text(f'#!/bin/sh\n[ "$1" != --version ] || {{ echo "{version}"; exit 0; }}\n{otherwise}\n')
    script.chmod(0o755)


@pytest.mark.parametrize(
    ("version", "otherwise", "told"),
    [
        (None, "", "no program bwrap is on PATH; install it: apt-get install bubblewrap"),
        ("bubblewrap 0.8.0", REFUSED, "User namespaces are refused; in a container, allow them|as root: sysctl"),
        ("bubblewrap 0.8.0", "exit 1", "it ended with exit code 1 and said nothing"),
        ("bubblewrap 0.6.1", "exit 1", "bubblewrap 0.6.1 is too old, 0.7.0 is needed; install a newer one: apt-get"),
        ("something else", "exit 1", "does not tell its version as bubblewrap does"),
    ],
    ids=["absent", "refused", "silent", "old", "another program"],
)
def test_an_evaluation_without_a_sandbox_is_refused(tmp_path, monkeypatch, version, otherwise, told):
    if version is None:
        (tmp_path / "bin").mkdir()
    else:
        fake_bubblewrap(tmp_path / "bin", version=version, otherwise=otherwise)
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    with pytest.raises(ExecutionUnavailableError) as caught:
        evaluate(
            program(tmp_path / "program", ALWAYS_ONE),
            EchoBenchmark(),
            execution=SandboxExecution(workers=1),
            config=EvaluationConfig(),
        )
    assert any(part in str(caught.value) for part in told.split("|")), caught.value
    report = sandbox_report()
    assert not report.available
    assert report.lines[0][2] == str(caught.value)


@pytest.mark.parametrize("arguments", [["run"], ["run", "--dry-run"]], ids=["run", "dry run"])
@pytest.mark.parametrize("obstacle", ["absent", "refused", "refused by the kernel"])
def test_a_run_without_a_sandbox_exits_with_2_and_starts_nothing(tmp_path, arguments, obstacle):
    (tmp_path / "policy").mkdir()
    (tmp_path / "policy" / "policy.py").write_text(CONSTANT_POLICY)
    (tmp_path / "spec.toml").write_text(
        f"""
[run]
python_path = ["{Path(__file__).parent.parent}"]
record_to = "record"
seed = "random"

[benchmark]
use = "target_benchmark:TargetBenchmark"

[program]
path = "policy"

[agent]
use = "command"
command = ["{sys.executable}", "-c", "open('started', 'w')"]

[execution]
use = "sandbox"
"""
    )
    if obstacle == "refused":
        fake_bubblewrap(tmp_path / "bin")
    by_kernel = obstacle == "refused by the kernel"
    ended = subprocess.run(
        [
            *(WITHOUT_NAMESPACES if by_kernel else ()),
            *(sys.executable, "-m", "evopolicygym", *arguments, str(tmp_path / "spec.toml")),
        ],
        capture_output=True,
        text=True,
        timeout=60,
        cwd=tmp_path,
        env=os.environ if by_kernel else {**os.environ, "PATH": str(tmp_path / "bin")},
    )
    assert ended.returncode == 2, ended.stderr
    assert "bubblewrap" in ended.stderr
    assert "Traceback" not in ended.stderr
    assert sorted(path.name for path in tmp_path.iterdir() if path.name != "bin") == ["policy", "spec.toml"]


def test_this_machine_has_what_the_sandbox_needs():
    """A machine that has not fails here, loudly: none of these tests is ever skipped."""
    report = sandbox_report()
    assert report.available, report.lines
    assert json.loads(json.dumps(report.to_json()))["available"] is True


@pytest.mark.parametrize(
    ("arguments", "error", "told"),
    [
        ({"network": "some"}, ValueError, "network is 'some'"),
        ({"log_in": "some"}, ValueError, "log_in is 'some'"),
        ({"workers": -1}, ValueError, "workers must be >= 0"),
        ({"policy": {"memory": 1}}, ValueError, "policy has no limit 'memory'; it can be memory_bytes"),
        ({"policy": {"memory_bytes": 1}}, ValueError, "memory_bytes must be at least"),
        ({"policy": {"processes": True}}, TypeError, "processes must be an int, not bool"),
        ({"agent": PolicyLimits()}, TypeError, "agent must be AgentLimits, or a table of its limits"),
        ({"hide": "gymnasium"}, TypeError, "hide must be a list of strings"),
        ({"hide": ["a.b"]}, ValueError, "names of top-level modules"),
        ({"hide": ["evopolicygym"]}, ValueError, "cannot be hidden"),
        ({"visible": [1]}, TypeError, "visible holds 1"),
    ],
)
def test_a_wrong_setting_is_refused_with_its_name(arguments, error, told):
    with pytest.raises(error, match=told.replace("[", "\\[")):
        SandboxExecution(**arguments)


def test_limits_may_be_given_as_a_table():
    execution = SandboxExecution(policy={"processes": 5}, agent={"processes": 50})
    facts = execution.facts_for(EchoBenchmark())
    assert facts["policy_limits"] == {
        "memory_bytes": PolicyLimits().memory_bytes,
        "cpu_seconds": 3600,
        "processes": 5,
        "file_bytes": 256 << 20,
        "open_files": 256,
        "scratch_bytes": 256 << 20,
    }
    assert facts["agent_limits"] == asdict(AgentLimits()) | {"processes": 50}
