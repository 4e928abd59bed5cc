import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from evopolicygym.agents import AgentTask, EventReader, ParameterTuner

FAKE_SESSION = Path(__file__).with_name("fake_session.py")
TUNER = ParameterTuner().build_invocation(AgentTask("improve the Policy"))


class Workspace:
    """A workspace with a fake Session on PATH."""

    def __init__(self, directory: Path, parameters: object, **settings: object) -> None:
        self.directory = directory / "workspace"
        (self.directory / "program").mkdir(parents=True)
        (self.directory / "feedback").mkdir()
        (self.directory / "analysis").mkdir()
        self.settings = directory / "settings.json"
        state = {
            "episodes_remaining": 160,
            "submissions_remaining": 40,
            "seconds_remaining": 600.0,
            "pool_size": 100,
            "max_episodes_per_submission": None,
            "max_candidates": 3,
            "primary_metric": "closeness",
            "score_direction": "maximize",
            "finish_budget_policy": "allow_early",
            "running": None,
            "published": [],
        }
        self.settings.write_text(json.dumps(state | settings))
        if parameters is not None:
            (self.directory / "program" / "params.json").write_text(json.dumps(parameters))
        self.commands = directory / "bin"
        self.commands.mkdir()
        script = self.commands / "evopolicygym-session"
        script.write_text(f'#!/bin/sh\nexec {sys.executable} -S {FAKE_SESSION} "$@"\n')
        script.chmod(0o755)

    def tune(self, *options: str) -> subprocess.CompletedProcess[bytes]:
        return subprocess.run(
            [*TUNER.command, *options],
            cwd=self.directory,
            env={"PATH": f"{self.commands}:{os.environ['PATH']}", "FAKE_SESSION": str(self.settings)},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            check=False,
            timeout=100,
        )

    @property
    def state(self) -> dict[str, object]:
        return json.loads(self.settings.read_text())

    @property
    def published(self) -> list[dict[str, object]]:
        return self.state["published"]

    def score(self, submission_id: str) -> float:
        return next(item["score"] for item in self.published if item["submission_id"] == submission_id)


def test_it_finds_better_parameters_and_hands_the_best_off_first(tmp_path):
    workspace = Workspace(tmp_path, {"weights": [0.0, 0.0], "version": 3})
    done = workspace.tune()
    assert done.returncode == 0, done.stderr
    finished = workspace.state["finished"]
    first = workspace.published[0]["score"]
    assert len(finished) == 3
    assert workspace.score(finished[0]) > first / 5
    assert workspace.score(finished[0]) >= workspace.score(finished[1]) >= workspace.score(finished[2])


def test_the_best_parameters_are_left_in_the_program_and_nothing_else_is_touched(tmp_path):
    workspace = Workspace(
        tmp_path, {"weights": [0.0, 0.0], "version": 3, "name": "x", "on": True}, submissions_remaining=12
    )
    workspace.tune()
    left = json.loads((workspace.directory / "program" / "params.json").read_text())
    best = workspace.state["finished"][0]
    assert left["weights"] == next(e["values"] for e in workspace.published if e["submission_id"] == best)
    assert (left["version"], left["name"], left["on"]) == (3, "x", True)
    assert os.listdir(workspace.directory / "program") == ["params.json"]


def test_the_initial_parameters_are_submitted_first(tmp_path):
    workspace = Workspace(tmp_path, [0.5, 0.25], episodes_remaining=20, submissions_remaining=10)
    workspace.tune()
    assert workspace.published[0]["values"] == [0.5, 0.25]


def test_a_low_score_is_sought_where_the_run_says_minimize(tmp_path):
    workspace = Workspace(tmp_path, [0.0, 0.0], score_direction="minimize")
    workspace.tune()
    best = workspace.state["finished"][0]
    assert workspace.score(best) < workspace.published[0]["score"] / 5


def test_candidates_of_one_generation_play_the_same_episodes(tmp_path):
    workspace = Workspace(tmp_path, [0.0, 0.0], submissions_remaining=15, episodes_remaining=60)
    workspace.tune("--population-size", "6")
    published = workspace.published
    assert len({tuple(item["indices"]) for item in published[0:7]}) == 1
    assert published[7]["indices"] != published[0]["indices"]


def test_a_single_parameter_is_tuned(tmp_path):
    workspace = Workspace(tmp_path, {"gain": 0.0})
    workspace.tune()
    assert workspace.score(workspace.state["finished"][0]) > -0.2


