"""A lake of one sick table of each kind, made once and put back before each run that is killed."""

from __future__ import annotations

import json
import os
import random
import shutil
import sqlite3
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from iceberg_maint.config import load_config
from iceberg_maint.core.model.ids import TableId
from iceberg_maint.core.removal.orphan_rules import TRASH
from iceberg_maint.demo.duckdb_reader import DuckDBReader, scan
from iceberg_maint.engines.spark.jvm.bridge import Bridge
from iceberg_maint.ledger.ledger import sql_ledger
from iceberg_maint.loop.context import Context
from iceberg_maint.wiring.adapters import build, spark_engine
from iceberg_maint_tests.qualification.kill.points import Kind
from iceberg_maint_tests.qualification.surroundings.stores import BUCKET, Store, buckets_of, file_of
from iceberg_maint_tests.support.context import changed
from iceberg_maint_tests.support.damaged_memo import damage
from iceberg_maint_tests.support.servers.bucket_files import BucketFiles
from iceberg_maint_tests.support.spark.equality.reference import Twin
from iceberg_maint_tests.support.spark.writers import Writers

CATALOG = "killed"
CONFIG = """\
ledger: sqlite:///{folder}/ledger.db
catalogs:
  killed:
    type: jdbc
    uri: sqlite:///{folder}/catalog.db
    warehouse: {warehouse}
    properties: {properties}
spark:
  master: local[2]
  jars: {jars}
  conf:
    spark.driver.memory: 768m
    spark.sql.shuffle.partitions: "1"
defaults:
  rewrite_data_files: {{min_input_files: 2, equality_delete_max_age_seconds: 0}}
  rewrite_position_delete_files: {{min_input_files: 1}}
  rewrite_manifests: {{max_manifests: 1}}
  expire_snapshots: {{every_seconds: 0, max_snapshot_age_seconds: 0, min_snapshots_to_keep: 1}}
  remove_orphan_files: {{every_seconds: 0, older_than_seconds: 86400, max_orphan_ratio: 1.0}}
  windows: {{max_partitions_per_batch: 1}}
  retry: {{backoff_seconds: 0}}
"""
ORPHANS = 4
"""Files of each table that nothing reaches, old enough to be removed."""
_LONG_AGO_SECONDS = 30 * 86_400
_POINTERS = "select table_name, metadata_location, previous_metadata_location from iceberg_tables"
_PUT_BACK = (
    "update iceberg_tables set metadata_location = ?, previous_metadata_location = ? where table_name = ?"
)


