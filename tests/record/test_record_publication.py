"""A publication is all there, for the Host and for the Agent, or not at all."""

import hashlib
import json
import shutil
import subprocess
from pathlib import Path

import pytest
from record_types import Publish
from record_values import COMPLETED, FAILED, crash

from evopolicygym.artifacts import Artifact
from evopolicygym.errors import RecordError
from evopolicygym.evaluation import EpisodeDiagnostics
from evopolicygym.policy import TensorValue
from evopolicygym.record import RecordWriter, RunEvent, open_run


def bulk(size: int, name: str = "traces/all.bin") -> Artifact:
    return Artifact(name, "application/octet-stream", b"x" * size, "bulk")


def agents(writer: RecordWriter, number: int) -> Path:
    return writer.layout.workspace_feedback / "submissions" / f"submission-{number:06d}"


def host(writer: RecordWriter, number: int) -> Path:
    return writer.layout.submission(f"submission-{number:06d}")


def test_feedback_holds_exactly_the_keys_of_its_schema(writer: RecordWriter, publish: Publish) -> None:
    artifact = Artifact("notes/a.txt", "text/plain", b"hello")
    publish(1, artifacts=(artifact,), content={"mean": 1.5, "pair": (1, b"\x00")}, episodes=(COMPLETED, FAILED))
    feedback = json.loads((host(writer, 1) / "feedback.json").read_bytes())
    diagnostics = feedback.pop("diagnostics")
    assert sorted(diagnostics) == ["episodes", "failed_episodes", "groups", "policy_diagnostics"]
    assert feedback == {
        "schema": "evopolicygym/feedback/v2",
        "submission_id": "submission-000001",
        "program_digest": writer.capture_workspace_program().digest,
        "episode_indices": [0, 1],
        "episodes_used": 2,
        "episodes_remaining": 98,
        "score": 1.0,
        "content": {"mean": 1.5, "pair": {"$type": "tuple", "items": [1, {"$type": "bytes", "base64": "AA=="}]}},
        "episodes": [
            {"episode_index": 0, "status": "completed", "reward": 10.0, "steps": 10, "failure": None},
            {"episode_index": 1, "status": "policy_failed", "reward": None, "steps": 3, "failure": "exception"},
        ],
        "artifacts": [
            {
                "name": "notes/a.txt",
                "media_type": "text/plain",
                "path": "artifacts/notes/a.txt",
                "size": 5,
                "sha256": hashlib.sha256(b"hello").hexdigest(),
                "retention": "permanent",
            }
        ],
    }


def test_the_agents_copy_equals_the_hosts_but_for_program_and_logs(writer: RecordWriter, publish: Publish) -> None:
    artifacts = (Artifact("notes/a.txt", "text/plain", b"hello"), bulk(10))
    publication = publish(
        1, artifacts=artifacts, episodes=(FAILED, COMPLETED), diagnostics=(crash(), EpisodeDiagnostics())
    )

    def files(root: Path) -> dict[str, bytes]:
        return {path.relative_to(root).as_posix(): path.read_bytes() for path in root.rglob("*") if path.is_file()}

    private = {"program/policy.py", "program/lib/weights.json", "policy-logs/episodes.jsonl"}
    of_host, of_agent = files(host(writer, 1)), files(agents(writer, 1))
    assert set(of_host) - set(of_agent) == private
    assert of_agent == {name: content for name, content in of_host.items() if name not in private}
    assert publication.feedback_path == "feedback/submissions/submission-000001/feedback.json"
    assert (writer.layout.workspace / publication.feedback_path).is_file()


def test_published_trees_are_read_only_and_nothing_is_left_beside_them(writer: RecordWriter, publish: Publish) -> None:
    publish(1, artifacts=(bulk(10),))
    for tree in (host(writer, 1), agents(writer, 1)):
        assert not [path for path in (tree, *tree.rglob("*")) if path.lstat().st_mode & 0o222]
        assert [path.name for path in tree.parent.iterdir()] == ["submission-000001"]


def test_latest_points_to_the_newest_submission(writer: RecordWriter, publish: Publish) -> None:
    for number in (1, 2):
        publication = publish(number)
        latest = json.loads((writer.layout.workspace_feedback / "latest.json").read_bytes())
        assert latest["feedback"] == publication.feedback_path
        assert latest["submission_id"] == f"submission-{number:06d}"


def test_the_line_comes_after_the_hosts_tree_and_before_the_agents_copy(writer: RecordWriter, publish: Publish) -> None:
    seen: list[tuple[bool, bool]] = []

    class Looking:
        def on_event(self, event: RunEvent) -> None:
            seen.append((host(writer, 1).exists(), agents(writer, 1).exists()))

    writer.journal.subscribe(Looking())
    publication = publish(1, episodes=(COMPLETED, FAILED))
    assert seen == [(True, False)]
    assert publication.event.name == "submission_published"
    assert publication.event.fields["policy_failures"] == 1


