"""What the documentation generates from the package, and what must keep up with it."""

import importlib.util
import json
import re
from pathlib import Path

import pytest
import typer.main

from evopolicygym.cli.app import SchemaName, app
from evopolicygym.cli.documents import DOCUMENTS
from evopolicygym.run import RunConfig
from evopolicygym.spec import spec_schema

DOCS = Path(__file__).parents[2] / "docs"


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> Path:
    module_spec = importlib.util.spec_from_file_location("generate_docs", DOCS / "generate.py")
    assert module_spec is not None
    assert module_spec.loader is not None
    generate = importlib.util.module_from_spec(module_spec)
    module_spec.loader.exec_module(generate)
    target = tmp_path_factory.mktemp("docs") / "pages"
    assert generate.main([str(target)]) == 0
    return target


def test_the_reference_of_the_spec_has_every_key(pages: Path) -> None:
    text = (pages / "reference" / "run-spec.md").read_text()
    for key in set(RunConfig.__pydantic_fields__) - {"validation", "assessment"}:  # type: ignore[attr-defined]
        assert f"| `{key}` |" in text
    assert "## `[[skills]]`" in text


def test_the_reference_of_commands_has_every_command_and_option(pages: Path) -> None:
    text = (pages / "reference" / "commands.md").read_text()
    for name, command in typer.main.get_command(app).commands.items():  # type: ignore[attr-defined]
        assert f"## `{name}`" in text
        for parameter in command.params:
            assert f"`{parameter.opts[0]}" in text or parameter.param_type_name == "argument"


def test_the_written_page_names_every_command() -> None:
    text = (DOCS / "commands.md").read_text()
    for name in typer.main.get_command(app).commands:  # type: ignore[attr-defined]
        assert f"## `{name}" in text, f"docs/commands.md has no section on {name}"


def test_every_document_has_a_schema_of_its_own_name(pages: Path) -> None:
    text = (pages / "reference" / "documents.md").read_text()
    assert {name.value for name in SchemaName} == {"spec", *DOCUMENTS}
    for name in DOCUMENTS:
        assert f"## `{name}`" in text


def test_the_reference_of_python_has_no_private_names(pages: Path) -> None:
    headings = re.findall(r"^### `(\w+)`", (pages / "reference" / "python.md").read_text(), re.MULTILINE)
    assert {"Program", "run", "evaluate", "CommandAgent", "open_run", "load_spec"} <= set(headings)
    assert not [name for name in headings if name.startswith("_")]


def test_the_committed_schema_is_the_real_one() -> None:
    written = json.loads((DOCS / "run-spec.schema.json").read_text())
    assert written == spec_schema(), "run: evopolicygym schema > docs/run-spec.schema.json"


def test_the_navigation_has_every_page() -> None:
    navigation = (DOCS / "mkdocs.yml").read_text()
    for page in DOCS.glob("*.md"):
        assert f": {page.name}" in navigation, f"docs/mkdocs.yml has no line for {page.name}"
