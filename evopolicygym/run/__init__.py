"""One Run: from its preparation to the committed Record."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from evopolicygym.record import RunEvent, RunObserver
    from evopolicygym.results import (
        AssessmentResult,
        RunResult,
        SubmissionResult,
        ValidationCandidateResult,
        ValidationResult,
    )
    from evopolicygym.run.config import AssessmentConfig, RunConfig, ValidationConfig
    from evopolicygym.run.console import ConsoleProgress
    from evopolicygym.run.lifecycle import run, run_with_spec
    from evopolicygym.run.resumption import resume

__all__ = [
    "AssessmentConfig",
    "AssessmentResult",
    "ConsoleProgress",
    "RunConfig",
    "RunEvent",
    "RunObserver",
    "RunResult",
    "SubmissionResult",
    "ValidationCandidateResult",
    "ValidationConfig",
    "ValidationResult",
    "resume",
    "run",
    "run_with_spec",
]

# Resolved on first use (PEP 562): the run spec needs the configuration, not the engine.
_HOMES = {
    "AssessmentConfig": "evopolicygym.run.config",
    "AssessmentResult": "evopolicygym.results",
    "ConsoleProgress": "evopolicygym.run.console",
    "RunConfig": "evopolicygym.run.config",
    "RunEvent": "evopolicygym.record",
    "RunObserver": "evopolicygym.record",
    "RunResult": "evopolicygym.results",
    "SubmissionResult": "evopolicygym.results",
    "ValidationCandidateResult": "evopolicygym.results",
    "ValidationConfig": "evopolicygym.run.config",
    "ValidationResult": "evopolicygym.results",
    "resume": "evopolicygym.run.resumption",
    "run": "evopolicygym.run.lifecycle",
    "run_with_spec": "evopolicygym.run.lifecycle",
}


def __getattr__(name: str) -> object:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    import importlib

    value: object = getattr(importlib.import_module(home), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
