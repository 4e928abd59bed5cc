"""From a Record to where its Run stands: what is kept, read strictly, and named where it is damaged."""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path

from evopolicygym.errors import AgentSkillError, ProgramError, RecordError
from evopolicygym.policy import PolicyValue
from evopolicygym.policy_json import from_json
from evopolicygym.program import Program
from evopolicygym.record import RUN_SCHEMA, RecordLayout, RunRecord, published_submission
from evopolicygym.record.events import RunEvent, check_fields
from evopolicygym.record.layout import is_submission_id
from evopolicygym.results import (
    TERMINAL_REASONS,
    AssessmentResult,
    RunResult,
    ScoreDirection,
    SubmissionResult,
    ValidationCandidateResult,
    ValidationResult,
)
from evopolicygym.run.progress import Measured, RunProgress
from evopolicygym.run.selection import select_candidate
from evopolicygym.run_config import RunConfig
from evopolicygym.selector import SelectorError, parse_selector
from evopolicygym.skills import AgentSkill

__all__ = [
    "kept_assessment",
    "kept_candidates",
    "next_attempt",
    "read_initial",
    "read_progress",
    "read_published",
    "recorded_result",
]


def read_progress(record: RunRecord) -> tuple[RunProgress, int]:
    """The state of the Run after its whole journal, and the number of its last line.

    Raises:
        RecordError: the journal is damaged, which a torn last line is not; the text names the line.
    """
    progress, number = RunProgress(), 0
    where, clock = record.layout.journal, 0
    for number, event in enumerate(_undamaged(record), 1):
        try:
            check_fields(event)
            # Another Host may be another boot; lines of one Host are written under a lock that takes the time.
            if event.monotonic_ns < clock and event.name != "run_resumed":
                raise ValueError("its monotonic_ns lies before that of the line above")
            clock = event.monotonic_ns
            progress.apply(event)
            if event.name == "evaluation_started":
                _check_charge(progress)
        except (ValueError, SelectorError) as error:
            raise RecordError(f"{where}:{number}: {error}; the journal is damaged, and the Run cannot go on") from error
    if progress.started is None:
        raise RecordError(
            f"{where}: the Run has never begun, so nothing can go on; remove {record.path} and run it anew"
        )
    if progress.started["schema"] != RUN_SCHEMA:
        raise RecordError(f"{where}:1: {progress.started['schema']!r} is no form of Record that can be resumed")
    if progress.terminal_reason is not None and progress.terminal_reason not in TERMINAL_REASONS:
        raise RecordError(f"{where}:{number}: {progress.terminal_reason!r} is no terminal reason")
    return progress, number


def _undamaged(record: RunRecord) -> Iterator[RunEvent]:
    """The events of the journal.

    Raises:
        RecordError: a line is damaged or missing.
    """

    def refuse_damage() -> None:
        for damage in record.damage:
            if damage.startswith(record.layout.journal.name):
                raise RecordError(f"{record.path}/{damage}; the journal is damaged, and the Run cannot go on")

    for event in record.events():
        refuse_damage()
        yield event
    refuse_damage()


def _check_charge(progress: RunProgress) -> None:
    """See that a line charges what it names."""
    assert progress.started is not None
    entry = progress.ledger.submissions[-1]
    pool_size = progress.started["pool_size"]
    assert isinstance(pool_size, int)
    named = len(parse_selector(entry.episodes, pool_size=pool_size))
    if not is_submission_id(entry.submission_id):
        raise ValueError(f"{entry.submission_id!r:.80} is no Submission's id")
    if named != entry.episode_count:
        raise ValueError(f"{entry.submission_id} is charged {entry.episode_count} Episodes and names {named}")


def read_published(record: RunRecord, progress: RunProgress) -> tuple[SubmissionResult, ...]:
    """Every published Submission, in order.

    Raises:
        RecordError: one is missing or damaged, or lies there although the journal knows nothing of it.
    """
    _refuse_unknown_trees(record.layout, progress)
    kept = []
    for entry in progress.ledger.published:
        submission = published_submission(record.published_as(entry.submission_id))
        told = (entry.program_digest, entry.episode_count, entry.score)
        found = (submission.program_digest, submission.episodes_used, submission.feedback.score)
        if told != found:
            raise RecordError(
                f"{record.layout.submission(entry.submission_id)}: Program, Episodes or score are not those that "
                "events.jsonl tells; one of the two is damaged"
            )
        kept.append(submission)
    return tuple(kept)


def _refuse_unknown_trees(layout: RecordLayout, progress: RunProgress) -> None:
    known = {entry.submission_id for entry in progress.ledger.submissions}
    try:
        found = sorted(entry.name for entry in layout.submissions.iterdir() if not entry.name.startswith("."))
    except OSError as error:
        raise RecordError(f"{layout.submissions}: it cannot be read: {error.strerror or error}") from error
    for name in found:
        if name not in known:
            raise RecordError(
                f"{layout.submissions / name}: it lies there, but {layout.journal.name} ends before its Evaluation "
                "began: the journal has lost lines that were on disk"
            )


