"""``compare`` on whole Runs: which scores count, and which Runs are told apart."""

import json
import subprocess
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from run_scenarios import WHOLE_JOB, initial_program, run_scripted, scripted_agent
from target_benchmark import TargetBenchmark

from evopolicygym.agents import AgentInvocation, AgentTask, CommandAgent
from evopolicygym.agents.events import AgentDiagnosis
from evopolicygym.execution import ProcessExecution
from evopolicygym.run import AssessmentConfig, RunConfig, resume, run

HALF_A_JOB = "submit('0:2')\nimprove()\nsubmit('0:2')\nsys.exit(1)"


class OutOfCredit(CommandAgent):
    """Works, until its provider refuses to go on."""

    model = "small"

    def build_invocation(self, task: AgentTask) -> AgentInvocation:
        return replace(
            super().build_invocation(task),
            identity={"name": "worker", "model": self.model},
            diagnose=lambda _exit: AgentDiagnosis("usage_limit", "no credit is left"),
        )


class Larger(OutOfCredit):
    """The same with another model."""

    model = "large"


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Any]]:
    """The comparison of six Runs, by the command itself."""
    home = tmp_path_factory.mktemp("comparable")
    runs = home / "runs"
    assessed = {"assessment": AssessmentConfig(episodes=4), "episode_budget": 12, "seed": 7}
    run_scripted(home, WHOLE_JOB, record_to=runs / "whole", **assessed)
    run_scripted(home, WHOLE_JOB, record_to=runs / "untold", **assessed | {"policy_diagnostics": "none", "seed": 2**63})
    run_scripted(home, HALF_A_JOB, record_to=runs / "crashed-agent", **assessed)
    for name, kind in (("no-credit", OutOfCredit), ("picked-up", OutOfCredit), ("large", Larger)):
        script = WHOLE_JOB if name == "large" else HALF_A_JOB
        run(
            initial_program(home),
            TargetBenchmark(),
            agent=kind(scripted_agent(home, script, []).command),
            execution=ProcessExecution.unsafe(workers=1),
            record_to=runs / name,
            config=RunConfig(**assessed),
        )
    resume(runs / "picked-up", benchmark=TargetBenchmark(), execution=ProcessExecution.unsafe(workers=1), select=True)
    done = subprocess.run(
        ["evopolicygym", "compare", str(runs), "--against", "whole", "--json"],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    yield json.loads(done.stdout)
    subprocess.run(["chmod", "-R", "u+w", str(home)], check=True)


def entry(report: dict[str, Any], name: str) -> dict[str, Any]:
    found: dict[str, Any] = next(one for one in report["runs"] if one["run"] == name)
    return found


def test_an_agent_that_crashed_by_itself_keeps_its_scores(report: dict[str, Any]) -> None:
    told = entry(report, "crashed-agent")
    assert not told["infrastructure_failure"]
    assert told["best_training"] == 5


def test_an_agent_whose_provider_failed_has_no_score(report: dict[str, Any]) -> None:
    told = entry(report, "no-credit")
    assert (told["outcome"], told["agent_end"]) == ("agent_failed", "usage_limit")
    assert told["infrastructure_failure"]
    assert told["best_training"] is told["score_area"] is None
    assert "no-credit: agent failed, its Agent: usage limit; no score of it is counted" in report["warnings"]


def test_what_the_host_handed_off_for_such_an_agent_is_no_score_of_it(report: dict[str, Any]) -> None:
    told = entry(report, "picked-up")
    assert (told["outcome"], told["agent_end"]) == ("finished", "usage_limit")
    assert told["infrastructure_failure"]
    assert told["assessment"] is None
    assert "picked-up" not in [pair["run"] for pair in report["pairs"]]


def test_a_hand_off_counts_whatever_the_provider_said_later(report: dict[str, Any]) -> None:
    assert entry(report, "large")["agent_end"] == "handed_off"
    assert entry(report, "large")["assessment"] is not None


def test_agents_of_one_name_and_different_models_are_averaged_apart(report: dict[str, Any]) -> None:
    groups = {(group["agent"], group["agent_settings"]): group["measured"] for group in report["groups"]}
    assert groups[("worker", "model small")] == 0
    assert groups[("worker", "model large")] == 1


def test_runs_under_other_rules_are_marked(report: dict[str, Any]) -> None:
    assert report["differences"]["policy diagnostics"]["none"] == ["untold"]
    assert ["untold"] in report["differences"]["seed strength"].values()
    group = next(group for group in report["groups"] if group["agent"] not in ("worker",))
    assert group["differ_in"] == ["seed strength", "policy diagnostics"]
