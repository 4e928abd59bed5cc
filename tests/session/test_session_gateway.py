"""The real client against the real socket, and peers that mean no good."""

import json
import os
import signal
import socket
import stat
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from evopolicygym.session import Gateway, Session, socket_place

if TYPE_CHECKING:
    from conftest import Agent, Desk

WAIT_SECONDS = 30.0
STATUS = b'{"protocol": 1, "command": "status"}\n'


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + WAIT_SECONDS
    while not condition():
        assert time.monotonic() < deadline, "it never happened"
        time.sleep(0.01)


def connect(gateway: Gateway) -> socket.socket:
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    connection.connect(str(gateway.socket_path))  # with a timeout, a full backlog would refuse at once
    connection.settimeout(WAIT_SECONDS)
    return connection


def raw_answer(connection: socket.socket) -> dict[str, object]:
    received = b""
    while not received.endswith(b"\n"):
        chunk = connection.recv(65536)
        assert chunk, "closed without an answer"
        received += chunk
    document = json.loads(received)
    assert isinstance(document, dict)
    return document


def raw_code(connection: socket.socket) -> object:
    error = raw_answer(connection)["error"]
    assert isinstance(error, dict)
    return error["code"]


def test_an_agent_submits_looks_and_finishes(agent: "Agent", session: Session) -> None:
    code, receipt = agent.ask("submit", "program", "--episodes", "0:2,4:8")
    assert code == 0
    assert receipt["episode_indices"] == [0, 1, 4, 5, 6, 7]
    assert receipt["episodes_used"] == 6
    code, status = agent.ask("status")
    assert (code, status["episodes_remaining"]) == (0, 24)
    assert agent.ask("wait") == (0, receipt)
    code, finished = agent.ask("finish", "submission-000001")
    assert (code, finished) == (0, {"candidate_submission_ids": ["submission-000001"]})
    assert session.finished.is_set()
    code, error = agent.ask("status")
    assert (code, error["code"]) == (1, "session_closed")


@pytest.mark.parametrize(
    ("episodes", "error_code"),
    [
        ("", "selector_invalid"),
        ("-1", "selector_invalid"),
        ("--help", "selector_invalid"),
        ("٣", "selector_invalid"),
        ("0:99999999999", "selector_invalid"),
        ("0:31", "over_budget"),
        ("0:11", "over_cap"),
    ],
)
def test_every_refused_selector_looks_the_same(agent: "Agent", desk: "Desk", episodes: str, error_code: str) -> None:
    code, error = agent.ask("submit", "program", "--episodes", episodes)
    assert (code, error["code"]) == (1, error_code)
    assert desk.names() == ["submission_refused"]


def test_a_selector_that_is_no_text_is_refused_and_journalled_safely(agent: "Agent", desk: "Desk") -> None:
    code, error = agent.ask("submit", "program", "--episodes", os.fsdecode(b"\xff"))
    assert (code, error["code"]) == (1, "selector_invalid")
    str(desk.events[0].fields()["message"]).encode("utf-8")


def test_the_program_may_be_named_from_wherever_it_resolves(agent: "Agent", desk: "Desk", tmp_path: Path) -> None:
    assert agent.ask("submit", ".", "--episodes", "0", cwd=desk.program)[0] == 0
    assert agent.ask("submit", str(desk.program), "--episodes=0", cwd=tmp_path)[0] == 0
    (tmp_path / "link").symlink_to(desk.workspace)
    assert agent.ask("submit", "link/program/", "--episodes", "0", cwd=tmp_path)[0] == 0


def test_another_directory_is_refused(agent: "Agent", desk: "Desk", tmp_path: Path) -> None:
    other = tmp_path / "program"
    other.mkdir()
    code, error = agent.ask("submit", "program", "--episodes", "0", cwd=tmp_path)
    assert (code, error["code"]) == (1, "program_path_invalid")
    desk.program.rename(desk.workspace / "moved")
    desk.program.symlink_to(other)
    code, error = agent.ask("submit", "program", "--episodes", "0")
    assert (code, error["code"]) == (1, "program_path_invalid")


