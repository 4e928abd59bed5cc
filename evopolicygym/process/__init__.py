"""The one owner of child processes: started in their own session, ended with everything they started."""

from evopolicygym.first_use import on_first_use

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

# On first use: the supervisor and template processes import only the light half.
__getattr__, __dir__ = on_first_use(
    __name__,
    {
        "Child": "evopolicygym.process.supervisor",
        "Supervisor": "evopolicygym.process.supervisor",
        "SupervisorLostError": "evopolicygym.process.supervisor",
        "become_subreaper": "evopolicygym.process.descendants",
        "describe_returncode": "evopolicygym.process.supervisor",
        "kill_descendants": "evopolicygym.process.descendants",
    },
)
