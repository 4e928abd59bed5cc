"""Streams that real programs left, replayed by an Agent in a Run: why it ended is told, and the Run goes on later."""

import functools
import json
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from run_scenarios import initial_program, journal, manifest, scripted_agent
from target_benchmark import TargetBenchmark

from evopolicygym.agents import CommandAgent
from evopolicygym.agents.claude_code import PROVIDER as CLAUDE_CODE
from evopolicygym.agents.claude_code import ClaudeStream
from evopolicygym.agents.codex import PROVIDER as CODEX
from evopolicygym.agents.codex import CodexStream
from evopolicygym.agents.kimi_code import PROVIDER as KIMI_CODE
from evopolicygym.agents.kimi_code import KimiStream
from evopolicygym.agents.provider_failures import diagnose_exit
from evopolicygym.execution import ProcessExecution
from evopolicygym.run import RunConfig, resume, run

SAMPLES = Path(__file__).parent.parent / "agents" / "samples"
PROVIDERS = {"codex": (CODEX, CodexStream), "claude": (CLAUDE_CODE, ClaudeStream), "kimi": (KIMI_CODE, KimiStream)}
REPLAY = """
import os, signal, sys
from pathlib import Path
sample, end = Path(sys.argv[1]), int(sys.argv[2])
os.write(1, sample.read_bytes())
errors = sample.with_suffix(".stderr")
os.write(2, errors.read_bytes() if errors.exists() else b"")
if end < 0:
    os.kill(os.getpid(), -end)
sys.exit(end)
"""


class Replaying(CommandAgent):
    """Prints what a real program printed; the provider's own code reads and explains it."""

    provider: object
    stream: object

    def build_invocation(self, task):
        provider = self.provider
        explain = functools.partial(diagnose_exit, provider.title, provider.failures, provider.stub_advice)
        return replace(super().build_invocation(task), new_parser=self.stream, diagnose=explain)


def replaying(folder: Path, sample: str, end: int) -> Replaying:
    program = folder / "replay.py"
    program.write_text(REPLAY)
    agent = Replaying([sys.executable, str(program), str(SAMPLES / f"{sample}.jsonl"), str(end)])
    agent.provider, agent.stream = PROVIDERS[sample.partition(".")[0]]
    return agent


@pytest.mark.parametrize(
    ("sample", "end", "terminal", "reason", "resumable"),
    [
        ("codex.fault-401", 1, "agent_failed", "authentication", True),
        ("codex.fault-quota429", 1, "agent_failed", "usage_limit", True),
        ("claude.fault-529", 1, "agent_failed", "overloaded", True),
        ("kimi.fault-cut", 1, "agent_failed", "network", True),
        ("claude.sigterm", -9, "agent_failed", "crashed", False),
        ("codex", 0, "agent_exited", "finished_without_handoff", False),
    ],
)
def test_why_an_agent_ended_is_told_and_its_run_goes_on_with_another(
    tmp_path, sample, end, terminal, reason, resumable
):
    execution = ProcessExecution.unsafe(workers=0)
    record = tmp_path / "record"
    result = run(
        initial_program(tmp_path),
        TargetBenchmark(),
        agent=replaying(tmp_path, sample, end),
        execution=execution,
        record_to=record,
        config=RunConfig(episode_budget=4),
    )
    assert result.terminal_reason == terminal
    told = manifest(record)["agent_end"]
    assert (told["reason"], told["resumable"]) == (reason, resumable)
    [ended] = [event for event in journal(record) if event["event"] == "agent_ended"]
    assert (ended["reason"], ended["resumable"], ended["message"]) == (reason, resumable, told["message"])
    worker = scripted_agent(tmp_path, "submit('0:2')\nsession('finish', 'submission-000001')", [])
    result = resume(record, benchmark=TargetBenchmark(), agent=worker, execution=execution)
    assert result.terminal_reason == "finished"
    reasons = [attempt["reason"] for attempt in json.loads((record / "run.json").read_text())["agent_attempts"]]
    assert reasons == [reason, "handed_off"]
