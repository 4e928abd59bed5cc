"""The Session in one process: admission, Evaluation, receipts, closing."""

import select
import threading
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from evopolicygym.errors import EvaluationError, RecordError
from evopolicygym.session import LedgerState, PeerGone, Session
from evopolicygym.session.protocol import FinishRequest, Request, StatusRequest, SubmitRequest, WaitRequest

if TYPE_CHECKING:
    from conftest import Desk

WAIT_SECONDS = 30.0
SHORT_SECONDS = 0.05


def ask(session: Session, request: Request, gone: Callable[[], bool] = lambda: False) -> dict[str, object]:
    return session.handle(request, peer_gone=gone)


def submit(desk: "Desk", episodes: str = "0:2", *, wait: bool = True) -> SubmitRequest:
    return SubmitRequest("program", str(desk.program), episodes, wait)


def code(answer: dict[str, object]) -> object:
    error = answer["error"]
    assert isinstance(error, dict)
    return error["code"]


def result(answer: dict[str, object]) -> dict[str, object]:
    assert answer["ok"], answer
    found = answer["result"]
    assert isinstance(found, dict)
    return found


def is_signalled(session: Session) -> bool:
    return bool(select.select([session], [], [], 0)[0])


def test_a_submit_is_reserved_evaluated_and_answered_with_its_receipt(desk: "Desk", session: Session) -> None:
    receipt = result(ask(session, submit(desk, "0:2,4:8")))
    assert receipt["submission_id"] == "submission-000001"
    assert receipt["episode_indices"] == [0, 1, 4, 5, 6, 7]
    assert receipt["episodes_remaining"] == 24
    assert desk.names() == ["evaluation_started"]


def test_wait_repeats_a_receipt_unchanged(desk: "Desk", session: Session) -> None:
    receipt = ask(session, submit(desk))
    assert ask(session, WaitRequest("submission-000001")) == receipt
    assert ask(session, WaitRequest(None)) == receipt


def test_wait_before_any_submit_is_refused(session: Session) -> None:
    assert code(ask(session, WaitRequest(None))) == "submission_unknown"
    assert code(ask(session, WaitRequest("submission-000001"))) == "submission_unknown"


def test_no_wait_is_answered_while_the_evaluation_runs(desk: "Desk", session: Session) -> None:
    desk.hold()
    early = result(ask(session, submit(desk, wait=False)))
    assert early["running"] is True
    assert early["score"] is None
    assert early["episodes_remaining"] == 28
    desk.release()
    assert result(ask(session, WaitRequest(None)))["score"] == 9.5


def test_nothing_queues_while_an_evaluation_runs(desk: "Desk", session: Session) -> None:
    desk.hold()
    ask(session, submit(desk, wait=False))
    assert code(ask(session, submit(desk))) == "evaluation_running"
    assert code(ask(session, FinishRequest(("submission-000001",)))) == "evaluation_running"
    desk.release()
    ask(session, WaitRequest(None))
    assert desk.names() == ["evaluation_started", "submission_refused", "finish_refused"]


def test_nothing_queues_while_a_program_is_captured(desk: "Desk", session: Session) -> None:
    desk.may_capture.clear()
    answers: list[dict[str, object]] = []
    first = threading.Thread(target=lambda: answers.append(ask(session, submit(desk))))
    first.start()
    assert desk.capturing.wait(WAIT_SECONDS)
    assert code(ask(session, submit(desk))) == "evaluation_running"
    assert result(ask(session, StatusRequest()))["running"] is None
    waiter = threading.Thread(target=lambda: answers.append(ask(session, WaitRequest(None))))
    waiter.start()
    desk.may_capture.set()
    first.join(WAIT_SECONDS)
    waiter.join(WAIT_SECONDS)
    assert [result(answer)["submission_id"] for answer in answers] == ["submission-000001"] * 2


