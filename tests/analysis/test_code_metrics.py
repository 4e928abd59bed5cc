"""What kind of edit led from one Program to the next."""

from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from evopolicygym.analysis import CodeMetrics, code_metrics
from evopolicygym.program import Program

Write = Callable[[Mapping[str, str | bytes]], Program]

BASE = '''\
"""A Policy."""
GAIN = -0.5
WEIGHTS = [0.1, 0.2]


class Policy:
    def act(self, observation):
        # the sign decides
        return 1 if observation[0] * GAIN > 0 else 0


def make_policy(context):
    return Policy()
'''


@pytest.fixture
def write(tmp_path: Path) -> Write:
    def program(files: Mapping[str, str | bytes]) -> Program:
        folder = tmp_path / str(len(list(tmp_path.iterdir())))
        folder.mkdir()
        for name, content in files.items():
            (folder / name).write_bytes(content if isinstance(content, bytes) else content.encode())
        return Program.from_directory(folder)

    return program


def change(write: Write, before: Mapping[str, str | bytes], after: Mapping[str, str | bytes]) -> CodeMetrics:
    return code_metrics(write(before), [write(after)])[0]


@pytest.mark.parametrize(
    ("old", "new", "edit"),
    [
        ("", "", "none"),
        ("# the sign decides", "# what decides: the sign", "cosmetic"),
        ('"""A Policy."""', '"""The Policy."""', "cosmetic"),
        ("GAIN = -0.5", "GAIN = 0.75", "parametric"),
        ("GAIN = -0.5", "GAIN = None", "parametric"),
        ("[0.1, 0.2]", "[0.1, 0.2, (0.3, -1)]", "parametric"),
        ("1 if obs", "0 if obs", "parametric"),
        ("* GAIN > 0", "* GAIN >= 0", "structural"),
        ("observation[0] * GAIN", "observation[0] * GAIN * GAIN", "structural"),
        ("WEIGHTS", "OTHER", "structural"),
        ("[0.1, 0.2]", "[0.1, GAIN]", "structural"),
        ("class Policy:", "class Policy(:", "structural"),
    ],
)
def test_an_edit_is_told_by_its_syntax_tree(write: Write, old: str, new: str, edit: str) -> None:
    assert change(write, {"policy.py": BASE}, {"policy.py": BASE.replace(old, new)}).edit == edit


def test_data_files_are_parameters_and_code_files_are_structure(write: Write) -> None:
    base: dict[str, str | bytes] = {"policy.py": BASE, "params.json": "[1]"}
    assert change(write, base, base | {"params.json": "[2]"}).edit == "parametric"
    assert change(write, base, base | {"weights.npy": b"\x93\xff\x00"}).edit == "parametric"
    assert change(write, base, base | {"more.py": ""}).edit == "structural"


def test_lines_and_functions_are_counted(write: Write) -> None:
    metrics = change(write, {"policy.py": BASE}, {"policy.py": BASE + "\n\ndef more():\n    return 2\n"})
    assert metrics == CodeMetrics(source_lines=10, functions=3, lines_added=4, lines_removed=0, edit="structural")


def test_a_line_that_moves_is_no_edit_of_its_size(write: Write) -> None:
    moved = change(write, {"policy.py": "a = 1\nb = 2\n"}, {"policy.py": "b = 2\na = 1\n"})
    assert (moved.lines_added, moved.lines_removed, moved.edit) == (0, 0, "structural")


@pytest.mark.parametrize(
    "source", ["(" * 50_000, "-" * 50_000 + "1", "a" + ".b" * 50_000, "\0", b"\xff\xfe", "x = " * 9_000 + "1"]
)
def test_source_that_means_harm_is_a_fact_like_any_other(write: Write, source: str | bytes) -> None:
    metrics = change(write, {"policy.py": BASE}, {"policy.py": source})
    assert metrics.edit == "structural"


def test_a_file_that_is_too_large_is_not_looked_at(write: Write) -> None:
    large = "x = 1\n" * 200_000
    metrics = change(write, {"policy.py": large}, {"policy.py": large + "y = 1\n"})
    assert (metrics.edit, metrics.functions) == ("unknown", None)


def test_each_program_is_compared_with_the_one_before_it(write: Write) -> None:
    first, second = write({"policy.py": BASE}), write({"policy.py": BASE.replace("-0.5", "2")})
    assert [one.edit for one in code_metrics(first, [first, second, second])] == ["none", "parametric", "none"]
