"""Codex CLI as an Agent: its table, its command line, its stream."""

import json
import os
from collections.abc import Iterable, Mapping, Sequence

from evopolicygym.agents.events import AgentEvent
from evopolicygym.agents.invocation import AgentInvocation, AgentTask, resolve_executable
from evopolicygym.agents.provider import (
    Plan,
    Provider,
    check_choice,
    check_model,
    check_options,
    log_in_of,
    provider_invocation,
)
from evopolicygym.agents.provider_failures import FailurePattern
from evopolicygym.agents.provider_login import LogIn, LogInTable
from evopolicygym.agents.provider_stream import OpenCalls, as_count, as_mapping, as_text, read_object

__all__ = ["PROVIDER", "REASONING_EFFORTS", "Codex", "CodexStream"]

REASONING_EFFORTS = ("none", "minimal", "low", "medium", "high", "xhigh", "max", "ultra")
"""The program takes any word, and falls back in silence; so we check."""

PROVIDER = Provider(
    name="codex",
    title="Codex CLI",
    executable="codex",
    package="@openai/codex",
    tested_version="0.171.0",
    install="Install it with: npm install -g @openai/codex@0.171.0",
    login=LogInTable(
        home_variable="CODEX_HOME",
        home_directory=".codex",
        files=("auth.json",),
        key_variables=("CODEX_API_KEY", "OPENAI_API_KEY"),
        advice="export OPENAI_API_KEY, or run: codex login",
    ),
    passed_variables=("OPENAI_ORGANIZATION", "OPENAI_PROJECT"),
    failures=(
        FailurePattern(
            "usage_limit",
            r"usage limit|quota exceeded|insufficient_quota|billing|\b429\b|too many requests|rate limit",
            "Wait for the limit to reset, or use another account, then resume the Run",
        ),
        FailurePattern(
            "authentication",
            r"\bstatus 40[13]\b|unauthorized|forbidden|invalid_api_key|not logged in|log ?in again|sign ?in again"
            r"|refresh token|missing environment variable",
            "Check OPENAI_API_KEY, or run: codex login",
        ),
        FailurePattern(
            "overloaded",
            r"\bstatus 5\d\d\b|high demand|overloaded|at capacity|internal server error",
            "The model's server has trouble; resume the Run later",
        ),
        FailurePattern(
            "network",
            r"stream disconnected|error sending request|connection|timed? ?out|dns|network|unreachable",
            "Check the network, the proxy and base_url, then resume the Run",
        ),
        FailurePattern(
            "invalid_options",
            r"unexpected argument|unrecognized|invalid value|unknown feature|error loading config|not supported"
            r"|does not exist|\bstatus 40[04]\b",
            "Check model, reasoning_effort and extra_arguments, and the version of Codex CLI",
        ),
        FailurePattern(
            "incompatible",
            r"SyntaxError|missing optional dependency|unsupported platform|Cannot find module",
            "Install Codex CLI anew: npm install -g @openai/codex",
        ),
    ),
)

# What would have it ask somebody, tell somebody, or learn of the task elsewhere.
_QUIET = (
    # A login shell reads /etc/profile, which on many systems sets PATH anew, without evopolicygym-session.
    "allow_login_shell=false",
    "project_doc_max_bytes=0",
    "skills.include_instructions=false",  # those of a directory above; the Run's own are named in the task
    'web_search="disabled"',
    "analytics.enabled=false",
    "check_for_update_on_startup=false",
    "features.plugins=false",
    "features.apps=false",
    # It would otherwise try for ever to reach a server that is not there.
    "features.unbounded_connection_retries=false",
)
_OWN_PROVIDER = "evopolicygym"


