"""Which bulk artifacts a Record still holds, and which must go when they are too many."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from evopolicygym.record import layout as names

__all__ = ["BulkArtifact", "BulkRetention"]


@dataclass(frozen=True, slots=True)
class BulkArtifact:
    """One bulk artifact of a Submission; ``size`` in bytes."""

    submission_id: str
    name: str
    size: int
    sha256: str


@dataclass(slots=True)
class BulkRetention:
    """Bulk artifacts in order of publication; over ``limit_bytes`` the oldest are to go.

    The newest Submission is always kept whole.
    """

    limit_bytes: int
    held: list[BulkArtifact] = field(default_factory=list)
    evicted: dict[str, list[BulkArtifact]] = field(default_factory=dict)

    def add(self, artifacts: list[BulkArtifact]) -> None:
        """Count the bulk artifacts of the Submission that was published last."""
        self.held.extend(artifacts)

    def overdue(self, newest: str) -> dict[str, list[BulkArtifact]]:
        """What has to go now, by Submission, oldest first."""
        excess = sum(artifact.size for artifact in self.held) - self.limit_bytes
        chosen: dict[str, list[BulkArtifact]] = {}
        for artifact in self.held:
            if excess <= 0 or artifact.submission_id == newest:
                break
            chosen.setdefault(artifact.submission_id, []).append(artifact)
            excess -= artifact.size
        return chosen

    def mark_evicted(self, artifacts: list[BulkArtifact]) -> None:
        """Take note that these are gone."""
        gone = set(artifacts)
        self.held = [artifact for artifact in self.held if artifact not in gone]
        for artifact in artifacts:
            self.evicted.setdefault(artifact.submission_id, []).append(artifact)

    def availability(self, submission_id: str, leaving: list[BulkArtifact]) -> Mapping[str, object]:
        """The content of ``availability.json`` once ``leaving`` are gone too."""
        return {
            "schema": names.AVAILABILITY_SCHEMA,
            "submission_id": submission_id,
            "evicted": [
                {"name": artifact.name, "size": artifact.size, "sha256": artifact.sha256}
                for artifact in (*self.evicted.get(submission_id, ()), *leaving)
            ],
        }
