"""Agents: who improves the Policy. Each one turns a task into a process to start, and its output into events."""

from typing import TYPE_CHECKING

from evopolicygym.first_use import on_first_use

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

# On first use: the tuner's own process lives below this package and needs little of it.
__getattr__, __dir__ = on_first_use(
    __name__,
    {
        "AgentDiagnosis": "evopolicygym.agents.events",
        "AgentEvent": "evopolicygym.agents.events",
        "AgentExit": "evopolicygym.agents.events",
        "AgentInvocation": "evopolicygym.agents.invocation",
        "AgentTask": "evopolicygym.agents.invocation",
        "AgentUsage": "evopolicygym.agents.events",
        "ClaudeCode": "evopolicygym.agents.claude_code",
        "Codex": "evopolicygym.agents.codex",
        "CodingAgent": "evopolicygym.agents.invocation",
        "CommandAgent": "evopolicygym.agents.command",
        "EventReader": "evopolicygym.agents.stream",
        "KimiCode": "evopolicygym.agents.kimi_code",
        "ParameterTuner": "evopolicygym.agents.tuner",
        "command_invocation": "evopolicygym.agents.invocation",
        "resolve_executable": "evopolicygym.agents.invocation",
    },
)
