"""The Host's side of one worker process."""

from __future__ import annotations

import contextlib
import io
import marshal
import mmap
import os
import pickle
import socket
import sys
import tempfile
import time
from pathlib import Path

from evopolicygym.evaluation import messages, worker
from evopolicygym.evaluation.encoded_record import RecordFile
from evopolicygym.execution.launch import THREAD_CAPS
from evopolicygym.execution.scratch import remove_tree
from evopolicygym.process import Supervisor, describe_returncode

__all__ = ["WorkerLink"]

# A worker that was told to end: it ends its Policy and its template first.
_LEAVE_SECONDS = 3.0

# After SIGTERM: the Environment is closed, for simulators that must not just vanish.
_GRACE_SECONDS = 1.0

# A worker's socket has ended, and so has the worker, or it is about to.
_DEATH_SECONDS = 1.5

# What a chatty simulator may print before the beginning is dropped, and what is shown of it.
_LOG_MAX_BYTES = 4 * 1024 * 1024
_LOG_TAIL_BYTES = 4_000

# -P keeps the working directory off the path; the Host's own path comes as an argument.
_PROGRAM = (
    "import marshal, sys; sys.path[:] = marshal.loads(bytes.fromhex(sys.argv[1])); "
    "from evopolicygym.evaluation.worker import main; main()"
)


class WorkerLink:
    """One worker process: started here, spoken to by messages, watched by its clock.

    Attributes:
        assigned: positions of the Episodes that it has been given and has not finished, oldest first.
        ready: it has loaded the Benchmark.
        core: the CPU that it held to itself when it last finished an Episode; None: none.
    """

    def __init__(self, setup: messages.Setup, supervisor: Supervisor) -> None:
        self.assigned: list[int] = []
        self.ready = False
        self.core: int | None = None
        self._root = Path(setup.root)
        self._root.mkdir(mode=0o700)
        self._log = tempfile.TemporaryFile(prefix="evopolicygym-worker-")  # noqa: SIM115 (closed in close)
        # Appending, so that dropping the beginning leaves no hole.
        log = os.open(f"/proc/self/fd/{self._log.fileno()}", os.O_WRONLY | os.O_APPEND) if _HAS_PROC else None
        here, there = socket.socketpair()
        try:
            with (
                there,
                tempfile.TemporaryFile(prefix="evopolicygym-setup-") as setup_file,
                tempfile.TemporaryFile(prefix="evopolicygym-clock-") as clock_file,
            ):
                pickle.dump(setup, setup_file)
                setup_file.seek(0)
                clock_file.truncate(mmap.PAGESIZE)
                self._clock = mmap.mmap(clock_file.fileno(), mmap.PAGESIZE)
                output = self._log.fileno() if log is None else log
                self._child = supervisor.start(
                    [sys.executable, "-P", "-c", _PROGRAM, marshal.dumps(_search_path()).hex()],
                    env=_environment(),
                    stdout=output,
                    stderr=output,
                    pass_fds={
                        worker.HOST_DESCRIPTOR: there.fileno(),
                        worker.SETUP_DESCRIPTOR: setup_file.fileno(),
                        worker.CLOCK_DESCRIPTOR: clock_file.fileno(),
                    },
                )
        except BaseException:
            here.close()
            self._log.close()
            raise
        finally:
            if log is not None:
                os.close(log)
        here.setblocking(False)
        self._socket = here
        self._reader = messages.MessageReader(here)

    def fileno(self) -> int:
        """Readable when there is a message, or the worker is gone."""
        return self._socket.fileno()

    def begin(self, job_file: int, records: RecordFile) -> None:
        """Tell it of a new Evaluation."""
        self._trim_log()
        messages.send(self._socket, (messages.BEGIN,), (job_file, records.descriptor))

    def rest(self) -> None:
        """Tell it that the Evaluation is over."""
        with contextlib.suppress(OSError):  # it has died: the next Evaluation will tell
            messages.send(self._socket, (messages.REST,))

    def assign(self, position: int) -> None:
        """Give it an Episode of the running Evaluation."""
        messages.send(self._socket, (messages.EPISODE, position))
        self.assigned.append(position)

    def receive(self) -> list[tuple[object, ...]] | None:
        """The messages that have come; None if the worker is gone."""
        alive = True
        with contextlib.suppress(BlockingIOError):
            try:
                alive = self._reader.read()
            except ConnectionResetError:
                alive = False
        found = []
        while (message := self._reader.next()) is not None:
            found.append(message)
        return found if alive or found else None

    def environment_seconds(self) -> float:
        """For how long the Environment call that is running has been running; 0 while none is."""
        began: float = memoryview(self._clock).cast("d")[0]
        return time.monotonic() - began if began else 0.0

    def describe_death(self) -> str:
        """How it ended and what it printed last."""
        code = self._child.wait(_DEATH_SECONDS)
        how = "closed its socket" if code is None else f"ended early ({describe_returncode(code)})"
        return f"{how}{self.last_output()}"

    def last_output(self) -> str:
        """What it printed last, as a sentence part; empty if it printed nothing."""
        size = self._log.seek(0, io.SEEK_END)
        self._log.seek(max(0, size - _LOG_TAIL_BYTES))
        text = self._log.read().decode("utf-8", "replace").strip()
        return f"; its last output:\n{text}" if text else "; it printed nothing"

    def close(self) -> None:
        """Let it end by itself, as an idle worker does at once, and see that nothing is left."""
        self._socket.close()
        self._child.wait(_LEAVE_SECONDS)
        self._clean_up()

    def stop(self) -> None:
        """End it in the middle of whatever it does."""
        self._child.terminate(grace_seconds=_GRACE_SECONDS)
        self._socket.close()
        self._clean_up()

    def kill(self) -> None:
        """End it without a word: it hangs."""
        self._socket.close()
        self._clean_up()

    def _clean_up(self) -> None:
        self._child.close()
        self._clock.close()
        self._log.close()
        remove_tree(self._root)

    def _trim_log(self) -> None:
        if self._log.seek(0, io.SEEK_END) > _LOG_MAX_BYTES:
            self._log.truncate(0)


_HAS_PROC = Path("/proc/self/fd").is_dir()


def _search_path() -> list[str]:
    """Where this process finds modules, so that a worker finds the same ones; "" means the working directory."""
    return [str(Path(entry).absolute()) for entry in sys.path]


def _environment() -> dict[str, str]:
    """A worker runs trusted code and gets all of the Host's environment; numbers of threads are capped by default."""
    return {**THREAD_CAPS, "PYTHONHASHSEED": "0", **os.environ}
