"""The tables of the stored lake: small files, position and equality deletes, files that cannot be read, orphans."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from iceberg_maint.spark.jvm.bridge import Bridge
from iceberg_maint_tests.stored.place import DAYS, PARTITIONED, PLACE
from iceberg_maint_tests.support.spark.writers import Writers

COMMITS = 5
_ROWS_PER_FILE = 4
_OLD_SECONDS = 1_577_836_800
"""2020-01-01, the modification time of orphans."""


def make_tables(spark: Any) -> None:
    """Makes all tables in a session that has the lake's catalog."""
    writers = Writers(Bridge(spark))
    for name in PARTITIONED:
        _partitioned(writers, f"lake.db.{name}")
    _upserts(writers, "lake.db.upserts")


def _partitioned(writers: Writers, name: str) -> None:
    """Format version 2: one small file per day and commit, position deletes in two of the days."""
    properties = {"write.delete.mode": "merge-on-read", "maintenance.rewrite_data_files.min_input_files": "3"}
    columns = "id bigint, day string, v string"
    writers.create(name, columns, partitioned_by="day", properties=properties)
    for commit in range(COMMITS):
        rows = []
        for number, day in enumerate(DAYS):
            first = 1000 * number + 10 * commit
            rows += [f"({first + n}, '{day}', 'v{commit}-{n}')" for n in range(_ROWS_PER_FILE)]
        writers.sql(f"insert into {name} values {', '.join(rows)}")
    writers.sql(f"delete from {name} where day < '{DAYS[2]}' and id % 10 = 2")


def _upserts(writers: Writers, name: str) -> None:
    """Format version 3: equality deletes, and rows that came after them."""
    table = writers.create(name, version=3)
    for commit in range(COMMITS):
        writers.append(table, ({"id": 10 * commit + n, "v": f"v{commit}"} for n in range(_ROWS_PER_FILE)))
        writers.delete_where(table, [{"id": 10 * commit}])
    writers.append(table, [{"id": 0, "v": "again"}])


@contextmanager
def unreadable(table: str, day: str) -> Iterator[None]:
    """One data file of the partition is away while the body runs."""
    file = min(_folder(table, day).glob("*.parquet"))
    away = PLACE / file.name
    file.rename(away)
    try:
        yield
    finally:
        away.rename(file)


def plant_orphans(table: str, day: str, *names: str) -> list[str]:
    """Old files in a partition's folder that no metadata reaches; their paths."""
    files = [_folder(table, day) / name for name in names]
    for file in files:
        file.write_text(f"orphan {file.name}\n", "utf-8")
        os.utime(file, (_OLD_SECONDS, _OLD_SECONDS))
    return [str(file) for file in files]


def _folder(table: str, day: str) -> Path:
    return PLACE / "wh" / "db" / table / "data" / f"day={day}"
