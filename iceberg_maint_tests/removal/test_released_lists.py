"""Lists of released files on storage: the marks of a table are those that can be read and have its UUID."""

from __future__ import annotations

from pathlib import Path

from iceberg_maint.catalog.local_store import LocalStore
from iceberg_maint.core.removal.orphan_rules import TRASH, TrashBatchHeader
from iceberg_maint.removal.released_lists import InPlaceMark, create_list, marks_of


def mark_at(prefix: str, name: str, table_uuid: str, marked_ms: int) -> InPlaceMark:
    header = TrashBatchHeader(
        name, "lake.db.t", table_uuid, prefix, marked_ms, 0, "m.json", "d", released=True
    )
    return InPlaceMark(header, ("batch-1",), 1, 0, 0)


def test_marks_of_a_table_are_those_of_its_uuid_oldest_first(tmp_path: Path) -> None:
    store, prefix = LocalStore(), tmp_path.as_uri()
    older, newer, other = (
        mark_at(prefix, name, uuid, ms) for name, uuid, ms in (("2", "u", 7), ("1", "u", 8), ("3", "w", 6))
    )
    for mark in (newer, other, older):
        create_list(store, mark, ())
    (tmp_path / TRASH / "in-place" / "4.jsonl").write_bytes(b"no list\n")

    assert list(marks_of([prefix], "u", store)) == [older, newer]
    assert list(marks_of([prefix], "w", store)) == [other]
    assert list(marks_of([prefix], "v", store)) == []
