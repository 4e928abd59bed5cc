"""What exactly is executed for an Agent: its arguments, its standard input and its environment."""

import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from evopolicygym.agents import AgentInvocation, AgentTask

__all__ = ["AgentLaunch", "plan_launch"]

# What a program needs to find its files, its user and its language.
_ORDINARY_NAMES = frozenset(
    {"HOME", "LANG", "LANGUAGE", "LD_LIBRARY_PATH", "LOGNAME", "SHELL", "TERM", "TMPDIR", "TZ", "USER"}
    | {"NO_PROXY", "no_proxy", "SSL_CERT_DIR", "SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "NODE_EXTRA_CA_CERTS"}
)
# Without these an Agent behind a proxy cannot reach its model; the address may carry a password.
_PROXY_NAMES = frozenset({"ALL_PROXY", "HTTPS_PROXY", "HTTP_PROXY", "all_proxy", "https_proxy", "http_proxy"})


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentLaunch:
    """What to execute.

    Args:
        argv: executable and arguments, as they are.
        task_on_stdin: whether the task text is its standard input, which is empty otherwise.
        environment: the whole environment of the process.
        passed_names: names taken from the Host's environment or set for this Agent, which the Record may tell.
        secrets: values, by name, that must not stay in any file of the Record.
    """

    argv: tuple[str, ...]
    task_on_stdin: bool
    environment: Mapping[str, str] = field(repr=False)
    passed_names: tuple[str, ...]
    secrets: Mapping[str, str] = field(repr=False)


def plan_launch(
    invocation: AgentInvocation,
    task: AgentTask,
    *,
    task_file: Path,
    host_environment: Mapping[str, str],
    session_environment: Mapping[str, str],
    state_environment: Mapping[str, str],
    sandboxed: bool = False,
) -> AgentLaunch:
    """Put arguments and environment together; touches nothing.

    Args:
        invocation: what the Agent asked for.
        task: the task that it was built for.
        task_file: where the task text lies.
        host_environment: the Host's environment, of which little is passed on.
        session_environment: how the Agent finds its Session; always wins.
        state_environment: what ``invocation.prepare_state`` returned.
        sandboxed: whether it runs in a sandbox of ours.

    Raises:
        AgentRunError: an argument is longer than the platform takes.
    """
    ordinary = {n: v for n, v in host_environment.items() if n in _ORDINARY_NAMES or n.startswith("LC_")}
    proxies = {n: v for n, v in host_environment.items() if n in _PROXY_NAMES}
    inherited = {n: host_environment[n] for n in invocation.inherited_environment if n in host_environment}
    own = {**inherited, **invocation.environment, **state_environment}
    if sandboxed:
        own |= invocation.sandbox_environment
    environment = {**ordinary, **proxies, **own, **session_environment}
    environment["PATH"] = _search_path(own.get("PATH", host_environment.get("PATH", os.defpath)))
    plain = {"PATH", *_ORDINARY_NAMES, *invocation.plain_names}
    return AgentLaunch(
        argv=invocation.arguments(task, task_file=task_file),
        task_on_stdin=invocation.standard_input(task) is not None,
        environment=environment,
        passed_names=tuple(sorted({*ordinary, *proxies, *own, "PATH"})),
        secrets={n: v for n, v in {**proxies, **own}.items() if n not in plain},
    )


def _search_path(path: str) -> str:
    """The Host interpreter's directory first, so that ``evopolicygym-session`` is the Host's own."""
    here = str(Path(sys.executable).parent)
    return os.pathsep.join([here, *(item for item in path.split(os.pathsep) if item and item != here)])
