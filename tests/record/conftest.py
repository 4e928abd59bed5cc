"""A Record to write into, and values to publish."""

import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from record_types import Publish
from record_values import COMPLETED

from evopolicygym.artifacts import Artifact, Feedback
from evopolicygym.evaluation import EpisodeDiagnostics
from evopolicygym.policy import PolicyValue
from evopolicygym.program import Program
from evopolicygym.record import Publication, RecordWriter
from evopolicygym.results import EpisodeSummary, SubmissionResult, format_submission_id


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Path]:
    """A folder that is removed by its owner's means alone, what a hostile Agent closed included."""
    yield tmp_path / "place"
    if (tmp_path / "place").exists():
        subprocess.run(["chmod", "-R", "u+rwX", str(tmp_path / "place")], check=True)
        shutil.rmtree(tmp_path / "place")


@pytest.fixture
def program(tmp_path: Path) -> Program:
    source = tmp_path / "source"
    (source / "lib").mkdir(parents=True)
    (source / "policy.py").write_text("def make_policy(context):\n    return None\n")
    (source / "lib" / "weights.json").write_text("[1, 2]\n")
    return Program.from_directory(source)


@pytest.fixture
def writer(place: Path, program: Program) -> Iterator[RecordWriter]:
    """A Record whose workspace is ready; bulk artifacts of 1,000 bytes are kept."""
    with RecordWriter.create(place / "run", bulk_feedback_retention_bytes=1000) as made:
        made.write_initial(program, ())
        yield made


@pytest.fixture
def publish(writer: RecordWriter, program: Program) -> Publish:
    """Publish a Submission of two Episodes."""

    def do(
        number: int = 1,
        *,
        artifacts: tuple[Artifact, ...] = (),
        content: PolicyValue = None,
        episodes: tuple[EpisodeSummary, ...] = (COMPLETED, COMPLETED),
        diagnostics: tuple[EpisodeDiagnostics, ...] = (),
        policy_diagnostics: str = "traceback",
    ) -> Publication:
        indices = tuple(range(len(episodes)))
        submission = SubmissionResult(
            submission_id=format_submission_id(number),
            program=program,
            episode_indices=indices,
            episodes_used=len(indices),
            episodes_remaining=100 - number * len(indices),
            feedback=Feedback(float(number), content, artifacts),
            episodes=episodes,
        )
        return writer.publish(submission, diagnostics, policy_diagnostics=policy_diagnostics, seconds=0.5)

    return do
