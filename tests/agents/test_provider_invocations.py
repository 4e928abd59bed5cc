import os
import re
import tomllib
from pathlib import Path

import pytest

from evopolicygym.agents import AgentTask, ClaudeCode, Codex, KimiCode, codex
from evopolicygym.agents.invocation import ARGUMENT_MAX_BYTES, RECORDED_TASK
from evopolicygym.agents.provider import installed_package_version
from evopolicygym.agents.survey import PROVIDERS, program_version, survey
from evopolicygym.errors import AgentRunError

TASK = AgentTask("Improve the Policy.\n" * 3)
KEY = "sk-made-up-0123456789"
KEYS = ("CODEX_API_KEY", "OPENAI_API_KEY", "ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN", "CLAUDE_CODE_OAUTH_TOKEN")
KEYS += ("KIMI_API_KEY", "KIMI_MODEL_API_KEY", "MOONSHOT_API_KEY", "CODEX_HOME", "CLAUDE_CONFIG_DIR", "KIMI_CODE_HOME")


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch):
    """A home without any log-in, and programs that are only names."""
    for name in KEYS:
        monkeypatch.delenv(name, raising=False)
    home = tmp_path / "home"
    home.mkdir()
    monkeypatch.setenv("HOME", str(home))
    programs = tmp_path / "programs"
    programs.mkdir()
    for name in ("codex", "claude", "kimi"):
        (programs / name).write_text("#!/bin/sh\nexit 1\n")
        (programs / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{programs}{os.pathsep}{os.environ['PATH']}")
    return home


def all_agents(**options):
    return [
        Codex(model="m", reasoning_effort="high", **options),
        ClaudeCode(model="m", effort="high", **options),
        KimiCode(model="m", **options),
    ]


def prepared(invocation, tmp_path):
    state = tmp_path / "private"
    state.mkdir(exist_ok=True)
    return dict(invocation.prepare_state(state))


def test_the_command_ends_with_the_task_and_the_recorded_one_with_its_name():
    for agent in all_agents():
        invocation = agent.build_invocation(TASK)
        assert invocation.command[-1] == TASK.instructions
        assert invocation.recorded_command[-1] == RECORDED_TASK
        assert TASK.instructions not in invocation.recorded_command
        assert invocation.stdout_media_type == "application/x-ndjson"


def test_codex_and_claude_take_the_task_on_standard_input():
    codex_agent, claude_code, _ = all_agents()
    for agent, last in ((codex_agent, "-"), (claude_code, "--bare")):
        invocation = agent.build_invocation(TASK)
        argv = invocation.arguments(TASK, task_file=Path("task.md"))
        assert TASK.instructions not in argv
        assert argv[-1] == last
        assert invocation.standard_input(TASK) == TASK.instructions


def test_codex_asks_for_no_approval_before_its_subcommand():
    command = Codex(model="m", reasoning_effort="xhigh").build_invocation(TASK).command
    assert command.index("--ask-for-approval") < command.index("exec")
    assert 'model_reasoning_effort="xhigh"' in command


def test_codex_looks_for_its_program_when_it_builds_and_not_before(monkeypatch):
    asked = []
    agent = Codex(model="m", reasoning_effort="high", executable="elsewhere")
    monkeypatch.setattr(codex, "resolve_executable", lambda name, **_: asked.append(name) or "/opt/elsewhere")
    assert agent.build_invocation(TASK).command[0] == "/opt/elsewhere"
    assert asked == ["elsewhere"]


def test_kimi_takes_a_short_task_as_an_argument():
    argv = KimiCode(model="m").build_invocation(TASK).arguments(TASK, task_file=Path("task.md"))
    assert argv[-2:] == ("--prompt", TASK.instructions)


def test_kimi_takes_a_long_task_in_an_agent_file():
    task = AgentTask("x" * (ARGUMENT_MAX_BYTES + 1))
    invocation = KimiCode(model="m").build_invocation(task)
    assert invocation.command[-1] == task.instructions
    argv = invocation.arguments(task, task_file=Path("/record/agent/instructions.md"))
    assert argv[-2:] == ("--agent-file", "/record/agent/instructions.md")
    head, _, body = invocation.instructions.removeprefix("---\n").partition("---\n")
    assert "name: evopolicygym" in head
    assert body.strip() == task.instructions


def test_a_missing_program_says_how_to_install_it(monkeypatch):
    monkeypatch.setenv("PATH", "/nowhere")
    for agent in all_agents():
        with pytest.raises(AgentRunError, match="npm install -g"):
            agent.build_invocation(TASK)


@pytest.mark.parametrize(
    ("number", "variable"), [(0, "OPENAI_API_KEY"), (0, "CODEX_API_KEY"), (1, "ANTHROPIC_API_KEY"), (2, "KIMI_API_KEY")]
)
def test_a_key_gives_a_private_state_and_stands_nowhere_but_in_the_environment(number, variable, monkeypatch, tmp_path):
    monkeypatch.setenv(variable, KEY)
    invocation = all_agents()[number].build_invocation(TASK)
    assert variable in invocation.inherited_environment
    assert variable not in invocation.plain_names
    assert invocation.facts["Log-in"] == f"from the variable {variable}"
    values = prepared(invocation, tmp_path)
    assert Path(values["HOME"]).parent == tmp_path / "private"
    assert Path(values["HOME"]).stat().st_mode & 0o777 == 0o700
    told = [*invocation.command, *invocation.environment.values(), *invocation.facts.values(), *values.values()]
    assert KEY not in "".join([*told, str(invocation.identity)])
    assert not [path for path in tmp_path.rglob("*") if path.is_file() and KEY in path.read_text()]


@pytest.mark.parametrize(
    ("number", "file", "variable"),
    [
        (0, ".codex/auth.json", "CODEX_HOME"),
        (1, ".claude/.credentials.json", "CLAUDE_CONFIG_DIR"),
    ],
)
def test_a_log_in_from_a_file_is_used_in_place(number, file, variable, home, tmp_path):
    path = home / file
    path.parent.mkdir()
    path.write_text("{}")
    invocation = all_agents()[number].build_invocation(TASK)
    assert prepared(invocation, tmp_path) == {}
    assert variable in invocation.inherited_environment
    assert str(path) in invocation.facts["Log-in"]
    assert "in place" in invocation.facts["State"]
    assert "log each other out" in invocation.facts["State"]


def test_a_log_in_is_looked_for_where_the_callers_variable_says(monkeypatch, tmp_path):
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "auth.json").write_text("{}")
    monkeypatch.setenv("CODEX_HOME", str(tmp_path / "elsewhere"))
    assert str(tmp_path / "elsewhere") in all_agents()[0].build_invocation(TASK).facts["State"]


