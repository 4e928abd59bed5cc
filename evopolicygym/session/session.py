"""One Session: what the Agent may ask of the Host, one admitted Submission at a time."""

import os
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Final, Protocol, Self

from evopolicygym.errors import ProgramError, RecordError
from evopolicygym.evaluation import Cancellation, EvaluationCancelled
from evopolicygym.program import Program
from evopolicygym.record.events import (
    EvaluationFailed,
    EvaluationStarted,
    Event,
    FinishRefused,
    FinishRequested,
    Notice,
    RunEvent,
    SubmissionRefused,
)
from evopolicygym.selector import parse_selector
from evopolicygym.session.ledger import (
    AdmittedSubmission,
    LedgerLimits,
    LedgerState,
    SubmissionEntry,
    admit_finish,
    admit_submission,
    failed_submission,
    find_submission,
)
from evopolicygym.session.protocol import (
    ErrorCode,
    FinishRequest,
    Refusal,
    Request,
    StatusRequest,
    SubmitRequest,
    WaitRequest,
    refusal_answer,
    success_answer,
)

__all__ = ["PeerGone", "Session", "SessionHost"]

# How soon a request that waits for an Evaluation notices that its client is gone.
_PEER_CHECK_SECONDS: Final = 0.25
# A thread that has reported its end needs a moment more to be gone.
_THREAD_END_SECONDS: Final = 5.0
# An Agent in a loop must not fill the disk with refusals.
_MAX_JOURNALLED_REFUSALS: Final = 1000
# Keeps the answer to status within the bound of a line.
_MAX_PUBLISHED_SHOWN: Final = 2000

_CLOSED = "the Session is closed and takes no further request; the Agent phase of this Run has ended"


class PeerGone(Exception):  # noqa: N818 - no error: the peer may leave
    """The client hung up; nobody waits for an answer."""


class SessionHost(Protocol):
    """What a Session asks of the Run that owns it."""

    def capture_program(self) -> Program:
        """Snapshot ``workspace/program``. A ProgramError is the Agent's to mend."""
        ...

    def commit(self, event: Event) -> None:
        """Append to the journal. RecordError or OSError: a trusted fault."""
        ...

    def evaluate(
        self,
        submission_id: str,
        program: Program,
        indices: tuple[int, ...],
        episodes_remaining: int,
        cancellation: Cancellation,
    ) -> Mapping[str, object]:
        """Evaluate and publish; the result is the ``result`` of the receipt.

        Raises:
            EvaluationCancelled: cancelled, and nothing was published.
            EvaluationError: a trusted fault.
            RecordError, OSError: it could not be published.
        """
        ...

    def seconds_remaining(self) -> float:
        """Wall-clock seconds that the Agent has left."""
        ...


