"""Environments stepped in the Host process, one Episode at a time, in a thread of their own.

The thread keeps a hanging Environment from hanging the Host: the Evaluation then ends with an error, and the thread
is left behind. (Code in C that holds the interpreter's lock stops the Host all the same; only a worker process
is proof against it.)
"""

from __future__ import annotations

import os
import queue
import random
import select
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from evopolicygym.authoring import Benchmark, BenchmarkSpec
from evopolicygym.errors import EvaluationError
from evopolicygym.evaluation.cancellation import Cancellation
from evopolicygym.evaluation.encoded_record import RecordFile, RecordWriter
from evopolicygym.evaluation.episode import EpisodeRunner, FinishedEpisode, encode_context
from evopolicygym.evaluation.outcome import EvaluationCancelled
from evopolicygym.evaluation.plan import PlannedEpisode
from evopolicygym.execution.cores import CorePin
from evopolicygym.execution.launch import CONTROL_DESCRIPTOR, PolicyLaunch
from evopolicygym.execution.policy_host import PolicyHost
from evopolicygym.process import Child, Supervisor, SupervisorLostError
from evopolicygym.program import Program

__all__ = ["HostStepping"]

# How often the watchdog looks at the Environment's clock.
_WATCH_SECONDS = 0.25

# After cancellation: until the running step has come back and the Policy process is gone.
_STOP_SECONDS = 5.0
_STOP_LOOK_SECONDS = 0.02

_Job = tuple[Program, Sequence[PlannedEpisode], RecordFile]
_Notice = FinishedEpisode | BaseException | None  # None: all are done


