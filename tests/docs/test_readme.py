"""The README's examples: they run as pasted, and type-check."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
BASELINE = ROOT / "docs/tutorial/cartpole/cartpole/baseline"


def python_blocks() -> list[str]:
    return re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)


def run_example() -> str:
    return next(block for block in python_blocks() if "run(Program" in block)


def test_the_python_example_type_checks_as_pasted(tmp_path: Path) -> None:
    (tmp_path / "example.py").write_text(run_example())
    checked = subprocess.run(
        [sys.executable, "-m", "mypy", "--strict", "--cache-dir", "cache", "example.py"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=100,
    )
    assert checked.returncode == 0, checked.stdout + checked.stderr


def test_the_python_example_runs_as_pasted_with_the_tuner(tmp_path: Path) -> None:
    example = run_example()
    codex = 'Codex(model="gpt-5.6-luna", reasoning_effort="high")'
    assert codex in example
    pasted = example.replace("import Codex", "import ParameterTuner").replace(codex, "ParameterTuner()")
    shutil.copytree(BASELINE, tmp_path / "my-policy")
    (tmp_path / "example.py").write_text(pasted + "print(result.terminal_reason, len(result.submissions))\n")
    done = subprocess.run([sys.executable, "example.py"], cwd=tmp_path, capture_output=True, text=True, timeout=100)
    assert done.stdout.split() == ["finished", "3"], done.stderr
    assert (tmp_path / "runs/cartpole-001/run.json").exists()


def test_the_policy_example_plays_an_episode(tmp_path: Path) -> None:
    from cartpole import CartPoleBenchmark

    from evopolicygym import EvaluationConfig, Program, evaluate
    from evopolicygym.execution import ProcessExecution

    (tmp_path / "policy.py").write_text(next(block for block in python_blocks() if "my-policy/policy.py" in block))
    result = evaluate(
        Program.from_directory(tmp_path),
        CartPoleBenchmark(),
        execution=ProcessExecution.unsafe(workers=1),
        config=EvaluationConfig(episodes=3),
    )
    assert [episode.status for episode in result.episodes] == ["completed"] * 3
    assert result.feedback.score > 20


def test_every_link_of_the_readme_leads_somewhere() -> None:
    links = re.findall(r"\]\(([^)#]+)[^)]*\)", (ROOT / "README.md").read_text())
    assert len(links) > 10
    assert [link for link in links if not (ROOT / link).exists()] == []
