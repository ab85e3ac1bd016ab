"""Builds the lake: every table by its writers, once."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pyiceberg.catalog import Catalog, load_catalog
from rich.console import Console

from iceberg_maint.config import Config
from iceberg_maint.core.outcomes.record import Record
from iceberg_maint.demo import duckdb_reader, report
from iceberg_maint.demo.duckdb_reader import DuckDBReader
from iceberg_maint.demo.heal import DemoState, Healing, TableResult, heal, judge, open_in_process, state_of
from iceberg_maint.demo.store import LOCAL, LakeStore, StoreName, open_store
from iceberg_maint.demo.tables import TABLES, DemoTable, Scale, Writers
from iceberg_maint.demo.workspace import CATALOG, NAMESPACE, Place, place, table_id
from iceberg_maint.errors import ConfigurationError
from iceberg_maint.loop.context import Context
from iceberg_maint.report.json_documents import outcome_document
from iceberg_maint.wiring.adapters import build

Built = Callable[[DemoTable, float], None]
"""Called after each table, with its build time in seconds."""


def make_catalog(config: Config) -> Catalog:
    """The lake's catalog for its writers. Creates the demo's namespace if it is missing."""
    connection = config.catalogs[CATALOG]
    catalog = load_catalog(CATALOG, **connection.pyiceberg_properties())
    catalog.create_namespace_if_not_exists(NAMESPACE)
    return catalog


def writers_of(
    config: Config, context: Context, place: Place, scale: Scale, store: LakeStore = LOCAL
) -> Writers:
    """Writers for the lake's catalog. They share only its address with the maintainer."""
    return Writers(make_catalog(config), context.engine.spark.session, place, scale, store.add_orphans)


def build_lake(
    config: Config, context: Context, place: Place, scale: Scale, store: LakeStore, built: Built
) -> None:
    """Writes every table. The file at the end distinguishes a complete lake from an interrupted build, and from a lake
    whose store has ended."""
    writers = writers_of(config, context, place, scale, store)
    for table in TABLES:
        started = time.monotonic()
        table.build(writers)
        built(table, time.monotonic() - started)
    if not store.ends:
        place.built.write_text("", encoding="utf-8")


@dataclass(frozen=True, slots=True)
class Report:
    """The results of the demo."""

    place: Place
    healing: Healing
    tables: tuple[TableResult, ...]
    seconds: float

    @property
    def good(self) -> bool:
        """Whether every table ended as expected and every run succeeded."""
        return self.healing.settled and not self.healing.failed_runs and all(t.good for t in self.tables)

    def document(self) -> dict[str, Any]:
        """The JSON document of `demo`."""
        return {
            "good": self.good,
            "data": str(self.place.root),
            "config": str(self.place.config),
            "dagster_home": str(self.place.dagster_home),
            "ticks": self.healing.ticks,
            "failed_runs": self.healing.failed_runs,
            "seconds": round(self.seconds, 1),
            "tables": [t.document() for t in self.tables],
            "operations": [
                {"run_id": r.run_id, "table": r.table, **outcome_document(r.outcome)}
                for r in self.healing.records
            ],
        }


def run(
    root: Path,
    console: Console,
    *,
    fresh: bool = False,
    scale: Scale | None = None,
    store: StoreName = StoreName.LOCAL,
) -> Report:
    """Builds the lake in `root` if it is missing, maintains it, and proves that no row changed.

    A lake on S3 is always built. Its server ends with this function, and the tables with it.

    Raises ConfigurationError ICM-100 for a folder with other content, for a lake on S3 also with another lake, or without
    the demo's packages, RefusedError ICM-103 without a Java.
    """
    with open_store(store, os.environ) as opened:
        return _run(root, console, fresh, scale or Scale(), opened)


def _run(root: Path, console: Console, fresh: bool, scale: Scale, store: LakeStore) -> Report:
    started = time.monotonic()
    reader = DuckDBReader(store.file_system)
    context, where = open_lake(root, console, fresh=fresh, scale=scale, store=store)
    report.heading(console, "Before", "measured from metadata; no data file was read")
    before = _states(context)
    report.states(console, before)
    for table, state in before.items():
        reader.copy(state.measured.metadata_location, _copy(where, table))
    console.print("\nDuckDB has copied the rows of every table, with deletes applied.")
    healing = _heal(context, where, console)
    report.heading(console, "After", "DuckDB compares all rows (EXCEPT ALL, in both directions)")
    results = _judge(context, where, before, reader)
    reader.close()
    report.results(console, results)
    report.heading(console, "Housekeeping", "manifests, snapshots and orphan files")
    report.housekeeping(console, results)
    demo = Report(where, healing, results, time.monotonic() - started)
    report.ending(console, results, good=demo.good, seconds=demo.seconds)
    report.next_steps(console, where, results, ended=store.ends)
    return demo


def open_lake(
    root: Path,
    console: Console,
    *,
    fresh: bool = False,
    scale: Scale | None = None,
    store: LakeStore = LOCAL,
) -> tuple[Context, Place]:
    """Opens the lake in this folder. Builds it if it is missing or incomplete, or with `fresh`.

    A lake whose store ends with this process is always built. Raises ConfigurationError ICM-100 if the folder holds
    another lake.
    """
    duckdb_reader.check()
    where = place(root)
    if store.ends and where.built.exists() and not fresh:
        raise ConfigurationError(
            "ICM-100",
            f"{where.root} holds a demo lake on this machine's disk.",
            "add --fresh, which removes it, or name another folder with --data.",
        )
    if fresh or (where.config.exists() and not where.built.exists()):
        where.clear()
    config = where.prepare(os.environ, store)
    context = build(config)
    if where.built.exists():
        console.print(f"The lake in {where.root} exists (--fresh builds a new one).")
    else:
        warehouse = store.warehouse(where.root) if store.ends else where.root
        report.heading(console, "Building the lake", f"real rows by real writers, in {warehouse}")
        build_lake(
            config,
            context,
            where,
            scale or Scale(),
            store,
            lambda table, seconds: report.built(console, table, seconds),
        )
    return context, where


def _heal(context: Context, where: Place, console: Console) -> Healing:
    report.heading(console, "Healing", "Dagster's assets, checks and automation, in this process")
    dagster = open_in_process(context, where, housekeeping=True)
    try:
        dagster.observe()

        def step(tick: int, request: Any, success: bool, records: tuple[Record, ...]) -> None:
            report.run(console, tick, request, records, success=success)

        healing = heal(context, dagster, step)
        dagster.observe()
    finally:
        dagster.close()
    return healing


def _states(context: Context) -> dict[DemoTable, DemoState]:
    return {table: state_of(context, table_id(table.name)) for table in TABLES}


def _judge(
    context: Context, where: Place, before: Mapping[DemoTable, DemoState], reader: DuckDBReader
) -> tuple[TableResult, ...]:
    results = []
    for table, state_before in before.items():
        after = state_of(context, table_id(table.name))
        rows = reader.compare(_copy(where, table), after.measured.metadata_location)
        results.append(judge(table, state_before, after, rows))
    return tuple(results)


def _copy(where: Place, table: DemoTable) -> Path:
    return where.before / f"{table.name}.parquet"
