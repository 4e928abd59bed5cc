"""What an Evaluation tells: each Episode as it completes, then all of it."""

from dataclasses import dataclass

from evopolicygym.artifacts import Feedback
from evopolicygym.results import EpisodeSummary

__all__ = ["DIAGNOSTICS_MAX_BYTES", "EpisodeCompleted", "EpisodeDiagnostics", "Evaluation", "EvaluationCancelled"]

# The Host keeps no more than this of one Episode's diagnostics; the parts below sum up to less.
DIAGNOSTICS_MAX_BYTES = 64 * 1024


class EvaluationCancelled(Exception):  # noqa: N818 (a request that was carried out, no error)
    """The Evaluation was cancelled; nothing came of it."""


@dataclass(frozen=True, slots=True)
class EpisodeDiagnostics:
    """What is known of a Policy's failure and of what it printed; for the Host's record, 64 KiB at most.

    Args:
        exception_type: type of the exception that Policy code raised, with its module unless built in.
        message: one sentence on the failure; None if there was none.
        frames: frames inside the Program, outermost first, such as ``"policy.py:31 in act"``.
        traceback: the whole traceback.
        stdout, stderr: the last part of what the Policy printed.
    """

    exception_type: str | None = None
    message: str | None = None
    frames: tuple[str, ...] = ()
    traceback: str | None = None
    stdout: str = ""
    stderr: str = ""


@dataclass(frozen=True, slots=True)
class EpisodeCompleted:
    """One Episode has ended.

    Args:
        position: its place in the plan.
        summary: how it ended.
        seconds: wall-clock time that it took.
        diagnostics: what is known of a failure, and of the Policy's output.
    """

    position: int
    summary: EpisodeSummary
    seconds: float
    diagnostics: EpisodeDiagnostics


@dataclass(frozen=True, slots=True)
class Evaluation:
    """One Program on a plan of Episodes.

    Args:
        feedback: what the Benchmark says.
        episodes: one summary an Episode, in plan order.
        diagnostics: likewise.
        seconds: wall-clock time of all of it, ``feedback()`` included.
    """

    feedback: Feedback
    episodes: tuple[EpisodeSummary, ...]
    diagnostics: tuple[EpisodeDiagnostics, ...]
    seconds: float
