"""One trivial turn with a real coding agent and a scripted model on loopback: does this program work as we use it?"""

import os
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from evopolicygym.agents import AgentExit, AgentInvocation, AgentTask, AgentUsage, EventReader
from evopolicygym.agents.scripted_model import ScriptedModel, Step
from evopolicygym.agents.survey import agent_for_address
from evopolicygym.errors import AgentRunError
from evopolicygym.process import Supervisor, describe_returncode
from evopolicygym.run.launch import plan_launch

PROBE_SECONDS = 120.0
_TASK = AgentTask("Write the word probe into the file probe.txt, then stop.")
_STEPS = (Step(text="I write the file.", shell="echo probe > probe.txt"), Step(text="Done."))


@dataclass(frozen=True, slots=True)
class Probe:
    """What came of it.

    Args:
        works: Whether the model's command was carried out and the tokens were told as they were sent.
        seconds: Wall clock.
        message: What happened, for people.
    """

    works: bool
    seconds: float
    message: str


def probe_agent(name: str, executable: str) -> Probe:
    """Let the program talk to a scripted model. It needs no account, costs nothing and leaves nothing behind.

    Args:
        name: Of the provider.
        executable: Its path.
    """
    started = time.monotonic()
    with (
        ScriptedModel(_STEPS) as model,
        tempfile.TemporaryDirectory(prefix="evopolicygym-probe-", ignore_cleanup_errors=True) as place,
    ):
        try:
            invocation = agent_for_address(name, executable, model.url).build_invocation(_TASK)
            code, usage, message = _turn(invocation, Path(place))
        except (AgentRunError, OSError) as error:
            return Probe(False, time.monotonic() - started, str(error))
        sent = (sum(tokens.read for tokens in model.answers), sum(tokens.written for tokens in model.answers))
        told = (usage.input_tokens, usage.output_tokens)
        carried_out = Path(place, "workspace", "probe.txt").is_file()
    seconds = time.monotonic() - started
    if code == 0 and carried_out and sent == told:
        return Probe(True, seconds, f"one turn with a scripted model: {usage.tool_calls} tool call, all tokens told")
    if code == 0 and carried_out:
        return Probe(False, seconds, f"it works, but tells {told} tokens read and written where {sent} were sent")
    return Probe(False, seconds, message)


def _turn(invocation: AgentInvocation, place: Path) -> tuple[int | None, AgentUsage, str]:
    workspace, state, task_file = place / "workspace", place / "state", place / "task.md"
    workspace.mkdir()
    state.mkdir(mode=0o700)
    task_file.write_text(invocation.instructions or _TASK.instructions)
    launch = plan_launch(
        invocation,
        _TASK,
        task_file=task_file,
        host_environment=os.environ,
        session_environment={},
        state_environment={} if invocation.prepare_state is None else invocation.prepare_state(state),
    )
    logs = (place / "stdout.log", place / "stderr.log")
    with Supervisor() as supervisor, task_file.open("rb") as task, logs[0].open("wb") as out, logs[1].open("wb") as err:
        child = supervisor.start(
            launch.argv,
            env=launch.environment,
            cwd=workspace,
            stdin=task.fileno() if launch.task_on_stdin else None,
            stdout=out.fileno(),
            stderr=err.fileno(),
        )
        code = child.wait(PROBE_SECONDS)
        child.kill_tree()
    reader = EventReader(invocation.new_parser)
    told = [*reader.feed(logs[0].read_bytes()), *reader.close()]
    if invocation.closing_events is not None:
        told += invocation.closing_events(state)
    usage = AgentUsage()
    for event in told:
        usage = usage.add(event)
    if code is None:
        return code, usage, f"it did not end within {PROBE_SECONDS:g} s"
    tails = (log.read_text(errors="replace")[-16_384:] for log in reversed(logs))
    end = AgentExit(returncode=code, events=tuple(told), stderr_tail=next(tails), stdout_tail=next(tails))
    diagnosis = invocation.diagnose(end) if invocation.diagnose is not None else None
    return code, usage, diagnosis.message if diagnosis else f"it ended: {describe_returncode(code)}"
