"""The Session's Unix socket: bounded, private, and unimpressed by a slow, silent or hostile peer."""

import contextlib
import errno
import os
import select
import selectors
import socket
import tempfile
import threading
import time
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from evopolicygym.session.protocol import (
    MAX_LINE_BYTES,
    ErrorCode,
    Refusal,
    decode_request,
    encode_answer,
    refusal_answer,
)
from evopolicygym.session.session import PeerGone, Session

__all__ = ["Gateway", "socket_place"]

_SOCKET_NAME: Final = "session"
# sun_path holds 104 bytes on macOS and 108 on Linux, the closing zero byte included.
_MAX_SOCKET_PATH_BYTES: Final = 100
# What the names of a private directory, of a folder in it and of the socket add to the path of their place.
_NAMES_BYTES: Final = 48

_BACKLOG: Final = 128
# Connections that have not sent a whole request yet; beyond either bound the oldest is dropped.
_MAX_READING: Final = 128
_MAX_BUFFERED_BYTES: Final = 32 * 1024 * 1024
# Requests that are being carried out, most of them waiting for an Evaluation.
_MAX_SERVING: Final = 64
_READ_BYTES: Final = 65536
_REQUEST_SECONDS: Final = 10.0
_ANSWER_SECONDS: Final = 10.0
# Out of descriptors or memory: accept again a little later.
_ACCEPT_PAUSE_SECONDS: Final = 0.1
_TICK_SECONDS: Final = 1.0
# Requests that are being carried out when the gateway closes get this long to be answered.
_CLOSE_SECONDS: Final = 5.0

_NO_ROOM = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})


