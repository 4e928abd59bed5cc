"""Records of the public 0.3 kernel: same layout, another manifest, other events, no transcript and no logs."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from recorded_runs import Command

from evopolicygym.cli.inspect_command import Wanted, inspect_record


@pytest.fixture
def foreign(tmp_path: Path) -> Path:
    root = tmp_path / "foreign"
    for number, (score, left) in enumerate(((3.0, 16), (5.0, 12)), 1):
        identifier = f"submission-{number:06d}"
        program = root / "submissions" / identifier / "program"
        program.mkdir(parents=True)
        (program / "policy.py").write_text(f"GAIN = {number}\n")
        episodes = [
            {"episode_index": index, "status": "completed", "reward": score + index % 2, "steps": 4, "failure": None}
            for index in range(4)
        ]
        episodes[3] |= {"status": "policy_failed", "reward": None, "failure": "timeout"}
        feedback = {
            "schema": "evopolicygym/feedback/v2",
            "submission_id": identifier,
            "program_digest": f"sha256:{number:064d}",
            "episode_indices": [0, 1, 2, 3],
            "episodes_used": 4,
            "episodes_remaining": left,
            "score": score,
            "content": {"mean": score},
            "episodes": episodes,
            "artifacts": [],
        }
        (root / "submissions" / identifier / "feedback.json").write_text(json.dumps(feedback))
    (root / "initial" / "program").mkdir(parents=True)
    (root / "initial" / "program" / "policy.py").write_text("GAIN = 0\n")
    manifest = {
        "schema": "evopolicygym/run-record/v8",
        "terminal_reason": "finished",
        "benchmark": {"id": "public/cartpole"},
        "agent": {"identity": {"name": "codex"}},
        "selected_submission_id": "submission-000002",
        "assessment": {"score": 4.5, "episodes": 10, "policy_failures": 0},
    }
    (root / "run.json").write_text(json.dumps(manifest))
    (root / "events.jsonl").write_text('{"kind": "something else"}\n' * 50)
    return root


def test_it_is_summed_up_without_complaints(command: Command, foreign: Path) -> None:
    done = command("inspect", foreign)
    assert done.returncode == 0
    for expected in (
        "public/cartpole  finished",
        "best 5.000 (submission-000002), first 3.000",
        "Edits       2 parametric",
        "8 of 20 Episodes",
        "codex",
        "4.500 on 10 held-out Episodes",
    ):
        assert expected in done.stdout
    assert "damaged" not in done.stdout


def test_its_parts_can_be_inspected(foreign: Path, capfd: pytest.CaptureFixture[str]) -> None:
    def shown(**wanted: object) -> str:
        inspect_record(foreign, Wanted(**wanted))  # type: ignore[arg-type]  # as named here
        return " ".join(capfd.readouterr().out.split())  # however wide the terminal is

    assert "+2 mean reward on 3 shared Episodes, 1 left out where a Policy failed" in shown(submission="2")
    assert "+GAIN = 2" in shown(diff=("1", "2"))
    assert "the Agent left no transcript" in shown(agent=True)
    assert json.loads(shown(as_json=True))["record_schema"] == "evopolicygym/run-record/v8"


def test_it_can_be_compared(command: Command, foreign: Path, records: Path) -> None:
    done = command("compare", foreign, records / "finished")
    assert done.returncode == 0, done.stderr
    assert "public/cartpole" in done.stdout


def test_a_program_of_it_can_be_evaluated_against(
    command: Command, foreign: Path, write_spec: Callable[..., Path]
) -> None:
    from target_benchmark import RIGHT_POLICY

    (foreign / "submissions" / "submission-000002" / "program" / "policy.py").write_text(RIGHT_POLICY)
    spec = write_spec("")
    done = command("evaluate", spec, "--episodes", "6", "--against", f"{foreign}:2")
    assert done.returncode == 0, done.stderr
    assert f"Against     {foreign}:submission-000002" in done.stdout
    assert "mean reward on 6 shared Episodes" in done.stdout
    report = json.loads(command("evaluate", spec, "--episodes", "6", "--against", foreign, "--json").stdout)
    assert report["against"]["evaluation"]["score"] == 5.0
    assert report["against"]["paired"]["mean"] < 0
    missing = command("evaluate", spec, "--against", f"{foreign}:9")
    assert missing.returncode == 2
    assert "it has submission-000001 to submission-000002" in missing.stderr
