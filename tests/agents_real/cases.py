"""What is tried with each program: a script for the model, options of the Run, and what must come of it."""

import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from wordy_cartpole import LAST_WORDS

from evopolicygym.agents.scripted_model import Fault, Step

if TYPE_CHECKING:
    from suite import Outcome

__all__ = ["Case", "cases_for"]

GOOD_PARAMETERS = {"weights": [0.0, 0.3, 1.0, 1.2]}
GOOD_POLICY = '''\
"""Pushes to where the pole falls."""

WEIGHTS = [0.0, 0.3, 1.0, 1.2]


class Policy:
    def act(self, observation):
        return int(sum(weight * value for weight, value in zip(WEIGHTS, observation)) > 0)


def make_policy(context):
    return Policy()
'''
POOR_POLICY = GOOD_POLICY.replace("0.3, 1.0, 1.2", "0.0, 1.0, 0.0")
SLEEPING = "touch analysis/started; sleep 1297 & sleep 1298; touch analysis/survived"
DETACHED = (
    "setsid sleep 1299 >/dev/null 2>&1 < /dev/null & (setsid sh -c 'trap \"\" TERM; sleep 1301; sleep 1302' "
    ">/dev/null 2>&1 </dev/null &) ; touch analysis/started"
)


def write(policy: str) -> str:
    return f"cat > program/policy.py <<'EOF'\n{policy}EOF"


WHOLE_JOB = (
    Step(
        text="I look around first.",
        reasoning="Look before you leap.",
        shell="ls program && evopolicygym-session status",
    ),
    Step(shell='evopolicygym-session submit program --episodes "0:3"'),
    Step(
        text="Now a better one.", shell=f"{write(POOR_POLICY)}\nevopolicygym-session submit program --episodes 0:3,5:8"
    ),
    Step(shell="cat feedback/latest.json"),
    Step(shell=f"{write(GOOD_POLICY)}\nevopolicygym-session submit program --episodes 0:3,5:8"),
    Step(text="This one fails.", shell="echo oops >&2; exit 3"),
    Step(shell="env | sort"),
    Step(shell="evopolicygym-session finish submission-000003 submission-000002"),
    Step(text="Done: submission-000003 is the best."),
)
SHORT_JOB = (
    Step(shell=f"{write(GOOD_POLICY)}\nevopolicygym-session submit program --episodes 0:2"),
    Step(shell="evopolicygym-session finish submission-000001"),
    Step(text="Done."),
)


_ALSO_SANDBOXED = (
    "whole Run",
    "300 KiB task",
    "code mode",
    "SIGINT in a tool call",
    "Host killed in a tool call",
    "time-out in a tool call",
    "processes left by a tool",
    "403",
    "log-in from a file",
    "model of the user's configuration",
    "subscription token",
    "root without allow_root",
)


@dataclass(frozen=True)
class Case:
    """One Run.

    Args:
        name: what the table calls it.
        terminal_reason: how the Run must end; None where there must be no Run.
        end_reason: what ``agent_end`` must say.
        exit_code: of ``evopolicygym run``.
        steps: the script of the model.
        fault: of the model's server.
        retry_after: seconds, beside a 429.
        server: whether there is one at all.
        options: of the Agent's table; None takes one away.
        run: of the ``[run]`` table.
        execution: the ``[execution]`` table.
        environment: of the Host.
        signal: sent to the Host once ``analysis/started`` is in the workspace.
        benchmark: import path, in place of CartPole.
        furnish: prepares the user's home, given the address of the model's API.
        home_may_change: whether the program uses the state in the user's home.
        check: looks closer.
    """

    name: str
    terminal_reason: str | None = "finished"
    end_reason: str | None = None
    exit_code: int = 1
    steps: tuple[Step, ...] = SHORT_JOB
    fault: Fault | None = None
    retry_after: int | None = None
    server: bool = True
    options: Mapping[str, object] = field(default_factory=dict)
    run: Mapping[str, object] = field(default_factory=dict)
    execution: Mapping[str, object] = field(default_factory=lambda: {"use": "unsafe-process"})
    environment: Mapping[str, str] = field(default_factory=dict)
    signal: str | None = None
    benchmark: str | None = None
    furnish: Callable[[Path, str], None] | None = None
    home_may_change: bool = False
    check: "Callable[[Outcome], None] | None" = None


def cases_for(name: str, *, root: bool) -> list[Case]:
    """All cases of one program."""
    plain = [*_for_all(), *{"codex": _codex, "claude-code": _claude_code, "kimi-code": _kimi_code}[name](root)]
    sandboxed = [_sandboxed(case) for case in plain if case.name in _ALSO_SANDBOXED]
    copied = [_copied_back(case, *_LOG_INS[name]) for case in sandboxed if case.name.startswith("log-in from a file")]
    return [*plain, *sandboxed, *copied]


def _sandboxed(case: Case) -> Case:
    case = replace(case, name=f"{case.name}, sandbox", execution={"use": "sandbox"}, home_may_change=False)
    if case.name.startswith("root without allow_root"):  # there, it needs none
        return replace(case, terminal_reason="finished", exit_code=0, check=_tokens_only)
    return case


