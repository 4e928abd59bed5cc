"""What a Run has come to so far; filled in phase by phase."""

from dataclasses import dataclass
from typing import Literal

from evopolicygym.results import AssessmentResult, TerminalReason, ValidationResult

__all__ = ["Outcome"]


@dataclass(slots=True)
class Outcome:
    """The decisions of a Run; each is journalled before it stands here.

    Args:
        terminal_reason: why the Run ended.
        error: a sentence about the trusted fault that ended it, None if there was none.
        candidates: ids handed off, in order.
        handed_off_by: who named them.
        selected: id of the final Submission.
        validation: the whole Validation, once complete.
        assessment: the whole Assessment, once complete.
    """

    terminal_reason: TerminalReason
    error: str | None = None
    candidates: tuple[str, ...] = ()
    handed_off_by: Literal["agent", "host"] | None = None
    selected: str | None = None
    validation: ValidationResult | None = None
    assessment: AssessmentResult | None = None
