"""Whole Runs in sandboxes, from a spec by the command line: run, resumed, with the Host killed, at a terminal."""

import fcntl
import json
import os
import shutil
import signal
import subprocess
import sys
import termios
from collections.abc import Mapping
from pathlib import Path

import pytest
import tomli_w
from run_scenarios import PRELUDE, initial_program, journal, manifest, processes_mentioning, wait_for

from evopolicygym.execution.cgroups import find_control_groups
from evopolicygym.execution.sandbox_launch import limits_held_by

TESTS = Path(__file__).parent.parent

# The first start does something and ends as it is told; a later one improves and hands off.
SCRIPT = """
first = not os.path.exists("analysis/started")
pathlib.Path("analysis/started").touch()
if first:
    submit("0:2")
    {end}
improve()
submit("0:2,4:6")
session("finish", session("status")[1]["result"]["published"][-1]["submission_id"])
"""


def written_spec(tmp_path: Path, end: str) -> None:
    (tmp_path / "agent.py").write_text(PRELUDE + SCRIPT.format(end=end))
    initial_program(tmp_path)
    spec = {
        "run": {"record_to": "record", "episode_budget": 30, "episode_pool_size": 60, "seed": 1},
        "benchmark": {"use": "target_benchmark:TargetBenchmark"},
        "program": {"path": "initial-program"},
        "agent": {"use": "command", "command": [sys.executable, str(tmp_path / "agent.py")]},
        "execution": {
            "use": "sandbox",
            "workers": 1,
            "network": "none",
            "hide": ["target_benchmark"],
            "policy": {"processes": 16},
            "agent": {"processes": 200, "open_files": 1000},
        },
        "validation": {"episodes_per_candidate": 4},
        "assessment": {"episodes": 4},
    }
    (tmp_path / "spec.toml").write_text(tomli_w.dumps(spec))


def environment(**more: str) -> Mapping[str, str]:
    return {**os.environ, "PYTHONPATH": str(TESTS), **more}


# Has a command of root's run where there are no control groups; an ordinary user has none, unless they are delegated.
WITHOUT_GROUPS = ("bwrap", "--dev-bind", "/", "/", "--tmpfs", "/sys/fs/cgroup", "--") if os.getuid() == 0 else ()


def evopolicygym(
    tmp_path: Path, *arguments: str, prefix: tuple[str, ...] = (), **more: str
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*prefix, sys.executable, "-m", "evopolicygym", *arguments],
        cwd=tmp_path,
        env=environment(**more),
        capture_output=True,
        text=True,
        timeout=100,
    )


def test_a_spec_makes_a_whole_run_in_sandboxes_and_its_record_tells(tmp_path):
    written_spec(tmp_path, "pass")
    ended = evopolicygym(tmp_path, "run", "spec.toml")
    assert ended.returncode == 0, ended.stderr
    found = manifest(tmp_path / "record")
    assert found["terminal_reason"] == "finished"
    assert found["selected_submission_id"] == "submission-000002"
    assert found["assessment"]["score"] == 5
    sandbox = found["host"]["sandbox"]
    assert (sandbox["agent_network"], sandbox["hiding"], sandbox["agent_abstract_sockets"]) == (
        "none",
        "enforced",
        "unreachable",
    )
    assert sandbox["hidden_modules"] == ["target_benchmark"]
    assert sandbox["policy_limits"]["processes"] == 16
    assert sandbox["agent_limits"]["open_files"] == 1000
    assert found["seed_strength"] == "derivable"
    assert "derive" in ended.stderr + ended.stdout
    resolved = (tmp_path / "record" / "spec.toml").read_text()
    assert 'network = "none"' in resolved
    assert processes_mentioning(str(tmp_path)) == []


def test_where_no_control_group_can_be_made_check_and_record_say_what_is_done_instead(tmp_path):
    held = limits_held_by(None if os.getuid() == 0 else find_control_groups())
    checked = evopolicygym(tmp_path, "check", "--sandbox", "--json", prefix=WITHOUT_GROUPS)
    (finding,) = [finding for finding in json.loads(checked.stdout)["findings"] if finding["name"] == "limits"]
    assert finding["found"] == held
    assert ("Delegate=yes" in finding["advice"]) == ("watching the process tree" in held)
    written_spec(tmp_path, "pass")
    ended = evopolicygym(tmp_path, "run", "spec.toml", prefix=WITHOUT_GROUPS)
    assert ended.returncode == 0, ended.stderr
    assert manifest(tmp_path / "record")["host"]["sandbox"]["limits_held_by"] == held


