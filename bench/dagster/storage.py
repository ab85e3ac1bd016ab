"""Dagster's storage under the product: bytes of each observation, run and tick, and its size over 90 days of a fleet.

    python -m bench.dagster.storage [--tables 16] [--days 90] [--keep-days 30] [--database sqlite|postgres|both]

Four real tables are observed, maintained by Spark and changed, each in runs of the product's own definitions. The rows of
these runs are copied with other keys and times: each table is changed and observed once a day, its data maintained every
second day and its housekeeping done every day. The product's own retention makes a pass at the end of each day. Exits 1
when the storage still grows after the limit, or over the bytes per table and day.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from bench.fleet.small_tables import lake
from bench.worker import PROJECT

TEMPLATES = 4
BYTES_PER_TABLE_AND_DAY = {"sqlite": 700_000, "postgres": 300_000}
GROWTH = 1.15
"""The size at the end against that soon after the limit."""
TICKS_PER_DAY = {"table_changes": 1440, "lost_runs": 2880, "old_runs": 144, "due_maintenance": 2880}


def main() -> int:
    """Prints a table per database and one line of JSON."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--tables", type=int, default=16)
    parser.add_argument("--days", type=int, default=90)
    parser.add_argument("--keep-days", type=int, default=30)
    parser.add_argument("--database", choices=("sqlite", "postgres", "both"), default="both")
    parser.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.worker:
        print(json.dumps(_measure(given.tables, given.days, given.keep_days)))
        return 0
    missed: list[str] = []
    results: dict[str, Any] = {}
    for name in ("sqlite", "postgres") if given.database == "both" else (given.database,):
        with _storage(name) as url:
            results[name] = _run(url, given.tables, given.days, given.keep_days)
        missed += _report(name, results[name], given.days, given.keep_days)
    print(json.dumps({**vars(given), "results": results, "missed": missed}))
    return int(bool(missed))


@contextmanager
def _storage(name: str) -> Iterator[str]:
    if name == "sqlite":
        yield ""
        return
    from iceberg_maint_tests.support.servers.postgres import postgres_server

    with postgres_server() as server:
        yield server.url


def _run(url: str, tables: int, days: int, keep_days: int) -> dict[str, Any]:
    home = lake(TEMPLATES)
    shutil.rmtree(home / "dagster", ignore_errors=True)
    (home / "dagster").mkdir()
    settings = (PROJECT / "iceberg_maint" / "defs" / "dagster.yaml").read_text("utf-8")
    if url:
        settings += "\nstorage: {postgres: {postgres_url: {env: BENCH_DAGSTER_URL}}}\n"
    (home / "dagster" / "dagster.yaml").write_text(settings, "utf-8")
    names = [["lake", "db", f"t{n:04d}"] for n in range(TEMPLATES)]
    (home / "tables.json").write_text(json.dumps({"version": 1, "tables": names}), "utf-8")
    environ = {
        **os.environ,
        "ICEBERG_MAINT_CONFIG": str(home / "iceberg_maint.yaml"),
        "ICEBERG_MAINT_TABLE_LIST": str(home / "tables.json"),
        "DAGSTER_HOME": str(home / "dagster"),
        "BENCH_DAGSTER_URL": url,
    }
    command = [sys.executable, "-m", "bench.dagster.storage", "--worker"]
    command += ["--tables", str(tables), "--days", str(days), "--keep-days", str(keep_days)]
    run = subprocess.run(command, cwd=PROJECT, env=environ, capture_output=True, text=True, check=False)
    if run.returncode:
        raise SystemExit(run.stderr[-4000:])
    result: dict[str, Any] = json.loads(run.stdout.splitlines()[-1])
    return result


