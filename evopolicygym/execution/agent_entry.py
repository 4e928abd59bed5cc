"""Inside an Agent's sandbox: give up the last privileges, then become the Agent.

Started by path: ``python -I -S agent_entry.py SETTINGS COMMAND…``.
"""

# ruff: noqa: PTH100, PTH110, PTH116, PTH120 (nothing but the standard library's smallest parts)

from __future__ import annotations

import marshal
import os
import signal
import sys

if __name__ == "__main__":
    sys.path.append(os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))))

from evopolicygym.execution import confinement
from evopolicygym.execution.seccomp import agent_filter

_CANNOT_EXECUTE = 127


def main(argv: list[str]) -> int:
    """Become the command; returns only if that fails."""
    settings, command = marshal.loads(bytes.fromhex(argv[1])), argv[2:]
    for path in settings["files"]:
        _reopen_stdin(path)
    for device in settings["devices"]:
        if os.path.exists(f"/dev/{device}"):
            confinement.make_device_read_only(f"/dev/{device}")
    confinement.make_kernel_settings_read_only()
    confinement.mount_terminals("/dev/pts")
    # In a user namespace of its own even as user 0: the sandbox's first process, which has no filter, is another's.
    confinement.become_user(settings["user"], settings["group"])
    confinement.drop_capabilities()
    confinement.limit_resources(settings["limits"])
    confinement.no_new_privileges()
    if settings["landlock"] >= confinement.LANDLOCK_SCOPES_ABI:
        # Files and network are a matter of the namespaces; this is for what lies beyond them.
        confinement.Landlock(settings["landlock"], files=False).enter()
    confinement.install_seccomp_filter(agent_filter())
    signal.signal(signal.SIGTERM, signal.SIG_DFL)  # ignored around it, so that the Agent alone hears it
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
    try:
        os.execvpe(command[0], command, os.environ)
    except OSError as error:
        print(f"{command[0]} could not be started in the sandbox: {error.strerror}", file=sys.stderr)  # noqa: T201
    return _CANNOT_EXECUTE


def _reopen_stdin(path: str) -> None:
    """Where standard input is this file, have it by its read-only mount: by /proc it could be opened for writing."""
    if os.path.samestat(os.fstat(0), os.stat(path)):
        descriptor = os.open(path, os.O_RDONLY)
        os.dup2(descriptor, 0)
        os.close(descriptor)


if __name__ == "__main__":
    sys.exit(main(sys.argv))
