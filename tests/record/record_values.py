"""Episodes that went well or ill, for Records to hold."""

from evopolicygym.evaluation import EpisodeDiagnostics
from evopolicygym.results import EpisodeSummary

COMPLETED = EpisodeSummary("completed", 10.0, 10)
FAILED = EpisodeSummary("policy_failed", None, 3, "exception")


def crash(
    message: str = "index 7 is out of range", where: str = "policy.py:31 in act", stdout: str = ""
) -> EpisodeDiagnostics:
    """An IndexError in a Policy."""
    traceback = f'Traceback (most recent call last):\n  File "/host/path/policy.py"\nIndexError: {message}\n'
    return EpisodeDiagnostics("IndexError", message, ("policy.py:9 in make_policy", where), traceback, stdout)
