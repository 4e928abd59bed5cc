"""Paired changes and diagnostics of a recorded Run."""

import math
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from recorded_runs import write_paired_record
from rich.text import Text

from evopolicygym.analysis import PairedChange
from evopolicygym.cli.frames import change_text
from evopolicygym.cli.recorded import RecordedRun, open_recorded


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RecordedRun]:
    """Three Submissions: two on Episodes 0 to 5, one elsewhere."""
    home = tmp_path_factory.mktemp("paired")
    rewards = [
        dict.fromkeys(range(6), 1.0),
        {index: 3.0 + index % 2 for index in range(6)},
        dict.fromkeys(range(10, 12), 9.0),
        dict.fromkeys(range(6), 3.5),
    ]
    write_paired_record(home / "record", home / "program", rewards)
    yield open_recorded(home / "record")
    subprocess.run(["chmod", "-R", "u+w", str(home)], check=True)


def test_shared_episodes_are_compared_with_the_previous_and_the_best(run: RecordedRun) -> None:
    changes = run.changes([f"submission-{number:06d}" for number in range(1, 5)])
    assert "submission-000001" not in changes
    second = changes["submission-000002"]
    assert second.previous is not None
    assert (second.previous.pairs, second.previous.mean) == (6, 2.5)
    assert second.best == second.previous
    assert changes["submission-000003"].previous is None
    assert changes["submission-000004"].best is None  # the best before it played elsewhere


def test_a_change_is_the_same_whatever_else_is_shown(tmp_path: Path) -> None:
    rewards = [{index: math.sin(index * 7 + number) for index in range(50)} for number in range(20)]
    write_paired_record(tmp_path / "record", tmp_path / "program", rewards, budget=1000)
    run = open_recorded(tmp_path / "record")
    names = [row.submission_id for row in run.view.published]
    assert run.changes(names[1:2])[names[1]] == run.changes(names)[names[1]]
    subprocess.run(["chmod", "-R", "u+w", str(tmp_path)], check=True)


def test_a_record_without_diagnostics_has_them_worked_out(run: RecordedRun) -> None:
    curve = run.diagnostics["trajectory"]
    assert isinstance(curve, dict)
    assert curve["best_submission_id"] == "submission-000003"
    assert curve["submissions"] == 4
    assert run.edits["submission-000001"] == "none"


@pytest.mark.parametrize(
    ("change", "maximizes", "text", "style"),
    [
        (PairedChange(6, 0, 2.5, 1.25, 300.0), True, "+2.5 (+1.25 … +300)", "green"),
        (PairedChange(6, 0, 2.5, 1.0, 3.0), False, "+2.5 (+1 … +3)", "red"),
        (PairedChange(6, 0, -2.5, -4.0, 0.5), True, "-2.5 (-4 … +0.5)", "dim"),
        (PairedChange(2, 0, 2.5), True, "+2.5", "dim"),
        (PairedChange(0, 3, None), True, "", "dim"),
        (None, True, "", "dim"),
    ],
)
def test_a_change_is_coloured_only_where_it_is_clear(
    change: PairedChange | None, maximizes: bool, text: str, style: str
) -> None:
    shown = change_text(change, maximizes=maximizes)
    assert (shown.plain, shown.style) == (text, style)


def test_in_words_a_change_says_how_much_stands_behind_it() -> None:
    shown: Text = change_text(PairedChange(6, 2, -2.5, -4.0, 0.5), maximizes=True, words=True)
    assert shown.plain == (
        "-2.5 (-4 … +0.5) mean reward on 6 shared Episodes, 2 left out where a Policy failed; may be noise"
    )
