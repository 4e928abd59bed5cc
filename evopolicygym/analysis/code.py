"""How the code of a Program is built, and what kind of edit led to it.

Programs are not trusted: nothing is executed, what is read is bounded, and source that cannot be parsed is a fact
like any other.
"""

import ast
import warnings
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import Literal, TypeAlias

from evopolicygym.program import Program

__all__ = ["CodeMetrics", "EditKind", "SourceReader", "code_metrics"]

EditKind: TypeAlias = Literal["none", "cosmetic", "parametric", "structural", "unknown"]
"""``none``: the same Program. ``cosmetic``: comments, docstrings or layout only. ``parametric``: only literals or data
files changed. ``structural``: anything else. ``unknown``: too large to look at."""

_FILE_MAX_BYTES = 512 * 1024
_TOTAL_MAX_BYTES = 32 * 1024 * 1024
_LITERALS = (ast.Constant, ast.List, ast.Tuple, ast.Set, ast.Dict, ast.UnaryOp)
_SIGNS = (ast.USub, ast.UAdd)


@dataclass(frozen=True, slots=True)
class CodeMetrics:
    """One Program of a sequence.

    Args:
        source_lines: lines of its Python files that are neither blank nor a comment alone.
        functions: function and method definitions; None if a file cannot be parsed.
        lines_added, lines_removed: lines of text files that the Program before did not hold, and the other way round;
            a line that only moved does not count.
        edit: the kind of the edit.
    """

    source_lines: int
    functions: int | None
    lines_added: int
    lines_removed: int
    edit: EditKind

    def to_json(self) -> dict[str, object]:
        """All fields as a JSON object."""
        return {
            "source_lines": self.source_lines,
            "functions": self.functions,
            "lines_added": self.lines_added,
            "lines_removed": self.lines_removed,
            "edit": self.edit,
        }


def code_metrics(initial: Program, programs: Sequence[Program]) -> tuple[CodeMetrics, ...]:
    """Metrics of each Program; the edit of each is against the one before it, the first against ``initial``."""
    reader = SourceReader()
    metrics = []
    before = initial
    for program in programs:
        metrics.append(reader.metrics(before, program))
        before = program
    return tuple(metrics)


@dataclass(frozen=True, slots=True)
class _Source:
    """What is kept of one file.

    Args:
        lines: each line of text with its number of occurrences; None for binary files.
        source_lines: of Python.
        functions: of Python that can be parsed.
        code, shape: digest of the syntax tree, complete and without its literals; None if it cannot be parsed.
        too_large: it was not looked at.
    """

    lines: Counter[str] | None
    source_lines: int = 0
    functions: int | None = 0
    code: bytes | None = None
    shape: bytes | None = None
    too_large: bool = False


class SourceReader:
    """Reads files of Programs once each, however many Programs share them."""

    def __init__(self) -> None:
        self._known: dict[tuple[bool, bytes], _Source] = {}
        self._room = _TOTAL_MAX_BYTES

    def metrics(self, before: Program, after: Program) -> CodeMetrics:
        """Metrics of ``after``, and its edit against ``before``."""
        old, new = self._sources(before), self._sources(after)
        added, removed = _changed_lines(old, new)
        functions = [source.functions for path, source in new.items() if _is_python(path)]
        return CodeMetrics(
            source_lines=sum(source.source_lines for source in new.values()),
            functions=None if None in functions else sum(count for count in functions if count is not None),
            lines_added=added,
            lines_removed=removed,
            edit="none" if before == after else _edit(before, after, old, new),
        )

    def _sources(self, program: Program) -> dict[str, _Source]:
        return {path: self._source(path, program.read_bytes(path)) for path in program.files}

    def _source(self, path: str, content: bytes) -> _Source:
        python = _is_python(path)
        key = (python, sha256(content).digest())
        source = self._known.get(key)
        if source is None:
            if len(content) > min(_FILE_MAX_BYTES, self._room):
                source = _Source(None, functions=None, too_large=True)
            else:
                self._room -= len(content)
                source = _read_python(content) if python else _Source(_lines(content))
            self._known[key] = source
        return source


def _is_python(path: str) -> bool:
    return path.endswith(".py")


def _lines(content: bytes) -> Counter[str] | None:
    try:
        return Counter(content.decode("utf-8").splitlines())
    except UnicodeDecodeError:
        return None


