"""Program x Episodes -> Feedback, over and over, with whatever can stay warm kept warm."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Protocol, Self

from evopolicygym.artifacts import Feedback
from evopolicygym.authoring import Benchmark, EpisodeRecord
from evopolicygym.authoring.interfaces import FAULTS
from evopolicygym.errors import EvaluationError
from evopolicygym.evaluation.cancellation import Cancellation
from evopolicygym.evaluation.config import check_seconds
from evopolicygym.evaluation.encoded_record import EncodedEpisode, RecordFile, decode_record
from evopolicygym.evaluation.episode import FinishedEpisode
from evopolicygym.evaluation.host_stepping import HostStepping
from evopolicygym.evaluation.outcome import EpisodeCompleted, Evaluation, EvaluationCancelled
from evopolicygym.evaluation.plan import PlannedEpisode, benchmark_spec
from evopolicygym.evaluation.worker_pool import NeedsHostError, WorkerPool
from evopolicygym.execution.launch import PolicyLaunch
from evopolicygym.execution.private_directory import PrivateDirectory
from evopolicygym.policy import type_name
from evopolicygym.process import Supervisor
from evopolicygym.program import Program

if TYPE_CHECKING:
    from evopolicygym.execution.agent_sandbox import AgentSandbox

__all__ = ["Evaluator", "Execution", "check_execution"]


class Execution(Protocol):
    """How Policies are run: `ProcessExecution`, or one with more isolation."""

    kind: str

    def launch_for(self, benchmark: object) -> PolicyLaunch:
        """How Policy processes for this Benchmark come to be; ExecutionUnavailableError if that is impossible here."""
        ...

    @property
    def encloses_agent(self) -> bool:
        """Whether the Agent of a Run is in a sandbox, too."""
        ...

    def agent_sandbox_for(self, benchmark: object) -> AgentSandbox | None:
        """How the Agent of a Run is enclosed; None: it is not."""
        ...

    def facts_for(self, benchmark: object) -> Mapping[str, object]:
        """What isolates them, for the Record."""
        ...

    @property
    def workers(self) -> int:
        """How many workers at most; 0: Environments are stepped in the Host process."""
        ...


def check_execution(execution: object) -> None:
    """Refuse with a TypeError what is no Execution; a class, or a method that was not called, is none."""
    if isinstance(execution, type) or not hasattr(execution, "launch_for"):
        found = f"the class {execution.__qualname__}" if isinstance(execution, type) else type_name(execution)
        raise TypeError(f"execution must be ProcessExecution.unsafe() or SandboxExecution(), not {found}")


class Evaluator:
    """Evaluates Programs on one Benchmark; workers stay warm until :meth:`close`.

    Use it as a context manager. :meth:`evaluate` may be called from any thread, one call at a time.

    Args:
        benchmark: the Benchmark.
        execution: how Policies are run.
        episode_timeout_seconds: Policy time of one Episode.
        environment_timeout_seconds: one call of an Environment that takes longer is a trusted fault; None: no bound.
        supervisor: starts all processes; None: one of its own, closed with it.
        on_notice: called with a sentence that the user should read, such as why Environments are stepped in the Host.

    Raises:
        TypeError: ``benchmark`` is no Benchmark.
        BenchmarkError: its specification is wrong.
        ExecutionUnavailableError: the isolation that was asked for cannot be had here.
        ValueError: a bad number of seconds.
    """

    def __init__(
        self,
        benchmark: Benchmark,
        execution: Execution,
        *,
        episode_timeout_seconds: float,
        environment_timeout_seconds: float | None = 600.0,
        supervisor: Supervisor | None = None,
        on_notice: Callable[[str], None] | None = None,
    ) -> None:
        self._benchmark = benchmark
        self._spec = benchmark_spec(benchmark)
        self._execution = execution
        self._launch = execution.launch_for(benchmark)
        self._isolation = execution.facts_for(benchmark)
        self._episode_timeout_seconds = check_seconds(episode_timeout_seconds, "episode_timeout_seconds")
        self._environment_timeout_seconds = (
            None
            if environment_timeout_seconds is None
            else check_seconds(environment_timeout_seconds, "environment_timeout_seconds")
        )
        self._workers = execution.workers
        self._on_notice = on_notice
        self._busy = threading.Lock()
        self._closed = False
        self._host: HostStepping | None = None
        self._pool: WorkerPool | None = None
        self._in_host = self._workers == 0 or getattr(benchmark, "environment_process", None) == "host"
        self._root = PrivateDirectory()
        self._own_supervisor = supervisor is None
        try:
            self._supervisor = Supervisor() if supervisor is None else supervisor
        except BaseException:
            self._root.close()
            raise

    @property
    def facts(self) -> Mapping[str, object]:
        """How Episodes are run, for the Record."""
        isolation = {self._execution.kind: self._isolation} if self._isolation else {}
        return {
            "execution": self._execution.kind,
            "workers": self._workers,
            "environment_process": "host" if self._in_host else "worker",
            "pinned": (self._host is not None and self._host.pinned) or (self._pool is not None and self._pool.pinned),
            **isolation,
        }

    def evaluate(
        self,
        program: Program,
        plan: Sequence[PlannedEpisode],
        *,
        on_episode: Callable[[EpisodeCompleted], None] | None = None,
        cancellation: Cancellation | None = None,
    ) -> Evaluation:
        """Run ``program`` on every Episode of ``plan`` and ask the Benchmark for its Feedback.

        Args:
            program: the Program.
            plan: one Episode at least.
            on_episode: called in this thread as Episodes complete, in whatever order they do.
            cancellation: stops it.

        Raises:
            EvaluationError: Benchmark, Environment, worker or Host failed; nothing came of it.
            EvaluationCancelled: it was cancelled.
            RuntimeError: another thread is evaluating, or this Evaluator is closed.
        """
        if not isinstance(program, Program):
            raise TypeError(f"program must be a Program, not {type_name(program)}")
        if not plan:
            raise ValueError("the plan is empty: at least one Episode is needed")
        if not self._busy.acquire(blocking=False):
            raise RuntimeError("this Evaluator is evaluating already: one Evaluation at a time")
        try:
            if self._closed:
                raise RuntimeError("this Evaluator is closed")
            return self._evaluate(program, tuple(plan), on_episode, cancellation)
        finally:
            self._busy.release()

    def close(self) -> None:
        """End all processes and remove all files; safe to call again."""
        if self._closed:
            return
        self._closed = True
        try:
            if self._pool is not None:
                self._pool.close()
            if self._host is not None:
                self._host.close()
        finally:
            if self._own_supervisor:
                self._supervisor.close()
            self._root.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _evaluate(
        self,
        program: Program,
        plan: tuple[PlannedEpisode, ...],
        on_episode: Callable[[EpisodeCompleted], None] | None,
        cancellation: Cancellation | None,
    ) -> Evaluation:
        began = time.monotonic()
        completed: dict[int, EpisodeCompleted] = {}
        stretches: dict[int, tuple[RecordFile, EncodedEpisode]] = {}

        def on_finished(episode: FinishedEpisode, file: RecordFile) -> None:
            position = episode.completed.position
            stretches[position] = (file, episode.record)
            known = position in completed
            completed[position] = episode.completed
            if on_episode is not None and not known:
                on_episode(episode.completed)

        self._run(program, plan, on_finished, cancellation)
        if cancellation is not None and cancellation.cancelled:
            raise EvaluationCancelled
        episodes = [completed[position] for position in range(len(plan))]
        records = tuple(
            decode_record(*stretches[position], planned, episodes[position].summary.failure)
            for position, planned in enumerate(plan)
        )
        feedback = self._feedback(records)
        return Evaluation(
            feedback,
            tuple(episode.summary for episode in episodes),
            tuple(episode.diagnostics for episode in episodes),
            time.monotonic() - began,
        )

    def _run(
        self,
        program: Program,
        plan: tuple[PlannedEpisode, ...],
        on_finished: Callable[[FinishedEpisode, RecordFile], None],
        cancellation: Cancellation | None,
    ) -> None:
        if not self._in_host:
            try:
                self._worker_pool().run(program, plan, on_finished, cancellation)
                return
            except NeedsHostError as reason:
                self._move_to_host(str(reason))
        self._host_stepping().run(program, plan, on_finished, cancellation)

    def _move_to_host(self, why: str) -> None:
        self._in_host = True
        if self._on_notice is not None:
            self._on_notice(
                f"{self._spec.id} is stepped in the Host process, one Episode at a time, and not in "
                f'{self._workers} workers: {why}. A Benchmark that is meant to be so says environment_process = "host".'
            )

    def _worker_pool(self) -> WorkerPool:
        if self._pool is None:
            self._pool = WorkerPool(
                self._spec.id,
                _pickled(self._benchmark),
                self._launch,
                self._supervisor,
                self._root.path,
                size=self._workers,
                episode_timeout_seconds=self._episode_timeout_seconds,
                environment_timeout_seconds=self._environment_timeout_seconds,
            )
        return self._pool

    def _host_stepping(self) -> HostStepping:
        if self._host is not None and not self._host.usable:
            raise EvaluationError(
                f"{self._spec.id}: an Environment hangs in this process; no further Episode can be run in it"
            )
        if self._host is None:
            root = self._root.path / "host"
            root.mkdir(mode=0o700)
            self._host = HostStepping(
                self._benchmark,
                self._spec,
                self._launch,
                self._supervisor,
                root,
                episode_timeout_seconds=self._episode_timeout_seconds,
                environment_timeout_seconds=self._environment_timeout_seconds,
            )
        return self._host

    def _feedback(self, records: tuple[EpisodeRecord, ...]) -> Feedback:
        try:
            feedback = self._benchmark.feedback(records)
        except FAULTS as error:
            raise EvaluationError(f"{self._spec.id}: feedback() raised {type_name(error)}: {error}") from error
        if type(feedback) is not Feedback:
            raise EvaluationError(f"{self._spec.id}: feedback() must return Feedback, not {type_name(feedback)}")
        return feedback


def _pickled(benchmark: Benchmark) -> bytes:
    # cloudpickle, for classes of a script or a notebook, which no worker can import.
    import cloudpickle

    try:
        pickled: bytes = cloudpickle.dumps(benchmark)
    except Exception as error:
        raise NeedsHostError(f"it cannot be pickled ({type_name(error)}: {error})") from error
    return pickled
