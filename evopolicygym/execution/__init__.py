"""Where a Policy runs: fresh processes, a private channel, and how much isolation there is."""

TYPE_CHECKING = False  # type checkers take it as true; importing typing would cost every template process
if TYPE_CHECKING:
    from evopolicygym.execution.launch import PolicyLaunch
    from evopolicygym.execution.process_execution import ProcessExecution

__all__ = ["PolicyLaunch", "ProcessExecution"]

# Resolved on first use (PEP 562): Policy processes import parts of this package.
_HOMES = {
    "PolicyLaunch": "evopolicygym.execution.launch",
    "ProcessExecution": "evopolicygym.execution.process_execution",
}


def __getattr__(name: str) -> object:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    value: object = getattr(import_module(home), name)
    globals()[name] = value
    return value
