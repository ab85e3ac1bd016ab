"""A sorted table after drift: what a sort brings to range queries, and that no rewrite slows a full scan.

    python -m bench.columnar.layout [--rounds N] [--rows N]

One table, appended to many times over the whole range of its sort column. From the same snapshot it is sorted
and, apart from that, bin-packed to one file; all three snapshots stay readable. Files that look-ups and ranges
read are counted by Iceberg's own planning. Full scans of the three take turns in one JVM; figures are medians
of CPU seconds of the JVM and Python. Exits 1 when a full scan after a rewrite costs more than before (0.95), when
it has fewer tasks than before and than there are cores, or when the depth is not as predicted.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any
from uuid import uuid4

from bench.columnar.strategies import session
from bench.record import publish
from bench.used import cpu_seconds

TABLE = "lake.bench.drifted"
APPENDS, QUERIES = 24, 20
SORTED_FILES = 8
LEAST_RATIO, TOLERANCE = 0.95, 0.25


def main() -> int:
    """Prints two tables and one line of JSON."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--rows", type=int, default=5_000_000)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="bench-layout-") as scratch:
        (Path(scratch) / "wh").mkdir()
        spark = session(Path(scratch))
        try:
            return _report(_Bench(spark, Path(scratch), given.rows).run(given.rounds))
        finally:
            spark.stop()