def test_a_run_in_a_sandbox_is_resumed_in_one(tmp_path):
    written_spec(tmp_path, "sys.exit(3)")
    assert evopolicygym(tmp_path, "run", "spec.toml").returncode == 1
    first = manifest(tmp_path / "record")
    assert first["terminal_reason"] == "agent_failed"
    ended = evopolicygym(tmp_path, "resume", "record")
    assert ended.returncode == 0, ended.stderr
    found = manifest(tmp_path / "record")
    assert found["terminal_reason"] == "finished"
    assert [attempt["reason"] for attempt in found["agent_attempts"]] == ["crashed", "handed_off"]
    assert found["host"]["sandbox"] == first["host"]["sandbox"]


def test_a_host_that_is_killed_leaves_nothing_running_and_its_run_is_resumed(tmp_path):
    written_spec(tmp_path, "time.sleep(600)")
    with (tmp_path / "host.log").open("wb") as log:
        host = subprocess.Popen(
            [sys.executable, "-m", "evopolicygym", "run", "spec.toml"],
            cwd=tmp_path,
            env=environment(TMPDIR=str(tmp_path)),
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
    record = tmp_path / "record"
    try:
        told = wait_for(lambda: (record / "workspace" / "feedback" / "latest.json").exists() or host.poll() is not None)
        assert told, (tmp_path / "host.log").read_text()
    finally:
        host.kill()
        host.wait()
    assert wait_for(lambda: processes_mentioning(str(tmp_path)) == []), processes_mentioning(str(tmp_path))
    ended = evopolicygym(tmp_path, "resume", "record")
    assert ended.returncode == 0, ended.stderr
    assert manifest(record)["terminal_reason"] == "finished"


def test_an_agent_in_a_sandbox_that_dies_of_a_signal_can_be_resumed(tmp_path):
    written_spec(tmp_path, "os.kill(os.getpid(), signal.SIGSEGV)")
    ended = evopolicygym(tmp_path, "run", "spec.toml")
    assert ended.returncode == 1
    assert "killed by SIGSEGV" in ended.stderr
    assert [event["returncode"] for event in journal(tmp_path / "record") if event["event"] == "agent_ended"] == [
        -signal.SIGSEGV
    ]
    assert evopolicygym(tmp_path, "resume", "record").returncode == 0


@pytest.mark.parametrize("command", ["resume", "evaluate"])
def test_without_bubblewrap_nothing_is_resumed_or_evaluated(tmp_path, command):
    written_spec(tmp_path, "sys.exit(3)")
    assert evopolicygym(tmp_path, "run", "spec.toml").returncode == 1
    record = tmp_path / "record"
    before = {path: path.stat().st_mtime_ns for path in record.rglob("*") if path.is_file()}
    (tmp_path / "bin").mkdir()
    arguments = ["resume", "record"] if command == "resume" else ["evaluate", "spec.toml", "--episodes", "1"]
    ended = evopolicygym(tmp_path, *arguments, PATH=str(tmp_path / "bin"))
    assert ended.returncode == 2, ended.stderr
    assert "needs bubblewrap" in ended.stderr
    assert {path: path.stat().st_mtime_ns for path in record.rglob("*") if path.is_file()} == before


TYPING = """
told = {"controlling": open("/proc/self/stat").read().rpartition(")")[2].split()[4]}
import fcntl
for place in (0, 1, 2, "/dev/tty"):
    try:
        fcntl.ioctl(place if isinstance(place, int) else os.open(place, os.O_RDWR), 0x5412, b"x")
        told[place] = "typed"
    except OSError as error:
        told[place] = type(error).__name__
print("\\x1b]0;title\\x07" + json.dumps(told), flush=True)
"""


def test_an_agent_has_no_hold_on_the_terminal_of_its_caller(tmp_path):
    """Neither what it types nor what it says reaches it."""
    written_spec(tmp_path, TYPING.replace("\n", "\n    ") + "\n    sys.exit(3)")
    leader, follower = os.openpty()
    shown = b""
    try:
        host = subprocess.Popen(
            [sys.executable, "-m", "evopolicygym", "run", "spec.toml", "--progress", "plain"],
            cwd=tmp_path,
            env=environment(TERM="xterm"),
            stdin=follower,
            stdout=follower,
            stderr=follower,
            start_new_session=True,
            preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
        )
        os.close(follower)
        while True:
            try:
                shown += os.read(leader, 65_536)
            except OSError:  # nobody has the terminal any more
                break
        assert host.wait(60) == 1
    finally:
        os.close(leader)
    said = (tmp_path / "record" / "agent" / "stdout.log").read_text()
    told = json.loads(said.partition("\x07")[2])
    assert told == {"controlling": "0", "0": "PermissionError", "1": "PermissionError", "2": "PermissionError"} | {
        "/dev/tty": "OSError"
    }
    assert b"title" not in shown
    assert b"agent failed" in shown


assert shutil.which("bwrap"), "these tests need bubblewrap: apt-get install bubblewrap"
