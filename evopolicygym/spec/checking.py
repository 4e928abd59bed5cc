"""Checks of a whole spec document: pydantic's findings and the rules between keys, put into words."""

from collections.abc import Iterable, Mapping
from typing import Any

from pydantic import BaseModel, ValidationError

from evopolicygym.run_config import AssessmentConfig, LimitError, RunConfig, ValidationConfig
from evopolicygym.spec.models import (
    AgentTable,
    AssessmentTable,
    BenchmarkTable,
    ExecutionTable,
    ProgramTable,
    RunTable,
    SkillTable,
    SpecDocument,
    ValidationTable,
)
from evopolicygym.spec.problems import KeyPath, Problem, ProblemsFoundError, did_you_mean
from evopolicygym.spec.record_path import check_template
from evopolicygym.spec.source import SpecSource

TABLES: Mapping[str, type[BaseModel]] = {
    "run": RunTable,
    "benchmark": BenchmarkTable,
    "program": ProgramTable,
    "agent": AgentTable,
    "execution": ExecutionTable,
    "validation": ValidationTable,
    "assessment": AssessmentTable,
}

_MISSING_TABLE = {
    "benchmark": 'say what is to be solved:\n[benchmark]\nuse = "gymnasium"\nenv_id = "CartPole-v1"',
    "program": 'say where the Agent starts from:\n[program]\npath = "my-policy"',
    "agent": 'say who improves the Policy:\n[agent]\nuse = "parameter-tuner"',
    "execution": "say where Policies run; there is no default, since submitted code is not trusted:\n"
    '[execution]\nuse = "unsafe-process"    # or "sandbox"',
}
_KINDS: Mapping[type, str] = {
    bool: "true/false",
    int: "a whole number",
    float: "a number with a fraction",
    str: "text",
    list: "an array",
    dict: "a table",
}


def check_document(source: SpecSource, document: Mapping[str, Any]) -> tuple[dict[str, Any], list[Problem]]:
    """Check every table.

    Args:
        source: for the places and the values as written.
        document: the tables with their environment variables filled in.

    Returns:
        The checked tables that have no problem of their own, by name (``skills`` is a list), and the problems.
    """
    problems: list[Problem] = []
    try:
        SpecDocument.model_validate(document)
    except ValidationError as error:
        findings = error.errors(include_url=False, include_input=False)
        broken = {found["loc"][0] for found in findings}
        misspelt = _misspelt_tables(document)
        for found in findings:
            if not (found["type"] == "missing" and found["loc"][0] in misspelt and len(found["loc"]) == 1):
                problems.append(_explain(found, source))
    else:
        broken = set()
    checked: dict[str, Any] = {}
    for name, model in TABLES.items():
        table = document.get(name, {})
        broken_rules = list(_rules(name, table, source)) if name in document and isinstance(table, dict) else []
        problems.extend(broken_rules)
        if not broken_rules and name not in broken and (name in document or name == "run"):
            checked[name] = model.model_validate(table)
    if "skills" not in broken:
        checked["skills"] = [SkillTable.model_validate(skill) for skill in document.get("skills", [])]
    return checked, problems


def run_config(source: SpecSource, checked: Mapping[str, Any]) -> RunConfig:
    """The configuration of the Run, from checked tables.

    Raises:
        ProblemsFoundError: two limits contradict each other.
    """
    limits = {
        key: getattr(checked["run"], key)
        for key in RunConfig.__pydantic_fields__  # type: ignore[attr-defined]  # pydantic dataclasses have it
        if key not in ("validation", "assessment")
    }
    validation, assessment = checked.get("validation"), checked.get("assessment")
    try:
        return RunConfig(
            **limits,
            validation=ValidationConfig(**validation.model_dump()) if validation else None,
            assessment=AssessmentConfig(**assessment.model_dump()) if assessment else None,
        )
    except LimitError as error:
        problems = []
        for name, message in error.findings:
            named = [key for key in limits if key in message and source.line_of(("run", key))]
            # The rule between keys names them in its message; the first that stands in the file is the place.
            named.sort(key=message.index)
            path: KeyPath = ("run", name) if name else ("run", *named[:1])
            problems.append(source.problem(path, message))
        raise ProblemsFoundError(problems) from None


def _rules(name: str, table: Mapping[str, Any], source: SpecSource) -> Iterable[Problem]:
    if name == "run" and isinstance(table.get("record_to"), str):
        try:
            check_template(table["record_to"])
        except ValueError as error:
            yield source.problem(("run", "record_to"), str(error))
    elif name == "program":
        yield from _program_rules(table, source)
    elif name == "execution" and table.get("use") == "unsafe-process":
        known = _key_names(ExecutionTable)
        for key in table:
            if key not in known:
                message = f'"unsafe-process" has no such setting, only "workers".{did_you_mean(key, known)}'
                yield source.problem(("execution", key), message)


