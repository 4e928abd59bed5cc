"""A directory with everything that a good spec names, for tests that spoil one thing at a time."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

TOYS = """
from pathlib import Path

from evopolicygym import Program


class ToyBenchmark:
    spec = None

    def __init__(self, length: int, *, label: str = "toy", ratio=0.5, extra=None):
        if length < 1:
            raise ValueError(f"length must be at least 1, found {length}")
        self.length, self.label = length, label

    def episodes(self, split, *, seed, count): ...
    def make_environment(self, episode): ...
    def feedback(self, records): ...


class NoBenchmark:
    pass


class ToyAgent:
    def __init__(self, model: str = "small"):
        self.model = model

    def build_invocation(self, task): ...


def own_program(name):
    return Program.from_directory(Path(__file__).parent / name)


def three():
    return 3


ready_made = ToyBenchmark(7)
"""

GOOD = """\
[run]
record_to = "runs/toy-{time}"
seed = 42
max_submissions = 3
episode_budget = 30

[benchmark]
use = "spec_toys:ToyBenchmark"
length = 3

[program]
path = "my-policy"

[agent]
use = "spec_toys:ToyAgent"

[execution]
use = "unsafe-process"

[[skills]]
path = "skills/good"
"""


@pytest.fixture(scope="module")
def spec_home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The directory; the module ``spec_toys`` in it is found by the spec's own search path alone."""
    home = tmp_path_factory.mktemp("home")
    (home / "spec_toys.py").write_text(TOYS)
    (home / "broken_toys.py").write_text("def broken(:\n")
    (home / "exiting_toys.py").write_text("import sys\nsys.exit('usage: exiting_toys')\n")
    (home / "my-policy").mkdir()
    (home / "my-policy" / "policy.py").write_text("def make_policy(context):\n    return None\n")
    (home / "empty-policy").mkdir()
    for name, text in (("good", "---\nname: good\n---\nHi\n"), ("bad", "no frontmatter")):
        (home / "skills" / name).mkdir(parents=True)
        (home / "skills" / name / "SKILL.md").write_text(text)
    path = list(sys.path)
    yield home
    sys.path[:] = path
    for module in ("spec_toys", "broken_toys"):
        sys.modules.pop(module, None)


@pytest.fixture
def good_spec(spec_home: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The text of a good spec; the working directory is its home."""
    monkeypatch.chdir(spec_home)
    return GOOD
