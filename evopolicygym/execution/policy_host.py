"""Where Policy processes come from: one template, one Program at a time, one Episode at a time."""

from __future__ import annotations

import array
import fcntl
import marshal
import os
import select
import socket
import struct
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from evopolicygym.errors import EvaluationError
from evopolicygym.execution import codec, frames, template
from evopolicygym.execution.launch import PolicyLaunch
from evopolicygym.execution.preload import modules_to_preload, shadowed_names
from evopolicygym.execution.program_copy import ProgramCopy
from evopolicygym.execution.scratch import Scratch
from evopolicygym.execution.ticks import hiding_seconds
from evopolicygym.policy import PolicyValue
from evopolicygym.process import describe_returncode
from evopolicygym.program import Program
from evopolicygym.results import PolicyFailure

__all__ = [
    "FailureReport",
    "PolicyEnd",
    "PolicyEpisode",
    "PolicyFailedError",
    "PolicyHost",
    "StoppedError",
    "TemplateProcess",
    "TemplateStarter",
]

# From the start of a template until it can fork: an interpreter, and what it preloads from a slow disk.
TEMPLATE_START_SECONDS = 120.0

# From the request until a Policy process is set up; before any submitted code has run.
POLICY_START_SECONDS = 60.0

# Ending a Policy process and all below it. A template that does not answer has been stopped by its Policy.
POLICY_END_SECONDS = 15.0

# More than poll(2) can wait for, which takes milliseconds as a C int, is no bound at all.
_SECONDS_MAX = 2_000_000.0

# What a Policy that acts with an int answers: header, tag, 8 bytes.
_INT_ANSWER = frames.frame(frames.ACTION, codec.encode(0))[:-8]
_INT_ANSWER_BYTES = len(_INT_ANSWER) + 8

# Names of the step's own: looking them up in their modules every time is a tenth of what it costs.
monotonic, read, write, writev = time.monotonic, os.read, os.write, os.writev
unpack_int = struct.Struct("<q").unpack_from

_READ_BYTES = 65_536
_PIPE_BYTES = 65_536
_LARGE_PIPE_BYTES = 1024 * 1024
_F_SETPIPE_SZ = 1031  # <linux/fcntl.h>


class TemplateProcess(Protocol):
    """A started template, owned by whoever started it."""

    def end(self) -> None:
        """End it and all below it; its control socket is closed already."""
        ...


class TemplateStarter(Protocol):
    """Starts template processes; the ways differ between the Host and a worker."""

    def __call__(self, argv: list[str], env: Mapping[str, str], control: int) -> TemplateProcess:
        """Start ``argv`` with ``control`` as its descriptor ``CONTROL_DESCRIPTOR``."""
        ...


class StoppedError(Exception):
    """The Episode was told to stop; nothing came of it."""


@dataclass(frozen=True, slots=True)
class FailureReport:
    """What is known of a Policy's failure.

    Args:
        failure: the code.
        message: one sentence for the person who wrote the Policy; empty if only the process's end will tell.
        exception_type: the type of what was raised, if something was.
        frames: frames inside the Program, outermost first.
        traceback: the whole traceback.
    """

    failure: PolicyFailure
    message: str
    exception_type: str | None = None
    frames: tuple[str, ...] = ()
    traceback: str | None = None


class PolicyFailedError(Exception):
    """The Policy failed; data for one Episode, never an error of ours."""

    def __init__(self, report: FailureReport) -> None:
        super().__init__(report.message)
        self.report = report


def _failed(failure: PolicyFailure, message: str) -> PolicyFailedError:
    return PolicyFailedError(FailureReport(failure, message))


@dataclass(frozen=True, slots=True)
class PolicyEnd:
    """How a Policy process ended.

    Args:
        stdout, stderr: the last bytes that it printed.
        ended_by_itself: it was gone before it was told to end.
        description: how, in words ("exit code 0", "killed by SIGSEGV").
        template_lost: it took the template process with it.
    """

    stdout: bytes
    stderr: bytes
    ended_by_itself: bool
    description: str
    template_lost: bool


