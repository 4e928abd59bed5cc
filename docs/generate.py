#!/usr/bin/env python3
"""Gather the pages of the documentation in one directory, and generate its reference from the package itself.

    docs/generate.py DIRECTORY

The directory must not exist. Needs a Python that has the package installed.
"""

import importlib
import inspect
import json
import re
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import typer.main

from evopolicygym.cli.app import app
from evopolicygym.cli.documents import DOCUMENTS, document_schema
from evopolicygym.spec import spec_schema

DOCS = Path(__file__).resolve().parent
COPIED = ("*.md", "*.schema.json", "images/*", "tutorial/*/README.md")
MODULES = (
    "evopolicygym",
    "evopolicygym.policy",
    "evopolicygym.program",
    "evopolicygym.authoring",
    "evopolicygym.evaluation",
    "evopolicygym.execution",
    "evopolicygym.run",
    "evopolicygym.agents",
    "evopolicygym.skills",
    "evopolicygym.record",
    "evopolicygym.analysis",
    "evopolicygym.spec",
    "evopolicygym.results",
    "evopolicygym.errors",
)
SECTION = re.compile(r"(Args|Arguments|Returns|Raises|Yields|Example|Examples|Attributes):$")


def main(arguments: list[str]) -> int:
    """Write everything."""
    if len(arguments) != 1:
        print(__doc__, file=sys.stderr)
        return 2
    pages = Path(arguments[0])
    pages.mkdir(parents=True)
    for pattern in COPIED:
        for path in DOCS.glob(pattern):
            target = pages / path.relative_to(DOCS)
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path, target)
    reference = pages / "reference"
    reference.mkdir()
    (reference / "run-spec.md").write_text(spec_page(), encoding="utf-8")
    (reference / "commands.md").write_text(commands_page(), encoding="utf-8")
    (reference / "documents.md").write_text(documents_page(), encoding="utf-8")
    (reference / "python.md").write_text(python_page(), encoding="utf-8")
    return 0


# Run spec ---------------------------------------------------------------------------------------------------


def spec_page() -> str:
    """Every table and key, from the models that check them."""
    schema: Mapping[str, Any] = spec_schema()
    lines = [
        "# Keys of the run spec",
        "",
        "Made from the models that check a spec. [Run spec](../run-spec.md) explains it; the same as",
        "[JSON Schema](../run-spec.schema.json) is what `evopolicygym schema` prints.",
        "",
    ]
    for name, entry in schema["properties"].items():
        is_array = entry.get("type") == "array"
        table = _resolved(entry["items"] if is_array else entry, schema)
        required = "; required" if name in schema.get("required", ()) else ""
        lines += [f"## `{'[[' if is_array else '['}{name}{']]' if is_array else ']'}`", ""]
        described = entry.get("description") or table.get("description") or ""
        lines += [f"{described}{' ' if described else ''}{'(table' + required + ')' if required else ''}".strip(), ""]
        lines += ["| Key | Type | Default | |", "| --- | --- | --- | --- |"]
        for key, value in table.get("properties", {}).items():
            default = "required" if key in table.get("required", ()) else _default(value)
            lines.append(f"| `{key}` | {_type(value, schema)} | {default} | {_cell(value.get('description', ''))} |")
        if table.get("additionalProperties") is True:
            lines.append("| any other | | | passed on as a keyword argument |")
        lines.append("")
    return "\n".join(lines)


def _resolved(entry: Mapping[str, Any], schema: Mapping[str, Any]) -> Mapping[str, Any]:
    for option in (entry, *entry.get("anyOf", ()), *entry.get("allOf", ())):
        if "$ref" in option:
            found: Mapping[str, Any] = schema["$defs"][option["$ref"].rpartition("/")[2]]
            return found
    return entry


