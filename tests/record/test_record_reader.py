"""Records open whatever happened to them, and say what is wrong."""

import json
import os
import random
import signal
import subprocess
import sys
import textwrap
import threading
import time
from pathlib import Path

import pytest
from record_types import Publish
from record_values import COMPLETED, FAILED, crash

from evopolicygym.artifacts import Artifact
from evopolicygym.errors import RecordError
from evopolicygym.record import RecordWriter, RunEvent, open_run
from evopolicygym.record.events import EpisodeCompleted, Notice, RunCommitted
from evopolicygym.record.storage import remove_tree, replace_file


def test_what_is_no_record_is_refused_with_what_was_found(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(RecordError, match="does not exist"):
        open_run(tmp_path / "nothing")
    with pytest.raises(RecordError, match="is not a directory"):
        open_run(tmp_path / "file")
    with pytest.raises(RecordError, match=r"holds neither run\.json nor events\.jsonl"):
        open_run(tmp_path)


def test_a_running_record_can_be_read_while_it_is_written(writer: RecordWriter, publish: Publish) -> None:
    writer.write_manifest({"schema": "evopolicygym/run-record/v9", "status": "running"})
    publish(1)
    run = open_run(writer.path)
    assert (run.status, run.terminal_reason) == ("running", None)
    assert [submission.submission_id for submission in run.submissions] == ["submission-000001"]
    assert run.check() == []


def test_a_committed_record_is_finished_whatever_the_reason(writer: RecordWriter) -> None:
    writer.write_manifest({"status": "interrupted", "terminal_reason": "interrupted", "submissions": []})
    writer.close()
    run = open_run(writer.path)
    assert (run.status, run.terminal_reason, run.submissions) == ("finished", "interrupted", ())


def test_a_run_whose_last_line_is_committed_is_finished_though_its_manifest_is_behind(writer: RecordWriter) -> None:
    writer.write_manifest({"status": "running"})
    writer.journal.append(RunCommitted("finished"))
    writer.close()
    run = open_run(writer.path)
    assert (run.status, run.terminal_reason) == ("finished", "finished")


def test_a_record_whose_host_was_killed_is_crashed_and_holds_every_line(place: Path) -> None:
    code = textwrap.dedent(
        """
        import sys, time
        from evopolicygym.record import RecordWriter
        from evopolicygym.record.events import Notice
        writer = RecordWriter.create(sys.argv[1])
        writer.write_manifest({"status": "running"})
        for number in range(100):
            writer.journal.append(Notice(f"line {number}"))
        print("ready", flush=True)
        time.sleep(600)
        """
    )
    with subprocess.Popen([sys.executable, "-c", code, str(place / "run")], stdout=subprocess.PIPE, text=True) as host:
        try:
            assert host.stdout is not None
            assert host.stdout.readline() == "ready\n"
            assert open_run(place / "run").status == "running"
        finally:
            host.send_signal(signal.SIGKILL)
    run = open_run(place / "run")
    assert run.status == "crashed"
    assert len(list(run.events("notice"))) == 100
    assert run.check() == []


def test_looking_at_the_status_never_stands_in_an_owners_way(writer: RecordWriter) -> None:
    code = "import fcntl, sys; fcntl.flock(open(sys.argv[1]), fcntl.LOCK_EX | fcntl.LOCK_NB)"
    writer.close()
    looking = threading.Event()

    def look() -> None:
        while not looking.is_set():
            assert open_run(writer.path).status == "crashed"

    thread = threading.Thread(target=look)
    thread.start()
    try:
        for _ in range(5):
            subprocess.run([sys.executable, "-c", code, str(writer.layout.lock)], timeout=60, check=True)
    finally:
        looking.set()
        thread.join()


def test_a_torn_last_line_is_no_damage(writer: RecordWriter) -> None:
    writer.journal.append(Notice("whole"))
    writer.close()
    with writer.layout.journal.open("ab") as file:
        file.write(b'{"seq":2,"time":"2026')
    run = open_run(writer.path)
    assert [event.fields["message"] for event in run.events()] == ["whole"]
    assert run.damage == []
    assert run.last_event is not None
    assert run.last_event.fields["message"] == "whole"


def test_damage_is_named_by_file_and_line_and_the_rest_is_read(writer: RecordWriter, publish: Publish) -> None:
    artifact = Artifact("a.txt", "text/plain", b"hello")
    writer.write_manifest({"status": "running"})
    writer.journal.append(Notice("first"))
    publish(1, artifacts=(artifact,), episodes=(FAILED, COMPLETED), diagnostics=(crash(), crash(stdout="x")))
    publish(2)
    writer.close()
    lines = writer.layout.journal.read_bytes().splitlines(keepends=True)
    replace_file(writer.layout.journal, b"\xff\x00garbage\n" + lines[1] + b"[]\n" + lines[2])
    replace_file(writer.layout.manifest, b'{"status": "running"')
    first, second = writer.layout.submission("submission-000001"), writer.layout.submission("submission-000002")
    for folder in (first, first / "program", first / "artifacts", first / "policy-logs", second):
        folder.chmod(0o755)
    replace_file(first / "artifacts/a.txt", b"HELLO")
    replace_file(first / "program/policy.py", b"")
    log = first / "policy-logs/episodes.jsonl"
    replace_file(log, b"{}\n{\n" + log.read_bytes())
    (second / "feedback.json").unlink()
    run = open_run(writer.path)
    assert [submission.submission_id for submission in run.submissions] == ["submission-000001", "submission-000002"]
    assert [event.name for event in run.events()] == ["submission_published", "submission_published"]
    assert run.submissions[1].score is None
    assert len(list(run.submissions[0].policy_logs())) == 3
    damage = "\n".join(run.check())
    for expected in (
        "run.json: not valid JSON",
        "events.jsonl:1: not UTF-8 at byte 0",
        "events.jsonl:3: a JSON object is needed",
        "submissions/submission-000001/artifacts/a.txt: its content has changed",
        "submissions/submission-000001/program: its digest is sha256:",
        "submissions/submission-000001/policy-logs/episodes.jsonl:2: not valid JSON",
        "submissions/submission-000002/feedback.json: it is missing",
    ):
        assert expected in damage


def test_lines_that_are_missing_in_the_middle_are_noticed(writer: RecordWriter) -> None:
    for number in range(4):
        writer.journal.append(Notice(str(number)))
    writer.close()
    lines = writer.layout.journal.read_bytes().splitlines(keepends=True)
    replace_file(writer.layout.journal, b"".join([lines[0], lines[2], lines[3]]))
    run = open_run(writer.path)
    assert len(list(run.events())) == 3
    assert run.damage == ["events.jsonl:2: seq 3 where 2 was expected"]


def test_hundreds_of_truncations_and_flipped_bits_never_stop_a_reader(writer: RecordWriter, publish: Publish) -> None:
    writer.write_manifest({"status": "finished", "submissions": [{"submission_id": "submission-000001"}]})
    publish(1, content={"a": (1, b"2")}, episodes=(FAILED, COMPLETED), diagnostics=(crash("\x1b"), crash()))
    writer.close()
    chance = random.Random(20)
    files = [
        writer.layout.manifest,
        writer.layout.journal,
        writer.layout.submission("submission-000001") / "feedback.json",
        writer.layout.submission("submission-000001") / "policy-logs" / "episodes.jsonl",
    ]
    for path in files:
        path.parent.chmod(0o755)
        whole = path.read_bytes()
        for _ in range(100):
            broken = bytearray(whole[: chance.randrange(len(whole))] if chance.random() < 0.3 else whole)
            for _ in range(chance.randrange(4)):
                if broken:
                    broken[chance.randrange(len(broken))] ^= 1 << chance.randrange(8)
            path.chmod(0o644)
            path.write_bytes(broken)
            run = open_run(writer.path)
            json.dumps(run.check(), ensure_ascii=False).encode()
            _ = run.status, run.terminal_reason, run.last_event, list(run.lines())
        path.write_bytes(whole)


@pytest.mark.parametrize("name", ["run.json", "events.jsonl"])
def test_a_fifo_or_a_link_in_a_record_is_damage_and_does_not_block(writer: RecordWriter, name: str) -> None:
    writer.write_manifest({"status": "running"})
    writer.close()
    for make in (os.mkfifo, lambda path: path.symlink_to("/etc/passwd")):
        (writer.path / name).unlink()
        make(writer.path / name)
        assert any(problem.startswith(f"{name}: it cannot be read") for problem in open_run(writer.path).check())


def test_a_line_without_end_is_damage_and_the_lines_after_it_are_read(writer: RecordWriter) -> None:
    writer.journal.append(Notice("first"))
    writer.close()
    with writer.layout.journal.open("ab") as file:
        file.write(b"x" * (17 * 1024 * 1024) + b"\n" + writer.layout.journal.read_bytes())
    run = open_run(writer.path)
    assert len(list(run.events())) == 2
    assert {problem.split(" ")[0] for problem in run.damage} == {"events.jsonl:2:"}


def test_events_are_chosen_by_name_and_equal_what_observers_were_told(writer: RecordWriter) -> None:
    told: list[RunEvent] = []

    class Noting:
        def on_event(self, event: RunEvent) -> None:
            told.append(event)

    writer.journal.subscribe(Noting())
    writer.journal.append(Notice('"event":"run_committed"'))
    writer.journal.append(EpisodeCompleted("submission-000001", 1, 0, "completed", 1.5, 3, None, 0.25))
    writer.journal.append(RunCommitted("finished"))
    run = open_run(writer.path)
    assert list(run.events()) == told
    assert list(run.events("run_committed", "notice")) == [told[0], told[2]]
    assert len(list(run.lines("run_committed"))) == 1


def test_following_a_run_yields_its_events_until_it_ends(writer: RecordWriter) -> None:
    writer.journal.append(Notice("before"))

    def write() -> None:
        for number in range(20):
            time.sleep(0.005)
            writer.journal.append(Notice(str(number)))
        writer.journal.append(RunCommitted("finished"))
        writer.close()

    thread = threading.Thread(target=write)
    thread.start()
    names = [event.fields.get("message") for event in open_run(writer.path).follow(poll_seconds=0.01)]
    thread.join()
    assert names == ["before", *map(str, range(20)), None]


def test_an_evicted_artifact_keeps_its_entry_and_is_no_damage(writer: RecordWriter, publish: Publish) -> None:
    writer.write_manifest({"status": "running"})
    for number in (1, 2):
        publish(number, artifacts=(Artifact("a.bin", "application/octet-stream", b"x" * 900, "bulk"),))
    run = open_run(writer.path)
    gone, there = (submission.artifacts[0] for submission in run.submissions)
    assert (gone.path, gone.size, len(gone.sha256)) == (None, 900, 64)
    assert there.path is not None
    assert run.check() == []


def test_programs_are_read_back_as_they_were_evaluated(writer: RecordWriter, publish: Publish) -> None:
    publish(1)
    run = open_run(writer.path)
    submission = run.submission("submission-000001")
    assert submission.program() == run.initial_program()
    assert submission.program_digest == submission.program().digest
    with pytest.raises(KeyError):
        run.submission("submission-000002")


def test_a_published_submission_whose_tree_is_gone_is_named(writer: RecordWriter, publish: Publish) -> None:
    writer.write_manifest({"status": "running"})
    publish(1)
    remove_tree(writer.layout.submission("submission-000001"))
    assert open_run(writer.path).check() == ["submissions/submission-000001: it is published, but missing"]


def test_unknown_keys_and_events_of_later_versions_are_read(writer: RecordWriter) -> None:
    writer.close()
    line = {"seq": 1, "time": "2030-01-01T00:00:00.5Z", "event": "moon_landing", "crew": [1, None], "x": {"y": 1}}
    replace_file(writer.layout.journal, json.dumps(line).encode() + b"\n")
    replace_file(writer.layout.manifest, b'{"schema": "evopolicygym/run-record/v99", "new": 1, "status": "finished"}')
    run = open_run(writer.path)
    (event,) = run.events()
    assert (event.name, dict(event.fields)) == ("moon_landing", {"crew": (1, None), "x": None})
    assert event.time_unix_ns == 1893456000_500000000
    assert run.manifest["new"] == 1
    assert run.damage == []


def test_a_record_of_the_public_kernel_opens(tmp_path: Path) -> None:
    root = tmp_path / "run"
    for identifier in ("submission-000001", "submission-000002", ".staging-x"):
        tree = root / "submissions" / identifier
        (tree / "program").mkdir(parents=True)
        (tree / "program" / "policy.py").write_text("")
        feedback = {
            "schema": "evopolicygym/feedback/v2",
            "submission_id": identifier,
            "episode_indices": [0],
            "score": 3,
            "content": {"mean": 3.0},
            "episodes": [{"episode_index": 0, "status": "completed", "reward": 3.0, "steps": 9, "failure": None}],
            "artifacts": [],
        }
        (tree / "feedback.json").write_text(json.dumps(feedback))
    manifest = {"schema": "evopolicygym/run-record/v8", "terminal_reason": "finished"}
    (root / "run.json").write_text(json.dumps(manifest))
    before = sorted(root.rglob("*"))
    run = open_run(root)
    assert (run.status, run.terminal_reason) == ("finished", "finished")
    assert [(submission.submission_id, submission.score) for submission in run.submissions] == [
        ("submission-000001", 3.0),
        ("submission-000002", 3.0),
    ]
    assert run.submissions[0].content == {"mean": 3.0}
    assert run.submissions[0].diagnostics == {}
    assert list(run.submissions[0].policy_logs()) == []
    assert sorted(root.rglob("*")) == before
