"""The command as a whole: help, exit codes, pipes, whole Runs."""

import json
import os
import signal
import subprocess
import sys
import time
import tomllib
from collections.abc import Callable
from pathlib import Path

import pytest
from recorded_runs import Command
from run_scenarios import WHOLE_JOB

import evopolicygym

WriteSpec = Callable[..., Path]


def test_help_answers_to_both_of_its_names(command: Command) -> None:
    for arguments in (("--help",), ("run", "-h")):
        done = command(*arguments)
        assert done.returncode == 0
        assert "Usage: evopolicygym" in done.stdout
        assert "\x1b" not in done.stdout
        assert "<bool>" not in done.stdout


def test_help_loads_nothing_heavy() -> None:
    script = (
        "import sys\nfrom evopolicygym.cli import main\nsys.argv = ['evopolicygym', '--help']\n"
        "try:\n    main()\nexcept SystemExit:\n    pass\n"
        "heavy = {'pydantic', 'gymnasium', 'numpy', 'rich.live', 'cloudpickle', 'tomli_w', 'platformdirs'}\n"
        "print('HEAVY', sorted(heavy & set(sys.modules)))\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60)
    assert done.stdout.endswith("HEAVY []\n")


def test_the_version_is_printed(command: Command) -> None:
    assert command("--version").stdout == f"evopolicygym {evopolicygym.__version__}\n"


def test_the_schema_is_json(command: Command) -> None:
    assert json.loads(command("schema").stdout)["title"] == "EvoPolicyGym run spec"


@pytest.mark.parametrize("arguments", [["nonsense"], ["run"], ["run", "x.toml", "--progress", "fancy"]])
def test_a_usage_error_is_exit_code_2(command: Command, arguments: list[str]) -> None:
    done = command(*arguments)
    assert done.returncode == 2
    assert done.stdout == ""
    assert "Traceback" not in done.stderr


def test_a_spec_error_is_exit_code_2_without_a_traceback_or_a_record(command: Command, tmp_path: Path) -> None:
    (tmp_path / "spec.toml").write_text("[run]\nseed = -1\n")
    done = command("run", tmp_path / "spec.toml")
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr.startswith(f"evopolicygym: {tmp_path}/spec.toml: 5 problems\n")
    assert "Traceback" not in done.stderr
    assert [entry.name for entry in tmp_path.iterdir()] == ["spec.toml"]


def test_debug_adds_the_traceback(command: Command, tmp_path: Path) -> None:
    (tmp_path / "spec.toml").write_text("")
    assert "Traceback" in command("run", tmp_path / "spec.toml", "--debug").stderr


def test_debug_may_stand_before_the_command(command: Command, tmp_path: Path) -> None:
    (tmp_path / "spec.toml").write_text("")
    assert "Traceback" in command("--debug", "run", tmp_path / "spec.toml").stderr


def test_a_whole_run_ends_with_a_summary_and_can_be_inspected_and_repeated(
    command: Command, write_spec: WriteSpec, tmp_path: Path
) -> None:
    spec = write_spec(WHOLE_JOB)
    done = command("run", spec, "--set", "run.name=first")
    assert done.returncode == 0, done.stderr
    assert "test/target  finished" in done.stdout
    assert "Run ended: finished" in done.stderr
    assert "\x1b" not in done.stdout + done.stderr
    (record,) = (tmp_path / "runs").iterdir()
    assert record.name.startswith("first-")
    assert done.stdout.splitlines()[-1].startswith("evopolicygym inspect ")
    assert "test/target  finished" in command("inspect").stdout
    again = command("run", record / "spec.toml", "--progress", "off", "--json")
    assert again.returncode == 0, again.stderr
    report = json.loads(again.stdout)
    assert report["selected_submission_id"] == "submission-000002"
    assert [one["score"] for one in report["submissions"]] == [
        one["score"] for one in json.loads(command("inspect", record, "--json").stdout)["submissions"]
    ]
    assert len(list((tmp_path / "runs").iterdir())) == 2


def test_a_run_that_does_not_finish_is_exit_code_1_and_says_why_last(
    command: Command, write_spec: WriteSpec, tmp_path: Path
) -> None:
    done = command("run", write_spec("sys.exit(3)"), "--record-to", tmp_path / "here")
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1].startswith("evopolicygym: the Run ended: agent_failed")
    assert "test/target  agent failed" in done.stdout
    assert done.stdout.splitlines()[-1].startswith("evopolicygym resume ")
    assert (tmp_path / "here" / "run.json").is_file()


def test_progress_json_is_one_event_a_line(command: Command, write_spec: WriteSpec) -> None:
    done = command("run", write_spec(WHOLE_JOB), "--progress", "json")
    events = [json.loads(line)["event"] for line in done.stdout.splitlines()]
    assert events[0] == "run_started"
    assert events[-1] == "run_committed"
    assert events.count("submission_published") == 2


def test_a_dry_run_prints_the_resolved_spec_and_starts_nothing(
    command: Command, write_spec: WriteSpec, tmp_path: Path
) -> None:
    done = command("run", write_spec(WHOLE_JOB), "--dry-run")
    assert done.returncode == 0, done.stderr
    resolved = tomllib.loads(done.stdout)
    assert resolved["program"]["path"] == str(tmp_path / "policy")
    assert "Nothing was started." in done.stderr
    assert not (tmp_path / "runs").exists()


