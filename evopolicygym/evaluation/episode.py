"""One Episode: a fresh Environment, a fresh Policy process, and the loop between them."""

from __future__ import annotations

import random
import reprlib
import sys
import time
import traceback
from dataclasses import dataclass
from math import fsum
from typing import TypeAlias

from evopolicygym.authoring import Benchmark, BenchmarkSpec, Environment, InvalidAction, Step
from evopolicygym.authoring.interfaces import FAULTS, missing_members
from evopolicygym.errors import EvaluationError
from evopolicygym.evaluation.encoded_record import EncodedEpisode, RecordWriter
from evopolicygym.evaluation.outcome import EpisodeCompleted, EpisodeDiagnostics
from evopolicygym.evaluation.plan import PlannedEpisode
from evopolicygym.execution.codec import encode_in_parts, encode_trusted
from evopolicygym.execution.policy_host import (
    FailureReport,
    PolicyEnd,
    PolicyEpisode,
    PolicyFailedError,
    PolicyHost,
    StoppedError,
)
from evopolicygym.policy import copy_policy_value, type_name
from evopolicygym.results import EpisodeSummary

__all__ = ["EnvironmentClock", "EpisodeRunner", "FinishedEpisode", "encode_context"]

# When the Environment call that is running now began (time.monotonic()); 0 while none is. One element, shared with
# whoever watches over it.
EnvironmentClock: TypeAlias = "memoryview[float] | list[float]"

# Shares of the 64 KiB that the diagnostics of one Episode may take, in bytes.
_MESSAGE_BYTES = 4_000
_FRAMES_BYTES = 6_000
_TRACEBACK_BYTES = 20_000
_OUTPUT_BYTES = 16_384


@dataclass(frozen=True, slots=True)
class FinishedEpisode:
    """What became of one Episode, and where its record lies."""

    completed: EpisodeCompleted
    record: EncodedEpisode


class EpisodeRunner:
    """Runs Episodes of one Benchmark, one at a time.

    Args:
        benchmark: makes the Environments.
        spec: its specification.
        policies: hands out Policy processes.
        clock: kept up to date for a watchdog.
        episode_timeout_seconds: Policy time of one Episode.
    """

    def __init__(
        self,
        benchmark: Benchmark,
        spec: BenchmarkSpec,
        policies: PolicyHost,
        clock: EnvironmentClock,
        *,
        episode_timeout_seconds: float,
    ) -> None:
        self._benchmark = benchmark
        self._spec = spec
        self._policies = policies
        self._clock = clock
        self._seconds = episode_timeout_seconds
        self._stopping = False

    def stop(self) -> None:
        """Have the running Episode end at its next step, with `StoppedError`; callable from another thread."""
        self._stopping = True

    def resume(self) -> None:
        """Take back :meth:`stop`."""
        self._stopping = False

    def run(
        self,
        position: int,
        planned: PlannedEpisode,
        records: RecordWriter,
        *,
        made: Environment | None = None,
    ) -> FinishedEpisode:
        """Run one Episode.

        Args:
            position: its place in the plan.
            planned: what to run.
            records: where its record goes.
            made: an unused Environment of this Episode, if there is one already.

        Raises:
            EvaluationError: something trusted failed.
            StoppedError: :meth:`stop` was called.
        """
        if self._stopping:
            raise StoppedError
        began = time.monotonic()
        environment = self.make_environment(planned) if made is None else made
        failure: FailureReport | None = None
        end: PolicyEnd | None = None
        try:
            observation, tensor_data = self._reset(environment)
            records.begin(observation, tensor_data)
            policy = self._policies.open_episode(planned.policy_seed, seconds=self._seconds)
            try:
                self._loop(environment, policy, observation, tensor_data, records)
            except PolicyFailedError as error:
                failure = error.report
            finally:
                end = policy.close()
        finally:
            # An error on its way out is the first one and the one to be told.
            self._close(environment, already_failing=sys.exc_info()[1] is not None)
        if end.template_lost:
            failure = FailureReport("protocol_error", "the Policy killed or stopped the process that serves it")
        summary = self._summary(records, failure)
        completed = EpisodeCompleted(position, summary, time.monotonic() - began, _diagnostics(failure, end))
        return FinishedEpisode(completed, records.finish())

    def make_environment(self, planned: PlannedEpisode) -> Environment:
        """A fresh Environment, made with the global random generators seeded from the Episode.

        Raises:
            EvaluationError: it cannot be made.
        """
        had_numpy = "numpy" in sys.modules
        environment = self._make(planned)
        if not had_numpy and "numpy" in sys.modules:
            # Loaded just now, and so not seeded: only the second one equals those of later Episodes.
            self._close(environment, already_failing=False)
            environment = self._make(planned)
        return environment

    def _make(self, planned: PlannedEpisode) -> Environment:
        _seed_globals(planned.episode.environment_seed)
        self._clock[0] = time.monotonic()
        try:
            environment = self._benchmark.make_environment(planned.episode)
        except FAULTS as error:
            raise self._fault("make_environment()", error) from error
        finally:
            self._clock[0] = 0.0
        missing = missing_members(environment, Environment)
        if missing:
            raise EvaluationError(
                f"{self._spec.id}: make_environment() must return an Environment; {type_name(environment)} lacks "
                f"{', '.join(missing)}"
            )
        return environment

    def _reset(self, environment: Environment) -> tuple[bytes, bytes]:
        self._clock[0] = time.monotonic()
        try:
            observation = environment.reset()
        except FAULTS as error:
            raise self._fault("reset()", error) from error
        finally:
            self._clock[0] = 0.0
        try:
            return encode_in_parts(copy_policy_value(observation))
        except (TypeError, ValueError) as error:
            raise EvaluationError(f"{self._spec.id}: reset() must return a PolicyValue: {error}") from error

    def _loop(
        self,
        environment: Environment,
        policy: PolicyEpisode,
        observation: bytes,
        tensor_data: bytes,
        records: RecordWriter,
    ) -> None:
        # Local names: this loop is what an Episode's time is spent in.
        act, step_environment, add = policy.act, environment.step, records.add
        clock, monotonic = self._clock, time.monotonic
        for _ in range(self._spec.max_episode_steps):
            action, encoded_action = act(observation, tensor_data)
            if self._stopping:
                raise StoppedError
            clock[0] = monotonic()
            try:
                step = step_environment(action)
            except InvalidAction as error:
                raise PolicyFailedError(FailureReport("invalid_action", _invalid_action_message(action))) from error
            except FAULTS as error:
                raise self._fault("step()", error) from error
            finally:
                clock[0] = 0.0
            if type(step) is not Step:
                raise EvaluationError(f"{self._spec.id}: step() must return a Step, not {type_name(step)}")
            observation, tensor_data = encode_in_parts(step.observation)
            add(encoded_action, observation, tensor_data, step)
            if step.terminated or step.truncated:
                return
        raise EvaluationError(
            f"{self._spec.id}: an Episode goes on after the {self._spec.max_episode_steps} steps that "
            "spec.max_episode_steps promises at most; truncate it, or promise more"
        )

    def _close(self, environment: Environment, *, already_failing: bool) -> None:
        self._clock[0] = time.monotonic()
        try:
            environment.close()
        except FAULTS as error:
            if not already_failing:
                raise self._fault("close()", error) from error
        finally:
            self._clock[0] = 0.0

    def _summary(self, records: RecordWriter, failure: FailureReport | None) -> EpisodeSummary:
        if failure is not None:
            return EpisodeSummary("policy_failed", None, records.steps, failure.failure)
        try:
            return EpisodeSummary("completed", fsum(records.rewards), records.steps)
        except OverflowError:
            raise EvaluationError(
                f"{self._spec.id}: the rewards of an Episode add up to more than a float holds"
            ) from None

    def _fault(self, call: str, error: BaseException) -> EvaluationError:
        trace = "".join(traceback.format_exception(error))
        fault = EvaluationError(f"{self._spec.id}: {call} raised {type_name(error)}: {error}")
        fault.add_note(trace[-_TRACEBACK_BYTES:])
        return fault


