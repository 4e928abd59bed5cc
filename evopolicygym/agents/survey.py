"""Which coding agents there are on this machine: where, which version, how they are logged in."""

import os
import re
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from evopolicygym.agents import claude_code, codex, kimi_code
from evopolicygym.agents.events import AgentExit
from evopolicygym.agents.invocation import CodingAgent, resolve_executable
from evopolicygym.agents.provider import Provider, describe_login
from evopolicygym.agents.provider_failures import diagnose_exit
from evopolicygym.agents.provider_login import LogIn, find_login
from evopolicygym.errors import AgentRunError
from evopolicygym.process import Supervisor

__all__ = ["PROVIDERS", "AgentStatus", "agent_for_address", "program_version", "survey"]

PROVIDERS: tuple[Provider, ...] = (codex.PROVIDER, claude_code.PROVIDER, kimi_code.PROVIDER)

VERSION_SECONDS = 30.0
"""How long a program may take to tell its version; the first start of a large one on a cold disk is slow."""


@dataclass(frozen=True, slots=True)
class AgentStatus:
    """What is known of one coding agent here.

    Args:
        name: As a spec says it.
        title: The program's name for people.
        executable: Its path, None if it was not found.
        version: As it tells itself.
        tested_version: The version that our suite of whole Runs passes with.
        log_in: Where a log-in was found (never its value), or how to log in.
        logged_in: Whether one was found; None where only the program can tell.
        problem: What is in the way of using it, and what to do; None if nothing is.
    """

    name: str
    title: str
    executable: str | None
    version: str | None
    tested_version: str
    log_in: str
    logged_in: bool | None
    problem: str | None

    @property
    def older_than_tested(self) -> bool:
        """Whether the version found is older than the one that was tested."""
        return self.version is not None and _numbers(self.version) < _numbers(self.tested_version)


def survey(environment: Mapping[str, str]) -> list[AgentStatus]:
    """Look for all coding agents that are known here; each program is asked for its version.

    Args:
        environment: The environment of the Host.
    """
    return [_status(provider, environment) for provider in PROVIDERS]


def _status(provider: Provider, environment: Mapping[str, str]) -> AgentStatus:
    executable = version = problem = None
    try:
        executable = resolve_executable(provider.executable, hint=provider.install)
    except AgentRunError:
        problem = f"not installed. {provider.install}"
    else:
        version, problem = program_version(provider, executable, environment)
    login = _find_login(provider, environment)
    return AgentStatus(
        name=provider.name,
        title=provider.title,
        executable=executable,
        version=version,
        tested_version=provider.tested_version,
        log_in=describe_login(provider, login),
        logged_in=None if login.kind == "unknown" else login.kind != "none",
        problem=problem,
    )


def _find_login(provider: Provider, environment: Mapping[str, str]) -> LogIn:
    login = find_login(provider.login, environment)
    if provider is kimi_code.PROVIDER and login.kind == "unknown":
        return kimi_code.configured_login(login)
    return login


def program_version(
    provider: Provider, executable: str, environment: Mapping[str, str]
) -> tuple[str | None, str | None]:
    """Ask a program for its version.

    Returns:
        The version, or None and why it could not be told.
    """
    kept = {name: environment[name] for name in ("HOME", "LANG", "TMPDIR") if name in environment}
    beside = [str(Path(executable).parent)] if (Path(executable).parent / "node").is_file() else []
    kept["PATH"] = os.pathsep.join([*beside, environment.get("PATH", os.defpath)])
    code, output, errors = _run_briefly([executable, "--version"], kept | dict(provider.environment))
    if code is None:
        return None, f"{executable} --version did not end within {VERSION_SECONDS:g} s"
    found = re.search(r"\b\d+\.\d+[\w.+-]*", output)
    if code == 0 and found and "deprecated" not in (output + errors).lower():
        return found[0], None
    end = AgentExit(returncode=code, stderr_tail=errors, stdout_tail=output)
    diagnosis = diagnose_exit(provider.title, provider.failures, provider.stub_advice or provider.install, end)
    return None, diagnosis.message if diagnosis else f"{executable} --version failed with {code}"


def _run_briefly(argv: Sequence[str], environment: Mapping[str, str]) -> tuple[int | None, str, str]:
    with tempfile.TemporaryDirectory() as place, Supervisor() as supervisor:
        paths = (Path(place, "stdout"), Path(place, "stderr"))
        with paths[0].open("wb") as stdout, paths[1].open("wb") as stderr:
            try:
                child = supervisor.start(argv, env=environment, stdout=stdout.fileno(), stderr=stderr.fileno())
            except OSError as error:
                return 127, "", f"error: {error.strerror}"
            code = child.wait(VERSION_SECONDS)
            child.kill_tree()
        told = [path.read_text(encoding="utf-8", errors="replace")[-16_384:] for path in paths]
    return code, told[0], told[1]


def agent_for_address(name: str, executable: str, address: str) -> CodingAgent:
    """An Agent that talks to the model server at an address, whatever the user's own log-in.

    Args:
        name: Of the provider.
        executable: Its path.
        address: Of the server, without ``/v1``.
    """
    if name == "codex":
        return codex.Codex(model="probe", reasoning_effort="low", executable=executable, base_url=f"{address}/v1")
    if name == "claude-code":
        return claude_code.ClaudeCode(
            model="probe", effort="low", executable=executable, base_url=address, allow_root=True
        )
    return kimi_code.KimiCode(model="probe", executable=executable, base_url=f"{address}/v1", provider_type="openai")


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", version)[:3])