def test_the_receipt_has_the_groups_and_leaves_the_episodes_to_feedback(publish: Publish) -> None:
    publication = publish(1, episodes=(FAILED, FAILED), diagnostics=(crash(), crash()))
    assert publication.diagnostics_summary["failed_episodes"] == 2
    assert "episodes" not in publication.diagnostics_summary


def test_what_only_the_host_may_know_is_not_in_the_workspace(writer: RecordWriter, publish: Publish) -> None:
    publish(1, episodes=(FAILED, COMPLETED), diagnostics=(crash(stdout="printed secret"), EpisodeDiagnostics()))
    in_workspace = b"".join(path.read_bytes() for path in writer.layout.workspace.rglob("*") if path.is_file())
    assert b"/host/path" not in in_workspace
    assert b"printed secret" not in in_workspace
    (logged,) = open_run(writer.path).submissions[0].policy_logs()
    assert "/host/path" in str(logged["traceback"])
    assert logged["stdout"] == "printed secret"


def test_a_publication_that_cannot_be_written_leaves_nothing_visible(writer: RecordWriter, publish: Publish) -> None:
    host(writer, 1).mkdir()
    (host(writer, 1) / "in-the-way").touch()
    with pytest.raises(RecordError, match="submission-000001: the Submission could not be written"):
        publish(1)
    shutil.rmtree(host(writer, 1))
    assert not list(writer.layout.submissions.iterdir())
    assert not agents(writer, 1).exists()
    assert writer.layout.journal.read_bytes() == b""
    assert publish(1).feedback_path


def test_a_tree_without_its_line_is_set_aside(writer: RecordWriter, publish: Publish) -> None:
    writer.journal.close()
    with pytest.raises(RecordError, match="submission_published"):
        publish(1)
    assert [path.name for path in writer.layout.submissions.iterdir()] == [".unpublished-submission-000001"]
    assert not agents(writer, 1).exists()


def test_bulk_artifacts_over_the_limit_go_oldest_first_in_both_copies(writer: RecordWriter, publish: Publish) -> None:
    keep = Artifact("keep.txt", "text/plain", b"k" * 5000)
    publish(1, artifacts=(keep, bulk(400, "a/1.bin"), bulk(400, "b.bin")))
    publish(2, artifacts=(bulk(400),))
    for tree in (host(writer, 1), agents(writer, 1)):
        assert (tree / "artifacts/keep.txt").exists()
        assert not (tree / "artifacts/a/1.bin").exists()
        assert (tree / "artifacts/b.bin").exists()
        evicted = json.loads((tree / "availability.json").read_bytes())["evicted"]
        assert [(item["name"], item["size"]) for item in evicted] == [("a/1.bin", 400)]
        assert not [path for path in (tree, *tree.rglob("*")) if path.lstat().st_mode & 0o222]
    publish(3, artifacts=(bulk(900),))
    for tree in (host(writer, 1), agents(writer, 1)):
        evicted = json.loads((tree / "availability.json").read_bytes())["evicted"]
        assert [item["name"] for item in evicted] == ["a/1.bin", "b.bin"]
    assert (agents(writer, 3) / "artifacts/traces/all.bin").exists()
    assert open_run(writer.path).check() == ["run.json: it is missing"]


def test_the_newest_submission_is_kept_whole_however_large(writer: RecordWriter, publish: Publish) -> None:
    publish(1, artifacts=(bulk(600, "a.bin"), bulk(600, "b.bin")))
    assert len(list((agents(writer, 1) / "artifacts").iterdir())) == 2
    assert not (host(writer, 1) / "availability.json").exists()


def test_eviction_does_not_disturb_intact_copies(writer: RecordWriter, publish: Publish) -> None:
    publish(1, artifacts=(bulk(900),))
    publish(2, artifacts=(bulk(900),))
    publish(3, artifacts=(bulk(900),))
    names = sorted(path.name for path in (writer.layout.workspace_feedback / "submissions").iterdir())
    assert names == ["submission-000001", "submission-000002", "submission-000003"]


def test_tensors_and_empty_feedback_read_back_as_they_were(writer: RecordWriter, publish: Publish) -> None:
    content = {"image": TensorValue("uint8", (2, 1), b"\x01\x02"), "text": "ü😀"}
    publish(1, content=content)
    publish(2)
    first, second = open_run(writer.path).submissions
    assert first.content == content
    assert second.content is None


def test_a_record_with_publications_is_deleted_after_one_chmod(writer: RecordWriter, publish: Publish) -> None:
    publish(1, artifacts=(bulk(900),))
    publish(2, artifacts=(bulk(900),))
    writer.close()
    subprocess.run(["chmod", "-R", "u+w", str(writer.path)], check=True)
    shutil.rmtree(writer.path)
