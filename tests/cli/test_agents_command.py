import json
import os
import subprocess
import sys
from pathlib import Path

CONFIGS = Path(__file__).parents[2] / "configs"
KEY = "sk-made-up-0123456789"


def command(tmp_path, *arguments, programs=()):
    for name in programs:
        path = tmp_path / "bin" / name
        path.parent.mkdir(exist_ok=True)
        path.write_text("#!/bin/sh\necho 9.9.9\n")
        path.chmod(0o755)
    environment = {
        "HOME": str(tmp_path / "home"),
        "PATH": f"{tmp_path / 'bin'}{os.pathsep}/usr/bin{os.pathsep}/bin",
        "OPENAI_API_KEY": KEY,
        "KIMI_API_KEY": KEY,
        "LANG": "C.UTF-8",
    }
    return subprocess.run(
        [sys.executable, "-m", "evopolicygym", *arguments], env=environment, capture_output=True, text=True, check=False
    )


def test_agents_are_listed_with_version_log_in_and_what_to_install(tmp_path):
    done = command(tmp_path, "agents", programs=["codex"])
    assert done.returncode == 0
    assert "9.9.9" in done.stdout
    assert "from the variable OPENAI_API_KEY" in done.stdout
    assert "npm install -g @anthropic-ai/claude-code" in done.stdout
    assert "parameter-tuner" in done.stdout
    assert KEY not in done.stdout + done.stderr


def test_agents_as_json_are_one_document(tmp_path):
    document = json.loads(command(tmp_path, "agents", "--json", programs=["kimi"]).stdout)
    by_name = {agent["name"]: agent for agent in document["agents"]}
    assert by_name["kimi-code"]["version"] == "9.9.9"
    assert by_name["claude-code"]["executable"] is None
    assert {other["name"] for other in document["others"]} >= {"command", "parameter-tuner"}


def test_a_probe_of_a_program_that_does_nothing_fails(tmp_path):
    done = command(tmp_path, "agents", "--probe", "--json", programs=["codex"])
    assert done.returncode == 1
    probe = json.loads(done.stdout)["agents"][0]["probe"]
    assert not probe["works"]
    assert "did nothing" in probe["message"]


def test_a_dry_run_says_what_would_run_and_with_which_log_in(tmp_path):
    spec = str(CONFIGS / "cartpole-codex.toml")
    done = command(tmp_path, "run", spec, "--dry-run", programs=["codex"])
    assert done.returncode == 0, done.stderr
    words = " ".join(done.stderr.split())
    assert f"{tmp_path / 'bin' / 'codex'} --ask-for-approval never" in words
    assert "on standard input" in words
    assert "from the variable OPENAI_API_KEY" in words
    assert "private to the Run" in words
    assert KEY not in done.stdout + done.stderr


def test_a_dry_run_says_what_is_refused_and_what_to_install(tmp_path):
    for name, package in (("codex", "@openai/codex"), ("claude-code", "claude-code"), ("kimi-code", "kimi-code")):
        done = command(tmp_path, "run", str(CONFIGS / f"cartpole-{name}.toml"), "--dry-run")
        assert done.returncode == 2
        assert "npm install -g" in done.stderr
        assert package in done.stderr
