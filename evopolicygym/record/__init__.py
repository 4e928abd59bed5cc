"""The Record: the directory that a Run leaves, written while it happens and read by everybody afterwards."""

from evopolicygym.record import events
from evopolicygym.record.diagnostics import diagnostics_summary, visible_diagnostics
from evopolicygym.record.events import EVENT_TYPES, Event, RunEvent, RunObserver
from evopolicygym.record.journal import Journal
from evopolicygym.record.layout import RUN_SCHEMA, RecordLayout
from evopolicygym.record.lock import RecordLock
from evopolicygym.record.publication import Publication
from evopolicygym.record.reader import ArtifactRecord, RecordStatus, RunRecord, SubmissionRecord, open_run
from evopolicygym.record.relay import ObserverRelay
from evopolicygym.record.republication import published_submission
from evopolicygym.record.writer import RecordWriter

__all__ = [
    "EVENT_TYPES",
    "RUN_SCHEMA",
    "ArtifactRecord",
    "Event",
    "Journal",
    "ObserverRelay",
    "Publication",
    "RecordLayout",
    "RecordLock",
    "RecordStatus",
    "RecordWriter",
    "RunEvent",
    "RunObserver",
    "RunRecord",
    "SubmissionRecord",
    "diagnostics_summary",
    "events",
    "open_run",
    "published_submission",
    "visible_diagnostics",
]
