"""Secrets that were passed on to an Agent: taken out of its logs, looked for in its workspace."""

import json
import os
import stat
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from itertools import islice
from pathlib import Path

from evopolicygym.record.strict_json import valid_text

__all__ = ["SecretSearch", "StreamRedactor", "redact_file", "redact_tail", "redact_text", "secret_values"]

SECRET_MIN_LENGTH = 8
"""Shorter values are no secrets worth the name, and replacing them would destroy the log."""

SEARCHED_ENTRIES = 100_000
SEARCHED_BYTES = 1024 * 1024 * 1024
SEARCHED_FILE_BYTES = 64 * 1024 * 1024
MAX_DEPTH = 64
"""How much of a directory is searched for secrets; each level holds one descriptor open meanwhile."""

_CHUNK = 1024 * 1024
_OPEN_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_OPEN_DIRECTORY = _OPEN_FILE | os.O_DIRECTORY


def secret_values(secrets: Mapping[str, str]) -> dict[bytes, str]:
    """The values of at least 8 characters to look for, each with the name of its variable.

    The forms that a value takes inside a JSON string are looked for too: logs of Agents are mostly JSON.
    """
    looked_for: dict[bytes, str] = {}
    for name, value in secrets.items():
        if len(value) < SECRET_MIN_LENGTH:
            continue
        for ensure_ascii in (True, False):
            looked_for[json.dumps(value, ensure_ascii=ensure_ascii)[1:-1].encode(errors="surrogateescape")] = name
        looked_for[value.encode(errors="surrogateescape")] = name
    return looked_for


def redact_text(text: str, secrets: Mapping[bytes, str]) -> str:
    """The text without the secrets."""
    redacted, count = _redact(valid_text(text).encode(), secrets)
    return redacted.decode(errors="replace") if count else text


def redact_tail(path: Path, size: int, secrets: Mapping[bytes, str]) -> bytes:
    """About the last ``size`` bytes of a file without the secrets, one that they would begin in the middle of included.

    Raises:
        OSError: it cannot be read.
    """
    reach = max(map(len, secrets), default=1) - 1
    with path.open("rb") as file:
        start = max(file.seek(0, os.SEEK_END) - size - reach, 0)
        file.seek(start)
        redacted, _ = _redact(file.read(size + reach), secrets)
    return redacted[reach if start else 0 :]


class StreamRedactor:
    """Takes the secrets out of bytes that come in pieces, cut anywhere.

    What reads on must come after it: text that is shortened first may end in half a secret.
    """

    def __init__(self, secrets: Mapping[bytes, str]) -> None:
        self._secrets = secrets
        self._held = b""
        self.count = 0

    def feed(self, piece: bytes) -> bytes:
        """The next bytes without secrets; what may be the beginning of one is held until more is known."""
        data = self._held + piece
        end = self._settled(data)
        self._held = data[end:]
        return self._redact(data[:end])

    def close(self) -> bytes:
        """What was held."""
        held, self._held = self._held, b""
        return self._redact(held)

    def _redact(self, data: bytes) -> bytes:
        redacted, count = _redact(data, self._secrets)
        self.count += count
        return redacted

    def _settled(self, data: bytes) -> int:
        """Up to where nothing that follows could be needed to tell a secret."""
        end = min((len(data) - _begun(data, secret) for secret in self._secrets), default=len(data))
        moved = True
        while moved:  # a whole secret must not be cut in two by that
            moved = False
            for secret in self._secrets:
                found = data.rfind(secret, max(end - len(secret) + 1, 0), end + len(secret) - 1)
                if 0 <= found < end:
                    end, moved = found, True
        return end


def _begun(data: bytes, secret: bytes) -> int:
    """How many of the last bytes are the beginning of ``secret``, but not all of it."""
    for size in range(min(len(secret) - 1, len(data)), 0, -1):
        if data.endswith(secret[:size]):
            return size
    return 0


