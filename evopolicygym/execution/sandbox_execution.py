"""Policies and the Agent in sandboxes, made by bubblewrap, Landlock and seccomp."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Literal

from evopolicygym.execution.agent_sandbox import AgentSandbox
from evopolicygym.execution.bubblewrap import NAMESPACES, SandboxMachine, examine_machine
from evopolicygym.execution.cgroups import find_control_groups
from evopolicygym.execution.confinement import LANDLOCK_SCOPES_ABI
from evopolicygym.execution.limits import AgentLimits, PolicyLimits, limits_from
from evopolicygym.execution.process_execution import check_workers, default_workers
from evopolicygym.execution.sandbox_launch import SandboxLaunch, limits_held_by
from evopolicygym.execution.visible_paths import benchmark_modules, policy_paths

__all__ = ["SandboxExecution"]


class SandboxExecution:
    """Runs every Policy, and the Agent, in a sandbox of its own. Linux, with bubblewrap.

    A Policy sees the interpreter, its packages and its Program, read-only; it can write to its scratch directory; it
    has no network and sees no process but its own. An Agent can write to its workspace (but not to ``feedback/`` and
    ``skills/``) and to a HOME made for the Run; of the rest of the Record, of other Runs and of the user's home it
    sees nothing. Results are those of ``ProcessExecution.unsafe()``.

    Args:
        workers: as for `ProcessExecution.unsafe`.
        policy: limits of a Policy; a table of them will do.
        agent: limits of the Agent; a table of them will do.
        network: the Agent's: ``"shared"`` with the Host, since it must reach its model, or ``"none"``.
        hide: top-level modules that neither Policy nor Agent can import; None: the Benchmark's own distribution and
            its simulator. ``evopolicygym`` is never hidden. With a shared network an Agent could fetch them again.
        visible: further paths that the Agent may read, such as a tool outside the system's directories.
        log_in: of an Agent that is logged in by a file: ``"read-only"``: it can use the file and not change it;
            ``"copy-back"``: it gets a copy, and what it renews is copied back at its end.
        landlock: False: as on kernels without Landlock: each Episode gets a mount namespace instead (slower), and an
            Agent with a shared network reaches abstract sockets of the Host.

    Raises:
        TypeError: an argument of the wrong type.
        ValueError: a wrong value.
    """

    kind = "sandbox"
    encloses_agent = True

    def __init__(
        self,
        *,
        workers: int | None = None,
        policy: PolicyLimits | Mapping[str, int] | None = None,
        agent: AgentLimits | Mapping[str, int] | None = None,
        network: Literal["shared", "none"] = "shared",
        hide: Sequence[str] | None = None,
        visible: Sequence[str] = (),
        log_in: Literal["read-only", "copy-back"] = "read-only",
        landlock: bool = True,
    ) -> None:
        if network not in ("shared", "none"):
            raise ValueError(f"network is {network!r}; it can be 'shared' or 'none'")
        if log_in not in ("read-only", "copy-back"):
            raise ValueError(f"log_in is {log_in!r}; it can be 'read-only' or 'copy-back'")
        self._workers = check_workers(workers)
        self._policy = PolicyLimits() if policy is None else limits_from(policy, PolicyLimits, "policy")
        self._agent = AgentLimits() if agent is None else limits_from(agent, AgentLimits, "agent")
        self._network = network
        self._hide = None if hide is None else _module_names(hide)
        self._visible = tuple(map(_absolute, _texts("visible", visible)))
        self._log_in = log_in
        self._landlock = landlock

    @property
    def workers(self) -> int:
        """How many workers there will be at most."""
        return default_workers() if self._workers is None else self._workers

    def launch_for(self, benchmark: object) -> SandboxLaunch:
        """How Policies for this Benchmark come to be.

        Raises:
            ExecutionUnavailableError: this machine can make no sandbox.
        """
        machine = examine_machine()
        groups = find_control_groups()
        if groups is not None:
            groups.sweep()
        return SandboxLaunch(
            bubblewrap=machine.bubblewrap,
            landlock=self._landlock_abi(machine),
            limits=self._policy,
            paths=policy_paths(),
            hidden=self._hidden(benchmark),
            control_groups=groups,
        )

    def agent_sandbox_for(self, benchmark: object) -> AgentSandbox:
        """How the Agent is enclosed in a Run on this Benchmark.

        Raises:
            ExecutionUnavailableError: this machine can make no sandbox.
        """
        machine = examine_machine()
        return AgentSandbox(
            bubblewrap=machine.bubblewrap,
            landlock=self._landlock_abi(machine),
            limits=self._agent,
            network=self._network,
            log_in=self._log_in,
            hidden=self._hidden(benchmark),
            visible=self._visible,
            control_groups=find_control_groups(),
        )

    def facts_for(self, benchmark: object) -> Mapping[str, object]:
        """What is in force, for the Record."""
        machine = examine_machine()
        groups = find_control_groups()
        shared = self._network == "shared"
        landlock = self._landlock_abi(machine)
        return {
            "bubblewrap": machine.version,
            "namespaces": list(NAMESPACES),
            "landlock_abi": landlock,
            "seccomp": True,
            "capabilities": [],
            "new_privileges": False,
            "episode_isolation": "landlock" if landlock else "namespaces",
            "limits_held_by": limits_held_by(groups),
            "policy_limits": asdict(self._policy),
            "agent_limits": asdict(self._agent),
            "policy_network": "none",
            "agent_network": self._network,
            "agent_abstract_sockets": "unreachable" if not shared or landlock >= LANDLOCK_SCOPES_ABI else "reachable",
            "agent_log_in": self._log_in,
            "hidden_modules": list(self._hidden(benchmark)),
            "hiding": "advisory: the Agent has a network" if shared else "enforced",
        }

    def _landlock_abi(self, machine: SandboxMachine) -> int:
        return machine.landlock if self._landlock else 0

    def _hidden(self, benchmark: object) -> tuple[str, ...]:
        return benchmark_modules(benchmark) if self._hide is None else self._hide

    def __repr__(self) -> str:
        return f"SandboxExecution(workers={self._workers}, network={self._network!r})"


def _absolute(path: str) -> str:
    try:
        return str(Path(path).expanduser().absolute())
    except RuntimeError:
        raise ValueError(f"visible names {path!r}, and there is no such home directory") from None


def _texts(name: str, values: object) -> tuple[str, ...]:
    if isinstance(values, str) or not isinstance(values, Sequence):
        raise TypeError(f"{name} must be a list of strings")
    for value in values:
        if not isinstance(value, str) or not value:
            raise TypeError(f"{name} holds {value!r}; every item must be a string, and not empty")
    return tuple(values)


def _module_names(values: object) -> tuple[str, ...]:
    names = _texts("hide", values)
    for name in names:
        if not name.isidentifier():
            raise ValueError(f"hide holds {name!r}; give the names of top-level modules, such as gymnasium")
        if name == "evopolicygym":
            raise ValueError("hide holds 'evopolicygym', which Policies are written against; it cannot be hidden")
    return names
