import json
import os
import random
from pathlib import Path

import pytest

from evopolicygym.agents import AgentEvent, AgentExit, AgentUsage, EventReader, kimi_sessions
from evopolicygym.agents.claude_code import PROVIDER as CLAUDE_CODE
from evopolicygym.agents.claude_code import ClaudeStream
from evopolicygym.agents.codex import PROVIDER as CODEX
from evopolicygym.agents.codex import CodexStream
from evopolicygym.agents.kimi_code import PROVIDER as KIMI_CODE
from evopolicygym.agents.kimi_code import KimiStream
from evopolicygym.agents.kimi_sessions import SessionFiles, session_usage
from evopolicygym.agents.provider_failures import diagnose_exit
from evopolicygym.agents.provider_stream import OpenCalls

SAMPLES = Path(__file__).parent / "samples"
PARSERS = {"codex": CodexStream, "claude": ClaudeStream, "kimi": KimiStream}
PROVIDERS = {"codex": CODEX, "claude": CLAUDE_CODE, "kimi": KIMI_CODE}
STREAMS = sorted(path.stem for path in SAMPLES.glob("*.jsonl") if path.stem != "kimi.wire")


def events_of(name):
    reader = EventReader(PARSERS[name.partition(".")[0]])
    events = reader.feed((SAMPLES / f"{name}.jsonl").read_bytes()) + reader.close()
    assert reader.faults == 0
    return events


def usage_of(events):
    usage = AgentUsage()
    for event in events:
        usage = usage.add(event)
    return usage


def diagnosis_of(name, returncode=1):
    provider = PROVIDERS[name.partition(".")[0]]
    stderr = SAMPLES / f"{name}.stderr"
    end = AgentExit(
        returncode=returncode,
        events=tuple(events_of(name))[-50:],
        stderr_tail=stderr.read_text() if stderr.exists() else "",
    )
    return diagnose_exit(provider.title, provider.failures, provider.stub_advice, end)


@pytest.mark.parametrize("name", ["codex", "codex.codemode", "claude", "kimi"])
def test_a_plain_session_tells_its_commands_and_its_words(name):
    events = events_of(name)
    calls = [event for event in events if event.kind == "tool_call"]
    assert [call.command.removeprefix("/bin/bash -lc ").strip("'") for call in calls] == [
        "echo hello > out.txt",
        "cat out.txt && echo second >> out.txt",
    ]
    assert calls[1].text.strip() == "hello"
    assert not any(call.failed for call in calls)
    assert [event.text for event in events if event.kind == "message"] == ["All done: wrote out.txt."]
    assert events[-1].kind == "end"
    assert events[-1].failed is False


@pytest.mark.parametrize("name", STREAMS)
def test_every_stream_starts_a_session_and_every_call_began(name):
    events = events_of(name)
    assert events[0].kind == "session_start"
    begun = [event.call_id for event in events if event.kind == "tool_start"]
    assert [event.call_id for event in events if event.kind == "tool_call" and event.call_id not in begun] == []


@pytest.mark.parametrize(("name", "thinks"), [("codex.rich", True), ("claude.rich", True), ("kimi.rich", False)])
def test_a_rich_session_tells_thoughts_and_a_failing_command(name, thinks):
    events = events_of(name)
    thoughts = [event.text for event in events if event.kind == "reasoning"]
    assert thoughts == (["**Plan** write file"] if thinks else [])
    failed = [event for event in events if event.kind == "tool_call" and event.failed]
    assert [(call.exit_code, call.text.strip()) for call in failed] == [(3, "oops")]


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("codex", (1, 2, 3000, 600, 150, None)),
        ("codex.rich", (2, 2, 3000, 600, 150, None)),
        ("claude", (3, 2, 3600, 600, 150, 0.01512)),
        ("claude.fault-cut", (3, 2, 10800, 1800, 156, 0.03948)),
        ("claude.sigint", (3, 1, 1200, 200, 50, 0.00504)),
        ("kimi", (3, 2, 0, 0, 0, None)),
    ],
)
def test_usage_is_what_the_program_sums_up(name, expected):
    usage = usage_of(events_of(name))
    cost = usage.cost_usd if usage.cost_usd is None else round(usage.cost_usd, 6)
    told = (usage.turns, usage.tool_calls, usage.input_tokens, usage.cached_tokens, usage.output_tokens, cost)
    assert told == expected