@dataclass
class Lake:
    """The folder of the lake and its tables, whose files are in it or are objects of versitygw in it. `session` gives
    this process's Spark session, None: that of the configuration."""

    folder: Path
    session: Callable[[], Any] | None = None
    kinds: tuple[Kind, ...] = tuple(Kind)

    @property
    def config(self) -> Path:
        return self.folder / "config.yaml"

    def table(self, kind: Kind) -> TableId:
        return TableId(CATALOG, ("db",), kind.value)

    @property
    def warehouse(self) -> Path:
        """The folder of all tables."""
        buckets = buckets_of(self.folder)
        return buckets / BUCKET / "warehouse" if buckets.exists() else self.folder / "warehouse"

    def place(self, kind: Kind) -> Path:
        """The table's folder."""
        return self.warehouse / "db" / kind.value

    def file(self, location: str) -> Path:
        """The file with the content of a location."""
        return file_of(location, buckets_of(self.folder))

    def context(self, kind: Kind) -> Context:
        """A program's view of one table: each has a ledger of its own, as if it had a program to itself."""
        config = load_config(self.config, os.environ)
        # What was read before is damaged now, also between a run that was killed and the next.
        damage(config.home / "manifests.db", random.Random())
        context = changed(build(config), ledger=sql_ledger(f"sqlite:///{self._ledger(kind)}"))
        if self.session is None:
            return context
        session = self.session
        return changed(context, engine=lambda: spark_engine(context.catalogs, session))

    def location(self, kind: Kind) -> str:
        """The table's metadata file."""
        return self._pointers()[kind.value][0]

    def rows(self, kind: Kind, snapshot_id: int | None = None) -> Counter[tuple[Any, ...]]:
        """The table's rows by DuckDB."""
        found = self._reader._db.execute(f"select * from {scan(self.location(kind), snapshot_id)}").fetchall()
        return Counter(found)

    def close(self) -> None:
        """Ends the reader."""
        self._reader.close()

    def expire_leases(self, kind: Kind) -> None:
        """As if the run had died longer ago than its lease lasts."""
        with closing(sqlite3.connect(self._ledger(kind), timeout=30)) as ledger, ledger:
            ledger.execute("update icm_lease set expires_ms = 0")

    def untold_runs(self, kind: Kind) -> list[str]:
        """Runs that have attempts and no record."""
        query = "select run_id from icm_attempt except select json_extract(body, '$.run_id') from icm_record"
        with closing(sqlite3.connect(self._ledger(kind), timeout=30)) as ledger:
            return [run_id for (run_id,) in ledger.execute(query)]

    def trashed(self, kind: Kind) -> list[Path]:
        """Files in the table's trash."""
        return [p for p in self.place(kind).rglob(f"{TRASH}/files/**/*") if p.is_file()]

    def planted(self, kind: Kind) -> list[Path]:
        """Where the table's orphans were put."""
        return [self.place(kind) / "data" / f"nobodys-{n}.parquet" for n in range(ORPHANS)]

    def configured(self, store: Store | None = None, jars: Sequence[Path] = ()) -> Context:
        """The whole lake's program, of a folder that may be new. `jars` are those of the store's client."""
        self.warehouse.mkdir(parents=True, exist_ok=True)
        store = store or Store("local", f"file://{self.warehouse}")
        text = CONFIG.format(
            folder=self.folder,
            warehouse=store.warehouse,
            properties=store.properties_yaml(),
            jars=[str(jar) for jar in jars],
        )
        self.config.write_text(text, "utf-8")
        return build(load_config(self.config, os.environ))

    def make(self, bridge: Bridge) -> None:
        """Makes the tables, in a session with the lake's catalog, and keeps a copy to put back."""
        writers = Writers(bridge)
        for kind in self.kinds:
            _MAKERS[kind](Twin(writers, str(self.table(kind))))
            old = time.time() - _LONG_AGO_SECONDS
            for path in self.planted(kind):
                path.write_bytes(b"PAR1")
                os.utime(path, (old, old))
        self._kept.mkdir()
        shutil.copytree(self.warehouse, self._kept / "warehouse", copy_function=os.link)
        self._pointers_file.write_text(json.dumps(self._pointers()), "utf-8")

    def put_back(self) -> None:
        """Every file, every table and every ledger as they were when the lake was made. Iceberg's files
        never change, so that what is kept are links to them; versitygw, too, replaces files and changes none."""
        for kind in self.kinds:
            for path in self.folder.glob(f"{self._ledger(kind).name}*"):
                path.unlink()
        now, kept = (_files(root) for root in (self.warehouse, self._kept / "warehouse"))
        for path in now.keys() - kept.keys():
            now[path].unlink()
        for path in kept.keys() - now.keys():
            target = self.warehouse / path
            target.parent.mkdir(parents=True, exist_ok=True)
            os.link(kept[path], target)
        with closing(sqlite3.connect(self.folder / "catalog.db", timeout=30)) as catalog, catalog:
            for name, (location, previous) in self.kept_pointers.items():
                catalog.execute(_PUT_BACK, [location, previous, name])

    @cached_property
    def kept_pointers(self) -> Mapping[str, tuple[str, str | None]]:
        """Metadata location and the one before, by table, when the lake was made."""
        found: Mapping[str, tuple[str, str | None]] = json.loads(self._pointers_file.read_text("utf-8"))
        return found

    @property
    def is_made(self) -> bool:
        """Whether there is one to put back."""
        return self._pointers_file.exists()

    def _ledger(self, kind: Kind) -> Path:
        return self.folder / f"ledger_{kind.value}.db"

    @property
    def _kept(self) -> Path:
        return self.folder / "kept"

    @property
    def _pointers_file(self) -> Path:
        return self._kept / "pointers.json"

    @cached_property
    def _reader(self) -> DuckDBReader:
        return DuckDBReader(BucketFiles(buckets_of(self.folder)))

    def _pointers(self) -> dict[str, tuple[str, str | None]]:
        with closing(sqlite3.connect(self.folder / "catalog.db", timeout=30)) as catalog:
            return {name: (location, previous) for name, location, previous in catalog.execute(_POINTERS)}