def _measure(tables: int, days: int, keep_days: int) -> dict[str, Any]:
    import dagster as dg

    with dg.DagsterInstance.get() as instance:
        templates = Templates(instance)
        figures: dict[str, Any] = {"bytes": templates.bytes}
        fleet = Fleet(instance, templates, tables, keep_days)
        sizes: dict[int, int] = {}
        began = fleet.size()
        for day in range(1, days + 1):
            fleet.live_a_day(day)
            if day % 10 == 0 or day == days:
                sizes[day] = fleet.size() - began
        figures |= {
            "sizes": sizes,
            "runs_made": fleet.runs_made,
            "runs_left": instance.get_runs_count(),
            "deletion_cpu_seconds": round(fleet.deletion_cpu_seconds / days, 2),
        }
        b = templates.bytes
        figures["bytes_per_table_and_day"] = round(
            b["observation"] + b["data_run"] / 2 + b["housekeeping_run"]
        )
        figures["bytes_of_ticks_per_location_and_day"] = round(b["tick"] * sum(TICKS_PER_DAY.values()))
        return figures


def stored_bytes(instance: Any) -> int:
    """The bytes of Dagster's storage: its files, or its database after a vacuum. Compute logs are files in any case."""
    total = 0
    for path in Path(instance.root_directory).rglob("*"):
        if path.is_file():
            total += path.stat().st_blocks * 512
    url = os.environ.get("BENCH_DAGSTER_URL")
    if not url:
        return total
    from sqlalchemy import create_engine, text

    engine = create_engine(url)
    with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as conn:
        conn.execute(text("VACUUM ANALYZE"))
        total += int(conn.scalar(text("SELECT pg_database_size(current_database())")) or 0)
    engine.dispose()
    return total


class Templates:
    """Real runs of the product over four tables, and the bytes of each kind."""

    def __init__(self, instance: Any) -> None:
        from iceberg_maint.core.model.ids import TableId
        from iceberg_maint.definitions import defs
        from iceberg_maint.defs.translator import IcebergTranslator

        self._instance, self._names = instance, IcebergTranslator()
        self._repository = defs.get_repository_def()
        self.tables = [TableId("lake", ("db",), f"t{n:04d}") for n in range(TEMPLATES)]
        self.bytes: dict[str, float] = {}
        size = stored_bytes(instance)

        def note(name: str, number: int) -> None:
            nonlocal size
            now = stored_bytes(instance)
            self.bytes[name] = round((now - size) / number)
            size = now

        observe = self._repository.get_job("observe_iceberg")
        assert observe.execute_in_process(instance=instance).success
        note("first_observation", TEMPLATES)
        self.data = [self._maintain(self._names.get_asset_key(t)) for t in self.tables]
        note("data_run", TEMPLATES)
        self.housekeeping = [self._maintain(self._names.get_housekeeping_key(t)) for t in self.tables]
        note("housekeeping_run", TEMPLATES)
        self._commit()
        self.observation = observe.execute_in_process(instance=instance)
        assert self.observation.success
        note("observation", TEMPLATES)
        self._tick(100)
        note("tick", 100)

    def _maintain(self, key: Any) -> str:
        from dagster._core.definitions.reconstruct import ReconstructableJob, ReconstructableRepository
        from dagster._grpc.impl import core_execute_run

        selection = frozenset({key})
        repository = ReconstructableRepository.for_module("iceberg_maint.definitions", "defs")
        job = ReconstructableJob(repository, "__ASSET_JOB", asset_selection=selection)
        subset = self._repository.get_job("__ASSET_JOB").get_subset(asset_selection=selection)
        tags = {"iceberg_maint/table": key.to_user_string(), "iceberg_maint/shared_run": "true"}
        run = self._instance.create_run_for_job(subset, asset_selection=selection, tags=tags)
        for _ in core_execute_run(job, run, self._instance, inject_env_vars=False):
            pass
        ended = self._instance.get_run_by_id(run.run_id)
        assert ended is not None
        assert ended.is_success, ended.status
        return str(run.run_id)

    def _commit(self) -> None:
        """A writer's commit to each table."""
        from pyiceberg.catalog.sql import SqlCatalog

        home = Path(os.environ["ICEBERG_MAINT_CONFIG"]).parent
        catalog = SqlCatalog("lake", uri=f"sqlite:///{home}/catalog.db", warehouse=home.as_uri())
        for table in self.tables:
            loaded = catalog.load_table(table.in_catalog)
            loaded.append(loaded.scan(limit=10).to_arrow())

    def _tick(self, number: int) -> None:
        """Ticks that request nothing, as the daemon stores them."""
        from dagster._core.definitions.run_request import InstigatorType
        from dagster._core.scheduler.instigation import TickData, TickStatus

        for n in range(number):
            sensor = list(TICKS_PER_DAY)[n % len(TICKS_PER_DAY)]
            data = TickData(
                instigator_origin_id=f"origin-{sensor}".ljust(40, "0"),
                instigator_name=sensor,
                instigator_type=InstigatorType.SENSOR,
                status=TickStatus.SKIPPED,
                timestamp=datetime.now(UTC).timestamp(),
                skip_reason="no observe run is needed for 1000 tables",
                selector_id=f"selector-{sensor}".ljust(40, "0"),
            )
            self._instance.create_tick(data)