def test_claude_ended_in_the_middle_tells_the_least_that_its_answers_told():
    stream = ClaudeStream()
    for line in (SAMPLES / "claude.sigterm.jsonl").read_text().splitlines():
        list(stream(line))
    usage = usage_of(stream.unfinished_usage())
    assert (usage.turns, usage.input_tokens, usage.cached_tokens, usage.output_tokens) == (1, 1200, 200, 1)


def test_claude_that_summed_up_tells_nothing_twice():
    stream = ClaudeStream()
    lines = (SAMPLES / "claude.jsonl").read_text().splitlines()
    events = [event for line in [*lines, lines[-1]] for event in stream(line)]
    assert usage_of(events).input_tokens == 3600
    assert list(stream.unfinished_usage()) == []


@pytest.mark.parametrize(
    ("fault", "reasons"),
    [
        ("401", {"codex": "authentication", "claude": "authentication", "kimi": "authentication"}),
        ("403", {"codex": "authentication", "claude": "authentication", "kimi": "authentication"}),
        ("429", {"codex": "usage_limit", "claude": "usage_limit", "kimi": "usage_limit"}),
        ("quota429", {"codex": "usage_limit", "claude": "usage_limit", "kimi": "usage_limit"}),
        ("500", {"codex": "overloaded", "claude": "overloaded", "kimi": "overloaded"}),
        ("529", {"codex": "overloaded", "claude": "overloaded", "kimi": "overloaded"}),
        ("cut", {"codex": "network", "kimi": "network"}),
    ],
)
def test_a_failure_of_the_models_api_is_told_by_its_name(fault, reasons):
    for program, reason in reasons.items():
        diagnosis = diagnosis_of(f"{program}.fault-{fault}")
        assert (program, diagnosis.reason) == (program, reason)
        assert diagnosis.resumable
        assert diagnosis.message.startswith(PROVIDERS[program].title)


@pytest.mark.parametrize(
    "name", ["claude.fault-cut", "codex", "codex.rich", "claude", "claude.rich", "kimi", "kimi.rich"]
)
def test_a_session_that_ended_well_needs_no_explanation(name):
    assert diagnosis_of(name, returncode=0) is None


@pytest.mark.parametrize("name", ["codex.sigterm", "claude.sigterm", "kimi.sigterm"])
def test_a_signal_is_no_failure_of_the_programs(name):
    assert diagnosis_of(name, returncode=-15) is None


@pytest.mark.parametrize(
    ("program", "stderr", "reason"),
    [
        ("codex", "error: unexpected argument '--bogus' found", "invalid_options"),
        ("codex", "ERROR: You've hit your usage limit. Try again at 5:30 PM.", "usage_limit"),
        ("claude", "--dangerously-skip-permissions cannot be used with root/sudo privileges", "refused_as_root"),
        ("claude", "error: unknown option '--bogus'", "invalid_options"),
        ("kimi", "error: unknown option '--bogus'", "invalid_options"),
        ("kimi", 'error: failed to run prompt: Model "x" is not configured in config.toml.', "invalid_options"),
        ("kimi", "SyntaxError: The requested module 'node:zlib' does not provide an export", "incompatible"),
        ("kimi", "error: failed to run prompt: something unheard of", "failed"),
    ],
)
def test_what_stands_on_standard_error_is_explained(program, stderr, reason):
    provider = PROVIDERS[program]
    end = AgentExit(returncode=1, stderr_tail=stderr)
    assert diagnose_exit(provider.title, provider.failures, provider.stub_advice, end).reason == reason


def test_the_reset_time_of_a_usage_limit_is_told():
    end = AgentExit(returncode=1, stderr_tail="ERROR: You've hit your usage limit. Try again at 5:30 PM.")
    assert "It resets: 5:30 PM" in diagnose_exit("Codex CLI", CODEX.failures, "", end).message
    limit = {"type": "rate_limit_event", "rate_limit_info": {"status": "rejected", "resetsAt": 1795975210}}
    failed = {"type": "result", "is_error": True, "api_error_status": 429, "result": "Usage limit reached"}
    stream = ClaudeStream()
    events = [event for said in (limit, failed) for event in stream(json.dumps(said))]
    diagnosis = diagnose_exit("Claude Code", CLAUDE_CODE.failures, "", AgentExit(returncode=1, events=tuple(events)))
    assert "2026-11-29 18:00 UTC" in diagnosis.message


