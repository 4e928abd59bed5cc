"""``evopolicygym run``: from a spec to a Record, with the display that suits the place."""

import contextlib
import json
import os
import shlex
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import tomli_w
from rich.console import Group
from rich.table import Column, Table
from rich.text import Text

from evopolicygym.agents import AgentInvocation, AgentTask
from evopolicygym.agents.invocation import RECORDED_TASK
from evopolicygym.cli.consoles import can_animate, message_console, result_console, show
from evopolicygym.cli.failures import (
    EXIT_ENDED_OTHERWISE,
    EXIT_FINISHED,
    EXIT_INTERRUPTED,
    EXIT_USAGE,
    complain,
    ignore_interrupts,
)
from evopolicygym.cli.frames import duration_text, path_text
from evopolicygym.cli.inspect_command import record_parts
from evopolicygym.cli.observers import EventLines, Observers, RecordAnnounced, RecordRemembered, ViewKeeper
from evopolicygym.cli.recorded import open_recorded
from evopolicygym.cli.report import print_json, run_report
from evopolicygym.cli.run_view import RunView
from evopolicygym.cli.settings import Settings, load_settings
from evopolicygym.record import RunObserver
from evopolicygym.run.console import ConsoleProgress, inert_text
from evopolicygym.run.task import task_text
from evopolicygym.spec import ResolvedRun, Spec, load_spec

_SUMMARY_ROWS = 15


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
    mode = _mode(progress or settings.display.progress)
    if as_json and mode == "json":
        complain("--json and --progress json both want standard output; choose one")
        return EXIT_USAGE
    keeper = ViewKeeper()
    try:
        with _display(mode, resolved.record_to) as display:
            observers: list[RunObserver] = [keeper, RecordRemembered(resolved.record_to)]
            if display is not None:
                observers.append(display)
            _start(resolved, Observers(observers))
    except KeyboardInterrupt:
        ignore_interrupts()
        _close(keeper.view, resolved.record_to, mode, as_json)
        complain("interrupted")
        return EXIT_INTERRUPTED
    _close(keeper.view, resolved.record_to, mode, as_json)
    reason = keeper.view.terminal_reason
    if reason == "finished":
        return EXIT_FINISHED
    detail = keeper.view.agent_message or next(iter(reversed(keeper.view.faults)), "")
    complain(f"the Run ended: {reason}" + (f": {inert_text(detail, 500)}" if detail else ""))
    return EXIT_ENDED_OTHERWISE


def check_only(path: Path, overrides: Sequence[str], record_to: str | None) -> None:
    """Resolve a spec, see that its Agent can be started, and print the resolved form."""
    spec = _load(path, overrides, record_to, load_settings())
    resolved = spec.resolve()
    task = AgentTask(task_text(resolved.benchmark.spec, resolved.config, resolved.skills))
    invocation = resolved.agent.build_invocation(task)
    invocation.check_startable(sandboxed=resolved.execution.encloses_agent)
    resolved.execution.launch_for(resolved.benchmark)  # says so if there is no sandbox to be had
    document = spec.document()
    sys.stdout.write(tomli_w.dumps(document))
    limits = resolved.config
    facts = Table.grid(Column(style="dim", no_wrap=True), Column(overflow="fold"), padding=(0, 2))
    for name, value in (
        ("Benchmark", resolved.benchmark.spec.id),
        ("Program", f"{resolved.initial_program.digest}, {resolved.initial_program.file_count} files"),
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
    chosen = list(overrides)
    if record_to is not None:
        absolute = os.path.normpath(Path.cwd() / Path(record_to).expanduser())
        chosen.append(f"run.record_to={json.dumps(absolute, ensure_ascii=False)}")
    return load_spec(path, chosen, records=settings.records_directory)


def _mode(progress: str) -> str:
    if progress != "auto":
        return progress
    return "live" if can_animate(sys.stderr) else "plain"


@contextlib.contextmanager
def _display(mode: str, record: Path) -> Iterator[RunObserver | None]:
    if mode == "live":
        from evopolicygym.cli.live import LiveProgress

        with LiveProgress(record) as live:
            yield live
    elif mode == "json":
        yield EventLines(sys.stdout)
    elif mode == "plain":
        yield Observers([RecordAnnounced(inert_text(path_text(record))), ConsoleProgress(sys.stderr, mode="plain")])
    else:
        yield None


def _start(resolved: ResolvedRun, observer: RunObserver) -> None:
    from evopolicygym.run import run_with_spec

    run_with_spec(
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


def _close(view: RunView, record: Path, mode: str, as_json: bool) -> None:
    if not view.started_unix_ns:  # it was stopped before there was a Record
        return
    if as_json:
        print_json(run_report(open_recorded(record)))
        return
    if mode == "json":
        return
    console = result_console()
    show(console, *record_parts(open_recorded(record), width=console.width, limit=_SUMMARY_ROWS))
    console.print()
    console.print(Text(f"evopolicygym inspect {shlex.quote(path_text(record))}", style="bold"), soft_wrap=True)
