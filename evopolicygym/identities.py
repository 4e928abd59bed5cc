"""Byte-exact digests and seeds: the same inputs give the same Episodes on every version of the 0.3 line.

All are SHA-256 over a domain string that ends in one zero byte; a seed is the first eight bytes of the
hash, big-endian.
"""

import struct
from collections.abc import Iterable, Mapping
from hashlib import sha256
from typing import TypeVar

from evopolicygym.policy import POLICY_ABI_VERSION, PolicyValue, TensorValue, check_seed

__all__ = [
    "PROGRAM_ENTRYPOINT",
    "assessment_seed",
    "environment_digest",
    "plan_digest",
    "policy_seed",
    "program_digest",
    "seed_is_guessable",
    "skill_digest",
    "training_policy_seed",
    "training_pool_seed",
    "validation_seed",
]

_T = TypeVar("_T")

PROGRAM_ENTRYPOINT = "policy.py:make_policy"

# A run seed below this can be recovered from one policy_seed by search, and with it every hidden Episode.
GUESSABLE_SEED_BOUND = 2**48


def _u64(number: int) -> bytes:
    return number.to_bytes(8, "big")


def _lp(data: bytes) -> bytes:
    return _u64(len(data)) + data


def _seed(domain: bytes, *numbers: int) -> int:
    for number in numbers:
        check_seed(number, "a seed or position")
    return int.from_bytes(sha256(domain + b"".join(map(_u64, numbers))).digest()[:8], "big")


def _digest(data: bytes) -> str:
    return "sha256:" + sha256(data).hexdigest()


def policy_seed(master: int, position: int) -> int:
    """The Policy's seed in Episode ``position`` of ``evaluate()``, Validation or Assessment."""
    return _seed(b"evopolicygym/policy-seed/v1\0", master, position)


def training_pool_seed(run_seed: int) -> int:
    """The seed with which a Run's training pool is planned."""
    return _seed(b"evopolicygym/training-pool/v1\0", run_seed)


def training_policy_seed(run_seed: int, index: int) -> int:
    """The Policy's seed in pool Episode ``index``."""
    return _seed(b"evopolicygym/training-policy/v1\0", run_seed, index)


def validation_seed(run_seed: int) -> int:
    """The master seed of a Run's Validation."""
    return _seed(b"evopolicygym/validation-seed/v1\0", run_seed)


def assessment_seed(run_seed: int) -> int:
    """The master seed of a Run's Assessment."""
    return _seed(b"evopolicygym/assessment-seed/v1\0", run_seed)


def seed_is_guessable(run_seed: int) -> bool:
    """Whether hidden Episodes can be derived from a ``policy_seed``, since the run seed is small enough to search."""
    return run_seed < GUESSABLE_SEED_BOUND


def program_digest(files: Mapping[str, bytes]) -> str:
    """The identity of a Program: entry point, ABI and every file, in order of UTF-8 path."""
    parts = [
        b"evopolicygym/program/v1\0",
        _lp(PROGRAM_ENTRYPOINT.encode()),
        _lp(POLICY_ABI_VERSION.encode()),
        _u64(len(files)),
    ]
    for path, content in _in_path_order(files):
        parts += [_lp(path), _lp(content)]
    return _digest(b"".join(parts))


def skill_digest(name: str, files: Mapping[str, tuple[bool, bytes]]) -> str:
    """The identity of an Agent Skill; each file is ``(is executable, content)``."""
    parts = [b"evopolicygym/agent-skill/v1\0", _lp(name.encode()), _u64(len(files))]
    for path, (executable, content) in _in_path_order(files):
        parts += [_lp(path), b"\x01" if executable else b"\x00", _lp(content)]
    return _digest(b"".join(parts))


def _in_path_order(files: Mapping[str, _T]) -> list[tuple[bytes, _T]]:
    return sorted(((path.encode(), content) for path, content in files.items()), key=lambda item: item[0])


def environment_digest(parameters: Mapping[str, PolicyValue]) -> str:
    """The identity of an Environment's parameters; types are told apart (``1``, ``1.0`` and ``True`` differ)."""
    return _digest(b"evopolicygym/environment-parameters/v1\0" + _node(dict(parameters)))


def plan_digest(episodes: Iterable[PolicyValue]) -> str:
    """The identity of planned Episodes, each given as one PolicyValue; ``resume`` refuses another plan."""
    digest = sha256(b"evopolicygym/episode-plan/v1\0")
    for episode in episodes:
        digest.update(_lp(_node(episode)))
    return "sha256:" + digest.hexdigest()


def _node(value: PolicyValue) -> bytes:
    match value:
        case None:
            return b"N"
        case bool():
            return b"B1" if value else b"B0"
        case int():
            return b"I" + _lp(str(value).encode())
        case float():
            return b"F" + struct.pack(">d", value)
        case str():
            return b"S" + _lp(value.encode())
        case bytes():
            return b"Y" + _lp(value)
        case TensorValue():
            dims = b"".join(_lp(str(extent).encode()) for extent in value.shape)
            return b"T" + _lp(value.dtype.encode()) + _u64(len(value.shape)) + dims + _lp(value.data)
        case list():
            return b"L" + _u64(len(value)) + b"".join(map(_node, value))
        case tuple():
            return b"U" + _u64(len(value)) + b"".join(map(_node, value))
        case dict():
            items = sorted(((key.encode(), item) for key, item in value.items()), key=lambda pair: pair[0])
            return b"M" + _u64(len(items)) + b"".join(_lp(key) + _node(item) for key, item in items)
    raise TypeError(f"{type(value).__qualname__} is not a PolicyValue")
