"""A disk that is really full: the Record on it stays whole, and the Run goes on once there is room."""

import os
from pathlib import Path

from full_disk import on_a_small_disk

TESTS = Path(__file__).parent.parent

CODE = '''
import subprocess, sys
from pathlib import Path

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

disk, folder = map(Path, sys.argv[1:])
# Each Submission needs 0.8 MB in the Host's tree and as much in the Agent's copy.
benchmark = TargetBenchmark(bulk_bytes=800_000)
result, record = run_scripted(folder, SCRIPT, benchmark=benchmark, record_to=disk / "record")
print(result.terminal_reason, len(result.submissions) > 0, open_run(record).terminal_reason, open_run(record).check())

parts = {
    "benchmark": benchmark,
    "agent": scripted_agent(folder, SCRIPT, []),
    "execution": ProcessExecution.unsafe(workers=0),
}
with (disk / "rest").open("wb", buffering=0) as rest:
    try:
        while rest.write(bytes(4096)):
            pass
    except OSError:
        pass
before = (record / "events.jsonl").read_bytes()
try:
    resume(record, **parts)
except RecordError as error:
    print("No space left on device" in str(error), (record / "events.jsonl").read_bytes() == before)

(disk / "rest").unlink()
subprocess.run(["mount", "-o", "remount,size=64m", "disk", str(disk)], check=True, timeout=30)
again = resume(record, **parts)
kept = again.submissions[: len(result.submissions)] == result.submissions
print(again.terminal_reason, kept, open_run(record).check())
'''


def test_a_run_that_filled_its_disk_goes_on_when_there_is_room(tmp_path):
    path = os.pathsep.join([str(TESTS.parent), str(TESTS)])
    told = on_a_small_disk(tmp_path, CODE, tmp_path, environment={"PYTHONPATH": path})
    assert told.splitlines() == [
        "evaluation_failed True evaluation_failed []",
        "True True",
        "finished True []",
    ]