def test_status_tells_limits_rest_and_progress(desk: "Desk", session: Session) -> None:
    ask(session, submit(desk))
    desk.hold()
    desk.evaluating.clear()
    ask(session, submit(desk, "5:8", wait=False))
    assert desk.evaluating.wait(WAIT_SECONDS)
    status = result(ask(session, StatusRequest()))
    digest = result(ask(session, WaitRequest("submission-000001")))["program_digest"]
    assert status == {
        "episodes_remaining": 25,
        "episode_budget": 30,
        "submissions_remaining": 18,
        "max_submissions": 20,
        "seconds_remaining": 1234.6,
        "pool_size": 60,
        "max_episodes_per_submission": 10,
        "max_candidates": 2,
        "primary_metric": "mean_return",
        "score_direction": "maximize",
        "finish_budget_policy": "allow_early",
        "running": {
            "submission_id": "submission-000002",
            "episodes": "5:8",
            "episode_count": 3,
            "episodes_completed": 1,
        },
        "published": [
            {"submission_id": "submission-000001", "score": 9.5, "episodes_used": 2, "program_digest": digest}
        ],
        "published_omitted": 0,
    }
    desk.release()


def test_a_program_that_cannot_be_captured_charges_nothing(desk: "Desk", session: Session) -> None:
    (desk.program / "policy.py").unlink()
    assert code(ask(session, submit(desk))) == "program_invalid"
    assert result(ask(session, StatusRequest()))["submissions_remaining"] == 20
    assert desk.names() == ["submission_refused"]


def test_only_the_workspaces_program_can_be_submitted(desk: "Desk", session: Session) -> None:
    other = SubmitRequest("../program", "/somewhere/program", "0", True)
    assert code(ask(session, other)) == "program_path_invalid"


def test_finish_hands_off_signals_and_ends_everything(desk: "Desk", session: Session) -> None:
    ask(session, submit(desk))
    assert not is_signalled(session)
    answer = result(ask(session, FinishRequest(("submission-000001",))))
    assert answer == {"candidate_submission_ids": ["submission-000001"]}
    assert session.finished.is_set()
    assert is_signalled(session)
    assert session.candidates == ("submission-000001",)
    for request in (submit(desk), StatusRequest(), WaitRequest(None), FinishRequest(("submission-000001",))):
        assert code(ask(session, request)) == "session_closed"
    assert desk.names() == ["evaluation_started", "finish_requested"]


def test_a_refused_finish_may_be_tried_again(desk: "Desk", session: Session) -> None:
    ask(session, submit(desk))
    assert code(ask(session, FinishRequest(("submission-000002",)))) == "submission_unknown"
    assert result(ask(session, FinishRequest(("submission-000001",))))
    assert desk.names() == ["evaluation_started", "finish_refused", "finish_requested"]


def test_a_closed_session_admits_nothing_and_lets_the_evaluation_end(desk: "Desk", session: Session) -> None:
    desk.hold()
    ask(session, submit(desk, wait=False))
    session.close()
    assert code(ask(session, submit(desk))) == "session_closed"
    assert not session.drain(SHORT_SECONDS)
    desk.release()
    assert session.drain(WAIT_SECONDS)
    assert session.state.submissions[0].status == "published"
    assert session.fault is None


def test_a_session_that_closes_during_a_capture_charges_nothing(desk: "Desk", session: Session) -> None:
    desk.may_capture.clear()
    answers: list[dict[str, object]] = []
    thread = threading.Thread(target=lambda: answers.append(ask(session, submit(desk))))
    thread.start()
    assert desk.capturing.wait(WAIT_SECONDS)
    session.close()
    assert not session.drain(SHORT_SECONDS)
    desk.may_capture.set()
    assert session.drain(WAIT_SECONDS)
    thread.join(WAIT_SECONDS)
    assert code(answers[0]) == "session_closed"
    assert desk.events == []


def test_a_cancelled_evaluation_stays_charged_and_is_no_fault(desk: "Desk", session: Session) -> None:
    desk.hold()
    answers: list[dict[str, object]] = []
    thread = threading.Thread(target=lambda: answers.append(ask(session, submit(desk))))
    thread.start()
    assert desk.evaluating.wait(WAIT_SECONDS)
    session.cancel()
    assert session.drain(WAIT_SECONDS)
    thread.join(WAIT_SECONDS)
    assert code(answers[0]) == "submission_failed"
    assert code(ask(session, WaitRequest("submission-000001"))) == "submission_failed"
    assert result(ask(session, StatusRequest()))["episodes_remaining"] == 28
    assert session.fault is None
    assert desk.names() == ["evaluation_started", "evaluation_failed"]


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (EvaluationError("Episode 3 of seed 4711"), "fault"),
        (RecordError("no place"), "publication"),
        (OSError(28, "No space left on device"), "publication"),
        (ZeroDivisionError("of ours"), "fault"),
        (SystemExit("from feedback()"), "fault"),
    ],
)
def test_a_trusted_fault_closes_the_session(desk: "Desk", session: Session, error: BaseException, reason: str) -> None:
    desk.error = error
    answer = ask(session, submit(desk))
    assert code(answer) == "submission_failed"
    assert "4711" not in str(answer)
    assert session.fault is error
    assert is_signalled(session)
    assert code(ask(session, StatusRequest())) == "session_closed"
    assert desk.events[-1].fields()["reason"] == reason


