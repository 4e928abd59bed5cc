import json

import pytest

from evopolicygym.agents import AgentEvent, AgentUsage, EventReader
from evopolicygym.agents.stream import LINE_MAX_BYTES, parse_text_line


def text_reader():
    return EventReader(lambda: parse_text_line)


def test_an_event_survives_its_json_form():
    event = AgentEvent(kind="tool_call", tool="shell", command="ls ü", exit_code=0, failed=False, text="out")
    assert AgentEvent.from_json(json.loads(json.dumps(event.to_json()))) == event


def test_unknown_and_ill_typed_fields_are_left_out():
    event = AgentEvent.from_json({"kind": "message", "text": "a", "exit_code": "3", "new_field": 1, "turns": True})
    assert event == AgentEvent(kind="message", text="a")


@pytest.mark.parametrize(
    "value",
    [
        [],
        "x",
        {},
        {"kind": "dance"},
        {"kind": "usage", "turns": -1},
        {"kind": "usage", "turns": 10**300},
        {"kind": "cost", "cost_usd": float("inf")},
    ],
)
def test_what_is_no_event_is_refused(value):
    with pytest.raises(ValueError, match=r"event|must be from 0"):
        AgentEvent.from_json(value)


def test_a_long_text_is_cut_and_says_so():
    event = AgentEvent(kind="message", text="a" * 100_000)
    assert len(event.text) < 70_000
    assert event.text.endswith("characters cut]")


def test_a_lone_surrogate_cannot_reach_a_file():
    event = AgentEvent.from_json(json.loads('{"kind": "message", "text": "a\\ud800b"}'))
    assert event.text == "a?b"


def test_an_action_is_one_printable_line():
    assert AgentEvent(kind="tool_call", command="ls\n\x1b[31mrm\u202e").action == "$ ls [31mrm"
    assert AgentEvent(kind="message", text="\nfirst\nsecond").action == "first"
    assert AgentEvent(kind="usage", turns=1).action is None
    assert len(AgentEvent(kind="message", text="x" * 1000).action) == 200


def test_usage_adds_up():
    usage = AgentUsage()
    for event in (
        AgentEvent(kind="usage", turns=1, input_tokens=100, cached_tokens=10, output_tokens=5),
        AgentEvent(kind="tool_call", command="ls"),
        AgentEvent(kind="usage", turns=2, input_tokens=50),
        AgentEvent(kind="message", text="a"),
    ):
        usage = usage.add(event)
    assert usage == AgentUsage(turns=3, tool_calls=1, input_tokens=150, cached_tokens=10, output_tokens=5)


def test_a_cost_that_nobody_told_stays_unknown():
    assert AgentUsage().add(AgentEvent(kind="usage", turns=1)).cost_usd is None
    assert (
        AgentUsage().add(AgentEvent(kind="cost", cost_usd=0.5)).add(AgentEvent(kind="cost", cost_usd=0.25)).cost_usd
        == 0.75
    )


def test_a_stream_cut_anywhere_gives_the_same_events():
    stream = "eins\nzwölf\r\n\nlast".encode()
    whole = text_reader().feed(stream)
    for size in (1, 2, 3, 7):
        reader = text_reader()
        events = [event for start in range(0, len(stream), size) for event in reader.feed(stream[start : start + size])]
        assert events == whole
        assert [event.text for event in reader.close()] == ["last"]


def test_random_bytes_are_no_fault():
    reader = text_reader()
    reader.feed(bytes(range(256)) * 100)
    reader.close()
    assert reader.faults == 0


def test_a_line_over_the_limit_is_passed_over_and_the_next_is_read():
    reader = text_reader()
    assert reader.feed(b"x" * (LINE_MAX_BYTES + 1)) == []
    assert [event.text for event in reader.feed(b"x\nnext\n")] == ["next"]
    assert reader.skipped_lines == 1


def test_a_parser_that_raises_costs_the_line_and_is_told_a_few_times():
    def parse(line):
        if line == "bad":
            raise RuntimeError("oops")
        return parse_text_line(line)

    reader = EventReader(lambda: parse)
    events = reader.feed(b"bad\n" * 20 + b"good\n")
    assert [event.kind for event in events] == ["error"] * 5 + ["message"]
    assert "RuntimeError: oops" in events[0].text
    assert reader.faults == 20
