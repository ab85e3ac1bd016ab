"""Whose a metadata file is, told by its beginning where that is enough."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

from iceberg_maint.catalog.store import LocalStore
from iceberg_maint.orphans.owner import foreign_metadata, uuid_in

LONG = {"properties": {"note": "x" * 50_000, "table-uuid": "nested"}}


class Counting(LocalStore):
    """Counts the bytes it gives."""

    def __init__(self) -> None:
        self.given = 0

    def read(self, path: str, most_bytes: int | None = None) -> bytes:
        data = super().read(path, most_bytes)
        self.given += len(data)
        return data


@pytest.mark.parametrize(
    ("head", "found"),
    [
        ('{"format-version" : 2,\n "table-uuid" : "a", "location"', "a"),
        ('{"properties": {"table-uuid": "nested"}, "table-uuid": "a"', "a"),
        ('{"properties": {"table-uuid": "nested"', None),
        ('{"note": "\\"table-uuid\\": \\"b\\"", "table-uuid": "a"}', "a"),
        ('{"table-uuid": "a', None),
        ('{"table-uuid": 7}', None),
        ("[]", None),
        ("", None),
    ],
)
def test_uuid_is_that_of_the_table_itself_or_not_told(head: str, found: str | None) -> None:
    assert uuid_in(head) == found


@pytest.mark.parametrize("packed", [False, True])
def test_only_the_beginning_is_read_where_the_uuid_stands_there(tmp_path: Path, packed: bool) -> None:
    store = Counting()
    text = json.dumps({"format-version": 2, "table-uuid": "mine", **LONG}).encode()
    path = tmp_path / "v1.metadata.json"
    path.write_bytes(gzip.compress(text) if packed else text)
    assert foreign_metadata(store, [f"file://{path}"], "mine") is None
    assert store.given <= 16 * 1024
    assert foreign_metadata(store, [f"file://{path}"], "other") == (f"file://{path}", "mine")


@pytest.mark.parametrize("packed", [False, True])
def test_file_with_the_uuid_far_behind_is_read_whole(tmp_path: Path, packed: bool) -> None:
    text = json.dumps({**LONG, "table-uuid": "mine"}).encode()
    path = tmp_path / "v1.metadata.json"
    path.write_bytes(gzip.compress(text) if packed else text)
    assert foreign_metadata(LocalStore(), [f"file://{path}"], "mine") is None


def test_what_cannot_be_read_is_foreign_and_what_is_gone_nobodys(tmp_path: Path) -> None:
    broken = tmp_path / "v1.metadata.json"
    broken.write_text("{")
    gone = f"file://{tmp_path / 'v2.metadata.json'}"
    assert foreign_metadata(LocalStore(), [gone], "mine") is None
    found = foreign_metadata(LocalStore(), [gone, f"file://{broken}"], "mine")
    assert found == (f"file://{broken}", "none that can be read: JSONDecodeError")


def test_format_v1_without_uuid_is_told_by_its_location(tmp_path: Path) -> None:
    old = tmp_path / "v1.metadata.json"
    old.write_text(json.dumps({"format-version": 1, "location": "s3://b/t"}))
    assert foreign_metadata(LocalStore(), [f"file://{old}"], "mine") == (f"file://{old}", "s3://b/t")
