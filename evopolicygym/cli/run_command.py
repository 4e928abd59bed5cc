"""``evopolicygym run``: from a spec to a Record, with the display that suits the place."""

import os
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path

import tomli_w
from rich.console import Group
from rich.table import Column, Table
from rich.text import Text

from evopolicygym.agents import AgentInvocation, AgentTask
from evopolicygym.agents.invocation import RECORDED_TASK
from evopolicygym.cli.consoles import message_console, show
from evopolicygym.cli.frames import path_text
from evopolicygym.cli.numbers import counted, duration_text
from evopolicygym.cli.run_display import show_run
from evopolicygym.cli.settings import Settings, load_settings
from evopolicygym.record import RunObserver
from evopolicygym.run.console import inert_text
from evopolicygym.run.preparation import prepare
from evopolicygym.spec import ResolvedRun, Spec, load_spec


def run_spec(
    path: Path, overrides: Sequence[str], record_to: str | None, progress: str | None, *, as_json: bool
) -> int:
    """Run a spec and show what comes of it.

    Returns:
        The exit code: 0 only if the Run finished.
    """
    settings = load_settings()
    settings.set_workers()
    resolved = _load(path, overrides, record_to, settings).resolve()
    return show_run(
        lambda observer: _start(resolved, observer),
        resolved.record_to,
        progress=progress or settings.display.progress,
        as_json=as_json,
    )


def check_only(path: Path, overrides: Sequence[str], record_to: str | None) -> None:
    """Resolve a spec, see that its Agent can be started, and print the resolved form."""
    spec = _load(path, overrides, record_to, load_settings())
    resolved = spec.resolve()
    _, start = prepare(
        resolved.initial_program,
        resolved.benchmark,
        agent=resolved.agent,
        record_to=resolved.record_to,
        config=resolved.config,
        skills=resolved.skills,
        sandboxed=resolved.execution.encloses_agent,
    )
    task, invocation = start.task, start.invocation
    resolved.execution.launch_for(resolved.benchmark)  # says so if there is no sandbox to be had
    document = spec.document()
    sys.stdout.write(tomli_w.dumps(document))
    limits = resolved.config
    facts = Table.grid(Column(style="dim", no_wrap=True), Column(overflow="fold"), padding=(0, 2))
    for name, value in (
        ("Benchmark", resolved.benchmark.spec.id),
        ("Program", f"{resolved.initial_program.digest}, {counted(resolved.initial_program.file_count, 'file')}"),
        ("Agent", _what_would_run(invocation, task)),
        ("Task", _DELIVERIES[invocation.task_delivery]),
        ("Environment", _environment_names(invocation)),
        *invocation.facts.items(),
        ("Budget", f"{limits.episode_budget} Episodes, {limits.max_submissions} Submissions"),
        ("Agent time", duration_text(limits.agent_timeout_seconds)),
        ("Record", path_text(resolved.record_to)),
    ):
        facts.add_row(name, Text(inert_text(value)))
    show(message_console(), Group(facts, Text("Nothing was started.")))


_DELIVERIES = {
    "stdin": f"on standard input, from {RECORDED_TASK[1:]} of the Record",
    "argument": f"as an argument, shown here as {RECORDED_TASK}",
    "file": f"in the file {RECORDED_TASK[1:]} of the Record",
}


def _what_would_run(invocation: AgentInvocation, task: AgentTask) -> str:
    """The arguments as the process would see them, but for the task text."""
    file = Path(RECORDED_TASK)
    told = (task.instructions, invocation.instructions)
    arguments = [
        RECORDED_TASK if argument in told else argument for argument in invocation.arguments(task, task_file=file)
    ]
    return shlex.join(argument.replace(str(file.absolute()), RECORDED_TASK) for argument in arguments)


def _environment_names(invocation: AgentInvocation) -> str:
    passed = [name for name in invocation.inherited_environment if name in os.environ]
    return ", ".join(sorted({*passed, *invocation.environment})) or "nothing beyond the ordinary"


def _load(path: Path, overrides: Sequence[str], record_to: str | None, settings: Settings) -> Spec:
    return load_spec(path, overrides, record_to=record_to, records=settings.records_directory)


def _start(resolved: ResolvedRun, observer: RunObserver) -> None:
    from evopolicygym.run import run

    run(
        resolved.initial_program,
        resolved.benchmark,
        agent=resolved.agent,
        execution=resolved.execution,
        record_to=resolved.record_to,
        config=resolved.config,
        skills=resolved.skills,
        observer=observer,
        spec_document=resolved.spec_document,
    )