class PolicyHost:
    """A template process and what its Policy processes need; not thread-safe.

    Args:
        launch: how to start a template.
        root: an existing private directory, for ``program`` and ``scratch``.
        start: starts the template process.
        stop: a descriptor that ends every wait for a Policy, with `StoppedError`, while it is readable.
    """

    def __init__(self, launch: PolicyLaunch, root: Path, start: TemplateStarter, *, stop: int | None = None) -> None:
        self._launch = launch
        self._root = root
        self._start = start
        self._stop = stop
        hiding = hiding_seconds(root)
        self._copy = ProgramCopy(root / "program", self._compile, hiding)
        self._scratch = Scratch(root / "scratch", hiding)
        self._program_request = b""
        self._preload: tuple[str, ...] = ()
        self._template: _Template | None = None

    def load(self, program: Program, context: tuple[bytes, bytes, bytes, bytes]) -> None:
        """Run ``program`` in the Episodes to come.

        Args:
            program: the Program.
            context: observation space, action space, metadata and environment parameters, each encoded.

        Policy processes stay on the cores that the calling thread may use now.
        """
        preload = modules_to_preload(program)
        if self._template is not None and preload != self._preload:
            self._drop_template()
        self._preload = preload
        self._program_request = b""
        self._copy.hold(program)
        self._copy.renew()
        self._scratch.renew()
        self._program_request = marshal.dumps(
            (_allowed_cores(), str(self._copy.directory), context, shadowed_names(program))
        )
        self._have_template().request(template.PROGRAM, self._program_request)

    def prepare(self) -> None:
        """Start the template ahead of time, for a Program that preloads nothing."""
        self._have_template()

    def open_episode(self, policy_seed: int, *, seconds: float) -> PolicyEpisode:
        """Start a fresh Policy process that has ``seconds`` of time to spend.

        Raises:
            EvaluationError: it cannot be started, for a reason that is not the Policy's.
        """
        running = self._have_template()
        observations, observations_in = os.pipe()
        actions_out, actions = os.pipe()
        try:
            for descriptor in (observations_in, actions_out):
                os.set_blocking(descriptor, False)
            running.request(template.EPISODE, marshal.dumps(policy_seed), (observations, actions))
        except BaseException:
            os.close(observations_in)
            os.close(actions_out)
            raise
        finally:
            os.close(observations)
            os.close(actions)
        opened = PolicyEpisode(self, running, observations_in, actions_out, seconds)
        try:
            opened._await_ready()
        except BaseException:
            opened._close_channel()
            self._drop_template()
            raise
        return opened

    def close(self) -> None:
        """End the template and remove its files."""
        self._drop_template()
        self._copy.remove()
        self._scratch.remove()

    def _have_template(self) -> _Template:
        if self._template is None:
            self._template = self._start_template(self._preload)
            if self._program_request:
                self._template.request(template.PROGRAM, self._program_request)
        return self._template

    def _start_template(self, preload: tuple[str, ...]) -> _Template:
        here, there = socket.socketpair()
        try:
            with there:
                process = self._start(
                    self._launch.command(root=self._root, preload=preload),
                    self._launch.environment(root=self._root),
                    there.fileno(),
                )
        except BaseException as error:
            here.close()
            if isinstance(error, OSError):
                raise EvaluationError(f"the template process cannot be started: {error}") from error
            raise
        started = _Template(here, process)
        try:
            threads = started.await_start()
            if threads in (0, 1) or not preload:
                return started
        except _TemplateLostError:
            if not preload:
                started.close()
                raise EvaluationError(
                    "the template process ended while it was starting; see its last output on stderr"
                ) from None
        except BaseException:
            started.close()
            raise
        # Something among the modules crashed, or started a thread, which no fork survives whole.
        started.close()
        return self._start_template(())

    def _drop_template(self) -> None:
        if self._template is not None:
            self._template.close()
            self._template = None
            self._launch.release(root=self._root)

    def _finish_episode(self, running: _Template, *, seems_to_be_ending: bool) -> PolicyEnd:
        end = running.end_policy(seems_to_be_ending=seems_to_be_ending)
        if end is None:
            self._drop_template()
            end = PolicyEnd(b"", b"", True, "gone together with its template process", True)
        self._copy.renew()
        self._scratch.renew()
        return end

    def _compile(self, directory: str, paths: list[str]) -> None:
        self._have_template().compile(directory, paths)


