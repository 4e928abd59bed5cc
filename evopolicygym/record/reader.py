"""Reading a Record, whatever state it is in: finished, running, crashed, damaged, or of the public 0.3 kernel.

Nothing here writes, waits for a lock, follows a link that a Record should not hold, or dies on damage: what
cannot be read is named by file and line and left out.
"""

import calendar
import difflib
import fcntl
import os
import re
import stat
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from hashlib import file_digest
from pathlib import Path
from types import MappingProxyType
from typing import BinaryIO, Literal, TypeAlias

from evopolicygym.artifacts import unsafe_path
from evopolicygym.errors import RecordError
from evopolicygym.policy import PolicyValue
from evopolicygym.policy_json import from_json
from evopolicygym.program import Program
from evopolicygym.record import layout as names
from evopolicygym.record.events import FieldValue, RunEvent
from evopolicygym.record.layout import RecordLayout, is_submission_id
from evopolicygym.record.scanning import lines_of_events
from evopolicygym.record.strict_json import parse_object

__all__ = ["ArtifactRecord", "RecordStatus", "RunRecord", "SubmissionRecord", "event_of_line", "open_run"]

RecordStatus: TypeAlias = Literal["running", "finished", "crashed"]

_OPEN_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_MAX_DOCUMENT_BYTES = 512 * 1024 * 1024
_MAX_LINE_BYTES = 16 * 1024 * 1024
_NEWLINE = ord("\n")
_TAIL_BYTES = 64 * 1024
_POLL_SECONDS = 0.2
_TIME = re.compile(r"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)(?:\.(\d{1,9}))?(?:Z|\+00:00)")
_NO_FIELDS = frozenset({"seq", "time", "monotonic_ns", "event"})
_EMPTY: Mapping[str, object] = MappingProxyType({})

_Report: TypeAlias = Callable[[str], None]


def open_run(path: str | os.PathLike[str]) -> "RunRecord":
    """Open the Record of a Run for reading.

    Args:
        path: its directory.

    Raises:
        RecordError: there is no such directory, or it holds neither ``run.json`` nor ``events.jsonl``.

    Example:
        >>> run = open_run("runs/cartpole-001")  # doctest: +SKIP
        >>> [(s.submission_id, s.score) for s in run.submissions]  # doctest: +SKIP
    """
    root = Path(path).absolute()
    if not root.is_dir():
        what = "is not a directory" if os.path.lexists(root) else "does not exist"
        raise RecordError(f"{root} {what}; give the directory that a Run was recorded to{_near_record(root)}")
    layout = RecordLayout(root)
    if not os.path.lexists(layout.manifest) and not os.path.lexists(layout.journal):
        raise RecordError(f"{root} is not a Record: it holds neither {names.MANIFEST} nor {names.JOURNAL}")
    return RunRecord(layout)


def _near_record(path: Path) -> str:
    """A hint at the Record that was meant: the one that a file belongs to, or one with nearly this name."""
    if (path.parent / names.MANIFEST).is_file():
        return f", {path.parent}"
    try:
        known = [entry.name for entry in path.parent.iterdir() if (entry / names.MANIFEST).is_file()]
    except OSError:
        return ""
    near = difflib.get_close_matches(path.name, known, n=1)
    return f'. Did you mean "{near[0]}"?' if near else ""


