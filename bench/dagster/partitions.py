"""Dagster over one table of many partitions: ticks, the pages of the asset by GraphQL, and a backfill of all partitions.

    python -m bench.dagster.partitions [--partitions 50000] [--rounds 1]

The table is one of twenty. Every 250th of its partitions has small files and is due. Dagster observes it, then each sensor
ticks: at first, twice with nothing changed, after a commit of ten files, and when Dagster has observed that commit. GraphQL is
Dagster's own, on a real code server, without the HTTP of the web server. A backfill of all partitions is requested and
cancelled before the daemon takes it up; one of 100 is taken up first, and its run stays queued, because nothing takes runs
from the queue.
Seconds are wall, CPU seconds those of the process that ticks or answers. Exits 1 above a limit.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from bench.fleet.tables import make_fleet_catalog, write_config
from bench.used import cpu_seconds, peak_mb

PROJECT = Path(__file__).resolve().parents[2]
TABLES, DUE_EVERY, SMALL_FILES = 20, 250, 20
NAME = "db.many"
TAKEN_UP = 100
"""Partitions of the backfill that becomes a run. Dagster stores an event for each of them, one by one."""
TICK_SECONDS, UNCHANGED_CPU_SECONDS, PAGE_SECONDS = 10.0, 1.0, 5.0
_FIRST_MS = 1_728_000_000_000
_NODE = "assetNodeOrError(assetKey: $key) { ... on AssetNode { %s } }"
PAGES: Mapping[str, str] = {
    "partition_keys": _NODE % "partitionKeysByDimension { partitionKeys }",
    "asset": _NODE
    % """
        id description partitionStats { numMaterialized numPartitions numFailed numMaterializing }
        assetPartitionStatuses {
          ... on DefaultPartitionStatuses {
            materializedPartitions failedPartitions unmaterializedPartitions materializingPartitions
          }
        }
        assetObservations(limit: 100) { timestamp partition }
        assetMaterializations(limit: 100) { timestamp partition }
    """,
    "checks": _NODE
    % """
        assetChecksOrError {
          ... on AssetChecks {
            checks {
              name executionForLatestMaterialization { status }
              partitionStatuses {
                ... on AssetCheckDefaultPartitionStatuses {
                  succeededPartitions failedPartitions inProgressPartitions skippedPartitions
                  executionFailedPartitions
                }
              }
            }
          }
        }
    """,
}
_LAUNCH = """
mutation ($params: LaunchBackfillParams!) {
  launchPartitionBackfill(backfillParams: $params) {
    __typename
    ... on LaunchBackfillSuccess { backfillId }
    ... on PythonError { message }
  }
}
"""
_CANCEL = "mutation ($id: String!) { cancelPartitionBackfill(backfillId: $id) { __typename } }"
_BACKFILL = """
query ($id: String!) {
  partitionBackfillOrError(backfillId: $id) {
    ... on PartitionBackfill {
      status numPartitions numCancelable partitionStatusCounts { runStatus count }
      assetBackfillData { rootTargetedPartitions { partitionKeys ranges { start end } } }
    }
  }
}
"""


def main() -> int:
    """Prints a table and one line of JSON."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--partitions", type=int, default=50_000)
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--worker", type=Path, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.worker:
        return _worker(given.worker, given.partitions)
    runs: dict[str, list[float]] = {}
    for _ in range(given.rounds):
        with tempfile.TemporaryDirectory(prefix="bench-partitions-") as scratch:
            for name, value in _round(Path(scratch), given.partitions).items():
                runs.setdefault(name, []).append(value)
    return _report(
        {n: round(statistics.median(v), 3) for n, v in runs.items()}, given.partitions, given.rounds
    )


def limit_of(name: str) -> float | None:
    """The limit of a figure, None for one without."""
    if name.startswith("tick_unchanged") and name.endswith("cpu_seconds"):
        return UNCHANGED_CPU_SECONDS
    if name.endswith("cpu_seconds"):
        return None
    if name.startswith("tick_"):
        return TICK_SECONDS
    return PAGE_SECONDS if name.startswith("page_") else None


