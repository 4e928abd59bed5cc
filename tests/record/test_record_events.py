"""Events are typed in one place, documented, and safe to hand around."""

import pickle
from pathlib import Path

import pytest

from evopolicygym.record import EVENT_TYPES, RunEvent, RunObserver
from evopolicygym.record.events import EvaluationStarted, FinishRequested, Notice

DOCUMENT = Path(__file__).parents[2] / "docs" / "record.md"


def test_every_event_and_every_field_is_documented() -> None:
    sections = DOCUMENT.read_text(encoding="utf-8").split("\n### ")
    described = {section.split("\n", 1)[0].strip("`"): section for section in sections[1:]}
    for name, kind in EVENT_TYPES.items():
        assert name in described, f"docs/record.md has no section for {name}"
        missing = [field for field in kind.field_names() if f"`{field}`" not in described[name]]
        assert not missing, f"docs/record.md does not describe {missing} of {name}"


def test_no_event_is_documented_that_does_not_exist() -> None:
    text = DOCUMENT.read_text(encoding="utf-8").partition("## Journal events")[2].partition("\n## ")[0]
    documented = [line.strip("# `") for line in text.splitlines() if line.startswith("### ")]
    assert sorted(documented) == sorted(EVENT_TYPES)


def test_no_field_is_named_like_a_part_of_the_line_itself() -> None:
    reserved = {"seq", "time", "monotonic_ns", "event"}
    assert not [name for name, kind in EVENT_TYPES.items() if reserved & set(kind.field_names())]


def test_a_run_event_cannot_be_changed() -> None:
    given: dict[str, str | int | float | bool | tuple[str | int | float | bool | None, ...] | None] = {"steps": 3}
    event = RunEvent("episode_completed", 1, 2, given)
    given["steps"] = 4
    assert event.fields == {"steps": 3}
    with pytest.raises(TypeError):
        event.fields["steps"] = 5  # type: ignore[index]  # that it is refused is the point


def test_a_run_event_survives_pickling() -> None:
    event = RunEvent("notice", 1, 2, {"message": "hello"})
    assert pickle.loads(pickle.dumps(event)) == event


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        (("", 1, 2, {}), ValueError),
        (("x", -1, 2, {}), ValueError),
        ((b"x", 1, 2, {}), TypeError),
        (("x", 1, 2, []), TypeError),
    ],
)
def test_a_run_event_refuses_wrong_values(arguments: tuple[object, ...], error: type[Exception]) -> None:
    with pytest.raises(error):
        RunEvent(*arguments)  # type: ignore[arg-type]  # wrong on purpose


def test_an_observer_is_recognised_by_its_method() -> None:
    class Counting:
        def on_event(self, event: RunEvent) -> None: ...

    assert isinstance(Counting(), RunObserver)


def test_long_texts_are_cut_but_a_selector_stays_whole() -> None:
    selector = ",".join(str(number) for number in range(0, 10_000, 2))
    started = EvaluationStarted("submission-000001", "sha256:0", selector, 5000, 0)
    assert started.fields()["episodes"] == selector
    cut = Notice("x" * 1_000_000).fields()["message"]
    assert isinstance(cut, str)
    assert len(cut) < 10_000


def test_lists_become_tuples() -> None:
    event = FinishRequested(["submission-000001"], "agent")  # type: ignore[arg-type]  # tolerated
    assert event.fields()["candidate_submission_ids"] == ("submission-000001",)
