"""What of a user's log-in an Agent in a sandbox gets, and what of it comes back."""

import json
import os
import stat
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import run_scenarios
from target_benchmark import TargetBenchmark

from evopolicygym.agents import CommandAgent
from evopolicygym.execution import SandboxExecution
from evopolicygym.execution.log_in_files import LogInMode, copy_back, hand_out
from evopolicygym.execution.shared_login import SharedLogIn, enclosed_log_in
from evopolicygym.run import RunConfig, run

OLD, NEW = json.dumps({"token": "old"}), json.dumps({"token": "new"})
LOG_IN = ("auth.json", "credentials/token.json")

HERE = """
home = pathlib.Path(os.environ["TOOL_HOME"])
auth, token = home / "auth.json", home / "credentials" / "token.json"
def tried(action, *arguments):
    try:
        return action(*arguments) or "done"
    except OSError as error:
        return type(error).__name__
"""


class LoggedIn(CommandAgent):
    """An Agent whose log-in lies in files of the user's."""

    shared: SharedLogIn

    def build_invocation(self, task):
        return replace(super().build_invocation(task), log_in=self.shared)


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """The user's state directory of the Agent's program."""
    directory = tmp_path / "user" / ".tool"
    (directory / "credentials").mkdir(parents=True)
    for name in (*LOG_IN, "history.json", "credentials/other.json"):
        (directory / name).write_text(OLD)
    return directory


def contents(home: Path) -> dict[str, tuple[int, str]]:
    """What is in the files of a directory, and in which inodes."""
    return {
        path.relative_to(home).as_posix(): (path.stat().st_ino, path.read_text())
        for path in home.rglob("*")
        if path.is_file()
    }


def played(tmp_path: Path, home: Path, script: str, mode: LogInMode) -> tuple[object, list[str]]:
    """What the Agent told, and the notices of the journal."""
    path = tmp_path / "agent.py"
    path.write_text(run_scenarios.PRELUDE + HERE + script)
    agent = LoggedIn([sys.executable, str(path)])
    agent.shared = SharedLogIn(
        variable="TOOL_HOME", directory=home, files=(*LOG_IN, "absent.json"), written={"config": "x"}
    )
    record = tmp_path / "record"
    result = run(
        run_scenarios.initial_program(tmp_path),
        TargetBenchmark(),
        agent=agent,
        execution=SandboxExecution(workers=1, log_in=mode),
        record_to=record,
        config=RunConfig(episode_budget=30, episode_pool_size=60, agent_timeout_seconds=60.0),
    )
    assert result.terminal_reason == "agent_exited", (record / "agent" / "stderr.log").read_text()
    notices = [str(event["message"]) for event in run_scenarios.journal(record) if event["event"] == "notice"]
    return json.loads((record / "agent" / "stdout.log").read_text() or "null"), notices


RENEW = f"""
told = {{"read": auth.read_text(), "write": tried(auth.write_text, {NEW!r}), "remove": tried(auth.unlink)}}
(home / "new").write_text({NEW!r})
told["replace"] = tried(os.replace, home / "new", token)
(home / "history.json").write_text({NEW!r})
told["seen"] = sorted(path.relative_to(home).as_posix() for path in home.rglob("*") if path.is_file())
print(json.dumps(told))
"""


def test_a_log_in_can_be_used_and_not_be_changed(tmp_path, home):
    before = contents(home)
    told, notices = played(tmp_path, home, RENEW, "read-only")
    assert told == {
        "read": OLD,
        "write": "OSError",
        "remove": "OSError",
        "replace": "OSError",
        "seen": ["auth.json", "config", "credentials/token.json", "history.json", "new"],
    }
    assert contents(home) == before
    assert notices == []


def test_a_renewed_log_in_is_copied_back_where_that_was_chosen_and_nothing_else_is(tmp_path, home):
    before = contents(home)
    script = f"auth.write_text({NEW!r})\n(home / 'history.json').write_text({NEW!r})\n(home / 'more.json').touch()"
    _, notices = played(tmp_path, home, script, "copy-back")
    after = contents(home)
    assert after.pop("auth.json")[1] == NEW
    before.pop("auth.json")
    assert after == before  # what was not renewed has not even been written
    assert (home / "auth.json").stat().st_mode & 0o777 == 0o600
    assert notices == []


def test_a_log_in_behind_a_link_is_renewed_where_it_lies(tmp_path, home):
    kept = tmp_path / "user" / "kept.json"
    (home / "auth.json").rename(kept)
    (home / "auth.json").symlink_to(kept)
    played(tmp_path, home, f"auth.write_text({NEW!r})", "copy-back")
    assert (home / "auth.json").is_symlink()
    assert kept.read_text() == NEW


def test_that_a_log_in_was_not_copied_back_is_told_by_the_record(tmp_path, home):
    before = contents(home)
    _, notices = played(tmp_path, home, "auth.unlink()\nos.mkfifo(auth)", "copy-back")
    assert contents(home) == before
    what = home / "auth.json"
    assert notices == [f"the Agent's log-in was not copied back to {what}: what the Agent left there is no file"]


def link_to(secret: Path, auth: Path) -> None:
    auth.unlink()
    auth.symlink_to(secret)


def link_the_directory_to(secret: Path, auth: Path) -> None:
    auth.parent.rename(auth.parent.with_name("old"))
    auth.parent.symlink_to(secret.parent)


def make_a_directory(_: Path, auth: Path) -> None:
    auth.unlink()
    auth.mkdir()


def listen_there(_: Path, auth: Path) -> None:
    auth.unlink()
    os.mknod(auth, 0o600 | stat.S_IFSOCK)


@pytest.mark.parametrize(
    ("leave", "why"),
    [
        (link_to, "Too many levels of symbolic links"),
        (link_the_directory_to, "Not a directory"),
        (make_a_directory, "no file"),
        (listen_there, "No such device or address"),
        (lambda _, auth: auth.write_text("{}" + " " * (2 << 20)), "no log-in"),
        (lambda _, auth: os.truncate(auth, 4 << 30), "no log-in"),
        (lambda _, auth: auth.write_text("hello"), "no log-in"),
        (lambda _, auth: auth.write_text("[" * 100_000), "no log-in"),
        (lambda _, auth: auth.unlink(), "No such file or directory"),
    ],
    ids=["link", "linked directory", "directory", "socket", "huge", "huge and sparse", "text", "deep", "nothing"],
)
def test_what_is_no_log_in_is_not_copied_back(tmp_path, home, leave, why):
    secret, state = tmp_path / "secret" / "auth.json", tmp_path / "state"
    for folder in (secret.parent, state):
        folder.mkdir()
    secret.write_text(NEW)
    before = contents(home)
    log_in = SharedLogIn(variable="TOOL_HOME", directory=home, files=("auth.json",))
    assert hand_out(log_in, state, "copy-back") == []
    leave(secret, enclosed_log_in(state) / "auth.json")
    told = copy_back(log_in, state)
    assert told is not None
    assert told.startswith(f"the Agent's log-in was not copied back to {home / 'auth.json'}: ")
    assert why in told
    assert contents(home) == before


def test_an_agent_without_rights_on_its_own_files_leaves_nothing_behind(tmp_path, home, monkeypatch):
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(temporary))
    script = """
(pathlib.Path.home() / "a" / "b").mkdir(parents=True)
os.chmod(pathlib.Path.home() / "a", 0)
(home / "c").mkdir(0)
"""
    played(tmp_path, home, script, "read-only")
    assert list(temporary.iterdir()) == []