def _read_python(content: bytes) -> _Source:
    lines = _lines(content)
    source_lines = 0
    if lines is not None:
        source_lines = sum(n for line, n in lines.items() if line.strip() and not line.strip().startswith("#"))
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # such as an invalid escape sequence
            tree = ast.parse(content)
            code, shape = sha256(), sha256()
            functions = 0
            for kind, text in _tokens(tree):
                functions += kind == "function"
                code.update(text)
                if kind != "literal":
                    shape.update(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):  # what the parser makes of any text
        return _Source(lines, source_lines, functions=None)
    return _Source(lines, source_lines, functions, code.digest(), shape.digest())


def _tokens(tree: ast.AST) -> Iterator[tuple[str, bytes]]:
    """The syntax tree as a sequence of texts, each marked as a literal or not. Iterative: trees may be deep."""
    stack: list[object] = [tree]
    while stack:
        node = stack.pop()
        if isinstance(node, ast.AST):
            if _is_docstring(node):
                continue
            if _is_literal(node):
                yield "other", b"<literal>"
                yield "literal", _literal_text(node)
                continue
            is_function = isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
            yield "function" if is_function else "other", f"({type(node).__name__}".encode()
            stack.append(")")
            for name in reversed(node._fields):
                stack.append(getattr(node, name, None))
                stack.append(f".{name}=")
        elif isinstance(node, list):
            stack.append("]")
            stack.extend(reversed(node))
            yield "other", b"["
        else:
            yield "other", f"{node!s}\0".encode("utf-8", "surrogatepass")


def _is_docstring(node: ast.AST) -> bool:
    """A text that stands as a statement does nothing, docstring or not."""
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)


def _is_literal(node: ast.AST) -> bool:
    """A constant, a signed number, or a display of literals only."""
    stack = [node]
    while stack:
        here = stack.pop()
        if not isinstance(here, _LITERALS):
            return False
        if isinstance(here, ast.UnaryOp):
            if not isinstance(here.op, _SIGNS) or not isinstance(here.operand, ast.Constant):
                return False
        elif isinstance(here, ast.Dict):
            if None in here.keys:
                return False
            stack.extend(key for key in here.keys if key is not None)
            stack.extend(here.values)
        elif isinstance(here, ast.List | ast.Tuple | ast.Set):
            if not isinstance(getattr(here, "ctx", None) or ast.Load(), ast.Load):
                return False
            stack.extend(here.elts)
    return True


def _literal_text(node: ast.AST) -> bytes:
    pieces: list[str] = []
    stack: list[ast.AST] = [node]
    while stack:
        here = stack.pop()
        pieces.append(type(here).__name__)
        if isinstance(here, ast.Constant):
            pieces.append(repr(here.value))
        stack.extend(ast.iter_child_nodes(here))
        pieces.append(str(len(stack)))
    return "\0".join(pieces).encode("utf-8", "surrogatepass")


def _changed_lines(old: Mapping[str, _Source], new: Mapping[str, _Source]) -> tuple[int, int]:
    added = removed = 0
    nothing: Counter[str] = Counter()
    for path in old.keys() | new.keys():
        before = old[path].lines if path in old else nothing
        after = new[path].lines if path in new else nothing
        if before is not None and after is not None and before is not after:
            added += (after - before).total()
            removed += (before - after).total()
    return added, removed


def _edit(before: Program, after: Program, old: Mapping[str, _Source], new: Mapping[str, _Source]) -> EditKind:
    code_before = {path: source for path, source in old.items() if _is_python(path)}
    code_after = {path: source for path, source in new.items() if _is_python(path)}
    if code_before.keys() != code_after.keys():
        return "structural"
    kind: EditKind = "cosmetic"
    for path, first in code_before.items():
        second = code_after[path]
        if before.read_bytes(path) == after.read_bytes(path):
            continue
        if first.too_large or second.too_large:
            return "unknown"
        if first.shape is None or first.shape != second.shape:
            return "structural"
        if first.code != second.code:
            kind = "parametric"
    data_before = {path: before.read_bytes(path) for path in before.files if path not in code_before}
    data_after = {path: after.read_bytes(path) for path in after.files if path not in code_after}
    return "parametric" if data_before != data_after else kind