class HostStepping:
    """Steps Environments in this process.

    Args:
        benchmark: makes the Environments.
        spec: its specification.
        launch: how Policy processes come to be.
        supervisor: starts the template process.
        root: an existing private directory of its own.
        episode_timeout_seconds: Policy time of one Episode.
        environment_timeout_seconds: bound of one Environment call; None: no bound.
    """

    def __init__(
        self,
        benchmark: Benchmark,
        spec: BenchmarkSpec,
        launch: PolicyLaunch,
        supervisor: Supervisor,
        root: Path,
        *,
        episode_timeout_seconds: float,
        environment_timeout_seconds: float | None,
    ) -> None:
        self._spec = spec
        self._limit = environment_timeout_seconds
        self._clock = [0.0]
        self._pinned = False
        self._starter = _SupervisedStarter(supervisor, root)
        self._stop_reader, self._stop_writer = os.pipe()
        self._policies = PolicyHost(launch, root, self._starter, stop=self._stop_reader)
        self._runner = EpisodeRunner(
            benchmark, spec, self._policies, self._clock, episode_timeout_seconds=episode_timeout_seconds
        )
        self._context = encode_context(spec)
        self._jobs: queue.SimpleQueue[_Job | None] = queue.SimpleQueue()
        self._notices: deque[_Notice] = deque()
        self._wake_reader, self._wake_writer = os.pipe()
        self._abandoned = False
        self._closing = threading.Lock()
        self._closed_by_thread = False
        self._thread = threading.Thread(target=self._serve, name="evopolicygym-environments", daemon=True)
        self._thread.start()

    @property
    def pinned(self) -> bool:
        """Whether Environments and Policies shared one core that nobody else held, when they were used last."""
        return self._pinned

    @property
    def usable(self) -> bool:
        """False once an Environment has hung."""
        return not self._abandoned

    def run(
        self,
        program: Program,
        plan: Sequence[PlannedEpisode],
        on_finished: Callable[[FinishedEpisode, RecordFile], None],
        cancellation: Cancellation | None,
    ) -> None:
        """Run all Episodes; ``on_finished`` is called in this thread as each completes.

        Raises:
            EvaluationError: something trusted failed.
            EvaluationCancelled: it was cancelled.
        """
        file = RecordFile.create()
        self._jobs.put((program, plan, file))
        try:
            while True:
                self._wait(cancellation)
                while self._notices:
                    notice = self._notices.popleft()
                    if notice is None:
                        return
                    if isinstance(notice, BaseException):
                        raise notice
                    on_finished(notice, file)
        except BaseException as error:
            self._stop(error)
            raise

    def close(self) -> None:
        """End the thread, the template and its files."""
        self._jobs.put(None)
        self._thread.join(0 if self._abandoned else _STOP_SECONDS)
        with self._closing:
            if self._thread.is_alive():
                # Left behind in an Environment's call; should it ever come back, it cleans up itself.
                self._closed_by_thread = True
                self._starter.end_all()
                return
        self._close_descriptors()

    def _close_descriptors(self) -> None:
        for descriptor in (self._wake_reader, self._wake_writer, self._stop_reader, self._stop_writer):
            os.close(descriptor)

    def _wait(self, cancellation: Cancellation | None) -> None:
        poller = select.poll()
        poller.register(self._wake_reader, select.POLLIN)
        if cancellation is not None:
            poller.register(cancellation.fileno(), select.POLLIN)
        while True:
            for descriptor, _ in poller.poll(None if self._limit is None else _WATCH_SECONDS * 1000):
                if descriptor == self._wake_reader:
                    os.read(self._wake_reader, 4096)
                    return
                raise EvaluationCancelled
            began = self._clock[0]
            if began and self._limit is not None and time.monotonic() - began > self._limit:
                self._abandoned = True
                raise EvaluationError(
                    f"{self._spec.id}: a call of the Environment did not return within {self._limit:g} s; "
                    "the Episode's thread is left behind"
                )

    def _stop(self, error: BaseException) -> None:
        """Have the thread drop its job, and wait for that."""
        over = isinstance(error, EvaluationError) and not self._abandoned
        self._runner.stop()
        os.write(self._stop_writer, b"\0")
        deadline = time.monotonic() + _STOP_SECONDS
        while not over and not self._abandoned:
            while self._notices:
                notice = self._notices.popleft()
                over = over or notice is None or isinstance(notice, BaseException)
            if not over:
                self._abandoned = time.monotonic() > deadline
                select.select([self._wake_reader], [], [], _STOP_LOOK_SECONDS)
        if not self._abandoned:
            os.read(self._stop_reader, 1)
            self._runner.resume()
        self._notices.clear()

    def _serve(self) -> None:
        pin = CorePin()
        while (job := self._jobs.get()) is not None:
            notice: _Notice = None
            with _global_generators_restored():
                try:
                    self._pinned = pin.claim() is not None
                    self._run(job)
                except BaseException as error:  # noqa: BLE001 (carried over to the thread that waits)
                    notice = error
            pin.release()
            del job
            self._tell(notice)
            del notice
        self._policies.close()
        with self._closing:
            if self._closed_by_thread:
                self._notices.clear()  # an error in it refers to all that its Episode had open
                self._close_descriptors()

    def _run(self, job: _Job) -> None:
        program, plan, file = job
        self._policies.load(program, self._context)
        records = RecordWriter(file.descriptor)
        for position, planned in enumerate(plan):
            self._tell(self._runner.run(position, planned, records))

    def _tell(self, notice: _Notice) -> None:
        self._notices.append(notice)
        os.write(self._wake_writer, b"\0")


class _global_generators_restored:  # noqa: N801 (reads as what it does)
    """Leaves ``random`` and ``numpy.random`` as they were: they are the caller's."""

    def __enter__(self) -> None:
        self._random = random.getstate()
        numpy = sys.modules.get("numpy")
        self._numpy: Mapping[str, object] | None = None if numpy is None else numpy.random.get_state(legacy=False)

    def __exit__(self, *_: object) -> None:
        random.setstate(self._random)
        if self._numpy is not None:
            sys.modules["numpy"].random.set_state(self._numpy)


class _SupervisedStarter:
    """Starts templates through the Supervisor: the Host itself inherits no orphans."""

    def __init__(self, supervisor: Supervisor, root: Path) -> None:
        self._supervisor = supervisor
        self._root = root
        self._started: list[Child] = []

    def end_all(self) -> None:
        """End all that were started, whatever they do."""
        for child in self._started:
            child.close()

    def __call__(self, argv: list[str], env: Mapping[str, str], control: int) -> _SupervisedTemplate:
        passed = {CONTROL_DESCRIPTOR: control}
        try:
            child = self._supervisor.start(argv, env=env, cwd=self._root, stderr=2, pass_fds=passed)
        except SupervisorLostError as error:
            raise EvaluationError(f"the template process cannot be started: {error}") from error
        self._started = [known for known in self._started if known.returncode is None]
        self._started.append(child)
        return _SupervisedTemplate(child)


class _SupervisedTemplate:
    def __init__(self, child: Child) -> None:
        self._child = child

    def end(self) -> None:
        self._child.close()
