"""Names of Submissions as people type them: ``3``, ``best``, ``runs/x:selected``."""

from pathlib import Path

from evopolicygym.cli.recent import recent_records
from evopolicygym.cli.recorded import RecordedRun, open_recorded
from evopolicygym.errors import RecordError
from evopolicygym.program import Program
from evopolicygym.record import SubmissionRecord
from evopolicygym.results import format_submission_id
from evopolicygym.spec.problems import did_you_mean

INITIAL = "initial"


def latest_record() -> Path:
    """The latest Record of this user that is still there.

    Raises:
        RecordError: none is known.
    """
    known = recent_records()
    if not known:
        raise RecordError(
            "no Run of yours is known yet; start one: evopolicygym run SPEC.toml; or name a Record: "
            "evopolicygym inspect runs/…"
        )
    return known[0]


def find_submission(run: RecordedRun, wanted: str) -> SubmissionRecord:
    """One Submission: by number, id, ``best`` or ``selected``.

    Raises:
        RecordError: there is none of that name; those there are, are told.
    """
    view = run.view
    named = {"selected": view.selected, "best": view.best.submission_id if view.best else None}
    if wanted in named and named[wanted] is None:
        raise RecordError(f"{run.record.path} has no {wanted} Submission")
    number = wanted.isascii() and wanted.isdigit() and len(wanted) <= 12
    name = named.get(wanted) or (format_submission_id(int(wanted)) if number else wanted)
    try:
        return run.record.submission(name)
    except KeyError:
        published = [submission.submission_id for submission in run.record.submissions]
        has = f"it has {published[0]} to {published[-1]}" if published else "nothing was published"
        near = "" if number else did_you_mean(wanted, [*named, *published])
        raise RecordError(f'{run.record.path} has no Submission "{name}"; {has}.{near}') from None


def find_program(run: RecordedRun, wanted: str) -> tuple[str, Program]:
    """A Program by the name of its Submission, or ``initial``; with ``RUN:`` before it, of another Record.

    Returns:
        How to call it, and the Program.

    Raises:
        RecordError: there is no such Record or Submission.
        ProgramError: it is damaged.
    """
    record, separator, name = wanted.rpartition(":")
    if separator:
        label, program = find_program(open_recorded(Path(record)), name)
        return f"{record}:{label}", program
    if wanted == INITIAL:
        return "initial Program", run.record.initial_program()
    submission = find_submission(run, wanted)
    return submission.submission_id, submission.program()


def program_reference(text: str) -> tuple[str, Program]:
    """The Program of ``RUN:SUBMISSION``; of ``RUN`` alone the selected one.

    Raises:
        RecordError: there is no such Record or Submission.
        ProgramError: it is damaged.
    """
    record, separator, name = text.rpartition(":")
    if not separator or "/" in name:
        record, name = text, "selected"
    label, program = find_program(open_recorded(Path(record)), name)
    return f"{record}:{label}", program
