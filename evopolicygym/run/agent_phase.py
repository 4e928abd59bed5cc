"""The Agent phase: start the Agent, serve its Session, and see that nothing of it is left."""

import json
import os
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal, TypeAlias

from evopolicygym.agents import AgentDiagnosis, AgentExit
from evopolicygym.errors import AgentRunError
from evopolicygym.execution.agent_sandbox import AgentPlaces, AgentSandbox
from evopolicygym.execution.private_directory import PrivateDirectory
from evopolicygym.process import Child, Supervisor, describe_returncode
from evopolicygym.record import RecordWriter, events
from evopolicygym.run.evidence import SecretSearch, redact_file, redact_tail, redact_text, secret_values
from evopolicygym.run.idleness import IdleWatch, WatchedSession
from evopolicygym.run.interruption import BackgroundCall, Interruption, wait_readable
from evopolicygym.run.launch import AgentLaunch, plan_launch
from evopolicygym.run.preparation import AgentStart
from evopolicygym.run.transcript import TranscriptFollower
from evopolicygym.session import Gateway, socket_place
from evopolicygym.session import client as session_client

__all__ = ["AgentClock", "AgentPhase", "PhaseEnd", "redact_lost_logs"]

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

Cause: TypeAlias = Literal[
    "handed_off", "exited", "lived_on", "timed_out", "stalled", "interrupted", "fault", "not_started"
]


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
        told: what it told of itself at its start, such as its version.
    """

    cause: Cause
    returncode: int | None
    seconds: float
    reason: str
    message: str
    resumable: bool = False
    told: Mapping[str, object] = field(default_factory=dict)


class AgentPhase:
    """One start of the Agent.

    Args:
        writer: the Record.
        supervisor: starts and ends the process tree.
        session: what the Agent talks to.
        start: which start this is, with what task.
        interruption: signals at the Host.
        clock: the Agent's wall-clock time; it runs during :meth:`run`.
        idle_timeout_seconds: how long the Agent may be silent; None for ever.
        sandbox: encloses the Agent; None: it runs with the Host's rights.
    """

    def __init__(
        self,
        *,
        writer: RecordWriter,
        supervisor: Supervisor,
        session: WatchedSession,
        start: AgentStart,
        interruption: Interruption,
        clock: "AgentClock",
        idle_timeout_seconds: float | None,
        sandbox: AgentSandbox | None = None,
    ) -> None:
        self._writer = writer
        self._supervisor = supervisor
        self._session = session
        self._attempt = start.attempt
        self._start_of = start
        self._invocation = start.invocation
        self._interruption = interruption
        self._clock = clock
        self._idle_timeout_seconds = idle_timeout_seconds
        self._sandbox = sandbox
        self._folder = writer.layout.agent(start.attempt)

    def run(self) -> PhaseEnd:
        """Run the phase; when this returns or raises, the Session is closed and no process of the Agent exists.

        Raises:
            RecordError: the Record cannot be written.
            OSError: a socket or a descriptor cannot be had.
        """
        self._write("instructions.md", self._start_of.instructions)
        with ExitStack() as stack:
            private = PrivateDirectory(socket_place())
            stack.callback(self._remove, private)
            state, socket_folder = private.path / "state", private.path / "session"
            for folder in (state, socket_folder):
                folder.mkdir(mode=0o700)
            gateway = stack.enter_context(Gateway(self._session, socket_folder))
            try:
                launch = self._plan(gateway.socket_path, state)
                self._write_invocation(launch)
                if self._sandbox is not None:
                    launch = self._enclosed(launch, self._sandbox, gateway.socket_path, state, stack)
                child = self._start(launch)
            except (OSError, AgentRunError) as error:
                self._session.close()
                program = self._invocation.command[0]
                message = f"{program} could not be started: {_why(error, program)}"
                return self._journalled(PhaseEnd("not_started", None, 0.0, "not_started", message))
            stack.callback(self._clock.stop)
            secrets = secret_values(launch.secrets)
            follower = TranscriptFollower(
                self._folder / "stdout.log", self._invocation, self._writer.journal, secrets=secrets
            )
            try:
                cause = self._serve(child, follower)
            finally:
                returncode = self._end(child)
                seconds = self._clock.stop()
                self._session.drain(DRAIN_SECONDS)
                closing = self._invocation.closing_events
                untold = follower.finish(None if closing is None else lambda: closing(state))
            if untold is not None:
                self._writer.journal.notice(f"the transcript of the Agent is incomplete: {untold}")
            end = self._explain(cause, returncode, seconds, follower, secrets)
            end = replace(end, message=redact_text(end.message, secrets), told=follower.session)
            self._redact(secrets)
        return self._journalled(end)

    def _write(self, name: str, text: str) -> None:
        self._writer.write_text(f"{self._folder.relative_to(self._writer.path).as_posix()}/{name}", text)

    def _write_invocation(self, launch: AgentLaunch) -> None:
        invocation = self._invocation
        identity = invocation.identity
        facts = {
            "command": list(invocation.recorded_command),
            "identity": identity if isinstance(identity, str) else dict(identity),
            "inherited_environment": list(invocation.inherited_environment),
            "set_environment": sorted(invocation.environment),
            "environment_names": list(launch.passed_names),
            "secret_names": sorted(launch.secrets),
            "task_delivery": invocation.task_delivery,
            "stdout_media_type": invocation.stdout_media_type,
        }
        self._writer.write_json(f"{self._folder.relative_to(self._writer.path).as_posix()}/invocation.json", facts)

    def _plan(self, socket_path: Path, state: Path) -> AgentLaunch:
        prepare = self._invocation.prepare_state
        return plan_launch(
            self._invocation,
            self._start_of.task,
            task_file=self._folder / "instructions.md",
            host_environment=os.environ,
            session_environment={
                "EVOPOLICYGYM_SESSION_SOCKET": str(socket_path),
                "EVOPOLICYGYM_WORKSPACE": str(self._writer.layout.workspace),
            },
            state_environment={} if prepare is None else prepare(state),
            sandboxed=self._sandbox is not None,
        )

    def _enclosed(
        self, launch: AgentLaunch, sandbox: AgentSandbox, socket_path: Path, state: Path, stack: ExitStack
    ) -> AgentLaunch:
        workspace = self._writer.layout.workspace
        places = AgentPlaces(
            record=self._writer.path,
            workspace=workspace,
            read_only=(workspace / "feedback", workspace / "skills"),
            files=(self._folder / "instructions.md",),
            socket_directory=socket_path.parent,
            state=state,
            session_client=Path(session_client.__file__),
            log_in=self._invocation.log_in,
        )
        stack.callback(self._release, sandbox, places)
        enclosed = sandbox.enclose(launch.argv, launch.environment, places)
        return replace(launch, argv=enclosed.argv, environment=enclosed.environment)

    def _release(self, sandbox: AgentSandbox, places: AgentPlaces) -> None:
        trouble = sandbox.release(places)
        if trouble is not None:
            self._writer.journal.notice(trouble)

    def _remove(self, private: PrivateDirectory) -> None:
        try:
            private.close()
        except OSError as error:
            self._writer.journal.notice(
                f"{private.path}: what the Agent kept there could not be removed: {error.strerror or error}"
            )

    def _start(self, launch: AgentLaunch) -> Child:
        with ExitStack() as stack:
            stdin = None
            if launch.task_on_stdin:  # a file and no pipe: nothing has to be written while the Agent reads
                stdin = stack.enter_context(_opened(self._folder / "instructions.md", os.O_RDONLY))
            new_log = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND
            stdout = stack.enter_context(_opened(self._folder / "stdout.log", new_log))
            stderr = stack.enter_context(_opened(self._folder / "stderr.log", new_log))
            self._clock.start()
            try:
                child = self._supervisor.start(
                    launch.argv,
                    env=launch.environment,
                    cwd=self._writer.layout.workspace,
                    stdin=stdin,
                    stdout=stdout,
                    stderr=stderr,
                )
            except BaseException:
                self._clock.stop()
                raise
        try:
            self._writer.journal.append(
                events.AgentStarted(
                    attempt=self._attempt, command=self._invocation.recorded_command, process_id=child.pid
                )
            )
        except BaseException:
            self._clock.stop()
            self._session.close()
            child.kill_tree()
            raise
        return child

    def _serve(self, child: Child, follower: TranscriptFollower) -> Cause:
        watched = [child.fileno(), self._session.fileno(), self._interruption.fileno()]
        idle = self._idle_watch()
        while True:
            look_seconds = LOOK_SECONDS if idle is None else min(LOOK_SECONDS, idle.look_seconds)
            ready = wait_readable(watched, min(self._clock.remaining(), look_seconds))
            if self._interruption.noted:
                return "interrupted"
            if self._session.fault is not None:
                return "fault"
            if self._session.finished.is_set():
                wait_readable([child.fileno(), self._interruption.fileno()], FINISH_GRACE_SECONDS)
                return "interrupted" if self._interruption.noted else "handed_off"
            if child.fileno() in ready:
                break
            if not self._clock.remaining():
                return "timed_out"
            if self._lives_on(follower):
                return "lived_on"
            if idle is not None and idle.is_over():
                return "stalled"
        # What the Agent left behind may submit no more; an Evaluation that runs is still its own.
        self._session.close()
        child.kill_tree()
        return self._drain()

    def _lives_on(self, follower: TranscriptFollower) -> bool:
        """Whether it said long ago that it had ended. While an Evaluation runs, it may be waiting for that."""
        return follower.seconds_since_end() > LIVING_ON_SECONDS and self._session.state.running is None

    def _idle_watch(self) -> IdleWatch | None:
        if self._idle_timeout_seconds is None:
            return None
        logs = [self._folder / "stdout.log", self._folder / "stderr.log"]
        return IdleWatch(self._idle_timeout_seconds, logs, self._session)

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

    def _end(self, child: Child) -> int:
        self._session.close()
        self._session.cancel()
        returncode = child.terminate(grace_seconds=TERMINATION_GRACE_SECONDS)
        return returncode if self._sandbox is None else self._sandbox.returncode(returncode)

    def _explain(
        self,
        cause: Cause,
        returncode: int,
        seconds: float,
        follower: TranscriptFollower,
        secrets: Mapping[bytes, str],
    ) -> PhaseEnd:
        def end(reason: str, message: str, *, resumable: bool = False) -> PhaseEnd:
            return PhaseEnd(cause, returncode, seconds, reason, message, resumable)

        message = describe_returncode(returncode)
        last = follower.last_events[-1] if follower.last_events else None
        fault = self._session.fault
        if fault is not None:
            return end(cause, f"{type(fault).__name__}: {fault}")
        if cause == "timed_out" and last is not None and last.kind == "error":
            return end(cause, f"{message}; its last words: {last.action}")
        if cause not in ("exited", "lived_on", "stalled"):
            return end(cause, message)
        diagnosis = self._diagnose(returncode, follower, secrets)
        outside = diagnosis is not None and diagnosis.resumable
        if cause == "stalled":
            silence = f"no output and no Session request for {self._idle_timeout_seconds:g} s"
            if diagnosis is not None and outside:  # what it said last tells why it fell silent
                return end(diagnosis.reason, f"{diagnosis.message}; then {silence}", resumable=True)
            return end("stalled", silence)
        said_well = cause == "lived_on" and last is not None and not last.failed
        if cause == "lived_on" and not outside:
            message += f"; it said that it had ended, and lived on for {LIVING_ON_SECONDS:g} s without a word"
            return end("lived_on" if said_well else "crashed", message)
        if diagnosis is None or diagnosis.reason == "completed":
            reason = "crashed" if returncode else "finished_without_handoff"
            return end(reason, diagnosis.message if diagnosis else message)
        return end(diagnosis.reason, diagnosis.message, resumable=outside)

    def _diagnose(
        self, returncode: int, follower: TranscriptFollower, secrets: Mapping[bytes, str]
    ) -> AgentDiagnosis | None:
        if self._invocation.diagnose is None:
            return None
        return self._invocation.diagnose(
            AgentExit(
                returncode=returncode,
                events=tuple(follower.last_events),
                stderr_tail=_tail(self._folder / "stderr.log", secrets),
                stdout_tail=_tail(self._folder / "stdout.log", secrets),
            )
        )

    def _redact(self, secrets: Mapping[bytes, str]) -> None:
        # Earlier attempts, too: a Host that was killed has not come to this.
        for attempt in range(1, self._attempt + 1):
            _redact_logs(self._writer, attempt, secrets)
        self._look_for_left_secrets(secrets)

    def _look_for_left_secrets(self, secrets: Mapping[bytes, str]) -> None:
        notice = self._writer.journal.notice
        try:
            search = SecretSearch(self._writer.layout.workspace, secrets)
        except OSError as error:
            notice(f"the workspace could not be searched for secrets: {error.strerror or error}")
            return
        found = [redact_text(path, secrets) for path in search.found[:5]]  # a name can hold one, too
        if found:
            shown = ", ".join(found) + (f" and {len(search.found) - 5} more" if len(search.found) > 5 else "")
            notice(f"the workspace holds a secret that was passed on to the Agent: {shown}")
        if search.omitted is not None:
            omitted = redact_text(search.omitted, secrets)
            notice(f"not all of the workspace was searched for secrets; the first path left out: {omitted:.200}")

    def _journalled(self, end: PhaseEnd) -> PhaseEnd:
        self._writer.journal.append(
            events.AgentEnded(
                attempt=self._attempt,
                returncode=end.returncode,
                reason=end.reason,
                seconds=end.seconds,
                message=end.message,
                resumable=end.resumable,
            )
        )
        return end


def redact_lost_logs(writer: RecordWriter, attempt: int, host_environment: Mapping[str, str]) -> None:
    """Take the secrets out of the logs of a start whose Host was killed, and tell of those that are not known here."""
    try:
        facts = json.loads((writer.layout.agent(attempt) / "invocation.json").read_bytes())
        names = [str(name) for name in facts["secret_names"]]
    except (OSError, ValueError, KeyError, TypeError):
        writer.journal.notice(f"the Agent's logs of attempt {attempt} may hold secrets: it is not known which it had")
        return
    known = {name: host_environment[name] for name in names if name in host_environment}
    _redact_logs(writer, attempt, secret_values(known))
    unknown = [name for name in names if name not in known]
    if unknown:
        writer.journal.notice(
            f"the Agent's logs of attempt {attempt} may hold the values that these variables had when its Host was "
            f"killed: {', '.join(unknown)}"
        )


def _redact_logs(writer: RecordWriter, attempt: int, secrets: Mapping[bytes, str]) -> None:
    try:
        for name in ("stdout.log", "stderr.log", "transcript.jsonl"):
            path = writer.layout.agent(attempt) / name
            if path.is_file():
                redact_file(path, secrets)
    except OSError as error:
        writer.journal.notice(
            f"the Agent's logs may hold secrets; they could not be redacted: {error.strerror or error}"
        )


class AgentClock:
    """The Agent's wall-clock time over all its starts.

    Args:
        seconds: the limit.
        used: what earlier starts have used of it.
    """

    def __init__(self, seconds: float, *, used: float = 0.0) -> None:
        self._seconds = seconds
        self._used = used
        self._started: float | None = None

    def start(self) -> None:
        """The time runs from now on."""
        self._started = time.monotonic()

    def stop(self) -> float:
        """The time stands still; the seconds since :meth:`start`, 0 if it did not run."""
        if self._started is None:
            return 0.0
        ran, self._started = time.monotonic() - self._started, None
        self._used += ran
        return ran

    def remaining(self) -> float:
        """Seconds left, >= 0."""
        running = 0.0 if self._started is None else time.monotonic() - self._started
        return max(self._seconds - self._used - running, 0.0)


@contextmanager
def _opened(path: Path, flags: int) -> Iterator[int]:
    descriptor = os.open(path, flags | os.O_CLOEXEC, 0o600)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _why(error: OSError | AgentRunError, program: str) -> str:
    if not isinstance(error, OSError) or not error.strerror:
        return str(error)
    return error.strerror if error.filename in (None, program) else f"{error.filename}: {error.strerror}"


def _tail(path: Path, secrets: Mapping[bytes, str]) -> str:
    return redact_tail(path, _TAIL_BYTES, secrets).decode("utf-8", "replace")
