"""The JSON documents that commands print, typed. Keys are added over time, not renamed or removed.

``evopolicygym schema NAME`` prints the JSON Schema of each; it is made from these types.
"""

import sys
from collections.abc import Mapping
from typing import Any, Literal

if sys.version_info >= (3, 12):
    from typing import TypedDict
else:
    from typing_extensions import TypedDict  # pydantic, which brings it, needs this one


class PairedChangeEntry(TypedDict):
    """A difference of rewards on shared Episodes: after minus before."""

    pairs: int
    left_out: int
    mean: float | None
    interval_95: list[float] | None


class BudgetEntry(TypedDict):
    """What could be spent and what was."""

    episodes: int
    episodes_used: int
    submissions: int
    submissions_used: int


class SubmissionEntry(TypedDict):
    """One Submission of a Run."""

    submission_id: str
    state: str
    program_digest: str
    episodes: int
    selector: str
    score: float | None
    change_to_best: float | None
    paired_with_previous: PairedChangeEntry | None
    paired_with_best: PairedChangeEntry | None
    edit: str | None
    policy_failures: int | None
    seconds: float | None


class CandidateEntry(TypedDict):
    """One candidate of the Validation."""

    submission_id: str
    score: float | None
    policy_failures: int | None
    seconds: float | None


class AssessmentEntry(TypedDict):
    """The held-out measurement."""

    submission_id: str | None
    split: str | None
    episodes: int | None
    score: float
    policy_failures: int | None


class AgentEndEntry(TypedDict):
    """Why the Agent's process ended."""

    reason: str
    seconds: float | None
    message: str | None
    resumable: bool


class UsageEntry(TypedDict):
    """What the Agent used, as far as its provider tells."""

    turns: int | None
    tool_calls: int | None
    input_tokens: int | None
    cached_tokens: int | None
    output_tokens: int | None
    cost_usd: float | None


class ErrorGroupEntry(TypedDict):
    """Policy failures of one kind at one place."""

    count: int
    failure: str
    exception_type: str | None
    where: str | None
    message: str | None


class RunReport(TypedDict):
    """``run --json`` and ``inspect RUN --json``."""

    schema: Literal["evopolicygym/run-report/v1"]
    record: str
    record_schema: str | None
    status: str
    terminal_reason: str | None
    benchmark_id: str
    agent: str
    primary_metric: str
    score_direction: str
    seed_strength: str | None
    budget: BudgetEntry
    submissions: list[SubmissionEntry]
    best_submission_id: str | None
    initial_score: float | None
    candidate_submission_ids: list[str]
    handed_off_by: str | None
    selected_submission_id: str | None
    validation: list[CandidateEntry] | None
    assessment: AssessmentEntry | None
    agent_end: AgentEndEntry | None
    usage: UsageEntry
    policy_failures: dict[str, int]
    policy_errors: list[ErrorGroupEntry]
    diagnostics: dict[str, Any] | None
    refusals: int
    notices: list[str]
    faults: list[str]
    damage: list[str]


class ArtifactEntry(TypedDict):
    """One artifact; ``path`` is null if it was evicted."""

    name: str
    size: int
    path: str | None


class SubmissionReport(TypedDict):
    """``inspect RUN SUBMISSION --json``."""

    schema: Literal["evopolicygym/submission-report/v1"]
    record: str
    submission_id: str
    program_path: str
    feedback: dict[str, Any]
    artifacts: list[ArtifactEntry]
    paired_with_previous: PairedChangeEntry | None
    paired_with_best: PairedChangeEntry | None


class FileDiff(TypedDict):
    """One file; ``diff`` is null if it is not shown as text."""

    path: str
    change: str
    diff: str | None


class ProgramDiffDocument(TypedDict):
    """``inspect RUN --diff A B --json``."""

    schema: Literal["evopolicygym/program-diff/v1"]
    before: str
    after: str
    before_digest: str
    after_digest: str
    edit: str
    lines_added: int
    lines_removed: int
    files: list[FileDiff]


class TranscriptReport(TypedDict):
    """``inspect RUN --agent --json``; each event is one line of ``transcript.jsonl`` with its ``attempt``."""

    schema: Literal["evopolicygym/transcript-report/v1"]
    record: str
    usage: UsageEntry
    events: list[dict[str, Any]]


