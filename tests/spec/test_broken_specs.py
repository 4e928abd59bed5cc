"""What a user is told about a spec that is wrong. The messages stand in broken_specs.toml."""

import re
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest

from evopolicygym.errors import SpecError
from evopolicygym.spec import load_spec

CASES: list[dict[str, Any]] = tomllib.loads(Path(__file__).with_name("broken_specs.toml").read_text())["case"]

# What is registered depends on the packages that are installed beside this one.
REGISTERED = re.compile(r'registered name: "[^.]*"')


@pytest.mark.parametrize("case", CASES, ids=[case["name"] for case in CASES])
def test_the_message_lets_a_newcomer_mend_the_spec(case: dict[str, Any], good_spec: str, spec_home: Path) -> None:
    text = good_spec
    for old, new in case.get("replace", []):
        old = good_spec if old == "ALL" else old
        assert old in text
        text = text.replace(old, new, 1)
    Path("spec.toml").write_text(text)
    with pytest.raises(SpecError) as caught:
        load_spec("spec.toml", case.get("set", [])).resolve()
    message = str(caught.value).replace(str(spec_home), "DIR").replace(sys.prefix, "PREFIX")
    message = REGISTERED.sub("registered name: NAMES", message)
    assert message == case["message"]


def test_a_file_that_is_not_utf8_names_the_line(good_spec: str) -> None:
    Path("latin.toml").write_bytes(b"[run]\nname = 'caf\xe9'\n")
    with pytest.raises(SpecError, match=r"latin\.toml:2\n.*not UTF-8.*0xe9.*save the file"):
        load_spec("latin.toml")


def test_a_missing_file_names_the_specs_beside_it(good_spec: str) -> None:
    Path("near.toml").write_text(good_spec)
    with pytest.raises(SpecError, match=r"nearr\.toml: there is no such file; TOML files there: .*near\.toml"):
        load_spec("nearr.toml")


def test_a_directory_is_no_spec(good_spec: str) -> None:
    with pytest.raises(SpecError, match="skills is a directory; give the run spec itself"):
        load_spec("skills")


def test_a_value_from_the_environment_is_never_shown(good_spec: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EPG_SECRET", "sk-123456789")
    Path("spec.toml").write_text(good_spec.replace('"unsafe-process"', '"${EPG_SECRET}"'))
    with pytest.raises(SpecError) as caught:
        load_spec("spec.toml")
    assert "${EPG_SECRET}" in str(caught.value)
    assert "sk-123456789" not in str(caught.value)
