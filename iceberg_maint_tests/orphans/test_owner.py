"""Whose a metadata file is, told by its beginning where that is enough."""

from __future__ import annotations

import gzip
import json
import os
from pathlib import Path

import pytest

from iceberg_maint.catalog.store import LocalStore
from iceberg_maint.orphans.owner import foreign_metadata, uuid_in
from iceberg_maint.storage_ports import StoredFile

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


def files(*paths: Path) -> list[StoredFile]:
    """As they are listed; a file that is gone, as it was."""
    found = ((p, p.stat() if p.exists() else None) for p in paths)
    return [
        StoredFile(f"file://{p}", s.st_size if s else 1, s.st_mtime_ns // 10**6 if s else 1) for p, s in found
    ]


@pytest.fixture
def memo(tmp_path: Path) -> Path:
    return tmp_path / "memo.db"


@pytest.mark.parametrize("packed", [False, True])
def test_only_the_beginning_is_read_where_the_uuid_stands_there(
    tmp_path: Path, memo: Path, packed: bool
) -> None:
    store = Counting()
    text = json.dumps({"format-version": 2, "table-uuid": "mine", **LONG}).encode()
    path = tmp_path / "v1.metadata.json"
    path.write_bytes(gzip.compress(text) if packed else text)
    assert foreign_metadata(store, files(path), "other", memo) == (f"file://{path}", "mine")
    assert store.given <= 16 * 1024
    assert foreign_metadata(store, files(path), "mine", memo) is None


@pytest.mark.parametrize("packed", [False, True])
def test_file_with_the_uuid_far_behind_is_read_whole(tmp_path: Path, memo: Path, packed: bool) -> None:
    text = json.dumps({**LONG, "table-uuid": "mine"}).encode()
    path = tmp_path / "v1.metadata.json"
    path.write_bytes(gzip.compress(text) if packed else text)
    assert foreign_metadata(LocalStore(), files(path), "mine", memo) is None


def test_what_cannot_be_read_is_foreign_and_what_is_gone_nobodys(tmp_path: Path, memo: Path) -> None:
    broken, gone = tmp_path / "v1.metadata.json", tmp_path / "v2.metadata.json"
    broken.write_text("{")
    for _ in range(2):
        assert foreign_metadata(LocalStore(), files(gone), "mine", memo) is None
        found = foreign_metadata(LocalStore(), files(gone, broken), "mine", memo)
        assert found == (f"file://{broken}", "none that can be read: JSONDecodeError")


def test_format_v1_without_uuid_is_told_by_its_location(tmp_path: Path, memo: Path) -> None:
    old = tmp_path / "v1.metadata.json"
    old.write_text(json.dumps({"format-version": 1, "location": "s3://b/t"}))
    assert foreign_metadata(LocalStore(), files(old), "mine", memo) == (f"file://{old}", "s3://b/t")


def test_file_is_read_once_however_often_it_is_listed(tmp_path: Path, memo: Path) -> None:
    store = Counting()
    old, new = tmp_path / "v1.metadata.json", tmp_path / "v2.metadata.json"
    for path in (old, new):
        path.write_text('{"table-uuid": "mine"}')
    assert foreign_metadata(store, files(old), "mine", memo) is None
    given = store.given
    assert foreign_metadata(store, files(old, new), "mine", memo) is None
    assert store.given == 2 * given
    assert foreign_metadata(store, files(old, new), "mine", memo) is None
    assert store.given == 2 * given


def test_file_that_was_put_in_the_place_of_another_is_read(tmp_path: Path, memo: Path) -> None:
    path = tmp_path / "v1.metadata.json"
    path.write_text('{"table-uuid": "mine"}')
    assert foreign_metadata(LocalStore(), files(path), "mine", memo) is None
    before = path.stat().st_mtime_ns
    path.write_text('{"table-uuid": "they"}')
    os.utime(path, ns=(before + 10**9, before + 10**9))
    assert foreign_metadata(LocalStore(), files(path), "mine", memo) == (f"file://{path}", "they")
