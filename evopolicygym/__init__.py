"""EvoPolicyGym: measure how well a coding agent improves an executable Policy on a budget."""

from evopolicygym.first_use import on_first_use

TYPE_CHECKING = False  # type checkers take it as true; importing typing would cost every Policy process

__version__ = "0.3.0"

if TYPE_CHECKING:
    from evopolicygym.authoring import Benchmark
    from evopolicygym.evaluation import EvaluationConfig, evaluate
    from evopolicygym.program import Program
    from evopolicygym.results import EvaluationResult, RunResult

__all__ = [
    "Benchmark",
    "EvaluationConfig",
    "EvaluationResult",
    "Program",
    "RunResult",
    "__version__",
    "evaluate",
]

# On first use: submitted code imports this package in every Policy process.
__getattr__, __dir__ = on_first_use(
    __name__,
    {
        "Benchmark": "evopolicygym.authoring",
        "EvaluationConfig": "evopolicygym.evaluation",
        "EvaluationResult": "evopolicygym.results",
        "Program": "evopolicygym.program",
        "RunResult": "evopolicygym.results",
        "evaluate": "evopolicygym.evaluation",
    },
)
