"""A template process as a direct child of this process, as workers have it."""

import contextlib
import os
import select
import signal
import time
from collections.abc import Mapping

from evopolicygym.execution.launch import CONTROL_DESCRIPTOR
from evopolicygym.process.descendants import descendants

__all__ = ["LocalTemplate", "start_local_template"]

# A template whose socket has ended kills its Policy and ends; a keeper does after SIGTERM.
_LEAVE_SECONDS = 5.0

# Between looks at a process where there is no descriptor to wait for it.
_BLIND_WAIT_SECONDS = 0.002


def start_local_template(argv: list[str], env: Mapping[str, str], control: int) -> "LocalTemplate":
    """Start ``argv`` with ``control`` as its descriptor ``CONTROL_DESCRIPTOR``; stderr is shared.

    Raises:
        OSError: it cannot be executed.
    """
    pid = os.posix_spawn(
        argv[0],
        argv,
        env,
        file_actions=[
            (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
            (os.POSIX_SPAWN_OPEN, 1, os.devnull, os.O_WRONLY, 0),
            # Never the same number here: the low ones are taken by what this process was given at its start.
            (os.POSIX_SPAWN_DUP2, control, CONTROL_DESCRIPTOR),
        ],
    )
    return LocalTemplate(pid)


class LocalTemplate:
    """The keeper of a template, a child of this process."""

    def __init__(self, pid: int) -> None:
        self._pid = pid

    def end(self) -> None:
        """See that it and all below it are gone."""
        if self._leaves():
            return
        with contextlib.suppress(ProcessLookupError):
            os.kill(self._pid, signal.SIGTERM)
        if self._leaves():
            return
        # Stopped by a Policy, perhaps. Its tree is looked up while its root still holds it together.
        for pid in (*descendants(self._pid), self._pid):
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        os.waitpid(self._pid, 0)

    def _leaves(self) -> bool:
        """Wait a while for it, and reap it."""
        deadline = time.monotonic() + _LEAVE_SECONDS
        try:
            descriptor = os.pidfd_open(self._pid)
        except (AttributeError, OSError):
            while time.monotonic() < deadline:
                if os.waitpid(self._pid, os.WNOHANG)[0]:
                    return True
                time.sleep(_BLIND_WAIT_SECONDS)
            return False
        try:
            poller = select.poll()
            poller.register(descriptor, select.POLLIN)
            if not poller.poll(_LEAVE_SECONDS * 1000):
                return False
        finally:
            os.close(descriptor)
        os.waitpid(self._pid, 0)
        return True
