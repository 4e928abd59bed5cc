"""Kimi Code as an Agent: its table, its command line, its configuration, its stream."""

import os
import re
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path

from evopolicygym.agents.events import AgentEvent
from evopolicygym.agents.invocation import (
    ARGUMENT_MAX_BYTES,
    TASK_FILE,
    AgentInvocation,
    AgentTask,
    resolve_executable,
)
from evopolicygym.agents.kimi_sessions import SessionFiles
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
from evopolicygym.agents.provider_login import LogIn, LogInTable, user_home
from evopolicygym.agents.provider_stream import OpenCalls, as_mapping, as_text, read_object
from evopolicygym.execution.shared_login import SharedLogIn

__all__ = ["PROVIDER", "PROVIDER_TYPES", "KimiCode", "KimiStream", "configured_login"]

PROVIDER_TYPES = ("kimi", "openai", "anthropic")
"""What a server may speak: Kimi's own chat completions, those of OpenAI, or Anthropic's Messages."""

PROVIDER = Provider(
    name="kimi-code",
    title="Kimi Code",
    executable="kimi",
    package="@moonshot-ai/kimi-code",
    tested_version="2.1.0",
    install="Install it with: npm install -g @moonshot-ai/kimi-code@2.1.0 (needs Node.js 22.19 or newer; the PyPI"
    " packages kimi-cli and kimi-code are not it)",
    login=LogInTable(
        home_variable="KIMI_CODE_HOME",
        home_directory=".kimi-code",
        key_variables=("KIMI_API_KEY", "KIMI_MODEL_API_KEY", "MOONSHOT_API_KEY"),
        advice="export KIMI_API_KEY, or run: kimi login",
    ),
    environment={"KIMI_DISABLE_TELEMETRY": "1", "KIMI_CODE_NO_AUTO_UPDATE": "1"},
    failures=(
        FailurePattern(
            "limit_reached", r"loop\.max_steps_exceeded|exceeded maxSteps", "Raise max_turns for a longer Run"
        ),
        FailurePattern(
            "incompatible",
            r"SyntaxError|does not provide an export|unsupported node|node\.js v(?:[0-9]|1\d|2[01])\.",
            "Kimi Code needs Node.js 22.19 or newer: npm install -g node@22",
        ),
        FailurePattern(
            "usage_limit",
            r"provider\.rate_limit|provider\.api_error: 429|quota|usage limit|insufficient balance",
            "Wait for the limit to reset, or use another account, then resume the Run",
        ),
        FailurePattern(
            "authentication",
            r"provider\.auth_error|\bauth\.(?:login|token|provisioning)|\b40[13]\b|log ?in|api[ _]key"
            r"|no credential|no provider configured",
            "Check KIMI_API_KEY, or run: kimi login",
        ),
        FailurePattern(
            "overloaded",
            r"provider\.overloaded|provider\.api_error: 5\d\d",
            "The model's server has trouble; resume the Run later",
        ),
        FailurePattern(
            "network",
            r"provider\.connection_error|empty response|connection|timed? ?out|econn|enotfound|network|fetch failed",
            "Check the network, the proxy and base_url, then resume the Run",
        ),
        FailurePattern(
            "invalid_options",
            r"unknown option|not configured in config\.toml|no model configured|config\.invalid|invalid"
            r"|provider\.not_found|auth\.model_not_resolved|agent file",
            "Check model and extra_arguments, the user's config.toml, and the version of Kimi Code",
        ),
    ),
    stub_advice="The PyPI package kimi-cli is such a stub. Install the real one with:"
    " npm install -g @moonshot-ai/kimi-code@2.1.0, and give its path as executable",
)

_CONFIG = "config.toml"
_TOKENS = "credentials"
_KEY = "KIMI_API_KEY"
_OWN_PROVIDER = "evopolicygym"
_CONTEXT_SIZE = 262_144
_OPENING_WORDS = "Carry out the task that you were given."


