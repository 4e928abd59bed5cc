"""``evopolicygym inspect`` on Records of every kind."""

import json
import os
from pathlib import Path

import pytest
from recorded_runs import Command

from evopolicygym.cli.inspect_command import inspect_record
from evopolicygym.cli.recent import remember
from evopolicygym.errors import RecordError

ESCAPE = "\x1b"


class Inspect:
    """Calls what the command calls; gives what it prints. (The command itself is tried in some tests below.)"""

    def __init__(self, capture: pytest.CaptureFixture[str]) -> None:
        self._capture = capture

    def __call__(
        self, record: Path | None, submission: str | None = None, *, events: bool = False, as_json: bool = False
    ) -> str:
        inspect_record(record, submission, show_events=events, as_json=as_json)
        return self._capture.readouterr().out


@pytest.fixture
def inspect(capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Inspect:
    monkeypatch.delenv("COLUMNS", raising=False)
    return Inspect(capfd)


def test_a_finished_record_is_summed_up(command: Command, records: Path) -> None:
    done = command("inspect", records / "finished")
    assert done.returncode == 0
    assert done.stderr == ""
    for expected in (
        "CartPole-v1  finished",
        "best 40.00 (submission-000002), initial Program 9.500  ▁██",
        "6 of 10 Episodes, 3 of 10 Submissions",
        "submission-000002 ★         2  40.00  +30.50         1     0.02  selected",
        "Assessment       47.50 on 10 held-out Episodes; the initial Program had 9.500 in training (5.0×)",
    ):
        assert expected in done.stdout


def test_hostile_text_is_shown_inert(inspect: Inspect, records: Path) -> None:
    failed = records / "failed"
    for shown in (inspect(failed), inspect(failed, "submission-000001"), inspect(failed, events=True)):
        assert "[bold red]not markup[/]" in shown
        assert not {ESCAPE, "\x07", "\u202e"} & set(shown)


def test_a_crashed_record_says_so(inspect: Inspect, records: Path) -> None:
    assert "CartPole-v1  crashed" in inspect(records / "crashed")


def test_one_submission_shows_feedback_errors_episodes_and_artifacts(inspect: Inspect, records: Path) -> None:
    shown = inspect(records / "finished", "2")
    for expected in (
        "submission-000002  40.00 mean return  selected",
        "└── note  IndexError in the Policy",
        "×1 IndexError at policy.py:31 in act: IndexError in the Policy",
        "      3       –      2  exception",
        "trace.jsonl   3 B",
    ):
        assert expected in shown


def test_best_and_selected_are_names_of_submissions(inspect: Inspect, records: Path) -> None:
    assert inspect(records / "failed", "best").startswith("submission-000002")
    assert inspect(records / "finished", "selected").startswith("submission-000002")


def test_an_unknown_submission_names_those_there_are(command: Command, records: Path) -> None:
    done = command("inspect", records / "finished", "9")
    assert done.returncode == 2
    assert 'no Submission "submission-000009"; it has submission-000001 to submission-000003' in done.stderr


def test_json_is_one_document(inspect: Inspect, records: Path) -> None:
    report = json.loads(inspect(records / "finished", as_json=True))
    assert report["best_submission_id"] == "submission-000002"
    assert [one["score"] for one in report["submissions"]] == [9.5, 40.0, 38.0]
    assert report["assessment"]["score"] == 47.5
    one = json.loads(inspect(records / "finished", "1", as_json=True))
    assert one["feedback"]["score"] == 9.5


def test_events_as_json_are_the_lines_of_the_journal(inspect: Inspect, records: Path) -> None:
    shown = inspect(records / "finished", events=True, as_json=True)
    assert shown == (records / "finished" / "events.jsonl").read_text()


def test_a_folder_of_records_is_listed(inspect: Inspect, records: Path) -> None:
    shown = inspect(records).splitlines()
    assert [line.split()[0] for line in shown] == ["Record", "crashed", "failed", "finished"]
    assert "47.50" in shown[-1]
    assert [one["status"] for one in json.loads(inspect(records, as_json=True))] == [
        "crashed",
        "finished",
        "finished",
    ]


def test_narrow_output_has_fewer_columns(inspect: Inspect, records: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    shown = inspect(records / "finished")
    assert "2 ★" in shown
    assert max(map(len, shown.splitlines())) <= max(
        40, len(f"evopolicygym inspect {records}/finished submission-000002")
    )


def test_damage_is_named_and_the_rest_is_shown(inspect: Inspect, records: Path, tmp_path: Path) -> None:
    damaged = tmp_path / "damaged"
    damaged.mkdir()
    journal = (records / "finished" / "events.jsonl").read_bytes().splitlines(keepends=True)
    journal[3] = b"not json\n"
    (damaged / "events.jsonl").write_bytes(b"".join(journal) + b'{"torn')
    (damaged / "run.json").write_text("{")
    shown = inspect(damaged)
    assert "damaged  events.jsonl:4" in shown
    assert "damaged  run.json" in shown
    assert "submission-000002" in shown


def test_what_is_no_record_is_explained(command: Command, tmp_path: Path) -> None:
    done = command("inspect", tmp_path)
    assert done.returncode == 2
    assert "is not a Record" in done.stderr
    assert "Traceback" not in done.stderr


def test_without_a_record_known_it_asks_for_one(
    inspect: Inspect, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    with pytest.raises(RecordError, match="name one"):
        inspect(None)


def test_without_a_name_the_latest_record_that_is_still_there_opens(
    inspect: Inspect, records: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    for record in (records / "finished", records / "crashed", tmp_path / "deleted since"):
        remember(record)
    assert "CartPole-v1  crashed" in inspect(None)


def test_a_reader_that_goes_away_is_no_error(records: Path) -> None:
    import subprocess
    import sys

    ours, theirs = os.pipe()
    os.close(ours)
    try:
        done = subprocess.run(
            [sys.executable, "-m", "evopolicygym", "inspect", str(records / "finished"), "--events"],
            stdout=theirs,
            stderr=subprocess.PIPE,
            timeout=60,
        )
    finally:
        os.close(theirs)
    assert done.stderr == b""
    assert done.returncode in (1, 141)
