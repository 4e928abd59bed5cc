"""The weak Program that a Run starts from."""

from pathlib import Path

from evopolicygym.program import Program

__all__ = ["baseline_program"]


def baseline_program() -> Program:
    """A linear Policy that looks at the angle only; it holds the pole up for about 40 of 500 steps."""
    return Program.from_directory(Path(__file__).parent / "baseline")
