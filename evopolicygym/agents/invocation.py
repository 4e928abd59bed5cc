"""What an Agent is to the Host: a task goes in, an invocation (what to start, and how) comes out."""

import math
import os
import shutil
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Literal, Protocol, TypeAlias, get_args, runtime_checkable

from evopolicygym.agents.events import AgentDiagnosis, AgentEvent, AgentExit
from evopolicygym.errors import AgentRunError
from evopolicygym.execution.shared_login import SharedLogIn

__all__ = [
    "ARGUMENT_MAX_BYTES",
    "RECORDED_TASK",
    "TASK_FILE",
    "AgentInvocation",
    "AgentTask",
    "CodingAgent",
    "IdentityValue",
    "LineParser",
    "TaskDelivery",
    "command_invocation",
    "resolve_executable",
]

RECORDED_TASK = "@agent/instructions.md"
"""What stands for the task text in a recorded command: the file of the Record that holds it."""

TASK_FILE = "{task_file}"
"""What stands for the path of the task file in a command."""

ARGUMENT_MAX_BYTES = 131_071
"""What Linux takes as one argument (MAX_ARG_STRLEN, less its final zero byte); more fails with E2BIG."""

TaskDelivery: TypeAlias = Literal["argument", "stdin", "file"]
IdentityValue: TypeAlias = str | int | float | bool | None
LineParser: TypeAlias = Callable[[str], Iterable[AgentEvent]]
"""One line of an Agent's standard output, without its line end, to the events that it tells."""

_RESERVED_PREFIX = "EVOPOLICYGYM_"


@dataclass(frozen=True, slots=True)
class AgentTask:
    """What the Agent is asked to do.

    Args:
        instructions: The whole task text, not empty.

    Raises:
        TypeError: it is no string.
        ValueError: it is empty, holds a NUL character, or cannot be encoded as UTF-8.
    """

    instructions: str

    def __post_init__(self) -> None:
        _require_text("the task text", self.instructions)


