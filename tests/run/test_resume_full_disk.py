"""A disk that is really full: the Record on it stays whole, and the Run goes on once there is room."""

import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from run_scenarios import run_scripted, scripted_agent
from target_benchmark import TargetBenchmark

from evopolicygym.errors import RecordError
from evopolicygym.execution import ProcessExecution
from evopolicygym.record import open_run
from evopolicygym.run import resume

SCRIPT = """
for number in range(8):
    if submit(f"{number}:{number + 1}")[0]:
        break
session("finish", session("status")[1]["result"]["published"][-1]["submission_id"])
"""


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 4 MB."""
    place = tmp_path / "disk"
    place.mkdir()
    if shutil.which("mount") is None:
        pytest.skip("there is no mount here")
    made = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=4m", "tmpfs", str(place)], capture_output=True, text=True, timeout=30
    )
    if made.returncode:
        pytest.skip(f"no file system can be mounted here: {made.stderr.strip()}")
    try:
        yield place
    finally:
        subprocess.run(["umount", str(place)], check=True, timeout=30)


def test_a_run_that_filled_its_disk_goes_on_when_there_is_room(tmp_path, disk):
    # Each Submission needs 0.8 MB in the Host's tree and as much in the Agent's copy.
    benchmark = TargetBenchmark(bulk_bytes=800_000)
    result, record = run_scripted(tmp_path, SCRIPT, benchmark=benchmark, record_to=disk / "record")
    assert result.terminal_reason == "evaluation_failed"
    assert result.submissions
    assert open_run(record).check() == []
    assert open_run(record).terminal_reason == "evaluation_failed"
    agent = scripted_agent(tmp_path, SCRIPT, [])
    execution = ProcessExecution.unsafe(workers=0)
    subprocess.run(["dd", "if=/dev/zero", f"of={disk / 'rest'}", "bs=4096"], capture_output=True, timeout=30)
    before = (record / "events.jsonl").read_bytes()
    with pytest.raises(RecordError, match="No space left on device"):
        resume(record, benchmark=benchmark, agent=agent, execution=execution)
    assert (record / "events.jsonl").read_bytes() == before
    (disk / "rest").unlink()
    subprocess.run(["mount", "-o", "remount,size=64m", str(disk)], check=True, timeout=30)
    again = resume(record, benchmark=benchmark, agent=agent, execution=execution)
    assert again.terminal_reason == "finished"
    assert again.submissions[: len(result.submissions)] == result.submissions
    assert open_run(record).check() == []
