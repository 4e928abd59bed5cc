"""Where a Policy runs: fresh processes, a private channel, and how much isolation there is."""

from evopolicygym.first_use import on_first_use

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

# On first use: Policy processes import parts of this package.
__getattr__, __dir__ = on_first_use(
    __name__,
    {
        "AgentLimits": "evopolicygym.execution.limits",
        "PolicyLaunch": "evopolicygym.execution.launch",
        "PolicyLimits": "evopolicygym.execution.limits",
        "ProcessExecution": "evopolicygym.execution.process_execution",
        "SandboxExecution": "evopolicygym.execution.sandbox_execution",
        "SandboxReport": "evopolicygym.execution.sandbox_report",
        "sandbox_report": "evopolicygym.execution.sandbox_report",
    },
)
