"""Plain progress lines, as scripts and logs get them."""

import io
import os
import pty
from pathlib import Path

import pytest
from recorded_runs import HOSTILE, write_record

from evopolicygym.run import ConsoleProgress, RunObserver
from evopolicygym.run.console import inert_text, score_text


def lines_of(tmp_path: Path, *, text: str = "said", terminal_reason: str = "finished") -> list[str]:
    stream = io.StringIO()
    write_record(
        tmp_path / "record",
        tmp_path / "program",
        text=text,
        terminal_reason=terminal_reason,
        observer=ConsoleProgress(stream, mode="plain"),
    )
    return stream.getvalue().splitlines()


def test_there_is_one_line_for_each_event_worth_reading(tmp_path: Path) -> None:
    lines = [line.partition("] ")[2] for line in lines_of(tmp_path)]
    assert lines == [
        "Run started: CartPole-v1, Agent ParameterTuner, 10 Episodes in at most 10 Submissions",
        "Agent started",
        "submission-000001: evaluating 2 Episodes",
        "submission-000001: score 9.500, 1 Policy failure, 0.0 s, 8 Episodes left",
        "submission-000002: evaluating 2 Episodes",
        "submission-000002: score 40.00, best so far (was 9.500), 1 Policy failure, 0.0 s, 6 Episodes left",
        "submission-000003: evaluating 2 Episodes",
        "submission-000003: score 38.00, 1 Policy failure, 0.0 s, 4 Episodes left",
        "handed off: submission-000002",
        "Agent ended (finished) after 1.5 s",
        "Validation: 1 candidate, 5 Episodes each",
        "Validation: submission-000002 scores 41.00",
        "selected: submission-000002",
        "Assessment: submission-000002 on 10 held-out Episodes",
        "Assessment: score 47.50",
        "Run ended: finished",
    ]


def test_text_of_an_agent_stays_on_its_line_without_control_characters(tmp_path: Path) -> None:
    lines = lines_of(tmp_path, text=HOSTILE, terminal_reason="agent_failed")
    told = next(line for line in lines if "Agent ended" in line)
    assert told.endswith(r"[bold red]not markup[/] \x1b[31mred\x1b]0;title\x07 \u202ereversed second line")


def test_another_mode_is_refused() -> None:
    with pytest.raises(ValueError, match='"auto" or "plain"'):
        ConsoleProgress(mode="fancy")


def test_it_is_a_run_observer() -> None:
    assert isinstance(ConsoleProgress(io.StringIO()), RunObserver)


def test_a_stream_that_cannot_encode_a_character_gets_a_question_mark(tmp_path: Path) -> None:
    buffer = io.BytesIO()
    stream = io.TextIOWrapper(buffer, encoding="ascii")
    write_record(
        tmp_path / "record",
        tmp_path / "program",
        text="ünder",
        terminal_reason="agent_failed",
        observer=ConsoleProgress(stream, mode="plain"),
    )
    assert b"?nder" in buffer.getvalue()


def test_on_a_terminal_the_running_evaluation_keeps_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    ours, theirs = pty.openpty()
    try:
        with open(theirs, "w", encoding="utf-8") as terminal:
            write_record(tmp_path / "record", tmp_path / "program", scores=(1.0,), observer=ConsoleProgress(terminal))
            shown = os.read(ours, 65536)
    finally:
        os.close(ours)
    assert b"\r\x1b[Ksubmission-000001: 2 of 2 Episodes" in shown
    assert b"\r\x1b[K[0:00:00] submission-000001: score" in shown


@pytest.mark.parametrize(
    ("score", "text"),
    [
        (9.5, "9.500"),
        (500, "500.00"),
        (-1234.56, "-1234.6"),
        (0.01234, "0.0123"),
        (0.0, "0"),
        (None, "–"),
        (1e-9, "1e-09"),
    ],
)
def test_a_score_has_the_digits_that_a_reader_can_use(score: object, text: str) -> None:
    assert score_text(score) == text


def test_long_text_is_cut_and_marked() -> None:
    assert inert_text("a  b\n" * 1000, 10) == "a b a b a…"
    assert len(inert_text("\x00" * 100, 20)) == 20
    assert inert_text("family 👨‍👩‍👧 ü 例") == "family 👨‍👩‍👧 ü 例"