def _report(figures: dict[str, float], partitions: int, rounds: int) -> int:
    from rich.console import Console
    from rich.table import Table

    limits = {name: limit for name in figures if (limit := limit_of(name)) is not None}
    missed = [name for name, limit in limits.items() if figures[name] > limit]
    load = [round(n, 1) for n in os.getloadavg()]
    table = Table(f"{partitions:,} partitions (median of {rounds}), load {load[2]:g}", "measured", "limit")
    for name, value in figures.items():
        mark = " MISSED" if name in missed else ""
        table.add_row(
            name.replace("_", " "), f"{value:g}{mark}", f"{limits[name]:g}" if name in limits else ""
        )
    Console(width=120).print(table)
    print(json.dumps({**figures, "limits": limits, "missed": missed, "load": load}))
    return int(bool(missed))


def _round(home: Path, partitions: int) -> dict[str, float]:
    make_fleet_catalog(home, TABLES)
    config = write_config(home)
    commit_partitions(home, partitions, 1)
    (home / "dagster").mkdir()
    template = PROJECT / "iceberg_maint" / "defs" / "dagster.yaml"
    (home / "dagster" / "dagster.yaml").write_text(template.read_text("utf-8"), "utf-8")
    listed = [["lake", "db", name] for name in ("many", *(f"t{n:05d}" for n in range(TABLES)))]
    (home / "tables.json").write_text(json.dumps({"version": 1, "tables": listed}), "utf-8")
    environ = {
        **os.environ,
        "ICEBERG_MAINT_CONFIG": str(config),
        "ICEBERG_MAINT_TABLE_LIST": str(home / "tables.json"),
        "DAGSTER_HOME": str(home / "dagster"),
    }
    worker = [sys.executable, "-m", "bench.dagster.partitions", "--worker", str(home)]
    log_path = home / "log"
    with log_path.open("w") as log:
        done = subprocess.run(
            [*worker, "--partitions", str(partitions)],
            cwd=PROJECT,
            env=environ,
            stdout=log,
            stderr=log,
            check=False,
        )
    if done.returncode:
        raise SystemExit(f"the worker ended with {done.returncode}:\n{log_path.read_text('utf-8')[-3000:]}")
    figures: dict[str, float] = json.loads((home / "figures.json").read_text("utf-8"))
    return figures


def commit_partitions(home: Path, partitions: int, commits: int) -> None:
    """Publishes the table with this many commits: the first has all partitions, a later one ten files."""
    from pyiceberg.schema import Schema
    from pyiceberg.transforms import IdentityTransform
    from pyiceberg.types import LongType, NestedField

    from iceberg_maint_tests.support.catalog.table_files import File, ManifestFile, TableFiles, spec

    schema = Schema(NestedField(1, "id", LongType(), required=False))
    by = spec(0, (1, 1000, IdentityTransform(), "id"))
    folder = home / "many" / str(commits)
    table = TableFiles(folder, schema, [by], table_uuid=str(uuid.UUID(int=77)))
    manifests = []
    for commit in range(1, commits + 1):
        places = _files_of(partitions) if commit == 1 else ((n, 1 << 20) for n in range(10))
        files = tuple(
            File(f"{folder.as_uri()}/{commit}-{n}.parquet", (part,), 10, size)
            for n, (part, size) in enumerate(places)
        )
        manifests.append(ManifestFile(files, by, commit, commit))
        table.commit(
            manifests, snapshot_id=commit, sequence_number=commit, timestamp_ms=_FIRST_MS + commit * 1000
        )
    table.register(home / "catalog.db", NAME)


def _files_of(partitions: int) -> Iterator[tuple[int, int]]:
    for part in range(partitions):
        if part % DUE_EVERY:
            yield part, 600 << 20
        else:
            yield from ((part, 1 << 20) for _ in range(SMALL_FILES))


def _worker(home: Path, partitions: int) -> int:
    """Writes the figures into a file: Dagster prints what it likes."""
    import dagster as dg

    figures: dict[str, float] = {}
    with dg.DagsterInstance.get() as instance:
        for part in (_ticks, _pages_and_backfill):
            part(figures, instance, home, partitions)
            figures["peak_mb"] = peak_mb(os.getpid())
            (home / "figures.json").write_text(json.dumps(figures), "utf-8")
    return 0


@contextmanager
def _timed(figures: dict[str, float], name: str) -> Iterator[None]:
    """Notes wall and CPU seconds; the longest of several."""
    began, cpu_before = time.monotonic(), cpu_seconds()
    yield
    for unit, value in (
        ("seconds", time.monotonic() - began),
        ("cpu_seconds", cpu_seconds() - cpu_before),
    ):
        figures[f"{name}_{unit}"] = max(value, figures.get(f"{name}_{unit}", 0.0))


