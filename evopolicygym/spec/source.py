"""The text of a run spec: TOML with line numbers, ``--set`` overrides and ``${VAR}`` from the environment."""

import copy
import re
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from evopolicygym.errors import SpecError
from evopolicygym.spec.problems import KeyPath, Problem, ProblemsFoundError, key_text, spec_error, value_text

_UNCLOSED = 'Expected "\'"'
_MAX_BYTES = 4 * 1024 * 1024
_SYNTAX_POSITION = re.compile(r"\s*\(at (?:line (\d+), column (\d+)|end of document)\)")
_VARIABLE = re.compile(r"\$(\$)?\{([^{}]*)\}")
_VARIABLE_NAME = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)(?::-(.*))?", re.DOTALL)
_BARE_WORD = re.compile(r"[^\s\"'\[\]{}#,=]+")


@dataclass(slots=True)
class SpecSource:
    """A parsed run spec that still knows where each key stands.

    Args:
        path: absolute path of the file.
        display: the path as the user gave it.
        document: the tables, overrides applied, ``${VAR}`` not yet filled in.
    """

    path: Path
    display: str
    document: dict[str, Any]
    _lines: Mapping[KeyPath, int]
    _overrides: dict[KeyPath, str] = field(default_factory=dict)

    def problem(self, path: KeyPath, message: str, *, show_value: bool = True) -> Problem:
        """A problem at one key, with its place and the value found as the user wrote it."""
        found, value = self._lookup(path)
        subject = key_text(path)
        # A whole table as "value found" says nothing that the key does not.
        if show_value and found and not isinstance(value, dict) and not _is_table_array(value):
            subject += f" = {value_text(value)}"
        for length in range(len(path), 0, -1):
            if path[:length] in self._overrides:
                return Problem(self._overrides[path[:length]], subject, message)
        for length in range(len(path), 0, -1):
            if path[:length] in self._lines:
                line = self._lines[path[:length]]
                return Problem(f"{self.display}:{line}", subject, message, line)
        return Problem(self.display, subject, message)

    def raw(self, path: KeyPath) -> object:
        """The value at a key as written, or None."""
        return self._lookup(path)[1]

    def line_of(self, path: KeyPath) -> int:
        """The line of a key, 0 if it does not stand in the file."""
        return self._lines.get(path, 0)

    def override(self, path: KeyPath, value: object, origin: str) -> None:
        """Put a value at a key, making tables on the way.

        Raises:
            ProblemsFoundError: a part of the way is no table.
        """
        here: Any = self.document
        for position, part in enumerate(path[:-1]):
            if isinstance(here, list) and isinstance(part, int) and part < len(here):
                here = here[part]
            elif isinstance(here, dict):
                here = here.setdefault(str(part), {})
            else:
                here = None
            if not isinstance(here, dict | list):
                taken = key_text(path[: position + 1])
                raise ProblemsFoundError(
                    [Problem(origin, key_text(path), f"{taken} is not a table, so no key can be set in it")]
                )
        last = path[-1]
        if isinstance(here, list):
            if not isinstance(last, int) or last >= len(here):
                raise ProblemsFoundError(
                    [Problem(origin, key_text(path), f"{key_text(path[:-1])} has {len(here)} entries, from 0")]
                )
            here[last] = value
        else:
            here[str(last)] = value
        self._overrides[path] = origin

    def _lookup(self, path: KeyPath) -> tuple[bool, object]:
        value: Any = self.document
        for part in path:
            try:
                value = value[part]
            except (KeyError, IndexError, TypeError):
                return False, None
        return True, value


