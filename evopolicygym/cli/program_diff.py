"""The difference of two Programs: unified, coloured on a terminal, and as a JSON document."""

import difflib
from dataclasses import dataclass

from rich.console import Console
from rich.text import Text

from evopolicygym.analysis import code_metrics
from evopolicygym.cli.documents import FileDiff, ProgramDiffDocument
from evopolicygym.cli.numbers import counted
from evopolicygym.program import Program
from evopolicygym.run.console import inert_line

# Beyond this a file is only said to differ: difflib takes quadratic time, and nobody reads on.
_FILE_MAX_LINES = 20_000
_STYLES = {"+": "green", "-": "red", "@": "cyan"}


@dataclass(frozen=True, slots=True)
class NamedProgram:
    """A Program and how it is called on the screen."""

    label: str
    program: Program


def print_diff(before: NamedProgram, after: NamedProgram, console: Console) -> None:
    """Print the unified difference, file by file."""
    document = diff_document(before, after)
    console.print(Text(f"{before.label} → {after.label}: {_summary(document)}", style="bold"), soft_wrap=True)
    for file in document["files"]:
        console.print()
        if file["diff"] is None:
            console.print(Text(f"{inert_line(file['path'])}: {file['change']}, not shown as text"), soft_wrap=True)
            continue
        for line in file["diff"].split("\n"):
            header = line.startswith(("--- ", "+++ "))
            style = "bold" if header else _STYLES.get(line[:1], "")
            # The mark in front must not shift the tabs behind it.
            console.print(Text(line[:1] + inert_line(line[1:]), style=style), soft_wrap=True)


def diff_document(before: NamedProgram, after: NamedProgram) -> ProgramDiffDocument:
    """The difference in JSON values."""
    old, new = before.program, after.program
    metrics = code_metrics(old, [new])[0]
    files: list[FileDiff] = []
    for path in sorted({*old.files, *new.files}):
        first = old.read_bytes(path) if path in old.files else None
        second = new.read_bytes(path) if path in new.files else None
        if first != second:
            change = "added" if first is None else "removed" if second is None else "changed"
            files.append({"path": path, "change": change, "diff": _diff(path, first, second, before, after)})
    return {
        "schema": "evopolicygym/program-diff/v1",
        "before": before.label,
        "after": after.label,
        "before_digest": old.digest,
        "after_digest": new.digest,
        "edit": metrics.edit,
        "lines_added": metrics.lines_added,
        "lines_removed": metrics.lines_removed,
        "files": files,
    }


def _summary(document: ProgramDiffDocument) -> str:
    if not document["files"]:
        return "the same Program"
    files = counted(len(document["files"]), "file")
    size = f"+{document['lines_added']} -{document['lines_removed']} lines"
    return f"{document['edit']} edit, {files}, {size}"


def _diff(
    path: str, first: bytes | None, second: bytes | None, before: NamedProgram, after: NamedProgram
) -> str | None:
    try:
        old, new = ((content or b"").decode("utf-8").splitlines() for content in (first, second))
    except UnicodeDecodeError:
        return None
    if max(len(old), len(new)) > _FILE_MAX_LINES:
        return None
    lines = difflib.unified_diff(
        old,
        new,
        "/dev/null" if first is None else f"{before.label}/{path}",
        "/dev/null" if second is None else f"{after.label}/{path}",
        lineterm="",
    )
    return "\n".join(lines)
