"""``evopolicygym init``: a directory with a run spec, a Policy and a README that run at once."""

import importlib.util
import json
import math
import os
import re
import shlex
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from types import ModuleType
from typing import Any

import tomli_w

from evopolicygym.authoring import Benchmark
from evopolicygym.cli.numbers import counted
from evopolicygym.errors import BenchmarkError, SpecError
from evopolicygym.run.console import inert_text, score_text
from evopolicygym.spec import load_spec

DEFAULT_BENCHMARK = "gymnasium:CartPole-v1"
RANDOM_EPISODES = 20

_GYMNASIUM = "gymnasium"
_MOST_WEIGHTS = 4000
_PLACEHOLDER = re.compile(r"@(\w+)@")


@dataclass(frozen=True, slots=True)
class _Start:
    """What the spec says of the Benchmark.

    Args:
        table: the keys of ``[benchmark]``.
        comments: a comment for the line of a key, or a whole line under its own name.
    """

    table: Mapping[str, object]
    comments: Mapping[str, str]


def init_directory(directory: Path, benchmark: str) -> None:
    """Write the starter.

    Args:
        directory: it must be empty, or not exist.
        benchmark: ``gymnasium:ID``, a registered name, or an import path.

    Raises:
        SpecError: the directory is not empty, or the Benchmark cannot be had.
    """
    if directory.is_dir() and any(directory.iterdir()):
        raise SpecError(f"{directory} is not empty; name a new directory, or empty it")
    if directory.exists() and not directory.is_dir():
        raise SpecError(f"{directory} is a file; name a new directory")
    start = _start(benchmark)
    policy = _template("policy.py")
    # The Benchmark is made the way that a Run makes it, so that what does not fit is told now.
    with tempfile.TemporaryDirectory(prefix="evopolicygym-init-") as scratch:
        draft = Path(scratch)
        _write(draft, start, "", {}, policy, {"weights": []}, directory)
        made = _made(benchmark, draft / "spec.toml")
        weights = _weights(made, draft / "program" / "policy.py")
    directory.mkdir(parents=True, exist_ok=True)
    _write(directory, start, made.spec.id, start.comments, policy, {"weights": weights}, directory)
    if _lies_here(benchmark):
        _add_python_path(directory)
    where = shlex.quote(str(directory))
    sys.stdout.write(
        f"Wrote {directory}: spec.toml, program/, README.md for {inert_text(made.spec.id, 100)}\n\n"
        f"evopolicygym check {where}/spec.toml    # try Benchmark and Policy\n"
        f"evopolicygym run {where}/spec.toml      # let an Agent improve the Policy\n"
    )


def _made(benchmark: str, spec: Path) -> Benchmark:
    try:
        return load_spec(spec, [_python_path()]).resolve_evaluation().benchmark
    except SpecError as error:  # it names a draft that the user never sees; the advice below its head is what helps
        told = [line.strip() for line in str(error).splitlines() if str(spec) not in line]
        raise SpecError(f"--benchmark {benchmark}: {' '.join(told)}") from error


def _start(benchmark: str) -> _Start:
    kind, _, rest = benchmark.partition(":")
    if kind == _GYMNASIUM and not rest:
        raise SpecError(f"--benchmark {benchmark}: name an environment, as in {DEFAULT_BENCHMARK}")
    if kind != _GYMNASIUM or not rest:
        return _Start({"use": benchmark}, {})
    try:
        from evopolicygym.benchmarks.random_play import random_returns
    except ImportError as error:
        raise SpecError(str(error)) from error
    try:
        played = random_returns(rest, episodes=RANDOM_EPISODES)
    except BenchmarkError as error:
        raise SpecError(f"--benchmark {benchmark}: {error}") from error
    table: dict[str, object] = {"use": _GYMNASIUM, "env_id": rest}
    if played.step_limit_assumed:
        table["max_episode_steps"] = played.max_episode_steps
    worst = min(played.returns)
    told = f"worst return of {counted(len(played.returns), 'random Episode')}: {score_text(worst)}"
    if played.known_failure_return is not None:
        floor = float(played.known_failure_return)
        line = f"# failure_return = {floor!r}  # what a failed Episode counts: the known bound; {told}"
        return _Start(table, {"failure_return": line})
    table["failure_return"] = math.floor(worst * 100) / 100
    return _Start(
        table,
        {
            "failure_return": f"# {told}. What a failed Episode counts: take a number that no honest\n"
            "# Episode falls below, else crashing pays.",
            "max_episode_steps": "# registered without a limit; an Episode must end",
        },
    )


def _write(
    directory: Path,
    start: _Start,
    benchmark_id: str,
    comments: Mapping[str, str],
    policy: str,
    parameters: Mapping[str, object],
    named: Path,
) -> None:
    lines = []
    for key, value in start.table.items():
        if key in comments:
            lines.append(comments[key])
        lines.append(tomli_w.dumps({key: value}).strip())
    lines += [comment for key, comment in comments.items() if key not in start.table and key == "failure_return"]
    values = {"benchmark": "\n".join(lines), "budget": "200", "submissions": "30"}
    names = {"name": named.absolute().name, "id": benchmark_id}
    (directory / "program").mkdir(exist_ok=True)
    (directory / "program" / "policy.py").write_text(policy, encoding="utf-8")
    (directory / "program" / "params.json").write_text(json.dumps(parameters) + "\n", encoding="utf-8")
    (directory / "spec.toml").write_text(_filled(_template("spec.toml"), values), encoding="utf-8")
    (directory / "README.md").write_text(_filled(_template("README.md"), names), encoding="utf-8")


def _weights(benchmark: Benchmark, policy_file: Path) -> list[list[float]]:
    """Rows of zeros that fit the Benchmark's spaces; found with the starter's own functions."""
    policy: Any = _module(policy_file)
    spec = benchmark.spec
    try:
        environment = benchmark.make_environment(benchmark.episodes("train", seed=0, count=1)[0])
        try:
            observation = environment.reset()
        finally:
            environment.close()
        inputs = len(policy.pooled(policy.features(spec.observation_space, observation))) + 1
        outputs = max(1, policy.size(spec.action_space))
    except Exception as error:
        raise SpecError(f"{spec.id}: its first Episode cannot be started: {type(error).__name__}: {error}") from error
    return [[0.0] * (inputs if inputs * outputs <= _MOST_WEIGHTS else 1) for _ in range(outputs)]


def _module(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location("evopolicygym_starter_policy", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _lies_here(benchmark: str) -> bool:
    """Whether an import path leads into the current directory, where the spec would not look for it."""
    top = benchmark.partition(":")[0].partition(".")[0]
    here = Path.cwd()
    return (here / f"{top}.py").is_file() or (here / top / "__init__.py").is_file()


def _add_python_path(directory: Path) -> None:
    path = directory / "spec.toml"
    places = json.dumps([".", os.path.relpath(Path.cwd(), directory)])
    text = path.read_text(encoding="utf-8")
    line = f"python_path = {places}  # where the Benchmark's module lies\n"
    path.write_text(text.replace("[run]\n", f"[run]\n{line}", 1), encoding="utf-8")


def _python_path() -> str:
    return f"run.python_path=[{json.dumps(str(Path.cwd()))}]"


def _template(name: str) -> str:
    return (resources.files("evopolicygym.cli.starter") / f"{name}.txt").read_text(encoding="utf-8")


def _filled(template: str, values: Mapping[str, str]) -> str:
    return _PLACEHOLDER.sub(lambda match: values[match[1]], template)
