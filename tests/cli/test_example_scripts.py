"""The scripts in scripts/examples, as a user calls them."""

import csv
import io
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from run_scenarios import WHOLE_JOB

EXAMPLES = Path(__file__).parents[2] / "scripts" / "examples"


def example(name: str, *arguments: str | Path) -> subprocess.CompletedProcess[str]:
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    return subprocess.run(
        [str(EXAMPLES / name), *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=100,
        stdin=subprocess.DEVNULL,
        env=os.environ | {"PATH": path},
    )


def test_seeds_are_swept_and_compared(write_spec: Callable[..., Path], tmp_path: Path) -> None:
    spec = write_spec(WHOLE_JOB)
    records = tmp_path / "sweep"
    done = example("sweep-seeds", spec, records, "1", "2", "--", "--set", "assessment.episodes=1")
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert [line.split()[:2] for line in lines[1:3]] == [["seed-1", "finished"], ["seed-2", "finished"]]


def test_records_are_tabulated(records: Path) -> None:
    done = example("tabulate-records", records / "finished", records / "nowhere", records / "crashed")
    assert done.returncode == 1
    assert "left out: " in done.stderr
    rows = list(csv.DictReader(io.StringIO(done.stdout)))
    assert [(row["record"], row["submission"][-1], row["spent"], row["score"]) for row in rows[:3]] == [
        ("finished", "1", "2", "9.5"),
        ("finished", "2", "4", "40.0"),
        ("finished", "3", "6", "38.0"),
    ]
    assert len(rows) == 6


def test_the_best_so_far_is_told_from_the_events(write_spec: Callable[..., Path]) -> None:
    done = example("best-so-far", write_spec(WHOLE_JOB))
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert [line.split()[0] for line in lines] == ["submission-000001", "submission-000002", "ended:"]
    assert lines[1].split()[1] == "5.0"


def test_without_arguments_each_says_how_it_is_called() -> None:
    for script in EXAMPLES.iterdir():
        done = example(script.name)
        assert done.returncode == 2
        assert f"scripts/examples/{script.name} " in done.stderr