class Gateway:
    """Listens for the Agent's requests and hands them to the Session, from construction until :meth:`close`.

    One thread reads all connections, so that a peer that is slow or silent costs a buffer and no thread; every
    complete request is carried out on a thread of its own. Nothing that a peer says about itself is believed.

    Args:
        session: answers the requests.
        folder: where the socket is made; nobody else may look into it.

    Raises:
        OSError: the socket cannot be made there.
    """

    def __init__(self, session: Session, folder: Path) -> None:
        self._session = session
        self.socket_path: Path = folder.absolute() / _SOCKET_NAME
        self._listener = _listen(self.socket_path)
        self._closing = threading.Event()
        self._wake_reader, self._wake_writer = socket.socketpair()
        self._serving: set[threading.Thread] = set()
        self._serving_lock = threading.Lock()
        self._reading = _Readings()
        self._thread = threading.Thread(target=self._listen_until_closed, name="session gateway", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stop listening, let requests that are being carried out end, and remove the socket."""
        if self._closing.is_set():
            return
        self._closing.set()
        with contextlib.suppress(OSError):  # the thread is gone already
            self._wake_writer.send(b"!")
        self._thread.join(_CLOSE_SECONDS)
        deadline = time.monotonic() + _CLOSE_SECONDS
        with self._serving_lock:
            serving = list(self._serving)
        for thread in serving:
            thread.join(max(deadline - time.monotonic(), 0.0))
        self._wake_writer.close()
        self.socket_path.unlink(missing_ok=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    # ---- the reading thread ----

    def _listen_until_closed(self) -> None:
        try:
            self._listen_and_read()
        except Exception as error:  # noqa: BLE001 - the boundary of the thread: a Run without its gateway must end
            self._session.fail(error)

    def _listen_and_read(self) -> None:
        accept_after = 0.0
        with selectors.DefaultSelector() as selector, self._listener, self._wake_reader, self._reading as reading:
            selector.register(self._wake_reader, selectors.EVENT_READ)
            selector.register(self._listener, selectors.EVENT_READ)
            listening = True
            while not self._closing.is_set():
                pause = _TICK_SECONDS if listening else _ACCEPT_PAUSE_SECONDS
                for key, _ in selector.select(pause):
                    if key.fileobj is self._listener:
                        if not self._accept(selector):
                            selector.unregister(self._listener)
                            listening = False
                            accept_after = time.monotonic() + _ACCEPT_PAUSE_SECONDS
                    elif isinstance(key.data, _Reading) and key.data.open:
                        self._read(selector, key.data)
                for overdue in reading.overdue(time.monotonic()):
                    _dismiss(overdue.connection, f"no whole request arrived within {_REQUEST_SECONDS:g} seconds")
                    reading.drop(selector, overdue)
                if not listening and time.monotonic() >= accept_after:
                    selector.register(self._listener, selectors.EVENT_READ)
                    listening = True

    def _accept(self, selector: selectors.BaseSelector) -> bool:
        """Take one connection; False if there is no room for it at the moment."""
        try:
            connection, _ = self._listener.accept()
        except OSError as error:
            if error.errno not in _NO_ROOM:
                return True  # the peer is gone again, or nobody was there
            self._reading.drop_oldest(selector)
            return False
        connection.setblocking(False)
        self._reading.add(selector, connection)
        return True

    def _read(self, selector: selectors.BaseSelector, reading: "_Reading") -> None:
        try:
            chunk = reading.connection.recv(_READ_BYTES)
        except BlockingIOError:
            return
        except OSError:
            chunk = b""
        if not chunk:
            self._reading.drop(selector, reading)
            return
        self._reading.keep(selector, reading, chunk)
        if not reading.open:
            return
        end = reading.received.find(b"\n", len(reading.received) - len(chunk))
        if end < 0 and len(reading.received) < MAX_LINE_BYTES:
            return
        if end < 0 or end >= MAX_LINE_BYTES:
            _dismiss(reading.connection, f"it is longer than {MAX_LINE_BYTES} bytes")
            self._reading.drop(selector, reading)
        elif end + 1 < len(reading.received):
            _dismiss(reading.connection, "more follows after its line; send one request a connection")
            self._reading.drop(selector, reading)
        else:
            self._reading.release(selector, reading)
            self._serve_on_thread(reading.connection, bytes(reading.received[:end]))

    # ---- the serving threads ----

    def _serve_on_thread(self, connection: socket.socket, line: bytes) -> None:
        thread = threading.Thread(target=self._serve, args=(connection, line), name="session request", daemon=True)
        with self._serving_lock:
            admitted = len(self._serving) < _MAX_SERVING
            if admitted:
                self._serving.add(thread)
        if admitted:
            try:
                thread.start()
                return
            except RuntimeError:  # the system has no thread for us
                with self._serving_lock:
                    self._serving.discard(thread)
        message = f"{_MAX_SERVING} requests are being carried out; let one of them end, then ask again"
        _send_now(connection, Refusal(ErrorCode.TOO_MANY_REQUESTS, message))
        connection.close()

    def _serve(self, connection: socket.socket, line: bytes) -> None:
        try:
            with connection:
                try:
                    request = decode_request(line)
                    answer = self._session.handle(
                        request, peer_gone=lambda: self._closing.is_set() or _has_hung_up(connection)
                    )
                except Refusal as refusal:
                    answer = refusal_answer(refusal)
                connection.settimeout(_ANSWER_SECONDS)
                connection.sendall(encode_answer(answer))
        except (PeerGone, OSError):
            pass  # nobody reads the answer; what was decided stands, and `status` and `wait` tell it
        except Exception as error:  # noqa: BLE001 - the boundary of the thread: an answer that cannot be written
            self._session.fail(error)
        finally:
            with self._serving_lock:
                self._serving.discard(threading.current_thread())


class _Reading:
    """A connection whose request has not arrived completely."""

    __slots__ = ("connection", "deadline", "open", "received")

    def __init__(self, connection: socket.socket, deadline: float) -> None:
        self.connection = connection
        self.deadline = deadline
        self.received = bytearray()
        self.open = True


class _Readings:
    """All connections that are being read, oldest first, bounded in number and bytes."""

    def __init__(self) -> None:
        self._all: dict[_Reading, None] = {}
        self._bytes = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        for reading in self._all:
            reading.connection.close()
        self._all.clear()

    def add(self, selector: selectors.BaseSelector, connection: socket.socket) -> None:
        while len(self._all) >= _MAX_READING:
            self.drop_oldest(selector)
        reading = _Reading(connection, time.monotonic() + _REQUEST_SECONDS)
        self._all[reading] = None
        selector.register(connection, selectors.EVENT_READ, reading)

    def keep(self, selector: selectors.BaseSelector, reading: _Reading, chunk: bytes) -> None:
        reading.received += chunk
        self._bytes += len(chunk)
        while self._bytes > _MAX_BUFFERED_BYTES:
            self.drop_oldest(selector)

    def overdue(self, now: float) -> list[_Reading]:
        return [reading for reading in self._all if reading.deadline <= now]

    def drop_oldest(self, selector: selectors.BaseSelector) -> None:
        oldest = next(iter(self._all), None)
        if oldest is not None:
            self.drop(selector, oldest)

    def drop(self, selector: selectors.BaseSelector, reading: _Reading) -> None:
        self.release(selector, reading)
        reading.connection.close()

    def release(self, selector: selectors.BaseSelector, reading: _Reading) -> None:
        """Stop reading a connection, and leave it open for its answer."""
        selector.unregister(reading.connection)
        del self._all[reading]
        self._bytes -= len(reading.received)
        reading.open = False


def _dismiss(connection: socket.socket, reason: str) -> None:
    _send_now(connection, Refusal(ErrorCode.REQUEST_INVALID, f"the request is refused: {reason}"))


def _send_now(connection: socket.socket, refusal: Refusal) -> None:
    """Tell a peer why, if its buffer takes it at once."""
    with contextlib.suppress(OSError):
        connection.setblocking(False)
        connection.send(encode_answer(refusal_answer(refusal)))


def _has_hung_up(connection: socket.socket) -> bool:
    """Whether the peer has closed its end; unread bytes before that do not hide it."""
    poll = select.poll()
    poll.register(connection, select.POLLIN)
    return any(event & (select.POLLHUP | select.POLLERR | select.POLLNVAL) for _, event in poll.poll(0))


# ---- the socket's place ----


def socket_place() -> Path:
    """The temporary directory, or /tmp where paths below that one are too long for a socket."""
    place = Path(tempfile.gettempdir())
    return place if len(os.fsencode(place)) + _NAMES_BYTES <= _MAX_SOCKET_PATH_BYTES else Path("/tmp")


def _listen(path: Path) -> socket.socket:
    if len(os.fsencode(path)) > _MAX_SOCKET_PATH_BYTES:
        raise OSError(
            errno.ENAMETOOLONG,
            f"a socket path holds about {_MAX_SOCKET_PATH_BYTES} bytes; choose a shorter folder",
            str(path),
        )
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        listener.setblocking(False)
        listener.bind(os.fspath(path))
        path.chmod(0o600)
        listener.listen(_BACKLOG)
    except BaseException:
        listener.close()
        raise
    return listener
