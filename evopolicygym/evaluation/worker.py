"""A worker process: steps Environments of one Benchmark, one Episode at a time, until the Host closes its socket."""

from __future__ import annotations

import contextlib
import gc
import mmap
import os
import pickle
import signal
import socket
import sys
import time
import traceback
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NoReturn

from evopolicygym.authoring import Benchmark, Environment
from evopolicygym.errors import EvaluationError
from evopolicygym.evaluation import messages
from evopolicygym.evaluation.encoded_record import RecordWriter
from evopolicygym.evaluation.episode import EpisodeRunner, encode_context
from evopolicygym.evaluation.plan import PlannedEpisode, benchmark_spec
from evopolicygym.execution.cores import CorePin
from evopolicygym.execution.local_template import start_local_template
from evopolicygym.execution.policy_host import PolicyHost
from evopolicygym.policy import type_name

__all__ = ["CLOCK_DESCRIPTOR", "HOST_DESCRIPTOR", "SETUP_DESCRIPTOR", "main"]

# Descriptors that the Host passes to a worker.
HOST_DESCRIPTOR, SETUP_DESCRIPTOR, CLOCK_DESCRIPTOR = 3, 4, 5

# Records and messages make no cycles; a simulator may, so collections are made rare, not given up.
_COLLECTION_THRESHOLD = 50_000


def main() -> NoReturn:
    """Serve the Host; ends the process."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the Host's business
    signal.signal(signal.SIGTERM, _terminate)
    host = socket.socket(fileno=HOST_DESCRIPTOR)
    host.set_inheritable(False)
    code = 0
    try:
        _Worker(host).serve()
    except (BrokenPipeError, ConnectionResetError):
        pass  # the Host is gone
    except _TerminatedError:
        code = 128 + signal.SIGTERM
    except BaseException:  # noqa: BLE001 (the last stand: the Host reads it off stderr)
        traceback.print_exc()
        code = 1
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):
            stream.flush()
    # At once: tearing down an interpreter full of simulators takes long, and some of them crash in it.
    os._exit(code)


class _TerminatedError(BaseException):
    """SIGTERM arrived; no Exception, nor a SystemExit, so that no simulator's own handling takes it for its own."""


def _terminate(*_: object) -> NoReturn:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    raise _TerminatedError


class _Worker:
    def __init__(self, host: socket.socket) -> None:
        self._host = host
        self._reader = messages.MessageReader(host)
        self._clock = memoryview(mmap.mmap(CLOCK_DESCRIPTOR, mmap.PAGESIZE)).cast("d")
        os.close(CLOCK_DESCRIPTOR)
        os.set_inheritable(SETUP_DESCRIPTOR, False)
        with open(SETUP_DESCRIPTOR, "rb") as file:
            self._setup: messages.Setup = pickle.load(file)
        self._pin = CorePin()
        self._core: int | None = None
        self._policies = PolicyHost(self._setup.launch, Path(self._setup.root), start_local_template)
        self._compared = False

    def serve(self) -> None:
        """Load the Benchmark, then run what the Host asks for."""
        try:
            if self._prepare():
                self._serve()
        finally:
            self._policies.close()

    def _prepare(self) -> bool:
        self._clock[0] = time.monotonic()
        try:
            benchmark: Benchmark = pickle.loads(self._setup.benchmark)
        except Exception as error:  # noqa: BLE001 (told to the Host)
            messages.send(
                self._host,
                (messages.NEEDS_HOST, f"it cannot be loaded in a worker process ({type_name(error)}: {error})"),
            )
            self._reader.wait()
            return False
        finally:
            self._clock[0] = 0.0
        self._benchmark = benchmark
        spec = benchmark_spec(benchmark)
        self._context = encode_context(spec)
        self._runner = EpisodeRunner(
            benchmark,
            spec,
            self._policies,
            self._clock,
            episode_timeout_seconds=self._setup.episode_timeout_seconds,
        )
        gc.collect()
        gc.freeze()
        gc.set_threshold(_COLLECTION_THRESHOLD)
        messages.send(self._host, (messages.READY,))
        return True

    def _serve(self) -> None:
        job: messages.Job | None = None
        records: RecordWriter | None = None
        record_descriptor = -1
        while (message := self._reader.wait()) is not None:
            if message[0] == messages.BEGIN:
                if record_descriptor >= 0:
                    os.close(record_descriptor)
                job_descriptor, record_descriptor = self._reader.take_descriptors()
                with self._faults_told(), open(job_descriptor, "rb") as file:
                    # The file is shared with other workers, and so is its position: read it by offset.
                    job = pickle.loads(os.pread(file.fileno(), os.fstat(file.fileno()).st_size, 0))
                    records = RecordWriter(record_descriptor)
                    self._core = self._pin.claim()
                    self._policies.load(job.program, self._context)
            elif message[0] == messages.REST:
                self._pin.release()
            else:
                position = message[1]
                assert isinstance(position, int)
                assert job is not None
                assert records is not None
                with self._faults_told():
                    self._run(position, job.plan[position], records)

    @contextlib.contextmanager
    def _faults_told(self) -> Iterator[None]:
        """Tell the Host of a trusted fault; it ends this worker then."""
        try:
            yield
        except EvaluationError as error:
            messages.send(self._host, (messages.FAULT, str(error), "".join(traceback.format_exception(error))))
        except OSError as error:
            if isinstance(error, BrokenPipeError | ConnectionResetError):
                raise
            told = f"a worker process failed: {error}"
            messages.send(self._host, (messages.FAULT, told, "".join(traceback.format_exception(error))))

    def _run(self, position: int, planned: PlannedEpisode, records: RecordWriter) -> None:
        made: Environment | None = None
        if not self._compared:
            before = _state(self._benchmark)
            made = self._runner.make_environment(planned)
            changed = _changes(before, _state(self._benchmark))
            if changed:
                made.close()
                why = f"make_environment() keeps state in it (changed: {', '.join(changed)})"
                messages.send(self._host, (messages.NEEDS_HOST, why))
                return
            self._compared = True
        finished = self._runner.run(position, planned, records, made=made)
        messages.send(self._host, (messages.FINISHED, finished, self._core))


def _state(benchmark: Benchmark) -> Mapping[str, object]:
    return dict(getattr(benchmark, "__dict__", {}))


def _changes(before: Mapping[str, object], after: Mapping[str, object]) -> list[str]:
    """The attributes that were added, removed or bound to another object."""
    missing = object()
    return sorted(name for name in {*before, *after} if before.get(name, missing) is not after.get(name, missing))