def read_source(path: str | Path, overrides: Sequence[str]) -> SpecSource:
    """Read a spec file and apply ``key=TOML-value`` overrides.

    Raises:
        SpecError: no such file, not UTF-8, not TOML, or an override that cannot be read.
    """
    display = str(path)
    try:
        with open(path, "rb") as stream:
            data = stream.read(_MAX_BYTES + 1)
    except FileNotFoundError:
        raise SpecError(f"{display}: there is no such file{_near_files(Path(path))}") from None
    except IsADirectoryError:
        raise SpecError(
            f"{display} is a directory; give the run spec itself, a TOML file{_near_files(Path(path) / 'x')}"
        ) from None
    except OSError as error:
        raise SpecError(f"{display}: cannot be read: {error.strerror or error}") from error
    if len(data) > _MAX_BYTES:
        raise SpecError(f"{display}: larger than {_MAX_BYTES // 1024 // 1024} MiB; this is no run spec")
    text = _decode(data, display)
    try:
        document = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise spec_error(display, [_syntax_problem(error, text, display)]) from None
    source = SpecSource(Path(path).absolute(), display, document, _line_numbers(text))
    problems: list[Problem] = []
    for override in overrides:
        try:
            key, value = _parse_override(override)
            source.override(key, value, f"--set {override}")
        except ProblemsFoundError as found:
            problems.extend(found.problems)
    if problems:
        raise spec_error(display, problems)
    return source


def expand(source: SpecSource, environment: Mapping[str, str]) -> dict[str, Any]:
    """The document with ``${VAR}`` and ``${VAR:-default}`` filled in; ``$${`` stands for a literal ``${``.

    Raises:
        ProblemsFoundError: every variable that is not set, or is written wrong.
    """
    problems: list[Problem] = []

    def fill(value: Any, path: KeyPath) -> Any:
        if isinstance(value, dict):
            return {key: fill(item, (*path, key)) for key, item in value.items()}
        if isinstance(value, list):
            return [fill(item, (*path, index)) for index, item in enumerate(value)]
        if not isinstance(value, str):
            return value
        try:
            return expand_text(value, environment)
        except ValueError as error:
            problems.append(source.problem(path, str(error)))
            return value

    filled: dict[str, Any] = fill(copy.deepcopy(source.document), ())
    if problems:
        raise ProblemsFoundError(problems)
    return filled


def expand_text(text: str, environment: Mapping[str, str]) -> str:
    """Fill the variables of one string.

    Raises:
        ValueError: a variable is not set and has no default, or the form is wrong.
    """

    def one(match: re.Match[str]) -> str:
        if match[1]:
            return match[0][1:]
        parts = _VARIABLE_NAME.fullmatch(match[2])
        if parts is None:
            raise ValueError(
                f"{match[0]} is no variable; write ${{NAME}} or ${{NAME:-default}}, and $${{ for a literal ${{"
            )
        name, default = parts[1], parts[2]
        # As in a shell, ":-" also replaces a variable that is set but empty.
        value = environment.get(name)
        if value is None or (not value and default is not None):
            value = default
        if value is None:
            raise ValueError(
                f"the environment variable {name} is not set; export it, or give a default: ${{{name}:-…}}"
            )
        return value

    return _VARIABLE.sub(one, text)


def literal_text(text: str) -> str:
    """Write text so that :func:`expand_text` gives it back unchanged."""
    return text.replace("${", "$${")


def _decode(data: bytes, display: str) -> str:
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        problem = Problem(
            f"{display}:{line}",
            "",
            f"this is not UTF-8 text (byte 0x{data[error.start]:02x}); save the file with the encoding UTF-8",
            line,
        )
        raise spec_error(display, [problem]) from None


def _syntax_problem(error: tomllib.TOMLDecodeError, text: str, display: str) -> Problem:
    description = str(error)
    position = _SYNTAX_POSITION.search(description)
    reason = _SYNTAX_POSITION.sub("", description)
    lines = text.splitlines() or [""]
    line = int(position[1]) if position and position[1] else len(lines)
    if reason == _UNCLOSED:  # noticed only where the text ends
        line = next((number for number, text in enumerate(lines, 1) if text.count("'") % 2), line)
    shown = lines[min(line, len(lines)) - 1].strip()
    advice = {
        "Invalid value": "text needs quotes, and a value must follow the = sign",
        "Cannot overwrite a value": "this key stands twice; keep one",
        "Expected '=' after a key in a key/value pair": "write: key = value",
        "Unterminated string": "the closing quote is missing",
        "Illegal character '\\n'": "the closing quote is missing",
        _UNCLOSED: "the closing quote is missing",
    }.get(reason, "")
    if reason.startswith("Cannot declare"):
        advice = "this table stands twice; keep one"
    message = f"this is not TOML: {reason}" + (f" ({advice})" if advice else "")
    return Problem(f"{display}:{line}", shown[:80], message, line)