def encode_context(spec: BenchmarkSpec) -> tuple[bytes, bytes, bytes, bytes]:
    """What a Policy is told of a Benchmark, encoded for a PolicyHost."""
    return (
        encode_trusted(dict(spec.observation_space)),
        encode_trusted(dict(spec.action_space)),
        encode_trusted(dict(spec.metadata)),
        encode_trusted(dict(spec.environment_parameters)),
    )


def _seed_globals(seed: int) -> None:
    random.seed(seed)
    numpy = sys.modules.get("numpy")
    if numpy is not None:
        numpy.random.seed([seed & 0xFFFFFFFF, seed >> 32])


def _diagnostics(failure: FailureReport | None, end: PolicyEnd) -> EpisodeDiagnostics:
    stdout, stderr = _text(end.stdout), _text(end.stderr)
    if failure is None:
        return EpisodeDiagnostics(stdout=stdout, stderr=stderr)
    frames: list[str] = []
    room = _FRAMES_BYTES
    for item in reversed(failure.frames):
        room -= len(item.encode())
        if room < 0:
            break
        frames.insert(0, item)
    return EpisodeDiagnostics(
        exception_type=None if failure.exception_type is None else _bounded(failure.exception_type, _MESSAGE_BYTES),
        message=_bounded(failure.message or _silent_end(end), _MESSAGE_BYTES),
        frames=tuple(frames),
        traceback=None if failure.traceback is None else _bounded(failure.traceback, _TRACEBACK_BYTES),
        stdout=stdout,
        stderr=stderr,
    )


def _silent_end(end: PolicyEnd) -> str:
    if end.ended_by_itself:
        return f"the Policy process ended before the Episode did: {end.description}"
    return "the Policy process closed its channel"


def _invalid_action_message(action: object) -> str:
    text = reprlib.repr(action)
    return f"the Environment refused the action {text if len(text) <= 400 else text[:400] + ' …'}"


def _text(data: bytes) -> str:
    return _bounded(data.decode("utf-8", "replace"), _OUTPUT_BYTES)


def _bounded(text: str, size: int) -> str:
    """The last part of ``text`` that takes ``size`` bytes at most."""
    data = text.encode("utf-8", "replace")
    return text if len(data) <= size else data[-size:].decode("utf-8", "ignore")
