"""The Agent that needs no language model: CMA-ES over a Program's numeric parameters."""

import importlib.util
import math
import sys

from evopolicygym.agents.invocation import AgentInvocation, AgentTask, LineParser, command_invocation
from evopolicygym.agents.stream import parse_event_line
from evopolicygym.errors import AgentRunError

__all__ = ["ParameterTuner"]

_SEED_MAX = 2**64 - 1


class ParameterTuner:
    """Tunes the numbers of ``program/params.json`` with CMA-ES: the baseline for parametric tuning.

    It runs as a process of its own, like any Agent, and knows nothing but its workspace and
    ``evopolicygym-session``. Every JSON number written with a point or an exponent is a parameter; integers, booleans
    and strings stay as they are. The Policy has to read the file. Candidates of one generation play the same Episodes;
    the best few, and the centre of the search, then play a final on others; the best of that is handed off. With the
    same seed it proposes the same candidates.

    Needs the extra ``tuner`` (``pip install 'evopolicygym[tuner]'``).

    Args:
        seed: Of its random numbers, unsigned 64-bit.
        sigma: First standard deviation of the search, in units of each parameter's scale: its own absolute value or
            the median of all that are not zero, whichever is larger (1 where all are zero). Default 0.5.
        population_size: Candidates of one generation, at least 2; by default 4 + floor(3 ln n) for n parameters, or
            fewer on a small budget.
        episodes_per_candidate: Episodes of each; by default what the budget allows, 64 at most.
        generations: The most generations; by default what the budget allows.

    Raises:
        ValueError: an option out of its range or of the wrong type.
    """

    def __init__(
        self,
        *,
        seed: int = 0,
        sigma: float | None = None,
        population_size: int | None = None,
        episodes_per_candidate: int | None = None,
        generations: int | None = None,
    ) -> None:
        _require_int("seed", seed, 0, _SEED_MAX)
        if sigma is not None and not (type(sigma) in (int, float) and math.isfinite(sigma) and sigma > 0):
            raise ValueError(f"sigma is {sigma!r}; give a finite number above 0, or leave it out")
        for name, value, least in (
            ("population_size", population_size, 2),
            ("episodes_per_candidate", episodes_per_candidate, 1),
            ("generations", generations, 1),
        ):
            if value is not None:
                _require_int(name, value, least, None)
        options = {
            "seed": seed,
            "sigma": sigma,
            "population_size": population_size,
            "episodes_per_candidate": episodes_per_candidate,
            "generations": generations,
        }
        self.options = {name: value for name, value in options.items() if value is not None}

    def __repr__(self) -> str:
        return f"ParameterTuner({', '.join(f'{name}={value!r}' for name, value in self.options.items())})"

    def build_invocation(self, task: AgentTask) -> AgentInvocation:
        """See :class:`~evopolicygym.agents.CodingAgent`. It takes no task: its work is always the same.

        Raises:
            AgentRunError: the extra ``tuner`` is not installed.
        """
        missing = [name for name in ("cmaes", "numpy") if importlib.util.find_spec(name) is None]
        if missing:
            raise AgentRunError(
                f"ParameterTuner needs {' and '.join(missing)}, which {sys.executable} does not have;"
                " install the extra: pip install 'evopolicygym[tuner]'"
            )
        command = [sys.executable, "-P", "-m", "evopolicygym.agents.parameter_tuner"]
        for name, value in self.options.items():
            command += [f"--{name.replace('_', '-')}", repr(value)]
        return command_invocation(
            command,
            task,
            identity={"name": "parameter-tuner", "kind": "cma-es", **self.options},
            stdout_media_type="application/x-ndjson",
            environment={"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"},
            new_parser=_new_parser,
        )


def _new_parser() -> LineParser:
    return parse_event_line


def _require_int(name: str, value: object, least: int, most: int | None) -> None:
    if type(value) is not int or value < least or (most is not None and value > most):
        bound = f"from {least}" + (f" to {most}" if most is not None else " on")
        raise ValueError(f"{name} is {value!r}; give an int {bound}")
