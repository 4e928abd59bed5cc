"""The one module that writes a Record: created or reopened, published into, committed, closed."""

import fcntl
import os
import stat
from collections.abc import Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Self

from evopolicygym.errors import ProgramSourceError, RecordError
from evopolicygym.program import Program
from evopolicygym.record import layout as names
from evopolicygym.record.agent_copy import AgentCopy
from evopolicygym.record.diagnostics import diagnostics_summary, policy_log, visible_diagnostics
from evopolicygym.record.events import SubmissionPublished
from evopolicygym.record.journal import Journal
from evopolicygym.record.layout import RecordLayout
from evopolicygym.record.lock import RecordLock
from evopolicygym.record.mending import clear_unpublished, cut_torn_line, finish_evictions
from evopolicygym.record.publication import Publication, bulk_artifacts, feedback_document, program_files
from evopolicygym.record.retention import BulkArtifact, BulkRetention
from evopolicygym.record.storage import (
    disk_is_full,
    make_read_only,
    publish_tree,
    remove_tree,
    replace_file,
    sync_directory,
    sync_tree,
    write_tree,
)
from evopolicygym.record.strict_json import json_document
from evopolicygym.results import SubmissionResult
from evopolicygym.skills import AgentSkill

if TYPE_CHECKING:
    from evopolicygym.evaluation import EpisodeDiagnostics

__all__ = ["RecordWriter"]

BALLAST_BYTES = 1024 * 1024
BULK_FEEDBACK_RETENTION_BYTES = 1024 * 1024 * 1024

_NO_COPY = "the copy in workspace/feedback could not be written"


