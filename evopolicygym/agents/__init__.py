"""Agents: who improves the Policy. Each one turns a task into a process to start, and its output into events."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from evopolicygym.agents.claude_code import ClaudeCode
    from evopolicygym.agents.codex import Codex
    from evopolicygym.agents.command import CommandAgent
    from evopolicygym.agents.events import AgentDiagnosis, AgentEvent, AgentExit, AgentUsage
    from evopolicygym.agents.invocation import (
        AgentInvocation,
        AgentTask,
        CodingAgent,
        command_invocation,
        resolve_executable,
    )
    from evopolicygym.agents.kimi_code import KimiCode
    from evopolicygym.agents.stream import EventReader
    from evopolicygym.agents.tuner import ParameterTuner

__all__ = [
    "AgentDiagnosis",
    "AgentEvent",
    "AgentExit",
    "AgentInvocation",
    "AgentTask",
    "AgentUsage",
    "ClaudeCode",
    "Codex",
    "CodingAgent",
    "CommandAgent",
    "EventReader",
    "KimiCode",
    "ParameterTuner",
    "command_invocation",
    "resolve_executable",
]

# Resolved on first use (PEP 562): the tuner's own process lives below this package and needs little of it.
_HOMES = {
    "AgentDiagnosis": "events",
    "AgentEvent": "events",
    "AgentExit": "events",
    "AgentInvocation": "invocation",
    "AgentTask": "invocation",
    "AgentUsage": "events",
    "ClaudeCode": "claude_code",
    "Codex": "codex",
    "CodingAgent": "invocation",
    "CommandAgent": "command",
    "EventReader": "stream",
    "KimiCode": "kimi_code",
    "ParameterTuner": "tuner",
    "command_invocation": "invocation",
    "resolve_executable": "invocation",
}


def __getattr__(name: str) -> object:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    import importlib

    value: object = getattr(importlib.import_module(f"{__name__}.{home}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
