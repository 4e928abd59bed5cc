"""A Run that is read back from its Record: ours, crashed, running, or of another kernel."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import cast

from evopolicygym.analysis import PairedChange, TrajectoryPoint, code_metrics, paired_change, trajectory
from evopolicygym.analysis.intervals import resamples_for
from evopolicygym.cli.policy_errors import ErrorGroup, ErrorGroups, feedback_groups
from evopolicygym.cli.run_view import RunView, SubmissionRow
from evopolicygym.errors import ProgramError
from evopolicygym.record import EVENT_TYPES, RUN_SCHEMA, RunEvent, RunRecord, open_run
from evopolicygym.record.reader import event_of_line
from evopolicygym.results import ScoreDirection

# Beyond this the lines of single Episodes are skipped as bytes: opening stays quick, and only the counts of
# failures by kind are lost.
_WHOLE_JOURNAL_BYTES = 16 * 1024 * 1024
# Beyond this the journal of a finished Run is read at its ends only: run.json tells the rest.
_READ_JOURNAL_BYTES = 64 * 1024 * 1024
_JOURNAL_END_BYTES = 2 * 1024 * 1024
_FEEDBACK_BYTES = 64 * 1024 * 1024
_ANALYSED_PROGRAMS = 200
_ERROR_SUBMISSIONS = 300


@dataclass(frozen=True, slots=True)
class Changes:
    """One Submission against others, on the Episodes that both played; None where they share none.

    Args:
        previous: against the Submission before it.
        best: against the best one before it.
    """

    previous: PairedChange | None
    best: PairedChange | None


def open_recorded(path: Path) -> "RecordedRun":
    """Open a Record.

    Raises:
        RecordError: there is none.
    """
    return RecordedRun(open_run(path))


class RecordedRun:
    """A Record and what can be said of it; each part is worked out when it is first asked for."""

    def __init__(self, record: RunRecord) -> None:
        self.record = record

    @cached_property
    def view(self) -> RunView:
        """The fold over the journal, filled in from ``run.json`` where the journal does not tell."""
        return view_of(self.record)

    @property
    def status(self) -> str:
        """``"running"``, ``"finished"`` or ``"crashed"``."""
        return self.record.status

    @property
    def outcome(self) -> str:
        """How the Run stands, in a word or two."""
        return self.record.terminal_reason or self.view.terminal_reason or self.record.status

    @cached_property
    def errors(self) -> Sequence[ErrorGroup]:
        """Policy errors of the latest Submissions, grouped."""
        failed = [row.submission_id for row in self.view.published if row.policy_failures]
        groups = ErrorGroups()
        groups.read(self.record.path, failed[-_ERROR_SUBMISSIONS:])
        if not groups.ranked:  # a Record without the Host's logs tells what the Agent was told
            for identifier in failed[-_ERROR_SUBMISSIONS:]:
                for group in self._groups_told(identifier):
                    groups.add(group.to_json(), group.count)
        return groups.ranked

    @cached_property
    def diagnostics(self) -> Mapping[str, object]:
        """``trajectory``, ``edits`` and ``code`` as in ``run.json``; worked out here if they are not there yet."""
        recorded = self.record.manifest.get("diagnostics")
        if isinstance(recorded, Mapping):
            return recorded
        view = self.view
        validated = view.validation.get(view.selected or "")
        curve = trajectory(
            _points(view),
            episode_budget=view.episode_budget,
            score_direction=cast("ScoreDirection", view.score_direction),
            episodes_spent=view.episodes_used,
            selected_submission_id=view.selected,
            validation_score=None if validated is None else validated.score,
            assessment_score=view.assessment_score,
        )
        code = self._code()
        edits: dict[str, int] = {}
        for one in code:
            edits[str(one["edit"])] = edits.get(str(one["edit"]), 0) + 1
        return {"trajectory": curve.to_json(), "edits": edits, "code": code}

    @cached_property
    def edits(self) -> Mapping[str, str]:
        """The kind of each Submission's edit, where it is known."""
        code = self.diagnostics.get("code")
        entries = [entry for entry in code if isinstance(entry, Mapping)] if isinstance(code, list) else []
        return {str(entry.get("submission_id")): str(entry.get("edit")) for entry in entries}

    def changes(self, submission_ids: Sequence[str]) -> dict[str, Changes]:
        """Paired changes of these Submissions."""
        rows = self.view.published
        pairs: list[tuple[str, str | None, str | None]] = []
        wanted = set(submission_ids)
        previous: SubmissionRow | None = None
        best: SubmissionRow | None = None
        for row in rows:
            if row.submission_id in wanted and previous is not None and best is not None:
                pairs.append((row.submission_id, previous.submission_id, best.submission_id))
            previous = row
            if best is None or self.view.is_better(row, best):
                best = row
        rewards = self._rewards({name for pair in pairs for name in pair if name is not None})
        # The same for every part of the Run that is shown, so that no two screens tell different intervals.
        resamples = resamples_for(2 * len(rows), max((row.episodes for row in rows), default=1))

        def change(before: str | None, after: str) -> PairedChange | None:
            return paired_change(rewards.get(before or "", {}), rewards.get(after, {}), resamples=resamples)

        found = {}
        for name, before, best_before in pairs:
            against_previous = change(before, name)
            same = best_before == before
            found[name] = Changes(against_previous, against_previous if same else change(best_before, name))
        return found

    def rewards(self, submission_id: str) -> Mapping[int, float | None]:
        """Reward by Episode index of one Submission; None where the Policy failed."""
        return self._rewards({submission_id}).get(submission_id, {})

    def _rewards(self, names: set[str]) -> dict[str, dict[int, float | None]]:
        found: dict[str, dict[int, float | None]] = {}
        room = _FEEDBACK_BYTES
        for submission in reversed(self.record.submissions):
            if submission.submission_id not in names:
                continue
            try:
                room -= (submission.path / "feedback.json").stat().st_size
            except OSError:
                continue
            if room < 0:
                break
            rewards: dict[int, float | None] = {}
            for episode in submission.episodes:
                index, reward = episode.get("episode_index"), episode.get("reward")
                if isinstance(index, int):
                    rewards[index] = float(reward) if isinstance(reward, int | float) else None
            found[submission.submission_id] = rewards
        return found

    def _groups_told(self, identifier: str) -> Sequence[ErrorGroup]:
        try:
            return feedback_groups(self.record.submission(identifier).diagnostics)
        except KeyError:
            return ()

    def _code(self) -> list[dict[str, object]]:
        submissions = self.record.submissions[:_ANALYSED_PROGRAMS]
        try:
            programs = [self.record.initial_program(), *(submission.program() for submission in submissions)]
        except ProgramError:  # damage is told elsewhere
            return []
        metrics = code_metrics(programs[0], programs[1:])
        return [
            {"submission_id": submission.submission_id} | one.to_json()
            for submission, one in zip(submissions, metrics, strict=True)
        ]