def _ticks(figures: dict[str, float], instance: Any, home: Path, partitions: int) -> None:
    import dagster as dg

    from iceberg_maint.definitions import defs
    from iceberg_maint.defs.names import OBSERVE_JOB

    cursors: dict[str, str | None] = {}
    repository = defs.get_repository_def()
    job = repository.get_job(OBSERVE_JOB)

    def observe(when: str) -> None:
        everything = {
            "ops": {"observe_tables": {"config": {"tables": [f"lake.{NAME}"], "changed_only": False}}}
        }
        with _timed(figures, f"observe_{when}"):
            assert job.execute_in_process(everything, instance=instance).success

    def tick(when: str) -> int:
        requested = 0
        for sensor in repository.sensor_defs:
            with _timed(figures, f"tick_{when}_{sensor.name}"):
                context = dg.build_sensor_context(
                    instance, cursors.get(sensor.name), repository_def=repository, sensor_name=sensor.name
                )
                result = sensor.evaluate_tick(context)
            cursors[sensor.name] = result.cursor
            if sensor.name.startswith("due_maintenance"):
                requested += len(result.run_requests or ())
        return requested

    observe("at_first")
    assert len(instance.get_dynamic_partitions(f"iceberg/lake.{NAME}")) == partitions
    figures["requests_at_first"] = tick("at_first")
    for _ in range(2):
        tick("unchanged")
    commit_partitions(home, partitions, 2)
    tick("not_observed")
    observe("after_a_commit")
    tick("after_a_commit")
    tick("unchanged")


def _pages_and_backfill(figures: dict[str, float], instance: Any, _home: Path, partitions: int) -> None:
    from dagster._core.workspace.context import WorkspaceProcessContext
    from dagster._core.workspace.load_target import ModuleTarget
    from dagster._daemon.backfill import execute_backfill_iteration
    from dagster_graphql.schema import create_schema

    from iceberg_maint.core.model.ids import TableId
    from iceberg_maint.defs.translator import IcebergTranslator

    key = {"path": IcebergTranslator().get_asset_key(TableId.parse(f"lake.{NAME}")).path}
    schema = create_schema().graphql_schema
    target = ModuleTarget("iceberg_maint.definitions", "defs", str(PROJECT), "iceberg_maint")
    with WorkspaceProcessContext(instance, target) as process:

        def ask(name: str, text: str, **variables: object) -> Any:
            import asyncio

            from graphql import graphql

            with _timed(figures, name), process.create_request_context() as context:
                answer = asyncio.run(graphql(schema, text, context_value=context, variable_values=variables))
            assert not answer.errors, answer.errors
            return answer.data

        for name, page in PAGES.items():
            for _ in range(3):
                data = ask(f"page_{name}", f"query ($key: AssetKeyInput!) {{ {page} }}", key=key)
            if name == "partition_keys":
                [dimension] = data["assetNodeOrError"]["partitionKeysByDimension"]
                keys: Sequence[str] = dimension["partitionKeys"]
                assert len(keys) == partitions
        log = logging.getLogger("bench")

        def request(names: Sequence[str], name: str) -> str:
            params = {"assetSelection": [key], "partitionNames": list(names)}
            launched = ask(name, _LAUNCH, params=params)["launchPartitionBackfill"]
            assert launched["__typename"] == "LaunchBackfillSuccess", launched
            return str(launched["backfillId"])

        def iterate(name: str) -> None:
            with _timed(figures, name):
                errors = [e for e in execute_backfill_iteration(process, log) if e is not None]
            assert not errors, errors

        def cancel(backfill: str, name: str) -> None:
            ask(f"{name}_cancel", _CANCEL, id=backfill)
            for _ in range(5):
                iterate(f"{name}_cancel_iteration")
                status = ask("page_backfill", _BACKFILL, id=backfill)["partitionBackfillOrError"]["status"]
                if status == "CANCELED":
                    return
            raise SystemExit(f"the backfill is {status}")

        backfill = request(keys, "backfill_request")
        data = ask("page_backfill", _BACKFILL, id=backfill)["partitionBackfillOrError"]
        assert data["numPartitions"] == partitions, data
        cancel(backfill, "backfill")
        for _ in range(2):
            ask("page_asset", f"query ($key: AssetKeyInput!) {{ {PAGES['asset']} }}", key=key)
        few = request(keys[:TAKEN_UP], "backfill_of_few_request")
        iterate("backfill_of_few_iteration")
        cancel(few, "backfill_of_few")
    figures["code_server_peak_mb"] = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024


if __name__ == "__main__":
    sys.exit(main())
