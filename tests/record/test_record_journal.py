"""The journal: whole lines in order, whatever threads, disks and observers do."""

import json
import subprocess
import sys
import textwrap
import threading
from pathlib import Path

import pytest

from evopolicygym.errors import RecordError
from evopolicygym.record import Journal, RecordWriter, RunEvent
from evopolicygym.record.events import EpisodeCompleted, Notice, SubmissionRefused


def lines_of(writer: RecordWriter) -> list[dict[str, object]]:
    return [json.loads(line) for line in writer.layout.journal.read_bytes().splitlines()]


def test_an_event_is_one_line_with_its_number_time_name_and_fields(writer: RecordWriter) -> None:
    event = writer.journal.append(SubmissionRefused("over_budget", "3 of 30 Episodes are left"))
    (line,) = lines_of(writer)
    assert line.pop("time")
    assert line.pop("monotonic_ns") == event.monotonic_ns
    assert line == {
        "seq": 1,
        "event": "submission_refused",
        "code": "over_budget",
        "message": "3 of 30 Episodes are left",
    }


def test_lines_of_many_threads_are_whole_and_numbered_without_gap(writer: RecordWriter) -> None:
    def append(thread: int) -> None:
        for position in range(200):
            writer.journal.append(
                EpisodeCompleted("submission-000001", thread, position, "completed", 1.0, 5, None, 0.1)
            )

    threads = [threading.Thread(target=append, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [line["seq"] for line in lines_of(writer)] == list(range(1, 801))


def test_text_that_is_no_valid_unicode_is_written_all_the_same(writer: RecordWriter) -> None:
    writer.journal.append(Notice("half a \ud83d character\x00"))
    assert lines_of(writer)[0]["message"] == "half a \ufffd character\x00"


def test_a_number_that_is_not_finite_is_refused_and_leaves_no_trace(writer: RecordWriter) -> None:
    with pytest.raises(RecordError, match="episode_completed"):
        writer.journal.append(EpisodeCompleted("submission-000001", 0, 0, "completed", float("nan"), 5, None, 0.1))
    writer.journal.append(Notice("next"))
    assert [line["seq"] for line in lines_of(writer)] == [1]


def test_observers_are_told_in_the_order_of_the_lines(writer: RecordWriter) -> None:
    seen: list[object] = []

    class Noting:
        def on_event(self, event: RunEvent) -> None:
            seen.append(event.fields["message"])

    writer.journal.subscribe(Noting())
    threads = [
        threading.Thread(target=lambda: [writer.journal.append(Notice(f"{n}")) for n in range(100)]) for _ in range(3)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    writer.journal.append(Notice("last"))
    assert seen == [line["message"] for line in lines_of(writer)]


def test_an_observer_that_raises_is_dropped_with_a_warning_and_the_others_go_on(writer: RecordWriter) -> None:
    seen: list[str] = []

    class Broken:
        def on_event(self, event: RunEvent) -> None:
            seen.append("broken")
            raise RuntimeError("no screen")

    class Working:
        def on_event(self, event: RunEvent) -> None:
            seen.append("working")

    writer.journal.subscribe(Broken())
    writer.journal.subscribe(Working())
    with pytest.warns(RuntimeWarning, match="Broken raised RuntimeError at 'notice' .no screen."):
        writer.journal.append(Notice("first"))
    writer.journal.append(Notice("second"))
    assert seen == ["broken", "working", "working"]


def test_warnings_made_errors_do_not_stop_the_run(writer: RecordWriter) -> None:
    class Broken:
        def on_event(self, event: RunEvent) -> None:
            raise RuntimeError("no screen")

    writer.journal.subscribe(Broken())
    writer.journal.append(Notice("goes on"))  # the test suite makes warnings errors
    assert len(lines_of(writer)) == 1


def test_an_observer_may_append_and_may_wait_for_a_thread_that_appends(writer: RecordWriter) -> None:
    seen: list[object] = []

    class Busy:
        def on_event(self, event: RunEvent) -> None:
            seen.append(event.fields["message"])
            if event.fields["message"] == "first":
                writer.journal.append(Notice("from the observer"))
                other = threading.Thread(target=writer.journal.append, args=(Notice("from its thread"),))
                other.start()
                other.join(timeout=30)
                assert not other.is_alive()

    writer.journal.subscribe(Busy())
    writer.journal.append(Notice("first"))
    assert seen == ["first", "from the observer", "from its thread"]


def test_a_closed_journal_says_so(place: Path) -> None:
    place.mkdir()
    (place / "events.jsonl").touch()
    journal = Journal(place / "events.jsonl")
    journal.close()
    with pytest.raises(RecordError, match="the journal is closed"):
        journal.append(Notice("late"))


def test_a_line_that_does_not_fit_is_cut_off_and_a_later_one_is_written(place: Path) -> None:
    # The kernel takes part of a write at the file-size limit and fails the rest: a torn line, made for real.
    code = textwrap.dedent(
        """
        import resource, signal, sys
        from pathlib import Path
        from evopolicygym.errors import RecordError
        from evopolicygym.record import Journal
        from evopolicygym.record.events import Notice
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        path = Path(sys.argv[1]); path.touch()
        journal = Journal(path)
        journal.append(Notice("a" * 100))
        resource.setrlimit(resource.RLIMIT_FSIZE, (600, resource.RLIM_INFINITY))
        try:
            journal.append(Notice("b" * 1000))
        except RecordError as error:
            print(error)
        journal.append(Notice("c" * 100))
        print(journal.torn)
        """
    )
    place.mkdir()
    path = place / "events.jsonl"
    ran = subprocess.run(
        [sys.executable, "-c", code, str(path)], capture_output=True, text=True, timeout=60, check=True
    )
    assert "the event 'notice' could not be written: File too large" in ran.stdout
    assert ran.stdout.endswith("False\n")
    lines = [json.loads(line) for line in path.read_bytes().splitlines()]
    assert [(line["seq"], line["message"][0]) for line in lines] == [(1, "a"), (2, "c")]
