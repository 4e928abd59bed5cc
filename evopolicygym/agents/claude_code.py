"""Claude Code as an Agent: its table, its command line, its stream."""

import os
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path

from evopolicygym.agents.events import AgentEvent
from evopolicygym.agents.invocation import AgentInvocation, AgentTask, resolve_executable
from evopolicygym.agents.provider import (
    Plan,
    Provider,
    check_choice,
    check_count,
    check_model,
    check_options,
    log_in_of,
    provider_invocation,
)
from evopolicygym.agents.provider_failures import FailurePattern
from evopolicygym.agents.provider_login import LogIn, LogInTable
from evopolicygym.agents.provider_stream import OpenCalls, as_count, as_mapping, as_text, read_object

__all__ = ["EFFORTS", "PROVIDER", "ClaudeCode", "ClaudeStream"]

EFFORTS = ("low", "medium", "high", "xhigh", "max")
"""The program only warns of another word, and then works with another effort; so we check."""

PROVIDER = Provider(
    name="claude-code",
    title="Claude Code",
    executable="claude",
    package="@anthropic-ai/claude-code",
    tested_version="2.1.332",
    install="Install it with: npm install -g @anthropic-ai/claude-code@2.1.332",
    login=LogInTable(
        home_variable="CLAUDE_CONFIG_DIR",
        home_directory=".claude",
        files=(".credentials.json",),
        key_variables=("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN"),
        token_variables=("CLAUDE_CODE_OAUTH_TOKEN",),
        keychain=True,
        advice="export ANTHROPIC_API_KEY, or export CLAUDE_CODE_OAUTH_TOKEN (made by: claude setup-token), or start"
        " claude and say: /login",
    ),
    environment={"CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1"},
    passed_variables=("ANTHROPIC_BASE_URL", "ANTHROPIC_CUSTOM_HEADERS"),
    failures=(
        FailurePattern(
            "refused_as_root",
            r"cannot be used with root|root/sudo",
            "Run as an ordinary user, or say allow_root = true if this machine is a container of your own",
        ),
        FailurePattern(
            "limit_reached", r"^\[error_max_(turns|budget_usd)\]", "Raise max_turns or max_cost_usd for a longer Run"
        ),
        FailurePattern(
            "usage_limit",
            r"^\[429\]|usage limit|limit reached|hit your limit|credit balance|quota|rate.?limit",
            "Wait for the limit to reset, or use another account, then resume the Run",
        ),
        FailurePattern(
            "authentication",
            r"^\[40[13]\]|failed to authenticate|not logged in|/login|invalid api key|oauth token",
            "Check ANTHROPIC_API_KEY or CLAUDE_CODE_OAUTH_TOKEN, or log in again",
        ),
        FailurePattern(
            "overloaded",
            r"^\[5\d\d\]|overloaded|server-side issue|internal server error",
            "The model's server has trouble; resume the Run later",
        ),
        FailurePattern(
            "network",
            r"connection|unable to connect|econn|enotfound|etimedout|timed? ?out|network|fetch failed|socket",
            "Check the network, the proxy and base_url, then resume the Run",
        ),
        FailurePattern(
            "invalid_options",
            r"unknown option|invalid|^\[40[04]\]|issue with the selected model|not_found",
            "Check model, effort and extra_arguments, and the version of Claude Code",
        ),
        FailurePattern("incompatible", r"SyntaxError|native binary not", "Install Claude Code anew"),
    ),
)

_ABSURD_COST = 1e9
_TOOLS = "Bash,Edit,Read"