def test_claude_reads_no_file_of_the_users_with_a_key_and_only_the_log_in_without(monkeypatch):
    agent = ClaudeCode(model="m", effort="low")
    monkeypatch.setenv("CLAUDE_CODE_OAUTH_TOKEN", KEY)
    command = agent.build_invocation(TASK).command
    assert "--bare" not in command
    assert command[command.index("--setting-sources") + 1] == ""
    monkeypatch.setenv("ANTHROPIC_API_KEY", KEY)
    assert "--bare" in agent.build_invocation(TASK).command


def test_claude_as_root_is_refused_unless_allowed(monkeypatch):
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    refused = ClaudeCode(model="m", effort="low").build_invocation(TASK)
    with pytest.raises(AgentRunError, match="allow_root = true"):
        refused.check_startable()
    refused.check_startable(sandboxed=True)
    assert refused.sandbox_environment == {"IS_SANDBOX": "1"}
    assert "IS_SANDBOX" not in refused.environment
    allowed = ClaudeCode(model="m", effort="low", allow_root=True).build_invocation(TASK)
    allowed.check_startable()
    assert allowed.environment["IS_SANDBOX"] == "1"


def test_claude_as_an_ordinary_user_is_never_told_that_it_is_in_a_sandbox(monkeypatch):
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    invocation = ClaudeCode(model="m", effort="low", allow_root=True).build_invocation(TASK)
    invocation.check_startable()
    assert "IS_SANDBOX" not in {**invocation.environment, **invocation.sandbox_environment}


def test_another_server_needs_no_log_in_and_gets_none_of_the_users(home, tmp_path):
    (home / ".codex").mkdir()
    (home / ".codex" / "auth.json").write_text("{}")
    for number, agent in enumerate(all_agents(base_url="http://localhost:8000/v1")):
        invocation = agent.build_invocation(TASK)
        place = tmp_path / str(number)
        place.mkdir()
        values = prepared(invocation, place)
        assert "none" in values.values()
        assert invocation.facts["Model API"] == "http://localhost:8000/v1"
        assert invocation.identity["base_url"] == "http://localhost:8000/v1"