def _files(root: Path) -> dict[Path, Path]:
    return {p.relative_to(root): p for p in root.rglob("*") if p.is_file()}


def _numbered(first: int, count: int, **place: Any) -> Iterator[dict[str, Any]]:
    return ({"tag": n, "k": n % 5, "v": f"v{n}", **place} for n in range(first, first + count))


def _create(twin: Twin, *, version: int = 2, partitioned_by: str = "", **more: str) -> Any:
    properties = {
        "commit.manifest-merge.enabled": "false",
        "write.delete.mode": "merge-on-read",
        **{key.replace("__", "."): value for key, value in more.items()},
    }
    columns = "tag int, k int, v string, p int, q int"
    return twin.writers.create(
        twin.name, columns, version=version, partitioned_by=partitioned_by, properties=properties
    )


def _path(file: Any) -> str:
    return str(file.location())


def _unpartitioned(twin: Twin) -> None:
    """Small files, and position delete files that share data files."""
    table, writers = _create(twin), twin.writers
    paths = [_path(writers.append(table, _numbered(10 * n, 6))) for n in range(4)]
    writers.delete_at(table, {paths[0]: [1], paths[1]: [2]})
    writers.delete_at(table, {paths[0]: [3], paths[1]: [4]})


def _evolved(twin: Twin) -> None:
    """Two specs, small files and position deletes in both."""
    table, writers = _create(twin, partitioned_by="p"), twin.writers
    paths = []
    for n in range(2):
        for p in (1, 2):
            file = writers.append(table, _numbered(100 * p + 10 * n, 5, p=p, q=n), partition=[p])
            paths.append(_path(file))
    for position in (1, 3):
        writers.delete_at(table, {paths[0]: [position], paths[2]: [position]}, partition=[1])
    table.updateSpec().addField("q").commit()
    for n in range(2):
        writers.append(table, _numbered(300 + 10 * n, 5, p=1, q=7), partition=[1, 7])


def _equality(twin: Twin, route: str) -> None:
    """Small files under equality deletes, of different keys, and rows that came after them."""
    table = _create(twin, maintenance__equality_deletes__route=route)
    writers = twin.writers
    for n in range(3):
        writers.append(table, _numbered(10 * n, 6))
    writers.delete_where(table, [{"tag": 2}, {"tag": 11}, {"tag": 99}])
    writers.append(table, _numbered(50, 4))
    writers.delete_where(table, [{"k": 3}])
    writers.append(table, _numbered(60, 4))


def _vectors(twin: Twin) -> None:
    """Small files with deletion vectors."""
    table, writers = _create(twin, version=3), twin.writers
    for n in range(3):
        writers.append(table, _numbered(10 * n, 6))
    writers.sql(f"delete from {twin.name} where tag in (1, 12)")
    writers.append(writers.load(twin.name), _numbered(40, 4))
    writers.sql(f"delete from {twin.name} where tag in (3, 41)")


_MAKERS: Mapping[Kind, Callable[[Twin], None]] = {
    Kind.UNPARTITIONED: _unpartitioned,
    Kind.EVOLVED: _evolved,
    Kind.EQUALITY: lambda twin: _equality(twin, "convert"),
    Kind.VECTORS: _vectors,
    Kind.ANTI_JOIN: lambda twin: _equality(twin, "rewrite"),
}
