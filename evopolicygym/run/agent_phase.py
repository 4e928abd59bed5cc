"""The Agent phase: start the Agent, serve its Session, and see that nothing of it is left."""

import os
import shutil
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, TypeAlias

from evopolicygym.agents import AgentExit, AgentInvocation, AgentTask, AgentUsage
from evopolicygym.errors import AgentRunError
from evopolicygym.process import Child, Supervisor, describe_returncode
from evopolicygym.record import RecordWriter, events
from evopolicygym.run.evidence import files_with_secrets, redact_file, redact_text, secret_values
from evopolicygym.run.interruption import BackgroundCall, Interruption, wait_readable
from evopolicygym.run.launch import AgentLaunch, plan_launch
from evopolicygym.run.transcript import TranscriptFollower
from evopolicygym.session import Gateway, Session

__all__ = ["AgentPhase", "PhaseEnd"]

FINISH_GRACE_SECONDS = 10.0
"""How long an Agent may go on after a successful ``finish``."""
TERMINATION_GRACE_SECONDS = 5.0
"""From SIGTERM to SIGKILL."""
LIVING_ON_SECONDS = 120.0
"""How long an Agent may live on in silence after it has said that its work has ended; some never exit."""
LOOK_SECONDS = 5.0
"""How often it is looked at for that."""
DRAIN_SECONDS = 15.0
"""How long a cancelled Evaluation may take to end before the Run goes on without it."""

_TAIL_BYTES = 16 * 1024

Cause: TypeAlias = Literal["handed_off", "exited", "lived_on", "timed_out", "interrupted", "fault", "not_started"]


@dataclass(frozen=True, slots=True)
class PhaseEnd:
    """Why and how the Agent phase ended.

    Args:
        cause: what ended the phase.
        returncode: of the Agent's process; negative for a signal, None if it never started.
        seconds: wall clock since its start.
        reason: why the process ended, in the provider's or our own word.
        message: the same for people.
        resumable: whether the reason lies outside the Agent's work (usage limit, log-in, overload, network).
        usage: totals of what it did.
        passed_names: names of the variables it was given.
        clean: whether its process ended without a failure of its own.
        session: what it told of itself at its start, such as its version.
    """

    cause: Cause
    returncode: int | None
    seconds: float
    reason: str
    message: str
    resumable: bool = False
    usage: AgentUsage = field(default_factory=AgentUsage)
    passed_names: tuple[str, ...] = ()
    clean: bool = False
    session: Mapping[str, object] = field(default_factory=dict)


