"""Whole Runs with scripted Agents, for tests: each Agent is a real process that runs a short Python script."""

import json
import os
import sys
import time
from pathlib import Path

from target_benchmark import CONSTANT_POLICY, RIGHT_POLICY, TargetBenchmark

from evopolicygym import Program, RunResult
from evopolicygym.agents import CommandAgent
from evopolicygym.execution import ProcessExecution
from evopolicygym.run import RunConfig, run

# What every scripted Agent can use: session("submit", …) gives (exit code, answer).
PRELUDE = f"""\
import json, os, pathlib, signal, subprocess, sys, time

RIGHT_POLICY = {RIGHT_POLICY!r}

def session(*arguments):
    done = subprocess.run(["evopolicygym-session", *arguments], capture_output=True, text=True)
    return done.returncode, json.loads(done.stdout or done.stderr)

def submit(episodes, *flags):
    return session("submit", "program", "--episodes", episodes, *flags)

def improve():
    pathlib.Path("program/policy.py").write_text(RIGHT_POLICY)
"""

WHOLE_JOB = """
assert submit("0:2")[1]["result"]["score"] < 5
improve()
assert submit("0:2,4:8")[1]["result"]["score"] == 5
print(session("finish", "submission-000002"))
"""


def initial_program(folder: Path) -> Program:
    source = folder / "initial-program"
    source.mkdir(parents=True, exist_ok=True)
    (source / "policy.py").write_text(CONSTANT_POLICY)
    return Program.from_directory(source)


def scripted_agent(folder: Path, script: str, arguments: list[str], **options: object) -> CommandAgent:
    path = folder / "agent.py"
    path.write_text(PRELUDE + script)
    return CommandAgent([sys.executable, str(path), *arguments], **options)


def run_scripted(
    folder: Path,
    script: str,
    *,
    benchmark: TargetBenchmark | None = None,
    record_to: Path | None = None,
    agent_options: dict[str, object] | None = None,
    arguments: list[str] | None = None,
    observer: object = None,
    skills: tuple[object, ...] = (),
    **config: object,
) -> tuple[RunResult, Path]:
    """One Run; the result and the Record's path."""
    record = record_to or folder / "record"
    settings = {"episode_budget": 30, "episode_pool_size": 60, "agent_timeout_seconds": 60.0} | config
    result = run(
        initial_program(folder),
        benchmark or TargetBenchmark(),
        agent=scripted_agent(folder, script, arguments or [], **(agent_options or {})),
        execution=ProcessExecution.unsafe(workers=1),
        record_to=record,
        config=RunConfig(**settings),  # type: ignore[arg-type]  # keyword arguments of a test
        observer=observer,  # type: ignore[arg-type]  # as above
        skills=skills,  # type: ignore[arg-type]  # as above
    )
    return result, record


def manifest(record: Path) -> dict[str, object]:
    loaded: dict[str, object] = json.loads((record / "run.json").read_text())
    return loaded


def journal(record: Path) -> list[dict[str, object]]:
    return [json.loads(line) for line in (record / "events.jsonl").read_text().splitlines()]


def event_names(record: Path) -> list[str]:
    return [str(event["event"]) for event in journal(record)]


def processes_mentioning(text: str) -> list[int]:
    """Pids of living processes whose environment or command line holds ``text``."""
    found = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdecimal() or int(entry.name) == os.getpid():
            continue
        try:
            seen = (entry / "environ").read_bytes() + (entry / "cmdline").read_bytes()
            state = (entry / "stat").read_text().rpartition(")")[2].split()[0]
        except OSError:
            continue
        if text.encode() in seen and state != "Z":
            found.append(int(entry.name))
    return found


def wait_for(condition: object, seconds: float = 30.0) -> bool:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if condition():  # type: ignore[operator]  # a callable
            return True
        time.sleep(0.02)
    return False