class ClaudeCode:
    """Anthropic's Claude Code, run unattended.

    It works without asking for permission; the Run's execution is what isolates. Whatever the log-in, it has the same
    three tools (shell, edit, read) and knows nothing of the user's settings, memory, plugins and MCP servers.

    Args:
        model: Name or alias of the model.
        effort: ``"low"``, ``"medium"``, ``"high"``, ``"xhigh"`` or ``"max"``.
        executable: Name on PATH, or path.
        allow_root: Whether it may work as root without a sandbox of ours. It refuses to by itself; say so only where
            the machine is a container of your own.
        max_turns: The most answers of the model; then it ends.
        max_cost_usd: The most US dollars, as Claude Code counts them; then it ends.
        base_url: Address of a gateway, or of another server that speaks the Messages API.
        api_key_variable: Name of the variable that holds the key; by default ANTHROPIC_API_KEY, then
            ANTHROPIC_AUTH_TOKEN, then CLAUDE_CODE_OAUTH_TOKEN.
        extra_arguments: Further arguments of ``claude``.
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
        effort: str,
        executable: str = "claude",
        allow_root: bool = False,
        max_turns: int | None = None,
        max_cost_usd: float | None = None,
        base_url: str | None = None,
        api_key_variable: str | None = None,
        extra_arguments: Sequence[str] = (),
        inherited_environment: Sequence[str] = (),
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self.model = check_model(model)
        self.effort = check_choice("effort", effort, EFFORTS)
        self.executable = executable
        if type(allow_root) is not bool:
            raise ValueError(f"allow_root is {allow_root!r}; give true or false")
        self.allow_root = allow_root
        self.max_turns = check_count("max_turns", max_turns)
        if max_cost_usd is not None and not (type(max_cost_usd) in (int, float) and 0 < max_cost_usd < 1e9):
            raise ValueError(f"max_cost_usd is {max_cost_usd!r}; give a number above 0, or leave it out")
        self.max_cost_usd = max_cost_usd
        self.options = check_options(
            base_url=base_url,
            api_key_variable=api_key_variable,
            extra_arguments=extra_arguments,
            inherited_environment=inherited_environment,
            environment=environment,
        )

    def __repr__(self) -> str:
        return f"ClaudeCode(model={self.model!r}, effort={self.effort!r})"

    def build_invocation(self, task: AgentTask) -> AgentInvocation:
        """See :class:`~evopolicygym.agents.CodingAgent`.

        Raises:
            AgentRunError: the program is not there, or the variable named in ``api_key_variable`` is not set.
        """
        executable = resolve_executable(self.executable, hint=PROVIDER.install)
        login = log_in_of(PROVIDER, self.options, os.environ)
        values = {"ANTHROPIC_BASE_URL": self.options.base_url} if self.options.base_url is not None else {}
        is_root = os.geteuid() == 0
        if is_root and self.allow_root:
            values["IS_SANDBOX"] = "1"  # exactly 1: with another value it refuses
        stream = _Streams()
        plan = Plan(
            arguments=self._arguments(login),
            identity={"provider": "anthropic", "model": self.model, "effort": self.effort, **self._limits()},
            task_delivery="stdin",
            key_name="ANTHROPIC_API_KEY",
            environment=values,
            new_parser=stream.new,
            closing_events=stream.closing_events,
            refusal=_ROOT_REFUSAL if is_root and not self.allow_root else None,
            sandbox_environment={"IS_SANDBOX": "1"} if is_root else {},
        )
        return provider_invocation(
            PROVIDER, plan, self.options, login, executable=executable, task=task, environment=os.environ
        )

    def _limits(self) -> dict[str, int | float]:
        limits = {"max_turns": self.max_turns, "max_cost_usd": self.max_cost_usd}
        return {name: value for name, value in limits.items() if value is not None}

    def _arguments(self, login: LogIn) -> list[str]:
        arguments = ["--print", "--output-format", "stream-json", "--verbose", "--model", self.model]
        arguments += ["--effort", self.effort, "--permission-mode", "bypassPermissions"]
        arguments += ["--no-session-persistence", "--no-chrome", "--strict-mcp-config", "--tools", _TOOLS]
        # --bare reads no file of the user's, and with them none that holds a log-in.
        arguments += ["--bare"] if login.kind in ("key", "none") else ["--setting-sources", ""]
        if self.max_turns is not None:
            arguments += ["--max-turns", str(self.max_turns)]
        if self.max_cost_usd is not None:
            arguments += ["--max-budget-usd", str(self.max_cost_usd)]
        return arguments


_ROOT_REFUSAL = (
    "Claude Code refuses to work as root without asking for permission. Run as an ordinary user; or, if this machine is"
    " a container of your own that it may do anything to, say so: allow_root = true in [agent]"
)


class _Streams:
    """The parser of the present start, for what its stream left open."""

    def __init__(self) -> None:
        self._parser: ClaudeStream | None = None

    def new(self) -> "ClaudeStream":
        self._parser = ClaudeStream()
        return self._parser

    def closing_events(self, state: Path) -> Iterable[AgentEvent]:
        del state
        return self._parser.unfinished_usage() if self._parser is not None else ()


class ClaudeStream:
    """Parses one stream of ``claude --output-format stream-json``."""

    def __init__(self) -> None:
        self._calls = OpenCalls()
        self._told = AgentEvent(kind="usage", turns=0, input_tokens=0, cached_tokens=0, output_tokens=0)
        self._cost = 0.0
        self._answers: dict[str, tuple[int, int, int]] = {}
        self._ended = False

    def __call__(self, line: str) -> Iterable[AgentEvent]:
        """The events of one line."""
        said = read_object(line)
        kind = said.get("type")
        if kind == "system":
            return self._system(said)
        if kind == "assistant":
            return self._assistant(said)
        if kind == "user":
            return self._results(said)
        if kind == "rate_limit_event":
            return self._rate_limit(as_mapping(said.get("rate_limit_info")))
        if kind == "result":
            return self._result(said)
        return ()

    def unfinished_usage(self) -> Iterable[AgentEvent]:
        """Tokens of a session that was ended before it summed them up: the least that its answers told."""
        if self._ended or not self._answers:
            return
        read, cached, written = (sum(column) for column in zip(*self._answers.values(), strict=True))
        yield AgentEvent(
            kind="usage", turns=len(self._answers), input_tokens=read, cached_tokens=cached, output_tokens=written
        )

    def _system(self, said: Mapping[str, object]) -> Iterable[AgentEvent]:
        subtype = said.get("subtype")
        if subtype == "init":
            version = as_text(said.get("claude_code_version"))
            yield AgentEvent(
                kind="session_start",
                session_id=as_text(said.get("session_id")) or None,
                model=as_text(said.get("model")) or None,
                text=f"Claude Code {version}" if version else None,
            )
        elif subtype == "api_retry":
            status = said.get("error_status")
            yield AgentEvent(
                kind="error",
                code=str(status) if type(status) is int else None,
                text=f"{as_text(said.get('error'))}; try {said.get('attempt')} of {said.get('max_retries')}",
                fatal=False,
            )

    def _assistant(self, said: Mapping[str, object]) -> Iterable[AgentEvent]:
        message = as_mapping(said.get("message"))
        if said.get("is_api_error_message"):  # the result says the same, with its status
            return
        self._note_answer(message)
        content = message.get("content")
        for part in map(as_mapping, content if isinstance(content, list) else []):
            kind = part.get("type")
            if kind == "text":
                yield AgentEvent(kind="message", text=as_text(part.get("text")))
            elif kind == "thinking":
                yield AgentEvent(kind="reasoning", text=as_text(part.get("thinking")))
            elif kind == "tool_use":
                asked = as_mapping(part.get("input"))
                command = as_text(asked.get("command")) or as_text(asked.get("file_path")) or None
                yield self._calls.begin(as_text(part.get("id")), as_text(part.get("name")) or None, command)

    def _note_answer(self, message: Mapping[str, object]) -> None:
        """One answer comes in several pieces, each with the same, preliminary usage."""
        used = as_mapping(message.get("usage"))
        name = as_text(message.get("id"))[:200]
        if name and used:
            cached = as_count(used.get("cache_read_input_tokens"))
            read = as_count(used.get("input_tokens")) + as_count(used.get("cache_creation_input_tokens")) + cached
            self._answers[name] = (read, cached, as_count(used.get("output_tokens")))

    def _results(self, said: Mapping[str, object]) -> Iterable[AgentEvent]:
        content = as_mapping(said.get("message")).get("content")
        for part in map(as_mapping, content if isinstance(content, list) else []):
            if part.get("type") != "tool_result":
                continue
            text = as_text(part.get("content"))
            failed = part.get("is_error") is True
            first, _, rest = text.partition("\n")
            code = first.removeprefix("Exit code ").strip()
            exit_code = int(code) if failed and first.startswith("Exit code ") and code.isdecimal() else None
            yield self._calls.end(
                as_text(part.get("tool_use_id")),
                text=rest if exit_code is not None else text,
                exit_code=exit_code,
                failed=failed,
            )

    def _rate_limit(self, info: Mapping[str, object]) -> Iterable[AgentEvent]:
        if info.get("status") == "rejected":
            reset = info.get("resetsAt")
            when = f"; resets at {_moment(reset)}" if type(reset) is int else ""
            yield AgentEvent(
                kind="error", code="429", fatal=False, text=f"usage limit {as_text(info.get('rateLimitType'))}{when}"
            )

    def _result(self, said: Mapping[str, object]) -> Iterable[AgentEvent]:
        self._ended = True
        yield from self._increase(said)
        text = as_text(said.get("result")) or as_text(said.get("errors"))
        failed = said.get("is_error") is not False  # an API's failure is called a success otherwise
        if failed:
            status = said.get("api_error_status")
            code = str(status) if type(status) is int else as_text(said.get("subtype"))
            reason = as_text(said.get("terminal_reason"))
            yield AgentEvent(kind="error", code=code or None, text=text or reason or "it failed", fatal=True)
        yield AgentEvent(kind="end", failed=failed, text=text if failed else None)

    def _increase(self, said: Mapping[str, object]) -> Iterable[AgentEvent]:
        """Totals, which a further result of the same session repeats and raises, as increases."""
        models = [as_mapping(value) for value in as_mapping(said.get("modelUsage")).values()]
        used = as_mapping(said.get("usage"))
        names = ("inputTokens", "cacheCreationInputTokens", "cacheReadInputTokens", "outputTokens")
        if not models:
            models = [used]
            names = ("input_tokens", "cache_creation_input_tokens", "cache_read_input_tokens", "output_tokens")
        fresh, created, cached, written = (sum(as_count(model.get(name)) for model in models) for name in names)
        now = AgentEvent(
            kind="usage",
            turns=as_count(said.get("num_turns")),
            input_tokens=fresh + created + cached,
            cached_tokens=cached,
            output_tokens=written,
        )
        counts = ("turns", "input_tokens", "cached_tokens", "output_tokens")
        more = {name: max(getattr(now, name) - getattr(self._told, name), 0) for name in counts}
        self._told = now
        yield AgentEvent(kind="usage", **more)
        cost = said.get("total_cost_usd")
        if isinstance(cost, int | float) and not isinstance(cost, bool) and 0 <= cost < _ABSURD_COST:
            yield AgentEvent(kind="cost", cost_usd=max(cost - self._cost, 0.0))
            self._cost = cost


def _moment(epoch_seconds: int) -> str:
    try:
        return f"{datetime.fromtimestamp(epoch_seconds, UTC):%Y-%m-%d %H:%M} UTC"
    except (ValueError, OverflowError, OSError):
        return str(epoch_seconds)