class RunRecord:
    """One Record. What is read is read when it is first asked for; a second :func:`open_run` reads anew."""

    def __init__(self, layout: RecordLayout) -> None:
        self._layout = layout
        self._damage: dict[str, None] = {}

    @property
    def path(self) -> Path:
        """The Record's directory, absolute."""
        return self._layout.root

    @property
    def layout(self) -> RecordLayout:
        """The paths in it."""
        return self._layout

    @property
    def damage(self) -> list[str]:
        """What was found damaged by all reading so far, as ``"file:line: what"``; :meth:`check` reads all."""
        return list(self._damage)

    @cached_property
    def manifest(self) -> Mapping[str, object]:
        """The content of ``run.json``; empty if it is missing or damaged."""
        return MappingProxyType(self._document(self._layout.manifest, missing_is_damage=True))

    @property
    def schema(self) -> str | None:
        """Which form of Record this is, such as ``"evopolicygym/run-record/v9"``; None if it does not say."""
        return _text(self.manifest.get("schema"))

    @cached_property
    def status(self) -> RecordStatus:
        """``"finished"`` (committed, for whatever reason), ``"running"``, or ``"crashed"`` (nobody owns it now)."""
        if _is_owned(self._layout.journal):
            return "running"
        recorded = self.manifest.get("status")
        if recorded is not None and recorded != "running":
            return "finished"
        if recorded is None and self.manifest.get("terminal_reason") is not None:
            return "finished"
        last = self.last_event
        return "finished" if last is not None and last.name == "run_committed" else "crashed"

    @property
    def terminal_reason(self) -> str | None:
        """Why the Run ended, from the manifest or else the journal; None while it runs or if it crashed."""
        told = _text(self.manifest.get("terminal_reason"))
        if told is None and (last := self.last_event) is not None and last.name == "run_committed":
            told = _text(last.fields.get("terminal_reason"))
        return told

    @property
    def last_event(self) -> RunEvent | None:
        """The last readable event near the journal's end; quick however long the journal is."""
        try:
            with _open_regular(self._layout.journal) as file:
                size = file.seek(0, os.SEEK_END)
                file.seek(max(0, size - _TAIL_BYTES))
                tail = file.read(_TAIL_BYTES)
        except OSError:
            return None
        for line in reversed(tail[: tail.rfind(b"\n") + 1].split(b"\n")):
            try:
                return event_of_line(line)
            except ValueError:
                continue
        return None

    def lines(self, *event_names: str) -> Iterator[bytes]:
        """Whole journal lines as bytes, without their newline; a torn last line is left out.

        Args:
            event_names: only lines that may be one of these events; that is a fast look at the bytes, which lets
                every line of those events through and few others.
        """
        for _, line in self._numbered_lines(event_names):
            yield line

    def events(self, *event_names: str) -> Iterator[RunEvent]:
        """Events in the order of the journal, all or those of the given names; damaged lines are left out."""
        expected = None
        for number, line in self._numbered_lines(event_names):
            try:
                entry = parse_object(line)
                event = _event(entry)
            except ValueError as error:
                self._report(f"{names.JOURNAL}:{number}: {error}")
                expected = None
                continue
            if not event_names:
                seq = entry.get("seq")
                if expected is not None and seq != expected:
                    self._report(f"{names.JOURNAL}:{number}: seq {seq!r} where {expected} was expected")
                expected = seq + 1 if type(seq) is int else None
            if not event_names or event.name in event_names:
                yield event

    def follow(self, *, poll_seconds: float = _POLL_SECONDS) -> Iterator[RunEvent]:
        """Events as :meth:`events`, then those to come, until nobody owns the Record any more.

        Args:
            poll_seconds: how long to sleep between two looks at the file.
        """
        offset, next_number = 0, 1
        while True:
            owned = _is_owned(self._layout.journal)  # asked before reading, so that the last lines are read
            try:
                with _open_regular(self._layout.journal) as file:
                    file.seek(offset)
                    for number, line in _whole_lines(file, next_number):
                        offset, next_number = file.tell(), number + 1
                        try:
                            yield event_of_line(line)
                        except ValueError as error:
                            self._report(f"{names.JOURNAL}:{number}: {error}")
            except OSError as error:
                self._report(f"{names.JOURNAL}: it cannot be read: {error.strerror or error}")
            if not owned:
                return
            time.sleep(poll_seconds)

    @cached_property
    def submissions(self) -> tuple["SubmissionRecord", ...]:
        """Published Submissions, in order."""
        return tuple(map(self.published_as, self._published_ids()))

    def published_as(self, submission_id: str) -> "SubmissionRecord":
        """The Submission of an id that the caller knows to be published, whatever the manifest says.

        Raises:
            ValueError: that is no id.
        """
        if not is_submission_id(submission_id):
            raise ValueError(f"{submission_id!r:.80} is no Submission's id")
        return SubmissionRecord(self._layout, submission_id, self._document, self._report)

    def submission(self, submission_id: str) -> "SubmissionRecord":
        """One published Submission.

        Raises:
            KeyError: there is none of that id.
        """
        for submission in self.submissions:
            if submission.submission_id == submission_id:
                return submission
        raise KeyError(submission_id)

    def initial_program(self) -> Program:
        """The Program that the Agent was given.

        Raises:
            ProgramError: it is missing or damaged.
        """
        return Program.from_directory(self._layout.initial_program)

    def check(self) -> list[str]:
        """Read everything once and return all damage that was found, by file and line."""
        _ = self.manifest
        for _ in self.events():
            pass
        for submission in self.submissions:
            submission.check()
        return self.damage

    def _report(self, problem: str) -> None:
        self._damage[problem] = None

    def _document(self, path: Path, *, missing_is_damage: bool = True) -> dict[str, object]:
        name = path.relative_to(self.path).as_posix()
        try:
            with _open_regular(path) as file:
                # No more than there is: as much memory as is asked for is taken at once.
                data = file.read(min(os.fstat(file.fileno()).st_size, _MAX_DOCUMENT_BYTES) + 1)
            if len(data) > _MAX_DOCUMENT_BYTES:
                raise ValueError(f"larger than {_MAX_DOCUMENT_BYTES} bytes")
            return parse_object(data)
        except FileNotFoundError:
            if missing_is_damage:
                self._report(f"{name}: it is missing")
        except OSError as error:
            self._report(f"{name}: it cannot be read: {error.strerror or error}")
        except ValueError as error:
            self._report(f"{name}: {error}")
        return {}

    def _numbered_lines(self, event_names: Sequence[str]) -> Iterator[tuple[int, bytes]]:
        try:
            with _open_regular(self._layout.journal) as file:
                yield from lines_of_events(file, event_names) if event_names else _whole_lines(file)
        except OSError as error:
            self._report(f"{names.JOURNAL}: it cannot be read: {error.strerror or error}")

    def _published_ids(self) -> list[str]:
        listed = self._listed_in_manifest() if self.status == "finished" else None
        if listed is not None:
            return listed
        published = [
            str(event.fields["submission_id"])
            for event in self.events("submission_published")
            if is_submission_id(event.fields.get("submission_id"))
        ]
        if published:
            return list(dict.fromkeys(published))
        # A journal of another kernel may name its events otherwise; a tree in its final place is published.
        return [] if self.schema == names.RUN_SCHEMA else self._directories()

    def _listed_in_manifest(self) -> list[str] | None:
        listed = self.manifest.get("submissions")
        if not isinstance(listed, list):
            return None
        ids: list[str] = []
        for item in listed:
            found = item.get("submission_id", item.get("id")) if isinstance(item, dict) else item
            if not is_submission_id(found):
                self._report(f"{names.MANIFEST}: 'submissions' holds {found!r:.80}, which is no Submission")
                return None
            ids.append(str(found))
        return ids

    def _directories(self) -> list[str]:
        try:
            found = [entry.name for entry in self._layout.submissions.iterdir() if entry.is_dir()]
        except OSError:
            return []
        return sorted(filter(is_submission_id, found), key=lambda name: (len(name), name))

    def __repr__(self) -> str:
        return f"<RunRecord {self.path}>"


