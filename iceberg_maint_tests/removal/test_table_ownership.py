"""Whose a metadata file is, told by its beginning where that is enough."""

from __future__ import annotations

import gzip
import json
import os
from pathlib import Path

import pytest

from iceberg_maint.catalog.local_store import LocalStore
from iceberg_maint.core.removal.orphan_rules import MetadataVersion
from iceberg_maint.ports.storage import StoredFile
from iceberg_maint.removal import table_ownership
from iceberg_maint.removal.table_ownership import metadata_versions, values_in

pytestmark = pytest.mark.seconds

LONG = {"properties": {"note": "".join(map(str, range(20_000))), "table-uuid": "nested"}}


class Counting(LocalStore):
    """Counts the bytes it gives."""

    def __init__(self) -> None:
        self.given = 0

    def read(self, path: str, most_bytes: int | None = None) -> bytes:
        data = super().read(path, most_bytes)
        self.given += len(data)
        return data


KEYS = ("table-uuid", "last-updated-ms")


@pytest.mark.parametrize(
    ("head", "found"),
    [
        ('{"format-version" : 2,\n "table-uuid" : "a", "location"', {"table-uuid": "a"}),
        ('{"properties": {"table-uuid": "nested"}, "table-uuid": "a"', {"table-uuid": "a"}),
        ('{"properties": {"table-uuid": "nested"', {}),
        ('{"note": "\\"table-uuid\\": \\"b\\"", "table-uuid": "a"}', {"table-uuid": "a"}),
        ('{"table-uuid": "a', {}),
        ('{"table-uuid": "a", "last-updated-ms": 12', {"table-uuid": "a"}),
        ('{"last-updated-ms": 12 , "table-uuid": "a"', {"table-uuid": "a", "last-updated-ms": 12}),
        ('{"last-updated-ms": 12}', {"last-updated-ms": 12}),
        ("[]", {}),
        ("", {}),
    ],
)
def test_values_are_those_of_the_table_itself_and_complete(head: str, found: dict[str, object]) -> None:
    assert values_in(head, KEYS) == found


