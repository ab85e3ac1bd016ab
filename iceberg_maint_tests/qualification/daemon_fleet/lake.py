"""A lake of many tables: most have metadata only and are healthy, some have rows and become sick when they are written to."""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path

import pyarrow as pa
import sqlalchemy as sa
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.exceptions import CommitFailedException
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import LongType, NestedField, StringType
from sqlalchemy.exc import OperationalError

from bench.fleet.tables import COMMITS, fleet, small_table

CONFIG = """\
ledger: {ledger}
catalogs:
  lake:
    type: jdbc
    uri: {catalog}
    warehouse: {warehouse}
spark:
  master: local[1]
  conf: {{spark.driver.memory: 640m, spark.sql.shuffle.partitions: "1"}}
defaults:
  rewrite_data_files: {{min_input_files: 5}}
  # The files of most tables do not exist.
  remove_orphan_files: {{enabled: false}}
  retry: {{backoff_seconds: 30, backoff_max_seconds: 60}}
"""
PARTITIONS, COMMITS_OF_A_SICKNESS = 3, 6
_MIN_INPUT_FILES = 5
_TRIES = 20


class Lake:
    """The lake in a folder: `tables` tables, of which `real` have rows. `database` is the address of an empty database
    for the catalog."""

    def __init__(self, folder: Path, tables: int, real: int, database: str, ledger: str) -> None:
        warehouse = folder / "wh"
        warehouse.mkdir(parents=True)
        self.folder, self._database = folder, database
        self.config = folder / "iceberg_maint.yaml"
        self.config.write_text(
            CONFIG.format(ledger=ledger, catalog=database, warehouse=warehouse.as_uri()), "utf-8"
        )
        self._catalog = SqlCatalog("lake", uri=database, warehouse=warehouse.as_uri())
        self._catalog.create_namespace("db")
        self._engine = sa.create_engine(database)
        self._rows: dict[str, Counter[tuple[object, ...]]] = {}
        self._writes = 0
        self.synthetic = tables - real
        self._versions = [COMMITS] * self.synthetic
        self.real = [f"db.real{number:04d}" for number in range(real)]
        for name in self.real:
            self._make(name)
        made = fleet(self.synthetic) / "lake"
        pointers = [
            {"name": f"t{n:05d}", "at": (made / f"t{n:05d}" / "metadata" / "00001.metadata.json").as_uri()}
            for n in range(self.synthetic)
        ]
        insert = (
            "INSERT INTO iceberg_tables (catalog_name, table_namespace, table_name, metadata_location, iceberg_type)"
            " VALUES ('lake', 'db', :name, :at, 'TABLE')"
        )
        with self._engine.begin() as connection:
            connection.execute(sa.text(insert), pointers)

    def names(self) -> list[str]:
        """The full names of all tables."""
        return [f"lake.{name}" for name in (*self.real, *(f"db.t{n:05d}" for n in range(self.synthetic)))]

    def change(self, draw: random.Random, tables: int) -> None:
        """Commits once to some of the tables without rows, which stay healthy."""
        for number in draw.sample(range(self.synthetic), tables):
            self._versions[number] += 1
            location = small_table(self.folder / "changed", number, self._versions[number]).publish()
            update = "UPDATE iceberg_tables SET metadata_location = :at WHERE table_name = :name"
            with self._engine.begin() as connection:
                connection.execute(sa.text(update), {"at": location, "name": f"t{number:05d}"})

    def make_sick(self, name: str) -> None:
        """Appends small files to each partition of a table with rows."""
        for _ in range(COMMITS_OF_A_SICKNESS):
            self._append(name)

    def sick(self) -> list[str]:
        """The tables that have more small files than they may have."""
        return [name for name in self.real if self._files(name) >= _MIN_INPUT_FILES]

    def faults(self) -> list[str]:
        """The tables whose rows are not those that were written."""
        return [f"{name} has other rows than were written" for name in self.real if not self._is_whole(name)]

    def close(self) -> None:
        self._catalog.close()
        self._engine.dispose()

    def _make(self, name: str) -> None:
        schema = Schema(NestedField(1, "p", LongType()), NestedField(2, "v", StringType()))
        spec = PartitionSpec(PartitionField(1, 1000, IdentityTransform(), "p"))
        self._catalog.create_table(name, schema, partition_spec=spec)
        self._rows[name] = Counter()
        self._append(name)

    def _append(self, name: str) -> None:
        self._writes += 1
        rows = [(p, f"w{self._writes}-{p}") for p in range(PARTITIONS)]
        for _ in range(_TRIES):
            table = self._table(name)
            columns = {"p": [p for p, _ in rows], "v": [v for _, v in rows]}
            try:
                table.append(pa.table(columns, schema=table.schema().as_arrow()))
            except (CommitFailedException, OperationalError):
                continue
            self._rows[name].update(rows)
            return
        raise AssertionError(f"{name}: {_TRIES} appends lost against maintenance")

    def _table(self, name: str) -> Table:
        return self._catalog.load_table(name)

    def _files(self, name: str) -> int:
        """The files of the partition with most of them."""
        files = self._table(name).inspect.files()["partition"].to_pylist()
        return max(Counter(partition["p"] for partition in files).values(), default=0)

    def _is_whole(self, name: str) -> bool:
        rows = self._table(name).scan().to_arrow().to_pylist()
        return Counter((r["p"], r["v"]) for r in rows) == self._rows[name]