class RecordWriter:
    """Writes one Run's Record, and holds its lock until :meth:`close`.

    Made by :meth:`create` or :meth:`reopen`. The journal may be appended to from any thread; everything else is
    called by one thread at a time.
    """

    def __init__(
        self, layout: RecordLayout, lock: RecordLock, journal: Journal, bulk_feedback_retention_bytes: int
    ) -> None:
        self._layout = layout
        self._lock = lock
        self._journal = journal
        self._agent_copy = AgentCopy(layout)
        self._retention = BulkRetention(bulk_feedback_retention_bytes)
        self._published: list[str] = []
        self._closed = False

    @classmethod
    def create(
        cls,
        path: str | os.PathLike[str],
        *,
        bulk_feedback_retention_bytes: int = BULK_FEEDBACK_RETENTION_BYTES,
    ) -> "RecordWriter":
        """Make a new, empty Record and lock it.

        Args:
            path: must not exist; its parent is made if it is missing.
            bulk_feedback_retention_bytes: bulk artifacts beyond this are evicted, oldest first.

        Raises:
            RecordError: something is there already, or the Record cannot be written; nothing is left behind.
        """
        layout = RecordLayout(Path(path).absolute())
        if os.path.lexists(layout.root):
            raise RecordError(f"{layout.root} already exists; a Record is never overwritten, choose another path")
        missing = [folder for folder in layout.root.parents if not folder.exists()]
        try:
            layout.root.parent.mkdir(parents=True, exist_ok=True)
            for folder in missing:  # a Record lasts no longer than the names that lead to it
                sync_directory(folder.parent)
            layout.root.mkdir(mode=0o700)
        except OSError as error:
            raise RecordError(f"{layout.root}: the Record cannot be created: {error.strerror or error}") from error
        try:
            return cls._begin(layout, bulk_feedback_retention_bytes)
        except BaseException as error:
            remove_tree(layout.root)
            if not isinstance(error, OSError):
                raise
            raise RecordError(f"{layout.root}: the Record cannot be created: {error.strerror or error}") from error

    @classmethod
    def _begin(cls, layout: RecordLayout, bulk_feedback_retention_bytes: int) -> "RecordWriter":
        layout.root.chmod(0o700)
        lock = RecordLock(layout)
        try:
            _reserve_space(layout)
            replace_file(layout.journal, b"")
            layout.submissions.mkdir()
            sync_directory(layout.root)
            sync_directory(layout.root.parent)
            return cls(layout, lock, _open_journal(layout, last_seq=0), bulk_feedback_retention_bytes)
        except BaseException:
            lock.release()
            raise

    @classmethod
    def reopen(
        cls,
        lock: RecordLock,
        *,
        last_seq: int,
        published: Sequence[SubmissionResult],
        bulk_feedback_retention_bytes: int = BULK_FEEDBACK_RETENTION_BYTES,
    ) -> "RecordWriter":
        """Go on with a Record whose last writer is gone, and mend what it left half done.

        A torn last line is cut off, a Submission's tree without its line is set aside, what was only staged is
        removed, and the Agent's copies of what was published are made again.

        Args:
            lock: of this Record; the writer owns it from now on, also if this raises.
            last_seq: number of the last whole line of the journal.
            published: every Submission that has its line, in order, without the artifacts that are gone.
            bulk_feedback_retention_bytes: bulk artifacts beyond this are evicted, oldest first.

        Raises:
            RecordError: it cannot be written, say for want of space; nothing that was promised is touched.
        """
        layout = lock.layout
        try:
            try:
                _reserve_space(layout)
                cut_torn_line(layout.journal)
                clear_unpublished(layout, {submission.submission_id for submission in published})
                journal = _open_journal(layout, last_seq=last_seq)
            except OSError as error:
                raise RecordError(f"{layout.root}: it cannot be reopened: {error.strerror or error}") from error
            writer = cls(layout, lock, journal, bulk_feedback_retention_bytes)
        except BaseException:
            lock.release()
            raise
        try:
            writer._take_up(published)
        except BaseException:
            writer.close()
            raise
        return writer

    def _take_up(self, published: Sequence[SubmissionResult]) -> None:
        for submission in published:
            identifier = submission.submission_id
            try:
                evicted = finish_evictions(self._layout.submission(identifier))
            except OSError as error:
                raise _not_written(self._layout.submission(identifier), "the eviction", error) from error
            gone = {artifact.name for artifact in evicted}
            self._published.append(identifier)
            self._retention.evicted[identifier] = evicted
            self._retention.add(
                [a for a in bulk_artifacts(identifier, submission.feedback.artifacts) if a.name not in gone]
            )
        for submission in published:
            try:
                self._agent_copy.put_again(submission.submission_id)
            except OSError as error:
                self._journal.notice(f"{submission.submission_id}: {_NO_COPY}: {error.strerror or error}")
        if published:
            try:
                self._put_latest(published[-1])
            except OSError as error:
                self._journal.notice(f"{published[-1].submission_id}: {_NO_COPY}: {error.strerror or error}")
            self._evict(published[-1].submission_id)

    @property
    def path(self) -> Path:
        """The Record's directory, absolute."""
        return self._layout.root

    @property
    def layout(self) -> RecordLayout:
        """The paths in it."""
        return self._layout

    @property
    def journal(self) -> Journal:
        """The journal; thread-safe."""
        return self._journal

    def evicted(self, submission_id: str) -> frozenset[str]:
        """Names of those artifacts of a published Submission that are gone."""
        return frozenset(artifact.name for artifact in self._retention.evicted.get(submission_id, ()))

    def write_initial(self, program: Program, skills: Sequence[AgentSkill]) -> None:
        """Write what the Agent starts from: ``initial/`` read-only, and the workspace.

        Raises:
            RecordError: it could not be written.
        """
        layout = self._layout
        try:
            layout.initial_skills.mkdir(parents=True)
            layout.workspace.mkdir(mode=0o755)
            for folder in (
                layout.workspace_analysis,
                layout.workspace_skills,
                layout.workspace_feedback / names.SUBMISSIONS,
            ):
                folder.mkdir(parents=True)
            program.write_to(layout.initial_program)
            program.write_to(layout.workspace_program)
            for skill in skills:
                for home in (layout.initial_skills, layout.workspace_skills):
                    skill.write_to(home / skill.name)
                    make_read_only(home / skill.name)
            sync_tree(layout.initial_program.parent)
            sync_tree(layout.workspace)
            make_read_only(layout.initial_program.parent)
            sync_directory(layout.root)
        except OSError as error:
            raise _not_written(layout.root, "the initial Program and Skills", error) from error

    def write_text(self, relative: str, text: str) -> None:
        """Write a text file of the Host, at once and durably; its folders are made.

        Args:
            relative: POSIX path in the Record, such as ``"agent/instructions.md"``; not in the workspace.
            text: valid Unicode.

        Raises:
            ValueError: the path leads out of the Record or into the workspace.
            RecordError: it could not be written.
        """
        self._write(relative, text.encode("utf-8", "backslashreplace"))

    def write_json(self, relative: str, value: object) -> None:
        """Like :meth:`write_text`, for a JSON document.

        Raises:
            ValueError: the path leads out of the Record or into the workspace.
            RecordError: it could not be written, or ``value`` is no strict JSON.
        """
        try:
            document = json_document(value)
        except RecordError as error:
            raise RecordError(f"{self.path / relative}: {error}") from error
        self._write(relative, document)

    def _write(self, relative: str, data: bytes) -> None:
        path = self.path / _safe_relative(relative)
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            replace_file(path, data)
            if path.parent != self.path:
                sync_directory(path.parent.parent)
        except OSError as error:
            raise _not_written(path, "the file", error) from error

    def capture_workspace_program(self) -> Program:
        """The Program that the Agent has in ``workspace/program`` now.

        Raises:
            ProgramError: it is none; the message says why.
        """
        workspace = self._layout.workspace
        if not _is_real_directory(workspace):
            raise ProgramSourceError(f"{workspace} is no longer a real directory; it must not be replaced")
        return Program.from_directory(self._layout.workspace_program)

    def publish(
        self,
        submission: SubmissionResult,
        diagnostics: Sequence["EpisodeDiagnostics"],
        *,
        policy_diagnostics: str,
        seconds: float,
    ) -> Publication:
        """Publish one Submission: all of it is visible and durable afterwards, or nothing.

        The line ``submission_published`` is the commit point. What follows it (the Agent's copy,
        ``latest.json``, eviction of old bulk artifacts) never fails the publication.

        Args:
            submission: what was evaluated, and its Feedback.
            diagnostics: one an Episode, in order; empty if nothing is known.
            policy_diagnostics: what of them the Agent may see: "none", "traceback" or "output".
            seconds: how long the Evaluation took.

        Raises:
            RecordError: it could not be published.
        """
        visible = visible_diagnostics(
            _summarised_indices(submission),
            submission.episodes,
            diagnostics,
            policy_diagnostics=policy_diagnostics,
        )
        identifier = submission.submission_id
        try:
            self._publish_host_tree(submission, diagnostics, visible)
        except OSError as error:
            raise _not_written(self._layout.submission(identifier), "the Submission", error) from error
        try:
            event = self._journal.append(
                SubmissionPublished(
                    submission_id=identifier,
                    program_digest=submission.program_digest,
                    score=submission.feedback.score,
                    episodes_used=submission.episodes_used,
                    episodes_remaining=submission.episodes_remaining,
                    policy_failures=sum(episode.failure is not None for episode in submission.episodes),
                    seconds=seconds,
                )
            )
        except RecordError:
            if not self._journal.torn:  # else the line may still be there, and needs its tree
                self._set_aside(identifier)
            raise
        self._published.append(identifier)
        self._retention.add(bulk_artifacts(identifier, submission.feedback.artifacts))
        feedback_path = self._copy_for_agent(submission)
        self._evict(identifier)
        return Publication(event, feedback_path, diagnostics_summary(visible))

    def _publish_host_tree(
        self,
        submission: SubmissionResult,
        diagnostics: Sequence["EpisodeDiagnostics"],
        visible: Mapping[str, object],
    ) -> None:
        files = program_files(submission.program, names.PROGRAM)
        files[names.FEEDBACK_FILE] = json_document(feedback_document(submission, visible))
        for artifact in submission.feedback.artifacts:
            files[f"{names.ARTIFACTS}/{artifact.name}"] = artifact.content
        log = policy_log(_summarised_indices(submission), submission.episodes, diagnostics)
        if log:
            files[f"{names.POLICY_LOGS}/{names.POLICY_LOG_FILE}"] = log
        staged = self._layout.submissions / f".staging-{submission.submission_id}"
        write_tree(staged, files)
        try:
            publish_tree(staged, self._layout.submission(submission.submission_id))
        except BaseException:
            remove_tree(staged)
            raise

    def _set_aside(self, identifier: str) -> None:
        tree = self._layout.submission(identifier)
        try:
            tree.rename(tree.with_name(f".unpublished-{identifier}"))
            sync_directory(tree.parent)
        except OSError:
            return  # a tree without its line is not published, wherever it lies

    def _copy_for_agent(self, submission: SubmissionResult) -> str | None:
        identifier = submission.submission_id
        feedback_path: str | None = None
        try:
            feedback_path = self._agent_copy.put(identifier)
            self._put_latest(submission)
            for damaged in self._agent_copy.damaged(self._published):
                self._agent_copy.put(damaged)
        except OSError as error:
            what = "a copy in workspace/feedback could not be written" if feedback_path else _NO_COPY
            self._journal.notice(f"{identifier}: {what}: {error.strerror or error}")
        return feedback_path

    def _put_latest(self, submission: SubmissionResult) -> None:
        latest = {
            "submission_id": submission.submission_id,
            "program_digest": submission.program_digest,
            "score": submission.feedback.score,
            "episodes_remaining": submission.episodes_remaining,
            "feedback": AgentCopy.feedback_path(submission.submission_id),
        }
        self._agent_copy.put_latest(json_document(latest))

    def _evict(self, newest: str) -> None:
        for identifier, leaving in self._retention.overdue(newest).items():
            try:
                availability = json_document(self._retention.availability(identifier, leaving))
                _evict_from_host(self._layout.submission(identifier), leaving, availability)
                self._retention.mark_evicted(leaving)
                self._agent_copy.evict(identifier, [artifact.name for artifact in leaving], availability)
            except OSError as error:
                self._journal.notice(
                    f"{identifier}: bulk artifacts could not be evicted everywhere: {error.strerror or error}"
                )

    def write_manifest(self, manifest: Mapping[str, object]) -> None:
        """Replace ``run.json``; on a full disk with the help of the space kept in reserve.

        Raises:
            RecordError: it could not be written, or is no strict JSON; the old one is still there.
        """
        path = self._layout.manifest
        document = json_document(manifest)
        try:
            try:
                replace_file(path, document)
            except OSError as error:
                if not disk_is_full(error) or not _drop_ballast(self._layout):
                    raise
                replace_file(path, document)
        except OSError as error:
            raise _not_written(path, "the manifest", error) from error

    def discard(self) -> None:
        """Remove the whole Record, of a Run that never began, and close."""
        self.close()
        remove_tree(self._layout.root)

    def close(self) -> None:
        """Give up the lock and the space in reserve; nothing can be written afterwards. Idempotent."""
        if self._closed:
            return
        self._closed = True
        _drop_ballast(self._layout)
        self._journal.close()
        self._lock.release()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()