def redact_file(path: Path, secrets: Mapping[bytes, str]) -> int:
    """Replace every secret in a file by ``[redacted:NAME]``; the number of replacements.

    A file without any is left as it is, byte for byte.
    """
    if not secrets or not _holds_any(path, secrets):
        return 0
    staging = path.with_name(path.name + ".redacting")
    redactor = StreamRedactor(secrets)
    with path.open("rb") as source, staging.open("wb") as target:
        staging.chmod(stat.S_IMODE(path.stat().st_mode))
        while chunk := source.read(_CHUNK):
            target.write(redactor.feed(chunk))
        target.write(redactor.close())
        target.flush()
        os.fsync(target.fileno())
    staging.replace(path)
    return redactor.count


def _redact(data: bytes, secrets: Mapping[bytes, str]) -> tuple[bytes, int]:
    count = 0
    for secret in sorted(secrets, key=len, reverse=True):  # a secret may be part of a longer one
        found = data.count(secret)
        if found:
            count += found
            data = data.replace(secret, f"[redacted:{secrets[secret]}]".encode())
    return data, count


def _holds_any(path: Path, secrets: Mapping[bytes, str]) -> bool:
    descriptor = os.open(path, _OPEN_FILE)
    with open(descriptor, "rb") as file:
        return _stream_holds(file.fileno(), secrets)


def _stream_holds(descriptor: int, secrets: Mapping[bytes, str], size: int = sys.maxsize) -> bool:
    overlap = max(map(len, secrets)) - 1
    tail = b""
    while chunk := os.read(descriptor, min(size, _CHUNK)):
        size -= len(chunk)
        data = tail + chunk
        if any(secret in data for secret in secrets):
            return True
        tail = data[-overlap:] if overlap else b""
    return False


class SecretSearch:
    """Looks for secrets in the regular files below a directory that an Agent could fill as it liked.

    No link is followed. However deep, wide or large the directory is, the search is short.

    Args:
        directory: where.
        secrets: from :func:`secret_values`.

    ``found`` are the relative paths of the files that hold one; ``omitted`` is the first path that was not, or not
    wholly, looked at, None if there is no such path.

    Raises:
        OSError: the directory itself cannot be read.
    """

    def __init__(self, directory: Path, secrets: Mapping[bytes, str]) -> None:
        self._secrets = secrets
        self._bytes_left = SEARCHED_BYTES
        self._entries_left = SEARCHED_ENTRIES
        self.found: list[str] = []
        self.omitted: str | None = None
        if secrets:
            self._enter(str(directory), None, ())

    def _enter(self, name: str, parent: int | None, parts: tuple[str, ...]) -> None:
        if len(parts) > MAX_DEPTH:
            self._omit(parts)
            return
        with self._opened(name, _OPEN_DIRECTORY, parent) as descriptor:
            with os.scandir(descriptor) as entries:
                names = sorted(entry.name for entry in islice(entries, self._entries_left + 1))
            for below in names:
                self._entries_left -= 1
                if self._entries_left < 0:
                    self._omit((*parts, below))
                    return
                try:
                    self._look_at(below, descriptor, (*parts, below))
                except OSError:  # unreadable
                    self._omit((*parts, below))

    def _look_at(self, name: str, parent: int, parts: tuple[str, ...]) -> None:
        mode = os.stat(name, dir_fd=parent, follow_symlinks=False).st_mode
        if stat.S_ISDIR(mode):
            self._enter(name, parent, parts)
        elif stat.S_ISREG(mode):
            with self._opened(name, _OPEN_FILE, parent) as descriptor:
                self._read(descriptor, parts)

    @staticmethod
    @contextmanager
    def _opened(name: str, flags: int, parent: int | None) -> Iterator[int]:
        descriptor = os.open(name, flags, dir_fd=parent)
        try:
            yield descriptor
        finally:
            os.close(descriptor)

    def _read(self, descriptor: int, parts: tuple[str, ...]) -> None:
        size = os.fstat(descriptor).st_size
        looked_at = min(size, SEARCHED_FILE_BYTES, self._bytes_left)
        self._bytes_left -= looked_at
        if looked_at and _stream_holds(descriptor, self._secrets, looked_at):
            self.found.append("/".join(parts))
        elif looked_at < size:
            self._omit(parts)

    def _omit(self, parts: tuple[str, ...]) -> None:
        self.omitted = self.omitted or "/".join(parts) or "."