def test_a_key_for_another_server_comes_from_the_variable_that_was_named(monkeypatch, tmp_path):
    monkeypatch.setenv("MY_GATEWAY_KEY", KEY)
    monkeypatch.setenv("OPENAI_API_KEY", "sk-of-another-service")
    agents = all_agents(base_url="https://gateway.example", api_key_variable="MY_GATEWAY_KEY")
    for number, (agent, name) in enumerate(zip(agents, ("OPENAI", "ANTHROPIC", "KIMI"), strict=True)):
        place = tmp_path / str(number)
        place.mkdir()
        invocation = agent.build_invocation(TASK)
        assert prepared(invocation, place)[f"{name}_API_KEY"] == KEY
        assert "OPENAI_API_KEY" not in invocation.inherited_environment
    monkeypatch.delenv("MY_GATEWAY_KEY")
    with pytest.raises(AgentRunError, match="MY_GATEWAY_KEY, which is not set"):
        agents[0].build_invocation(TASK)


USER_CONFIG = f"""
default_model = "other"
[providers.mine]
type = "openai"
base_url = "https://models.example/v1"
api_key = "{KEY}"
[models."mine/best"]
provider = "mine"
model = "best"
max_context_size = 1000
[[hooks]]
event = "SessionStart"
command = "rm -rf /"
"""


def test_kimis_private_configuration_holds_one_model_of_the_users_and_no_key(home, tmp_path):
    (home / ".kimi-code").mkdir()
    (home / ".kimi-code" / "config.toml").write_text(USER_CONFIG)
    invocation = KimiCode(model="mine/best", max_turns=7).build_invocation(TASK)
    values = prepared(invocation, tmp_path)
    path = Path(values["KIMI_CODE_HOME"]) / "config.toml"
    assert path.stat().st_mode & 0o777 == 0o600
    assert tomllib.loads(path.read_text()) == {
        "default_model": "mine/best",
        "providers": {
            "mine": {"type": "openai", "base_url": "https://models.example/v1", "api_key_env": "KIMI_API_KEY"}
        },
        "models": {"mine/best": {"provider": "mine", "model": "best", "max_context_size": 1000}},
        "loop_control": {"max_steps_per_turn": 7},
    }
    assert values["KIMI_API_KEY"] == KEY
    assert "KIMI_API_KEY" not in invocation.plain_names
    assert KEY not in invocation.facts["Log-in"]


def test_kimis_own_log_in_is_used_in_place(home, tmp_path):
    (home / ".kimi-code").mkdir()
    config = USER_CONFIG.replace(f'api_key = "{KEY}"', 'oauth = { storage = "file", key = "oauth/kimi-code" }')
    (home / ".kimi-code" / "config.toml").write_text(config)
    invocation = KimiCode(model="mine/best", max_turns=7).build_invocation(TASK)
    assert prepared(invocation, tmp_path) == {}
    assert invocation.environment["KIMI_LOOP_MAX_STEPS_PER_TURN"] == "7"
    assert (home / ".kimi-code" / "config.toml").read_text() == config


def test_of_kimis_own_log_in_a_sandbox_gets_the_tokens_of_the_model_and_no_hooks(home):
    (home / ".kimi-code").mkdir()
    config = USER_CONFIG.replace(f'api_key = "{KEY}"', 'oauth = { storage = "file", key = "oauth/kimi-code-7" }')
    (home / ".kimi-code" / "config.toml").write_text(config)
    shared = KimiCode(model="mine/best").build_invocation(TASK).log_in
    assert (shared.variable, shared.directory) == ("KIMI_CODE_HOME", home / ".kimi-code")
    assert shared.files == ("credentials/kimi-code-7.json",)
    written = tomllib.loads(shared.written["config.toml"])
    assert sorted(written) == ["default_model", "models", "providers"]
    assert written["providers"]["mine"]["oauth"] == {"storage": "file", "key": "oauth/kimi-code-7"}


