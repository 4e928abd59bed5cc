"""Policies in local processes, without isolation from this machine."""

from __future__ import annotations

import os
from collections.abc import Mapping

from evopolicygym.execution.launch import PolicyLaunch

__all__ = ["WORKERS_VARIABLE", "ProcessExecution", "check_workers", "default_workers"]

WORKERS_VARIABLE = "EVOPOLICYGYM_WORKERS"


class ProcessExecution:
    """Runs Policies as ordinary local processes of this user. Not a sandbox: say ``ProcessExecution.unsafe()``.

    A Policy can read what this user can read, this process's memory included. Use it for code that you trust.

    Attributes:
        kind: ``"unsafe-process"``, as the Record has it.
        launch: how Policy processes come to be; what workers are told.
    """

    kind = "unsafe-process"
    encloses_agent = False

    def __init__(self) -> None:
        raise TypeError("ProcessExecution is no sandbox: construct it with ProcessExecution.unsafe()")

    @classmethod
    def unsafe(cls, *, workers: int | None = None) -> ProcessExecution:
        """Local processes, no isolation.

        Args:
            workers: how many Episodes run at once, each Environment in a worker process of its own; None: the
                variable EVOPOLICYGYM_WORKERS, else one a CPU. 0: Environments are stepped in this process, one
                Episode at a time. Results do not depend on it.

        Raises:
            TypeError: ``workers`` is no int.
            ValueError: ``workers`` is negative.
        """
        execution = cls.__new__(cls)
        execution._workers = check_workers(workers)
        execution.launch = PolicyLaunch()
        return execution

    _workers: int | None
    launch: PolicyLaunch

    @property
    def workers(self) -> int:
        """How many workers there will be at most."""
        return default_workers() if self._workers is None else self._workers

    def launch_for(self, benchmark: object) -> PolicyLaunch:  # noqa: ARG002 (the same for all)
        """How Policies for this Benchmark come to be."""
        return self.launch

    def agent_sandbox_for(self, benchmark: object) -> None:
        """How the Agent is enclosed: not at all."""

    def facts_for(self, benchmark: object) -> Mapping[str, object]:  # noqa: ARG002
        """What isolates them: nothing."""
        return {}

    def __repr__(self) -> str:
        return f"ProcessExecution.unsafe(workers={self._workers})"


def check_workers(workers: object) -> int | None:
    """``workers`` if it is None or an int >= 0."""
    if workers is None:
        return None
    if type(workers) is not int:
        raise TypeError(f"workers must be an int or None, not {type(workers).__name__}")
    if workers < 0:
        raise ValueError(f"workers must be >= 0 (0: Environments in the Host process), found {workers}")
    return workers


def default_workers() -> int:
    """EVOPOLICYGYM_WORKERS, else the number of CPUs that this process may use.

    Raises:
        ValueError: the variable is no whole number >= 0.
    """
    text = os.environ.get(WORKERS_VARIABLE, "").strip()
    if text:
        if not text.isascii() or not text.isdigit():
            raise ValueError(f"{WORKERS_VARIABLE} must be a whole number >= 0, found {text!r}")
        return int(text)
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
