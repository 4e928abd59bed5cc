"""``check --sandbox`` shows what this machine can do."""

import json

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


def test_what_is_missing_is_told_with_what_brings_it(capsys, monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    assert check_sandbox(as_json=False) == 2
    assert "apt-get install bubblewrap" in " ".join(capsys.readouterr().out.split())
