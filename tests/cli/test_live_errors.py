"""Policy errors as the display groups them, and the pager."""

import os
import subprocess
import sys
import threading
from pathlib import Path

from evopolicygym.cli.live import LiveProgress
from evopolicygym.cli.policy_errors import ErrorGroups, error_line
from evopolicygym.record import RunEvent


def test_failures_of_one_kind_at_one_place_are_one_group(records: Path) -> None:
    groups = ErrorGroups()
    groups.read(records / "finished", ["submission-000001", "submission-000002"])
    groups.read(records / "finished", ["submission-000002", "submission-000003"])
    (group,) = groups.ranked
    assert error_line(group).plain == "×3 IndexError at policy.py:31 in act: IndexError in the Policy"


def test_groups_come_most_frequent_first_and_know_failures_without_exceptions() -> None:
    groups = ErrorGroups()
    groups.add({"failure": "timeout"})
    groups.add({"failure": None})
    for _ in range(2):
        groups.add({"failure": "exception", "exception_type": "KeyError", "frames": ["a.py:1 in f", "b.py:2 in g"]})
    assert [error_line(group).plain for group in groups.ranked] == ["×2 KeyError at b.py:2 in g", "×1 timeout"]


def test_a_record_without_logs_has_no_groups(tmp_path: Path) -> None:
    groups = ErrorGroups()
    groups.read(tmp_path, ["submission-000001"])
    assert groups.ranked == []


def test_the_live_display_counts_fast_episodes_and_reads_the_errors(records: Path) -> None:
    live = LiveProgress(records / "finished")

    def tell(name: str, **fields: object) -> None:
        live.on_event(RunEvent(name, 1, 1, fields))  # type: ignore[arg-type]  # what a journal may hold

    tell("run_started", episode_budget=1000)
    tell("evaluation_started", submission_id="submission-000001", episode_count=500, episodes_remaining=500)
    threads = [threading.Thread(target=lambda: live._frame(80, 24)) for _ in range(2)]
    for thread in threads:
        thread.start()
    for _ in range(400):
        tell("episode_completed", failure=None)
    tell("episode_completed", failure="exception")
    for thread in threads:
        thread.join()
    live._frame(80, 24)
    assert live.view.running is not None
    assert (live.view.running.completed, live.view.running.failed) == (401, 1)
    tell("submission_published", submission_id="submission-000001", score=1.0, policy_failures=1)
    from rich.console import Console

    console = Console(width=80, markup=False)
    with console.capture() as capture:
        console.print(live._frame(80, 24))
    assert "×1 IndexError at policy.py:31 in act" in capture.get()


def test_long_output_on_a_terminal_goes_through_the_pager(records: Path, tmp_path: Path) -> None:
    pager = tmp_path / "pager"
    pager.write_text("#!/bin/sh\necho 'PAGED'\ncat\n")
    pager.chmod(0o755)
    command = [sys.executable, "-m", "evopolicygym", "inspect", str(records / "finished"), "--events"]

    def shown(*more: str) -> bytes:
        ours, theirs = os.openpty()
        environment = os.environ | {"PAGER": str(pager), "TERM": "xterm-256color"}
        process = subprocess.Popen([*command, *more], stdin=theirs, stdout=theirs, stderr=theirs, env=environment)
        os.close(theirs)
        output = b""
        try:
            while data := os.read(ours, 65536):
                output += data
        except OSError:  # the last writer is gone
            pass
        os.close(ours)
        assert process.wait(60) == 0
        return output

    assert shown().startswith(b"PAGED")
    assert b"run_committed" in shown()
    assert b"PAGED" not in shown("--no-pager")
