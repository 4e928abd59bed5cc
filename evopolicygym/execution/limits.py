"""How much of the machine a Policy and an Agent may take in a sandbox."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import TypeVar

__all__ = ["AgentLimits", "PolicyLimits", "limits_from"]

_MIB = 1024 * 1024
_GIB = 1024 * _MIB


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyLimits:
    """What one Episode's Policy may take, all its processes together unless it says otherwise.

    Args:
        memory_bytes: memory; also the address space of each process.
        cpu_seconds: processor time of each process.
        processes: processes and threads at once.
        file_bytes: size of one file.
        open_files: open descriptors of each process.
        scratch_bytes: all files in the scratch directory.

    Raises:
        TypeError: a limit is no int.
        ValueError: a limit is too small for an interpreter to run.
    """

    memory_bytes: int = 4 * _GIB
    cpu_seconds: int = 3600
    processes: int = 64
    file_bytes: int = 256 * _MIB
    open_files: int = 256
    scratch_bytes: int = 256 * _MIB

    def __post_init__(self) -> None:
        _check(self, memory_bytes=128 * _MIB, open_files=32)


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentLimits:
    """What the Agent may take, all its processes together.

    Args:
        memory_bytes: memory.
        processes: processes and threads at once.
        file_bytes: size of one file.
        open_files: open descriptors of each process.

    Raises:
        TypeError: a limit is no int.
        ValueError: a limit is too small for an Agent to run.
    """

    memory_bytes: int = 16 * _GIB
    processes: int = 4096
    file_bytes: int = 16 * _GIB
    open_files: int = 65_536

    def __post_init__(self) -> None:
        _check(self, memory_bytes=128 * _MIB, processes=8, file_bytes=64 * _MIB, open_files=64)


_Limits = TypeVar("_Limits", PolicyLimits, AgentLimits)


def limits_from(value: object, kind: type[_Limits], name: str) -> _Limits:
    """Limits as given, or as a table of a run spec.

    Raises:
        TypeError: neither, or a limit of the wrong type.
        ValueError: an unknown limit, or one that is too small.
    """
    if isinstance(value, kind):
        return value
    if not isinstance(value, Mapping):
        raise TypeError(f"{name} must be {kind.__name__}, or a table of its limits, not {type(value).__name__}")
    known = [field.name for field in fields(kind)]
    for key in value:
        if key not in known:
            raise ValueError(f"{name} has no limit {key!r}; it can be {', '.join(known)}")
    return kind(**value)


def _check(limits: PolicyLimits | AgentLimits, **least: int) -> None:
    for name, value in asdict(limits).items():
        if type(value) is not int:
            raise TypeError(f"{name} must be an int, not {type(value).__name__}")
        if value < least.get(name, 1):
            raise ValueError(f"{name} must be at least {least.get(name, 1)}, found {value}")
