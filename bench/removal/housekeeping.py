"""Manifests and snapshots of a table of 500 snapshots, 2,000 manifests and 100,000 files against Iceberg's own
Spark actions.

    python -m bench.removal.housekeeping [--rounds N] [--only OPERATION] [--no-targets]

Ours and stock take turns, each in a fresh process that first warms up on a small table; a run works on a catalog
of its own. Measured is from the pinned state to the commit: ours plans, writes, holds every live entry or the
whole metadata against what it was, commits and looks at the table again; stock is the bare action, its expiry
without deleting a file. A third part is on another table (`bench.removal.worn_table`): ours removes what its expiry releases,
from the stored release to the deletion after the retention, retained in place or in the trash, and stock's expiry deletes. The
target is that of files retained in place: the trash costs a move per file more than stock. CPU seconds are those of the process and its JVM. Exits 1 when a target is missed.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any
from uuid import uuid4

from bench.record import publish
from bench.used import cpu_seconds

PROJECT = Path(__file__).resolve().parents[2]
CACHE = PROJECT / ".cache"
TABLE = "lake.db.grown"
WARM = "lake.warm.t"
OPERATIONS = ("rewrite_manifests", "expire_snapshots")
RELEASED = "released_files"
HOLDS = {"ours": "in_place", "ours_trash": "trash"}
"""Where released files spend the retention, by the name of the run."""
KEPT = 10
MIN_RATIO = 2.0


def main() -> int:
    """Prints a table and one line of JSON."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--only", choices=(*OPERATIONS, RELEASED), help="one part")
    parser.add_argument("--no-targets", action="store_true", help="compare the files only, for one round")
    parser.add_argument("--worker", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.worker:
        print(json.dumps(_measure(*given.worker.split(":"))))
        return 0
    same, is_reached = _compare(given.rounds, (given.only,) if given.only else (*OPERATIONS, RELEASED))
    return int(not same or not (is_reached or given.no_targets))


def _compare(rounds: int, operations: tuple[str, ...]) -> tuple[bool, bool]:
    """Returns whether the same files are left, and whether each target is reached."""
    from bench.removal.grown_table import grown_table

    if operations != (RELEASED,):
        grown_table()
    runs: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for _ in range(rounds):
        for operation in operations:
            for tool in (*HOLDS, "stock") if operation == RELEASED else ("ours", "stock"):
                runs.setdefault((operation, tool), []).append(_run(f"{operation}:{tool}"))
    return _report(runs, rounds, operations)


def _run(worker: str) -> dict[str, Any]:
    command = [sys.executable, "-m", "bench.removal.housekeeping", "--worker", worker]
    run = subprocess.run(command, cwd=PROJECT, stdout=subprocess.PIPE, text=True, check=True)
    line = run.stdout.splitlines()[-1]
    print(worker, line, file=sys.stderr, flush=True)
    return dict(json.loads(line))


def _report(
    runs: dict[tuple[str, str], list[dict[str, Any]]], rounds: int, operations: tuple[str, ...]
) -> tuple[bool, bool]:
    from rich.console import Console
    from rich.table import Table

    figures: dict[str, float] = {}
    table = Table(f"median of {rounds}", "ours", "stock", "stock over ours", f"at least {MIN_RATIO:g}")
    for operation in operations:
        for unit in ("wall_seconds", "cpu_seconds"):
            ours, stock = (
                statistics.median(run[unit] for run in runs[operation, tool]) for tool in ("ours", "stock")
            )
            name = f"{operation}_{unit}"
            figures[f"{name}_ours"], figures[f"{name}_stock"] = round(ours, 2), round(stock, 2)
            figures[f"{name}_ratio"] = round(stock / ours, 2)
            verdict = "" if stock / ours >= MIN_RATIO else "MISSED"
            table.add_row(
                f"{operation} {unit}", f"{ours:.2f}", f"{stock:.2f}", f"{stock / ours:.1f}", verdict
            )
        left = {tool: runs[operation, tool][0]["left"] for tool in ("ours", "stock")}
        table.add_row(f"{operation}: left", str(left["ours"]), str(left["stock"]), "", "")
        peak = statistics.median(run["python_peak_mb"] for run in runs[operation, "ours"])
        table.add_row(f"{operation}: highest resident memory of Python, MB", f"{peak:.0f}", "", "", "")
        figures[f"{operation}_python_peak_mb_ours"] = round(peak)
        figures[f"{operation}_left_ours"], figures[f"{operation}_left_stock"] = left["ours"], left["stock"]
    same = RELEASED not in operations or _report_released(
        table, figures, {tool: runs[RELEASED, tool] for tool in (*HOLDS, "stock")}
    )
    Console().print(table)
    publish("housekeeping", figures)
    return same, all(value >= MIN_RATIO for key, value in figures.items() if key.endswith("_ratio"))


def _report_released(table: Any, figures: dict[str, float], runs: dict[str, list[dict[str, Any]]]) -> bool:
    """Adds what was read and used for released files; whether both tools left the same files."""
    for tool, done in runs.items():
        for key in sorted(done[0].keys() - {"digest", "left"}):
            figures[f"{RELEASED}_{key}_{tool}"] = round(statistics.median(run[key] for run in done), 2)
    for key in ("read_mb", "jvm_peak_mb"):
        ours, stock = (figures[f"{RELEASED}_{key}_{tool}"] for tool in ("ours", "stock"))
        table.add_row(f"{RELEASED}: {key}", f"{ours:.0f}", f"{stock:.0f}", f"{stock / ours:.1f}", "")
    for key in ("plan_and_record", "commit", "hold", "delete"):
        table.add_row(f"{RELEASED}: {key}, s", f"{figures[f'{RELEASED}_{key}_seconds_ours']:.2f}", "", "", "")
    for key in ("wall_seconds", "cpu_seconds"):
        ours, stock = (figures[f"{RELEASED}_{key}_{tool}"] for tool in ("ours_trash", "stock"))
        table.add_row(
            f"{RELEASED} by the trash: {key}", f"{ours:.2f}", f"{stock:.2f}", f"{stock / ours:.1f}", ""
        )
    same = len({run["digest"] for done in runs.values() for run in done}) == 1
    table.add_row(f"{RELEASED}: the same files are left", "yes" if same else "NO", "", "", "yes")
    return same


# in a process of its own


def _measure(operation: str, tool: str) -> dict[str, Any]:
    from bench.removal.grown_table import catalog_of
    from bench.removal.released import measure as measure_released
    from bench.removal.worn_table import worn_table
    from iceberg_maint.engines.spark.jvm.bridge import Bridge

    with tempfile.TemporaryDirectory(prefix="bench-housekeeping-") as scratch:
        folder = Path(scratch)
        released = operation == RELEASED
        spark = _session(folder, worn_table(folder) if released else catalog_of(folder))
        bridge = Bridge(spark)
        _make_small(spark)
        if released:
            operation = "expire_snapshots"
        run = _stock(bridge, operation) if tool == "stock" else ours(spark, folder, operation)
        run(WARM)
        if released:
            expiry = None if tool == "stock" else ours
            figures = measure_released(bridge, spark, folder, expiry, HOLDS.get(tool, ""))
            spark.stop()
            return {**figures, "python_peak_mb": _peak_mb()}
        before_cpu, before = cpu_seconds(), time.monotonic()
        run(TABLE)
        wall, cpu = time.monotonic() - before, cpu_seconds() - before_cpu
        table = bridge.load_table(TABLE)
        if operation == "expire_snapshots":
            left = sum(1 for _ in bridge.iterate(table.snapshots()))
        else:
            left = int(table.currentSnapshot().allManifests(table.io()).size())
        spark.stop()
    return {"wall_seconds": wall, "cpu_seconds": cpu, "left": left, "python_peak_mb": _peak_mb()}


def _peak_mb() -> float:
    """Highest resident memory of this Python process."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def _session(folder: Path, database: Path) -> Any:
    from iceberg_maint.engines.spark.session.jars import ivy_fetch, load_lock, resolve_jars
    from iceberg_maint.engines.spark.session.java import find_java
    from iceberg_maint.engines.spark.session.session import build_session
    from iceberg_maint.engines.spark.session.settings import SparkSettings, catalog_conf

    java = find_java(os.environ, shim_dir=CACHE / "java")
    os.environ["JAVA_HOME"] = str(java.path)
    jars = resolve_jars(load_lock().jars, CACHE / "jars", ivy_fetch(java))
    catalog = catalog_conf("lake", "jdbc", f"sqlite:///{database}", f"file://{folder / 'wh'}", {})
    conf = {"spark.driver.memory": "2g", "spark.sql.shuffle.partitions": "4"}
    return build_session(
        SparkSettings("local[2]", tuple(map(str, jars)), {"lake": catalog}, conf, str(folder / "spark"))
    )


def _make_small(spark: Any) -> None:
    """A small table of several manifests to warm up on."""
    spark.sql("create namespace lake.warm")
    spark.sql(
        f"create table {WARM} (id bigint, p int) using iceberg partitioned by (p) "
        "tblproperties ('commit.manifest-merge.enabled'='false')"
    )
    for number in range(KEPT + 2):
        spark.sql(f"insert into {WARM} values ({number}, {number % 3})")


def _stock(bridge: Any, operation: str) -> Callable[[str], None]:
    """Iceberg's own actions with their defaults."""

    def run(name: str) -> None:
        table = bridge.load_table(name)
        actions = bridge.iceberg.spark.actions.SparkActions.get(bridge.session)
        if operation == "rewrite_manifests":
            actions.rewriteManifests(table).execute()
            return
        action = actions.expireSnapshots(table).expireOlderThan(int(time.time() * 1000)).retainLast(KEPT)
        action.deleteWith(_keep_files(bridge)).execute()

    return run


def _keep_files(bridge: Any) -> Any:
    """A consumer of paths that does nothing."""
    handles = bridge.jvm.java.lang.invoke.MethodHandles
    anything = bridge.java_class("java.lang.Object")
    nothing = handles.dropArguments(handles.constant(anything, None), 0, bridge.list((anything,)))
    proxies = bridge.jvm.java.lang.invoke.MethodHandleProxies
    return proxies.asInterfaceInstance(bridge.java_class("java.util.function.Consumer"), nothing)


def ours(
    spark: Any, folder: Path, operation: str, before_commit: Callable[[Any, Any], None] = lambda *_: None
) -> Callable[[str], None]:
    """The product's way from the pinned state to the outcome. `before_commit` gets the batch and the state."""
    from iceberg_maint.catalog.adapter import PyIcebergCatalog
    from iceberg_maint.catalog.manifests.entries import read_entries
    from iceberg_maint.catalog.manifests.reader import make_reader, read_manifest_list
    from iceberg_maint.core.commits.change import MetadataReader
    from iceberg_maint.core.commits.expiry_rules import expired
    from iceberg_maint.core.decisions.history import TableHistory
    from iceberg_maint.core.decisions.snapshot_retention import retain
    from iceberg_maint.core.model.ids import WHOLE_TABLE, Operation, TableId
    from iceberg_maint.core.model.reasons import Decision, PartitionDecision, Reason, Verdict
    from iceberg_maint.core.outcomes.outcome import CommitStatus
    from iceberg_maint.core.planning.planner import plan_housekeeping
    from iceberg_maint.core.planning.work import ExpireSnapshots
    from iceberg_maint.core.policy.data import Policy
    from iceberg_maint.core.policy.housekeeping import ExpireSnapshotsPolicy
    from iceberg_maint.engines.spark.engine import SparkEngine
    from iceberg_maint.loop.attempts.housekeeping_attempt import NOTHING_WRITTEN
    from iceberg_maint_tests.support.context import commit_context

    uri = f"sqlite:///{folder / 'catalog.db'}"
    catalog = PyIcebergCatalog("lake", {"type": "sql", "uri": uri, "warehouse": f"file://{folder / 'wh'}"})
    policy = Policy(
        expire_snapshots=ExpireSnapshotsPolicy(max_snapshot_age_seconds=0, min_snapshots_to_keep=KEPT)
    )

    def reader_of(name: str) -> MetadataReader:
        io = catalog.io_of(TableId.parse(name))
        return MetadataReader(
            lambda at: read_manifest_list(io, at), make_reader(io), lambda m: read_entries(io, m)
        )

    engine = SparkEngine(lambda: spark, reader_of)

    def run(name: str) -> None:
        table = TableId.parse(name)
        state = catalog.pin(table)
        now_ms = int(time.time() * 1000)
        due = (PartitionDecision(WHOLE_TABLE, Verdict.RUN, Reason.FORCED),)
        decision = Decision(name, Operation(operation), Verdict.RUN, Reason.FORCED, None, due)
        plan = plan_housekeeping(
            state,
            decision,
            policy,
            retain(state, policy.expire_snapshots, now_ms),
            TableHistory(),
            sweeps=False,
        )
        [batch] = plan.batches
        ticket = commit_context(
            uuid4().hex,
            1,
            "bench",
            1,
            lambda: True,
            lambda *_: None,
            lambda _location: retain(catalog.pin(table), policy.expire_snapshots, now_ms),
        )
        before_commit(batch, state)
        result = engine.commit(batch, NOTHING_WRITTEN, ticket)
        assert result.status is CommitStatus.COMMITTED, result.message
        after = catalog.pin(table)
        work = batch.work
        if isinstance(work, ExpireSnapshots):
            done = expired(work, after)
        else:
            done = after.snapshot_by_token(ticket.token) is not None
        assert done, "the table does not show it"

    return run


if __name__ == "__main__":
    sys.exit(main())