class AgentPhase:
    """One start of the Agent.

    Args:
        writer: the Record; ``agent/instructions.md`` is there.
        supervisor: starts and ends the process tree.
        session: what the Agent talks to.
        task: the task.
        invocation: how the Agent is started.
        interruption: signals at the Host.
        clock: the Agent's wall-clock time; it starts with :meth:`run`.
    """

    def __init__(
        self,
        *,
        writer: RecordWriter,
        supervisor: Supervisor,
        session: Session,
        task: AgentTask,
        invocation: AgentInvocation,
        interruption: Interruption,
        clock: "AgentClock",
    ) -> None:
        self._writer = writer
        self._supervisor = supervisor
        self._session = session
        self._task = task
        self._invocation = invocation
        self._interruption = interruption
        self._clock = clock
        self._folder = writer.layout.agent()

    def run(self) -> PhaseEnd:
        """Run the phase; when this returns, the Session is closed and no process of the Agent exists."""
        with ExitStack() as stack:
            gateway = stack.enter_context(Gateway(self._session))
            state = stack.enter_context(_private_directory())
            try:
                launch = self._plan(gateway.socket_path, state)
                self._clock.start()
                child = self._start(launch)
            except (OSError, AgentRunError) as error:
                self._session.close()
                why = (isinstance(error, OSError) and error.strerror) or error
                message = f"{self._invocation.command[0]} could not be started: {why}"
                return self._journalled(PhaseEnd("not_started", None, 0.0, "not_started", message))
            secrets = secret_values(launch.secrets)
            follower = TranscriptFollower(
                self._folder / "stdout.log", self._invocation, self._writer.journal, secrets=secrets
            )
            try:
                cause = self._serve(child, follower)
            finally:
                returncode = self._stop(child)
                seconds = self._clock.elapsed()
            closing = self._invocation.closing_events
            follower.finish(None if closing is None else lambda: closing(state))
            end = self._explain(cause, returncode, seconds, follower, launch)
            self._redact(secrets)
        return self._journalled(end)

    def _plan(self, socket_path: Path, state: Path) -> AgentLaunch:
        prepare = self._invocation.prepare_state
        return plan_launch(
            self._invocation,
            self._task,
            task_file=self._folder / "instructions.md",
            host_environment=os.environ,
            session_environment={
                "EVOPOLICYGYM_SESSION_SOCKET": str(socket_path),
                "EVOPOLICYGYM_WORKSPACE": str(self._writer.layout.workspace),
            },
            state_environment={} if prepare is None else prepare(state),
        )

    def _start(self, launch: AgentLaunch) -> Child:
        with ExitStack() as stack:
            stdin = None
            if launch.task_on_stdin:  # a file and no pipe: nothing has to be written while the Agent reads
                stdin = stack.enter_context(_opened(self._folder / "instructions.md", os.O_RDONLY))
            new_log = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND
            stdout = stack.enter_context(_opened(self._folder / "stdout.log", new_log))
            stderr = stack.enter_context(_opened(self._folder / "stderr.log", new_log))
            child = self._supervisor.start(
                launch.argv,
                env=launch.environment,
                cwd=self._writer.layout.workspace,
                stdin=stdin,
                stdout=stdout,
                stderr=stderr,
            )
        self._writer.journal.append(
            events.AgentStarted(attempt=1, command=self._invocation.recorded_command, process_id=child.pid)
        )
        return child

    def _serve(self, child: Child, follower: TranscriptFollower) -> Cause:
        watched = [child.fileno(), self._session.fileno(), self._interruption.fileno()]
        ready = wait_readable(watched, min(self._clock.remaining(), LOOK_SECONDS))
        while not ready and self._clock.remaining() and not self._lives_on(follower):
            ready = wait_readable(watched, min(self._clock.remaining(), LOOK_SECONDS))
        if self._interruption.noted:
            return "interrupted"
        if self._session.fault is not None:
            return "fault"
        if self._session.finished.is_set():
            wait_readable([child.fileno(), self._interruption.fileno()], FINISH_GRACE_SECONDS)
            return "interrupted" if self._interruption.noted else "handed_off"
        if not ready:
            return "lived_on" if self._clock.remaining() else "timed_out"
        # What the Agent left behind may submit no more; an Evaluation that runs is still its own.
        self._session.close()
        child.kill_tree()
        return self._drain()

    def _lives_on(self, follower: TranscriptFollower) -> bool:
        """Whether it said long ago that it had ended. While an Evaluation runs, it may be waiting for that."""
        return follower.seconds_since_end() > LIVING_ON_SECONDS and self._session.state.running is None

    def _drain(self) -> Cause:
        remaining = self._clock.remaining()
        draining = BackgroundCall(lambda: self._session.drain(remaining))
        wait_readable([draining.fileno(), self._interruption.fileno()], remaining)
        if self._interruption.noted:
            return "interrupted"  # what still runs is cancelled, and waited for, with the rest
        drained = draining.result(timeout=DRAIN_SECONDS)
        if self._session.fault is not None:
            return "fault"
        return "exited" if drained else "timed_out"

    def _stop(self, child: Child) -> int:
        self._session.close()
        self._session.cancel()
        returncode = child.terminate(grace_seconds=TERMINATION_GRACE_SECONDS)
        self._session.drain(DRAIN_SECONDS)
        return returncode

    def _explain(
        self, cause: Cause, returncode: int, seconds: float, follower: TranscriptFollower, launch: AgentLaunch
    ) -> PhaseEnd:
        reason: str = cause
        message = describe_returncode(returncode)
        resumable = False
        last = follower.last_events[-1] if follower.last_events else None
        fault = self._session.fault
        if fault is not None:
            message = f"{type(fault).__name__}: {fault}"
        elif cause == "timed_out" and last is not None and last.kind == "error":
            message += f"; its last words: {last.action}"
        elif cause == "lived_on":
            message += f"; it said that it had ended, and lived on for {LIVING_ON_SECONDS:g} s without a word"
        elif cause == "exited" and self._invocation.diagnose is not None:
            diagnosis = self._invocation.diagnose(
                AgentExit(
                    returncode=returncode,
                    events=tuple(follower.last_events),
                    stderr_tail=_tail(self._folder / "stderr.log"),
                    stdout_tail=_tail(self._folder / "stdout.log"),
                )
            )
            if diagnosis is not None:
                reason, message, resumable = diagnosis.reason, diagnosis.message, diagnosis.resumable
        said_well = cause == "lived_on" and last is not None and not last.failed
        return PhaseEnd(
            cause,
            returncode,
            seconds,
            reason,
            redact_text(message, secret_values(launch.secrets)),
            resumable,
            follower.usage,
            launch.passed_names,
            clean=returncode == 0 or said_well,
            session=follower.session,
        )

    def _redact(self, secrets: Mapping[bytes, str]) -> None:
        for name in ("stdout.log", "stderr.log", "transcript.jsonl"):
            redact_file(self._folder / name, secrets)
        found = files_with_secrets(self._writer.layout.workspace, secrets)
        if found:
            shown = ", ".join(found[:5]) + (f" and {len(found) - 5} more" if len(found) > 5 else "")
            self._writer.journal.append(
                events.Notice(message=f"the workspace holds a secret that was passed on to the Agent: {shown}")
            )

    def _journalled(self, end: PhaseEnd) -> PhaseEnd:
        self._writer.journal.append(
            events.AgentEnded(
                attempt=1,
                returncode=end.returncode,
                reason=end.reason,
                seconds=end.seconds,
                message=end.message,
            )
        )
        return end


class AgentClock:
    """The Agent's wall-clock time."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._started: float | None = None

    def start(self) -> None:
        """The time runs from now on."""
        self._started = time.monotonic()

    def elapsed(self) -> float:
        """Seconds since the start, 0 before it."""
        return 0.0 if self._started is None else time.monotonic() - self._started

    def remaining(self) -> float:
        """Seconds left, >= 0."""
        return max(self._seconds - self.elapsed(), 0.0)


@contextmanager
def _private_directory() -> Iterator[Path]:
    directory = Path(tempfile.mkdtemp(prefix="evopolicygym-agent-"))
    try:
        yield directory
    finally:
        shutil.rmtree(directory, ignore_errors=True)


@contextmanager
def _opened(path: Path, flags: int) -> Iterator[int]:
    descriptor = os.open(path, flags | os.O_CLOEXEC, 0o600)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _tail(path: Path) -> str:
    with path.open("rb") as file:
        size = file.seek(0, os.SEEK_END)
        file.seek(max(size - _TAIL_BYTES, 0))
        return file.read().decode("utf-8", "replace")
