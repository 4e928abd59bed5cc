"""An Agent's transcript as a conversation: what it said, what it did, what that printed, what it cost."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import TextIO

from rich.console import Console
from rich.text import Text

from evopolicygym.agents import AgentEvent, AgentUsage, EventReader
from evopolicygym.agents.stream import parse_text_line
from evopolicygym.cli.encoding import writes_unicode
from evopolicygym.cli.frames import usage_text
from evopolicygym.record import RunRecord
from evopolicygym.run.console import inert_line, inert_text

_OUTPUT_LINES = 12
_OUTPUT_WIDTH = 400
_MESSAGE_LINES = 400
_CHUNK = 256 * 1024


def agent_events(record: RunRecord) -> Iterator[tuple[int, float | None, AgentEvent]]:
    """Attempt, time (seconds since 1970; None if unknown) and event, in order; damaged lines are left out.

    A Record without a transcript gives the lines of the Agent's standard output as messages.
    """
    attempt = 1
    while (folder := record.layout.agent(attempt)).is_dir():
        transcript = folder / "transcript.jsonl"
        if transcript.is_file():
            for time, event in _transcript(transcript):
                yield attempt, time, event
        else:
            for event in _plain_output(folder / "stdout.log"):
                yield attempt, None, event
        attempt += 1


def print_conversation(record: RunRecord, console: Console) -> None:
    """Print it, event by event; the whole is never in memory."""
    started: float | None = None
    usage = AgentUsage()
    last_attempt = 0
    tool_commands: dict[str, str] = {}
    for attempt, time, event in agent_events(record):
        if attempt != last_attempt:
            last_attempt = attempt
            tool_commands.clear()
            if attempt > 1:
                console.rule(Text(f"attempt {attempt}"), style="dim")
        if started is None:
            started = time
        clock = "" if time is None or started is None else _clock(time - started)
        usage = usage.add(event)
        _print_event(event, clock, usage, console, tool_commands)
    if not last_attempt:
        console.print(Text("the Agent left no transcript", style="dim"))
    else:
        console.print()
        told = usage_text(
            usage.turns, usage.tool_calls, usage.input_tokens, usage.cached_tokens, usage.output_tokens, usage.cost_usd
        )
        console.print(Text(f"in all: {told or 'nothing was told of usage'}", style="dim"))


def print_transcript_report(record: RunRecord, stream: TextIO) -> None:
    """Write the transcript as one JSON document, event by event."""
    ascii_only = not writes_unicode()
    head = {"schema": "evopolicygym/transcript-report/v1", "record": str(record.path.absolute())}
    stream.write(json.dumps(head, ensure_ascii=ascii_only)[:-1] + ', "events": [')
    usage = AgentUsage()
    separator = "\n  "
    for attempt, time, event in agent_events(record):
        usage = usage.add(event)
        entry = {"attempt": attempt, "time": time} | event.to_json()
        stream.write(separator + json.dumps(entry, ensure_ascii=ascii_only, allow_nan=False))
        separator = ",\n  "
    stream.write(f'\n], "usage": {json.dumps(usage.to_json())}}}\n')


def _print_event(
    event: AgentEvent, clock: str, usage: AgentUsage, console: Console, tool_commands: dict[str, str]
) -> None:
    if event.kind == "session_start":
        what = "  ".join(filter(None, ("session", event.model, event.session_id)))
        _head(console, clock, inert_text(what, 200), "bold cyan")
        _block(console, event.text, "")
    elif event.kind == "message":
        _head(console, clock, "says", "bold green")
        _block(console, event.text, "")
    elif event.kind == "reasoning":
        _head(console, clock, "thinks", "dim")
        _block(console, event.text, "dim")
    elif event.kind == "tool_call":
        _print_tool_call(event, clock, console, tool_commands)
    elif event.kind in ("usage", "cost"):
        counts = (usage.input_tokens, usage.cached_tokens, usage.output_tokens, usage.cost_usd)
        _head(console, clock, f"so far {usage_text(usage.turns, 0, *counts)}", "dim")
    elif event.kind == "error":
        fatal = "fatal error" if event.fatal else "error"
        code = f" {inert_text(event.code, 80)}" if event.code else ""
        _head(console, clock, f"{fatal}{code}", "bold red")
        _block(console, event.text, "red")
    elif event.kind == "end":
        _head(console, clock, "session failed" if event.failed else "session ended", "bold cyan")
        _block(console, event.text, "")


def _print_tool_call(event: AgentEvent, clock: str, console: Console, tool_commands: dict[str, str]) -> None:
    title = Text(f"{clock}  ", style="dim")
    known = tool_commands.get(event.call_id or "")
    command = event.command or known or ""
    if event.call_id and event.command:
        tool_commands[event.call_id] = event.command
    title.append(f"$ {inert_text(command, 1000)}" if command else inert_text(event.tool or "a tool", 80), style="cyan")
    if event.exit_code:
        title.append(f"  exit code {event.exit_code}", style="red")
    elif event.failed:
        title.append("  failed", style="red")
    console.print(title, soft_wrap=False)
    _block(console, event.text, "dim", limit=_OUTPUT_LINES)


def _head(console: Console, clock: str, words: str, style: str) -> None:
    console.print(Text.assemble((f"{clock}  ", "dim"), (words, style)))


def _block(console: Console, text: str | None, style: str, *, limit: int = _MESSAGE_LINES) -> None:
    if not text or not text.strip():
        return
    lines = text.strip("\n").splitlines()
    shown = lines if len(lines) <= limit else [*lines[: limit - limit // 3], None, *lines[-(limit // 3) :]]
    body = Text(style=style)
    for shown_line in shown:
        left = len(lines) - len(shown) + 1
        body.append((f"… {left} more lines" if shown_line is None else inert_line(shown_line, _OUTPUT_WIDTH)) + "\n")
    body.rstrip()
    for line in body.wrap(console, max(20, console.width - 2)):
        line.rstrip()
        console.print(Text("  ").append_text(line), soft_wrap=True)


def _clock(seconds: float) -> str:
    whole = max(0, int(seconds))
    return f"{whole // 3600}:{whole // 60 % 60:02d}:{whole % 60:02d}"


def _transcript(path: Path) -> Iterator[tuple[float | None, AgentEvent]]:
    with open(path, "rb") as file:
        for line in file:
            try:
                entry = json.loads(line)
                event = AgentEvent.from_json(entry)
            except (ValueError, RecursionError):  # torn or damaged
                continue
            time = entry.get("time")
            yield float(time) if isinstance(time, int | float) else None, event


def _plain_output(path: Path) -> Iterator[AgentEvent]:
    reader = EventReader(lambda: parse_text_line)
    try:
        with open(path, "rb") as file:
            while chunk := file.read(_CHUNK):
                yield from reader.feed(chunk)
    except OSError:
        return
    yield from reader.close()