class PolicyEpisode:
    """One Policy process and the time that it has left."""

    def __init__(self, host: PolicyHost, running: _Template, out: int, back: int, seconds: float) -> None:
        self._host = host
        self._template = running
        self._out = out
        self._back = back
        self._seconds = min(seconds, _SECONDS_MAX)
        self._remaining = self._seconds
        self._head = b""
        self._head_for = -1
        self._pipe_bytes = _PIPE_BYTES
        poller = select.poll()
        poller.register(back, select.POLLIN)
        self._stop = host._stop
        if self._stop is not None:
            poller.register(self._stop, select.POLLIN)
        self._poll = poller.poll
        self._hung_up = False
        self._end: PolicyEnd | None = None

    def act(self, observation: bytes, tensor_data: bytes = b"") -> tuple[PolicyValue, bytes]:
        """Send an encoded observation, wait for the action; only this time is the Policy's.

        Args:
            observation: the encoding, or its first part.
            tensor_data: its second part (see `encode_in_parts`).

        Returns:
            The action, and its encoding.

        Raises:
            PolicyFailedError: it failed, in whatever way.
            StoppedError: it was told to stop.
            EvaluationError: the observation is too large to be sent.
        """
        # This is what an Episode's time is spent in: hence no helper functions, and no system call too many.
        remaining = self._remaining
        if remaining <= 0:
            raise self._late("nothing was left for this step")
        began = monotonic()
        size = len(observation) + len(tensor_data)
        if size != self._head_for:
            self._head = frames.HEADER.pack(size + 1, frames.OBSERVATION)
            self._head_for = size
        data = self._head + observation
        size += frames.HEADER.size
        try:
            written = writev(self._out, (data, tensor_data)) if tensor_data else write(self._out, data)
        except BlockingIOError:
            written = 0
        except BrokenPipeError:  # it is gone; what it said last is still to be read
            written = size
        if written != size:
            self._write_rest(data + tensor_data, written, began + remaining)
        try:
            # Mostly it is there: the write has woken the Policy process, on this core.
            answer = read(self._back, _READ_BYTES)
        except BlockingIOError:
            self._await_readable(began + remaining)
            answer = self._read(_READ_BYTES)
        if len(answer) == _INT_ANSWER_BYTES and answer.startswith(_INT_ANSWER):
            action: PolicyValue = unpack_int(answer, len(_INT_ANSWER))[0]  # by far the commonest answer
        else:
            answer = self._checked(answer, began + remaining)
            try:
                action = codec.decode(answer, frames.HEADER.size)
            except codec.MalformedValueError as error:
                raise _failed("protocol_error", f"the action cannot be decoded: {error}") from None
        self._remaining = began + remaining - monotonic()
        return action, answer[frames.HEADER.size :]

    def _checked(self, answer: bytes, deadline: float) -> bytes:
        """A whole frame that carries an action; PolicyFailedError if it is something else."""
        # The kind byte follows the length.
        if len(answer) < frames.HEADER.size or int.from_bytes(answer[:4], "little") + 4 != len(answer):
            answer = self._read_rest(answer, deadline)
        if answer[4] != frames.ACTION:
            self._raise_failure(answer)
        return answer

    def close(self) -> PolicyEnd:
        """End the process and all that it has started, and remove its scratch; safe to call again."""
        if self._end is None:
            # The channel is closed last: a Policy process that saw its end would run once more, for nothing.
            try:
                self._end = self._host._finish_episode(self._template, seems_to_be_ending=self._hung_up)
            finally:
                self._close_channel()
        return self._end

    def _close_channel(self) -> None:
        if self._out >= 0:
            os.close(self._out)
            os.close(self._back)
            self._out = self._back = -1

    def _await_ready(self) -> None:
        poller = select.poll()
        poller.register(self._back, select.POLLIN)
        poller.register(self._template.fileno(), select.POLLIN)
        if not poller.poll(POLICY_START_SECONDS * 1000):
            raise EvaluationError(f"no Policy process was set up within {POLICY_START_SECONDS:g} s")
        expected = frames.frame(frames.READY, b"")
        try:
            answer = os.read(self._back, len(expected))
            while answer and answer != expected and (more := os.read(self._back, _READ_BYTES)):
                answer += more
        except BlockingIOError:
            answer = b""
        if answer != expected:
            told = answer.decode("utf-8", "replace") or "out of processes or memory?"
            raise EvaluationError(f"the Policy process ended before any submitted code ran: {told}")

    def _read(self, size: int) -> bytes:
        try:
            return os.read(self._back, size)
        except BlockingIOError:  # the other descriptor is the one that is readable
            raise StoppedError from None

    def _write_rest(self, data: bytes, written: int, deadline: float) -> None:
        if len(data) > frames.FRAME_MAX_BYTES:
            raise EvaluationError(
                f"an observation takes {len(data)} bytes; a Policy process can be sent {frames.FRAME_MAX_BYTES} at most"
            )
        if self._pipe_bytes < len(data):
            self._widen()
        rest = memoryview(data)[written:]
        poller = select.poll()
        poller.register(self._out, select.POLLOUT)
        if self._stop is not None:
            poller.register(self._stop, select.POLLIN)
        while rest:
            ready = poller.poll(max(0.0, deadline - time.monotonic()) * 1000)
            if not ready:
                if time.monotonic() >= deadline:
                    raise self._late("it did not read its observation")
                continue
            if any(descriptor == self._stop for descriptor, _ in ready):
                raise StoppedError
            try:
                rest = rest[os.write(self._out, rest) :]
            except BlockingIOError:
                continue
            except BrokenPipeError:
                return

    def _widen(self) -> None:
        """Let the pipe take more at once, as far as this user may."""
        self._pipe_bytes = frames.FRAME_MAX_BYTES  # one try is enough
        try:
            fcntl.fcntl(self._out, _F_SETPIPE_SZ, _LARGE_PIPE_BYTES)
        except OSError:
            pass

    def _await_readable(self, deadline: float) -> None:
        while True:
            remaining = deadline - time.monotonic()
            if remaining <= 0:
                raise self._late("it did not answer")
            if self._poll(remaining * 1000):
                return

    def _read_rest(self, data: bytes, deadline: float) -> bytes:
        """Complete a frame that came in parts; judge one that cannot be."""
        buffer = bytearray(data)
        wanted = 5
        while True:
            if len(buffer) >= 4:
                length = int.from_bytes(buffer[:4], "little")
                if not 1 <= length <= frames.FRAME_MAX_BYTES:
                    raise _failed(
                        "protocol_error",
                        f"the Policy process sent a frame of {length} bytes; 1 to {frames.FRAME_MAX_BYTES} are allowed",
                    )
                wanted = length + 4
            if len(buffer) == wanted:
                return bytes(buffer)
            if len(buffer) > wanted:
                raise _failed("protocol_error", "the Policy process sent more than one answer")
            if not data:
                self._hung_up = True
                raise _failed("protocol_error", "")  # told once it is known how the process ended
            self._await_readable(deadline)
            data = self._read(min(max(wanted - len(buffer), 1) + 1, _LARGE_PIPE_BYTES))
            buffer += data

    def _raise_failure(self, answer: bytes) -> None:
        kind, payload = answer[4], answer[5:]
        if kind == frames.REFUSED:
            raise _failed("protocol_error", payload.decode("utf-8", "replace")[:4000])
        if kind == frames.FAILED:
            raise _reported_failure(payload)
        raise _failed("protocol_error", f"the Policy process sent a frame of the unknown kind {kind}")

    def _late(self, what: str) -> PolicyFailedError:
        return _failed("timeout", f"the Policy used up its {self._seconds:g} s in this Episode: {what}")