def view_of(record: RunRecord) -> RunView:
    """Fold the journal, and fill in from ``run.json`` what it does not tell."""
    view = RunView()
    for event in _events(record):
        view.apply(event)
    _fill_in(view, record)
    return view


def _events(record: RunRecord) -> Iterator[RunEvent]:
    size = _size(record)
    if not size or not _speaks_our_events(record):
        return
    if size > _READ_JOURNAL_BYTES and record.status == "finished":
        yield from _end_events(record, size)
        return
    names: tuple[str, ...] = ()
    if size > _WHOLE_JOURNAL_BYTES:
        names = tuple(name for name in EVENT_TYPES if not name.endswith("episode_completed"))
    yield from record.events(*names)


def _speaks_our_events(record: RunRecord) -> bool:
    """Whether the journal has the events that we know; that of another kernel may have others, which is no damage."""
    if record.schema in (None, RUN_SCHEMA):
        return True
    first = next(record.lines(), b"")
    try:
        return event_of_line(first).name in EVENT_TYPES
    except ValueError:
        return False


def _end_events(record: RunRecord, size: int) -> Iterator[RunEvent]:
    """The events at the beginning and the end of a long journal, those of Evaluations left out."""
    with open(record.layout.journal, "rb") as journal:
        first = journal.read(_JOURNAL_END_BYTES)
        journal.seek(size - _JOURNAL_END_BYTES)
        last = journal.read(_JOURNAL_END_BYTES)
    for line in first.split(b"\n")[:-1] + last.split(b"\n")[1:-1]:
        if b'"episode_completed"' in line:
            continue
        try:
            event = event_of_line(line)
        except ValueError:
            continue  # --events and a check of the whole Record name it
        if not event.name.startswith(("evaluation_", "submission_published")):
            yield event


def _points(view: RunView) -> list[TrajectoryPoint]:
    points = []
    spent = 0
    for row in view.submissions.values():
        spent += row.episodes
        if row.score is not None:
            points.append(TrajectoryPoint(row.submission_id, spent, row.score))
    return points


