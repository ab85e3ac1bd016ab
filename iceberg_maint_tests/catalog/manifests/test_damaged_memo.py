"""A damaged memo changes no number: every way of damage that the suites use, and the entries were there to be damaged."""

from __future__ import annotations

import random
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from iceberg_maint_tests.catalog.conftest import BY_REGION, EVENTS, SCHEMA
from iceberg_maint_tests.catalog.manifests.test_memo import POLICY, catalogs, data
from iceberg_maint_tests.support import damaged_memo
from iceberg_maint_tests.support.catalog.table_files import File, TableFiles


@pytest.mark.parametrize("way", damaged_memo.WAYS)
def test_memo_damaged_in_each_way_gives_the_numbers_of_a_cold_look(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    table = TableFiles(tmp_path / "t", SCHEMA, [BY_REGION])
    manifests = [
        data(1, File("eu.parquet", ("eu",))),
        data(2, File("us.parquet", ("us",)), File("b.parquet", ("us",))),
    ]
    table.commit(manifests, snapshot_id=11, sequence_number=2, timestamp_ms=1)
    table.register(tmp_path / "catalog.db", "db.events")
    cold, warm = catalogs(tmp_path)
    state = cold.pin(EVENTS)
    expected = cold.measure(state, POLICY)
    assert warm.measure(state, POLICY) == expected
    memo = tmp_path / "memo" / "manifests.db"
    assert damaged_memo.entries(memo) == 2

    monkeypatch.setattr(damaged_memo, "_WAYS", {way: damaged_memo._WAYS[way]})
    assert damaged_memo.damage(memo, random.Random(5)) == way

    assert warm.measure(state, POLICY) == expected
    assert warm.live_files(state, ["region=eu"]) == cold.live_files(state, ["region=eu"])


def test_memo_with_a_schema_that_is_no_text_is_deleted_and_the_look_is_cold(tmp_path: Path) -> None:
    table = TableFiles(tmp_path / "t", SCHEMA, [BY_REGION])
    table.commit([data(1, File("eu.parquet", ("eu",)))], snapshot_id=11, sequence_number=1, timestamp_ms=1)
    table.register(tmp_path / "catalog.db", "db.events")
    cold, warm = catalogs(tmp_path)
    state = cold.pin(EVENTS)
    memo = tmp_path / "memo" / "manifests.db"
    memo.parent.mkdir()
    with closing(sqlite3.connect(memo)) as connection, connection:
        connection.execute("create table entry (path text)")
    content = (
        memo.read_bytes().replace(b"entryentry", b"\xc6ntryentry").replace(b"CREATE TABLE", b"CREATX TABLE")
    )
    memo.write_bytes(content)
    with closing(sqlite3.connect(memo)) as connection, pytest.raises(UnicodeDecodeError):
        connection.execute("select * from entry")

    assert warm.measure(state, POLICY) == cold.measure(state, POLICY)
    assert damaged_memo.entries(memo) == 1


def test_memo_that_yields_rows_of_other_paths_gives_the_numbers_of_a_cold_look(tmp_path: Path) -> None:
    """As the damaged index of a file does (simulated world 400063)."""
    table = TableFiles(tmp_path / "t", SCHEMA, [BY_REGION])
    table.commit([data(1, File("eu.parquet", ("eu",)))], snapshot_id=11, sequence_number=1, timestamp_ms=1)
    table.register(tmp_path / "catalog.db", "db.events")
    cold, warm = catalogs(tmp_path)
    state = cold.pin(EVENTS)
    expected = cold.measure(state, POLICY)
    assert warm.measure(state, POLICY) == expected
    memo = tmp_path / "memo" / "manifests.db"
    with closing(sqlite3.connect(memo)) as connection, connection:
        [(schema,)] = connection.execute("select sql from sqlite_master where name = 'entry'").fetchall()
        loose = schema.replace("path TEXT PRIMARY KEY", "path TEXT PRIMARY KEY COLLATE NOCASE")
        connection.execute(loose.replace("entry", "loose", 1))
        connection.execute("insert into loose select * from entry")
        connection.execute("update loose set path = upper(path)")
        connection.execute("drop table entry")
        connection.execute("alter table loose rename to entry")

    assert warm.live_files(state, ["region=eu"]) == cold.live_files(state, ["region=eu"])
    assert warm.measure(state, POLICY) == expected
