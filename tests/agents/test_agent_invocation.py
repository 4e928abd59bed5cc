import os
from pathlib import Path

import pytest

from evopolicygym.agents import AgentInvocation, AgentTask, CodingAgent, command_invocation, resolve_executable
from evopolicygym.errors import AgentRunError

TASK = AgentTask("Improve the Policy.\nThen finish.")


def invocation(**fields):
    given = {"command": ["/bin/agent"], "recorded_command": ["/bin/agent"], "identity": "agent"}
    return AgentInvocation(**(given | fields))


def test_the_recorded_command_names_the_file_that_holds_the_task():
    made = command_invocation(["/bin/agent", "--quiet", TASK.instructions], TASK, identity="agent")
    assert made.command == ("/bin/agent", "--quiet", TASK.instructions)
    assert made.recorded_command == ("/bin/agent", "--quiet", "@agent/instructions.md")


def test_a_task_argument_stays_where_it_is_by_default():
    made = command_invocation(["/bin/agent", TASK.instructions], TASK, identity="agent")
    assert made.arguments(TASK, task_file=Path("/x")) == ("/bin/agent", TASK.instructions)
    assert made.standard_input(TASK) is None


def test_a_task_argument_gives_way_to_its_substitute_on_standard_input():
    made = command_invocation(
        ["/bin/agent", "exec", TASK.instructions], TASK, identity="agent", task_delivery="stdin", task_substitute=["-"]
    )
    assert made.arguments(TASK, task_file=Path("/x")) == ("/bin/agent", "exec", "-")
    assert made.standard_input(TASK) == TASK.instructions


def test_a_task_argument_gives_way_to_a_file():
    made = command_invocation(
        ["/bin/agent", TASK.instructions],
        TASK,
        identity="agent",
        task_delivery="file",
        task_substitute=["--agent-file", "{task_file}"],
    )
    assert made.arguments(TASK, task_file=Path("/r/task.md")) == ("/bin/agent", "--agent-file", "/r/task.md")
    assert made.standard_input(TASK) is None


def test_an_argument_over_the_platforms_limit_is_refused_before_the_start():
    long = AgentTask("ü" * 70_000)
    made = command_invocation(["/bin/agent", long.instructions], long, identity="agent")
    with pytest.raises(AgentRunError, match=r"140,000 bytes.*standard input or from a file"):
        made.arguments(long, task_file=Path("/x"))


def test_its_own_instructions_take_the_place_of_the_task():
    made = invocation(instructions="other words", task_delivery="stdin")
    assert made.standard_input(TASK) == "other words"


def test_the_fields_of_the_contract_may_be_given_by_position():
    made = AgentInvocation(("/bin/agent",), ("agent",), "mine", "do it", ("MY_KEY",), "application/x-ndjson")
    assert (made.name, made.instructions, made.inherited_environment) == ("mine", "do it", ("MY_KEY",))
    with pytest.raises(TypeError, match="positional"):
        AgentInvocation(("/bin/agent",), ("agent",), "mine", "do it", (), "text/plain", {"A": "b"})


def test_an_identity_is_a_name_or_a_mapping_with_one():
    assert invocation(identity="codex").name == "codex"
    assert invocation(identity={"name": "codex", "effort": "high"}).name == "codex"
    with pytest.raises(ValueError, match="'name'"):
        invocation(identity={"model": "m"})
    with pytest.raises(TypeError, match="JSON scalar"):
        invocation(identity={"name": "codex", "path": Path("/x")})


@pytest.mark.parametrize(
    ("fields", "error", "words"),
    [
        ({"command": []}, ValueError, "empty"),
        ({"command": "agent"}, TypeError, "list of strings"),
        ({"command": ["a\0b"]}, ValueError, "NUL"),
        ({"command": ["a", 3]}, TypeError, "every item must be a string"),
        ({"recorded_command": []}, ValueError, "recorded_command is empty"),
        ({"task_delivery": "mail"}, ValueError, "'argument', 'stdin' or 'file'"),
        ({"inherited_environment": "KEY"}, TypeError, "list of strings"),
        ({"inherited_environment": ["A=B"]}, ValueError, "cannot be the name"),
        ({"inherited_environment": ["EVOPOLICYGYM_WORKSPACE"]}, ValueError, "belongs to the Host"),
        ({"environment": {"EVOPOLICYGYM_SESSION_SOCKET": "/x"}}, ValueError, "belongs to the Host"),
        ({"environment": {"A": 1}}, TypeError, "give a string"),
        ({"stdout_media_type": "text"}, ValueError, "media type"),
    ],
)
def test_a_wrong_invocation_is_refused(fields, error, words):
    with pytest.raises(error, match=words):
        invocation(**fields)


@pytest.mark.parametrize("text", ["", " \n", "a\0b", "\ud800"])
def test_a_task_that_no_program_can_receive_is_refused(text):
    with pytest.raises(ValueError, match="the task text"):
        AgentTask(text)


def test_anything_with_build_invocation_is_a_coding_agent():
    class Mine:
        def build_invocation(self, task):
            return invocation()

    assert isinstance(Mine(), CodingAgent)
    assert not isinstance(object(), CodingAgent)


def test_an_executable_is_found_on_path(tmp_path, monkeypatch):
    program = tmp_path / "my-agent"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert resolve_executable("my-agent") == str(program)


def test_a_link_is_not_followed_since_programs_look_at_their_name(tmp_path, monkeypatch):
    (tmp_path / "my-agent").symlink_to("/bin/sh")
    monkeypatch.setenv("PATH", str(tmp_path))
    assert resolve_executable("my-agent") == str(tmp_path / "my-agent")


def test_a_missing_executable_is_named_with_the_places_that_were_searched(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(AgentRunError) as caught:
        resolve_executable("no-such-agent", hint="Install it with: npm install x")
    message = str(caught.value)
    assert "'no-such-agent'" in message
    assert str(tmp_path) in message
    assert message.endswith("Install it with: npm install x")


def test_a_path_that_is_missing_a_directory_or_not_executable_is_told_apart(tmp_path):
    with pytest.raises(AgentRunError, match="does not exist"):
        resolve_executable(str(tmp_path / "missing"))
    with pytest.raises(AgentRunError, match="is a directory"):
        resolve_executable(str(tmp_path))
    plain = tmp_path / "plain"
    plain.write_text("")
    plain.chmod(0o644)
    with pytest.raises(AgentRunError, match=r"chmod \+x"):
        resolve_executable(str(plain))


def test_a_relative_path_becomes_absolute(tmp_path, monkeypatch):
    program = tmp_path / "agent"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    monkeypatch.chdir(tmp_path)
    assert resolve_executable(f".{os.sep}agent") == str(program)