@dataclass(frozen=True, slots=True)
class ArtifactRecord:
    """One artifact of a Submission as its Feedback lists it.

    Args:
        name: its name.
        media_type: such as ``application/json``.
        size: bytes.
        sha256: hex digest of the content.
        retention: ``"permanent"`` or ``"bulk"``.
        path: where it lies; None if it was evicted or is missing.
    """

    name: str
    media_type: str
    size: int
    sha256: str
    retention: str
    path: Path | None


class SubmissionRecord:
    """One published Submission. Values that the Record lacks are None or empty."""

    def __init__(
        self,
        layout: RecordLayout,
        submission_id: str,
        document: Callable[..., dict[str, object]],
        report: _Report,
    ) -> None:
        self._layout = layout
        self._document = document
        self._report = report
        self._submission_id = submission_id

    @property
    def submission_id(self) -> str:
        """Such as ``"submission-000001"``."""
        return self._submission_id

    @property
    def path(self) -> Path:
        """Its published tree."""
        return self._layout.submission(self._submission_id)

    @property
    def program_path(self) -> Path:
        """The directory of the Program that was evaluated."""
        return self.path / names.PROGRAM

    def program(self) -> Program:
        """The Program that was evaluated.

        Raises:
            ProgramError: it is missing or damaged.
        """
        return Program.from_directory(self.program_path)

    @cached_property
    def feedback(self) -> Mapping[str, object]:
        """The content of ``feedback.json``; empty if it is missing or damaged."""
        return MappingProxyType(self._document(self.path / names.FEEDBACK_FILE))

    @property
    def score(self) -> float | None:
        """The training score."""
        return _number(self.feedback.get("score"))

    @property
    def program_digest(self) -> str | None:
        """Identity of the Program."""
        return _text(self.feedback.get("program_digest"))

    @property
    def episode_indices(self) -> tuple[int, ...]:
        """Pool indices, in order."""
        return tuple(index for index in _items(self.feedback.get("episode_indices")) if type(index) is int)

    @property
    def episodes_used(self) -> int | None:
        """Episodes charged for it."""
        return _whole(self.feedback.get("episodes_used"))

    @property
    def episodes_remaining(self) -> int | None:
        """Budget left after it."""
        return _whole(self.feedback.get("episodes_remaining"))

    @property
    def episodes(self) -> tuple[Mapping[str, object], ...]:
        """One mapping an Episode: ``episode_index``, ``status``, ``reward``, ``steps``, ``failure``."""
        return tuple(item for item in _items(self.feedback.get("episodes")) if isinstance(item, dict))

    @property
    def policy_failures(self) -> int:
        """In how many Episodes the Policy failed."""
        return sum(episode.get("failure") is not None for episode in self.episodes)

    @property
    def content(self) -> PolicyValue:
        """What the Benchmark said beside the score."""
        try:
            return from_json(self.feedback.get("content"))
        except (ValueError, TypeError) as error:
            self._report(f"{self._name(names.FEEDBACK_FILE)}: 'content': {error}")
            return None

    @property
    def diagnostics(self) -> Mapping[str, object]:
        """What the Agent was told of failures: groups, Episodes."""
        found = self.feedback.get("diagnostics")
        return found if isinstance(found, dict) else _EMPTY

    @property
    def artifacts(self) -> tuple[ArtifactRecord, ...]:
        """What the Benchmark attached; evicted ones keep all but their path."""
        evicted = self._evicted()
        return tuple(
            artifact
            for item in _items(self.feedback.get("artifacts"))
            if (artifact := self._artifact(item, evicted)) is not None
        )

    def _evicted(self) -> set[str]:
        availability = self._document(self.path / names.AVAILABILITY_FILE, missing_is_damage=False)
        listed = _items(availability.get("evicted"))
        return {str(item.get("name")) if isinstance(item, dict) else str(item) for item in listed}

    def _artifact(self, item: object, evicted: set[str]) -> ArtifactRecord | None:
        name = item.get("name") if isinstance(item, dict) else None
        if not isinstance(item, dict) or not isinstance(name, str) or unsafe_path(name):
            self._report(f"{self._name(names.FEEDBACK_FILE)}: 'artifacts' holds one without a safe name")
            return None
        path: Path | None = self.path / names.ARTIFACTS / name
        if path is not None and not path.is_file():
            if name not in evicted:
                self._report(f"{self._name(names.ARTIFACTS)}/{name}: it is missing")
            path = None
        return ArtifactRecord(
            name=name,
            media_type=_text(item.get("media_type")) or "application/octet-stream",
            size=_whole(item.get("size")) or 0,
            sha256=_text(item.get("sha256")) or "",
            retention=_text(item.get("retention")) or "permanent",
            path=path,
        )

    def policy_logs(self) -> Iterator[Mapping[str, object]]:
        """The Host's log: one mapping for each Episode that failed or printed; damaged lines are left out."""
        path = self.path / names.POLICY_LOGS / names.POLICY_LOG_FILE
        try:
            with _open_regular(path) as file:
                for number, line in _whole_lines(file):
                    try:
                        yield parse_object(line)
                    except ValueError as error:
                        self._report(f"{self._name(path.relative_to(self.path))}:{number}: {error}")
        except FileNotFoundError:
            return
        except OSError as error:
            self._report(f"{self._name(path.relative_to(self.path))}: {error.strerror or error}")

    def check(self) -> None:
        """Read all of it, and compare Program and artifacts with the digests in its Feedback."""
        if not self.path.is_dir():
            self._report(f"{self._name('')}: it is published, but missing")
            return
        _ = self.content, self.artifacts
        for _ in self.policy_logs():
            pass
        try:
            digest = self.program().digest
        except ValueError as error:  # every ProgramError is one
            self._report(f"{self._name(names.PROGRAM)}: {error}")
        else:
            if self.program_digest not in (None, digest):
                self._report(f"{self._name(names.PROGRAM)}: its digest is {digest}, not {self.program_digest}")
        for artifact in self.artifacts:
            self._check_artifact(artifact)

    def _check_artifact(self, artifact: ArtifactRecord) -> None:
        if artifact.path is None or not artifact.sha256:
            return
        try:
            with _open_regular(artifact.path) as file:
                found = file_digest(file, "sha256").hexdigest()  # type: ignore[arg-type]  # it has readinto
        except OSError as error:
            self._report(f"{self._name(names.ARTIFACTS)}/{artifact.name}: {error.strerror or error}")
            return
        if found != artifact.sha256.removeprefix("sha256:"):
            self._report(f"{self._name(names.ARTIFACTS)}/{artifact.name}: its content has changed")

    def _name(self, relative: str | Path) -> str:
        return (Path(names.SUBMISSIONS) / self._submission_id / relative).as_posix()

    def __repr__(self) -> str:
        return f"<SubmissionRecord {self._submission_id}>"


