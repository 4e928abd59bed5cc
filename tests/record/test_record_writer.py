"""A Record is created once, locked, and written strictly."""

import json
import shutil
import stat
import subprocess
import sys
from pathlib import Path

import pytest
from full_disk import on_a_small_disk

from evopolicygym.errors import ProgramSourceError, RecordError
from evopolicygym.program import Program
from evopolicygym.record import RecordWriter, open_run
from evopolicygym.record.events import Notice, RunCommitted
from evopolicygym.skills import AgentSkill


def test_a_record_is_never_made_over_something_else(place: Path) -> None:
    place.mkdir()
    for name in ("folder", "file"):
        (place / "folder").mkdir(exist_ok=True)
        (place / "file").touch()
        with pytest.raises(RecordError, match="already exists"):
            RecordWriter.create(place / name)


def test_a_parent_that_is_no_directory_is_an_error_that_names_the_path(place: Path) -> None:
    place.mkdir()
    (place / "file").touch()
    with pytest.raises(RecordError, match="file/run: the Record cannot be created"):
        RecordWriter.create(place / "file" / "run")


def test_missing_parents_are_made_and_the_record_is_private(place: Path) -> None:
    with RecordWriter.create(place / "a" / "b" / "run") as writer:
        assert stat.S_IMODE(writer.path.stat().st_mode) == 0o700


def test_deep_paths_with_blanks_and_other_scripts_work(place: Path, program: Program) -> None:
    path = place.joinpath(*["ü 🤖 " + "x" * 40] * 5, "run one")
    with RecordWriter.create(path) as writer:
        writer.write_initial(program, ())
        writer.write_text("agent/instructions.md", "hello ü")
        assert writer.capture_workspace_program() == program
    assert len(str(path)) > 200
    assert open_run(path).initial_program() == program


def test_the_workspace_is_writable_where_the_agent_works_and_read_only_elsewhere(
    place: Path, program: Program, tmp_path: Path
) -> None:
    skill = tmp_path / "tiny-skill"
    skill.mkdir()
    (skill / "SKILL.md").write_text("---\nname: tiny-skill\n---\nHi\n")
    (skill / "go.sh").write_text("#!/bin/sh\n")
    (skill / "go.sh").chmod(0o755)
    with RecordWriter.create(place / "run") as writer:
        writer.write_initial(program, [AgentSkill.from_directory(skill)])
        root = writer.path
    modes = {path.relative_to(root).as_posix(): stat.S_IMODE(path.stat().st_mode) for path in root.rglob("*")}
    assert modes["workspace/program/policy.py"] == 0o644
    assert modes["workspace/program"] & 0o200
    assert modes["workspace/analysis"] & 0o200
    assert modes["workspace/feedback/submissions"] & 0o200
    assert modes["workspace/skills/tiny-skill/go.sh"] == 0o555
    assert modes["initial/skills/tiny-skill/SKILL.md"] == 0o444
    assert modes["initial/program/lib/weights.json"] == 0o444
    assert not [path for path, mode in modes.items() if path.startswith("initial") and mode & 0o222]


def test_a_record_can_be_deleted_after_one_chmod(writer: RecordWriter) -> None:
    writer.close()
    subprocess.run(["chmod", "-R", "u+w", str(writer.path)], check=True)
    shutil.rmtree(writer.path)
    assert not writer.path.exists()


def test_run_lock_is_held_until_the_writer_is_closed(writer: RecordWriter) -> None:
    code = "import fcntl, sys; fcntl.flock(open(sys.argv[1]), fcntl.LOCK_EX | fcntl.LOCK_NB)"

    def take() -> int:
        command = [sys.executable, "-c", code, str(writer.layout.lock)]
        return subprocess.run(command, capture_output=True, timeout=60, check=False).returncode

    assert take() != 0
    writer.close()
    assert take() == 0


@pytest.mark.parametrize("relative", ["../x", "/etc/x", "", "a/../../x", "workspace/x", "workspace"])
def test_the_host_writes_inside_the_record_and_outside_the_workspace_only(writer: RecordWriter, relative: str) -> None:
    with pytest.raises(ValueError, match=r"Record|workspace"):
        writer.write_text(relative, "x")


