"""A request to stop an Evaluation, made from any thread."""

import os
import threading
from typing import Self

__all__ = ["Cancellation"]


class Cancellation:
    """Once cancelled it stays so. A waiting loop sees it through a descriptor.

    It holds two descriptors until :meth:`close`.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._cancelled = False
        self._reader, self._writer = os.pipe()

    def cancel(self) -> None:
        """Cancel; safe from any thread, and again."""
        with self._lock:
            if not self._cancelled:
                self._cancelled = True
                if self._writer >= 0:
                    os.write(self._writer, b"\0")

    @property
    def cancelled(self) -> bool:
        """Whether :meth:`cancel` was called."""
        return self._cancelled

    def fileno(self) -> int:
        """A descriptor that becomes readable once cancelled, and stays so."""
        return self._reader

    def close(self) -> None:
        """Give the descriptors back; :attr:`cancelled` still answers."""
        with self._lock:
            if self._writer >= 0:
                os.close(self._reader)
                os.close(self._writer)
                self._reader = self._writer = -1

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
