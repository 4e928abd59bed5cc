"""The rules of the budget, without a process."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evopolicygym.session.ledger import (
    LedgerLimits,
    LedgerState,
    Refusal,
    admit_finish,
    admit_submission,
)
from evopolicygym.session.protocol import ErrorCode

LIMITS = LedgerLimits(
    episode_budget=30, pool_size=60, max_submissions=3, max_episodes_per_submission=10, max_candidates=2
)
EXHAUST = replace(LIMITS, finish_budget_policy="require_budget_exhaustion")


def started(state: LedgerState, submission_id: str, count: int, remaining: int = 0) -> LedgerState:
    return state.apply(
        "evaluation_started",
        {
            "submission_id": submission_id,
            "program_digest": "sha256:00",
            "episodes": f"0:{count}",
            "episode_count": count,
            "episodes_remaining": remaining,
        },
    )


def published(state: LedgerState, submission_id: str, count: int, score: float = 1.0) -> LedgerState:
    running = started(state, submission_id, count)
    return running.apply("submission_published", {"submission_id": submission_id, "score": score})


def refusal_of(limits: LedgerLimits, state: LedgerState, selector: str) -> Refusal:
    with pytest.raises(Refusal) as refused:
        admit_submission(limits, state, selector)
    return refused.value


def finish_refusal(limits: LedgerLimits, state: LedgerState, *ids: str) -> Refusal:
    with pytest.raises(Refusal) as refused:
        admit_finish(limits, state, ids)
    return refused.value


def test_a_submit_is_charged_by_its_number_of_indices() -> None:
    admitted = admit_submission(LIMITS, LedgerState(), "0:2,4:8")
    assert admitted.submission_id == "submission-000001"
    assert admitted.indices == (0, 1, 4, 5, 6, 7)
    assert admitted.episodes == "0:2,4:8"
    assert admitted.episodes_remaining == 24


def test_the_journalled_selector_is_canonical() -> None:
    assert admit_submission(LIMITS, LedgerState(), "0,1,2:4,9").episodes == "0:4,9"


def test_a_bad_selector_is_refused_with_its_reason() -> None:
    refusal = refusal_of(LIMITS, LedgerState(), "60")
    assert refusal.code is ErrorCode.SELECTOR_INVALID
    assert "use indices 0 to 59" in refusal.message


def test_over_budget_says_how_many_are_left() -> None:
    state = published(LedgerState(), "submission-000001", 27)
    refusal = refusal_of(LIMITS, state, "0:4")
    assert refusal.code is ErrorCode.OVER_BUDGET
    assert "3 of 30 Episodes are left; ask for at most 3" in refusal.message


def test_over_the_cap_says_the_cap() -> None:
    refusal = refusal_of(LIMITS, LedgerState(), "0:11")
    assert refusal.code is ErrorCode.OVER_CAP
    assert "ask for at most 10" in refusal.message


def test_over_cap_and_budget_asks_for_what_both_allow() -> None:
    refusal = refusal_of(LIMITS, LedgerState(), "0:40")
    assert refusal.code is ErrorCode.OVER_BUDGET
    assert refusal.message.endswith("ask for at most 10")


def test_the_same_index_may_be_asked_for_again_later() -> None:
    state = published(LedgerState(), "submission-000001", 5)
    assert admit_submission(LIMITS, state, "0:5").episodes_remaining == 20


def test_a_failed_evaluation_keeps_its_charge_and_its_id() -> None:
    state = started(LedgerState(), "submission-000001", 6)
    state = state.apply("evaluation_failed", {"submission_id": "submission-000001", "reason": "cancelled"})
    admitted = admit_submission(LIMITS, state, "0")
    assert admitted.submission_id == "submission-000002"
    assert admitted.episodes_remaining == 23
    assert LIMITS.submissions_remaining(state) == 2


def test_without_a_submission_left_a_submit_is_refused() -> None:
    state = LedgerState()
    for number in (1, 2, 3):
        state = published(state, f"submission-{number:06d}", 1)
    assert refusal_of(LIMITS, state, "0").code is ErrorCode.SUBMISSIONS_EXHAUSTED
    assert LIMITS.exhausted(state)


def test_without_an_episode_left_a_submit_is_refused() -> None:
    state = published(LedgerState(), "submission-000001", 30)
    assert refusal_of(LIMITS, state, "0").code is ErrorCode.BUDGET_EXHAUSTED
    assert LIMITS.exhausted(state)


def test_while_an_evaluation_runs_submit_and_finish_name_wait() -> None:
    state = started(published(LedgerState(), "submission-000001", 1), "submission-000002", 1)
    for refusal in (refusal_of(LIMITS, state, "0"), finish_refusal(LIMITS, state, "submission-000001")):
        assert refusal.code is ErrorCode.EVALUATION_RUNNING
        assert "evopolicygym-session wait submission-000002" in refusal.message


def test_candidates_keep_the_agents_order() -> None:
    state = published(published(LedgerState(), "submission-000001", 1), "submission-000002", 1)
    ids = ("submission-000002", "submission-000001")
    assert admit_finish(LIMITS, state, ids) == ids


@pytest.mark.parametrize(
    ("ids", "code"),
    [
        ((), ErrorCode.CANDIDATES_INVALID),
        (("submission-000001", "submission-000001"), ErrorCode.CANDIDATES_INVALID),
        (("submission-000001", "submission-000002", "submission-000003"), ErrorCode.CANDIDATES_INVALID),
        (("submission-000001", "submission-000009"), ErrorCode.SUBMISSION_UNKNOWN),
        (("submission-1",), ErrorCode.SUBMISSION_UNKNOWN),
        (("submission-000003",), ErrorCode.SUBMISSION_FAILED),
    ],
)
def test_wrong_candidates_refuse_the_whole_finish(ids: tuple[str, ...], code: ErrorCode) -> None:
    state = published(published(LedgerState(), "submission-000001", 1), "submission-000002", 1)
    state = started(state, "submission-000003", 1).apply("run_resumed", {})
    assert finish_refusal(LIMITS, state, *ids).code is code


def test_finish_before_the_budget_is_spent_can_be_forbidden() -> None:
    state = published(LedgerState(), "submission-000001", 29)
    refusal = finish_refusal(EXHAUST, state, "submission-000001")
    assert refusal.code is ErrorCode.BUDGET_REMAINING
    assert "1 of 30 Episodes is left" in refusal.message


def test_a_submit_that_makes_exhaustion_impossible_is_refused() -> None:
    refusal = refusal_of(EXHAUST, LedgerState(), "0:9")
    assert refusal.code is ErrorCode.BUDGET_UNREACHABLE
    assert "ask for at least 10" in refusal.message
    assert admit_submission(EXHAUST, LedgerState(), "0:10").episodes_remaining == 20


def test_the_pool_bounds_what_later_submissions_can_spend() -> None:
    small = LedgerLimits(
        episode_budget=8, pool_size=4, max_submissions=2, finish_budget_policy="require_budget_exhaustion"
    )
    assert refusal_of(small, LedgerState(), "0:3").code is ErrorCode.BUDGET_UNREACHABLE
    assert admit_submission(small, LedgerState(), "0:4").episodes_remaining == 4


def test_a_running_submission_is_lost_when_the_run_is_resumed() -> None:
    state = started(LedgerState(), "submission-000001", 6).apply("run_resumed", {"attempt": 2})
    assert state.running is None
    assert state.submissions[0].failure == "lost"
    assert state.episodes_used == 6


def test_a_failure_after_the_publication_takes_nothing_back() -> None:
    state = published(LedgerState(), "submission-000001", 1)
    after = state.apply("evaluation_failed", {"submission_id": "submission-000001", "reason": "publication"})
    assert after.published == state.published


def test_episodes_of_the_running_submission_are_counted() -> None:
    state = started(LedgerState(), "submission-000001", 3)
    state = state.apply("episode_completed", {"submission_id": "submission-000001"})
    assert state.submissions[0].episodes_completed == 1


def test_events_of_other_rooms_change_nothing() -> None:
    state = published(LedgerState(), "submission-000001", 1)
    assert state.apply("agent_event", {"turns": 3}) == state


@pytest.mark.parametrize(
    ("name", "fields"),
    [
        ("evaluation_started", {"submission_id": "submission-000002"}),
        ("evaluation_started", {"submission_id": "submission-000001", "program_digest": "", "episodes": "0",
                                "episode_count": 1, "episodes_remaining": 1}),
        ("submission_published", {"submission_id": "submission-000007", "score": 1.0}),
        ("submission_published", {"submission_id": "submission-000001", "score": "high"}),
        ("finish_requested", {"candidate_submission_ids": []}),
    ],
)  # fmt: skip
def test_a_damaged_event_is_a_value_error(name: str, fields: dict[str, object]) -> None:
    with pytest.raises(ValueError, match=r"."):
        published(LedgerState(), "submission-000001", 1).apply(name, fields)


@given(st.lists(st.tuples(st.integers(0, 12), st.integers(1, 12), st.booleans()), max_size=12))
def test_the_budget_is_conserved_whatever_is_asked(requests: list[tuple[int, int, bool]]) -> None:
    state = LedgerState()
    charged = 0
    for start, count, succeeds in requests:
        try:
            admitted = admit_submission(LIMITS, state, f"{start}:{start + count}")
        except Refusal:
            continue
        charged += count
        state = started(state, admitted.submission_id, count, admitted.episodes_remaining)
        name = "submission_published" if succeeds else "evaluation_failed"
        state = state.apply(
            name, {"submission_id": admitted.submission_id, "score": 0.0, "reason": "fault", "message": ""}
        )
        assert admitted.episodes_remaining == LIMITS.episodes_remaining(state)
    assert state.episodes_used == charged <= LIMITS.episode_budget
    assert len(state.submissions) <= LIMITS.max_submissions
