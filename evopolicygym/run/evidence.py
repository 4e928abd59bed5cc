"""Secrets that were passed on to an Agent: taken out of its logs, looked for in its workspace."""

import json
import os
import stat
from collections.abc import Mapping
from pathlib import Path

__all__ = ["files_with_secrets", "redact_file", "redact_text", "secret_values"]

SECRET_MIN_LENGTH = 8
"""Shorter values are no secrets worth the name, and replacing them would destroy the log."""

_CHUNK = 1024 * 1024


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
    redacted, count = _redact(text.encode(errors="surrogateescape"), secrets)
    return redacted.decode(errors="replace") if count else text


def redact_file(path: Path, secrets: Mapping[bytes, str]) -> int:
    """Replace every secret in a file by ``[redacted:NAME]``; the number of replacements.

    A file without any is left as it is, byte for byte.
    """
    if not secrets or not _holds_any(path, secrets):
        return 0
    staging = path.with_name(path.name + ".redacting")
    replaced = 0
    longest = max(map(len, secrets))
    with path.open("rb") as source, staging.open("wb") as target:
        staging.chmod(stat.S_IMODE(path.stat().st_mode))
        held = b""
        while chunk := source.read(_CHUNK):
            held, count = _redact(held + chunk, secrets)
            replaced += count
            keep = min(longest - 1, len(held))  # a secret may straddle two chunks
            target.write(held[: len(held) - keep])
            held = held[len(held) - keep :]
        target.write(held)
        target.flush()
        os.fsync(target.fileno())
    staging.replace(path)
    return replaced


def _redact(data: bytes, secrets: Mapping[bytes, str]) -> tuple[bytes, int]:
    count = 0
    for secret in sorted(secrets, key=len, reverse=True):  # a secret may be part of a longer one
        found = data.count(secret)
        if found:
            count += found
            data = data.replace(secret, f"[redacted:{secrets[secret]}]".encode())
    return data, count


def _holds_any(path: Path, secrets: Mapping[bytes, str]) -> bool:
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    with open(descriptor, "rb") as file:
        return _stream_holds(file.fileno(), secrets)


def _stream_holds(descriptor: int, secrets: Mapping[bytes, str]) -> bool:
    overlap = max(map(len, secrets)) - 1
    tail = b""
    while chunk := os.read(descriptor, _CHUNK):
        data = tail + chunk
        if any(secret in data for secret in secrets):
            return True
        tail = data[-overlap:] if overlap else b""
    return False


def files_with_secrets(directory: Path, secrets: Mapping[bytes, str]) -> list[str]:
    """Relative paths of the regular files below ``directory`` that hold a secret; no link is followed."""
    found: list[str] = []
    if not secrets:
        return found
    for parent, _, names, parent_descriptor in os.fwalk(directory, follow_symlinks=False):
        for name in sorted(names):
            try:
                descriptor = os.open(
                    name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=parent_descriptor
                )
            except OSError:
                continue  # a link, a socket, an unreadable file: nothing that could be read back either
            try:
                if stat.S_ISREG(os.fstat(descriptor).st_mode) and _stream_holds(descriptor, secrets):
                    found.append(str(Path(parent, name).relative_to(directory)))
            finally:
                os.close(descriptor)
    return found
