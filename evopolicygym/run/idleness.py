"""Whether an Agent still does anything that can be seen from outside: output, requests, Evaluations."""

import time
from collections.abc import Callable, Sequence
from pathlib import Path

from evopolicygym.session import Session
from evopolicygym.session.protocol import Request

__all__ = ["IdleWatch", "WatchedSession"]

_LOOKS = 20
"""How often in one timeout the logs are looked at."""
_LOOK_MAX_SECONDS = 5.0


class WatchedSession(Session):
    """A Session that knows when it was last asked for something."""

    last_request = 0.0
    """On the monotonic clock, in seconds; 0 before the first."""

    def handle(self, request: Request, *, peer_gone: Callable[[], bool]) -> dict[str, object]:
        """As :meth:`Session.handle`."""
        self.last_request = time.monotonic()
        return super().handle(request, peer_gone=peer_gone)


class IdleWatch:
    """Notes signs of life at every look.

    Args:
        timeout_seconds: how long there may be none.
        logs: the Agent's output files; one that grows is a sign.
        session: a request to it is a sign, and so is every moment in which it evaluates.
    """

    def __init__(self, timeout_seconds: float, logs: Sequence[Path], session: WatchedSession) -> None:
        self._timeout_seconds = timeout_seconds
        self._logs = logs
        self._session = session
        self._sizes = self._logged()
        self._last_sign = time.monotonic()
        self.look_seconds = min(timeout_seconds / _LOOKS, _LOOK_MAX_SECONDS)

    def is_over(self) -> bool:
        """Look now: whether the last sign of life is longer ago than the timeout."""
        now = time.monotonic()
        sizes = self._logged()
        if sizes != self._sizes or self._session.state.running is not None:
            self._sizes = sizes
            self._last_sign = now
        self._last_sign = max(self._last_sign, self._session.last_request)
        return now - self._last_sign >= self._timeout_seconds

    def _logged(self) -> list[int]:
        return [log.stat().st_size if log.exists() else 0 for log in self._logs]