class Fleet:
    """The storage of many tables, which live on copies of the templates' rows."""

    def __init__(self, instance: Any, templates: Templates, tables: int, keep_days: int) -> None:
        from dagster._core.storage.event_log.sqlite import SqliteEventLogStorage

        self._instance, self._tables, self._keep_days = instance, tables, keep_days
        self._events, self._runs = instance.event_log_storage, instance.run_storage
        self._in_files = isinstance(self._events, SqliteEventLogStorage)
        self._first = datetime.now(UTC)
        self._templates = templates
        self.runs_made, self.deletion_cpu_seconds = 0, 0.0
        self._keep_templates()

    def _keep_templates(self) -> None:
        """Gives the templates a time that is never old."""
        from dagster._core.storage.runs.schema import RunsTable
        from sqlalchemy import update

        with self._runs.connect() as conn:
            conn.execute(update(RunsTable).values(create_timestamp=datetime(2100, 1, 1)))  # noqa: DTZ001 - as Dagster

    def size(self) -> int:
        """The bytes of the storage now."""
        return stored_bytes(self._instance)

    def live_a_day(self, day: int) -> None:
        """A day of all tables, and the pass of retention at its end."""
        t = self._templates
        at = self._first + timedelta(days=day)
        for first in range(0, self._tables, TEMPLATES):
            names = [f"u{n:04d}" for n in range(first, first + TEMPLATES)]
            old = [table.name for table in t.tables]
            at += timedelta(milliseconds=5)
            self._copy(t.observation.run_id, dict(zip(old, names, strict=True)), at)
            for position, name in enumerate(names):
                new = {old[position]: name}
                at += timedelta(milliseconds=5)
                self._copy(t.housekeeping[position], new, at)
                if (day + first + position) % 2 == 0:
                    at += timedelta(milliseconds=5)
                    self._copy(t.data[position], new, at)
        self._pass(at)

    def _copy(self, run_id: str, names: dict[str, str], at: datetime) -> None:
        """Copies the rows of a run, with another id, tables and time."""
        from sqlalchemy import text

        new_id = str(uuid.uuid4())
        renamed = {run_id: new_id, **names}

        def replaced(column: str) -> str:
            for old, new in renamed.items():
                column = f"replace({column}, '{old}', '{new}')"
            return column

        when = {"at": at.replace(tzinfo=None), "run": run_id, "seconds": at.timestamp()}
        if self._events.__class__.__module__.startswith("dagster._core"):
            when["at"] = at.replace(tzinfo=None).isoformat(" ")
        with self._runs.connect() as conn:
            conn.execute(
                text(
                    "INSERT INTO runs (run_id, snapshot_id, pipeline_name, status, run_body, partition, partition_set, "
                    "create_timestamp, update_timestamp, start_time, end_time, backfill_id) SELECT "
                    f"'{new_id}', snapshot_id, pipeline_name, status, {replaced('run_body')}, partition, partition_set, "
                    ":at, :at, :seconds, :seconds, backfill_id FROM runs WHERE run_id = :run"
                ),
                when,
            )
            conn.execute(
                text(
                    f"INSERT INTO run_tags (run_id, key, value) SELECT '{new_id}', key, {replaced('value')} "
                    "FROM run_tags WHERE run_id = :run"
                ),
                when,
            )
        with self._events.index_connection() as conn:
            conn.execute(
                text(
                    "INSERT INTO event_logs (run_id, event, dagster_event_type, timestamp, step_key, asset_key, partition) "
                    f"SELECT '{new_id}', {replaced('event')}, dagster_event_type, :at, {replaced('step_key')}, "
                    f"{replaced('asset_key')}, partition FROM event_logs WHERE run_id = :run ORDER BY id"
                ),
                when,
            )
            conn.execute(
                text(
                    "INSERT INTO asset_check_executions (asset_key, check_name, partition, run_id, execution_status, "
                    "evaluation_event, evaluation_event_timestamp, evaluation_event_storage_id, "
                    f"materialization_event_storage_id) SELECT {replaced('asset_key')}, check_name, partition, '{new_id}', "
                    f"execution_status, {replaced('evaluation_event')}, :at, evaluation_event_storage_id, "
                    "materialization_event_storage_id FROM asset_check_executions WHERE run_id = :run ORDER BY id"
                ),
                when,
            )
        if self._in_files:
            shutil.copy(self._events.path_for_shard(run_id), self._events.path_for_shard(new_id))
        logs = Path(self._instance.root_directory) / "storage" / run_id
        if logs.is_dir():
            shutil.copytree(logs, logs.parent / new_id)
        self.runs_made += 1

    def _pass(self, at: datetime) -> None:
        """The product's retention, a minute after the last run of the day."""
        import time

        from iceberg_maint.defs.runs.upkeep import START, OldRuns

        clock = SetClock(int(at.timestamp() * 1000) + 60_000)
        began, cursor = time.process_time(), ""
        while cursor != START:
            _, cursor = OldRuns(self._keep_days, clock, clock.now_ms).delete(self._instance, None, cursor)
        self.deletion_cpu_seconds += time.process_time() - began