class _TemplateLostError(Exception):
    """The control socket has ended, or answers no more."""


class _Template:
    """The near end of a template's control socket."""

    def __init__(self, control: socket.socket, process: TemplateProcess) -> None:
        self._control = control
        self._process = process

    def fileno(self) -> int:
        return self._control.fileno()

    def await_start(self) -> int:
        """Wait until it can fork; the number of threads that it has."""
        started: int = template.STARTED.unpack(self._receive(template.STARTED.size, TEMPLATE_START_SECONDS))[0]
        return started

    def request(self, kind: int, payload: bytes, descriptors: tuple[int, ...] = ()) -> None:
        data = template.REQUEST.pack(len(payload), kind) + payload
        ancillary = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", descriptors))] if descriptors else []
        try:
            sent = self._control.sendmsg([data], ancillary)
            if sent != len(data):
                self._control.sendall(memoryview(data)[sent:])
        except (BrokenPipeError, ConnectionResetError):
            raise EvaluationError(
                "the template process is gone: it was killed from outside, or ran out of memory"
            ) from None

    def compile(self, directory: str, paths: list[str]) -> None:
        """Have byte code written; if the template cannot do it, there is none."""
        self.request(template.COMPILE, marshal.dumps((directory, paths)))
        try:
            self._receive(len(template.COMPILED), TEMPLATE_START_SECONDS)
        except _TemplateLostError:
            raise EvaluationError("the template process ended while it compiled a Program") from None

    def end_policy(self, *, seems_to_be_ending: bool) -> PolicyEnd | None:
        """Have the running Policy process ended; None if the template is lost."""
        payload = b"!" if seems_to_be_ending else b""
        try:
            self._control.sendall(template.REQUEST.pack(len(payload), template.END) + payload)
            head = self._receive(template.ANSWER.size, POLICY_END_SECONDS)
            status, by_itself, survivors, stdout_bytes, stderr_bytes = template.ANSWER.unpack(head)
            output = self._receive(stdout_bytes + stderr_bytes, POLICY_END_SECONDS)
        except (BrokenPipeError, ConnectionResetError, _TemplateLostError):
            return None
        if survivors:
            raise EvaluationError(f"{survivors} processes that the Policy has started cannot be ended")
        description = describe_returncode(os.waitstatus_to_exitcode(status))
        return PolicyEnd(output[:stdout_bytes], output[stdout_bytes:], bool(by_itself), description, False)

    def close(self) -> None:
        self._control.close()
        self._process.end()

    def _receive(self, size: int, seconds: float) -> bytes:
        deadline = time.monotonic() + seconds
        poller = select.poll()
        poller.register(self._control, select.POLLIN)
        data = b""
        while len(data) < size:
            if not poller.poll(max(0.0, deadline - time.monotonic()) * 1000):
                raise _TemplateLostError
            chunk = self._control.recv(size - len(data))
            if not chunk:
                raise _TemplateLostError
            data += chunk
        return data


def _allowed_cores() -> tuple[int, ...]:
    return tuple(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else ()


def _reported_failure(payload: bytes) -> PolicyFailedError:
    """What a Policy process says of its own exception; believed as far as it is well-formed, and bounded."""
    try:
        report = codec.decode(payload)
    except codec.MalformedValueError as error:
        return _failed("protocol_error", f"the report of an exception cannot be decoded: {error}")
    if not isinstance(report, dict):
        return _failed("protocol_error", "the report of an exception is malformed")
    kind, message, text, found = (report.get(name) for name in ("type", "message", "traceback", "frames"))
    if not (isinstance(kind, str) and isinstance(message, str) and isinstance(text, str) and isinstance(found, list)):
        return _failed("protocol_error", "the report of an exception is malformed")
    inside = tuple(item for item in found[-64:] if isinstance(item, str))
    return PolicyFailedError(FailureReport("exception", message, kind, inside, text))
