"""A Record that is damaged anywhere is refused by name, or read around; nothing ever dies on it or hangs."""

import random
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from run_scenarios import run_scripted, scripted_agent
from target_benchmark import TargetBenchmark

from evopolicygym.cli.recorded import RecordedRun
from evopolicygym.cli.report import run_report
from evopolicygym.errors import EvoPolicyGymError
from evopolicygym.execution import ProcessExecution
from evopolicygym.record import RecordLock, open_run
from evopolicygym.run import AssessmentConfig, ValidationConfig, resume
from evopolicygym.run.recovery import read_progress
from evopolicygym.run.resumption import Wish, finished_result, plan

DAMAGES = 2000
RESUMED = 12

SCRIPT = """
submit("0:2")
improve()
submit("0:2,4:8")
submit("oops")
session("finish", "submission-000002", "submission-000001")
"""


@pytest.fixture(scope="module")
def records(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """A finished Run; the same killed in its Validation, killed in its Evaluation, and ended without a hand-off."""
    folder = tmp_path_factory.mktemp("damage")
    _, finished = run_scripted(
        folder,
        SCRIPT,
        benchmark=TargetBenchmark(bulk_bytes=100),
        validation=ValidationConfig(episodes_per_candidate=2, max_candidates=2),
        assessment=AssessmentConfig(episodes=2),
    )
    made = [finished]
    for name, last in (("validating", "validation_candidate_completed"), ("evaluating", "episode_completed")):
        copy = folder / name
        shutil.copytree(finished, copy)
        cut_after(copy, last)
        made.append(copy)
    return made


def cut_after(record: Path, event: str) -> None:
    """As a Host leaves it that is killed right after the first line of ``event``."""
    lines = (record / "events.jsonl").read_bytes().splitlines(keepends=True)
    last = next(number for number, line in enumerate(lines) if f'"event":"{event}"'.encode() in line)
    (record / "events.jsonl").write_bytes(b"".join(lines[: last + 1]))
    started = b"".join(lines[: last + 1])
    for name in ("submission-000001", "submission-000002"):
        tree = record / "submissions" / name
        if f'"evaluation_started","submission_id":"{name}"'.encode() not in started:
            for path in (tree, *tree.rglob("*")):
                path.chmod(0o755)
            shutil.rmtree(tree)
    manifest = (record / "run.json").read_bytes()
    for old, new in ((b'"status": "finished"', b'"status": "running"'), (b'"terminal_reason"', b'"was_reason"')):
        assert old in manifest
        manifest = manifest.replace(old, new)
    (record / "run.json").write_bytes(manifest)


def hosts_files(record: Path) -> list[Path]:
    """What the Host reads back."""
    kept = [path for path in record.rglob("*") if path.is_file() and path.stat().st_size]
    inside = {path: path.relative_to(record).parts for path in kept}
    return sorted(
        path
        for path in kept
        if inside[path][0] not in ("workspace", "agent", "run.lock") and "policy-logs" not in inside[path]
    )


def damaged(files: list[Path], count: int) -> Iterator[tuple[Path, bytes, bytes]]:
    chance = random.Random(20)
    journals = [path for path in files if path.name == "events.jsonl"]
    for number in range(count):
        path = chance.choice(journals if number % 2 else files)
        whole = path.read_bytes()
        if number % 5 == 0:
            broken = whole[: chance.randrange(len(whole))]
        else:
            place = chance.randrange(len(whole))
            broken = whole[:place] + bytes([whole[place] ^ (1 << chance.randrange(8))]) + whole[place + 1 :]
        yield path, whole, broken


def looked_at(record: Path) -> None:
    """What ``inspect`` and ``resume`` do with a Record before anything is started."""
    opened = open_run(record)
    run_report(RecordedRun(opened))
    with RecordLock(opened.layout):
        again = open_run(record)
        progress, _ = read_progress(again)
        if progress.terminal_reason == "finished":
            finished_result(again, progress)
        else:
            benchmark = TargetBenchmark(bulk_bytes=100)
            agent = scripted_agent(record.parent, SCRIPT, [])
            plan(again, progress, Wish(benchmark, agent, ProcessExecution.unsafe(workers=0)))


def refusal(record: Path) -> str | None:
    try:
        looked_at(record)
    except EvoPolicyGymError as error:
        return str(error)
    return None


def test_two_thousand_damages_are_named_or_harmless(records):
    refused, unnamed = 0, []
    for record in records:
        assert refusal(record) is None
        for path, whole, broken in damaged(hosts_files(record), DAMAGES // len(records)):
            path.chmod(0o644)
            path.write_bytes(broken)
            told = refusal(record)
            path.write_bytes(whole)
            refused += told is not None
            folder = path.relative_to(record).parts[:-1]
            named = told is None or path.name in told or (folder and all(part in told for part in folder[:2]))
            if not named:
                unnamed.append((path, told))
    assert unnamed == []
    assert DAMAGES // 4 < refused < DAMAGES


def test_a_damaged_line_of_the_journal_is_named_by_its_number(records):
    journal = records[1] / "events.jsonl"
    whole = journal.read_bytes()
    lines = whole.splitlines(keepends=True)
    journal.write_bytes(b"".join([*lines[:4], lines[4].replace(b'"', b"'", 1), *lines[5:]]))
    try:
        with pytest.raises(EvoPolicyGymError, match=r"events\.jsonl:5: "):
            looked_at(records[1])
    finally:
        journal.write_bytes(whole)


def test_what_is_not_refused_can_be_resumed_to_its_end(records, tmp_path):
    done = 0
    for number, (path, _, broken) in enumerate(damaged(hosts_files(records[2]), RESUMED)):
        copy = tmp_path / str(number)
        shutil.copytree(records[2], copy)
        struck = copy / path.relative_to(records[2])
        struck.chmod(0o644)
        struck.write_bytes(broken)
        try:
            result = resume(
                copy,
                benchmark=TargetBenchmark(bulk_bytes=100),
                agent=scripted_agent(tmp_path, SCRIPT, []),
                execution=ProcessExecution.unsafe(workers=0),
            )
        except EvoPolicyGymError:
            continue
        assert result.terminal_reason in ("finished", "agent_exited")
        done += 1
    assert done
