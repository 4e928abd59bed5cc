"""Interprets the table of a provider: what is told about its program becomes an invocation."""

import json
import os
import re
import site
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from evopolicygym.agents.events import AgentEvent
from evopolicygym.agents.invocation import (
    AgentInvocation,
    AgentTask,
    IdentityValue,
    LineParser,
    TaskDelivery,
    command_invocation,
    environment_names,
    environment_values,
)
from evopolicygym.agents.provider_failures import FailurePattern, diagnose_exit
from evopolicygym.agents.provider_login import LogIn, LogInTable, find_login
from evopolicygym.errors import AgentRunError
from evopolicygym.execution.shared_login import SharedLogIn, enclosed_log_in

__all__ = [
    "Plan",
    "Provider",
    "ProviderOptions",
    "check_choice",
    "check_count",
    "check_model",
    "check_options",
    "describe_login",
    "installed_package_version",
    "log_in_of",
    "provider_invocation",
]

KEYLESS = "none"
"""Given as the key to a server of the user's own that needs none: the programs refuse to start without any."""

_STATE = "state"
_HOME = "home"


@dataclass(frozen=True, slots=True, kw_only=True)
class Provider:
    """All that is the same whenever this provider's program is started.

    Args:
        name: Of the Agent, in specs and Records.
        title: The program's name for people.
        executable: Its usual name.
        package: Its package on npm.
        tested_version: The version that the suite of whole Runs passes with.
        install: How to install it, as a sentence.
        login: Where its log-in lies.
        environment: Values that are always set: they keep it quiet.
        passed_variables: Names of variables that it may have from the Host in any case.
        failures: Its ways to fail.
        stub_advice: What to do if it did nothing.
    """

    name: str
    title: str
    executable: str
    package: str
    tested_version: str
    install: str
    login: LogInTable
    environment: Mapping[str, str] = field(default_factory=dict)
    passed_variables: tuple[str, ...] = ()
    failures: tuple[FailurePattern, ...] = ()
    stub_advice: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProviderOptions:
    """What a user may choose with every provider.

    Args:
        base_url: Address of the model's API: a gateway, or a server of the user's own.
        api_key_variable: Name of the Host's variable that holds the key for it.
        extra_arguments: Further arguments for the program.
        inherited_environment: Names of further variables to pass on.
        environment: Further values to set.
    """

    base_url: str | None = None
    api_key_variable: str | None = None
    extra_arguments: tuple[str, ...] = ()
    inherited_environment: tuple[str, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What one start needs beyond the table and the options.

    Args:
        arguments: Of the program, without its name and the task.
        identity: Who this is, without name and version.
        task_option: What stands before the task on the command line.
        task_delivery: How the task travels.
        task_substitute: What stands in its place on the command line then.
        instructions: The task in the form that the program wants, if it differs.
        key_name: The program's own variable for the key.
        environment: Values of this start that are no secret.
        new_parser: A parser of its stream.
        write_state: Writes configuration into the private state directory; returns values that may be secret.
        closing_events: Given the state directory, what the stream did not tell.
        log_in: What of the user's state directory a sandbox of ours hands out, if the log-in lies there; None: the
            files of the table.
        refusal: Why it will not start outside a sandbox of ours.
        sandbox_environment: What is set inside one.
        facts: Further facts for people.
    """

    arguments: Sequence[str]
    identity: Mapping[str, IdentityValue]
    task_option: Sequence[str] = ()
    task_delivery: TaskDelivery
    task_substitute: Sequence[str] = ()
    instructions: str | None = None
    key_name: str
    environment: Mapping[str, str] = field(default_factory=dict)
    new_parser: Callable[[], LineParser]
    write_state: Callable[[Path], Mapping[str, str]] | None = None
    closing_events: Callable[[Path], Iterable[AgentEvent]] | None = None
    log_in: SharedLogIn | None = None
    refusal: str | None = None
    sandbox_environment: Mapping[str, str] = field(default_factory=dict)
    facts: Mapping[str, str] = field(default_factory=dict)


def check_options(
    *,
    base_url: object,
    api_key_variable: object,
    extra_arguments: object,
    inherited_environment: object,
    environment: object,
) -> ProviderOptions:
    """The options, checked.

    Raises:
        TypeError: one is of the wrong type.
        ValueError: an address that is none or holds a password, a wrong name.
    """
    if base_url is not None:
        _check_address(base_url)
    if api_key_variable is not None and (
        type(api_key_variable) is not str or not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", api_key_variable)
    ):
        raise ValueError("api_key_variable must be the name of an environment variable; never write a key itself here")
    if isinstance(extra_arguments, str | bytes) or not isinstance(extra_arguments, Sequence):
        raise TypeError("extra_arguments must be a list of strings")
    for argument in extra_arguments:
        if type(argument) is not str:
            raise TypeError(f"extra_arguments holds {argument!r}; every item must be a string")
        if "\0" in argument:
            raise ValueError("extra_arguments holds a NUL character, which no program can receive")
    return ProviderOptions(
        base_url=base_url if isinstance(base_url, str) else None,
        api_key_variable=api_key_variable if isinstance(api_key_variable, str) else None,
        extra_arguments=tuple(extra_arguments),
        inherited_environment=environment_names(inherited_environment),
        environment=environment_values({} if environment is None else environment),
    )


def _check_address(address: object) -> None:
    if type(address) is not str or not re.fullmatch(r"https?://[^\s/@]+(/[^\s@]*)?", address):
        raise ValueError(
            f"base_url is {'an address with a log-in in it' if '@' in str(address) else repr(address)}; give an"
            " http or https address such as https://gateway.example/v1, and name the variable of its key in"
            " api_key_variable"
        )


def check_model(model: object) -> str:
    """The name of a model, as the program takes it.

    Raises:
        ValueError: it is empty, no string, or would be read as an option.
    """
    if type(model) is not str or not model.strip() or model.startswith("-") or not model.isprintable():
        raise ValueError(f"model is {model!r}; give the name of a model as the program knows it")
    return model


def check_choice(name: str, value: object, known: Sequence[str]) -> str:
    """One of the known words.

    Raises:
        ValueError: another one. The programs take any word without complaint, and then work with another effort.
    """
    if type(value) is not str or value not in known:
        raise ValueError(f"{name} is {value!r}; it can be {', '.join(map(repr, known))}")
    return value


def check_count(name: str, value: object) -> int | None:
    """A whole number above 0, or None.

    Raises:
        ValueError: it is neither.
    """
    if value is not None and (type(value) is not int or value < 1):
        raise ValueError(f"{name} is {value!r}; give a whole number above 0, or leave it out")
    return value


def log_in_of(provider: Provider, options: ProviderOptions, environment: Mapping[str, str]) -> LogIn:
    """The log-in that a start would use.

    Raises:
        AgentRunError: the variable that the user named is not set.
    """
    chosen = options.api_key_variable
    if chosen is not None and not environment.get(chosen):
        raise AgentRunError(f"api_key_variable names {chosen}, which is not set; export {chosen}=…")
    return find_login(provider.login, environment, key_variable=chosen, keyless=options.base_url is not None)


def provider_invocation(
    provider: Provider,
    plan: Plan,
    options: ProviderOptions,
    login: LogIn,
    *,
    executable: str,
    task: AgentTask,
    environment: Mapping[str, str],
) -> AgentInvocation:
    """Put table, options and plan together; touches nothing.

    Args:
        provider: The table.
        plan: This start.
        options: The user's choices.
        login: What :func:`log_in_of` found.
        executable: Absolute path of the program.
        task: The task.
        environment: The environment of the Host.
    """
    version = installed_package_version(executable, provider.package)
    identity: dict[str, IdentityValue] = {"name": provider.name, **plan.identity}
    if options.base_url is not None:
        identity["base_url"] = options.base_url
    if version is not None:
        identity["version"] = version
    fixed = {**provider.environment, **plan.environment}
    plain = {*fixed, provider.login.home_variable, "HOME", "PYTHONUSERBASE"} - set(options.environment)
    # A program that brings its own Node.js has it beside itself, and finds it on PATH only.
    if (Path(executable).parent / "node").is_file():
        fixed["PATH"] = os.pathsep.join([str(Path(executable).parent), environment.get("PATH", os.defpath)])
    return command_invocation(
        [executable, *plan.arguments, *options.extra_arguments, *plan.task_option, task.instructions],
        task,
        identity=identity,
        instructions=plan.instructions,
        inherited_environment=_inherited(provider, options, login),
        stdout_media_type="application/x-ndjson",
        environment={**fixed, **options.environment},
        task_delivery=plan.task_delivery,
        task_substitute=plan.task_substitute,
        new_parser=plan.new_parser,
        diagnose=partial(diagnose_exit, provider.title, provider.failures, provider.stub_advice or provider.install),
        prepare_state=partial(_prepare_state, provider, plan, options, login),
        closing_events=None if plan.closing_events is None else partial(_closing_events, plan, login),
        plain_names=sorted(plain),
        facts=_facts(provider, plan, options, login),
        refusal=plan.refusal,
        sandbox_environment=plan.sandbox_environment,
        log_in=None if login.private else plan.log_in or _shared_log_in(provider.login, login),
    )


def _shared_log_in(table: LogInTable, login: LogIn) -> SharedLogIn:
    return SharedLogIn(variable=table.home_variable, directory=login.home, files=table.files)


def _inherited(provider: Provider, options: ProviderOptions, login: LogIn) -> list[str]:
    names = [*provider.passed_variables, *options.inherited_environment]
    if login.kind in ("key", "token") and options.api_key_variable is None:
        names.append(login.source)
    if not login.private:
        names.append(provider.login.home_variable)
    return names


def _prepare_state(
    provider: Provider, plan: Plan, options: ProviderOptions, login: LogIn, directory: Path
) -> dict[str, str]:
    values: dict[str, str] = {}
    if options.api_key_variable is not None:
        values[plan.key_name] = os.environ[options.api_key_variable]
    elif login.kind == "none" and options.base_url is not None:
        values[plan.key_name] = KEYLESS
    if not login.private:
        return values
    state, home = directory / _STATE, directory / _HOME
    for path in (state, home):
        path.mkdir(mode=0o700)
    if plan.write_state is not None:
        values |= plan.write_state(state)
    values[provider.login.home_variable] = str(state)
    values["HOME"] = str(home)
    if site.ENABLE_USER_SITE:
        # What the user installed with pip --user, perhaps evopolicygym-session itself, is found below HOME otherwise.
        values["PYTHONUSERBASE"] = os.environ.get("PYTHONUSERBASE") or site.getuserbase()
    return values


def _closing_events(plan: Plan, login: LogIn, directory: Path) -> Iterable[AgentEvent]:
    assert plan.closing_events is not None
    if login.private:
        return plan.closing_events(directory / _STATE)
    enclosed = enclosed_log_in(directory)
    return plan.closing_events(enclosed if enclosed.is_dir() else login.home)


def _facts(provider: Provider, plan: Plan, options: ProviderOptions, login: LogIn) -> dict[str, str]:
    facts = {"Log-in": describe_login(provider, login)}
    if login.private:
        facts["State"] = "private to the Run: HOME and the program's own directory are made for it and removed after it"
    else:
        facts["State"] = (
            f"{login.home}, used in place, since refresh tokens are good for one use;"
            " parallel Runs on one log-in may log each other out. A sandbox hands out the log-in alone"
        )
    if options.base_url is not None:
        facts["Model API"] = options.base_url
    return facts | dict(plan.facts)


def describe_login(provider: Provider, login: LogIn) -> str:
    """One line on the log-in; never a value."""
    if login.kind in ("key", "token"):
        return f"from the variable {login.source}"
    if login.kind == "configured":
        return f"a key in {login.source}"
    if login.kind == "file":
        return f"from the file {login.source}"
    if login.kind == "unknown":
        return f"none found, unless {provider.title} knows one of its own; {provider.login.advice}"
    return f"none found; {provider.login.advice}"


def installed_package_version(executable: str, package: str) -> str | None:
    """The version of an npm package that a program belongs to, read from disk; None if that cannot be told."""
    try:
        start = Path(executable).resolve(strict=True)
    except OSError:
        return None
    for directory in list(start.parents)[:6]:
        manifest = directory / "package.json"
        try:
            told = json.loads(manifest.read_bytes())
        except (OSError, ValueError):
            continue
        if isinstance(told, dict) and told.get("name") == package and isinstance(told.get("version"), str):
            return str(told["version"])
    return None