class Codex:
    """OpenAI's Codex CLI, run unattended.

    It works without its own sandbox and without asking; the Run's execution is what isolates. Web search, plugins,
    apps, project instructions and the user's configuration are off, so that two people measure the same thing.

    Args:
        model: Name of the model.
        reasoning_effort: ``"low"``, ``"medium"``, ``"high"``, ``"xhigh"`` …: what the model offers.
        executable: Name on PATH, or path.
        view_image: Whether the model may look at image files.
        base_url: Address of another server that speaks the Responses API, such as ``"http://localhost:8000/v1"``.
        api_key_variable: Name of the variable that holds the key; by default CODEX_API_KEY, then OPENAI_API_KEY.
        extra_arguments: Further arguments of ``codex exec``.
        inherited_environment: Names of further variables to pass on.
        environment: Further values to set.

    Raises:
        TypeError: an option of the wrong type.
        ValueError: an option out of its range.
    """

    def __init__(
        self,
        *,
        model: str,
        reasoning_effort: str,
        executable: str = "codex",
        view_image: bool = False,
        base_url: str | None = None,
        api_key_variable: str | None = None,
        extra_arguments: Sequence[str] = (),
        inherited_environment: Sequence[str] = (),
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self.model = check_model(model)
        self.reasoning_effort = check_choice("reasoning_effort", reasoning_effort, REASONING_EFFORTS)
        self.executable = executable
        if type(view_image) is not bool:
            raise ValueError(f"view_image is {view_image!r}; give true or false")
        self.view_image = view_image
        self.options = check_options(
            base_url=base_url,
            api_key_variable=api_key_variable,
            extra_arguments=extra_arguments,
            inherited_environment=inherited_environment,
            environment=environment,
        )

    def __repr__(self) -> str:
        return f"Codex(model={self.model!r}, reasoning_effort={self.reasoning_effort!r})"

    def build_invocation(self, task: AgentTask) -> AgentInvocation:
        """See :class:`~evopolicygym.agents.CodingAgent`.

        Raises:
            AgentRunError: the program is not there, or the variable named in ``api_key_variable`` is not set.
        """
        executable = resolve_executable(self.executable, hint=PROVIDER.install)
        login = log_in_of(PROVIDER, self.options, os.environ)
        plan = Plan(
            arguments=self._arguments(login),
            identity={
                "provider": "openai",
                "model": self.model,
                "reasoning_effort": self.reasoning_effort,
                "view_image": self.view_image,
            },
            task_delivery="stdin",
            task_substitute=["-"],
            key_name="OPENAI_API_KEY",
            new_parser=CodexStream,
        )
        return provider_invocation(
            PROVIDER, plan, self.options, login, executable=executable, task=task, environment=os.environ
        )

    def _arguments(self, login: LogIn) -> list[str]:
        settings = [f'model_reasoning_effort="{self.reasoning_effort}"', *_QUIET]
        if not self.view_image:
            settings.append("features.view_image=false")
        if self.options.base_url is not None:
            key = login.source if login.kind == "key" and self.options.api_key_variable is None else "OPENAI_API_KEY"
            fields = {"name": _OWN_PROVIDER, "base_url": self.options.base_url, "env_key": key, "wire_api": "responses"}
            table = ", ".join(f"{name} = {json.dumps(value)}" for name, value in fields.items())
            settings.append(f'model_provider="{_OWN_PROVIDER}"')
            settings.append(f"model_providers.{_OWN_PROVIDER}={{ {table} }}")
        arguments = ["--ask-for-approval", "never"]  # must stand before exec
        for setting in settings:
            arguments += ["--config", setting]
        arguments += ["exec", "--ephemeral", "--json", "--model", self.model]
        arguments += ["--sandbox", "danger-full-access", "--skip-git-repo-check"]
        arguments += ["--ignore-user-config", "--ignore-rules", "--color", "never"]
        return arguments


class CodexStream:
    """Parses one stream of ``codex exec --json``."""

    def __init__(self) -> None:
        self._calls = OpenCalls()

    def __call__(self, line: str) -> Iterable[AgentEvent]:
        """The events of one line."""
        said = read_object(line)
        kind = said.get("type")
        if kind == "thread.started":
            yield AgentEvent(kind="session_start", session_id=as_text(said.get("thread_id")) or None)
        elif kind in ("item.started", "item.completed"):
            yield from self._item(as_mapping(said.get("item")), completed=kind == "item.completed")
        elif kind == "turn.completed":
            used = as_mapping(said.get("usage"))
            yield AgentEvent(
                kind="usage",
                input_tokens=as_count(used.get("input_tokens")),
                cached_tokens=as_count(used.get("cached_input_tokens")),
                output_tokens=as_count(used.get("output_tokens")),
            )
            yield AgentEvent(kind="end", failed=False)
        elif kind == "turn.failed":
            text = as_text(as_mapping(said.get("error")).get("message"))
            yield AgentEvent(kind="error", text=text or "the turn failed", fatal=True)
            yield AgentEvent(kind="end", failed=True, text=text or None)
        elif kind == "error":  # it reconnects by itself; what ends the work is a failed turn
            yield AgentEvent(kind="error", text=as_text(said.get("message")), fatal=False)

    def _item(self, item: Mapping[str, object], *, completed: bool) -> Iterable[AgentEvent]:
        kind = item.get("type")
        text = as_text(item.get("text"))
        if kind == "agent_message" and completed:
            yield AgentEvent(kind="message", text=text)
            yield AgentEvent(kind="usage", turns=1)
        elif kind == "reasoning" and completed:
            yield AgentEvent(kind="reasoning", text=text)
        elif kind == "error" and completed:
            yield AgentEvent(kind="error", text=as_text(item.get("message")), fatal=False)
        elif kind not in ("agent_message", "reasoning", "error", "todo_list") and item.get("id"):
            yield self._call(item, completed=completed)

    def _call(self, item: Mapping[str, object], *, completed: bool) -> AgentEvent:
        call_id = as_text(item["id"])
        is_command = item.get("type") == "command_execution"
        command = as_text(item.get("command")) or None
        begun = self._calls.begin(call_id, "shell" if is_command else as_text(item.get("type")), command)
        if not completed:
            return begun
        code = item.get("exit_code")
        exit_code = code if type(code) is int else None
        failed = item.get("status") in ("failed", "declined") or bool(exit_code)
        return self._calls.end(call_id, text=as_text(item.get("aggregated_output")), exit_code=exit_code, failed=failed)
