"""What can be said of a Run after the fact: trajectory, code, intervals. Pure functions of values."""

from evopolicygym.analysis.code import CodeMetrics, code_metrics
from evopolicygym.analysis.diagnostics import run_diagnostics
from evopolicygym.analysis.intervals import PairedChange, mean_interval, paired_change
from evopolicygym.analysis.trajectory import Trajectory, TrajectoryPoint, trajectory

__all__ = [
    "CodeMetrics",
    "PairedChange",
    "Trajectory",
    "TrajectoryPoint",
    "code_metrics",
    "mean_interval",
    "paired_change",
    "run_diagnostics",
    "trajectory",
]
