"""Where a Policy runs: fresh processes, a private channel, and how much isolation there is."""

TYPE_CHECKING = False  # type checkers take it as true; importing typing would cost every template process
if TYPE_CHECKING:
    from evopolicygym.execution.launch import PolicyLaunch
    from evopolicygym.execution.limits import AgentLimits, PolicyLimits
    from evopolicygym.execution.process_execution import ProcessExecution
    from evopolicygym.execution.sandbox_execution import SandboxExecution
    from evopolicygym.execution.sandbox_report import SandboxReport, sandbox_report

__all__ = [
    "AgentLimits",
    "PolicyLaunch",
    "PolicyLimits",
    "ProcessExecution",
    "SandboxExecution",
    "SandboxReport",
    "sandbox_report",
]

# Resolved on first use (PEP 562): Policy processes import parts of this package.
_HOMES = {
    "AgentLimits": "evopolicygym.execution.limits",
    "PolicyLaunch": "evopolicygym.execution.launch",
    "PolicyLimits": "evopolicygym.execution.limits",
    "ProcessExecution": "evopolicygym.execution.process_execution",
    "SandboxExecution": "evopolicygym.execution.sandbox_execution",
    "SandboxReport": "evopolicygym.execution.sandbox_report",
    "sandbox_report": "evopolicygym.execution.sandbox_report",
}


def __getattr__(name: str) -> object:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    value: object = getattr(import_module(home), name)
    globals()[name] = value
    return value