def event_of_line(line: bytes) -> RunEvent:
    """The event in one journal line.

    Raises:
        ValueError: it is damaged, with the reason as text.
    """
    return _event(parse_object(line))


def _event(entry: Mapping[str, object]) -> RunEvent:
    name = entry.get("event")
    if not isinstance(name, str) or not name:
        raise ValueError("it has no 'event'")
    fields = {key: _field(value) for key, value in entry.items() if key not in _NO_FIELDS}
    monotonic = entry.get("monotonic_ns")
    if type(monotonic) is not int or monotonic < 0:
        monotonic = 0
    return RunEvent(name, _unix_ns(entry.get("time")), monotonic, fields)


def _field(value: object) -> FieldValue:
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, list):
        return tuple(item if isinstance(item, bool | int | float | str) else None for item in value)
    return None  # no event of ours holds an object; other kernels' are shown by their lines


def _unix_ns(value: object) -> int:
    """Nanoseconds since 1970 of a journal line's time, 0 if it has none that can be read."""
    if isinstance(value, str) and (found := _TIME.fullmatch(value)):
        try:
            seconds = _unix_seconds(found.group(1))
        except ValueError:
            return 0
        return max(0, seconds * 1_000_000_000 + int((found.group(2) or "").ljust(9, "0")))
    return 0


