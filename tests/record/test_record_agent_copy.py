"""Whatever the Agent does to its feedback folder: the Run goes on, and nothing outside is touched."""

import json
import os
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from record_types import Publish

from evopolicygym.artifacts import Artifact
from evopolicygym.record import RecordWriter, open_run
from evopolicygym.record.storage import remove_tree

FEEDBACK = "feedback/submissions/submission-000001/feedback.json"


def remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        remove_tree(path)
    else:
        path.unlink(missing_ok=True)


def put_link(path: Path, outside: Path) -> None:
    remove(path)
    path.symlink_to(outside)


def put_dangling_link(path: Path, outside: Path) -> None:
    remove(path)
    path.symlink_to(outside / "nowhere")


def put_fifo(path: Path, outside: Path) -> None:
    remove(path)
    os.mkfifo(path)


def put_file(path: Path, outside: Path) -> None:
    remove(path)
    path.write_text("mine")


def put_full_directory(path: Path, outside: Path) -> None:
    if path.is_file():
        path.unlink()
    path.mkdir(exist_ok=True)
    path.chmod(0o755)
    (path / "mine").write_text("mine")


def put_closed_directory(path: Path, outside: Path) -> None:
    if path.is_file():
        path.unlink()
    path.mkdir(exist_ok=True)
    path.chmod(0)


def put_nothing(path: Path, outside: Path) -> None:
    remove(path)


Obstacle = Callable[[Path, Path], None]
OBSTACLES = [
    put_link,
    put_dangling_link,
    put_fifo,
    put_file,
    put_full_directory,
    put_closed_directory,
    put_nothing,
]


@pytest.fixture
def outside(tmp_path: Path) -> Path:
    """A folder of the Host's that nothing may be written to."""
    folder = tmp_path / "outside"
    (folder / "submissions").mkdir(parents=True)
    (folder / "feedback.json").write_text("host")
    return folder


def assert_untouched(outside: Path) -> None:
    found = {path.relative_to(outside).as_posix() for path in outside.rglob("*")}
    assert found == {"submissions", "feedback.json"}
    assert (outside / "feedback.json").read_text() == "host"


@pytest.mark.parametrize("obstacle", OBSTACLES)
@pytest.mark.parametrize(
    "where", ["", "submissions", "submissions/submission-000001", "latest.json", "submissions/submission-000002"]
)
def test_what_stands_in_the_way_is_put_aside_and_the_copy_is_written(
    writer: RecordWriter, publish: Publish, outside: Path, obstacle: Obstacle, where: str
) -> None:
    obstacle(writer.layout.workspace_feedback / where, outside)
    publication = publish(1)
    feedback = writer.layout.workspace / FEEDBACK
    assert publication.feedback_path == FEEDBACK
    assert feedback.read_bytes() == (writer.layout.submission("submission-000001") / "feedback.json").read_bytes()
    assert json.loads((writer.layout.workspace_feedback / "latest.json").read_bytes())["feedback"] == FEEDBACK
    assert_untouched(outside)


@pytest.mark.parametrize("obstacle", OBSTACLES)
@pytest.mark.parametrize(
    "where",
    [
        "",
        "submissions",
        "submissions/submission-000001",
        "submissions/submission-000001/feedback.json",
        "submissions/submission-000001/artifacts",
        "submissions/submission-000001/artifacts/a",
        "submissions/submission-000001/artifacts/a/b.bin",
    ],
)
def test_an_earlier_copy_that_was_damaged_is_remade(
    writer: RecordWriter, publish: Publish, outside: Path, obstacle: Obstacle, where: str
) -> None:
    artifact = Artifact("a/b.bin", "application/octet-stream", b"abc", "bulk")
    publish(1, artifacts=(artifact,))
    target = writer.layout.workspace_feedback / where
    target.parent.chmod(0o755)
    obstacle(target, outside)
    publish(2)
    copy = writer.layout.workspace_feedback / "submissions/submission-000001"
    assert {path.relative_to(copy).as_posix() for path in copy.rglob("*")} == {
        "feedback.json",
        "artifacts",
        "artifacts/a",
        "artifacts/a/b.bin",
    }
    assert json.loads((copy / "feedback.json").read_bytes())["submission_id"] == "submission-000001"
    assert (copy / "artifacts/a/b.bin").read_bytes() == b"abc"
    assert_untouched(outside)


def test_a_copy_whose_content_was_edited_is_remade(writer: RecordWriter, publish: Publish) -> None:
    publish(1)
    copy = writer.layout.workspace / FEEDBACK
    copy.chmod(0o644)
    copy.write_text("the best score ever")
    publish(2)
    assert json.loads(copy.read_bytes())["score"] == 1.0


@pytest.mark.parametrize("obstacle", [put_link, put_fifo, put_file, put_nothing])
def test_without_a_workspace_the_submission_is_published_and_the_receipt_says_null(
    writer: RecordWriter, publish: Publish, outside: Path, obstacle: Obstacle
) -> None:
    obstacle(writer.layout.workspace, outside)
    assert publish(1).feedback_path is None
    run = open_run(writer.path)
    assert [submission.score for submission in run.submissions] == [1.0]
    (notice,) = run.events("notice")
    assert "submission-000001: the copy in workspace/feedback could not be written" in str(notice.fields["message"])
    assert [path.name for path in writer.layout.submissions.iterdir()] == ["submission-000001"]
    assert_untouched(outside)


@pytest.mark.parametrize("obstacle", OBSTACLES)
def test_eviction_touches_nothing_outside(
    writer: RecordWriter, publish: Publish, outside: Path, obstacle: Obstacle
) -> None:
    (outside / "feedback.json").rename(outside / "b.bin")
    publish(1, artifacts=(Artifact("a/b.bin", "application/octet-stream", b"x" * 900, "bulk"),))
    copy = writer.layout.workspace_feedback / "submissions/submission-000001"
    (copy / "artifacts").chmod(0o755)
    obstacle(copy / "artifacts/a", outside)
    publish(2, artifacts=(Artifact("b.bin", "application/octet-stream", b"x" * 900, "bulk"),))
    assert not (copy / "artifacts/a/b.bin").exists()
    assert json.loads((copy / "availability.json").read_bytes())["evicted"][0]["name"] == "a/b.bin"
    assert (outside / "b.bin").read_text() == "host"


def test_no_descriptor_is_left_open(writer: RecordWriter, publish: Publish, outside: Path) -> None:
    publish(1)
    descriptors = Path("/proc/self/fd" if Path("/proc/self/fd").exists() else "/dev/fd")
    before = len(list(descriptors.iterdir()))
    for number, obstacle in enumerate(OBSTACLES, start=2):
        obstacle(writer.layout.workspace_feedback / "submissions", outside)
        publish(number)
    assert len(list(descriptors.iterdir())) == before


def test_an_agent_that_swaps_its_folder_all_the_time_moves_nothing_outside(
    writer: RecordWriter, publish: Publish, outside: Path
) -> None:
    feedback = writer.layout.workspace_feedback
    aside = writer.layout.workspace / "aside"
    stop = threading.Event()

    def swap() -> None:
        while not stop.is_set():
            for move in (
                lambda: feedback.rename(aside),
                lambda: feedback.symlink_to(outside),
                lambda: feedback.unlink(),
                lambda: aside.rename(feedback),
            ):
                try:
                    move()
                except OSError:
                    continue

    thread = threading.Thread(target=swap)
    thread.start()
    try:
        for number in range(1, 16):
            publish(number)
    finally:
        stop.set()
        thread.join()
    assert_untouched(outside)
    assert len(open_run(writer.path).submissions) == 15