def _type(value: Mapping[str, Any], schema: Mapping[str, Any]) -> str:
    if "anyOf" in value:
        return " or ".join(_type(option, schema) for option in value["anyOf"])
    if "$ref" in value:
        return _type(_resolved(value, schema), schema)
    if "const" in value:
        return f"`{json.dumps(value['const'])}`"
    if "enum" in value:
        return " or ".join(f"`{json.dumps(choice)}`" for choice in value["enum"])
    if value.get("type") == "array":
        return f"array of {_type(value.get('items', {}), schema)}"
    words = {"integer": "int", "number": "number", "string": "text", "boolean": "true or false", "object": "table"}
    bounds = [
        f"{sign} {value[key]}"
        for key, sign in (("minimum", "≥"), ("exclusiveMinimum", ">"), ("maximum", "≤"), ("exclusiveMaximum", "<"))
        if key in value
    ]
    return " ".join([words.get(str(value.get("type")), "any"), ", ".join(bounds)]).strip()


def _default(value: Mapping[str, Any]) -> str:
    return f"`{json.dumps(value['default'])}`" if "default" in value else ""


# Commands ---------------------------------------------------------------------------------------------------


def commands_page() -> str:
    """Every command, argument and option, from the application itself."""
    group: Any = typer.main.get_command(app)
    lines = [
        "# Commands and options",
        "",
        "Made from the application itself. [Commands](../commands.md) explains what they show; `-h` prints the same.",
        "",
    ]
    for name, command in group.commands.items():
        arguments = [parameter for parameter in command.params if parameter.param_type_name == "argument"]
        usage = " ".join(
            [f"evopolicygym {name}", *(_placeholder(argument) for argument in arguments), "[OPTIONS]"],
        )
        lines += [f"## `{name}`", "", command.help or "", "", "```console", usage, "```", ""]
        lines += ["| | |", "| --- | --- |"]
        for parameter in command.params:
            if getattr(parameter, "hidden", False):
                continue
            lines.append(f"| {_names(parameter)} | {_cell(_told(parameter))} |")
        lines += ["| `-h`, `--help` | Show the help and exit. |", ""]
    return "\n".join(lines)


def _placeholder(argument: Any) -> str:
    shown = str(argument.metavar or argument.name.upper()) + ("…" if argument.nargs == -1 else "")
    return shown if argument.required else f"[{shown}]"


def _names(parameter: Any) -> str:
    if parameter.param_type_name == "argument":
        return f"`{parameter.metavar or parameter.name.upper()}`"
    names = [*parameter.opts, *parameter.secondary_opts]
    metavar = f" {parameter.metavar}" if parameter.metavar and not getattr(parameter, "is_flag", False) else ""
    return ", ".join(f"`{name}{metavar}`" for name in names)


def _told(parameter: Any) -> str:
    told = parameter.help or ""
    shown = getattr(parameter, "show_default", True)
    default = parameter.default
    if isinstance(shown, str):
        return f"{told} Default: {shown}."
    if shown and default not in (None, False, True, ()) and not callable(default):
        return f"{told} Default: `{getattr(default, 'value', default)}`."
    return told


# JSON documents ---------------------------------------------------------------------------------------------


def documents_page() -> str:
    """What `--json` prints, from the types that the documents are made with."""
    lines = [
        "# JSON documents",
        "",
        "What commands print with `--json`. Keys are added over time, not renamed or removed.",
        "`evopolicygym schema NAME` prints the JSON Schema of a document.",
        "",
    ]
    for name in DOCUMENTS:
        schema: Any = document_schema(name)
        lines += [f"## `{name}`", "", _prose(schema.get("description", "")), ""]
        lines += _fields(schema, schema)
        for part, definition in schema.get("$defs", {}).items():
            lines += [f"**{part}**: {_prose(definition.get('description', ''))}", "", *_fields(definition, schema)]
    return "\n".join(lines)


def _fields(table: Mapping[str, Any], schema: Mapping[str, Any]) -> list[str]:
    lines = ["| Key | Type |", "| --- | --- |"]
    for key, value in table.get("properties", {}).items():
        lines.append(f"| `{key}` | {_json_type(value)} |")
    return [*lines, ""]