def test_a_model_that_the_user_has_not_configured_is_asked_for_by_its_name(monkeypatch, tmp_path):
    monkeypatch.setenv("KIMI_API_KEY", KEY)
    values = prepared(KimiCode(model="kimi-k2").build_invocation(TASK), tmp_path)
    config = tomllib.loads((Path(values["KIMI_CODE_HOME"]) / "config.toml").read_text())
    assert config["models"]["kimi-k2"]["model"] == "kimi-k2"
    assert config["providers"] == {"evopolicygym": {"type": "kimi", "api_key_env": "KIMI_API_KEY"}}


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Codex(model="", reasoning_effort="high"), "model"),
        (lambda: Codex(model="--help", reasoning_effort="high"), "model"),
        (lambda: Codex(model="m", reasoning_effort="hihg"), "reasoning_effort is 'hihg'; it can be"),
        (lambda: ClaudeCode(model="m", effort="ultra"), "effort"),
        (lambda: ClaudeCode(model="m", effort="low", max_turns=0), "max_turns"),
        (lambda: ClaudeCode(model="m", effort="low", max_cost_usd=float("nan")), "max_cost_usd"),
        (lambda: ClaudeCode(model="m", effort="low", allow_root="yes"), "allow_root"),
        (lambda: KimiCode(model="m", provider_type="cohere"), "provider_type"),
        (lambda: KimiCode(model="m", base_url="localhost:8000"), "base_url"),
        (lambda: KimiCode(model="m", api_key_variable="sk-1234-5678"), "never write a key itself"),
    ],
)
def test_a_wrong_option_is_refused_by_its_name(make, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        make()


def test_an_address_with_a_password_is_refused_without_being_repeated():
    with pytest.raises(ValueError, match="base_url") as refusal:
        Codex(model="m", reasoning_effort="low", base_url="https://me:hunter2-hunter2@gateway.example")
    assert "hunter2" not in str(refusal.value)


def test_a_program_that_brings_its_own_node_finds_it(tmp_path):
    (tmp_path / "programs" / "node").write_text("")
    path = KimiCode(model="m").build_invocation(TASK).environment["PATH"]
    assert path.split(os.pathsep)[0] == str(tmp_path / "programs")


def test_the_version_of_an_npm_package_is_read_from_disk(tmp_path):
    package = tmp_path / "node_modules" / "@openai" / "codex"
    (package / "bin").mkdir(parents=True)
    (package / "package.json").write_text('{"name": "@openai/codex", "version": "0.171.0"}')
    (package / "bin" / "codex.js").write_text("")
    (tmp_path / "codex").symlink_to(package / "bin" / "codex.js")
    assert installed_package_version(str(tmp_path / "codex"), "@openai/codex") == "0.171.0"
    assert installed_package_version(str(tmp_path / "codex"), "other") is None
    assert installed_package_version(str(tmp_path / "missing"), "@openai/codex") is None


def fake(tmp_path, name, script):
    path = tmp_path / "programs" / name
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)


def test_the_survey_tells_version_and_log_in_of_what_is_here(tmp_path, monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    fake(tmp_path, "codex", "echo codex-cli 0.99.1")
    fake(tmp_path, "claude", "sleep 0; echo 2.1.332 '(Claude Code)'")
    found = {status.name: status for status in survey(os.environ)}
    assert found["codex"].version == "0.99.1"
    assert found["codex"].older_than_tested
    assert found["codex"].logged_in
    assert found["codex"].log_in == "from the variable OPENAI_API_KEY"
    assert KEY not in str(found)
    assert found["claude-code"].version == "2.1.332"
    assert not found["claude-code"].logged_in
    assert "ANTHROPIC_API_KEY" in found["claude-code"].log_in


def test_the_survey_says_what_to_install(monkeypatch):
    monkeypatch.setenv("PATH", "/nowhere")
    for status in survey(os.environ):
        assert "npm install -g" in status.problem


def test_a_stub_and_a_program_without_its_node_are_told_as_what_they_are(tmp_path):
    fake(tmp_path, "kimi", "echo 'kimi-cli is deprecated, use kimi-code 2.0 instead'")
    provider = PROVIDERS[2]
    version, problem = program_version(provider, str(tmp_path / "programs" / "kimi"), os.environ)
    assert version is None
    assert "PyPI" in problem
    fake(tmp_path, "kimi", "echo \"SyntaxError: The requested module 'node:zlib' does not provide\" >&2; exit 1")
    version, problem = program_version(provider, str(tmp_path / "programs" / "kimi"), os.environ)
    assert version is None
    assert "Node.js 22.19" in problem


def test_the_suite_installs_the_versions_that_are_called_tested():
    script = (Path(__file__).parents[2] / "scripts" / "test-agents").read_text()
    for provider in PROVIDERS:
        assert f'"{provider.package}@{provider.tested_version}' in script
        assert f"{provider.package}@{provider.tested_version}" in provider.install
