"""The written reference of the run spec knows every key and shows specs that are right."""

import re
import tomllib
from pathlib import Path
from typing import Any

import pytest

from evopolicygym.spec import load_spec, spec_schema

ROOT = Path(__file__).parents[2]
REFERENCE = (ROOT / "docs" / "run-spec.md").read_text(encoding="utf-8")


def test_every_key_of_every_table_is_documented() -> None:
    schema: Any = spec_schema()
    for table in schema["properties"]:
        assert f"[{table}]" in REFERENCE, table
    for name, definition in schema["$defs"].items():
        for key in definition["properties"]:
            assert re.search(rf"`([a-z]+\.)?{key}`", REFERENCE), f"{name}.{key}"


def test_the_defaults_in_the_reference_are_the_real_ones() -> None:
    schema: Any = spec_schema()
    for key, rule in schema["$defs"]["RunTable"]["properties"].items():
        row = re.search(rf"^\| `{key}` \| (.*?) \|", REFERENCE, re.MULTILINE)
        assert row, key
        if "default" in rule and isinstance(rule["default"], int | float) and rule["default"] != 1024**3:
            assert row[1] == str(rule["default"]), key


def test_the_example_of_the_reference_is_well_formed(tmp_path: Path) -> None:
    example = re.search(r"```toml\n(.*?)```", REFERENCE, re.DOTALL)
    assert example
    assert set(tomllib.loads(example[1])) == set(spec_schema()["properties"])  # type: ignore[call-overload]


@pytest.mark.parametrize("path", sorted((ROOT / "configs").glob("*.toml")), ids=lambda path: path.name)
def test_every_shipped_spec_resolves(path: Path) -> None:
    assert load_spec(path).resolve().benchmark.spec.id