class SetClock:
    """A clock that stands at a time, and the ledger's."""

    def __init__(self, ms: int) -> None:
        self._ms = ms

    def now_ms(self) -> int:
        """The time of the simulated day."""
        return self._ms

    def monotonic_seconds(self) -> float:
        """A tick has no end: the pass goes on without the sensor's pauses."""
        return 0.0

    def uptime(self) -> None:
        """The machine of a simulated day was not started."""

    def sleep(self, seconds: float) -> None:
        """Simulated time does not pass."""


def _report(name: str, figures: dict[str, Any], days: int, keep_days: int) -> list[str]:
    from rich.console import Console
    from rich.table import Table

    shown = Table(f"Dagster's storage, {name}, keep_days {keep_days}", "measured", "limit")
    for kind, size in figures["bytes"].items():
        shown.add_row(f"bytes of one {kind.replace('_', ' ')}", f"{size:,}", "")
    limit = BYTES_PER_TABLE_AND_DAY[name]
    daily = figures["bytes_per_table_and_day"]
    shown.add_row("bytes per table and day, before retention", f"{daily:,}", f"{limit:,}")
    shown.add_row(
        "bytes of ticks per location and day", f"{figures['bytes_of_ticks_per_location_and_day']:,}", ""
    )
    for day, size in figures["sizes"].items():
        shown.add_row(f"MB after {day} days", f"{size / 1e6:,.1f}", "")
    sizes = {int(day): size for day, size in figures["sizes"].items()}
    level = next((size for day, size in sizes.items() if day > keep_days), None)
    growth = round(sizes[days] / level, 3) if level else None
    shown.add_row("… the last against the first after the limit", str(growth), str(GROWTH))
    for label in ("runs_made", "runs_left", "deletion_cpu_seconds"):
        shown.add_row(label.replace("_", " "), f"{figures[label]:,}", "")
    Console().print(shown)
    missed = [f"{name}: bytes per table and day"] if daily > limit else []
    return missed + ([f"{name}: growth"] if growth is not None and growth > GROWTH else [])


if __name__ == "__main__":
    sys.exit(main())
