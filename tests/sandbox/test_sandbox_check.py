"""``check --sandbox`` shows what this machine can do."""

import json
import subprocess
import sys

from evopolicygym.cli.sandbox_check import check_sandbox


def test_the_findings_are_shown_to_people(capsys):
    assert check_sandbox(as_json=False) == 0
    shown = capsys.readouterr().out
    assert "bubblewrap" in shown
    assert "Landlock" in shown


def test_the_findings_are_one_json_document(capsys):
    assert check_sandbox(as_json=True) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["schema"] == "evopolicygym/sandbox-report/v1"
    assert {"bubblewrap", "Landlock", "limits"} <= {finding["name"] for finding in document["findings"]}


def test_the_command_needs_no_spec_for_it():
    asked = [sys.executable, "-m", "evopolicygym", "check", "--sandbox"]
    ended = subprocess.run(asked, capture_output=True, text=True, timeout=60)
    assert ended.returncode == 0, ended.stderr
    assert "bubblewrap" in ended.stdout


def test_without_it_the_command_asks_for_a_spec():
    ended = subprocess.run([sys.executable, "-m", "evopolicygym", "check"], capture_output=True, text=True, timeout=60)
    assert ended.returncode == 2
    assert "name a run spec" in " ".join(ended.stderr.split())


def test_what_is_missing_is_told_with_what_brings_it(capsys, monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    assert check_sandbox(as_json=False) == 2
    assert "apt-get install bubblewrap" in " ".join(capsys.readouterr().out.split())
