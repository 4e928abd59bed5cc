"""Submitted code imports the package in every Policy process: the standard library is all that may be loaded."""

import subprocess
import sys

import pytest

LOADED = """
import sys
before = set(sys.modules)
{statement}
loaded = {{name.partition(".")[0] for name in set(sys.modules) - before}}
foreign = loaded - set(sys.stdlib_module_names) - {{"evopolicygym", "__mp_main__"}}
print(sorted(foreign))
print(sorted(name for name in sys.modules if name.startswith("evopolicygym")))
"""


def modules_after(statement: str) -> tuple[str, str]:
    """(modules that are not of the standard library, modules of ours) that a fresh interpreter has loaded."""
    told = subprocess.run(
        [sys.executable, "-c", LOADED.format(statement=statement)],
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    foreign, ours = told.stdout.splitlines()
    return foreign, ours


@pytest.mark.parametrize(
    "statement",
    [
        "import evopolicygym",
        "import evopolicygym.policy",
        "import evopolicygym.policy; evopolicygym.policy.copy_policy_value([1.0, {'a': (b'', None)}])",
        "from evopolicygym.policy import TensorValue; TensorValue('float32', (1,), bytes(4))",
        "import evopolicygym.errors, evopolicygym.policy_json, evopolicygym.identities, evopolicygym.artifacts",
        "import evopolicygym.snapshot, evopolicygym.program, evopolicygym.skills, evopolicygym.results",
        "import evopolicygym.authoring, evopolicygym.benchmark",
        "from evopolicygym import Program, Benchmark, EvaluationResult, RunResult",
    ],
)
def test_values_and_authoring_load_the_standard_library_only(statement: str) -> None:
    assert modules_after(statement)[0] == "[]"


def test_the_package_itself_loads_only_what_finds_its_names() -> None:
    assert modules_after("import evopolicygym")[1] == "['evopolicygym', 'evopolicygym.first_use']"


def test_the_policy_module_loads_no_other_module_of_ours() -> None:
    loaded = modules_after("import evopolicygym.policy")[1]
    assert loaded == "['evopolicygym', 'evopolicygym.first_use', 'evopolicygym.policy']"


def test_names_are_listed_before_they_are_resolved() -> None:
    statement = "import evopolicygym; assert {'Program', 'evaluate', 'RunResult'} <= set(dir(evopolicygym))"
    assert modules_after(statement)[1] == "['evopolicygym', 'evopolicygym.first_use']"


def test_a_resolved_name_is_kept() -> None:
    statement = "import evopolicygym; evopolicygym.Program; assert 'Program' in vars(evopolicygym)"
    assert "'evopolicygym.program'" in modules_after(statement)[1]
