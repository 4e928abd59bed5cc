"""``evopolicygym inspect`` on Records of every kind."""

import fcntl
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from pydantic import TypeAdapter
from recorded_runs import Command, write_record

from evopolicygym.agents import AgentEvent
from evopolicygym.cli.documents import DOCUMENTS
from evopolicygym.cli.inspect_command import Wanted, inspect_record
from evopolicygym.cli.recent import remember
from evopolicygym.errors import RecordError

ESCAPE = "\x1b"


class Inspect:
    """Calls what the command calls; gives what it prints. (The command itself is tried in some tests below.)"""

    def __init__(self, capture: pytest.CaptureFixture[str]) -> None:
        self._capture = capture

    def __call__(self, record: Path | None, submission: str | None = None, **wanted: object) -> str:
        inspect_record(record, Wanted(submission=submission, **wanted))  # type: ignore[arg-type]  # as a test names it
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
        "submission-000002 ★         2  40.00  +30.50         1  structural     0.02  selected",
        "Assessment     47.50 on 10 held-out Episodes; the initial Program had 9.500 in training (5.0×)",
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
        "submission-000002  40.00 mean return  best  selected",
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
    assert 'Did you mean "selected"?' in command("inspect", records / "finished", "selectd").stderr


def test_a_misspelt_record_names_the_one_that_was_meant(command: Command, records: Path) -> None:
    done = command("inspect", records / "finishd")
    assert done.returncode == 2
    assert done.stderr.endswith('Did you mean "finished"?\n')
    assert command("inspect", records / "finished" / "run.json").stderr.endswith(f", {records}/finished\n")


def test_a_run_that_did_not_finish_says_how_to_go_on(inspect: Inspect, records: Path) -> None:
    assert inspect(records / "crashed").endswith(f"evopolicygym resume {records}/crashed\n")
    assert "evopolicygym resume" not in inspect(records / "finished")


def test_a_record_of_a_later_form_is_shown_with_a_note(inspect: Inspect, records: Path, tmp_path: Path) -> None:
    shutil.copytree(records / "finished", tmp_path / "later")
    manifest = tmp_path / "later" / "run.json"
    manifest.write_text(manifest.read_text().replace("run-record/v9", "run-record/v99"))
    assert "this Record has the form evopolicygym/run-record/v99" in inspect(tmp_path / "later").replace("\n", " ")
    subprocess.run(["chmod", "-R", "u+w", str(tmp_path)], check=True)


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
    *shown, _, hint = inspect(records).splitlines()
    assert [line.split()[0] for line in shown] == ["Record", "crashed", "failed", "finished"]
    assert "47.50" in shown[-1]
    assert hint == f"evopolicygym compare {records}"
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
    with pytest.raises(RecordError, match="no Run of yours is known yet; start one"):
        inspect(None)


