"""``init`` and ``check``: a starter that runs at once, and a look at what a spec names before a Run."""

import importlib.resources
import json
import tomllib
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from pydantic import TypeAdapter
from recorded_runs import Command

from evopolicygym.benchmarks.spaces import space_codec
from evopolicygym.cli.documents import DOCUMENTS
from evopolicygym.cli.init_command import init_directory
from evopolicygym.errors import SpecError
from evopolicygym.policy import PolicyContext

SPACES = [
    spaces.Discrete(3, start=-1),
    spaces.Discrete(500),
    spaces.Box(-2.0, 5.0, (2, 3), np.float32),
    spaces.Box(-np.inf, np.inf, (4,), np.float64),
    spaces.Box(np.array([-1, 0], np.float32), np.array([1, 9], np.float32), dtype=np.float32),
    spaces.Box(0, 255, (20, 20, 3), np.uint8),
    spaces.Box(0, 9, (3,), np.int64),
    spaces.MultiDiscrete([3, 4]),
    spaces.MultiBinary([2, 2]),
    spaces.Text(min_length=2, max_length=5, charset="ab"),
    spaces.Dict({"a": spaces.Discrete(2), "b": spaces.Box(-1.0, 1.0, (2,), np.float32)}),
    spaces.Tuple([spaces.Discrete(2), spaces.MultiBinary(3)]),
]


@pytest.fixture(scope="module")
def starter() -> ModuleType:
    """The Policy of a starter as a module."""
    module = ModuleType("starter_policy")
    module.__file__ = "/nowhere/policy.py"
    source = (importlib.resources.files("evopolicygym.cli.starter") / "policy.py.txt").read_text()
    exec(compile(source, "policy.py", "exec"), vars(module))
    return module


@pytest.mark.parametrize("space", SPACES, ids=str)
def test_the_starters_policy_answers_any_action_space(starter: Any, space: "spaces.Space[Any]") -> None:
    codec = space_codec(space, "the action space")
    weights = [[0.3, -2.0] for _ in range(max(1, starter.size(codec.description)))]
    observation = {"type": "Box", "shape": [], "value": "float"}
    context = PolicyContext(observation, codec.description, {}, {}, 0)
    action = starter.LinearPolicy(context, weights).act(1.5)
    assert space.contains(codec.decode(action)) or isinstance(space, spaces.Box)


@pytest.mark.parametrize("space", SPACES, ids=str)
def test_the_starters_policy_reads_any_observation_space(starter: Any, space: "spaces.Space[Any]") -> None:
    codec = space_codec(space, "the observation space")
    space.seed(1)
    values = starter.pooled(starter.features(codec.description, codec.encode(space.sample())))
    assert 1 <= len(values) <= 32
    assert all(type(value) is float for value in values)


def test_a_starter_is_checked_and_runs_at_once(command: Command, tmp_path: Path) -> None:
    home = tmp_path / "start"
    made = command("init", home)
    assert made.returncode == 0, made.stderr
    assert sorted(path.name for path in home.rglob("*") if path.is_file()) == [
        "README.md",
        "params.json",
        "policy.py",
        "spec.toml",
    ]
    checked = command("check", home / "spec.toml")
    assert checked.returncode == 0, checked.stdout + checked.stderr
    assert "it keeps the Benchmark contract" in checked.stdout
    small = ("run.episode_budget=4", "run.max_submissions=4", "execution.workers=1", "assessment.episodes=1")
    overrides = [word for override in small for word in ("--set", override)]
    done = command("run", home / "spec.toml", "--progress", "off", "--record-to", tmp_path / "record", *overrides)
    assert done.returncode == 0, done.stderr


def test_an_id_without_a_known_floor_gets_the_worst_random_return(tmp_path: Path) -> None:
    gymnasium.register("StarterTest-v0", "gymnasium.envs.classic_control:PendulumEnv")
    try:
        init_directory(tmp_path / "start", "gymnasium:StarterTest-v0")
    finally:
        del gymnasium.registry["StarterTest-v0"]
    text = (tmp_path / "start" / "spec.toml").read_text()
    table = tomllib.loads(text)["benchmark"]
    assert -16274 < table["failure_return"] < 0
    assert table["max_episode_steps"] == 1000
    assert "# worst return of 20 random Episodes: " in text


def test_an_import_path_that_lies_here_is_found_from_the_starter(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(Path(__file__).parent.parent)
    init_directory(tmp_path / "start", "target_benchmark:TargetBenchmark")
    assert "test/target" in capsys.readouterr().out
    (here,) = tomllib.loads((tmp_path / "start" / "spec.toml").read_text())["run"]["python_path"][1:]
    assert (tmp_path / "start" / here).resolve() == Path.cwd()


def test_a_directory_that_is_not_empty_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "mine.txt").write_text("mine")
    with pytest.raises(SpecError, match="is not empty"):
        init_directory(tmp_path, "gymnasium:CartPole-v1")


def test_what_init_cannot_make_is_told_by_its_own_option(tmp_path: Path) -> None:
    with pytest.raises(SpecError) as caught:
        init_directory(tmp_path / "new", "no_such_module:Benchmark")
    assert str(caught.value).startswith('--benchmark no_such_module:Benchmark: there is no module "no_such_module"')
    assert "spec.toml" not in str(caught.value)
    assert not (tmp_path / "new").exists()


def test_an_unknown_id_writes_nothing(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match="no environment 'CartPol-v1'"):
        init_directory(tmp_path / "start", "gymnasium:CartPol-v1")
    assert not (tmp_path / "start").exists()


def test_check_tells_what_a_policy_and_a_benchmark_do_wrong(
    command: Command, write_spec: Callable[..., Path], tmp_path: Path
) -> None:
    spec = write_spec("")
    (tmp_path / "policy" / "policy.py").write_text("def make_policy(context):\n    return [][1]\n")
    done = command("check", spec)
    assert done.returncode == 1
    assert "×3 IndexError at policy.py:2 in make_policy" in done.stdout
    report = command("check", spec, "--json")
    document = TypeAdapter(DOCUMENTS["check-report"]).validate_json(report.stdout, strict=True)
    assert (document["passed"], len(document["episodes"])) == (False, 3)


def test_check_finds_a_benchmark_that_breaks_its_contract(
    command: Command, write_spec: Callable[..., Path], tmp_path: Path
) -> None:
    spec = write_spec("")
    (tmp_path / "fickle.py").write_text(FICKLE)
    path = json.dumps([".", str(Path(__file__).parent.parent)])
    overrides = ("--set", "benchmark.use=fickle:Fickle", "--set", f"run.python_path={path}")
    done = command("check", spec, *overrides)
    assert done.returncode == 1
    assert "episodes_not_deterministic" in done.stdout


FICKLE = """
import random
from target_benchmark import TargetBenchmark

class Fickle(TargetBenchmark):
    def episodes(self, split, *, seed, count):
        return super().episodes(split, seed=seed + random.randrange(1000), count=count)
"""