class KimiCode:
    """Moonshot's Kimi Code, run unattended.

    The model is one of the user's ``config.toml`` (``$KIMI_CODE_HOME``, by default ``~/.kimi-code``), of which only
    that model and its provider are taken over; or, where there is no such entry, the name of a model of the Kimi
    Platform, for a key in KIMI_API_KEY. It has no option for effort and none for a cost limit, and tells no costs.

    Args:
        model: Alias in the user's configuration, or the name of a model.
        executable: Name on PATH, or path. It needs Node.js 22.19 or newer, beside it or on PATH.
        max_turns: The most answers of the model; then it ends.
        base_url: Address of another server.
        provider_type: What that server speaks: ``"kimi"``, ``"openai"`` or ``"anthropic"``.
        api_key_variable: Name of the variable that holds the key; by default KIMI_API_KEY, KIMI_MODEL_API_KEY, then
            MOONSHOT_API_KEY.
        extra_arguments: Further arguments of ``kimi``.
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
        executable: str = "kimi",
        max_turns: int | None = None,
        base_url: str | None = None,
        provider_type: str = "kimi",
        api_key_variable: str | None = None,
        extra_arguments: Sequence[str] = (),
        inherited_environment: Sequence[str] = (),
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self.model = check_model(model)
        self.executable = executable
        self.max_turns = check_count("max_turns", max_turns)
        self.provider_type = check_choice("provider_type", provider_type, PROVIDER_TYPES)
        self.options = check_options(
            base_url=base_url,
            api_key_variable=api_key_variable,
            extra_arguments=extra_arguments,
            inherited_environment=inherited_environment,
            environment=environment,
        )

    def __repr__(self) -> str:
        return f"KimiCode(model={self.model!r})"

    def build_invocation(self, task: AgentTask) -> AgentInvocation:
        """See :class:`~evopolicygym.agents.CodingAgent`.

        Raises:
            AgentRunError: the program is not there, or the variable named in ``api_key_variable`` is not set.
        """
        executable = resolve_executable(self.executable, hint=PROVIDER.install)
        configured = _configured_model(user_home(PROVIDER.login, os.environ) / _CONFIG, self.model)
        login = self._login(configured)
        files = SessionFiles()
        fits = len(os.fsencode(task.instructions)) <= ARGUMENT_MAX_BYTES
        limits = {} if self.max_turns is None else {"max_turns": self.max_turns}
        plan = Plan(
            # The Run's own Skills, in the workspace, in place of those of the user and of directories above.
            arguments=["--model", self.model, "--output-format", "stream-json", "--skills-dir", "skills"],
            task_option=["--prompt"],
            identity={"provider": "moonshot", "model": self.model, **limits},
            task_delivery="argument" if fits else "file",
            task_substitute=[] if fits else [_OPENING_WORDS, "--agent-file", TASK_FILE],
            instructions=None if fits else _agent_file(task),
            key_name=_KEY,
            # In place, only the environment can say it: the user's configuration is not ours to change.
            environment={}
            if login.private or self.max_turns is None
            else {"KIMI_LOOP_MAX_STEPS_PER_TURN": str(self.max_turns)},
            new_parser=partial(_new_stream, files, login),
            write_state=partial(self._write_state, configured, login),
            closing_events=files.closing_events,
            log_in=self._shared_log_in(configured, login),
            facts={} if fits else {"Task": "over the limit of one argument: it travels in an agent file"},
        )
        return provider_invocation(
            PROVIDER, plan, self.options, login, executable=executable, task=task, environment=os.environ
        )

    def _login(self, configured: "_ConfiguredModel | None") -> LogIn:
        named = log_in_of(PROVIDER, self.options, os.environ)
        if configured is None or self.options.base_url is not None or self.options.api_key_variable is not None:
            return named
        if "oauth" in configured.provider:
            return LogIn("file", str(named.home), named.home)
        if configured.key is not None:
            return LogIn("configured", f"{named.home / _CONFIG} (provider {configured.provider_name})", named.home)
        return named

    def _write_state(self, configured: "_ConfiguredModel | None", login: LogIn, state: Path) -> dict[str, str]:
        values: dict[str, str] = {}
        if configured is not None and self.options.base_url is None:
            # An inline key travels by the environment like any other, so that it is taken out of the logs.
            kept = {n: v for n, v in configured.provider.items() if n not in ("api_key", "api_key_env", "oauth")}
            name, provider, model = configured.provider_name, kept, configured.model
            if login.kind == "configured" and configured.key is not None:
                values[_KEY] = configured.key
        else:
            name, provider, model = _OWN_PROVIDER, self._own_provider(login), self._own_model()
        provider["api_key_env"] = login.source if login.kind == "key" and not self.options.api_key_variable else _KEY
        path = state / _CONFIG
        path.touch(mode=0o600)
        path.write_text(self._configuration(name, provider, model), encoding="utf-8")
        return values

    def _configuration(self, provider_name: str, provider: dict[str, object], model: dict[str, object]) -> str:
        import tomli_w

        document: dict[str, object] = {
            "default_model": self.model,
            "providers": {provider_name: provider},
            "models": {self.model: model | {"provider": provider_name}},
        }
        if self.max_turns is not None:
            document["loop_control"] = {"max_steps_per_turn": self.max_turns}
        return tomli_w.dumps(document)

    def _shared_log_in(self, configured: "_ConfiguredModel | None", login: LogIn) -> SharedLogIn | None:
        """The tokens of the model's provider, and of the user's configuration that model and that provider."""
        if configured is None or login.kind != "file":
            return None
        provider = {name: value for name, value in configured.provider.items() if name != "api_key"}
        slot = as_text(as_mapping(configured.provider["oauth"]).get("key")).rpartition("/")[2]
        return SharedLogIn(
            variable=PROVIDER.login.home_variable,
            directory=login.home,
            files=(f"{_TOKENS}/{slot}.json",),
            written={_CONFIG: self._configuration(configured.provider_name, provider, configured.model)},
        )

    def _own_provider(self, login: LogIn) -> dict[str, object]:
        address = self.options.base_url
        kind = self.provider_type
        if address is None and login.source == "KIMI_MODEL_API_KEY":
            address = os.environ.get("KIMI_MODEL_BASE_URL")
            kind = os.environ.get("KIMI_MODEL_PROVIDER_TYPE", kind)
        own: dict[str, object] = {"type": kind}
        return own if address is None else own | {"base_url": address}

    def _own_model(self) -> dict[str, object]:
        return {"model": self.model, "max_context_size": _CONTEXT_SIZE, "capabilities": ["thinking", "image_in"]}


def _agent_file(task: AgentTask) -> str:
    return f"---\nname: evopolicygym\ndescription: Improves a Policy.\n---\n\n{task.instructions}"


class _ConfiguredModel:
    """A model of the user's configuration with its provider."""

    def __init__(self, model: dict[str, object], provider_name: str, provider: dict[str, object]) -> None:
        self.model = model
        self.provider_name = provider_name
        self.provider = provider
        variable = provider.get("api_key_env")
        key = provider.get("api_key") or (os.environ.get(variable) if isinstance(variable, str) else None)
        self.key = key if isinstance(key, str) else None