def test_without_a_name_the_latest_record_that_is_still_there_opens(
    inspect: Inspect, records: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    for record in (records / "finished", records / "crashed", tmp_path / "deleted since"):
        remember(record)
    assert "CartPole-v1  crashed" in inspect(None)


def test_every_document_keeps_its_schema(inspect: Inspect, records: Path) -> None:
    for name, document in (
        ("run-report", inspect(records / "finished", as_json=True)),
        ("run-report", inspect(records / "crashed", as_json=True)),
        ("submission-report", inspect(records / "finished", "2", as_json=True)),
        ("program-diff", inspect(records / "finished", diff=("initial", "2"), as_json=True)),
        ("transcript-report", inspect(records / "finished", agent=True, as_json=True)),
    ):
        TypeAdapter(DOCUMENTS[name]).validate_json(document, strict=True)


def test_two_programs_are_compared_line_by_line(inspect: Inspect, records: Path) -> None:
    shown = inspect(records / "finished", diff=("initial", "best"))
    assert "initial Program → submission-000002: structural edit, 1 file, +1 -2 lines" in shown
    assert "-def make_policy(context):\n" in shown
    assert "+# 2\n" in shown
    assert "the same Program" in inspect(records / "finished", diff=("1", "initial"))


def test_a_program_of_another_record_can_be_compared(inspect: Inspect, records: Path) -> None:
    shown = inspect(records / "finished", diff=(f"{records}/crashed:2", "3"))
    assert f"--- {records}/crashed:submission-000002/policy.py" in shown
    assert "+# 3" in shown


def test_hostile_source_is_shown_inert(inspect: Inspect, records: Path, tmp_path: Path) -> None:
    import shutil

    hostile = tmp_path / "hostile"
    shutil.copytree(records / "finished", hostile)
    source = hostile / "submissions" / "submission-000002" / "program"
    source.chmod(0o700)
    (source / "policy.py").chmod(0o600)
    (source / "policy.py").write_text("\tx = '\x1b[31m[bold]\u202e'\n")
    assert "+    x = '\\x1b[31m[bold]\\u202e'" in inspect(hostile, diff=("initial", "2"))
    subprocess.run(["chmod", "-R", "u+w", str(hostile)], check=True)


TRANSCRIPT = [
    AgentEvent(kind="session_start", session_id="s-1", model="some-model"),
    AgentEvent(kind="message", text="I look first.\n  Then I act.\x1b[2J"),
    AgentEvent(kind="reasoning", text="why not"),
    AgentEvent(
        kind="tool_call", tool="shell", command="ls -l", exit_code=3, text="\n".join(f"line {n}" for n in range(40))
    ),
    AgentEvent(kind="usage", turns=1, input_tokens=1200, cached_tokens=1000, output_tokens=34),
    AgentEvent(kind="cost", cost_usd=0.5),
    AgentEvent(kind="error", text="overloaded", code="529", fatal=True),
    AgentEvent(kind="end", failed=True),
]


@pytest.fixture
def talkative(records: Path, tmp_path: Path) -> Path:
    record = tmp_path / "talkative"
    (record / "agent").mkdir(parents=True)
    (record / "events.jsonl").write_bytes((records / "crashed" / "events.jsonl").read_bytes())
    lines = [json.dumps({"time": 100.0 + 61 * n} | event.to_json()) for n, event in enumerate(TRANSCRIPT)]
    (record / "agent" / "transcript.jsonl").write_text("\n".join([*lines, '{"torn']))
    return record


def test_the_transcript_reads_as_a_conversation(inspect: Inspect, talkative: Path) -> None:
    lines = inspect(talkative, agent=True).splitlines()
    assert lines[:9] == [
        "0:00:00  session some-model s-1",
        "0:01:01  says",
        "  I look first.",
        "    Then I act.\\x1b[2J",
        "0:02:02  thinks",
        "  why not",
        "0:03:03  $ ls -l  exit code 3",
        "  line 0",
        "  line 1",
    ]
    assert "  … 28 more lines" in lines
    assert "0:04:04  so far 1 turn, 1200 tokens in (1000 cached), 34 out" in lines
    assert "0:06:06  fatal error 529" in lines
    assert lines[-1] == "in all: 1 turn, 1 tool call, 1200 tokens in (1000 cached), 34 out, $0.50"


def test_the_transcript_as_json_is_one_document(inspect: Inspect, talkative: Path) -> None:
    document = json.loads(inspect(talkative, agent=True, as_json=True))
    assert [event["kind"] for event in document["events"]] == [event.kind for event in TRANSCRIPT]
    assert document["usage"]["cost_usd"] == 0.5


def test_an_agent_without_a_transcript_is_shown_by_its_output(inspect: Inspect, talkative: Path) -> None:
    (talkative / "agent" / "transcript.jsonl").unlink()
    (talkative / "agent" / "stdout.log").write_text("hello\n\nthere\n")
    assert inspect(talkative, agent=True).split() == [
        *("says", "hello", "says", "there", "in", "all:", "nothing", "was", "told", "of", "usage")
    ]


def test_following_a_run_that_has_ended_tells_all_of_it(command: Command, records: Path) -> None:
    done = command("inspect", records / "finished", "--follow")
    assert "Run ended: finished" in done.stderr
    assert "CartPole-v1  finished" in done.stdout
    events = command("inspect", records / "finished", "--follow", "--json").stdout.splitlines()
    assert json.loads(events[0])["event"] == "run_started"
    assert json.loads(events[-1])["event"] == "run_committed"


def test_following_tells_what_is_to_come(records: Path, tmp_path: Path) -> None:
    record = tmp_path / "going-on"
    record.mkdir()
    *first, last = (records / "finished" / "events.jsonl").read_bytes().splitlines(keepends=True)
    (record / "events.jsonl").write_bytes(b"".join(first))
    with open(record / "events.jsonl", "ab", buffering=0) as journal:
        fcntl.flock(journal, fcntl.LOCK_EX)
        process = subprocess.Popen(
            [sys.executable, "-m", "evopolicygym", "inspect", str(record), "--follow", "--json"],
            stdout=subprocess.PIPE,
            text=True,
        )
        assert process.stdout is not None
        told = [json.loads(process.stdout.readline())["event"] for _ in first]
        assert "run_committed" not in told
        journal.write(last)
        assert json.loads(process.stdout.readline())["event"] == "run_committed"
        fcntl.flock(journal, fcntl.LOCK_UN)
    rest, _ = process.communicate(timeout=60)
    assert (rest, process.returncode) == ("", 0)


@pytest.mark.parametrize(
    ("wanted", "complaint"),
    [
        ({"submission": "1", "agent": True}, "SUBMISSION and --agent exclude each other"),
        ({"agent": True, "follow": True}, "--follow shows the Run or its --events, not --agent"),
    ],
)
def test_parts_that_exclude_each_other_are_refused(
    inspect: Inspect, records: Path, wanted: dict[str, object], complaint: str
) -> None:
    with pytest.raises(RecordError, match=complaint):
        inspect(records / "finished", **wanted)


def test_many_submissions_are_cut_to_the_latest_the_best_and_the_selected(
    inspect: Inspect, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("evopolicygym.cli.inspect_command._ROWS_SHOWN", 5)
    write_record(tmp_path / "long", tmp_path / "program", scores=[float(number == 2) for number in range(12)])
    shown = inspect(tmp_path / "long")
    assert "7 earlier Submissions not shown" in shown
    assert "submission-000003 ★" in shown
    assert "submission-000012" in shown
    assert "--all" in shown
    assert shown.count("\nsubmission-") == 5
    assert inspect(tmp_path / "long", all_rows=True).count("\nsubmission-") == 12
    subprocess.run(["chmod", "-R", "u+w", str(tmp_path)], check=True)


def test_a_locale_without_the_characters_gets_plain_ones(command: Command, records: Path) -> None:
    shown = command("inspect", records / "finished", PYTHONIOENCODING="ascii").stdout
    assert "submission-000003           2  38.00   -2.00" in shown
    assert "submission-000002 *" in shown
    assert "initial Program 9.500  _##" in shown
    assert "?" not in shown
    assert json.loads(command("inspect", records / "failed", "--json", PYTHONIOENCODING="ascii").stdout)["faults"] == []


def test_a_reader_that_goes_away_is_no_error(records: Path) -> None:
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
