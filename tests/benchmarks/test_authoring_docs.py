"""The code in the pages about Benchmarks and Policies runs as it stands there."""

import re
from pathlib import Path

import pytest

from evopolicygym.policy import Policy, PolicyContext, TensorValue, copy_policy_value

DOCS = Path(__file__).parents[2] / "docs"


def blocks(page: str) -> list[str]:
    text = (DOCS / page).read_text(encoding="utf-8")
    return re.findall(r"```python\n(.*?)```", text, flags=re.DOTALL)


def test_the_example_benchmark_passes_its_own_check():
    names: dict[str, object] = {}
    for block in blocks("authoring.md"):
        exec(block, names)

    assert names["report"].passed


def test_the_example_policy_acts():
    names: dict[str, object] = {}
    exec(blocks("policy-abi.md")[0], names)
    policy = names["make_policy"](PolicyContext({}, {}, {}, {}, 7))

    assert isinstance(policy, Policy)
    assert copy_policy_value(policy.act(None)) in (0, 1)


def test_the_example_policy_reads_its_parameters(tmp_path):
    (tmp_path / "params.json").write_text('{"gain": 2}')
    names: dict[str, object] = {"__file__": str(tmp_path / "policy.py")}
    exec(blocks("policy-abi.md")[1], names)

    assert names["WEIGHTS"] == {"gain": 2}


def test_the_example_tensor_is_one():
    names: dict[str, object] = {}
    exec(blocks("policy-abi.md")[2], names)

    assert isinstance(names["mask"], TensorValue)


@pytest.mark.parametrize("page", ["authoring.md", "policy-abi.md", "gymnasium.md"])
def test_every_link_to_another_page_leads_somewhere(page):
    text = (DOCS / page).read_text(encoding="utf-8")

    for target in re.findall(r"\]\((?!https?:)([^)#]+)", text):
        assert (DOCS / target).is_file()
