"""The client by itself: what it loads, what it says of wrong use, where it finds the Host."""

import json
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

CLIENT = Path(__file__).parents[2] / "evopolicygym" / "session" / "client.py"
WAIT_SECONDS = 30.0
HEAVY = {"pydantic", "typer", "rich", "numpy", "gymnasium", "platformdirs", "cloudpickle", "tomli_w"}
SLOW = {"argparse", "asyncio", "dataclasses", "inspect", "pathlib", "subprocess", "typing"}


def run_client(*arguments: str, cwd: Path | None = None, **environment: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, "-I", str(CLIENT), *arguments],
        env={"PATH": os.environ["PATH"], **environment},
        cwd=cwd,
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
        timeout=WAIT_SECONDS,
    )


def error_of(process: "subprocess.CompletedProcess[str]") -> tuple[int, str, str]:
    assert process.stdout == ""
    assert process.stderr.count("\n") == 1
    document = json.loads(process.stderr)
    assert document["ok"] is False
    return process.returncode, document["error"]["code"], document["error"]["message"]


def loaded_modules(*options_and_code: str) -> set[str]:
    process = subprocess.run(
        [sys.executable, *options_and_code], capture_output=True, text=True, check=True, timeout=WAIT_SECONDS
    )
    return set(json.loads(process.stdout.splitlines()[-1]))


def test_the_client_file_stands_alone_on_the_standard_library() -> None:
    code = f"import json, runpy, sys; runpy.run_path({str(CLIENT)!r}); print(json.dumps(list(sys.modules)))"
    roots = {name.partition(".")[0] for name in loaded_modules("-I", "-S", "-c", code)}
    assert roots - {"__main__"} <= set(sys.stdlib_module_names)


def test_the_client_loads_nothing_slow() -> None:
    code = (
        f"import json, sys; sys.argv = ['x', 'status']; from importlib import util; "
        f"spec = util.spec_from_file_location('client', {str(CLIENT)!r}); module = util.module_from_spec(spec); "
        f"before = set(sys.modules); spec.loader.exec_module(module); "
        f"print(json.dumps(list(set(sys.modules) - before)))"
    )
    loaded = loaded_modules("-I", "-S", "-c", code)
    assert not loaded & (SLOW - {"typing"})
    assert "typing" not in loaded


def test_the_installed_command_loads_nothing_but_the_standard_library() -> None:
    code = (
        "import json, sys; before = set(sys.modules); import evopolicygym.session.client; "
        "print(json.dumps(list(set(sys.modules) - before)))"
    )
    loaded = {name.partition(".")[0] for name in loaded_modules("-c", code)}
    assert not loaded & HEAVY
    assert loaded - {"evopolicygym"} <= set(sys.stdlib_module_names)


def test_the_module_runs_the_same_command() -> None:
    process = subprocess.run(
        [sys.executable, "-m", "evopolicygym.session", "--help"], capture_output=True, text=True, timeout=WAIT_SECONDS
    )
    assert process.returncode == 0
    assert process.stdout.startswith("usage: evopolicygym-session")


@pytest.mark.parametrize("arguments", [("-h",), ("--help",), ("help",)])
def test_help_names_every_command(arguments: tuple[str, ...]) -> None:
    process = run_client(*arguments)
    assert (process.returncode, process.stderr) == (0, "")
    for command in ("submit", "status", "wait", "finish", "--episodes", "--no-wait"):
        assert command in process.stdout


@pytest.mark.parametrize("command", ["submit", "status", "wait", "finish"])
@pytest.mark.parametrize("option", ["-h", "--help"])
def test_every_command_explains_itself(command: str, option: str) -> None:
    process = run_client(command, option)
    assert process.returncode == 0
    assert process.stdout.startswith(f"usage: evopolicygym-session {command}")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ((), "no command is given"),
        (("stats",), "'stats' is no command; use submit, status, wait or finish"),
        (("submit",), "takes one directory"),
        (("submit", "program"), "--episodes SELECTOR once"),
        (("submit", "--episodes", "0"), "takes one directory"),
        (("submit", "a", "b", "--episodes", "0"), "found 2"),
        (("submit", "program", "--episodes"), "needs a selector"),
        (("submit", "program", "--episodes", "0", "--episodes", "1"), "found it 2 times"),
        (("submit", "program", "--episode", "0"), "no option '--episode'"),
        (("submit", "program", "--episodes", "0", "--nowait"), "no option '--nowait'"),
        (("status", "now"), "takes no argument"),
        (("status", "--json"), "no option '--json'"),
        (("wait", "a", "b"), "one Submission at most"),
        (("finish",), "at least one"),
        (("finish", "--all"), "no option '--all'"),
    ],
)
def test_wrong_use_says_what_to_write(arguments: tuple[str, ...], said: str) -> None:
    code, kind, message = error_of(run_client(*arguments))
    assert (code, kind) == (2, "usage")
    assert said in message
    assert "; use" in message or "once" in message


