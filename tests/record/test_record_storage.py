"""Files and trees appear whole or not at all."""

import os
import stat
from pathlib import Path

import pytest

from evopolicygym.errors import RecordError
from evopolicygym.record.storage import publish_tree, remove_tree, replace_file, write_tree
from evopolicygym.record.strict_json import json_document, json_line, parse_object


def test_replacing_a_file_leaves_nothing_else_behind(tmp_path: Path) -> None:
    replace_file(tmp_path / "run.json", b"old")
    replace_file(tmp_path / "run.json", b"new")
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == {"run.json": b"new"}


def test_replacing_a_link_does_not_write_through_it(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").write_bytes(b"untouched")
    (tmp_path / "run.json").symlink_to("elsewhere")
    replace_file(tmp_path / "run.json", b"new")
    assert (tmp_path / "elsewhere").read_bytes() == b"untouched"
    assert not (tmp_path / "run.json").is_symlink()


def test_a_file_that_cannot_be_replaced_stays_and_leaves_no_temporary_one(tmp_path: Path) -> None:
    (tmp_path / "run.json").mkdir()
    with pytest.raises(OSError, match="directory"):
        replace_file(tmp_path / "run.json", b"new")
    assert [path.name for path in tmp_path.iterdir()] == ["run.json"]


def test_a_tree_that_cannot_be_written_is_removed_again(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="File name too long"):
        write_tree(tmp_path / "staged", {"a/b": b"1", "x" * 300: b"2"})
    assert not list(tmp_path.iterdir())


def test_a_published_tree_is_read_only_and_never_replaces_another(tmp_path: Path) -> None:
    write_tree(tmp_path / "staged", {"a/b": b"1"})
    publish_tree(tmp_path / "staged", tmp_path / "published")
    modes = {
        path.name: stat.S_IMODE(path.stat().st_mode)
        for path in (tmp_path / "published", *(tmp_path / "published").rglob("*"))
    }
    assert modes == {"published": 0o555, "a": 0o555, "b": 0o444}
    write_tree(tmp_path / "again", {"a": b"2"})
    with pytest.raises(FileExistsError):
        publish_tree(tmp_path / "again", tmp_path / "published")
    remove_tree(tmp_path / "published")
    assert not (tmp_path / "published").exists()


def test_modes_do_not_depend_on_the_umask(tmp_path: Path) -> None:
    before = os.umask(0o077)
    try:
        replace_file(tmp_path / "file", b"")
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "file").stat().st_mode) == 0o644


def test_a_document_has_one_item_a_line() -> None:
    document = {"score": 1.5, "indices": [1, 2], "episodes": [{"steps": 1}, {"steps": 2}], "config": {"seed": 1}}
    assert json_document(document).decode() == (
        '{\n  "score": 1.5,\n  "indices": [1,2],\n  "episodes": [\n    {"steps":1},\n    {"steps":2}\n  ],\n'
        '  "config": {\n    "seed": 1\n  }\n}\n'
    )


@pytest.mark.parametrize("value", [float("inf"), {"a": float("nan")}, {1: 2}, object(), {"a": b""}])
def test_what_is_no_json_is_refused(value: object) -> None:
    with pytest.raises(RecordError, match="cannot be written as JSON"):
        json_document({"a": {"b": value}} if not isinstance(value, dict) else value)


def test_a_lone_surrogate_is_written_as_a_replacement_character() -> None:
    assert json_line({"a": "\udc80b"}) == '{"a":"\ufffdb"}\n'.encode()


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"\xff", "not UTF-8"),
        (b"{", "not valid JSON"),
        (b"[1]", "a JSON object is needed"),
        (b'{"a":NaN}', "NaN is no JSON number"),
        (b'{"a":' + b"[" * 100_000, "nested too deeply"),
        (b'{"a":' + b"9" * 10_000 + b"}", "Exceeds the limit"),
    ],
)
def test_what_cannot_be_read_is_a_value_error_with_a_reason(data: bytes, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        parse_object(data)
