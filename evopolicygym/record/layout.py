"""Where everything lies in a Record; no other module spells these names."""

import re
from dataclasses import dataclass
from pathlib import Path

__all__ = ["FEEDBACK_SCHEMA", "RUN_SCHEMA", "RecordLayout", "is_submission_id"]

RUN_SCHEMA = "evopolicygym/run-record/v9"
FEEDBACK_SCHEMA = "evopolicygym/feedback/v2"
AVAILABILITY_SCHEMA = "evopolicygym/availability/v1"

MANIFEST = "run.json"
SPEC = "spec.toml"
JOURNAL = "events.jsonl"
LOCK = "run.lock"
BALLAST = ".ballast"
INITIAL = "initial"
WORKSPACE = "workspace"
SUBMISSIONS = "submissions"
AGENT = "agent"
VALIDATION = "validation"
ASSESSMENT = "assessment"

PROGRAM = "program"
SKILLS = "skills"
FEEDBACK = "feedback"
ANALYSIS = "analysis"
FEEDBACK_FILE = "feedback.json"
LATEST_FILE = "latest.json"
AVAILABILITY_FILE = "availability.json"
ARTIFACTS = "artifacts"
POLICY_LOGS = "policy-logs"
POLICY_LOG_FILE = "episodes.jsonl"

_SUBMISSION_ID = re.compile(r"submission-[0-9]{6,12}")


def is_submission_id(text: object) -> bool:
    """Whether ``text`` has the form of a Submission's id; such a text is also a safe file name."""
    return isinstance(text, str) and _SUBMISSION_ID.fullmatch(text) is not None


@dataclass(frozen=True, slots=True)
class RecordLayout:
    """The paths of the Record at ``root``."""

    root: Path

    @property
    def manifest(self) -> Path:
        """What the Run was and how it ended."""
        return self.root / MANIFEST

    @property
    def spec(self) -> Path:
        """The resolved run spec; absent if the Run cannot be repeated from a file."""
        return self.root / SPEC

    @property
    def journal(self) -> Path:
        """One event a line."""
        return self.root / JOURNAL

    @property
    def lock(self) -> Path:
        """Locked by the process that owns the Run."""
        return self.root / LOCK

    @property
    def ballast(self) -> Path:
        """Space in reserve for the last lines on a full disk."""
        return self.root / BALLAST

    @property
    def initial_program(self) -> Path:
        """The Program that the Agent was given."""
        return self.root / INITIAL / PROGRAM

    @property
    def initial_skills(self) -> Path:
        """One folder a Skill that the Agent was given."""
        return self.root / INITIAL / SKILLS

    @property
    def workspace(self) -> Path:
        """All that the Agent sees."""
        return self.root / WORKSPACE

    @property
    def workspace_program(self) -> Path:
        """What the Agent edits and submits."""
        return self.workspace / PROGRAM

    @property
    def workspace_feedback(self) -> Path:
        """The Agent's copies of what was published."""
        return self.workspace / FEEDBACK

    @property
    def workspace_analysis(self) -> Path:
        """The Agent's own notes."""
        return self.workspace / ANALYSIS

    @property
    def workspace_skills(self) -> Path:
        """The Agent's copies of its Skills."""
        return self.workspace / SKILLS

    @property
    def submissions(self) -> Path:
        """One folder a published Submission; names with a leading dot are not published."""
        return self.root / SUBMISSIONS

    @property
    def validation_report(self) -> Path:
        """The whole Validation."""
        return self.root / VALIDATION / "report.json"

    @property
    def assessment_report(self) -> Path:
        """The whole Assessment."""
        return self.root / ASSESSMENT / "report.json"

    def agent(self, attempt: int = 1) -> Path:
        """The evidence of one start of the Agent; later attempts lie inside the first one's folder."""
        folder = self.root / AGENT
        return folder if attempt == 1 else folder / f"attempt-{attempt}"

    def submission(self, identifier: str) -> Path:
        """The published tree of one Submission."""
        return self.submissions / identifier
