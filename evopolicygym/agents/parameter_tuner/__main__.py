"""``python -m evopolicygym.agents.parameter_tuner``, run in a Run's workspace."""

import argparse
import sys
from pathlib import Path

from evopolicygym.agents.parameter_tuner.failure import TunerError
from evopolicygym.agents.parameter_tuner.reporting import Reporter

EXIT_FAILED = 1


def main(arguments: list[str] | None = None) -> int:
    """Tune the workspace that is the current directory.

    Returns:
        0 after a hand-off, 1 otherwise (the reason is on standard error), 2 for wrong arguments.
    """
    parser = argparse.ArgumentParser(
        prog="python -m evopolicygym.agents.parameter_tuner",
        description="Tune the numbers of program/params.json with CMA-ES. Runs in the workspace of a Run.",
        allow_abbrev=False,
    )
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--sigma", type=float)
    parser.add_argument("--population-size", type=int)
    parser.add_argument("--episodes-per-candidate", type=int)
    parser.add_argument("--generations", type=int)
    options = parser.parse_args(arguments)
    workspace = Path.cwd()
    reporter = Reporter(workspace / "analysis")
    try:
        from evopolicygym.agents.parameter_tuner.tuning import Options, tune
    except ImportError as error:
        reporter.failed(f"{error}; the tuner needs its extra: pip install 'evopolicygym[tuner]'")
        return EXIT_FAILED
    try:
        tune(workspace, Options(**vars(options)), reporter)
    except TunerError as error:
        reporter.failed(str(error))
        reporter.ended("Ended without a hand-off.", failed=True)
        return EXIT_FAILED
    return 0


if __name__ == "__main__":
    sys.exit(main())
