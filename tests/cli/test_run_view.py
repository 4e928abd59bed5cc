"""The fold over a Run's events that the live display, the summary and inspect share."""

from pathlib import Path

import pytest
from recorded_runs import Kept, write_record

from evopolicygym.cli.frames import live_frame
from evopolicygym.cli.numbers import duration_text
from evopolicygym.cli.run_view import RunView, sparkline
from evopolicygym.record import RunEvent


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> list[RunEvent]:
    """All events of a finished Run with scores 9.5, 40, 38."""
    home = tmp_path_factory.mktemp("view")
    kept = Kept()
    write_record(home / "record", home / "program", observer=kept)
    return kept.events


def view_until(told: list[RunEvent], name: str, count: int = 1) -> RunView:
    view = RunView()
    for event in told:
        view.apply(event)
        count -= event.name == name
        if not count:
            return view
    raise AssertionError(f"{name} is not told that often")


def event(name: str, /, **fields: object) -> RunEvent:
    return RunEvent(name, 1, 1, fields)  # type: ignore[arg-type]  # tests pass what a journal may hold


def test_the_best_submission_and_the_changes_follow_the_scores(told: list[RunEvent]) -> None:
    view = view_until(told, "run_committed")
    assert view.best is not None
    assert view.best.submission_id == "submission-000002"
    assert [row.change for row in view.submissions.values()] == [None, 30.5, -2.0]
    assert view.initial_score == 9.5


def test_a_lower_score_is_better_when_the_benchmark_minimizes(told: list[RunEvent]) -> None:
    view = RunView()
    for one in told:
        fields = dict(one.fields)
        if one.name == "run_started":
            fields["score_direction"] = "minimize"
        view.apply(RunEvent(one.name, one.time_unix_ns, one.monotonic_ns, fields))
    assert view.best is not None
    assert view.best.submission_id == "submission-000001"
    assert [row.change for row in view.submissions.values()] == [None, -30.5, -28.5]


def test_the_budget_is_charged_when_an_evaluation_starts(told: list[RunEvent]) -> None:
    view = view_until(told, "evaluation_started")
    assert (view.episodes_used, view.episodes_remaining) == (2, 8)
    assert view.running is not None
    assert (view.running.completed, view.running.planned) == (0, 2)


def test_episodes_of_the_running_evaluation_are_counted(told: list[RunEvent]) -> None:
    view = view_until(told, "episode_completed", 2)
    assert view.running is not None
    assert (view.running.completed, view.running.failed) == (2, 1)
    assert view.policy_failures == {"exception": 1}


def test_phases_follow_one_another(told: list[RunEvent]) -> None:
    assert view_until(told, "run_started").phase == "preparing"
    assert view_until(told, "agent_started").phase == "agent"
    assert view_until(told, "agent_ended").phase == "selection"
    assert view_until(told, "validation_started").phase == "validation"
    assert view_until(told, "assessment_started").phase == "assessment"
    assert view_until(told, "run_committed").phase == "ended"


def test_selection_and_assessment_are_kept(told: list[RunEvent]) -> None:
    view = view_until(told, "run_committed")
    assert (view.selected, view.selected_by) == ("submission-000002", "validation")
    assert view.assessment_score == 47.5
    assert view.terminal_reason == "finished"


def test_unknown_events_and_missing_fields_change_nothing_for_the_worse() -> None:
    view = RunView()
    for name in ("from_the_future", "run_started", "evaluation_started", "submission_published", "agent_event"):
        view.apply(event(name))
    view.apply(event("episode_completed", failure=None))
    view.apply(event("run_committed", terminal_reason=None))
    assert view.best is None


def test_a_cancelled_evaluation_is_a_failed_submission_and_no_fault(told: list[RunEvent]) -> None:
    view = view_until(told, "evaluation_started")
    cancelled = event("evaluation_failed", submission_id="submission-000001", reason="cancelled", message="time")
    view.apply(cancelled)
    assert view.submissions["submission-000001"].state == "failed"
    assert view.faults == []
    assert view.running is None


def test_a_resumed_run_is_open_again(told: list[RunEvent]) -> None:
    view = view_until(told, "evaluation_started", 2)
    view.apply(event("interrupted", phase="agent", signal="SIGINT"))
    view.apply(event("run_committed", terminal_reason="interrupted"))
    view.apply(event("run_resumed", attempt=2))
    assert view.terminal_reason is None
    assert view.attempt == 2
    assert view.submissions["submission-000002"].state == "failed"


def test_a_frame_can_be_drawn_after_every_event_at_every_size(told: list[RunEvent]) -> None:
    import io

    from rich.console import Console

    for width, height in ((20, 5), (40, 20), (80, 24), (200, 50)):
        console = Console(file=io.StringIO(), width=width, height=height, markup=False)
        view = RunView()
        for one in told:
            view.apply(one)
            frame = live_frame(view, Path("/r"), width=width, height=height, now_ns=one.monotonic_ns)
            lines = console.render_lines(frame, pad=False)
            assert all(sum(len(segment.text) for segment in line) <= width for line in lines)


def test_a_frame_of_a_long_run_fits_the_terminal() -> None:
    import io

    from rich.console import Console

    view = RunView(episode_budget=1000, max_submissions=500, phase="agent")
    for number in range(1, 301):
        name = f"submission-{number:06d}"
        view.apply(event("evaluation_started", submission_id=name, episode_count=2, episodes_remaining=400))
        view.apply(event("submission_published", submission_id=name, score=float(number == 7), policy_failures=0))
    console = Console(file=io.StringIO(), width=80, height=24, markup=False)
    lines = console.render_lines(live_frame(view, Path("/r"), width=80, height=24, now_ns=1), pad=False)
    text = "\n".join("".join(segment.text for segment in line) for line in lines)
    assert len(lines) <= 24
    assert "submission-000007 ★" in text
    assert "submission-000300" in text


def test_a_sparkline_spans_from_the_lowest_to_the_highest() -> None:
    assert sparkline([0.0, 1.0, 0.5], width=10) == "▁█▅"
    assert sparkline([2.0, 2.0], width=10) == "▄▄"
    assert sparkline([1.0, 2.0, 3.0], width=2) == "▁█"
    assert sparkline([], width=10) == ""


def test_durations_read_as_a_person_says_them() -> None:
    assert [duration_text(seconds) for seconds in (3.21, 42, 187, 3787)] == ["3.2 s", "42 s", "3:07", "1:03:07"]