@pytest.mark.parametrize(
    "environment",
    [
        {},
        {"EVOPOLICYGYM_SESSION_SOCKET": "relative", "EVOPOLICYGYM_WORKSPACE": "/w"},
        {"EVOPOLICYGYM_SESSION_SOCKET": "/s"},
        {"EVOPOLICYGYM_SESSION_SOCKET": "/s", "EVOPOLICYGYM_WORKSPACE": "relative"},
    ],
)
def test_outside_of_a_run_it_says_so(environment: dict[str, str]) -> None:
    code, kind, message = error_of(run_client("status", **environment))
    assert (code, kind) == (2, "usage")
    assert "works only in a process that a Run has started" in message


class OneShotHost:
    """Answers one connection with given bytes, at any path."""

    def __init__(self, folder: Path, answer: bytes) -> None:
        self.path = folder / "session"
        self._answer = answer
        self._socket = socket.socket(socket.AF_UNIX)
        here = Path.cwd()
        os.chdir(folder)
        try:
            self._socket.bind("session")
        finally:
            os.chdir(here)
        self._socket.listen(1)
        self._socket.settimeout(WAIT_SECONDS)
        self.request = b""
        self._thread = threading.Thread(target=self._serve)
        self._thread.start()

    def _serve(self) -> None:
        try:
            connection, _ = self._socket.accept()
        except OSError:
            return
        with connection:
            connection.settimeout(WAIT_SECONDS)
            while not self.request.endswith(b"\n"):
                self.request += connection.recv(65536)
            for start in range(0, len(self._answer), 1000):
                try:
                    connection.sendall(self._answer[start : start + 1000])
                except OSError:
                    return

    def close(self) -> None:
        self._thread.join(WAIT_SECONDS)
        self._socket.close()


@pytest.fixture
def hosts() -> Iterator[list[OneShotHost]]:
    started: list[OneShotHost] = []
    yield started
    for host in started:
        host.close()


def ask(host: OneShotHost, *arguments: str) -> "subprocess.CompletedProcess[str]":
    return run_client(
        *arguments, EVOPOLICYGYM_SESSION_SOCKET=str(host.path), EVOPOLICYGYM_WORKSPACE=str(host.path.parent)
    )


def test_a_socket_at_a_long_path_is_reached(tmp_path: Path, hosts: list[OneShotHost]) -> None:
    deep = tmp_path / ("ü" * 100) / "sp ace 🚀"
    deep.mkdir(parents=True)
    hosts.append(OneShotHost(deep, b'{"ok": true, "result": {}}\n'))
    process = ask(hosts[0], "status")
    assert (process.returncode, process.stdout, process.stderr) == (0, '{"ok": true, "result": {}}\n', "")


def test_the_selector_is_sent_as_it_was_written(tmp_path: Path, hosts: list[OneShotHost]) -> None:
    hosts.append(OneShotHost(tmp_path, b'{"ok": true, "result": {}}\n'))
    assert ask(hosts[0], "submit", "program", "--no-wait", "--episodes", " 0,٣").returncode == 0
    request = json.loads(hosts[0].request)
    assert request["episodes"] == " 0,٣"
    assert request["wait"] is False


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (b"", "closed the connection before it answered"),
        (b'{"ok": true, "resu', "closed the connection before it answered"),
        (b"SSH-2.0-OpenSSH\n", "does not speak as a Host does"),
        (b'{"ok": "yes"}\n', "does not speak as a Host does"),
        (b"[]\n", "does not speak as a Host does"),
        (b"x" * 1_100_000 + b"\n", "longer than"),
    ],
    ids=["nothing", "half", "text", "wrong ok", "list", "too long"],
)
def test_what_is_no_answer_is_a_connection_error(
    tmp_path: Path, hosts: list[OneShotHost], answer: bytes, said: str
) -> None:
    hosts.append(OneShotHost(tmp_path, answer))
    code, kind, message = error_of(ask(hosts[0], "status"))
    assert (code, kind) == (2, "connection")
    assert said in message


def test_a_path_where_nobody_listens_is_a_connection_error(tmp_path: Path) -> None:
    code, kind, message = error_of(
        run_client("status", EVOPOLICYGYM_SESSION_SOCKET=str(tmp_path / "gone"), EVOPOLICYGYM_WORKSPACE=str(tmp_path))
    )
    assert (code, kind) == (2, "connection")
    assert "no Host answers" in message


def test_an_answer_that_nobody_reads_makes_no_traceback(tmp_path: Path, hosts: list[OneShotHost]) -> None:
    hosts.append(OneShotHost(tmp_path, b'{"ok": true, "result": {}}\n'))
    reader, writer = os.pipe()
    os.close(reader)
    process = subprocess.run(
        [sys.executable, "-I", str(CLIENT), "status"],
        env={"EVOPOLICYGYM_SESSION_SOCKET": str(hosts[0].path), "EVOPOLICYGYM_WORKSPACE": str(tmp_path)},
        stdout=writer,
        stderr=subprocess.PIPE,
        timeout=WAIT_SECONDS,
    )
    os.close(writer)
    assert (process.returncode, process.stderr) == (2, b"")
