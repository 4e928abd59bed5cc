"""EvoPolicyGym: measure how well a coding agent improves an executable Policy on a budget."""

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

# Resolved on first use (PEP 562): submitted code imports this package in every Policy process.
_HOMES = {
    "Benchmark": "evopolicygym.authoring",
    "EvaluationConfig": "evopolicygym.evaluation",
    "EvaluationResult": "evopolicygym.results",
    "Program": "evopolicygym.program",
    "RunResult": "evopolicygym.results",
    "evaluate": "evopolicygym.evaluation",
}


def __getattr__(name: str) -> object:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    import importlib

    value: object = getattr(importlib.import_module(home), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