def _summarised_indices(submission: SubmissionResult) -> tuple[int, ...]:
    """The indices that go with the Episode summaries, which a Submission may do without."""
    return submission.episode_indices if submission.episodes else ()


def _reserve_space(layout: RecordLayout) -> None:
    if layout.ballast.is_file() and layout.ballast.stat().st_size == BALLAST_BYTES:
        return
    # Random bytes: zeros would take no space on a file system that compresses.
    replace_file(layout.ballast, os.urandom(BALLAST_BYTES))


def _open_journal(layout: RecordLayout, *, last_seq: int) -> Journal:
    journal = Journal(layout.journal, last_seq=last_seq, free_space=lambda: _drop_ballast(layout))
    try:
        # Readers try this lock to tell a running Run; they never touch the one that owners compete for, and hold
        # this one for a moment only.
        fcntl.flock(journal.fileno(), fcntl.LOCK_EX)
    except BaseException:
        journal.close()
        raise
    return journal


def _drop_ballast(layout: RecordLayout) -> bool:
    try:
        layout.ballast.unlink()
    except OSError:
        return False
    return True


def _evict_from_host(tree: Path, leaving: Sequence[BulkArtifact], availability: bytes) -> None:
    # Told first, removed second: a reader never misses a file that nothing explains.
    tree.chmod(0o755)
    try:
        replace_file(tree / names.AVAILABILITY_FILE, availability, mode=0o444)
    finally:
        tree.chmod(0o555)
    for artifact in leaving:
        path = tree / names.ARTIFACTS / artifact.name
        path.parent.chmod(0o755)
        try:
            path.unlink(missing_ok=True)
        finally:
            path.parent.chmod(0o555)


def _is_real_directory(path: Path) -> bool:
    try:
        return stat.S_ISDIR(path.lstat().st_mode)
    except OSError:
        return False


def _safe_relative(relative: str) -> PurePosixPath:
    path = PurePosixPath(relative)
    if path.is_absolute() or not path.parts or ".." in path.parts:
        raise ValueError(f"{relative!r} is no path inside a Record")
    if path.parts[0] == names.WORKSPACE:
        raise ValueError(f"{relative!r} lies in the workspace, which the Agent owns")
    return path


def _not_written(path: Path, what: str, error: OSError) -> RecordError:
    return RecordError(f"{path}: {what} could not be written: {error.strerror or error}")