@dataclass(frozen=True, slots=True)
class AgentInvocation:
    """One way to start an Agent: everything that the Host needs to know of it.

    An argument of ``command`` that *equals* the task text marks where the task goes. With
    ``task_delivery="argument"`` it stays there; with ``"stdin"`` or ``"file"`` the launcher puts ``task_substitute`` in
    its place, so that no argument limit of the platform applies. In ``command`` and ``task_substitute``,
    ``{task_file}`` becomes the absolute path of the task file when the delivery is ``"file"``.

    Args:
        command: Executable and arguments, at least one; the first is best an absolute path.
        recorded_command: The same as it may stand in the Record: no secret, ``@agent/instructions.md`` for the task.
        identity: Who this is, for the Record and for comparison: a name, or a mapping of JSON scalars with ``"name"``
            (say provider, model, effort).
        instructions: Text for the Agent if it is not that of the task.
        inherited_environment: Names of variables that the Agent takes from the Host's environment, where set. All
            else but a few harmless ones (PATH, HOME, LANG …) stays behind.
        stdout_media_type: What its standard output is, ``"text/plain"`` or ``"application/x-ndjson"``.
        environment: Values set for the Agent. Only their names are recorded.
        task_delivery: How the task text reaches it: ``"argument"``, ``"stdin"`` (written, then closed) or ``"file"``.
            In the first and last case standard input is empty.
        task_substitute: Arguments in place of the task argument, where it is not delivered as an argument.
        new_parser: Makes a fresh line parser for each start (it may keep state); None means that standard output
            tells no events.
        diagnose: Why the process ended, from its exit and its last words; None where the exit code says it all.
        prepare_state: Called with an empty private directory of this Run before the start; writes there what the Agent
            needs (configuration, log-in) and returns further environment values.
        closing_events: Called with that directory after the Agent is gone, for events that standard output lacks.
        plain_names: Names of variables whose values are no secret (an address, a directory). The values of all other
            variables that the Agent is given are taken out of its logs.
        facts: What a person should know before the start, by topic: which log-in is used, where state is kept.
        refusal: Why it will not start as it is, outside a sandbox of ours, and what to do; None if it will.
        sandbox_environment: Values that are set only in a sandbox of ours, in place of the refusal.
        log_in: A log-in in files of the user's own, which a sandbox of ours hands out; None if none is used.

    Raises:
        TypeError: a field is of the wrong type.
        ValueError: an empty command, a NUL character, a wrong or reserved variable name, an unknown delivery.
    """

    command: tuple[str, ...]
    recorded_command: tuple[str, ...]
    identity: str | Mapping[str, IdentityValue]
    instructions: str | None = None
    inherited_environment: tuple[str, ...] = ()
    stdout_media_type: str = "text/plain"
    _: KW_ONLY
    environment: Mapping[str, str] = field(default_factory=dict)
    task_delivery: TaskDelivery = "argument"
    task_substitute: tuple[str, ...] = ()
    new_parser: Callable[[], LineParser] | None = None
    diagnose: Callable[[AgentExit], AgentDiagnosis | None] | None = None
    prepare_state: Callable[[Path], Mapping[str, str]] | None = None
    closing_events: Callable[[Path], Iterable[AgentEvent]] | None = None
    plain_names: tuple[str, ...] = ()
    facts: Mapping[str, str] = field(default_factory=dict)
    refusal: str | None = None
    sandbox_environment: Mapping[str, str] = field(default_factory=dict)
    log_in: SharedLogIn | None = None

    def __post_init__(self) -> None:
        command = _arguments("command", self.command)
        recorded = _arguments("recorded_command", self.recorded_command)
        if not command or not command[0]:
            raise ValueError("the command is empty; its first item names the executable")
        if not recorded:
            raise ValueError("recorded_command is empty; give the command as it may stand in the Record")
        if self.instructions is not None:
            _require_text("instructions", self.instructions)
        if self.task_delivery not in get_args(TaskDelivery):
            raise ValueError(f"task_delivery is {self.task_delivery!r}; it can be 'argument', 'stdin' or 'file'")
        if type(self.stdout_media_type) is not str or "/" not in self.stdout_media_type:
            raise ValueError(f"stdout_media_type is {self.stdout_media_type!r}; give a media type such as text/plain")
        object.__setattr__(self, "command", command)
        object.__setattr__(self, "recorded_command", recorded)
        object.__setattr__(self, "identity", _identity(self.identity))
        object.__setattr__(self, "inherited_environment", environment_names(self.inherited_environment))
        object.__setattr__(self, "environment", MappingProxyType(environment_values(self.environment)))
        object.__setattr__(self, "task_substitute", _arguments("task_substitute", self.task_substitute))
        object.__setattr__(self, "plain_names", environment_names(self.plain_names))
        object.__setattr__(self, "facts", MappingProxyType(dict(self.facts)))
        sandboxed = MappingProxyType(environment_values(self.sandbox_environment))
        object.__setattr__(self, "sandbox_environment", sandboxed)

    def arguments(self, task: AgentTask, *, task_file: Path) -> tuple[str, ...]:
        """What to execute: the command with the task at its place.

        Args:
            task: The task that this invocation was built for.
            task_file: Where the task text lies, for ``task_delivery="file"``.

        Returns:
            Executable and arguments, as the process shall see them.

        Raises:
            AgentRunError: an argument is longer than the platform takes.
        """
        texts = (task.instructions, self.instructions)
        argv: list[str] = []
        for argument in self.command:
            moved = self.task_delivery != "argument" and argument in texts
            argv += self.task_substitute if moved else (argument,)
        if self.task_delivery == "file":
            argv = [argument.replace(TASK_FILE, str(task_file.absolute())) for argument in argv]
        for argument in argv:
            size = len(os.fsencode(argument))
            if size > ARGUMENT_MAX_BYTES:
                raise AgentRunError(
                    f"an argument of the Agent {self.name!r} has {size:,} bytes, and the platform takes"
                    f" {ARGUMENT_MAX_BYTES:,}; let it take the task from standard input or from a file"
                )
        return tuple(argv)

    def check_startable(self, *, sandboxed: bool = False) -> None:
        """See that the Agent will start here.

        Raises:
            AgentRunError: it will not; the message says why, and what to do.
        """
        if self.refusal is not None and not sandboxed:
            raise AgentRunError(self.refusal)

    def standard_input(self, task: AgentTask) -> str | None:
        """What to write to its standard input before closing it; None means an empty one."""
        return (self.instructions or task.instructions) if self.task_delivery == "stdin" else None

    @property
    def name(self) -> str:
        """The Agent's name, for people."""
        return self.identity if isinstance(self.identity, str) else str(self.identity["name"])


