"""Any program as an Agent: an argv, and how the task reaches it."""

import importlib
import os
import shlex
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import get_args

from evopolicygym.agents.events import AgentEvent
from evopolicygym.agents.invocation import (
    RECORDED_TASK,
    TASK_FILE,
    AgentInvocation,
    AgentTask,
    LineParser,
    TaskDelivery,
    command_invocation,
    environment_names,
    environment_values,
    resolve_executable,
)
from evopolicygym.agents.stream import parse_event_line, parse_text_line

__all__ = ["CommandAgent"]

_TASK = "{task}"
_DIRECTORY = "{directory}"
_PARSERS: dict[str, LineParser] = {"text": parse_text_line, "events": parse_event_line}


class CommandAgent:
    """An Agent that is any program.

    | Use | Agent |
    | --- | --- |
    | the task on standard input | ``CommandAgent(["my-agent", "--quiet"])`` |
    | … as an argument | ``CommandAgent(["my-agent", "--prompt", "{task}"], task="argument")`` |
    | … from a file | ``CommandAgent("my-agent --prompt-file={task_file}", task="file")`` |
    | a script beside the spec | ``CommandAgent(["python3", "{directory}/agent.py"], directory="scripts")`` |
    | a key from the Host's environment | ``CommandAgent([…], inherited_environment=["MY_API_KEY"])`` |

    The program runs in the Run's workspace, so a relative path among its arguments would be looked for *there*: write
    it absolute, or with ``{directory}``. Other braces are left as they are.

    Args:
        command: Executable and arguments; or one string, split as a POSIX shell splits words (nothing is expanded).
            The executable is a name on PATH, or a path, where a relative one is taken from ``directory``.
        task: How the task text reaches the program: ``"stdin"``, ``"argument"`` (``{task}`` in the command) or
            ``"file"`` (``{task_file}`` in the command: the file's absolute path). Use ``"stdin"`` or ``"file"`` if you
            can: one argument holds at most 131,071 bytes on Linux.
        inherited_environment: Names of variables that the program may take from the Host's environment.
        environment: Values set for the program.
        name: What the Record and the display call it; by default the executable's file name.
        parser: What standard output tells: ``"text"`` (each line a message), ``"events"`` (each line a JSON object in
            the form of ``AgentEvent``), ``"none"``, an import path ``"package.module:attribute"``, or a callable. The
            latter two take one line and return AgentEvents; a class is called without arguments for each start, and
            what it makes is the parser.
        directory: What ``{directory}`` and a relative executable stand on; by default the current directory.

    Raises:
        TypeError: an argument is of the wrong type.
        ValueError: an empty command, a placeholder without its ``task`` or the other way round, a NUL character, an
            unknown parser.
    """

    def __init__(
        self,
        command: Sequence[str] | str,
        *,
        task: TaskDelivery = "stdin",
        inherited_environment: Iterable[str] = (),
        environment: Mapping[str, str] | None = None,
        name: str | None = None,
        parser: str | Callable[[str], Iterable[AgentEvent]] | None = "text",
        directory: str | Path | None = None,
    ) -> None:
        self.command = _split(command)
        if task not in get_args(TaskDelivery):
            raise ValueError(f"task is {task!r}; it can be 'stdin', 'argument' or 'file'")
        self.task: TaskDelivery = task
        _check_placeholders(self.command, task)
        self.inherited_environment = environment_names(inherited_environment)
        self.environment = environment_values({} if environment is None else environment)
        if name is not None and (type(name) is not str or not name):
            raise ValueError(f"name is {name!r}; give a non-empty string, or leave it out")
        self.name = name or Path(self.command[0]).name
        if directory is not None and not isinstance(directory, str | Path):
            raise TypeError(f"directory is a {type(directory).__name__}; give a path")
        self.directory = (Path.cwd() if directory is None else Path(directory)).absolute()
        self._new_parser = _parser_factory(parser)

    def __repr__(self) -> str:
        return f"CommandAgent({list(self.command)!r}, task={self.task!r}, name={self.name!r})"

    def build_invocation(self, task: AgentTask) -> AgentInvocation:
        """See :class:`~evopolicygym.agents.CodingAgent`.

        Raises:
            AgentRunError: the executable is not there.
        """
        head, *rest = (argument.replace(_DIRECTORY, str(self.directory)) for argument in self.command)
        if os.sep in head:
            head = str(self.directory / os.path.expanduser(head))  # noqa: PTH111  # Path would fail without a home
        argv = [resolve_executable(head), *rest]
        command, recorded = argv, argv
        if self.task == "argument":
            command = [argument.replace(_TASK, task.instructions) for argument in argv]
            recorded = [argument.replace(_TASK, RECORDED_TASK) for argument in argv]
        if self.task == "file":
            recorded = [argument.replace(TASK_FILE, RECORDED_TASK) for argument in argv]
        return command_invocation(
            command,
            task,
            identity={"name": self.name, "kind": "command"},
            recorded_command=recorded,
            inherited_environment=self.inherited_environment,
            environment=self.environment,
            task_delivery=self.task,
            new_parser=self._new_parser,
        )


def _split(command: object) -> tuple[str, ...]:
    if isinstance(command, str):
        try:
            command = shlex.split(command)
        except ValueError as error:
            raise ValueError(f"the command {command!r} cannot be split into words: {error}") from error
    if isinstance(command, bytes) or not isinstance(command, Sequence):
        raise TypeError(f"the command is a {type(command).__name__}; give a list of strings, or one string")
    for argument in command:
        if type(argument) is not str:
            raise TypeError(
                f"the command holds a {type(argument).__name__} ({argument!r}); every item must be a string"
            )
        if "\0" in argument:
            raise ValueError("the command holds an argument with a NUL character, which no program can receive")
    if not command or not command[0]:
        raise ValueError("the command is empty; its first item names the program to run")
    return tuple(command)


def _check_placeholders(command: tuple[str, ...], task: TaskDelivery) -> None:
    if _TASK in command[0] or TASK_FILE in command[0]:
        raise ValueError("the task cannot be the program to run; the command's first item names an executable")
    for placeholder, delivery in ((_TASK, "argument"), (TASK_FILE, "file")):
        present = any(placeholder in argument for argument in command)
        if present and task != delivery:
            raise ValueError(f"the command holds {placeholder}, but task is {task!r}; say task={delivery!r}")
        if task == delivery and not present:
            raise ValueError(f"task is {task!r}, but no argument holds {placeholder}; put it where the task belongs")


def _parser_factory(parser: object) -> Callable[[], LineParser] | None:
    if parser is None or parser == "none":
        return None
    if isinstance(parser, str):
        if parser in _PARSERS:
            return partial(_same, _PARSERS[parser])
        parser = _import(parser)
    if isinstance(parser, type):
        return parser
    if not callable(parser):
        raise TypeError(f"the parser is a {type(parser).__name__}; give a callable, an import path or a known name")
    return partial(_same, parser)


def _same(parser: LineParser) -> LineParser:
    return parser


def _import(path: str) -> object:
    module_name, colon, attribute = path.partition(":")
    known = ", ".join(repr(name) for name in [*_PARSERS, "none"])
    if not colon or not module_name or not attribute:
        raise ValueError(f"the parser is {path!r}; give {known}, or an import path such as 'package.module:attribute'")
    try:
        found: object = importlib.import_module(module_name)
        for part in attribute.split("."):
            found = getattr(found, part)
    except (ImportError, AttributeError) as error:
        raise ValueError(f"the parser {path!r} cannot be imported: {error}") from error
    return found
