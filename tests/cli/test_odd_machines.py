"""The command started by something that leaves it odd streams, signals or limits."""

import json
import os
import resource
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from recorded_runs import Command

SECONDS = 60.0
FINISH = 'submit("0:2")\nsession("finish", "submission-000001")\n'


def started(*arguments: str | Path, before: str = "", **streams: Any) -> subprocess.CompletedProcess[str]:
    """Run the command in a shell that does something before."""
    command = f'{before} exec "$@"' if not before.startswith(">") else f'exec "$@" {before}'
    whole = ["/bin/sh", "-c", command, "sh", sys.executable, "-m", "evopolicygym", *map(str, arguments)]
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    return subprocess.run(
        whole,
        **{"capture_output": True, "stdin": subprocess.DEVNULL} | streams,
        env=environment,
        text=True,
        timeout=SECONDS,
    )


def test_closed_streams_lead_nowhere(tmp_path: Path) -> None:
    done = started("init", tmp_path / "mine", before=">&- 2>&- <&-")
    assert done.returncode == 0
    assert (tmp_path / "mine" / "spec.toml").is_file()


def test_what_is_printed_with_standard_output_closed_does_not_get_into_a_record(records: Path) -> None:
    done = started("inspect", records / "finished", before=">&-")
    assert (done.returncode, done.stderr) == (0, "")


def test_a_run_without_standard_error_finishes(write_spec: Callable[[str], Path], tmp_path: Path) -> None:
    done = started("run", write_spec(FINISH), "--record-to", tmp_path / "record", before=">&- 2>&-")
    assert done.returncode == 0
    assert json.loads((tmp_path / "record" / "run.json").read_text())["terminal_reason"] == "finished"


def test_a_full_standard_error_does_not_turn_a_finished_run_into_a_failed_one(
    write_spec: Callable[[str], Path], tmp_path: Path
) -> None:
    with open("/dev/full", "w") as full:
        done = started(
            "run",
            write_spec(FINISH),
            "--record-to",
            tmp_path / "record",
            capture_output=False,
            stdout=subprocess.PIPE,
            stderr=full,
        )
    assert done.returncode == 0
    assert "resume" not in done.stdout


def test_an_error_that_cannot_be_told_keeps_its_exit_code(tmp_path: Path) -> None:
    with open("/dev/full", "w") as full:
        done = started("inspect", tmp_path, capture_output=False, stdout=subprocess.PIPE, stderr=full)
    assert done.returncode == 2


@pytest.mark.parametrize("arguments", [["schema"], ["--version"], ["--help"]])
def test_a_full_standard_output_is_named(arguments: list[str]) -> None:
    with open("/dev/full", "w") as full:
        done = started(*arguments, capture_output=False, stdout=full, stderr=subprocess.PIPE)
    assert (done.returncode, done.stderr) == (1, "evopolicygym: No space left on device: standard output\n")


def test_the_sandbox_is_tried_although_ends_of_children_were_ignored(command: Command) -> None:
    plain = command("check", "--sandbox", "--json")
    ignoring = started("check", "--sandbox", "--json", before="trap '' CHLD;")
    assert ignoring.stdout == plain.stdout


def test_a_record_can_be_read_with_little_memory(records: Path) -> None:
    done = started("inspect", records / "finished", preexec_fn=lambda: _limit(resource.RLIMIT_AS, 400_000_000))
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("arguments", [("run", "--record-to", "record"), ("check",)])
def test_a_working_directory_that_is_gone_is_named(
    arguments: tuple[str, ...], write_spec: Callable[[str], Path], tmp_path: Path
) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    command, *options = arguments
    done = started(command, write_spec(FINISH), *options, before=f"cd {gone} && rmdir {gone} &&")
    assert done.returncode == 1
    assert "the working directory" in done.stderr
    assert "bug" not in done.stderr


def test_a_home_that_there_is_not_is_named(command: Command, write_spec: Callable[[str], Path]) -> None:
    done = command("run", write_spec(FINISH), "--record-to", "~no-such-user/record")
    assert done.returncode == 2
    assert done.stderr == (
        "evopolicygym: '~no-such-user/record': there is no home directory that ~no-such-user stands for\n"
    )


def test_a_thread_that_cannot_be_started_is_no_bug() -> None:
    script = (
        "import threading; from evopolicygym.cli.failures import guarded\n"
        "threading.stack_size(2**46)\n"
        "guarded(threading.Thread(target=print).start)"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=SECONDS)
    assert (done.returncode, done.stderr) == (
        1,
        "evopolicygym: can't start new thread: a limit on processes or memory is too low (ulimit -u, ulimit -v)\n",
    )


@pytest.mark.parametrize(
    "settings",
    [
        ['agent.command=["~no-such-user/it"]'],
        ["execution.use=sandbox", 'execution.visible=["~no-such-user/it"]'],
        ['program.path="~no-such-user/it"'],
    ],
)
def test_what_is_in_a_home_that_there_is_not_is_named(
    settings: list[str], command: Command, write_spec: Callable[[str], Path]
) -> None:
    done = command("run", write_spec(FINISH), *(f"--set={setting}" for setting in settings), "--dry-run")
    assert done.returncode == 2
    assert "~no-such-user/it" in done.stderr
    assert "RuntimeError" not in done.stderr


@pytest.mark.parametrize(("arguments", "code"), [(["agents"], 0), (["inspect"], 2), (["check"], 0)])
def test_a_user_without_a_home_is_served(
    arguments: list[str], code: int, write_spec: Callable[[str], Path], tmp_path: Path
) -> None:
    spec = [write_spec(FINISH)] if arguments == ["check"] else []
    # No user of this number is known, and the home of the one who runs the tests is not asked for.
    script = (
        "import os, pwd, sys\n"
        "os.environ = {'PATH': os.environ['PATH']}\n"
        "pwd.getpwuid = lambda number: {}[number]\n"
        "from evopolicygym.cli import main\n"
        "main()"
    )
    done = subprocess.run(
        [sys.executable, "-c", script, *arguments, *spec], capture_output=True, text=True, timeout=SECONDS, cwd=tmp_path
    )
    assert (done.returncode, "home" in done.stderr) == (code, False), done.stderr
    assert not (tmp_path / "~").exists()


def _limit(what: int, value: int) -> None:
    resource.setrlimit(what, (value, value))
