"""What a writer that was killed leaves half done, brought to an end by the next one."""

import os
import re
import secrets
from collections.abc import Collection
from pathlib import Path

from evopolicygym.artifacts import unsafe_path
from evopolicygym.record import layout as names
from evopolicygym.record.layout import RecordLayout, is_submission_id
from evopolicygym.record.retention import BulkArtifact
from evopolicygym.record.storage import make_read_only, remove_tree, sync_directory
from evopolicygym.record.strict_json import parse_object

__all__ = ["clear_unpublished", "cut_torn_line", "finish_evictions"]

_CHUNK = 64 * 1024
_TEMPORARY = re.compile(r"\..+\.[0-9a-f]{8}")  # as replace_file names them
_STAGED = (".staging-", ".copy-", ".file-")


def cut_torn_line(journal: Path) -> int:
    """Cut off what follows the journal's last newline, durably; returns the number of bytes.

    Raises:
        OSError: it could not be done.
    """
    descriptor = os.open(journal, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        size = os.fstat(descriptor).st_size
        whole = _end_of_last_line(descriptor, size)
        if whole < size:
            os.ftruncate(descriptor, whole)
            os.fsync(descriptor)
    finally:
        os.close(descriptor)
    return size - whole


def _end_of_last_line(descriptor: int, size: int) -> int:
    start = size
    while start > 0:
        end, start = start, max(0, start - _CHUNK)
        found = os.pread(descriptor, end - start, start).rfind(b"\n")
        if found >= 0:
            return start + found + 1
    return 0


def clear_unpublished(layout: RecordLayout, published: Collection[str]) -> None:
    """Set aside trees of Submissions that are not ``published``, and remove what was only staged.

    Raises:
        OSError: it could not be done.
    """
    for entry in sorted(layout.submissions.iterdir()):
        if entry.name.startswith(_STAGED):
            _remove(entry)
        elif is_submission_id(entry.name):
            if entry.name in published:
                make_read_only(entry)
            else:
                entry.rename(_free_name(entry.with_name(f".unpublished-{entry.name}")))
    sync_directory(layout.submissions)
    agent = layout.agent()
    attempts = sorted(agent.glob("attempt-*"))
    for folder in (layout.root, agent, *attempts, layout.validation_report.parent, layout.assessment_report.parent):
        if folder.is_dir() and not folder.is_symlink():
            for entry in folder.iterdir():
                if _TEMPORARY.fullmatch(entry.name) and not entry.is_dir():
                    entry.unlink()


def _remove(entry: Path) -> None:
    if entry.is_dir() and not entry.is_symlink():
        remove_tree(entry)
    else:
        entry.unlink()


def _free_name(path: Path) -> Path:
    return path.with_name(f"{path.name}-{secrets.token_hex(4)}") if os.path.lexists(path) else path


def finish_evictions(tree: Path) -> list[BulkArtifact]:
    """Remove those artifacts of one Submission that are told to be evicted and are still there; all evicted ones.

    Raises:
        OSError: it could not be done.
    """
    try:
        document = parse_object((tree / names.AVAILABILITY_FILE).read_bytes())
    except (FileNotFoundError, ValueError):
        return []  # a damaged list is written anew with the next eviction
    evicted: list[BulkArtifact] = []
    listed = document.get("evicted")
    for item in listed if isinstance(listed, list) else []:
        artifact = _evicted(tree.name, item)
        if artifact is not None:
            evicted.append(artifact)
    for artifact in evicted:
        path = tree / names.ARTIFACTS / artifact.name
        if path.is_file():
            path.parent.chmod(0o755)
            try:
                path.unlink()
            finally:
                path.parent.chmod(0o555)
    return evicted


def _evicted(submission_id: str, item: object) -> BulkArtifact | None:
    if not isinstance(item, dict):
        return None
    name, size, digest = item.get("name"), item.get("size"), item.get("sha256")
    if not isinstance(name, str) or unsafe_path(name) or type(size) is not int or not isinstance(digest, str):
        return None
    return BulkArtifact(submission_id, name, size, digest)