def test_many_parameters_are_tuned_with_a_diagonal_covariance(tmp_path):
    workspace = Workspace(tmp_path, [0.1] * 250, submissions_remaining=25, episodes_remaining=60)
    assert workspace.tune().returncode == 0
    assert "finished" in workspace.state


def test_the_same_seed_proposes_the_same_candidates(tmp_path):
    runs = []
    for name, seed in (("a", "5"), ("b", "5"), ("c", "6")):
        workspace = Workspace(tmp_path / name, [0.0, 0.0], episodes_remaining=30, submissions_remaining=15)
        workspace.tune("--seed", seed)
        runs.append([item["values"] for item in workspace.published])
    assert runs[0] == runs[1] != runs[2]


@pytest.mark.parametrize(
    ("episodes", "submissions", "cap"), [(1, 1, None), (7, 2, None), (3, 20, None), (101, 13, 10), (60, 6, 10)]
)
def test_all_the_budget_is_spent_where_the_run_asks_for_it(tmp_path, episodes, submissions, cap):
    workspace = Workspace(
        tmp_path,
        [0.0, 0.0],
        episodes_remaining=episodes,
        submissions_remaining=submissions,
        max_episodes_per_submission=cap,
        finish_budget_policy="require_budget_exhaustion",
    )
    done = workspace.tune()
    assert done.returncode == 0, done.stderr
    assert workspace.state["episodes_remaining"] == 0


def test_it_hands_off_what_it_has_when_its_time_is_up(tmp_path):
    workspace = Workspace(tmp_path, [0.0, 0.0], seconds_remaining=0.0)
    published = [{"submission_id": "submission-000001", "score": -9.0}]
    workspace.settings.write_text(json.dumps(workspace.state | {"published": published}))
    assert workspace.tune().returncode == 0
    assert workspace.state["finished"] == ["submission-000001"]


def test_without_a_parameter_file_it_says_what_to_write(tmp_path):
    done = Workspace(tmp_path, None).tune()
    assert done.returncode == 1
    assert b"params.json; write the Policy's tunable numbers" in done.stderr


def test_integers_alone_are_nothing_to_tune(tmp_path):
    done = Workspace(tmp_path, {"layers": [4, 8]}).tune()
    assert done.returncode == 1
    assert b"write 0.0 in place of 0" in done.stderr


def test_a_refused_submission_ends_it_with_the_hosts_words(tmp_path):
    done = Workspace(tmp_path, [0.0], refuse_submissions=True).tune()
    assert done.returncode == 1
    assert b"program/policy.py is missing" in done.stderr


def test_a_session_that_cannot_be_reached_ends_it(tmp_path):
    workspace = Workspace(tmp_path, [0.0])
    (workspace.commands / "evopolicygym-session").write_text("#!/bin/sh\necho 'no Host' >&2\nexit 2\n")
    done = workspace.tune()
    assert done.returncode == 1
    assert b"exit code 2: no Host" in done.stderr


def test_its_output_becomes_a_transcript(tmp_path):
    workspace = Workspace(tmp_path, [0.0, 0.0], episodes_remaining=30, submissions_remaining=15)
    reader = EventReader(TUNER.new_parser)
    events = reader.feed(workspace.tune().stdout) + reader.close()
    kinds = [event.kind for event in events]
    assert "session_start" in kinds
    assert kinds[-1] == "end"
    commands = [event.command for event in events if event.kind == "tool_call"]
    assert len([c for c in commands if " submit program --episodes " in c]) == len(workspace.published)


def test_its_notes_hold_every_trial(tmp_path):
    workspace = Workspace(tmp_path, [0.0, 0.0], episodes_remaining=30, submissions_remaining=15)
    workspace.tune()
    lines = (workspace.directory / "analysis" / "parameter-tuner.jsonl").read_text().splitlines()
    assert [json.loads(line)["parameters"] for line in lines] == [item["values"] for item in workspace.published]
    assert "generation 1" in (workspace.directory / "analysis" / "parameter-tuner.md").read_text()


def test_without_a_command_on_path_it_uses_the_module_of_its_own_interpreter(tmp_path):
    workspace = Workspace(tmp_path, [0.0])
    shutil.rmtree(workspace.commands)
    done = subprocess.run(
        TUNER.command,
        cwd=workspace.directory,
        env={"PATH": "/nonexistent"},
        capture_output=True,
        check=False,
        timeout=60,
    )
    assert done.returncode == 1
    assert b"evopolicygym-session status failed with exit code 2" in done.stderr
