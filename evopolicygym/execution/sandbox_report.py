"""What this machine can do for a sandbox, and how to get what it lacks."""

from __future__ import annotations

import os
from dataclasses import dataclass

from evopolicygym.errors import ExecutionUnavailableError

__all__ = ["SandboxReport", "sandbox_report"]


@dataclass(frozen=True, slots=True)
class SandboxReport:
    """What was found.

    Args:
        available: whether a sandbox can be had at all.
        lines: what there is, as (name, finding, advice); the advice is empty where nothing is missing.
    """

    available: bool
    lines: tuple[tuple[str, str, str], ...]

    def to_json(self) -> dict[str, object]:
        """The same as JSON objects."""
        return {
            "available": self.available,
            "findings": [{"name": name, "found": found, "advice": advice} for name, found, advice in self.lines],
        }


def sandbox_report() -> SandboxReport:
    """Try the sandbox out and tell; raises nothing for what is missing."""
    # Here, since this module is part of a package that Policy processes load parts of.
    from evopolicygym.execution.bubblewrap import NAMESPACES, examine_machine
    from evopolicygym.execution.cgroups import find_control_groups
    from evopolicygym.execution.confinement import LANDLOCK_SCOPES_ABI
    from evopolicygym.execution.sandbox_launch import limits_held_by

    try:
        machine = examine_machine()
    except ExecutionUnavailableError as error:
        return SandboxReport(False, (("sandbox", "cannot be had", str(error)),))
    groups = find_control_groups()
    landlock = machine.landlock
    lines = [
        ("bubblewrap", f"{machine.version} ({machine.bubblewrap})", ""),
        ("namespaces", ", ".join(NAMESPACES), ""),
        ("seccomp", "works", ""),
        (
            "Landlock",
            f"ABI {landlock}" if landlock else "not there: each Episode gets a mount namespace, some milliseconds more",
            "" if landlock else "use Linux 5.13 or newer, with landlock among the parameters lsm=… of its command line",
        ),
        (
            "abstract sockets",
            "out of an Agent's reach"
            if landlock >= LANDLOCK_SCOPES_ABI
            else "within an Agent's reach while it shares the network",
            "" if landlock >= LANDLOCK_SCOPES_ABI else 'use Linux 6.12 or newer, or network = "none"',
        ),
        (
            "limits",
            limits_held_by(groups),
            f"start it with: systemd-run {'' if os.getuid() == 0 else '--user '}--scope -p Delegate=yes …"
            if groups is None
            else "",
        ),
    ]
    return SandboxReport(True, tuple(lines))
