"""Appends rows: by PyIceberg to v2 tables, which is what it can write, by Iceberg's Java API to the others."""

from __future__ import annotations

import itertools
import os
import time
from collections.abc import Sequence
from typing import Any

import pyarrow as pa
from pyiceberg.catalog import Catalog, load_catalog

from iceberg_maint.config import load_config
from iceberg_maint_tests.qualification.chaos.journal import Effect
from iceberg_maint_tests.qualification.chaos.lake import (
    FIRST_APPENDED,
    FIRST_APPENDED_PARTITION,
    MODELLED,
    NAMESPACE,
    SLOT_SECONDS,
    TOKEN,
    ChaosTable,
    Row,
)
from iceberg_maint_tests.qualification.chaos.role import Role, by_partition, names_of, start

PAUSE_SECONDS = 3.0


class Appender:
    """A writer of new rows only."""

    def __init__(self, role: Role) -> None:
        self._role = role
        self._ids = itertools.count(FIRST_APPENDED)
        self._began = time.monotonic()
        self._catalogs: dict[str, Catalog] = {
            name: load_catalog(name, **c.pyiceberg_properties())
            for name, c in load_config(role.place.config, os.environ).catalogs.items()
        }

    def step(self, table: ChaosTable) -> None:
        """One commit of a few rows."""
        slot = int(time.monotonic() - self._began) // SLOT_SECONDS
        ids = [next(self._ids) for _ in range(self._role.rng.randint(4, 16))]
        rows = [(i, FIRST_APPENDED_PARTITION + slot, i % 2, i, f"appended {i}") for i in ids]
        append = self._by_pyiceberg if table.version == 2 else self._by_java
        self._role.journal.commit(
            str(table), "append", lambda token: append(table, rows, token), Effect(put=tuple(rows))
        )

    def _by_pyiceberg(self, table: ChaosTable, rows: Sequence[Row], token: str) -> None:
        loaded = self._catalogs[table.catalog].load_table((NAMESPACE, table.name))
        kinds = {f.field_id: f for f in loaded.schema().as_struct().fields}
        arrow = loaded.schema().as_arrow()
        columns: dict[str, Any] = {
            kinds[i].name: [row[place] for row in rows] for place, i in enumerate(MODELLED)
        }
        for field in arrow:
            columns.setdefault(field.name, [None if row[0] % 3 else row[0] for row in rows])
        data = pa.table([pa.array(columns[f.name], f.type) for f in arrow], schema=arrow)
        loaded.append(data, snapshot_properties={TOKEN: token})

    def _by_java(self, table: ChaosTable, rows: Sequence[Row], token: str) -> None:
        writers = self._role.writers
        loaded = writers.load(str(table))
        names = names_of(loaded)
        append = loaded.newAppend()
        for partition, part in by_partition(loaded, rows).items():
            named = [dict(zip(names, row, strict=True)) for row in part]
            append.appendFile(writers.data(loaded, named, None, partition))
        append.set(TOKEN, token)
        append.commit()


def main(role: Role) -> None:
    role.run(Appender(role).step)


if __name__ == "__main__":
    start("appender", PAUSE_SECONDS, main)
