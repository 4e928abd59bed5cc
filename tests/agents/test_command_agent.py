import json
import subprocess
import sys
from pathlib import Path

import pytest

from evopolicygym.agents import AgentEvent, AgentTask, CommandAgent, EventReader
from evopolicygym.errors import AgentRunError

TASK = AgentTask("Improve the Policy.")


class CountingParser:
    """Numbers the lines that it has seen."""

    def __init__(self):
        self.lines = 0

    def __call__(self, line):
        self.lines += 1
        return [AgentEvent(kind="message", text=f"{self.lines}: {line}")]


def start(agent: CommandAgent, task_file: Path) -> str:
    """Start the invocation as a Run does, as far as the task goes."""
    invocation = agent.build_invocation(TASK)
    task_file.write_text(TASK.instructions)
    done = subprocess.run(
        invocation.arguments(TASK, task_file=task_file),
        input=invocation.standard_input(TASK) or "",
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    return done.stdout


def test_the_task_arrives_on_standard_input(tmp_path):
    assert start(CommandAgent(["cat"]), tmp_path / "task.md") == TASK.instructions


def test_the_task_arrives_as_an_argument(tmp_path):
    agent = CommandAgent(["echo", "-n", "task={task}"], task="argument")
    assert start(agent, tmp_path / "task.md") == f"task={TASK.instructions}"


def test_the_task_arrives_as_a_file(tmp_path):
    agent = CommandAgent(["cat", "{task_file}"], task="file")
    assert start(agent, tmp_path / "task.md") == TASK.instructions


def test_the_recorded_command_never_holds_the_task():
    agent = CommandAgent(["echo", "--prompt={task}", "{task}"], task="argument")
    recorded = agent.build_invocation(TASK).recorded_command
    assert recorded[1:] == ("--prompt=@agent/instructions.md", "@agent/instructions.md")
    agent = CommandAgent(["cat", "{task_file}"], task="file")
    assert agent.build_invocation(TASK).recorded_command[1:] == ("@agent/instructions.md",)


def test_one_string_is_split_as_a_shell_splits_words():
    assert CommandAgent("echo 'two words' --x=$HOME").command == ("echo", "two words", "--x=$HOME")


def test_a_directory_stands_for_a_place_in_the_arguments_and_for_a_relative_executable(tmp_path):
    script = tmp_path / "agent.sh"
    script.write_text("#!/bin/sh\necho $1\n")
    script.chmod(0o755)
    agent = CommandAgent(["./agent.sh", "{directory}/x"], directory=tmp_path)
    assert start(agent, tmp_path / "task.md") == f"{tmp_path}/x\n"


def test_other_braces_are_left_alone():
    agent = CommandAgent(["echo", '{"a": {}}', "{other}"])
    assert agent.build_invocation(TASK).command[1:] == ('{"a": {}}', "{other}")


def test_only_the_names_of_variables_are_in_what_is_recorded():
    agent = CommandAgent(["cat"], inherited_environment=["KEY", "KEY"], environment={"MODE": "secret-value"})
    invocation = agent.build_invocation(TASK)
    assert invocation.inherited_environment == ("KEY",)
    assert dict(invocation.environment) == {"MODE": "secret-value"}
    assert "secret-value" not in json.dumps([invocation.recorded_command, dict(invocation.identity)])


def test_it_is_called_by_its_executable_unless_it_has_a_name():
    assert CommandAgent(["/usr/bin/env", "x"]).build_invocation(TASK).name == "env"
    assert CommandAgent(["cat"], name="mine").build_invocation(TASK).name == "mine"


def test_a_missing_executable_is_told_before_anything_starts():
    with pytest.raises(AgentRunError, match="'no-such-program'"):
        CommandAgent(["no-such-program"]).build_invocation(TASK)


@pytest.mark.parametrize(
    ("arguments", "error", "words"),
    [
        ({"command": []}, ValueError, "empty"),
        ({"command": ""}, ValueError, "empty"),
        ({"command": "echo 'open"}, ValueError, "cannot be split"),
        ({"command": ["a\0"]}, ValueError, "NUL"),
        ({"command": ["a", None]}, TypeError, "every item must be a string"),
        ({"command": 3}, TypeError, "list of strings"),
        ({"command": ["a", "{task}"]}, ValueError, "task='argument'"),
        ({"command": ["a", "--f={task_file}"]}, ValueError, "task='file'"),
        ({"command": ["a"], "task": "argument"}, ValueError, "no argument holds {task}"),
        ({"command": ["a"], "task": "file"}, ValueError, "no argument holds {task_file}"),
        ({"command": ["{task}"], "task": "argument"}, ValueError, "cannot be the program"),
        ({"command": ["a"], "task": "mail"}, ValueError, "'stdin', 'argument' or 'file'"),
        ({"command": ["a"], "parser": "nonsense"}, ValueError, "'text', 'events', 'none'"),
        ({"command": ["a"], "parser": "no_such_module:x"}, ValueError, "cannot be imported"),
        ({"command": ["a"], "parser": 3}, TypeError, "parser"),
        ({"command": ["a"], "name": ""}, ValueError, "name"),
    ],
)
def test_a_wrong_command_agent_is_refused(arguments, error, words):
    with pytest.raises(error, match=words):
        CommandAgent(**arguments)


def events_of(parser, output: bytes):
    reader = EventReader(CommandAgent(["cat"], parser=parser).build_invocation(TASK).new_parser)
    return reader.feed(output) + reader.close()


def test_lines_of_text_are_messages():
    assert [event.text for event in events_of("text", b"one\n\n two\r\nthree")] == ["one", " two", "three"]


def test_lines_of_event_json_are_those_events_and_others_are_passed_over():
    line = json.dumps(AgentEvent(kind="tool_call", command="ls", exit_code=1).to_json()).encode()
    events = events_of("events", b"hello\n{}\n[1]\n" + line + b"\n" + b"[" * 100_000 + b"\n")
    assert events == [AgentEvent(kind="tool_call", command="ls", exit_code=1)]


def test_a_parser_may_be_a_callable_or_told_by_its_import_path(tmp_path, monkeypatch):
    (tmp_path / "shouting.py").write_text(
        "from evopolicygym.agents import AgentEvent\n"
        "def parse(line):\n    return [AgentEvent(kind='message', text=line.upper())]\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    assert [event.text for event in events_of("shouting:parse", b"a\n")] == ["A"]
    assert events_of(lambda line: [], b"a\n") == []
    sys.modules.pop("shouting")


def test_a_parser_class_is_made_anew_for_each_start():
    assert [event.text for event in events_of(CountingParser, b"a\nb\n")] == ["1: a", "2: b"]
    assert [event.text for event in events_of(CountingParser, b"c\n")] == ["1: c"]


def test_without_a_parser_nothing_is_told():
    assert events_of("none", b"a\n") == []
    assert events_of(None, b"a\n") == []
