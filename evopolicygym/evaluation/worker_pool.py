"""Episodes handed to warm worker processes, one at a time each."""

from __future__ import annotations

import itertools
import pickle
import select
import tempfile
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from pathlib import Path

from evopolicygym.errors import EvaluationError
from evopolicygym.evaluation import messages
from evopolicygym.evaluation.cancellation import Cancellation
from evopolicygym.evaluation.encoded_record import RecordFile
from evopolicygym.evaluation.episode import FinishedEpisode
from evopolicygym.evaluation.outcome import EvaluationCancelled
from evopolicygym.evaluation.plan import PlannedEpisode
from evopolicygym.evaluation.worker_link import WorkerLink
from evopolicygym.execution.launch import PolicyLaunch
from evopolicygym.process import Supervisor, SupervisorLostError
from evopolicygym.program import Program

__all__ = ["NeedsHostError", "WorkerPool"]

# How often the watchdog looks at the Environments' clocks.
_WATCH_SECONDS = 0.25

# Episodes shorter than this are handed out one ahead, so that a worker need not wait for the Host between them.
_SHORT_EPISODE_SECONDS = 0.02

OnFinished = Callable[[FinishedEpisode, RecordFile], None]


class NeedsHostError(Exception):
    """This Benchmark's Environments must be stepped in the Host process; the text says why."""


class WorkerPool:
    """Up to ``size`` workers for one Benchmark, started when first needed.

    Args:
        name: the Benchmark's id, for messages.
        benchmark: the pickled Benchmark.
        launch: how Policy processes come to be.
        supervisor: starts the workers.
        root: an existing private directory, for one directory a worker.
        size: how many workers at most.
        episode_timeout_seconds: Policy time of one Episode.
        environment_timeout_seconds: bound of one Environment call; None: no bound.
    """

    def __init__(
        self,
        name: str,
        benchmark: bytes,
        launch: PolicyLaunch,
        supervisor: Supervisor,
        root: Path,
        *,
        size: int,
        episode_timeout_seconds: float,
        environment_timeout_seconds: float | None,
    ) -> None:
        self._name = name
        self._benchmark = benchmark
        self._launch = launch
        self._supervisor = supervisor
        self._root = root
        self._size = size
        self._episode_timeout_seconds = episode_timeout_seconds
        self._limit = environment_timeout_seconds
        self._numbers = itertools.count(1)
        self._workers: list[WorkerLink] = []
        self._pinned = False

    @property
    def pinned(self) -> bool:
        """Whether the workers that were used last had a core of their own each."""
        return self._pinned

    def run(
        self,
        program: Program,
        plan: Sequence[PlannedEpisode],
        on_finished: OnFinished,
        cancellation: Cancellation | None,
    ) -> None:
        """Run all Episodes; ``on_finished`` is called in this thread as each completes.

        Raises:
            NeedsHostError: they must be stepped in the Host process; some may have completed already.
            EvaluationError: something trusted failed.
            EvaluationCancelled: it was cancelled.
        """
        try:
            with tempfile.TemporaryFile(prefix="evopolicygym-job-") as job_file:
                pickle.dump(messages.Job(program, tuple(plan)), job_file, pickle.HIGHEST_PROTOCOL)
                job_file.flush()
                _Dispatch(self, job_file.fileno(), len(plan), on_finished).run(cancellation)
        except BaseException:
            self.stop()
            raise

    def close(self) -> None:
        """End the workers, which are idle."""
        for worker in self._take_all():
            worker.close()

    def stop(self) -> None:
        """End the workers in the middle of whatever they do, all at once."""
        enders = [threading.Thread(target=worker.stop, daemon=True) for worker in self._take_all()]
        for ender in enders:
            ender.start()
        for ender in enders:
            ender.join()

    def hire(self, count: int) -> list[WorkerLink]:
        """That many workers at most, those that are warm first."""
        while len(self._workers) < min(count, self._size):
            setup = messages.Setup(
                self._benchmark,
                self._launch,
                str(self._root / f"worker-{next(self._numbers)}"),
                self._episode_timeout_seconds,
            )
            try:
                self._workers.append(WorkerLink(setup, self._supervisor))
            except (OSError, SupervisorLostError) as error:
                raise EvaluationError(f"{self._name}: a worker process cannot be started: {error}") from error
        return self._workers[:count]

    def check_environments(self, workers: Sequence[WorkerLink]) -> None:
        """Raise EvaluationError, and end the worker, if an Environment call takes too long."""
        if self._limit is None:
            return
        for worker in workers:
            if worker.environment_seconds() > self._limit:
                self._workers.remove(worker)
                worker.kill()
                raise EvaluationError(
                    f"{self._name}: a call of the Environment did not return within {self._limit:g} s; its worker "
                    "process was ended"
                )

    def note_pinned(self, workers: Sequence[WorkerLink]) -> None:
        """Remember whether each had a core of its own."""
        self._pinned = all(worker.core is not None for worker in workers)

    def lost(self, worker: WorkerLink) -> EvaluationError:
        """The error for a worker that has died."""
        episodes = f" in Episode {worker.assigned[0]} of the plan" if worker.assigned else ""
        return EvaluationError(f"{self._name}: a worker process {worker.describe_death()}{_sentence(episodes)}")

    def _take_all(self) -> list[WorkerLink]:
        taken, self._workers = self._workers, []
        return taken