def _copied_back(case: Case, variable: str, directory: str, pattern: str) -> Case:
    """Its log-in is renewed within the Run, in the copy that it has, and stands in the user's home afterwards."""

    def check(outcome: "Outcome") -> None:
        outcome.require_tokens()
        (file,) = (outcome.home / directory).glob(pattern)
        text = file.read_text()
        outcome.require("renewed-in-a-file" in text, f"{file.name} must be the renewed one: {text}")

    return replace(
        case,
        name=f"{case.name}, copied back",
        execution={"use": "sandbox", "log_in": "copy-back"},
        steps=(Step(shell=f'sed -i s/made-up-in-a-file/renewed-in-a-file/ "${variable}"/{pattern}'), *SHORT_JOB),
        home_may_change=True,
        check=check,
    )


_LOG_INS = {
    "codex": ("CODEX_HOME", ".codex", "auth.json"),
    "claude-code": ("CLAUDE_CONFIG_DIR", ".claude", ".credentials.json"),
    "kimi-code": ("KIMI_CODE_HOME", ".kimi-code", "credentials/*.json"),
}


def _for_all() -> list[Case]:
    return [
        Case("whole Run", exit_code=0, steps=WHOLE_JOB, check=_whole_job),
        Case("300 KiB task", exit_code=0, benchmark="wordy_cartpole:WordyCartPole", check=_heard_all),
        Case(
            "SIGINT in a tool call", "interrupted", "interrupted", 130, steps=(Step(shell=SLEEPING),), signal="SIGINT"
        ),
        Case("Host killed in a tool call", None, None, -9, steps=(Step(shell=SLEEPING),), signal="SIGKILL"),
        Case(
            "time-out in a tool call",
            "agent_timed_out",
            "timed_out",
            steps=(Step(shell=SLEEPING),),
            run={"agent_timeout_seconds": 8.0},
        ),
        Case(
            "processes left by a tool",
            "agent_exited",
            "finished_without_handoff",
            steps=(Step(shell=DETACHED), Step(text="Bye.")),
        ),
        Case("no answer", "agent_timed_out", "timed_out", fault="silence", run={"agent_timeout_seconds": 6.0}),
        Case("403", "agent_failed", "authentication", fault="403"),
        Case("unknown flag", "agent_failed", "invalid_options", options={"extra_arguments": ["--no-such-flag"]}),
    ]


def _codex(root: bool) -> list[Case]:
    return [
        Case("code mode", exit_code=0, steps=WHOLE_JOB, options={"model": "gpt-5.6-luna"}, check=_whole_job),
        Case("401", "agent_failed", "authentication", fault="401"),
        Case("429", "agent_failed", "usage_limit", fault="429"),
        Case("quota", "agent_failed", "usage_limit", fault="quota"),
        Case("500", "agent_failed", "overloaded", fault="500"),
        Case("529", "agent_failed", "overloaded", fault="529"),
        Case("stream cut", "agent_failed", "network", fault="cut"),
        Case("connection refused", "agent_failed", "network", server=False),
        Case(
            "log-in from a file",
            exit_code=0,
            options={"base_url": None, "extra_arguments": ["-c", 'openai_base_url="{api}"']},
            environment={"OPENAI_API_KEY": ""},
            furnish=_codex_login,
            home_may_change=True,
            check=_tokens_only,
        ),
    ]


def _claude_code(root: bool) -> list[Case]:
    refusal = [
        Case("root without allow_root", None, None, 2, options={"allow_root": False}, check=_says("allow_root = true")),
    ]
    return [
        *(refusal if root else []),
        Case("429, come back in an hour", "agent_failed", "usage_limit", fault="429", retry_after=3600),
        Case("stream cut", exit_code=0, fault="cut"),
        Case("max_turns", "agent_failed", "limit_reached", options={"max_turns": 1}),
        Case("max_cost_usd", "agent_failed", "limit_reached", options={"max_cost_usd": 0.000001}),
        Case(
            "subscription token",
            exit_code=0,
            options={"base_url": None},
            environment={
                "ANTHROPIC_API_KEY": "",
                "CLAUDE_CODE_OAUTH_TOKEN": "sk-ant-oat01-made-up-by-the-suite",
                "ANTHROPIC_BASE_URL": "{api}",
            },
        ),
        Case(
            "log-in from a file",
            exit_code=0,
            options={"base_url": None},
            environment={"ANTHROPIC_API_KEY": "", "ANTHROPIC_BASE_URL": "{api}"},
            furnish=_claude_login,
            home_may_change=True,
            check=_tokens_only,
        ),
    ]