@runtime_checkable
class CodingAgent(Protocol):
    """An Agent that a Run can start.

    Anything with this one method will do. It is called once for each start, before the Record exists, so an executable
    that cannot be found is best raised here, as ``AgentRunError``.
    """

    def build_invocation(self, task: AgentTask) -> AgentInvocation:
        """Say what to start for this task.

        Args:
            task: What the Agent is asked to do.

        Returns:
            The invocation; nothing is started yet.

        Raises:
            AgentRunError: the Agent cannot be started here; the message says what to install or to set.
        """
        ...


def command_invocation(
    command: Sequence[str],
    task: AgentTask,
    *,
    identity: str | Mapping[str, IdentityValue],
    recorded_command: Sequence[str] | None = None,
    instructions: str | None = None,
    inherited_environment: Iterable[str] = (),
    stdout_media_type: str = "text/plain",
    environment: Mapping[str, str] | None = None,
    task_delivery: TaskDelivery = "argument",
    task_substitute: Sequence[str] = (),
    new_parser: Callable[[], LineParser] | None = None,
    diagnose: Callable[[AgentExit], AgentDiagnosis | None] | None = None,
    prepare_state: Callable[[Path], Mapping[str, str]] | None = None,
    closing_events: Callable[[Path], Iterable[AgentEvent]] | None = None,
    plain_names: Iterable[str] = (),
    facts: Mapping[str, str] | None = None,
    refusal: str | None = None,
    sandbox_environment: Mapping[str, str] | None = None,
    log_in: SharedLogIn | None = None,
) -> AgentInvocation:
    """Make an invocation whose recorded command shows ``@agent/instructions.md`` in place of the task text.

    Args:
        command: Executable and arguments; an argument that equals the task text marks where the task goes.
        task: The task.
        identity: Name, or mapping with ``"name"``.
        recorded_command: Only where an argument holds the task (or a secret) within other text.

    The other arguments are those of :class:`AgentInvocation`.

    Raises:
        TypeError: as :class:`AgentInvocation`.
        ValueError: as :class:`AgentInvocation`.
    """
    arguments = _arguments("command", command)
    if recorded_command is None:
        recorded_command = [RECORDED_TASK if argument == task.instructions else argument for argument in arguments]
    return AgentInvocation(
        command=arguments,
        recorded_command=tuple(recorded_command),
        identity=identity,
        instructions=instructions,
        inherited_environment=tuple(inherited_environment),
        stdout_media_type=stdout_media_type,
        environment={} if environment is None else environment,
        task_delivery=task_delivery,
        task_substitute=tuple(task_substitute),
        new_parser=new_parser,
        diagnose=diagnose,
        prepare_state=prepare_state,
        closing_events=closing_events,
        plain_names=tuple(plain_names),
        facts={} if facts is None else facts,
        refusal=refusal,
        sandbox_environment={} if sandbox_environment is None else sandbox_environment,
        log_in=log_in,
    )


