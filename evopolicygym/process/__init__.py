"""The one owner of child processes: started in their own session, ended with everything they started."""

TYPE_CHECKING = False  # type checkers take it as true; importing typing would cost every template process
if TYPE_CHECKING:
    from evopolicygym.process.descendants import become_subreaper, kill_descendants
    from evopolicygym.process.supervisor import Child, Supervisor, SupervisorLostError, describe_returncode

__all__ = [
    "Child",
    "Supervisor",
    "SupervisorLostError",
    "become_subreaper",
    "describe_returncode",
    "kill_descendants",
]

# Resolved on first use (PEP 562): the supervisor and template processes import only the light half.
_LIGHT = frozenset({"become_subreaper", "kill_descendants"})


def __getattr__(name: str) -> object:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    home = "evopolicygym.process.descendants" if name in _LIGHT else "evopolicygym.process.supervisor"
    value: object = getattr(import_module(home), name)
    globals()[name] = value
    return value