def test_a_program_that_does_nothing_and_succeeds_is_called_a_stub():
    end = AgentExit(returncode=0, stdout_tail="kimi-cli is deprecated\n")
    diagnosis = diagnose_exit(KIMI_CODE.title, KIMI_CODE.failures, KIMI_CODE.stub_advice, end)
    assert diagnosis.reason == "stub"
    assert "npm install" in diagnosis.message


def test_reconnecting_is_no_fatal_error():
    told = [event for event in events_of("codex.fault-500") if event.kind == "error"]
    assert [event.fatal for event in told] == [False] * (len(told) - 1) + [True]


@pytest.mark.parametrize("name", STREAMS)
def test_a_stream_of_another_shape_is_no_fault(name):
    chance = random.Random(name)
    lines = (SAMPLES / f"{name}.jsonl").read_text().splitlines()
    for _ in range(20):
        reader = EventReader(PARSERS[name.partition(".")[0]])
        for line in lines:
            reader.feed(json.dumps(spoil(json.loads(line), chance)).encode() + b"\n")
            reader.feed(line[: chance.randrange(len(line))].encode() + b"\n")
        assert reader.faults == 0


def spoil(value, chance):
    """The value with some of its parts replaced by others of another type."""
    if chance.random() < 0.15:
        return chance.choice([None, True, -1, 10**40, 1.5, "x", [], {}, [1, None, {}], {"text": 3}, "Exit code x"])
    if isinstance(value, dict):
        return {key: spoil(item, chance) for key, item in value.items()}
    if isinstance(value, list):
        return [spoil(item, chance) for item in value]
    return value


def session_at(home, name, place="wd_a"):
    folder = home / "sessions" / place / name / "agents" / "main"
    folder.mkdir(parents=True)
    (folder / "wire.jsonl").write_bytes((SAMPLES / "kimi.wire.jsonl").read_bytes())
    return folder.parents[1]


def test_kimis_tokens_are_read_from_its_session_file(tmp_path):
    session = session_at(tmp_path, "session_a")
    assert session_usage(session) == AgentEvent(kind="usage", input_tokens=3000, cached_tokens=600, output_tokens=150)


def test_what_is_no_file_in_a_session_is_not_waited_for(tmp_path):
    session = session_at(tmp_path, "session_a")
    (session / "agents" / "main" / "wire.jsonl").unlink()
    os.mkfifo(session / "agents" / "main" / "wire.jsonl")
    with pytest.raises(ValueError, match=r"wire\.jsonl is no file"):
        session_usage(session)


def test_a_session_file_without_end_is_read_so_far_and_no_further(tmp_path, monkeypatch):
    monkeypatch.setattr(kimi_sessions, "FILE_MAX_BYTES", 1024 * 1024)
    session = session_at(tmp_path, "session_a")
    os.truncate(session / "agents" / "main" / "wire.jsonl", 1 << 40)
    assert session_usage(session).input_tokens == 3000


def test_earlier_sessions_of_the_same_home_do_not_count(tmp_path):
    session_at(tmp_path, "session_earlier")
    files = SessionFiles()
    files.note_existing(tmp_path)
    session_at(tmp_path, "session_now", "wd_b")
    assert usage_of(files.closing_events(tmp_path)).input_tokens == 3000


def test_the_session_that_told_its_name_is_the_one_that_counts(tmp_path):
    files = SessionFiles()
    files.note_existing(tmp_path)
    session_at(tmp_path, "session_other")
    session_at(tmp_path, "session_78fb664c-066e-4a26-ad70-11ae214ad7a6", "wd_b")
    stream = KimiStream(files)
    for line in (SAMPLES / "kimi.jsonl").read_text().splitlines():
        list(stream(line))
    assert usage_of(files.closing_events(tmp_path)).input_tokens == 3000


def test_tokens_that_cannot_be_told_apart_are_not_told(tmp_path):
    files = SessionFiles()
    files.note_existing(tmp_path)
    session_at(tmp_path, "session_other")
    session_at(tmp_path, "session_mine", "wd_b")
    (event,) = files.closing_events(tmp_path)
    assert (event.kind, event.fatal) == ("error", False)


def test_calls_that_never_end_do_not_fill_the_memory():
    calls = OpenCalls()
    for number in range(1002):
        calls.begin(f"{number:04}" + "x" * 1000, "bash", "y" * 100_000)
    told = [calls.end(f"{number:04}" + "x" * 1000, text="", exit_code=0, failed=False) for number in (1, 2, 1001)]
    assert [event.tool for event in told] == [None, "bash", "bash"]
    assert told[2].command.endswith("characters cut]")