def test_an_agent_that_is_not_installed_is_found_by_the_dry_run(command: Command, write_spec: WriteSpec) -> None:
    done = command("run", write_spec(""), "--dry-run", "--set", 'agent.command=["no-such-agent"]')
    assert done.returncode == 2
    assert "no-such-agent" in done.stderr


def test_a_split_that_there_is_not_is_told_before_anything_starts(
    command: Command, write_spec: WriteSpec, tmp_path: Path
) -> None:
    spec = write_spec(WHOLE_JOB)
    for arguments in ((), ("--dry-run",)):
        done = command("run", spec, "--set", "assessment.split=hidden", "--set", "assessment.episodes=2", *arguments)
        assert done.returncode == 1
        assert "assessment.split: test/target: episodes('hidden', count=1)" in done.stderr
        assert not (tmp_path / "runs").exists()


def test_a_record_that_exists_is_told_by_the_option_that_names_it(
    command: Command, write_spec: WriteSpec, tmp_path: Path
) -> None:
    (tmp_path / "taken").mkdir()
    done = command("run", write_spec(WHOLE_JOB), "--record-to", tmp_path / "taken")
    assert done.returncode == 2
    assert f"\n  --record-to {tmp_path}/taken  run.record_to = " in done.stderr


def test_ctrl_c_is_exit_code_130_with_a_readable_record(write_spec: WriteSpec, tmp_path: Path) -> None:
    spec = write_spec('submit("0:2")\npathlib.Path("waiting").touch()\ntime.sleep(60)')
    process = subprocess.Popen(
        [sys.executable, "-m", "evopolicygym", "run", str(spec), "--record-to", str(tmp_path / "record")],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    deadline = time.monotonic() + 60
    while not (tmp_path / "record" / "workspace" / "waiting").exists() and time.monotonic() < deadline:
        time.sleep(0.05)
    for _ in range(3):
        process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "test/target  interrupted" in out
    assert err.splitlines()[-1] == "evopolicygym: interrupted"
    assert json.loads((tmp_path / "record" / "run.json").read_text())["terminal_reason"] == "interrupted"


def test_evaluate_shows_the_mean_and_groups_policy_errors(
    command: Command, write_spec: WriteSpec, tmp_path: Path
) -> None:
    spec = write_spec("")
    broken = tmp_path / "broken"
    broken.mkdir()
    (broken / "policy.py").write_text("def make_policy(context):\n    return [][1]\n")
    good = command("evaluate", spec, "--episodes", "6")
    assert good.returncode == 0, good.stderr
    assert "95 % interval" in good.stdout
    bad = command("evaluate", spec, "--program", broken, "--episodes", "6")
    assert "×6 IndexError at policy.py:2 in make_policy" in bad.stdout
    report = json.loads(command("evaluate", spec, "--episodes", "6", "--seed", "3", "--json").stdout)
    assert (len(report["episodes"]), report["seed"], report["policy_failures"]) == (6, 3, 0)


def test_on_a_terminal_the_live_display_draws_and_leaves_it_clean(write_spec: WriteSpec) -> None:
    spec = write_spec(WHOLE_JOB)
    shown, code = in_a_terminal([sys.executable, "-m", "evopolicygym", "run", str(spec)], TERM="xterm-256color")
    assert code == 0
    assert b"Agent at work" in shown
    assert shown.rfind(b"\x1b[?25h") > shown.rfind(b"\x1b[?25l")
    assert shown.rstrip().splitlines()[-1].find(b"evopolicygym inspect") >= 0


def test_a_dumb_terminal_gets_plain_lines(write_spec: WriteSpec) -> None:
    spec = write_spec(WHOLE_JOB)
    shown, code = in_a_terminal([sys.executable, "-m", "evopolicygym", "run", str(spec)], TERM="dumb")
    assert code == 0
    assert b"Run ended: finished" in shown
    assert b"\x1b" not in shown


def test_no_color_leaves_colours_out(records: Path) -> None:
    command = [sys.executable, "-m", "evopolicygym", "inspect", "--no-pager", str(records / "finished")]
    coloured, _ = in_a_terminal(command, TERM="xterm-256color")
    plain, _ = in_a_terminal(command, TERM="xterm-256color", NO_COLOR="1")
    assert b"\x1b[1;32m" in coloured
    assert b"32m" not in plain


def in_a_terminal(command: list[str], **environment: str) -> tuple[bytes, int]:
    """What a command writes to a terminal of 80 by 24, and its exit code."""
    ours, theirs = os.openpty()
    import fcntl
    import struct
    import termios

    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
    kept = {name: value for name, value in os.environ.items() if name not in ("COLUMNS", "NO_COLOR")}
    process = subprocess.Popen(command, stdin=theirs, stdout=theirs, stderr=theirs, env=kept | environment)
    os.close(theirs)
    shown = b""
    try:
        while True:
            try:
                data = os.read(ours, 65536)
            except OSError:  # the last writer is gone
                break
            if not data:
                break
            shown += data
        return shown, process.wait(60)
    finally:
        os.close(ours)
        if process.poll() is None:
            process.kill()
            process.wait(60)