def _line_numbers(text: str) -> dict[KeyPath, int]:
    """The line of every key and table header.

    Each statement of valid TOML parses alone, and none that is cut short does: so lines are gathered until they parse.
    """
    lines = text.splitlines()
    found: dict[KeyPath, int] = {}
    table: KeyPath = ()
    arrays: dict[KeyPath, int] = {}
    start = 0
    while start < len(lines):
        end = start + 1
        while True:
            statement = "\n".join(lines[start:end])
            try:
                parsed = tomllib.loads(statement)
                break
            except tomllib.TOMLDecodeError:
                end += 1
                if end > len(lines):  # cannot happen in a document that parses as a whole
                    return found
        if statement.lstrip().startswith("["):
            table = _header_path(parsed, arrays, is_array=statement.lstrip().startswith("[["))
            found.setdefault(table, start + 1)
        else:
            for path in _leaf_paths(parsed):
                for length in range(1, len(path) + 1):
                    found.setdefault((*table, *path[:length]), start + 1)
        start = end
    return found


def _header_path(parsed: Mapping[str, Any], arrays: dict[KeyPath, int], *, is_array: bool) -> KeyPath:
    path: KeyPath = ()
    here: Any = parsed
    while isinstance(here, dict) and here:
        name, here = next(iter(here.items()))
        path = (*path, name)
        last = isinstance(here, list) or not here
        if last and is_array:
            arrays[path] = arrays.get(path, -1) + 1
        if path in arrays:
            path = (*path, arrays[path])
        if last:
            break
    return path


def _leaf_paths(value: Mapping[str, Any]) -> list[KeyPath]:
    paths: list[KeyPath] = []
    for key, item in value.items():
        paths.append((key,))
        if isinstance(item, dict):
            paths.extend((key, *path) for path in _leaf_paths(item))
    return paths


def _parse_override(text: str) -> tuple[KeyPath, object]:
    key, separator, value = text.partition("=")
    key, value = key.strip(), value.strip()
    origin = f"--set {text}"
    if not separator or not key:
        raise ProblemsFoundError([Problem(origin, "", "write --set key=value, as in --set run.seed=7")])
    try:
        parsed: Any = tomllib.loads(f"{key} = 0")
    except tomllib.TOMLDecodeError:
        raise ProblemsFoundError([Problem(origin, "", f"{key!r} is no key; write it as run.seed")]) from None
    path: KeyPath = ()
    while isinstance(parsed, dict):
        name, parsed = next(iter(parsed.items()))
        path = (*path, int(name) if path and name.isascii() and name.isdigit() else name)
    if len(path) == 1 and path[0] not in ("skills",):
        raise ProblemsFoundError([Problem(origin, key, f"name the table too, as in --set run.{key}={value or '…'}")])
    try:
        return path, tomllib.loads(f"value = {value}")["value"]
    except tomllib.TOMLDecodeError:
        # A shell eats quotes: `--set agent.model="gpt-5"` arrives as a bare word.
        if _BARE_WORD.fullmatch(value):
            return path, value
        raise ProblemsFoundError(
            [Problem(origin, key, f"{value!r} is no TOML value; text needs quotes: --set '{key}=\"some text\"'")]
        ) from None


def _near_files(path: Path) -> str:
    try:
        nearby = sorted(entry.name for entry in path.parent.iterdir() if entry.suffix == ".toml")[:5]
    except OSError:
        return ""
    return f"; TOML files there: {', '.join(nearby)}" if nearby else ""


def _is_table_array(value: object) -> bool:
    return isinstance(value, list) and any(isinstance(item, dict) for item in value)