class _Bench:
    def __init__(self, spark: Any, folder: Path, rows: int) -> None:
        from iceberg_maint.catalog.adapter import PyIcebergCatalog
        from iceberg_maint.catalog.manifests.entries import read_entries
        from iceberg_maint.catalog.manifests.reader import make_reader, read_manifest_list
        from iceberg_maint.core.commits.change import MetadataReader
        from iceberg_maint.core.model.ids import TableId
        from iceberg_maint.engines.spark.engine import SparkEngine
        from iceberg_maint.engines.spark.jvm.bridge import Bridge

        self.spark, self.rows, self.bridge = spark, rows, Bridge(spark)
        uri, warehouse = f"sqlite:///{folder / 'catalog.db'}", f"file://{folder / 'wh'}"
        self.catalog = PyIcebergCatalog("lake", {"type": "sql", "uri": uri, "warehouse": warehouse})
        self.table = TableId.parse(TABLE)

        def reader_of(_table: str) -> MetadataReader:
            io = self.catalog.io_of(self.table)
            return MetadataReader(
                lambda at: read_manifest_list(io, at), make_reader(io), lambda m: read_entries(io, m)
            )

        self.engine = SparkEngine(lambda: spark, reader_of)

    def run(self, rounds: int) -> dict[str, Any]:
        """All figures."""
        self._make()
        start = self._snapshot()
        size = self.catalog.measure(self.catalog.pin(self.table), self._policy(1).rewrite_data_files)
        total_bytes = size.total().data_bytes
        found: dict[str, Any] = {"rows": self.rows, "files": APPENDS, "bytes": total_bytes}
        found["drifted"] = self._queries()
        found["sort"] = self._rewrite(total_bytes // SORTED_FILES, forced=False)
        found["sorted"] = self._queries()
        snapshots = {"drifted": start, "sorted": self._snapshot()}
        self.bridge.load_table(TABLE).manageSnapshots().setCurrentSnapshot(start).commit()
        found["bin_pack"] = self._rewrite(1 << 40, forced=True)
        snapshots["bin_packed"] = self._snapshot()
        found["scans"] = self._scans(snapshots, rounds)
        return found

    def _make(self) -> None:
        self.spark.sql("create namespace lake.bench")
        self.spark.sql(
            f"create table {TABLE} (id bigint, customer int, day date, price decimal(12,2), note string) using "
            "iceberg tblproperties ('format-version'='2', 'write.distribution-mode'='none')"
        )
        first = self.bridge.iceberg.NullOrder.NULLS_FIRST
        by = self.bridge.iceberg.expressions.Expressions.ref("id")
        self.bridge.load_table(TABLE).replaceSortOrder().asc(by, first).commit()
        for part in range(APPENDS):
            self.spark.sql(
                f"insert into {TABLE} select /*+ coalesce(1) */ id, pmod(hash(id), 100000), "
                f"date_add(date'2024-01-01', pmod(hash(id, 1), 365)), cast(pmod(hash(id, 2), 1000000) as decimal(12,2)), "
                f"concat('note ', hex(hash(id, 3))) from range({self.rows}) where pmod(id, {APPENDS}) = {part}"
            )

    def _snapshot(self) -> int:
        return int(self.bridge.load_table(TABLE).currentSnapshot().snapshotId())

    def _policy(self, target_bytes: int) -> Any:
        from iceberg_maint.core.policy.data import LayoutPolicy, Policy, RewriteDataFilesPolicy

        rewrite = RewriteDataFilesPolicy(target_file_size_bytes=target_bytes, min_input_files=1000)
        return Policy(rewrite_data_files=rewrite, layout=LayoutPolicy(overlap_depth_warn=1.0))

    def _rewrite(self, target_bytes: int, *, forced: bool) -> dict[str, Any]:
        """One batch, from the pinned state to the commit."""
        from iceberg_maint.core.decisions.decide import decide
        from iceberg_maint.core.decisions.rules import Situation
        from iceberg_maint.core.model.ids import Operation
        from iceberg_maint.core.outcomes.outcome import CommitStatus
        from iceberg_maint.core.planning.file_groups import PlanInputs
        from iceberg_maint.core.planning.plan import BatchBody
        from iceberg_maint.core.planning.rewrite_data_files import plan_rewrite
        from iceberg_maint.core.planning.work import layout_gain
        from iceberg_maint.core.policy.data import LayoutPolicy
        from iceberg_maint.loop.read_table import with_order
        from iceberg_maint_tests.support.context import commit_context

        cpu, wall = cpu_seconds(), time.monotonic()
        policy = self._policy(target_bytes)
        if forced:
            from dataclasses import replace

            policy = replace(policy, layout=LayoutPolicy(enabled=False))
        state = with_order(self.catalog.pin(self.table), policy)
        measured = self.catalog.measure(state, policy.rewrite_data_files)
        decision = decide(Operation.REWRITE_DATA_FILES, Situation(measured, policy, {}, 0, force=forced))
        live = self.catalog.live_files(state, list(measured.partitions))
        [batch] = plan_rewrite(PlanInputs(state, decision, live, policy, target_bytes)).batches
        written = self.engine.write(batch, policy)
        assert written.proof.equal, written.proof.detail
        ticket = commit_context(uuid4().hex, 1, "bench", 1, lambda: True, lambda _base, _location: None)
        result = self.engine.commit(batch, written, ticket)
        assert result.status is CommitStatus.COMMITTED, result.message
        found = {
            "strategy": batch.strategy,
            "output_files": len(written.files),
            "cpu_seconds": round(cpu_seconds() - cpu, 2),
            "wall_seconds": round(time.monotonic() - wall, 2),
        }
        layout = BatchBody.of(batch).layout
        if layout is not None:
            gain = layout_gain(layout, ((f.group, f.content) for f in written.files))
            found |= {
                "depth_before": gain.depth_before,
                "depth_predicted": gain.depth_predicted,
                "depth_measured": round(gain.depth_measured, 3),
            }
        return found

    def _queries(self) -> dict[str, float]:
        """Files that look-ups and ranges of a hundredth of the rows read, on average."""
        step = self.rows // QUERIES
        starts = range(step // 3, self.rows - step // 3, step)
        points = [self._files_read(at, at) for at in starts]
        ranges = [self._files_read(at, at + self.rows // 100) for at in starts]
        return {"look_up": statistics.mean(points), "range": statistics.mean(ranges)}

    def _files_read(self, first: int, last: int) -> int:
        expressions = self.bridge.iceberg.expressions.Expressions
        within = getattr(expressions, "and")(
            expressions.greaterThanOrEqual("id", first), expressions.lessThanOrEqual("id", last)
        )
        tasks = self.bridge.load_table(TABLE).newScan().filter(within).planFiles()
        return sum(1 for _ in self.bridge.iterate(tasks))

    def _scans(self, snapshots: dict[str, int], rounds: int) -> dict[str, Any]:
        frames = {
            name: self.spark.read.option("versionAsOf", str(snapshot)).table(TABLE)
            for name, snapshot in snapshots.items()
        }
        seconds: dict[str, list[tuple[float, float]]] = {name: [] for name in frames}
        for turn in range(rounds + 2):
            for name in list(frames)[:: 1 if turn % 2 else -1]:
                cpu, wall = cpu_seconds(), time.monotonic()
                frames[name].write.format("noop").mode("overwrite").save()
                if turn >= 2:  # the first two compile
                    seconds[name].append((cpu_seconds() - cpu, time.monotonic() - wall))
        return {
            name: {
                "tasks": frames[name].rdd.getNumPartitions(),
                "cpu_seconds": round(statistics.median(c for c, _ in runs), 3),
                "wall_seconds": round(statistics.median(w for _, w in runs), 3),
            }
            for name, runs in seconds.items()
        }


def _report(found: dict[str, Any]) -> int:
    from rich.console import Console
    from rich.table import Table

    scans, sort = found["scans"], found["sort"]
    missed: list[str] = []
    console = Console()
    console.print(f"{found['files']} files, {found['bytes'] / 1e6:.0f} MB, {found['rows']} rows")
    queries = Table("files read, on average", "drifted", "sorted", "predicted depth", "measured depth")
    for name, title in (("look_up", "look-up"), ("range", "range of a hundredth")):
        queries.add_row(
            title, f"{found['drifted'][name]:g}", f"{found['sorted'][name]:g}",
            f"{sort['depth_predicted']:g}", f"{sort['depth_measured']:g}",
        )  # fmt: skip
    console.print(queries)
    if abs(sort["depth_measured"] - sort["depth_predicted"]) > TOLERANCE * sort["depth_predicted"]:
        missed.append("depth")
    table = Table("full scan", "files", "tasks", "CPU s", "before / after", "wall s", "limit")
    base, cores = scans["drifted"], 2
    files = {
        "drifted": found["files"],
        "sorted": sort["output_files"],
        "bin_packed": found["bin_pack"]["output_files"],
    }
    ratios = {}
    for name, scan in scans.items():
        ratios[name] = base["cpu_seconds"] / scan["cpu_seconds"]
        slower, fewer = ratios[name] < LEAST_RATIO, scan["tasks"] < min(cores, base["tasks"])
        missed += [f"{name} scan"] * (slower or fewer)
        limit = "" if name == "drifted" else f"≥ {LEAST_RATIO}" + " MISSED" * (slower or fewer)
        table.add_row(
            name, str(files[name]), str(scan["tasks"]), f"{scan['cpu_seconds']:g}", f"{ratios[name]:.2f}",
            f"{scan['wall_seconds']:g}", limit,
        )  # fmt: skip
    console.print(table)
    publish("layout", {**found, "ratios": {k: round(v, 3) for k, v in ratios.items()}, "missed": missed})
    return int(bool(missed))


if __name__ == "__main__":
    sys.exit(main())