class EvaluatedEpisode(TypedDict):
    """One Episode of an Evaluation."""

    status: str
    reward: float | None
    steps: int
    failure: str | None


class ProgramEvaluation(TypedDict):
    """What came of one Program."""

    program: str
    program_digest: str
    score: float
    mean_reward: float | None
    mean_reward_interval_95: list[float] | None
    policy_failures: int
    policy_errors: list[ErrorGroupEntry]
    content: Any
    seconds: float
    episodes: list[EvaluatedEpisode]


class AgainstEntry(TypedDict):
    """The Program compared with, on the same Episodes; ``paired`` is ours minus theirs."""

    evaluation: ProgramEvaluation
    paired: PairedChangeEntry | None


class EvaluationReport(ProgramEvaluation):
    """``evaluate --json``."""

    schema: Literal["evopolicygym/evaluation-report/v1"]
    benchmark_id: str
    environment_digest: str
    split: str
    seed: int
    primary_metric: str
    score_direction: str
    against: AgainstEntry | None


class ComparedRun(TypedDict):
    """One Run of a comparison; a score is null where there is none, or none that may be compared."""

    run: str
    benchmark_id: str
    environment_digest: str | None
    agent: str
    agent_settings: str
    outcome: str
    agent_end: str | None
    infrastructure_failure: bool
    submissions: int
    episodes_spent: int
    episode_budget: int
    best_training: float | None
    validation: float | None
    assessment: float | None
    score_area: float | None
    gain_area: float | None
    episodes_to_half_gain: int | None
    episodes_to_most_gain: int | None
    validation_gap: float | None
    heldout_gap: float | None
    parametric_edits: int
    structural_edits: int
    policy_failures: int
    agent_seconds: float | None
    turns: int | None
    tool_calls: int | None
    input_tokens: int | None
    output_tokens: int | None
    cost_usd: float | None
    seed: int | None
    seed_strength: str | None
    policy_diagnostics: str | None
    execution: str | None
    pool_digest: str | None


class PairEntry(TypedDict):
    """Two Runs on the very same Episodes; the change is ``run`` minus ``against``."""

    run: str
    against: str
    episodes: Literal["held-out", "training"]
    change: PairedChangeEntry


class GroupEntry(TypedDict):
    """Runs of one Benchmark and Agent, with equal parameters and settings."""

    benchmark_id: str
    agent: str
    agent_settings: str
    runs: int
    measured: int
    mean_assessment: float | None
    mean_assessment_interval_95: list[float] | None
    differ_in: list[str]


class ComparisonReport(TypedDict):
    """``compare --json``."""

    schema: Literal["evopolicygym/comparison/v1"]
    runs: list[ComparedRun]
    groups: list[GroupEntry]
    pairs: list[PairEntry]
    differences: dict[str, dict[str, list[str]]]
    warnings: list[str]


class CheckedEpisode(TypedDict):
    """One Episode that was played."""

    split: str
    status: str
    reward: float | None
    steps: int
    failure: str | None


class IssueEntry(TypedDict):
    """One way in which the Benchmark's contract is broken."""

    code: str
    message: str


class CheckReport(TypedDict):
    """``check --json``."""

    schema: Literal["evopolicygym/check-report/v1"]
    passed: bool
    benchmark_id: str
    program_digest: str
    program_files: int
    program_bytes: int
    episodes: list[CheckedEpisode]
    issues: list[IssueEntry]
    policy_errors: list[ErrorGroupEntry]


DOCUMENTS: Mapping[str, Any] = {
    "run-report": RunReport,
    "submission-report": SubmissionReport,
    "program-diff": ProgramDiffDocument,
    "transcript-report": TranscriptReport,
    "evaluation-report": EvaluationReport,
    "comparison": ComparisonReport,
    "check-report": CheckReport,
}


def document_schema(name: str) -> dict[str, object]:
    """The JSON Schema (draft 2020-12) of one kind of document.

    Raises:
        KeyError: an unknown name.
    """
    from pydantic import TypeAdapter

    schema = TypeAdapter(DOCUMENTS[name]).json_schema()
    return {"$schema": "https://json-schema.org/draft/2020-12/schema"} | schema
