"""``evopolicygym compare``: what is put side by side, paired, marked and left out."""

import csv
import io
import json
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from pydantic import TypeAdapter
from recorded_runs import Command, write_record

from evopolicygym.cli.compare_command import compare_runs
from evopolicygym.cli.documents import DOCUMENTS
from evopolicygym.errors import RecordError

Compare = Callable[..., str]


@pytest.fixture(scope="module")
def compared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Three finished Runs, of which two share pool and seed, and one that the machine failed."""
    home = tmp_path_factory.mktemp("compared")
    runs = home / "runs"
    for name, scores, seed, reason in (
        ("first", (9.5, 40.0), 7, "finished"),
        ("second", (9.5, 45.0), 7, "finished"),
        ("third", (1.0, 2.0), 8, "finished"),
        ("broken", (100.0,), 7, "evaluation_failed"),
    ):
        write_record(runs / name, home / f"program-{name}", scores=scores, terminal_reason=reason)
        extend(runs / name, seed, "none" if name == "third" else "traceback")
    yield runs
    subprocess.run(["chmod", "-R", "u+w", str(home)], check=True)


def extend(record: Path, seed: int, policy_diagnostics: str) -> None:
    """Give a Record what a whole Run's manifest and journal have."""
    manifest = json.loads((record / "run.json").read_text())
    manifest |= {
        "config": {"seed": seed, "episode_budget": 10, "policy_diagnostics": policy_diagnostics},
        "benchmark": {"id": "CartPole-v1", "environment_digest": "sha256:0"},
        "pool": {"digest": f"sha256:{seed}"},
        "host": {"execution": "unsafe-process"},
    }
    (record / "run.json").write_text(json.dumps(manifest))
    best = 1.0 if record.name == "first" else 3.0
    with open(record / "events.jsonl", "a", encoding="utf-8") as journal:
        for position in range(10):
            event = {
                "seq": 1000 + position,
                "event": "assessment_episode_completed",
                "position": position,
                "reward": best,
            }
            journal.write(json.dumps(event) + "\n")


@pytest.fixture
def compare(capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Compare:
    monkeypatch.delenv("COLUMNS", raising=False)

    def call(*paths: Path, against: str | None = None, as_json: bool = False, as_csv: bool = False) -> str:
        compare_runs(paths, against=against, as_json=as_json, as_csv=as_csv)
        return capfd.readouterr().out

    return call


def test_runs_stand_side_by_side(command: Command, compared: Path) -> None:
    done = command("compare", compared)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert lines[0].split()[:4] == ["Run", "Outcome", "Held-out", "Training"]
    assert [line.split()[0] for line in lines[1:5]] == ["broken", "first", "second", "third"]


def test_a_run_that_the_machine_failed_has_no_score(compare: Compare, compared: Path) -> None:
    report = json.loads(compare(compared, as_json=True))
    broken = next(run for run in report["runs"] if run["run"] == "broken")
    assert broken["infrastructure_failure"]
    assert broken["best_training"] is None
    assert broken["score_area"] is None
    assert report["groups"][0]["measured"] == 3
    assert report["groups"][0]["runs"] == 4
    assert "broken: evaluation failed; no score of it is counted" in compare(compared)


@pytest.mark.parametrize(
    ("reason", "counted"),
    [
        *((reason, False) for reason in ("usage_limit", "authentication", "overloaded", "network")),
        *((reason, False) for reason in ("not_started", "incompatible", "stub")),
        *((reason, True) for reason in ("crashed", "stalled", "finished_without_handoff")),
    ],
)
def test_a_score_counts_unless_the_agents_provider_failed(
    compare: Compare, tmp_path: Path, reason: str, counted: bool
) -> None:
    for name in ("one", "other"):
        record = tmp_path / name
        write_record(record, tmp_path / f"program-{name}", scores=(9.5,), terminal_reason="agent_failed")
        extend(record, 7, "none")
    ended = json.loads((record / "run.json").read_text()) | {"agent_end": {"reason": reason}}
    (record / "run.json").write_text(json.dumps(ended))
    report = json.loads(compare(tmp_path / "one", record, as_json=True))
    assert [run["best_training"] for run in report["runs"]] == [9.5, 9.5 if counted else None]
    assert [run["infrastructure_failure"] for run in report["runs"]] == [False, not counted]


def test_runs_on_the_same_episodes_are_paired(compare: Compare, compared: Path) -> None:
    report = json.loads(compare(compared, against="first", as_json=True))
    assert [(pair["run"], pair["episodes"], pair["change"]["mean"]) for pair in report["pairs"]] == [
        ("second", "held-out", 2.0),
        ("second", "training", 5.0),
    ]
    assert "second  held-out  +2 (+2 … +2) mean reward on 10 shared Episodes" in compare(compared, against="first")


def test_a_run_that_shares_its_episodes_with_none_says_so(compare: Compare, compared: Path) -> None:
    shown = " ".join(compare(compared, against="third").split())
    assert "No other Run has played the Episodes of third" in shown
    assert "broken has no score that counts" in " ".join(compare(compared).split())


def test_what_the_runs_differ_in_is_told(compare: Compare, compared: Path) -> None:
    report = json.loads(compare(compared, as_json=True))
    assert report["differences"] == {
        "policy diagnostics": {"traceback": ["broken", "first", "second"], "none": ["third"]}
    }
    assert any("small seed" in warning for warning in report["warnings"])


def test_the_document_keeps_its_schema(compare: Compare, compared: Path) -> None:
    TypeAdapter(DOCUMENTS["comparison"]).validate_json(compare(compared, as_json=True), strict=True)


def test_csv_has_one_line_a_run(compare: Compare, compared: Path) -> None:
    rows = list(csv.DictReader(io.StringIO(compare(compared / "first", compared / "third", as_csv=True))))
    assert [row["run"] for row in rows] == ["first", "third"]
    assert rows[0]["assessment"] == "47.5"


def test_narrow_terminals_keep_the_first_columns(
    compare: Compare, compared: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    shown = compare(compared).splitlines()
    assert shown[0].split() == ["Run", "Outcome", "Held-out"]
    assert max(map(len, shown)) <= 40


def test_records_of_the_same_name_are_told_apart_by_their_folders(
    compare: Compare, compared: Path, tmp_path: Path
) -> None:
    shutil.copytree(compared / "first", tmp_path / "other" / "first")
    report = json.loads(compare(compared / "first", tmp_path / "other" / "first", as_json=True))
    assert [run["run"] for run in report["runs"]] == ["runs/first", "other/first"]
    subprocess.run(["chmod", "-R", "u+w", str(tmp_path)], check=True)


def test_one_record_is_no_comparison(compare: Compare, compared: Path) -> None:
    with pytest.raises(RecordError, match="two Records or more"):
        compare(compared / "first")


def test_a_run_to_pair_with_must_be_compared(compare: Compare, compared: Path) -> None:
    with pytest.raises(RecordError, match="--against fourth: it is not one of the Runs compared, broken"):
        compare(compared, against="fourth")