def _json_type(value: Mapping[str, Any]) -> str:
    if "anyOf" in value:
        return " or ".join(_json_type(option) for option in value["anyOf"])
    if "$ref" in value:
        return str(value["$ref"]).rpartition("/")[2]
    if "const" in value:
        return f"`{json.dumps(value['const'])}`"
    if "enum" in value:
        return " or ".join(f"`{json.dumps(choice)}`" for choice in value["enum"])
    if value.get("type") == "array":
        return f"array of {_json_type(value.get('items', {}))}"
    if value.get("type") == "object":
        inner = value.get("additionalProperties")
        return f"object of {_json_type(inner)}" if isinstance(inner, dict) and inner else "object"
    return {"string": "text", "integer": "int", "null": "null"}.get(
        str(value.get("type")), str(value.get("type", "any"))
    )


# Python -----------------------------------------------------------------------------------------------------


def python_page() -> str:
    """Every public name with its signature and docstring."""
    lines = ["# Python", "", "Made from the docstrings of the package. Import from the modules named here.", ""]
    shown: dict[int, str] = {}
    for module_name in MODULES:
        module = importlib.import_module(module_name)
        lines += [f"## `{module_name}`", "", _prose((module.__doc__ or "").strip().partition("\n")[0]), ""]
        for name in sorted(getattr(module, "__all__", ())):
            value = getattr(module, name)
            if not (inspect.isclass(value) or inspect.isfunction(value)):
                continue
            if id(value) in shown:
                lines += [f"- `{name}`: see `{shown[id(value)]}`", ""]
                continue
            shown[id(value)] = f"{module_name}.{name}"
            lines += _entry(name, value)
    return "\n".join(lines)


def _entry(name: str, value: Any) -> list[str]:
    lines = [f"### `{name}`", ""]
    signature = _signature(value)
    if signature is not None:
        lines += ["```python", _wrapped(name, signature), "```", ""]
    lines += [*_docstring(inspect.getdoc(value)), ""]
    if inspect.isclass(value):
        for member, inner in vars(value).items():
            function = inner.__func__ if isinstance(inner, classmethod | staticmethod) else inner
            if member.startswith("_") or not (inspect.isfunction(function) or isinstance(function, property)):
                continue
            summary = (inspect.getdoc(function) or "").partition("\n")[0]
            call = "" if isinstance(function, property) else "()"
            lines.append(f"- `{member}{call}`: {_prose(summary)}")
        lines.append("")
    return lines


def _signature(value: Any) -> str | None:
    if inspect.isclass(value) and (issubclass(value, BaseException) or getattr(value, "_is_protocol", False)):
        return None
    try:
        return str(inspect.signature(value))
    except (TypeError, ValueError):
        return None


def _wrapped(name: str, signature: str) -> str:
    text = re.sub(r"<factory>", "…", re.sub(r"evopolicygym\.[\w.]+\.", "", signature.replace("typing.", "")))
    if len(name) + len(text) <= 100:
        return name + text
    inner, _, returned = text[1:].rpartition(")")
    depth, start, parts = 0, 0, []
    for index, character in enumerate(inner):
        depth += (character in "([{") - (character in ")]}")
        if character == "," and not depth:
            parts.append(inner[start:index].strip())
            start = index + 1
    parts.append(inner[start:].strip())
    return f"{name}(\n" + "".join(f"    {part},\n" for part in parts if part) + f"){returned}"


def _docstring(text: str | None) -> list[str]:
    lines: list[str] = []
    section = ""
    for line in (text or "").splitlines():
        if SECTION.fullmatch(line):
            section = line[:-1]
            lines += ["", f"**{section}**", ""]
        elif section in ("Example", "Examples") and line.strip():
            lines.append(f"    {line.strip()}")
        elif section and re.match(r"    \S", line):
            head, colon, rest = line.strip().partition(":")
            item = (
                f"`{head}`: {_prose(rest.strip())}"
                if colon and re.fullmatch(r"[\w*, .]+", head)
                else _prose(line.strip())
            )
            lines.append(f"- {item}")
        elif section and line.strip():
            lines.append(f"  {_prose(line.strip())}")
        else:
            if line and not line.startswith(" "):
                section = ""
            lines.append(_prose(line))
    return lines


def _prose(text: str) -> str:
    text = re.sub(r":\w+:`~?([^`]+)`", r"`\1`", text)
    return text.replace("``", "`")


def _cell(text: str) -> str:
    return _prose(text).replace("|", "\\|").replace("\n", " ")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
