"""One Run: from its preparation to the committed Record."""

from typing import TYPE_CHECKING

from evopolicygym.first_use import on_first_use

if TYPE_CHECKING:
    from evopolicygym.record import RunEvent, RunObserver
    from evopolicygym.results import (
        AssessmentResult,
        RunResult,
        SubmissionResult,
        ValidationCandidateResult,
        ValidationResult,
    )
    from evopolicygym.run.console import ConsoleProgress
    from evopolicygym.run.lifecycle import run
    from evopolicygym.run.resumption import resume
    from evopolicygym.run_config import AssessmentConfig, RunConfig, ValidationConfig

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
]

# On first use: most commands need the console, not the engine.
__getattr__, __dir__ = on_first_use(
    __name__,
    {
        "AssessmentConfig": "evopolicygym.run_config",
        "AssessmentResult": "evopolicygym.results",
        "ConsoleProgress": "evopolicygym.run.console",
        "RunConfig": "evopolicygym.run_config",
        "RunEvent": "evopolicygym.record",
        "RunObserver": "evopolicygym.record",
        "RunResult": "evopolicygym.results",
        "SubmissionResult": "evopolicygym.results",
        "ValidationCandidateResult": "evopolicygym.results",
        "ValidationConfig": "evopolicygym.run_config",
        "ValidationResult": "evopolicygym.results",
        "resume": "evopolicygym.run.resumption",
        "run": "evopolicygym.run.lifecycle",
    },
)