def test_links_and_fifos_in_the_program_are_refused(agent: "Agent", desk: "Desk") -> None:
    (desk.program / "secret").symlink_to("/etc/passwd")
    code, error = agent.ask("submit", "program", "--episodes", "0")
    assert (code, error["code"]) == (1, "program_invalid")
    (desk.program / "secret").unlink()
    os.mkfifo(desk.program / "pipe")
    code, error = agent.ask("submit", "program", "--episodes", "0")
    assert (code, error["code"]) == (1, "program_invalid")
    assert "submitted: 'pipe': " in str(error["message"])


def test_a_killed_client_loses_nothing(agent: "Agent", desk: "Desk") -> None:
    desk.hold()
    client = agent.start("submit", "program", "--episodes", "0:3")
    assert desk.evaluating.wait(WAIT_SECONDS)
    client.send_signal(signal.SIGKILL)
    client.communicate(timeout=WAIT_SECONDS)
    code, error = agent.ask("submit", "program", "--episodes", "0:3")
    assert (code, error["code"]) == (1, "evaluation_running")
    desk.release()
    code, receipt = agent.ask("wait")
    assert (code, receipt["episodes_remaining"]) == (0, 27)


def test_an_interrupted_client_says_that_the_evaluation_goes_on(agent: "Agent", desk: "Desk") -> None:
    desk.hold()
    client = agent.start("submit", "program", "--episodes", "0")
    assert desk.evaluating.wait(WAIT_SECONDS)
    client.send_signal(signal.SIGINT)
    code, error = agent.answer(client)
    assert (code, error["code"]) == (130, "interrupted")
    desk.release()


def test_a_request_whose_client_hung_up_is_dropped(gateway: Gateway, desk: "Desk", session: Session) -> None:
    desk.may_capture.clear()
    request = {"protocol": 1, "command": "submit", "program": "program", "episodes": "0", "wait": True}
    with connect(gateway) as connection:
        connection.sendall(json.dumps({**request, "resolved_program": str(desk.program)}).encode() + b"\nmore")
        assert raw_code(connection) == "request_invalid"
    with connect(gateway) as connection:
        connection.sendall(json.dumps({**request, "resolved_program": str(desk.program)}).encode() + b"\n")
        assert desk.capturing.wait(WAIT_SECONDS)
        connection.sendall(b"bytes that nobody reads do not hide the hang-up")
    desk.may_capture.set()
    assert session.drain(WAIT_SECONDS)
    assert desk.events == []


def test_a_host_that_goes_away_is_a_connection_error(agent: "Agent", desk: "Desk", gateway: Gateway) -> None:
    desk.hold()
    client = agent.start("submit", "program", "--episodes", "0")
    assert desk.evaluating.wait(WAIT_SECONDS)
    gateway.close()
    code, error = agent.answer(client)
    assert (code, error["code"]) == (2, "connection")
    code, error = agent.ask("status")
    assert (code, error["code"]) == (2, "connection")
    assert "no Host answers" in str(error["message"])


def test_the_socket_is_private_and_removed(session: Session, folder: Path) -> None:
    with Gateway(session, folder) as gateway:
        assert gateway.socket_path.parent == folder
        assert stat.S_IMODE(gateway.socket_path.stat().st_mode) == 0o600
    assert list(folder.iterdir()) == []


def test_a_folder_with_too_long_a_path_is_refused(session: Session, tmp_path: Path) -> None:
    deep = tmp_path / ("d" * 90)
    deep.mkdir()
    with pytest.raises(OSError, match="choose a shorter folder"):
        Gateway(session, deep)
    assert list(deep.iterdir()) == []


