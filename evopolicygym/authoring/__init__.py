"""What the author of a Benchmark implements, and the check that it holds."""

from evopolicygym.artifacts import ARTIFACT_MAX_BYTES, Artifact, ArtifactRetention, Feedback
from evopolicygym.authoring.conformance import (
    BenchmarkFixture,
    ConformanceIssue,
    ConformanceReport,
    check_benchmark,
)
from evopolicygym.authoring.interfaces import Benchmark, Environment, InvalidAction
from evopolicygym.authoring.records import EpisodeRecord, EpisodeSpec, Step, Transition, TransitionSequence
from evopolicygym.authoring.specification import BenchmarkSpec
from evopolicygym.results import PolicyFailure, ScoreDirection

__all__ = [
    "ARTIFACT_MAX_BYTES",
    "Artifact",
    "ArtifactRetention",
    "Benchmark",
    "BenchmarkFixture",
    "BenchmarkSpec",
    "ConformanceIssue",
    "ConformanceReport",
    "Environment",
    "EpisodeRecord",
    "EpisodeSpec",
    "Feedback",
    "InvalidAction",
    "PolicyFailure",
    "ScoreDirection",
    "Step",
    "Transition",
    "TransitionSequence",
    "check_benchmark",
]