@lru_cache(maxsize=64)  # many lines fall into one second
def _unix_seconds(text: str) -> int:
    return calendar.timegm(time.strptime(text, "%Y-%m-%dT%H:%M:%S"))


def _whole_lines(file: BinaryIO, number: int = 1) -> Iterator[tuple[int, bytes]]:
    """Number and bytes of each line that ends in a newline, which is left out.

    A line of more than 16 MiB, which only damage makes, comes in pieces; none of them is a whole event.
    """
    while line := file.readline(_MAX_LINE_BYTES):
        if line[-1] == _NEWLINE:
            yield number, line[:-1]
            number += 1
        elif len(line) == _MAX_LINE_BYTES:
            yield number, line
        else:
            return  # torn: a crash, or a writer that is not done


def _open_regular(path: Path) -> BinaryIO:
    descriptor = os.open(path, _OPEN_FILE)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(None, "it is not a regular file")
    return open(descriptor, "rb")


def _is_owned(journal: Path) -> bool:
    """Whether a process writes this journal: it holds a lock on it, which is tried shared for a moment."""
    try:
        with _open_regular(journal) as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return False
    return False


def _text(value: object) -> str | None:
    return value if isinstance(value, str) else None


def _number(value: object) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        return float(value)
    except OverflowError:
        return None


def _whole(value: object) -> int | None:
    return value if type(value) is int else None


def _items(value: object) -> list[object]:
    return value if isinstance(value, list) else []