@pytest.mark.parametrize(("length", "taken"), [(20, True), (70, False)])
def test_a_temporary_directory_is_passed_over_if_its_path_is_too_long_for_a_socket(
    monkeypatch: pytest.MonkeyPatch, length: int, taken: bool
) -> None:
    temporary = "/" + "t" * length
    monkeypatch.setattr(tempfile, "tempdir", temporary)
    assert socket_place() == Path(temporary if taken else "/tmp")


# ---- peers that mean no good ----


@pytest.mark.parametrize(
    "sent",
    [
        b"\n",
        b"GET / HTTP/1.1\r\n",
        b"\xff\xfe\x00\n",
        b"[" * 200_000 + b"\n",
        STATUS + STATUS,
        b'{"protocol": 1, "command": "status", "command": "status"}\n',
        b'{"protocol": NaN, "command": "status"}\n',
    ],
    ids=range(7),
)
def test_garbage_is_answered_as_garbage(gateway: Gateway, desk: "Desk", session: Session, sent: bytes) -> None:
    with connect(gateway) as connection:
        connection.sendall(sent)
        assert raw_code(connection) == "request_invalid"
    assert desk.events == []
    assert session.fault is None


def send_endlessly(connection: socket.socket) -> None:
    for _ in range(10_000):
        connection.sendall(b"x" * 1_000_000)


def test_a_line_without_end_is_cut_off(gateway: Gateway, agent: "Agent") -> None:
    with connect(gateway) as connection:
        with pytest.raises(OSError, match=r"."):
            send_endlessly(connection)
        assert raw_code(connection) == "request_invalid"
    assert agent.ask("status")[0] == 0


def test_silent_peers_block_nobody(gateway: Gateway, agent: "Agent") -> None:
    silent = [connect(gateway) for _ in range(300)]
    for connection in silent[-50:]:
        connection.sendall(b'{"half')
    try:
        assert agent.ask("status")[0] == 0
    finally:
        for connection in silent:
            connection.close()


def test_peers_that_hoard_memory_are_dropped(gateway: Gateway, agent: "Agent") -> None:
    hoarders = [connect(gateway) for _ in range(60)]
    try:
        for connection in hoarders:
            connection.setblocking(False)
            try:
                for _ in range(15):
                    connection.send(b"x" * 65_536)
            except OSError:
                pass
        assert agent.ask("status")[0] == 0
    finally:
        for connection in hoarders:
            connection.close()


def test_requests_that_wait_are_bounded_and_leave_with_their_clients(
    gateway: Gateway, agent: "Agent", desk: "Desk"
) -> None:
    desk.hold()
    assert agent.ask("submit", "program", "--episodes", "0", "--no-wait")[0] == 0
    waiting = []
    for _ in range(64):
        connection = connect(gateway)
        connection.sendall(b'{"protocol": 1, "command": "wait"}\n')
        waiting.append(connection)
    until(lambda: agent.ask("status")[1].get("code") == "too_many_requests")
    for connection in waiting:
        connection.close()
    until(lambda: agent.ask("status")[0] == 0)
    desk.release()


def test_a_peer_that_never_reads_its_answer_blocks_nobody(gateway: Gateway, agent: "Agent") -> None:
    deaf = [connect(gateway) for _ in range(40)]
    try:
        for connection in deaf:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1)
            connection.sendall(STATUS)
        assert agent.ask("status")[0] == 0
    finally:
        for connection in deaf:
            connection.close()


def test_closing_leaves_no_descriptor_and_no_thread_behind(session: Session, folder: Path) -> None:
    import threading

    before = len(os.listdir("/dev/fd")), threading.active_count()
    with Gateway(session, folder) as gateway:
        peers = [connect(gateway) for _ in range(20)]
        peers[0].sendall(STATUS)
        raw_answer(peers[0])
    for peer in peers:
        peer.close()
    until(lambda: (len(os.listdir("/dev/fd")), threading.active_count()) == before)
