"""A Record whose writer is gone is mended and goes on; what was promised is untouched."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from evopolicygym.artifacts import Artifact, Feedback
from evopolicygym.errors import RecordError
from evopolicygym.program import Program
from evopolicygym.record import RecordLayout, RecordLock, RecordWriter, open_run, published_submission
from evopolicygym.record.events import Notice, RunResumed, SubmissionPublished
from evopolicygym.results import SubmissionResult, format_submission_id

Killed = Callable[..., SubmissionResult]


def submission(program: Program, number: int, *artifacts: Artifact) -> SubmissionResult:
    return SubmissionResult(
        submission_id=format_submission_id(number),
        program=program,
        episode_indices=(0, 3),
        episodes_used=2,
        episodes_remaining=100 - 2 * number,
        feedback=Feedback(float(number), {"pair": (1, b"x")}, artifacts),
    )


def bulk(size: int) -> Artifact:
    return Artifact("traces/all.bin", "application/octet-stream", b"x" * size, "bulk")


@pytest.fixture
def root(place: Path, program: Program) -> Path:
    """A Record with two Submissions, closed."""
    with RecordWriter.create(place / "run", bulk_feedback_retention_bytes=1000) as writer:
        writer.write_initial(program, ())
        for number in (1, 2):
            writer.publish(submission(program, number), (), policy_diagnostics="none", seconds=1.0)
    return place / "run"


def reopened(root: Path, published: list[SubmissionResult] | None = None, *, limit: int = 1000) -> RecordWriter:
    record = open_run(root)
    kept = [published_submission(item) for item in record.submissions] if published is None else published
    return RecordWriter.reopen(
        RecordLock(RecordLayout(root)),
        last_seq=sum(1 for _ in record.events()),
        published=kept,
        bulk_feedback_retention_bytes=limit,
    )


def test_a_published_submission_reads_back_as_the_value_that_was_published(root: Path, program: Program) -> None:
    assert published_submission(open_run(root).submissions[0]) == submission(program, 1)


def test_lines_go_on_where_they_ended(root: Path) -> None:
    with reopened(root) as writer:
        writer.journal.append(RunResumed(2, "agent"))
    lines = [json.loads(line) for line in (root / "events.jsonl").read_text().splitlines()]
    assert [line["seq"] for line in lines] == list(range(1, len(lines) + 1))
    assert lines[-1]["event"] == "run_resumed"


@pytest.mark.parametrize("torn", [b"{", b'{"seq":3,"event":"notice"}', b"\0" * 100_000])
def test_a_torn_last_line_is_cut_off(root: Path, torn: bytes) -> None:
    whole = (root / "events.jsonl").read_bytes()
    with (root / "events.jsonl").open("ab") as file:
        file.write(torn)
    with reopened(root) as writer:
        assert (root / "events.jsonl").read_bytes() == whole
        writer.journal.append(Notice("on it goes"))
    assert open_run(root).check() == ["run.json: it is missing"]


def test_a_tree_without_its_line_is_set_aside_and_staged_ones_are_removed(root: Path) -> None:
    tree = root / "submissions/submission-000003"
    tree.mkdir()
    (tree / "feedback.json").write_text("{}")
    (root / "submissions/.staging-submission-000004").mkdir()
    (root / "submissions/.copy-submission-000002-0a1b2c3d").mkdir()
    (root / ".run.json.0a1b2c3d").write_text("{")
    kept = [published_submission(open_run(root).submission(f"submission-00000{number}")) for number in (1, 2)]
    with reopened(root, kept):
        names = sorted(path.name for path in (root / "submissions").iterdir())
    assert names == [".unpublished-submission-000003", "submission-000001", "submission-000002"]
    assert not (root / ".run.json.0a1b2c3d").exists()


def test_the_agents_copies_are_made_again(root: Path) -> None:
    copies = root / "workspace/feedback/submissions"
    (copies / "submission-000001").chmod(0o755)
    (copies / "submission-000001/feedback.json").unlink()
    (root / "workspace/feedback/latest.json").unlink()
    with reopened(root):
        assert sorted(path.name for path in copies.iterdir()) == ["submission-000001", "submission-000002"]
    for number in (1, 2):
        name = f"submission-00000{number}/feedback.json"
        assert (copies / name).read_bytes() == (root / "submissions" / name).read_bytes()
    assert json.loads((root / "workspace/feedback/latest.json").read_bytes())["submission_id"] == "submission-000002"


def test_what_the_agent_put_in_place_of_a_copy_is_removed_however_deep_it_is(root: Path) -> None:
    copies = root / "workspace/feedback/submissions"
    (copies / "submission-000001").rename(root / "workspace/analysis/stolen")
    (copies / "submission-000001").mkdir()
    for _ in range(1500):
        (copies / "above").mkdir()
        (copies / "submission-000001").rename(copies / "above/deep")
        (copies / "above").rename(copies / "submission-000001")
    with reopened(root):
        assert sorted(path.name for path in copies.iterdir()) == ["submission-000001", "submission-000002"]


def test_what_is_published_next_knows_of_all_bulk_artifacts_before(place: Path, program: Program) -> None:
    with RecordWriter.create(place / "run", bulk_feedback_retention_bytes=1000) as writer:
        writer.write_initial(program, ())
        for number in (1, 2):
            writer.publish(submission(program, number, bulk(600)), (), policy_diagnostics="none", seconds=1.0)
    root = place / "run"
    assert open_run(root).submissions[0].artifacts[0].path is None
    with reopened(root) as writer:
        writer.publish(submission(program, 3, bulk(600)), (), policy_diagnostics="none", seconds=1.0)
    assert [item.artifacts[0].path is None for item in open_run(root).submissions] == [True, True, False]
    assert open_run(root).check() == ["run.json: it is missing"]


def test_an_eviction_that_was_told_and_not_done_is_done(place: Path, program: Program) -> None:
    with RecordWriter.create(place / "run") as writer:
        writer.write_initial(program, ())
        writer.publish(submission(program, 1, bulk(600)), (), policy_diagnostics="none", seconds=1.0)
    root = place / "run"
    tree = root / "submissions/submission-000001"
    listed = json.loads((tree / "feedback.json").read_bytes())["artifacts"]
    tree.chmod(0o755)
    (tree / "availability.json").write_text(json.dumps({"evicted": listed}))
    with reopened(root):
        assert not (tree / "artifacts/traces/all.bin").exists()


def test_two_owners_are_refused(root: Path) -> None:
    with reopened(root), pytest.raises(RecordError, match="in use by another process"):
        RecordLock(RecordLayout(root))


@pytest.mark.parametrize(
    ("file", "what"),
    [
        ("feedback.json", "Extra|JSON|missing"),
        ("program/policy.py", "its digest is"),
        ("artifacts/a.txt", "another content"),
    ],
)
def test_a_damaged_submission_is_named(place: Path, program: Program, file: str, what: str) -> None:
    with RecordWriter.create(place / "run") as writer:
        writer.write_initial(program, ())
        permanent = Artifact("a.txt", "text/plain", b"abc")
        writer.publish(submission(program, 1, permanent), (), policy_diagnostics="none", seconds=1.0)
    path = place / "run/submissions/submission-000001" / file
    path.chmod(0o644)
    path.write_bytes(b"#" + path.read_bytes())
    with pytest.raises(RecordError, match=what) as caught:
        published_submission(open_run(place / "run").submissions[0])
    assert "submission-000001" in str(caught.value)


def test_a_publication_after_the_reopening_is_whole(root: Path, program: Program) -> None:
    with reopened(root) as writer:
        event = writer.publish(submission(program, 3), (), policy_diagnostics="none", seconds=1.0).event
    assert event.name == SubmissionPublished.name
    assert [item.score for item in open_run(root).submissions] == [1.0, 2.0, 3.0]


def test_a_record_that_cannot_be_written_is_refused_untouched(root: Path) -> None:
    (root / "run.lock").unlink()
    (root / "run.lock").mkdir()  # in the way of the root user, too
    before = (root / "events.jsonl").read_bytes()
    with pytest.raises(RecordError, match="cannot be"):
        reopened(root)
    assert (root / "events.jsonl").read_bytes() == before