def _sentence(part: str) -> str:
    return f"\n(it died{part})" if part else ""


class _Dispatch:
    """One Evaluation's Episodes on their way to workers and back."""

    def __init__(self, pool: WorkerPool, job_file: int, count: int, on_finished: OnFinished) -> None:
        self._pool = pool
        self._pending = deque(range(count))
        self._left = count
        self._on_finished = on_finished
        self._episode_seconds = _SHORT_EPISODE_SECONDS
        self._poller = select.poll()
        self._files: dict[int, RecordFile] = {}
        self._workers: dict[int, WorkerLink] = {}
        for worker in pool.hire(count):
            try:
                file = RecordFile.create()
                worker.begin(job_file, file)
            except BrokenPipeError:
                raise pool.lost(worker) from None
            except OSError as error:
                raise EvaluationError(f"no file for the records of Episodes can be made: {error}") from error
            self._workers[worker.fileno()] = worker
            self._files[worker.fileno()] = file
            self._poller.register(worker.fileno(), select.POLLIN)

    def run(self, cancellation: Cancellation | None) -> None:
        if cancellation is not None:
            self._poller.register(cancellation.fileno(), select.POLLIN)
        for worker in self._workers.values():
            if worker.ready:
                self._assign(worker)
        watched = list(self._workers.values())
        next_watch = time.monotonic() + _WATCH_SECONDS
        while self._left:
            for descriptor, _ in self._poller.poll(_WATCH_SECONDS * 1000):
                if descriptor not in self._workers:
                    raise EvaluationCancelled
                self._attend(descriptor)
            if time.monotonic() >= next_watch:
                self._pool.check_environments(watched)
                next_watch = time.monotonic() + _WATCH_SECONDS
        self._pool.note_pinned(watched)
        for worker in watched:
            worker.rest()

    def _attend(self, descriptor: int) -> None:
        worker = self._workers[descriptor]
        received = worker.receive()
        if received is None:
            raise self._pool.lost(worker)
        for message in received:
            kind = message[0]
            if kind == messages.FINISHED:
                _, finished, core = message
                assert isinstance(finished, FinishedEpisode)
                worker.core = core if isinstance(core, int) else None
                worker.assigned.remove(finished.completed.position)
                self._episode_seconds = finished.completed.seconds
                self._left -= 1
                self._assign(worker)  # first, so that it works on while the Host does
                self._on_finished(finished, self._files[descriptor])
            elif kind == messages.READY:
                worker.ready = True
                self._assign(worker)
            elif kind == messages.NEEDS_HOST:
                raise NeedsHostError(str(message[1]))
            else:
                fault = EvaluationError(str(message[1]))
                fault.add_note(str(message[2]))
                raise fault

    def _assign(self, worker: WorkerLink) -> None:
        """Keep ``worker`` busy; a second Episode only while they are short and many are left."""
        ahead = self._episode_seconds < _SHORT_EPISODE_SECONDS and len(self._pending) > 2 * len(self._workers)
        while self._pending and len(worker.assigned) < (2 if ahead else 1):
            try:
                worker.assign(self._pending.popleft())
            except OSError:
                raise self._pool.lost(worker) from None
