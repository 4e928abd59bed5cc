"""The tutorial package: its own tests pass, and what its README shows is what its files hold."""

import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

TUTORIAL = Path(__file__).parents[2] / "docs" / "tutorial" / "cartpole"


def sources() -> str:
    files = [*sorted(TUTORIAL.glob("cartpole/**/*.py")), *sorted(TUTORIAL.glob("tests/*.py"))]
    return "\n".join(file.read_text(encoding="utf-8") for file in files)


def shown() -> list[str]:
    readme = (TUTORIAL / "README.md").read_text(encoding="utf-8")
    return re.findall(r"```python\n(.*?)```", readme, flags=re.DOTALL)


@pytest.mark.parametrize("snippet", shown(), ids=lambda snippet: snippet.strip().splitlines()[0])
def test_code_in_the_readme_is_code_of_the_package(snippet):
    assert snippet in sources()


def test_the_package_uses_the_public_interface_only():
    modules = re.findall(r"^from (evopolicygym[\w.]*) import", sources(), flags=re.MULTILINE)

    assert set(modules) == {
        "evopolicygym",
        "evopolicygym.authoring",
        "evopolicygym.execution",
        "evopolicygym.policy",
        "evopolicygym.program",
    }


def installed_here() -> bool:
    """Whether ``cartpole`` is this package, not another one of the same name."""
    found = find_spec("cartpole")
    return found is not None and (Path(str(found.origin)).parent / "baseline_program.py").is_file()


def test_the_package_passes_its_own_tests(tmp_path):
    assert installed_here(), "docs/tutorial/cartpole is not installed here: pip install -e docs/tutorial/cartpole"
    options = ["-q", "-p", "no:cacheprovider", "-o", "addopts=", "--rootdir", str(TUTORIAL)]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *options, str(TUTORIAL / "tests")],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )

    assert done.returncode == 0, done.stdout + done.stderr