def _size(record: RunRecord) -> int:
    try:
        return record.layout.journal.stat().st_size
    except OSError:
        return 0


def _fill_in(view: RunView, record: RunRecord) -> None:
    manifest = record.manifest
    config, benchmark = _table(manifest, "config"), _table(manifest, "benchmark")
    view.terminal_reason = view.terminal_reason or record.terminal_reason
    if record.schema not in (None, RUN_SCHEMA):
        view.notices.append(
            f"this Record has the form {record.schema}, not {RUN_SCHEMA}; some of what it tells may be missing here"
        )
    view.benchmark_id = view.benchmark_id or _text(benchmark.get("id")) or _text(manifest.get("benchmark_id"))
    view.program_digest = view.program_digest or _text(_table(manifest, "initial_program").get("digest"))
    view.selected = view.selected or _text(manifest.get("selected_submission_id")) or None
    view.agent = view.agent or _agent_name(_table(manifest, "agent").get("identity"))
    view.seed_strength = view.seed_strength or _text(manifest.get("seed_strength"))
    if not view.episode_budget:
        view.episode_budget = view.episodes_remaining = _whole(config.get("episode_budget"))
        specification = _table(benchmark, "specification") or _table(benchmark, "spec")
        for name in ("primary_metric", "score_direction"):
            told = _text(specification.get(name)) or _text(benchmark.get(name))
            if told:
                setattr(view, name, told)
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
        _fill_in_submissions(view, record)
        if not view.episode_budget and view.published:
            view.episode_budget = sum(row.episodes for row in view.published) + view.episodes_remaining
    _fill_in_private_phases(view, record)


def _fill_in_submissions(view: RunView, record: RunRecord) -> None:
    listed = record.manifest.get("submissions")
    entries = [entry for entry in listed if isinstance(entry, Mapping)] if isinstance(listed, list) else []
    if entries and all("score" in entry for entry in entries):
        for entry in entries:
            indices = entry.get("episode_indices")
            used = entry.get("episodes_used")
            if not isinstance(used, int):
                used = len(indices) if isinstance(indices, list) else 0
            view.add_published(
                SubmissionRow(
                    _text(entry.get("submission_id")) or _text(entry.get("id")),
                    used,
                    program_digest=_text(entry.get("program_digest")),
                    score=_real(entry.get("score")),
                    policy_failures=_whole_or_none(entry.get("policy_failures")),
                    seconds=_real(entry.get("seconds")),
                ),
                _whole_or_none(entry.get("episodes_remaining")),
            )
        return
    for submission in record.submissions:
        view.add_published(
            SubmissionRow(
                submission.submission_id,
                submission.episodes_used or len(submission.episodes),
                program_digest=submission.program_digest or "",
                score=submission.score,
                policy_failures=submission.policy_failures,
            ),
            submission.episodes_remaining,
        )


def _fill_in_private_phases(view: RunView, record: RunRecord) -> None:
    manifest = record.manifest
    assessment = _table(manifest, "assessment")
    if view.assessment_score is None and _real(assessment.get("score")) is not None:
        view.assessment_score = _real(assessment.get("score"))
        view.assessment_episodes = _count(assessment.get("episodes"))
        view.assessment_failures = _whole_or_none(assessment.get("policy_failures"))
        view.assessment_split = _text(assessment.get("split")) or None
    validation = _table(manifest, "validation")
    candidates = validation.get("candidates")
    if not view.validation and isinstance(candidates, list):
        view.validation_episodes = _whole_or_none(validation.get("episodes_per_candidate"))
        for candidate in candidates:
            if isinstance(candidate, Mapping):
                view.add_validated(
                    _text(candidate.get("submission_id")),
                    _real(candidate.get("score")),
                    _whole_or_none(candidate.get("policy_failures")),
                )


def _agent_name(identity: object) -> str:
    if isinstance(identity, Mapping):
        return _text(identity.get("name")) or _text(identity.get("kind"))
    return _text(identity)


def _count(value: object) -> int:
    return len(value) if isinstance(value, list) else _whole(value)


def _table(value: Mapping[str, object], name: str) -> Mapping[str, object]:
    found = value.get(name)
    return found if isinstance(found, Mapping) else {}


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""


def _real(value: object) -> float | None:
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None


def _whole_or_none(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _whole(value: object) -> int:
    return _whole_or_none(value) or 0
