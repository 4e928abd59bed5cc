"""Numbers as people read them: as many digits as tell something, and the same number of decimals down a column."""

import math
from collections.abc import Iterable

from evopolicygym.run.console import score_text


def column_decimals(values: Iterable[object]) -> int | None:
    """How many decimals the scores of a column share: those of the largest; None if one format cannot fit them."""
    largest = max((abs(value) for value in values if isinstance(value, int | float)), default=0.0)
    if not 1e-3 <= largest < 1e7:
        return None if largest else 0
    return len(score_text(largest).partition(".")[2])


def aligned_text(score: object, decimals: int | None) -> str:
    """A score of a column with so many decimals; a dash where there is none."""
    if decimals is None or not isinstance(score, int | float):
        return score_text(score)
    return f"{score:.{decimals}f}"


def signed_text(value: float, decimals: int | None = None) -> str:
    """A difference with its sign; of a column with so many decimals, if they are given."""
    if not value:
        return "0"
    return f"{'+' if value > 0 else ''}{aligned_text(value, decimals)}"


def short_signed_text(value: float) -> str:
    """A difference with its sign and the three digits that are all that noise leaves."""
    if not value:
        return "0"
    return f"{value:+.0f}" if 100 <= abs(value) < 1e6 else f"{value:+.3g}"


def duration_text(seconds: float) -> str:
    """``"7 s"``, ``"3:07"`` or ``"1:03:07"``."""
    if seconds < 60:
        return f"{seconds:.1f} s" if seconds < 10 else f"{seconds:.0f} s"
    return clock_text(seconds)


def clock_text(seconds: float) -> str:
    """``"0:07"``, ``"3:07"`` or ``"1:03:07"``."""
    whole = math.floor(seconds)
    hours, minutes, rest = whole // 3600, whole // 60 % 60, whole % 60
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"


def digest_text(digest: str) -> str:
    """As much of a digest as tells Programs apart; the whole stands in the Record and behind ``--json``."""
    return f"{digest[:19]}…" if len(digest) > 20 else digest


def counted(number: int, noun: str) -> str:
    """``"1 Episode"``, ``"2 Episodes"``."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
