"""The state of a Run is a fold over its journal."""

import threading

import pytest
from run_scenarios import WHOLE_JOB, event_names, run_scripted

from evopolicygym.agents import AgentUsage
from evopolicygym.record import RunEvent, relay
from evopolicygym.run.progress import RunProgress

SECOND = 10**9


def progress_of(*lines: tuple[object, ...]) -> RunProgress:
    """The state after events that are given as (name, second, fields)."""
    progress = RunProgress()
    for name, second, fields in [("run_started", 0, {"pool_size": 9}), *lines]:
        progress.apply(RunEvent(name, 0, int(second * SECOND), fields))
    return progress


def started(submission: int, second: int, left: int = 5) -> tuple[object, ...]:
    fields = {"submission_id": f"submission-00000{submission}", "program_digest": "d", "episodes": "0:2"}
    return ("evaluation_started", second, {**fields, "episode_count": 2, "episodes_remaining": left})


def published(submission: int, second: int) -> tuple[object, ...]:
    return (
        "submission_published",
        second,
        {"submission_id": f"submission-00000{submission}", "score": 1, "seconds": 1},
    )


def agent_started(attempt: int, second: int) -> tuple[object, ...]:
    return ("agent_started", second, {"attempt": attempt})


def agent_ended(attempt: int, second: int, seconds: float, **fields: object) -> tuple[object, ...]:
    return ("agent_ended", second, {"attempt": attempt, "seconds": seconds, "reason": "crashed", **fields})


RESUMED = ("run_resumed", 3, {"attempt": 2, "phase": "agent"})


def test_a_lost_start_of_the_agent_counts_to_the_last_line_of_its_host():
    progress = progress_of(agent_started(1, 10), started(1, 15), RESUMED, agent_started(2, 4), agent_ended(2, 9, 4.5))
    assert [attempt.seconds for attempt in progress.attempts] == [5.0, 4.5]
    assert [attempt.reason for attempt in progress.attempts] == ["lost", "crashed"]
    assert progress.agent_seconds == 9.5


def test_what_the_agent_used_sums_over_its_starts():
    told = {"turns": 2, "tool_calls": 1, "input_tokens": 10, "cached_tokens": 0, "output_tokens": 5, "cost_usd": 0.5}
    more = told | {"turns": 3, "input_tokens": 20}
    progress = progress_of(
        agent_started(1, 1),
        ("agent_event", 2, told),
        ("agent_event", 3, more),
        RESUMED,
        agent_started(2, 4),
        ("agent_event", 5, told),
    )
    assert progress.usage == AgentUsage(turns=5, tool_calls=2, input_tokens=30, output_tokens=10, cost_usd=1.0)


def test_an_evaluation_that_ran_when_its_host_ended_stays_charged_and_is_lost():
    progress = progress_of(agent_started(1, 1), started(1, 2), published(1, 3), started(2, 4), RESUMED)
    assert progress.ledger.episodes_used == 4
    assert [entry.status for entry in progress.ledger.submissions] == ["published", "failed"]
    assert progress.ledger.next_submission_id == "submission-000003"


def test_an_end_of_the_agent_is_unsettled_until_the_run_was_committed():
    lines = [agent_started(1, 1), agent_ended(1, 2, 1.0)]
    assert progress_of(*lines).agent_ended_unsettled is not None
    assert progress_of(*lines, ("run_committed", 3, {"terminal_reason": "agent_failed"})).agent_ended_unsettled is None
    assert progress_of(agent_started(1, 1), RESUMED).agent_ended_unsettled is None


def test_what_is_owed_next_follows_from_what_was_decided():
    first = [agent_started(1, 1), started(1, 2), published(1, 3)]
    assert progress_of(*first).next_phase(has_assessment=True) == "agent"
    handed_off = [*first, ("finish_requested", 4, {"candidate_submission_ids": ("submission-000001",)})]
    assert progress_of(*handed_off).next_phase(has_assessment=True) == "validation"
    selected = [*handed_off, ("candidate_selected", 5, {"submission_id": "submission-000001"})]
    assert progress_of(*selected).next_phase(has_assessment=True) == "assessment"
    assert progress_of(*selected).next_phase(has_assessment=False) == "commit"


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (("run_started", 1, {}), "twice"),
        (("finish_requested", 1, {"candidate_submission_ids": ("submission-000001",)}), "not all published"),
        (("candidate_selected", 1, {"submission_id": "submission-000001"}), "no candidate"),
        (published(3, 1), "never started"),
    ],
)
def test_lines_that_contradict_those_before_are_refused(line, reason):
    with pytest.raises(ValueError, match=reason):
        progress_of(line)


def test_an_observer_that_hangs_neither_slows_nor_ends_a_run(tmp_path, monkeypatch):
    monkeypatch.setattr(relay, "CLOSE_SECONDS", 0.2)
    gate = threading.Event()

    class Hanging:
        def on_event(self, event):
            gate.wait(60)

    try:
        with pytest.warns(RuntimeWarning, match="Hanging has not kept up"):
            result, record = run_scripted(tmp_path, WHOLE_JOB, observer=Hanging())
    finally:
        gate.set()
    assert result.terminal_reason == "finished"
    assert event_names(record)[-1] == "run_committed"