def test_documents_are_strict_json(writer: RecordWriter) -> None:
    writer.write_json("validation/report.json", {"score": 1.0, "text": "\ud800"})
    assert json.loads(writer.layout.validation_report.read_bytes()) == {"score": 1.0, "text": "\ufffd"}
    with pytest.raises(RecordError, match=r"report\.json: this cannot be written as JSON"):
        writer.write_json("validation/report.json", {"score": float("nan")})
    assert json.loads(writer.layout.validation_report.read_bytes())["score"] == 1.0


def test_the_manifest_is_replaced_and_kept_if_the_new_one_is_no_json(writer: RecordWriter) -> None:
    writer.write_manifest({"status": "running"})
    with pytest.raises(RecordError):
        writer.write_manifest({"status": object()})
    assert json.loads(writer.layout.manifest.read_bytes()) == {"status": "running"}


def test_a_workspace_that_was_replaced_by_a_link_is_not_captured(
    writer: RecordWriter, program: Program, tmp_path: Path
) -> None:
    (tmp_path / "elsewhere").mkdir()
    program.write_to(tmp_path / "elsewhere" / "program")
    writer.layout.workspace.rename(writer.path / "moved")
    writer.layout.workspace.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(ProgramSourceError, match="no longer a real directory"):
        writer.capture_workspace_program()


def test_closing_twice_is_fine_and_frees_the_reserve(writer: RecordWriter) -> None:
    assert writer.layout.ballast.stat().st_size == 1024 * 1024
    writer.close()
    writer.close()
    assert not writer.layout.ballast.exists()


FULL_DISK = """
import os, sys
from pathlib import Path
from evopolicygym.artifacts import Artifact, Feedback
from evopolicygym.errors import RecordError
from evopolicygym.program import Program
from evopolicygym.record import RecordWriter, open_run
from evopolicygym.record.events import EvaluationFailed, Notice, RunCommitted
from evopolicygym.results import SubmissionResult

disk, source = map(Path, sys.argv[1:])
program = Program.from_directory(source)
writer = RecordWriter.create(disk / "run")
writer.write_initial(program, ())
writer.write_manifest({"status": "running"})
def submission(number, size):
    artifact = Artifact("bulk.bin", "application/octet-stream", os.urandom(size))
    return SubmissionResult(f"submission-{number:06d}", program, (0,), 1, 9, Feedback(1.0, None, (artifact,)))
writer.publish(submission(1, 1000), (), policy_diagnostics="none", seconds=1.0)
try:
    writer.publish(submission(2, 5_000_000), (), policy_diagnostics="none", seconds=1.0)
except RecordError as error:
    print("too large:", error)
with open(disk / "filler", "wb", buffering=0) as filler:
    try:
        while True:
            filler.write(b"x" * 4096)
    except OSError:
        pass
try:
    for number in range(1000):  # the journal's last page may still have room
        writer.journal.append(Notice("x" * 1000))
except RecordError as error:
    print("full:", error)
try:
    writer.publish(submission(3, 10_000), (), policy_diagnostics="none", seconds=1.0)
except RecordError as error:
    print("unpublished:", error)
assert writer.layout.ballast.exists()
for number in range(20):
    writer.journal.append(EvaluationFailed("submission-000002", "publication", "x" * 1000))
assert not writer.layout.ballast.exists()
writer.write_manifest({"status": "finished", "terminal_reason": "evaluation_failed"})
writer.journal.append(RunCommitted("evaluation_failed"))
writer.close()
run = open_run(disk / "run")
print([s.submission_id for s in run.submissions], run.check(), run.status, run.last_event.name)
print(sorted(path.name for path in run.layout.submissions.iterdir()))
"""


def test_on_a_full_disk_the_last_lines_and_the_manifest_are_still_written(tmp_path: Path, program: Program) -> None:
    told = on_a_small_disk(tmp_path, FULL_DISK, tmp_path / "source")
    assert "too large:" in told
    assert "full:" in told
    assert "No space left on device" in told
    assert "unpublished:" in told
    assert told.endswith("['submission-000001'] [] finished run_committed\n['submission-000001']\n")


def test_events_after_the_end_are_refused(writer: RecordWriter) -> None:
    writer.journal.append(RunCommitted("finished"))
    writer.close()
    with pytest.raises(RecordError, match="closed"):
        writer.journal.append(Notice("late"))