def read_initial(record: RunRecord, progress: RunProgress) -> tuple[Program, tuple[AgentSkill, ...]]:
    """The Program and the Skills that the Agent was given.

    Raises:
        RecordError: they are damaged.
    """
    assert progress.started is not None
    layout = record.layout
    try:
        program = record.initial_program()
        if program.digest != progress.started["program_digest"]:
            raise RecordError(
                f"{layout.initial_program}: its digest is {program.digest}, and {layout.journal.name}:1 tells "
                f"{progress.started['program_digest']}; one of the two is damaged"
            )
        folders = sorted(layout.initial_skills.iterdir()) if layout.initial_skills.is_dir() else []
        skills = [AgentSkill.from_directory(folder) for folder in folders]
    except (ProgramError, AgentSkillError, OSError) as error:
        raise RecordError(f"{layout.initial_program.parent}: {error}") from error
    return program, tuple(sorted(skills, key=_order_of(record.manifest.get("skills"))))


def _order_of(listed: object) -> "_Order":
    names = [str(item.get("name")) for item in listed if isinstance(item, dict)] if isinstance(listed, list) else []
    return _Order({name: place for place, name in enumerate(names)})


class _Order:
    def __init__(self, places: Mapping[str, int]) -> None:
        self._places = places

    def __call__(self, skill: AgentSkill) -> tuple[int, str]:
        return self._places.get(skill.name, len(self._places)), skill.name


def kept_candidates(
    layout: RecordLayout, progress: RunProgress, config: RunConfig, published: tuple[SubmissionResult, ...]
) -> dict[str, ValidationCandidateResult]:
    """The candidates whose Validation is complete, by id; what their reports lack stands in the journal.

    Raises:
        RecordError: the journal tells of another selection than their scores give.
    """
    if config.validation is None:
        return {}
    digests = {submission.submission_id: submission.program_digest for submission in published}
    episodes = config.validation.episodes_per_candidate
    kept = {
        name: ValidationCandidateResult(
            submission_id=name,
            program_digest=digests[name],
            score=measured.score,
            episodes=episodes,
            policy_failures=_within(measured, episodes, layout),
            feedback_content=_content(layout.validation_report.with_name(f"{name}.json"), measured),
        )
        for name, measured in progress.validated.items()
    }
    if progress.selected is not None:
        results = [kept[name] for name in progress.ledger.candidates if name in kept]
        best = select_candidate(results, direction=_direction(progress)) if results else None
        if len(results) != len(progress.ledger.candidates) or best != progress.selected:
            raise RecordError(
                f"{layout.journal}: {progress.selected} was selected, and the scores of the Validation give "
                f"{best or 'none'}; the journal is damaged"
            )
    return kept


def kept_assessment(
    layout: RecordLayout, progress: RunProgress, config: RunConfig, published: tuple[SubmissionResult, ...]
) -> AssessmentResult | None:
    """The complete Assessment, None if there is none yet."""
    assessed = progress.assessed
    if assessed is None or config.assessment is None:
        return None
    assert progress.started is not None
    digests = {submission.submission_id: submission.program_digest for submission in published}
    return AssessmentResult(
        submission_id=assessed.submission_id,
        program_digest=digests[assessed.submission_id],
        split=config.assessment.split,
        episodes=config.assessment.episodes,
        primary_metric=str(progress.started["primary_metric"]),
        score_direction=_direction(progress),
        score=assessed.score,
        policy_failures=_within(assessed, config.assessment.episodes, layout),
        feedback_content=_content(layout.assessment_report, assessed),
    )


def recorded_result(
    progress: RunProgress,
    config: RunConfig,
    published: tuple[SubmissionResult, ...],
    validated: Mapping[str, ValidationCandidateResult],
    assessed: AssessmentResult | None,
) -> RunResult:
    """The result of a Run that has ended, as :func:`~evopolicygym.run.run` gave it."""
    assert progress.started is not None
    assert progress.terminal_reason is not None
    selected = progress.selected
    programs = {submission.submission_id: submission.program for submission in published}
    validation = None
    if config.validation is not None and selected is not None:
        validation = ValidationResult(
            split=config.validation.split,
            episodes_per_candidate=config.validation.episodes_per_candidate,
            primary_metric=str(progress.started["primary_metric"]),
            score_direction=_direction(progress),
            candidates=tuple(validated[name] for name in progress.ledger.candidates),
            selected_submission_id=selected,
        )
    return RunResult(
        final_program=None if selected is None else programs[selected],
        final_submission_id=selected,
        submissions=published,
        terminal_reason=progress.terminal_reason,
        candidate_submission_ids=progress.ledger.candidates,
        validation=validation,
        assessment=assessed,
    )


def next_attempt(layout: RecordLayout, progress: RunProgress) -> int:
    """The number of the Agent's next start: above all that were journalled or have left output."""
    number = max([attempt.attempt for attempt in progress.attempts], default=0) + 1
    while (layout.agent(number) / "stdout.log").exists():
        number += 1
    return number


def _content(report: Path, measured: Measured) -> PolicyValue:
    """The Feedback's content in a report; None if the report is gone or is not that of the journal's line."""
    try:
        document = json.loads(report.read_bytes())
        if document["submission_id"] != measured.submission_id or document["score"] != measured.score:
            return None
        return from_json(document["feedback_content"])
    except (OSError, ValueError, TypeError, KeyError, RecursionError):
        return None


def _within(measured: Measured, episodes: int, layout: RecordLayout) -> int:
    if not 0 <= measured.policy_failures <= episodes:
        raise RecordError(
            f"{layout.journal}: {measured.submission_id} has {measured.policy_failures} Policy failures in "
            f"{episodes} Episodes; the journal is damaged"
        )
    return measured.policy_failures


def _direction(progress: RunProgress) -> ScoreDirection:
    assert progress.started is not None
    return "minimize" if progress.started["score_direction"] == "minimize" else "maximize"
