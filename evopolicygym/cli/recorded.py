"""The view of a Run that is read back from its Record: ours, crashed, running, or of another kernel."""

from collections.abc import Mapping

from evopolicygym.cli.run_view import RunView, SubmissionRow
from evopolicygym.record import EVENT_TYPES, RunRecord

# Beyond this the lines of single Episodes are skipped as bytes: opening stays quick, and only the counts of
# failures by kind are lost.
_WHOLE_JOURNAL_BYTES = 16 * 1024 * 1024


def view_of(record: RunRecord) -> RunView:
    """Fold the journal, and fill in from ``run.json`` what it does not tell."""
    view = RunView()
    names: tuple[str, ...] = ()
    if _size(record) > _WHOLE_JOURNAL_BYTES:
        names = tuple(name for name in EVENT_TYPES if not name.endswith("episode_completed"))
    for event in record.events(*names):
        view.apply(event)
    _fill_in(view, record)
    return view


def status_text(record: RunRecord, view: RunView) -> str:
    """How the Run stands, in a word or two."""
    return record.terminal_reason or view.terminal_reason or record.status


def _size(record: RunRecord) -> int:
    try:
        return record.layout.journal.stat().st_size
    except OSError:
        return 0


def _fill_in(view: RunView, record: RunRecord) -> None:
    manifest = record.manifest
    config = _table(manifest, "config")
    view.terminal_reason = view.terminal_reason or record.terminal_reason
    view.benchmark_id = view.benchmark_id or _text(_table(manifest, "benchmark").get("id"))
    view.program_digest = view.program_digest or _text(_table(manifest, "initial_program").get("digest"))
    view.selected = view.selected or _text(manifest.get("selected_submission_id")) or None
    view.episode_budget = view.episode_budget or _whole(config.get("episode_budget"))
    view.max_submissions = view.max_submissions or _whole(config.get("max_submissions"))
    usage = _table(_table(manifest, "agent"), "usage")
    for name in ("turns", "tool_calls", "input_tokens", "cached_tokens", "output_tokens"):
        if getattr(view, name) is None and isinstance(usage.get(name), int):
            setattr(view, name, usage[name])
    cost = usage.get("cost_usd")
    if view.cost_usd is None and isinstance(cost, int | float):
        view.cost_usd = float(cost)
    error = manifest.get("error")
    if isinstance(error, str) and not view.faults:
        view.faults.append(error)
    if not view.submissions:
        for submission in record.submissions:
            row = SubmissionRow(submission.submission_id, submission.episodes_used or 0, state="published")
            row.score, row.policy_failures = submission.score, submission.policy_failures
            row.program_digest = submission.program_digest or ""
            view.submissions[row.submission_id] = row
            view.episodes_remaining = submission.episodes_remaining or 0
    assessment = _table(manifest, "assessment")
    score = assessment.get("score")
    if view.assessment_score is None and isinstance(score, int | float):
        view.assessment_score = float(score)
        view.assessment_episodes = _whole(assessment.get("episodes"))


def _table(value: Mapping[str, object], name: str) -> Mapping[str, object]:
    found = value.get(name)
    return found if isinstance(found, Mapping) else {}


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""


def _whole(value: object) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) else 0