def resolve_executable(executable: str, *, hint: str | None = None) -> str:
    """Find an executable, as a shell here would.

    Args:
        executable: A name, looked for on PATH; or a path (anything with a slash), relative to the current directory.
        hint: What to do if it is missing, say how to install it.

    Returns:
        Its absolute path. Links are kept: some programs look at the name that they were called by.

    Raises:
        TypeError: it is no string.
        AgentRunError: nothing is there, or it cannot be executed; the message names what was looked for and where.
    """
    if type(executable) is not str:
        raise TypeError(f"the executable is a {type(executable).__name__}; give a name or a path as a string")
    advice = f" {hint}" if hint else ""
    if not executable or "\0" in executable:
        raise AgentRunError(f"{executable!r} names no executable.{advice}")
    expanded = os.path.expanduser(executable)  # noqa: PTH111  # Path would drop a leading "./"
    if os.sep in expanded:
        path = Path(expanded).absolute()
        if path.is_dir():
            raise AgentRunError(f"the Agent's executable {path} is a directory; name the program in it.{advice}")
        if not path.exists():
            raise AgentRunError(f"the Agent's executable {path} does not exist.{advice}")
        if not os.access(path, os.X_OK):
            raise AgentRunError(f"the Agent's executable {path} may not be executed; try: chmod +x {path}{advice}")
        return str(path)
    search_path = os.environ.get("PATH", os.defpath)
    found = shutil.which(executable, path=search_path)
    if found is None:
        places = search_path or "nowhere: PATH is empty"
        raise AgentRunError(
            f"the Agent's executable {executable!r} was not found on PATH ({places});"
            f" install it, or give its absolute path.{advice}"
        )
    return str(Path(found).absolute())


def environment_names(names: object) -> tuple[str, ...]:
    """Checked, in the order given, without repetition."""
    if isinstance(names, str) or not isinstance(names, Iterable):
        raise TypeError("the names of inherited variables must be a list of strings")
    return tuple(dict.fromkeys(_environment_name(name) for name in names))


def environment_values(values: object) -> dict[str, str]:
    """Checked and copied."""
    if not isinstance(values, Mapping):
        raise TypeError(f"the environment is a {type(values).__name__}; give a mapping of names to strings")
    copied: dict[str, str] = {}
    for name, value in values.items():
        if type(value) is not str:
            raise TypeError(f"the value of the variable {name!r} is a {type(value).__name__}; give a string")
        if "\0" in value:
            raise ValueError(f"the value of the variable {name!r} holds a NUL character")
        copied[_environment_name(name)] = value
    return copied


def _environment_name(name: object) -> str:
    if type(name) is not str:
        raise TypeError(f"a variable's name is a {type(name).__name__}; give a string")
    if not name or "=" in name or "\0" in name:
        raise ValueError(f"{name!r} cannot be the name of an environment variable")
    if name.startswith(_RESERVED_PREFIX):
        raise ValueError(f"the variable {name} belongs to the Host: names that begin with {_RESERVED_PREFIX} are kept")
    return name


def _arguments(what: str, arguments: object) -> tuple[str, ...]:
    if isinstance(arguments, str | bytes) or not isinstance(arguments, Sequence):
        raise TypeError(f"{what} is a {type(arguments).__name__}; give a list of strings")
    for argument in arguments:
        if type(argument) is not str:
            raise TypeError(f"{what} holds a {type(argument).__name__} ({argument!r}); every item must be a string")
        if "\0" in argument:
            raise ValueError(f"{what} holds an argument with a NUL character, which no program can receive")
    return tuple(arguments)


def _identity(identity: object) -> str | Mapping[str, IdentityValue]:
    if isinstance(identity, str):
        if not identity:
            raise ValueError("the Agent's identity is empty; give a name")
        return identity
    if not isinstance(identity, Mapping):
        raise TypeError(f"the identity is a {type(identity).__name__}; give a name or a mapping with 'name'")
    copied = dict(identity)
    if not isinstance(copied.get("name"), str) or not copied["name"]:
        raise ValueError("the Agent's identity needs a 'name'")
    for key, value in copied.items():
        if type(key) is not str:
            raise TypeError(f"the identity has the key {key!r}; keys are strings")
        if value is not None and type(value) not in (str, int, float, bool):
            raise TypeError(f"the identity's {key!r} is a {type(value).__name__}; give a JSON scalar")
        if type(value) is float and not math.isfinite(value):
            raise ValueError(f"the identity's {key!r} is {value}, which JSON cannot hold")
    return MappingProxyType(copied)


def _require_text(what: str, text: object) -> None:
    if type(text) is not str:
        raise TypeError(f"{what} is a {type(text).__name__}; give a string")
    if not text.strip():
        raise ValueError(f"{what} is empty")
    if "\0" in text:
        raise ValueError(f"{what} holds a NUL character, which no program can receive")
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise ValueError(f"{what} cannot be encoded as UTF-8: {error}") from error