def _configured_model(path: Path, name: str) -> _ConfiguredModel | None:
    try:
        config = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None  # without one, or with one that the program itself will complain of
    model = as_mapping(as_mapping(config.get("models")).get(name))
    provider_name = as_text(model.get("provider"))
    provider = as_mapping(as_mapping(config.get("providers")).get(provider_name))
    return _ConfiguredModel(dict(model), provider_name, dict(provider)) if provider else None


def configured_login(login: LogIn) -> LogIn:
    """What the user's configuration says of the log-in of its default model."""
    path = login.home / _CONFIG
    try:
        config = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return login
    model = _configured_model(path, as_text(config.get("default_model")))
    if model is None:
        return login
    if "oauth" in model.provider:
        return LogIn("file", str(path), login.home)
    return LogIn("configured", str(path), login.home) if model.key is not None else login


def _new_stream(files: SessionFiles, login: LogIn) -> "KimiStream":
    if not login.private:
        files.note_existing(login.home)
    return KimiStream(files)


class KimiStream:
    """Parses one stream of ``kimi --output-format stream-json``.

    Args:
        files: Is told the session's name, for its tokens stand in its file only.
    """

    def __init__(self, files: SessionFiles | None = None) -> None:
        self._files = files or SessionFiles()
        self._calls = OpenCalls()

    def __call__(self, line: str) -> Iterable[AgentEvent]:
        """The events of one line."""
        said = read_object(line)
        role = said.get("role")
        if role == "meta":
            return self._meta(said)
        if role == "assistant":
            return self._assistant(said)
        if role == "tool":
            return self._tool(said)
        return ()

    def _meta(self, said: Mapping[str, object]) -> Iterable[AgentEvent]:
        kind = said.get("type")
        if kind == "system.version":
            yield AgentEvent(kind="session_start", text=f"Kimi Code {as_text(said.get('version'))}")
        elif kind == "turn.step.retrying":
            status = said.get("status_code")
            tries = f"try {said.get('failed_attempt')} of {said.get('max_attempts')}"
            yield AgentEvent(
                kind="error",
                code=str(status) if type(status) is int else as_text(said.get("error_name")) or None,
                text=f"{as_text(said.get('error_message'))}; {tries}",
                fatal=False,
            )
        elif kind == "session.resume_hint":
            session = as_text(said.get("session_id"))
            self._files.session_id = session or None
            yield AgentEvent(kind="end", session_id=session or None, failed=False)

    def _assistant(self, said: Mapping[str, object]) -> Iterable[AgentEvent]:
        reasoning = as_text(said.get("reasoning_content"))
        if reasoning:
            yield AgentEvent(kind="reasoning", text=reasoning)
        text = as_text(said.get("content"))
        if text:
            yield AgentEvent(kind="message", text=text)
        calls = said.get("tool_calls")
        for call in map(as_mapping, calls if isinstance(calls, list) else []):
            function = as_mapping(call.get("function"))
            asked = read_object(as_text(function.get("arguments")))
            command = as_text(asked.get("command")) or as_text(asked.get("path")) or None
            yield self._calls.begin(as_text(call.get("id")), as_text(function.get("name")) or None, command)
        yield AgentEvent(kind="usage", turns=1)

    def _tool(self, said: Mapping[str, object]) -> Iterable[AgentEvent]:
        text = as_text(said.get("content"))
        code = re.search(r"(?:^|\n)Command failed with exit code: (\d+)\.\s*$", text)
        exit_code = int(code[1]) if code else None
        yield self._calls.end(
            as_text(said.get("tool_call_id")),
            text=text[: code.start()] if code else text,
            exit_code=exit_code,
            failed=bool(code) or text == "Session closed",
        )