def files(*paths: Path) -> list[StoredFile]:
    """As they are listed; a file that is gone, as it was."""
    found = ((p, p.stat() if p.exists() else None) for p in paths)
    return [
        StoredFile(f"file://{p}", s.st_size if s else 1, s.st_mtime_ns // 10**6 if s else 1) for p, s in found
    ]


@pytest.fixture
def memo(tmp_path: Path) -> Path:
    return tmp_path / "memo.db"


def told(store: LocalStore, memo: Path, *paths: Path, uuid: str = "mine") -> list[MetadataVersion]:
    """What the files say to a table with this uuid."""
    return list(metadata_versions(store, files(*paths), uuid, memo))


def version(path: Path, sequence_number: int | None, updated_ms: int = 7) -> MetadataVersion:
    """One of the table's own."""
    return MetadataVersion(f"file://{path}", "mine", sequence_number, updated_ms)


OF_JAVA = {"format-version": 2, "table-uuid": "mine", "last-sequence-number": 3, "last-updated-ms": 7, **LONG}
OF_PYICEBERG = {
    "table-uuid": "mine",
    "last-updated-ms": 7,
    **LONG,
    "format-version": 2,
    "last-sequence-number": 3,
}
NUMBER_LAST = {
    "format-version": 2,
    "table-uuid": "mine",
    "last-updated-ms": 7,
    **LONG,
    "last-sequence-number": 3,
}
UUID_LAST = {"last-sequence-number": 3, "last-updated-ms": 7, **LONG, "table-uuid": "mine"}


@pytest.mark.parametrize("packed", [False, True])
def test_only_the_beginning_is_read_where_all_stands_there(tmp_path: Path, memo: Path, packed: bool) -> None:
    store = Counting()
    text = json.dumps(OF_JAVA).encode()
    path = tmp_path / "v1.metadata.json"
    path.write_bytes(gzip.compress(text) if packed else text)
    assert told(store, tmp_path / "other.db", path, uuid="other") == [version(path, 0)]
    assert told(store, memo, path) == [version(path, 3)]
    assert store.given <= 2 * 16 * 1024


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("document", [OF_PYICEBERG, NUMBER_LAST, UUID_LAST])
def test_file_with_the_numbers_far_behind_is_read_whole(
    tmp_path: Path, memo: Path, packed: bool, document: dict[str, object]
) -> None:
    text = json.dumps(document).encode()
    path = tmp_path / "v1.metadata.json"
    path.write_bytes(gzip.compress(text) if packed else text)
    assert told(LocalStore(), memo, path) == [version(path, 3)]


def test_files_read_whole_for_their_sequence_number_are_limited_and_the_others_next(
    tmp_path: Path, memo: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(table_ownership, "_MOST_WHOLE", 1)
    monkeypatch.setattr(table_ownership, "_AT_ONCE", 1)
    new, old = tmp_path / "v2.metadata.json", tmp_path / "v1.metadata.json"
    for path in (new, old):
        path.write_text(json.dumps(OF_PYICEBERG))
    assert told(LocalStore(), memo, new, old) == [version(new, 3), version(old, None)]
    assert told(LocalStore(), memo, new, old) == [version(new, 3), version(old, 3)]


def test_what_cannot_be_read_belongs_to_no_table_and_what_is_gone_is_left_out(
    tmp_path: Path, memo: Path
) -> None:
    broken, gone = tmp_path / "v1.metadata.json", tmp_path / "v2.metadata.json"
    for text, why in (
        ("{", "JSONDecodeError"),
        ('{"table-uuid": "mine"}', "KeyError"),
        ("[" * 100_000, "ValueError"),
    ):
        broken.write_text(text)
        for _ in range(2):
            assert told(LocalStore(), memo, gone) == []
            assert told(LocalStore(), memo, gone, broken) == [
                MetadataVersion(f"file://{broken}", f"unreadable: {why}")
            ]


def test_format_v1_has_no_sequence_number_and_may_have_no_uuid(tmp_path: Path, memo: Path) -> None:
    old, new = tmp_path / "v1.metadata.json", tmp_path / "v2.metadata.json"
    old.write_text(json.dumps({"format-version": 1, "location": "s3://b/t", "last-updated-ms": 7}))
    new.write_text(json.dumps({"format-version": 1, "table-uuid": "mine", "last-updated-ms": 7, **LONG}))
    assert told(LocalStore(), memo, old, new) == [
        MetadataVersion(f"file://{old}", "s3://b/t", 0, 7),
        version(new, 0),
    ]


def test_file_is_read_once_however_often_it_is_listed(tmp_path: Path, memo: Path) -> None:
    store = Counting()
    old, new = tmp_path / "v1.metadata.json", tmp_path / "v2.metadata.json"
    for path in (old, new):
        path.write_text(json.dumps(OF_JAVA))
    assert told(store, memo, old) == [version(old, 3)]
    given = store.given
    for _ in range(2):
        assert told(store, memo, old, new) == [version(old, 3), version(new, 3)]
        assert store.given == 2 * given


def test_file_that_was_put_in_the_place_of_another_is_read(tmp_path: Path, memo: Path) -> None:
    path = tmp_path / "v1.metadata.json"
    path.write_text('{"table-uuid": "mine", "last-sequence-number": 3, "last-updated-ms": 7}')
    assert told(LocalStore(), memo, path) == [version(path, 3)]
    before = path.stat().st_mtime_ns
    path.write_text('{"table-uuid": "they", "last-sequence-number": 3, "last-updated-ms": 7}')
    os.utime(path, ns=(before + 10**9, before + 10**9))
    assert told(LocalStore(), memo, path) == [MetadataVersion(f"file://{path}", "they", 0, 7)]