def test_a_budget_that_cannot_be_reserved_in_the_journal_is_a_fault(desk: "Desk", session: Session) -> None:
    desk.commit_error = OSError(28, "No space left on device")
    assert code(ask(session, submit(desk))) == "host_failed"
    assert session.fault is desk.commit_error
    assert not desk.evaluating.is_set()


def test_a_request_whose_client_hung_up_is_dropped_before_admission(desk: "Desk", session: Session) -> None:
    for request in (submit(desk), FinishRequest(("submission-000001",))):
        desk.events.clear()
        if isinstance(request, FinishRequest):
            ask(session, submit(desk))
            desk.events.clear()
        with pytest.raises(PeerGone):
            ask(session, request, lambda: True)
        assert desk.events == []


def test_a_client_that_hangs_up_during_the_capture_pays_nothing(desk: "Desk", session: Session) -> None:
    with pytest.raises(PeerGone):
        ask(session, submit(desk), desk.capturing.is_set)
    assert desk.events == []
    assert result(ask(session, StatusRequest()))["episodes_remaining"] == 30


def test_an_evaluation_goes_on_without_its_client(desk: "Desk", session: Session) -> None:
    desk.hold()
    with pytest.raises(PeerGone):
        ask(session, submit(desk), desk.evaluating.is_set)
    desk.release()
    assert result(ask(session, WaitRequest(None)))["score"] == 9.5


def test_a_resumed_session_knows_what_was_published_and_lost(desk: "Desk", session: Session) -> None:
    fields = {"program_digest": "sha256:00", "episodes": "3,5:7", "episode_count": 3}
    state = LedgerState()
    state = state.apply(
        "evaluation_started", {**fields, "submission_id": "submission-000001", "episodes_remaining": 27}
    )
    state = state.apply("submission_published", {"submission_id": "submission-000001", "score": 2.0})
    state = state.apply(
        "evaluation_started", {**fields, "submission_id": "submission-000002", "episodes_remaining": 24}
    )
    with Session(
        session._limits, desk, state=state, workspace=desk.workspace, primary_metric="m", score_direction="minimize"
    ) as resumed:
        desk.session = resumed
        assert result(ask(resumed, WaitRequest("submission-000001"))) == {
            "submission_id": "submission-000001",
            "program_digest": "sha256:00",
            "score": 2.0,
            "episode_indices": [3, 5, 6],
            "episodes_used": 3,
            "episodes_remaining": 27,
            "feedback": "feedback/submissions/submission-000001/feedback.json",
            "diagnostics": None,
        }
        assert code(ask(resumed, WaitRequest(None))) == "submission_failed"
        receipt = result(ask(resumed, submit(desk, "0")))
        assert receipt["submission_id"] == "submission-000003"
        assert receipt["episodes_remaining"] == 23


def test_an_agent_in_a_loop_does_not_fill_the_journal_with_refusals(desk: "Desk", session: Session) -> None:
    for _ in range(1010):
        ask(session, submit(desk, "no"))
    assert desk.names() == ["submission_refused"] * 1000 + ["notice"]


def test_the_whole_budget_can_be_demanded(desk: "Desk", session: Session) -> None:
    limits = replace(session._limits, max_submissions=3, finish_budget_policy="require_budget_exhaustion")
    with Session(limits, desk, workspace=desk.workspace, primary_metric="m", score_direction="maximize") as strict:
        desk.session = strict
        assert code(ask(strict, submit(desk, "0:9"))) == "budget_unreachable"
        ask(strict, submit(desk, "0:10"))
        assert code(ask(strict, FinishRequest(("submission-000001",)))) == "budget_remaining"
        ask(strict, submit(desk, "0:10"))
        ask(strict, submit(desk, "0:10"))
        assert result(ask(strict, FinishRequest(("submission-000003", "submission-000001"))))