def _kimi_code(root: bool) -> list[Case]:
    return [
        Case("401", "agent_failed", "authentication", fault="401"),
        Case("quota", "agent_failed", "usage_limit", fault="quota"),
        Case("max_turns", "agent_failed", "limit_reached", options={"max_turns": 1}),
        Case(
            "model of the user's configuration",
            exit_code=0,
            steps=WHOLE_JOB,
            options={"base_url": None, "provider_type": None, "model": "mine/best"},
            environment={"KIMI_API_KEY": ""},
            furnish=_kimi_config,
            check=_whole_job,
        ),
        Case(
            "log-in from a file",
            exit_code=0,
            options={"base_url": None, "provider_type": None, "model": "kimi-code/best"},
            environment={"KIMI_API_KEY": ""},
            furnish=_kimi_login,
            home_may_change=True,
            check=_tokens_only,
        ),
        Case(
            "model unknown",
            "agent_failed",
            "invalid_options",
            options={"base_url": None, "provider_type": None},
            environment={"KIMI_API_KEY": ""},
            home_may_change=True,
        ),
        Case(
            "Node.js too old",
            "agent_failed",
            "incompatible",
            options={"executable": "{old_node_kimi}"},
        ),
    ]


def _codex_login(home: Path, api: str) -> None:
    (home / ".codex" / "auth.json").write_text(json.dumps({"OPENAI_API_KEY": "sk-made-up-in-a-file-0123456789"}))


def _claude_login(home: Path, api: str) -> None:
    tokens = {
        "accessToken": "sk-ant-oat01-made-up-in-a-file",
        "refreshToken": "sk-ant-ort01-made-up-in-a-file",
        "expiresAt": 4102444800000,
        "scopes": ["user:inference", "user:profile"],
        "subscriptionType": "max",
    }
    (home / ".claude" / ".credentials.json").write_text(json.dumps({"claudeAiOauth": tokens}))


def _kimi_config(home: Path, api: str) -> None:
    (home / ".kimi-code" / "config.toml").write_text(
        f"""\
default_model = "other"

[providers.mine]
type = "openai"
base_url = "{api}"
api_key = "sk-made-up-by-the-suite-0123456789"

[models."mine/best"]
provider = "mine"
model = "best-of-mine"
max_context_size = 131072

[[hooks]]
event = "SessionStart"
command = "touch {home}/hook-was-run"
"""
    )


def _kimi_login(home: Path, api: str) -> None:
    state = home / ".kimi-code"
    # For another server than its own the program keeps tokens in a slot that is named after the server.
    server = json.dumps({"oauthHost": "https://auth.kimi.com", "baseUrl": api}, separators=(",", ":"))
    slot = f"kimi-code-env-{hashlib.sha256(server.encode()).hexdigest()[:16]}"
    (state / "config.toml").write_text(
        f"""\
default_model = "kimi-code/best"

[providers."managed:kimi-code"]
type = "kimi"
base_url = "{api}"
api_key = ""
oauth = {{ storage = "file", key = "oauth/{slot}" }}

[models."kimi-code/best"]
provider = "managed:kimi-code"
model = "best"
max_context_size = 131072
"""
    )
    tokens = {
        "access_token": "made-up-in-a-file-0123456789",
        "refresh_token": "made-up-in-a-file-9876543210",
        "expires_at": 4102444800,
        "scope": "kimi-code",
        "token_type": "Bearer",
        "expires_in": 3600,
    }
    (state / "credentials").mkdir()
    (state / "credentials" / f"{slot}.json").write_text(json.dumps(tokens))
    earlier = state / "sessions" / "wd_earlier" / "session_earlier" / "agents" / "main"
    earlier.mkdir(parents=True)
    (earlier / "wire.jsonl").write_text(
        '{"type":"usage.record","agentId":"main","usage":{"inputOther":7,"output":7}}\n'
    )


def _tokens_only(outcome: "Outcome") -> None:
    outcome.require_tokens()


def _says(text: str) -> "Callable[[Outcome], None]":
    def check(outcome: "Outcome") -> None:
        outcome.require(text in outcome.stderr, f"standard error must say {text!r}, found {outcome.stderr!r}")

    return check


def _heard_all(outcome: "Outcome") -> None:
    outcome.require(
        any(LAST_WORDS in json.dumps(body) for _, body in outcome.requests), "the model must hear the whole task"
    )


def _whole_job(outcome: "Outcome") -> None:
    outcome.require_policy("submission-000003", GOOD_POLICY)
    outcome.require_scores()
    commands = [step.shell for step in WHOLE_JOB if step.shell is not None]
    calls = [event for event in outcome.transcript if event["kind"] == "tool_call"]
    told = [outcome.program.command_of(str(call["command"])) for call in calls]
    outcome.require(told == commands, f"the transcript tells other commands: {told}")
    codes = [call.get("exit_code") for call in calls if call.get("failed")]
    outcome.require(codes == [3], f"one command fails with 3, the transcript tells {codes}")
    texts = [str(event.get("text")) for event in outcome.transcript if event["kind"] == "message"]
    outcome.require(
        texts == [step.text for step in WHOLE_JOB if step.text], f"the transcript tells other words: {texts}"
    )
    outcome.require_tokens()
    outcome.require("[redacted:" in outcome.log("stdout.log"), "env was run, so the log must show a redacted key")
    outcome.require(not (outcome.home / "hook-was-run").exists(), "the user's hooks must not be run")
