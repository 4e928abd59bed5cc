"""The user's own defaults."""

import os
from pathlib import Path

import pytest

from evopolicygym.cli.settings import WORKERS_VARIABLE, load_settings, settings_path
from evopolicygym.errors import SpecError
from evopolicygym.spec import load_spec


@pytest.fixture(autouse=True)
def own_configuration(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    settings_path().parent.mkdir(parents=True)


def test_without_a_file_all_is_default() -> None:
    settings = load_settings()
    assert (settings.display.progress, settings.execution.workers, settings.records_directory) == ("auto", None, None)


def test_the_file_sets_display_workers_and_the_place_of_records(monkeypatch: pytest.MonkeyPatch) -> None:
    settings_path().write_text("[display]\nprogress='plain'\n[execution]\nworkers=3\n[records]\ndirectory='~/r'\n")
    settings = load_settings()
    assert settings.display.progress == "plain"
    assert settings.records_directory == Path.home() / "r"
    monkeypatch.setenv(WORKERS_VARIABLE, "1")
    settings.set_workers()
    assert os.environ[WORKERS_VARIABLE] == "1"
    monkeypatch.delenv(WORKERS_VARIABLE)
    settings.set_workers()
    assert os.environ[WORKERS_VARIABLE] == "3"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("[display]\nprogres = 'plain'\n", 'display.progres: there is no such setting. Did you mean "progress"?'),
        ("[run]\nseed = 3\n", "run: there is no such setting. Known are: display, execution, records"),
        ("[execution]\nworkers = -1\n", "execution.workers = -1: Input should be greater than or equal to 0"),
        ("[display\n", "Expected ']'"),
    ],
)
def test_what_is_wrong_in_it_is_told(text: str, expected: str) -> None:
    settings_path().write_text(text)
    with pytest.raises(SpecError) as caught:
        load_settings()
    assert str(caught.value).startswith(str(settings_path()))
    assert expected in str(caught.value)


def test_a_spec_without_record_to_goes_to_the_users_place(tmp_path: Path) -> None:
    root = Path(__file__).parents[2]
    text = (root / "configs" / "quickstart.toml").read_text()
    kept = [line for line in text.splitlines() if not line.startswith("record_to")]
    spec = tmp_path / "small.toml"
    spec.write_text("\n".join(kept).replace('path = "', f'path = "{root}/configs/'))
    assert load_spec(spec).resolve().record_to.parent == tmp_path / "runs"
    assert load_spec(spec, records=tmp_path / "else{where}").resolve().record_to.parent == tmp_path / "else{where}"
    assert load_spec(spec, ["run.record_to=here"], records=tmp_path / "x").resolve().record_to == tmp_path / "here"