class Session:
    """Admits requests by the ledger's rules and keeps what they lead to.

    Requests may come from any number of threads. The Evaluation has a thread of its own, so that it goes on
    when the client that asked for it goes away.

    Args:
        limits: of the Run.
        host: the Run.
        state: what the journal has told so far; a Submission that still runs in it counts as lost.
        workspace: the Agent's working directory, as the Agent sees it.
        primary_metric: of the Benchmark.
        score_direction: of the Benchmark.
    """

    def __init__(
        self,
        limits: LedgerLimits,
        host: SessionHost,
        *,
        state: LedgerState | None = None,
        workspace: str | os.PathLike[str],
        primary_metric: str,
        score_direction: str,
    ) -> None:
        self._limits = limits
        self._host = host
        self._primary_metric = primary_metric
        self._score_direction = score_direction
        absolute = os.path.abspath(workspace)  # noqa: PTH100 - Path.absolute keeps ".."
        self._program_paths = {str(Path(place, "program")) for place in (absolute, os.path.realpath(absolute))}

        # Guards all below. The journal may be written while it is held, so that the order of lines is the order
        # of decisions; nothing that takes longer is done under it.
        self._changed = threading.Condition()
        self._state = (state or LedgerState()).apply("run_resumed", {})
        self._admitting = False
        self._closed = False
        self._released = False  # the Run has gone on without a hanging Evaluation: its journal is no longer ours
        self._fault: BaseException | None = None
        self._evaluation: threading.Thread | None = None
        self._cancellation: Cancellation | None = None
        self._receipts: dict[str, dict[str, object]] = {}
        self._refusals = 0

        # Written by one thread at a time (the one that evaluates), without the lock: see on_event.
        self._episodes_completed = 0

        self.finished = threading.Event()
        self._signal = _Signal()
        if self._state.candidates:
            self.finished.set()
            self._signal.set()

    @property
    def state(self) -> LedgerState:
        """The ledger's state now."""
        with self._changed:
            return self._state

    @property
    def candidates(self) -> tuple[str, ...]:
        """What was handed off; empty before a successful finish."""
        return self.state.candidates

    @property
    def fault(self) -> BaseException | None:
        """The trusted fault that closed the Session, if one did."""
        with self._changed:
            return self._fault

    def fileno(self) -> int:
        """A descriptor that becomes and stays readable once the Session is finished or has a fault."""
        return self._signal.fileno()

    def handle(self, request: Request, *, peer_gone: Callable[[], bool]) -> dict[str, object]:
        """The answer to one request; blocks while it waits for an Evaluation.

        Args:
            request: from :func:`~evopolicygym.session.protocol.decode_request`.
            peer_gone: whether the client has hung up.

        Raises:
            PeerGone: it has, and nobody waits for the answer. A request that was not admitted yet is dropped;
                an Evaluation that was admitted goes on.
        """
        try:
            match request:
                case SubmitRequest():
                    return success_answer(self._submit(request, peer_gone))
                case StatusRequest():
                    return success_answer(self._status())
                case WaitRequest():
                    return success_answer(self._wait(request, peer_gone))
                case FinishRequest():
                    return success_answer(self._finish(request, peer_gone))
        except Refusal as refusal:
            return refusal_answer(refusal)
        except PeerGone:
            raise
        except Exception as error:  # noqa: BLE001 - the boundary: the Run must hear of it, the Agent not
            self.fail(error)
            message = "the Host failed on this request and ends the Run; nothing more can be submitted"
            return refusal_answer(Refusal(ErrorCode.HOST_FAILED, message))

    def on_event(self, event: RunEvent) -> None:
        """Count the running Evaluation's Episodes for ``status``; a Session can observe its Run's journal.

        It takes no lock: the journal calls it while a request, under the lock, may wait for the journal.
        """
        if event.name == "episode_completed":
            self._episodes_completed += 1

    def close(self) -> None:
        """Refuse every further request; a running Evaluation goes on."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    def cancel(self) -> None:
        """Cancel the running Evaluation, if one runs; its budget stays spent."""
        with self._changed:
            if self._cancellation is not None:
                self._cancellation.cancel()

    def drain(self, timeout: float) -> bool:
        """Wait for the running Evaluation to end.

        Args:
            timeout: seconds.

        Returns:
            True if nothing runs any more.
        """
        with self._changed:
            thread = self._evaluation
            if not self._changed.wait_for(lambda: not self._admitting and self._evaluation is None, timeout):
                return False
        if thread is not None:
            thread.join(_THREAD_END_SECONDS)
        return True

    def fail(self, error: BaseException) -> None:
        """A trusted fault: the first is kept, everything from now on is refused, and the Run wakes."""
        with self._changed:
            self._fault = self._fault or error
            self._signal.set()
            self._changed.notify_all()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Close, cancel what still runs, and give the descriptors back."""
        self.close()
        self.cancel()
        self.drain(_THREAD_END_SECONDS)
        self._released = True
        self._signal.close()

    # ---- requests ----

    def _submit(self, request: SubmitRequest, peer_gone: Callable[[], bool]) -> dict[str, object]:
        try:
            admitted, program = self._admit(request, peer_gone)
        except Refusal as refusal:
            self._journal_refusal(SubmissionRefused(refusal.code.value, refusal.message), refusal)
            raise
        if request.wait:
            return self._receipt_of(admitted.submission_id, peer_gone)
        return {
            "submission_id": admitted.submission_id,
            "program_digest": program.digest,
            "score": None,
            "episode_indices": list(admitted.indices),
            "episodes_used": len(admitted.indices),
            "episodes_remaining": admitted.episodes_remaining,
            "running": True,
            "next": f"evopolicygym-session wait {admitted.submission_id}",
        }

    def _admit(self, request: SubmitRequest, peer_gone: Callable[[], bool]) -> tuple[AdmittedSubmission, Program]:
        with self._changed:
            self._refuse_if_closed()
            self._refuse_if_admitting()
            self._refuse_other_program(request)
            admitted = admit_submission(self._limits, self._state, request.episodes)
            if peer_gone():
                raise PeerGone
            self._admitting = True
        try:
            program = self._capture()
            with self._changed:
                self._refuse_if_closed()
                if peer_gone():
                    raise PeerGone
                self._start(admitted, program)
        finally:
            with self._changed:
                self._admitting = False
                self._changed.notify_all()
        return admitted, program

    def _capture(self) -> Program:
        try:
            return self._host.capture_program()
        except ProgramError as error:
            reason = str(error)
            for place in self._program_paths:  # the Agent knows where it is; a long path would only hide the reason
                reason = reason.removeprefix(f"{place}: ")
            message = f"program cannot be submitted: {reason}; nothing was charged"
            raise Refusal(ErrorCode.PROGRAM_INVALID, message) from None

    def _start(self, admitted: AdmittedSubmission, program: Program) -> None:
        """Reserve the budget, then evaluate; called under the lock."""
        event = EvaluationStarted(
            submission_id=admitted.submission_id,
            program_digest=program.digest,
            episodes=admitted.episodes,
            episode_count=len(admitted.indices),
            episodes_remaining=admitted.episodes_remaining,
        )
        self._host.commit(event)
        self._state = self._state.apply(event.name, event.fields())
        self._episodes_completed = 0
        self._cancellation = Cancellation()
        self._evaluation = threading.Thread(
            target=self._evaluate,
            args=(admitted, program, self._cancellation),
            name=f"evaluation of {admitted.submission_id}",
            daemon=True,  # a hanging Environment in this process must not keep a committed Run from ending
        )
        try:
            self._evaluation.start()
        except RuntimeError as error:
            self._fail_evaluation(admitted.submission_id, "fault", error)
            self._end_evaluation(self._cancellation)

    def _status(self) -> dict[str, object]:
        seconds = self._host.seconds_remaining()
        with self._changed:
            self._refuse_if_closed()
            state = self._state
            running = state.running
            completed = self._episodes_completed
        limits = self._limits
        published = state.published
        return {
            "episodes_remaining": limits.episodes_remaining(state),
            "episode_budget": limits.episode_budget,
            "submissions_remaining": limits.submissions_remaining(state),
            "max_submissions": limits.max_submissions,
            "seconds_remaining": round(max(seconds, 0.0), 1),
            "pool_size": limits.pool_size,
            "max_episodes_per_submission": limits.max_episodes_per_submission,
            "max_candidates": limits.max_candidates,
            "primary_metric": self._primary_metric,
            "score_direction": self._score_direction,
            "finish_budget_policy": limits.finish_budget_policy,
            "running": None
            if running is None
            else {
                "submission_id": running.submission_id,
                "episodes": running.episodes,
                "episode_count": running.episode_count,
                "episodes_completed": min(completed, running.episode_count),
            },
            "published": [
                {
                    "submission_id": entry.submission_id,
                    "score": entry.score,
                    "episodes_used": entry.episode_count,
                    "program_digest": entry.program_digest,
                }
                for entry in published[-_MAX_PUBLISHED_SHOWN:]
            ],
            "published_omitted": max(len(published) - _MAX_PUBLISHED_SHOWN, 0),
        }

    def _wait(self, request: WaitRequest, peer_gone: Callable[[], bool]) -> dict[str, object]:
        submission_id = request.submission_id
        with self._changed:
            self._refuse_if_closed()
            if submission_id is None:
                while self._admitting and self._state.running is None:
                    self._pause(peer_gone)
                if not self._state.submissions:
                    raise Refusal(
                        ErrorCode.SUBMISSION_UNKNOWN, "nothing runs and nothing has been published; start with submit"
                    )
                submission_id = self._state.submissions[-1].submission_id
        return self._receipt_of(submission_id, peer_gone)

    def _finish(self, request: FinishRequest, peer_gone: Callable[[], bool]) -> dict[str, object]:
        try:
            with self._changed:
                self._refuse_if_closed()
                self._refuse_if_admitting()
                candidates = admit_finish(self._limits, self._state, request.submission_ids)
                if peer_gone():
                    raise PeerGone
                event = FinishRequested(candidate_submission_ids=candidates, handed_off_by="agent")
                self._host.commit(event)
                self._state = self._state.apply(event.name, event.fields())
                self._changed.notify_all()
        except Refusal as refusal:
            self._journal_refusal(FinishRefused(refusal.code.value, refusal.message), refusal)
            raise
        self.finished.set()
        self._signal.set()
        return {"candidate_submission_ids": list(candidates)}

    # ---- rules that depend on the Session itself ----

    def _refuse_if_closed(self) -> None:
        if self._state.candidates:
            handed_off = ", ".join(self._state.candidates)
            raise Refusal(
                ErrorCode.SESSION_CLOSED,
                f"the Session was closed when {handed_off} was handed off; nothing is left to do: end your work here",
            )
        if self._closed or self._fault is not None:
            raise Refusal(ErrorCode.SESSION_CLOSED, _CLOSED)

    def _refuse_if_admitting(self) -> None:
        if self._admitting:
            raise Refusal(
                ErrorCode.EVALUATION_RUNNING,
                "another submit is being admitted and nothing queues; run 'evopolicygym-session wait' for its "
                "result, then ask again",
            )

    def _refuse_other_program(self, request: SubmitRequest) -> None:
        if request.resolved_program not in self._program_paths:
            raise Refusal(
                ErrorCode.PROGRAM_PATH_INVALID,
                f"{request.program[:200]!r} is not this Run's program directory; only 'program' in the workspace "
                "can be submitted: go to the workspace and run 'evopolicygym-session submit program --episodes …'",
            )

    def _journal_refusal(self, event: Event, refusal: Refusal) -> None:
        """Note a refusal, unless the Session is over: then the journal may be, too."""
        with self._changed:
            if refusal.code is ErrorCode.SESSION_CLOSED or self._closed:
                return
            self._refusals += 1
            if self._refusals <= _MAX_JOURNALLED_REFUSALS:
                self._host.commit(event)
            elif self._refusals == _MAX_JOURNALLED_REFUSALS + 1:
                self._host.commit(Notice(f"{_MAX_JOURNALLED_REFUSALS} requests were refused; more are not noted"))

    # ---- Evaluations and receipts ----

    def _receipt_of(self, submission_id: str, peer_gone: Callable[[], bool]) -> dict[str, object]:
        """The result of a Submission, once there is one."""
        with self._changed:
            while True:
                entry = find_submission(self._state, submission_id)
                if entry.status == "published":
                    return self._receipts.get(submission_id) or _receipt_from_journal(self._limits, entry)
                if entry.status == "failed":
                    raise failed_submission(entry)
                self._pause(peer_gone)

    def _pause(self, peer_gone: Callable[[], bool]) -> None:
        """Wait, under the lock, until something has changed or it is time to look at the client again."""
        if peer_gone():
            raise PeerGone
        self._changed.wait(_PEER_CHECK_SECONDS)

    def _evaluate(self, admitted: AdmittedSubmission, program: Program, cancellation: Cancellation) -> None:
        submission_id = admitted.submission_id
        try:
            receipt = self._host.evaluate(
                submission_id, program, admitted.indices, admitted.episodes_remaining, cancellation
            )
            with self._changed:
                self._state = self._state.apply("submission_published", receipt)
                self._receipts[submission_id] = dict(receipt)
        except EvaluationCancelled as error:
            self._fail_evaluation(submission_id, "cancelled", error)
        except (RecordError, OSError) as error:
            self._fail_evaluation(submission_id, "publication", error)
        except BaseException as error:  # noqa: BLE001 - the end of the thread: SystemExit from a Benchmark, too
            self._fail_evaluation(submission_id, "fault", error)
        finally:
            self._end_evaluation(cancellation)

    def _fail_evaluation(self, submission_id: str, reason: str, error: BaseException) -> None:
        event = EvaluationFailed(submission_id, reason, str(error) or type(error).__name__)
        fault = None if reason == "cancelled" else error
        try:
            if not self._released:
                self._host.commit(event)
        except Exception as commit_error:  # noqa: BLE001 - whatever it is, waiting requests must be answered
            fault = fault or commit_error
        with self._changed:
            self._state = self._state.apply(event.name, event.fields())
            if fault is not None:
                self.fail(fault)  # before any request that waits can answer

    def _end_evaluation(self, cancellation: Cancellation) -> None:
        with self._changed:
            self._cancellation = None
            self._evaluation = None
            self._changed.notify_all()
        cancellation.close()


def _receipt_from_journal(limits: LedgerLimits, entry: SubmissionEntry) -> dict[str, object]:
    """The receipt of a Submission that an earlier Host process has published."""
    return {
        "submission_id": entry.submission_id,
        "program_digest": entry.program_digest,
        "score": entry.score,
        "episode_indices": list(parse_selector(entry.episodes, pool_size=limits.pool_size)),
        "episodes_used": entry.episode_count,
        "episodes_remaining": entry.episodes_remaining,
        "feedback": f"feedback/submissions/{entry.submission_id}/feedback.json",
        "diagnostics": None,
    }


class _Signal:
    """A pipe that becomes readable once."""

    def __init__(self) -> None:
        self._reader, self._writer = os.pipe()
        self._lock = threading.Lock()
        self._is_set = False
        self._is_closed = False

    def fileno(self) -> int:
        return self._reader

    def set(self) -> None:
        with self._lock:
            if not self._is_set and not self._is_closed:
                self._is_set = True
                os.write(self._writer, b"!")

    def close(self) -> None:
        with self._lock:
            if not self._is_closed:
                self._is_closed = True
                os.close(self._reader)
                os.close(self._writer)

    def __del__(self) -> None:
        self.close()