def _program_rules(table: Mapping[str, Any], source: SpecSource) -> Iterable[Problem]:
    known = _key_names(ProgramTable)
    others = [key for key in table if key not in known]
    present = [key for key in ("path", "use", "from") if key in table]
    if not present:
        wrong = next(iter(others), None)
        yield source.problem(
            ("program", wrong) if wrong else ("program",),
            'the table needs one of path = "my-policy", use = "package.module:function" or '
            f'from = "runs/x:submission-000004".{did_you_mean(wrong, known) if wrong else ""}',
        )
        return
    if len(present) > 1:
        message = f'"{present[0]}" and "{present[1]}" exclude each other; keep one'
        yield source.problem(("program", present[1]), message)
    if "use" not in present:
        for key in others:
            yield source.problem(("program", key), _no_such_key(key, ProgramTable))


def _explain(found: Any, source: SpecSource) -> Problem:
    path: KeyPath = tuple(found["loc"])
    kind: str = found["type"]
    context: Mapping[str, Any] = found.get("ctx", {})
    if kind == "missing":
        return source.problem(path, _missing(path), show_value=False)
    if kind == "extra_forbidden":
        return source.problem(path, _unknown_key(path))
    message = _wrong_value(path, kind, context, source.raw(path), found["msg"])
    raw = source.raw(path)
    if isinstance(raw, str) and "${" in raw and kind not in ("string_pattern_mismatch", "literal_error"):
        message += f"; ${{…}} always gives text: pass a number with --set {'.'.join(map(str, path))}=…"
    return source.problem(path, message)


def _misspelt_tables(document: Mapping[str, Any]) -> set[str]:
    """Tables that stand there under a name near to theirs: to call them missing too would only confuse."""
    hints = [did_you_mean(key, [*TABLES, "skills"]) for key in document if key not in TABLES]
    return {name for name in TABLES if any(f'"{name}"' in hint for hint in hints)}


def _missing(path: KeyPath) -> str:
    if len(path) == 1:
        return "this table is missing; " + _MISSING_TABLE.get(str(path[0]), f"add [{path[0]}]")
    if path[-1] == "use":
        examples = {"agent": "parameter-tuner", "execution": "unsafe-process"}
        return f'this key is missing; add use = "{examples.get(str(path[0]), "package.module:attribute")}" to the table'
    return "this key is missing; add it to the table"


def _unknown_key(path: KeyPath) -> str:
    key = str(path[-1])
    homes = [name for name, model in TABLES.items() if key in model.model_fields and name != path[0]]
    if len(path) == 1:
        if homes and not did_you_mean(key, TABLES):
            return f"this key belongs into a table: {' or '.join(f'[{home}]' for home in homes)}"
        return f"there is no such table.{did_you_mean(key, [*TABLES, 'skills'])} Tables: {', '.join(TABLES)}, skills"
    if path[0] == "run" and key in TABLES:
        return f"this is a table of its own; write [{key}], not [run.{key}]"
    model = TABLES.get(str(path[0]), SkillTable)
    if homes:
        return f"there is no such key here; it belongs to {' or '.join(f'[{home}]' for home in homes)}"
    return _no_such_key(key, model)


def _no_such_key(key: str, model: type[BaseModel]) -> str:
    names = _key_names(model)
    keys = ", ".join(names)
    return f"there is no such key here.{did_you_mean(key, names) or f' Keys: {keys}'}"


def _key_names(model: type[BaseModel]) -> list[str]:
    return [field.alias or name for name, field in model.model_fields.items()]


def _wrong_value(path: KeyPath, kind: str, context: Mapping[str, Any], raw: object, fallback: str) -> str:
    key = str(path[-1])
    is_kind = _KINDS.get(type(raw), type(raw).__name__)
    if kind in ("int_type", "int_from_float"):
        what = 'a whole number or "random"' if key == "seed" else "a whole number"
        advice = f"; without quotes: {raw}" if isinstance(raw, str) and raw.strip().isdecimal() else ""
        return f"must be {what}, and this is {is_kind}{advice}"
    if kind == "float_type":
        what = "a number of seconds, without a unit, such as 1.5" if key.endswith("_seconds") else "a number"
        return f"must be {what}, and this is {is_kind}"
    if kind == "string_type":
        return f"must be text in quotes, and this is {is_kind}"
    if kind in ("model_type", "dict_type", "model_attributes_type"):
        return f"must be a table, written [{key}], and this is {is_kind}"
    if kind == "list_type":
        return (
            f"must be {'a table array, written [[skills]]' if key == 'skills' else 'an array'}, and this is {is_kind}"
        )
    if kind == "literal_error":
        allowed = str(context.get("expected", "")).replace("'", '"')
        names = [word for index, word in enumerate(allowed.split('"')) if index % 2]
        return f"must be {allowed}.{did_you_mean(str(raw), names)}"
    bounds = {
        "greater_than_equal": ("at least", "ge"),
        "greater_than": ("above", "gt"),
        "less_than_equal": ("at most", "le"),
        "less_than": ("below", "lt"),
    }
    if kind in bounds:
        words, bound = bounds[kind]
        limit = context[bound]
        return f"must be {words} {int(limit) if float(limit).is_integer() else limit}"
    if kind == "finite_number":
        return "must be a finite number"
    if kind == "string_too_short":
        return "must not be empty"
    if kind == "string_pattern_mismatch":
        if key == "digest":
            return 'must be "sha256:" and 64 hexadecimal digits'
        return "must not hold a slash or a control character"
    return fallback
