"""``evopolicygym inspect`` on Records of every kind."""

import json
import os
from pathlib import Path

from conftest import Command

ESCAPE = "\x1b"


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


def test_hostile_text_is_shown_inert(command: Command, records: Path) -> None:
    for arguments in ((), ("submission-000001",), ("--events",)):
        done = command("inspect", records / "failed", *arguments)
        assert done.returncode == 0
        assert "[bold red]not markup[/]" in done.stdout
        assert not {ESCAPE, "\x07", "\u202e"} & set(done.stdout)


def test_a_crashed_record_says_so(command: Command, records: Path) -> None:
    assert "CartPole-v1  crashed" in command("inspect", records / "crashed").stdout


def test_one_submission_shows_feedback_errors_episodes_and_artifacts(command: Command, records: Path) -> None:
    shown = command("inspect", records / "finished", "2").stdout
    for expected in (
        "submission-000002  40.00 mean return  selected",
        "└── note  IndexError in the Policy",
        "×1 IndexError at policy.py:31 in act: IndexError in the Policy",
        "      3       –      2  exception",
        "trace.jsonl   3 B",
    ):
        assert expected in shown


def test_best_and_selected_are_names_of_submissions(command: Command, records: Path) -> None:
    assert command("inspect", records / "failed", "best").stdout.startswith("submission-000002")
    assert command("inspect", records / "finished", "selected").stdout.startswith("submission-000002")


def test_an_unknown_submission_names_those_there_are(command: Command, records: Path) -> None:
    done = command("inspect", records / "finished", "9")
    assert done.returncode == 2
    assert 'no Submission "submission-000009"; it has submission-000001 to submission-000003' in done.stderr


def test_json_is_one_document(command: Command, records: Path) -> None:
    report = json.loads(command("inspect", records / "finished", "--json").stdout)
    assert report["best_submission_id"] == "submission-000002"
    assert [one["score"] for one in report["submissions"]] == [9.5, 40.0, 38.0]
    assert report["assessment"]["score"] == 47.5
    one = json.loads(command("inspect", records / "finished", "1", "--json").stdout)
    assert one["feedback"]["score"] == 9.5


def test_events_as_json_are_the_lines_of_the_journal(command: Command, records: Path) -> None:
    shown = command("inspect", records / "finished", "--events", "--json").stdout
    assert shown == (records / "finished" / "events.jsonl").read_text()


def test_a_folder_of_records_is_listed(command: Command, records: Path) -> None:
    shown = command("inspect", records).stdout.splitlines()
    assert [line.split()[0] for line in shown] == ["Record", "crashed", "failed", "finished"]
    assert "47.50" in shown[-1]
    assert [one["status"] for one in json.loads(command("inspect", records, "--json").stdout)] == [
        "crashed",
        "finished",
        "finished",
    ]


def test_narrow_output_has_fewer_columns(command: Command, records: Path) -> None:
    shown = command("inspect", records / "finished", COLUMNS="40").stdout
    assert "2 ★" in shown
    assert max(map(len, shown.splitlines())) <= max(
        40, len(f"evopolicygym inspect {records}/finished submission-000002")
    )


def test_damage_is_named_and_the_rest_is_shown(command: Command, records: Path, tmp_path: Path) -> None:
    damaged = tmp_path / "damaged"
    damaged.mkdir()
    journal = (records / "finished" / "events.jsonl").read_bytes().splitlines(keepends=True)
    journal[3] = b"not json\n"
    (damaged / "events.jsonl").write_bytes(b"".join(journal) + b'{"torn')
    (damaged / "run.json").write_text("{")
    done = command("inspect", damaged)
    assert done.returncode == 0
    assert "damaged  events.jsonl:4" in done.stdout
    assert "damaged  run.json" in done.stdout
    assert "submission-000002" in done.stdout


def test_what_is_no_record_is_explained(command: Command, tmp_path: Path) -> None:
    done = command("inspect", tmp_path)
    assert done.returncode == 2
    assert "is not a Record" in done.stderr
    assert "Traceback" not in done.stderr


def test_without_a_record_known_it_asks_for_one(command: Command, tmp_path: Path) -> None:
    done = command("inspect", XDG_STATE_HOME=str(tmp_path))
    assert done.returncode == 2
    assert "name one" in done.stderr


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
