"""The native strategy against Iceberg's stock `rewrite_data_files` on identical tables.

    python -m bench.columnar.native [--rounds N] [--scale-factor F] [--files N]

TPC-H lineitem as many small files, one table, rolled back in between so that every run rewrites the same
files. Fresh JVMs take turns; each first rewrites a small copy, so that both sides are compiled alike, then the
table. Figures are CPU seconds of the JVM and Python from planning to commit. Stock runs through SparkActions
with partial progress off. Exits 1 when the footer proof costs more than 1.15 times stock.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from uuid import uuid4

from bench.record import publish
from bench.used import cpu_seconds

PROJECT = Path(__file__).resolve().parents[2]
CACHE = PROJECT / ".cache"
TABLE, WARM = "lake.bench.lineitem", "lake.bench.warm"
VARIANTS = ("stock", "footer", "full")
LIMIT = 1.15
AIM_FULL = 1.7


def main() -> int:
    """Prints a table and one line of JSON."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--scale-factor", type=float, default=2.0)
    parser.add_argument("--files", type=int, default=300)
    parser.add_argument("--run", choices=("make", *VARIANTS), help=argparse.SUPPRESS)
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.run == "make":
        _make(given.folder, given.scale_factor, given.files)
        return 0
    if given.run:
        print(json.dumps(_measure(given.folder, given.run)))
        return 0
    with tempfile.TemporaryDirectory(prefix="bench-native-") as scratch:
        scale = ("--scale-factor", str(given.scale_factor), "--files", str(given.files))
        _child("make", Path(scratch), *scale)
        found: dict[str, list[dict[str, Any]]] = {name: [] for name in VARIANTS}
        for turn in range(given.rounds):
            order = VARIANTS if turn % 2 == 0 else VARIANTS[::-1]
            for name in order:
                found[name].append(json.loads(_child(name, Path(scratch)).splitlines()[-1]))
                print(name, found[name][-1], file=sys.stderr)
    return _report(found)


def _child(what: str, folder: Path, *more: str) -> str:
    command = [sys.executable, "-m", "bench.columnar.native", "--run", what, "--folder", str(folder), *more]
    return subprocess.run(command, check=True, cwd=PROJECT, stdout=subprocess.PIPE, text=True).stdout


def _report(found: dict[str, list[dict[str, Any]]]) -> int:
    from rich.console import Console
    from rich.table import Table

    cpu = {name: statistics.median(r["cpu_seconds"] for r in runs) for name, runs in found.items()}
    ratio = {name: cpu[name] / cpu["stock"] for name in VARIANTS}
    first = found["stock"][0]
    table = Table("strategy", "CPU s", "wall s", "ratio to stock", "limit", "spread of CPU s")
    limits = {"footer": f"{LIMIT:g}", "full": f"aim {AIM_FULL:g}"}
    for name, runs in found.items():
        seconds = [r["cpu_seconds"] for r in runs]
        wall = statistics.median(r["wall_seconds"] for r in runs)
        missed = " MISSED" if name == "footer" and ratio[name] > LIMIT else ""
        table.add_row(
            name, f"{cpu[name]:.1f}", f"{wall:.1f}", f"{ratio[name]:.2f}", limits.get(name, "") + missed,
            f"{min(seconds):.1f} to {max(seconds):.1f}",
        )  # fmt: skip
    Console().print(
        f"{first['input_files']} files, {first['input_bytes'] / 1e6:.0f} MB, {first['records']} rows"
    )
    Console().print(table)
    publish(
        "native",
        {
            "cpu_seconds": {k: round(v, 2) for k, v in cpu.items()},
            "ratio": {k: round(v, 3) for k, v in ratio.items()},
            "limit": LIMIT,
            "rounds": len(found["stock"]),
        },
    )
    return 1 if ratio["footer"] > LIMIT else 0


# in a process of its own


SPARKS_DEFAULTS = {"spark.hadoop.parquet.page.verify-checksum.enabled": "false"}
"""Settings that a session of a user of Spark has and one of this project has not."""


def _session(folder: Path, class_archive: Path | None = None, more: Mapping[str, str] | None = None) -> Any:
    from iceberg_maint.engines.spark.session.jars import ivy_fetch, load_lock, resolve_jars
    from iceberg_maint.engines.spark.session.java import find_java
    from iceberg_maint.engines.spark.session.session import build_session
    from iceberg_maint.engines.spark.session.settings import SparkSettings, catalog_conf

    java = find_java(os.environ, shim_dir=CACHE / "java")
    os.environ["JAVA_HOME"] = str(java.path)
    jars = resolve_jars(load_lock().jars, CACHE / "jars", ivy_fetch(java))
    catalog = catalog_conf(
        "lake", "jdbc", f"sqlite:///{folder / 'catalog.db'}", f"file://{folder / 'wh'}", {}
    )
    conf = {"spark.driver.memory": "3g", "spark.sql.shuffle.partitions": "4", **(more or {})}
    settings = SparkSettings(
        "local[2]", tuple(map(str, jars)), {"lake": catalog}, conf, str(folder / "spark"), class_archive
    )
    return build_session(settings)


def _make(folder: Path, scale_factor: float, files: int) -> None:
    """lineitem in `files` files, and a small copy to warm up on."""
    (folder / "wh").mkdir()
    tool = Path(sys.executable).parent / "tpchgen-cli"
    raw = folder / "raw"
    subprocess.run(
        [str(tool), "parquet", "-s", str(scale_factor), "--tables=lineitem", f"--output-dir={raw}"],
        check=True,
        stdout=subprocess.DEVNULL,
    )
    spark = _session(folder)
    rows = spark.read.parquet(str(next(raw.glob("lineitem*"))))
    spark.sql("create namespace lake.bench")
    rows.repartition(files).writeTo(TABLE).using("iceberg").tableProperty("format-version", "2").create()
    some = rows.limit(60_000).repartition(12)
    some.writeTo(WARM).using("iceberg").tableProperty("format-version", "2").create()
    spark.stop()


def _measure(folder: Path, variant: str) -> dict[str, Any]:
    spark = _session(folder)
    run = _Stock(spark) if variant == "stock" else _Native(spark, folder, variant)
    run.rewrite(WARM)
    table = run.bridge.load_table(TABLE)
    start = int(table.currentSnapshot().snapshotId())
    summary = table.currentSnapshot().summary()
    before_cpu, before = cpu_seconds(), time.monotonic()
    outputs = run.rewrite(TABLE)
    wall, cpu = time.monotonic() - before, cpu_seconds() - before_cpu
    for name, snapshot in ((TABLE, start), (WARM, run.warm_start)):
        run.bridge.load_table(name).manageSnapshots().setCurrentSnapshot(snapshot).commit()
    spark.stop()
    return {
        "cpu_seconds": round(cpu, 2),
        "wall_seconds": round(wall, 2),
        "output_files": outputs,
        "input_files": int(summary.get("total-data-files")),
        "input_bytes": int(summary.get("total-files-size")),
        "records": int(summary.get("total-records")),
    }


class _Stock:
    """Iceberg's own action with its defaults, but every file, and one commit."""

    def __init__(self, spark: Any) -> None:
        from iceberg_maint.engines.spark.jvm.bridge import Bridge

        self.bridge = Bridge(spark)
        self.warm_start = int(self.bridge.load_table(WARM).currentSnapshot().snapshotId())

    def rewrite(self, name: str) -> int:
        """Returns the number of files written."""
        actions = self.bridge.iceberg.spark.actions.SparkActions.get(self.bridge.session)
        action = actions.rewriteDataFiles(self.bridge.load_table(name)).binPack()
        result = action.option("rewrite-all", "true").execute()
        return int(result.addedDataFilesCount())


class _Native:
    """The product's way from the pinned state to the commit."""

    def __init__(self, spark: Any, folder: Path, proof: str) -> None:
        from iceberg_maint.catalog.adapter import PyIcebergCatalog
        from iceberg_maint.catalog.manifests.entries import read_entries
        from iceberg_maint.catalog.manifests.reader import make_reader, read_manifest_list
        from iceberg_maint.core.commits.change import MetadataReader
        from iceberg_maint.core.policy.data import ProofLevel, RewriteDataFilesPolicy
        from iceberg_maint.engines.spark.engine import SparkEngine
        from iceberg_maint.engines.spark.jvm.bridge import Bridge

        self.bridge = Bridge(spark)
        self.warm_start = int(self.bridge.load_table(WARM).currentSnapshot().snapshotId())
        uri, warehouse = f"sqlite:///{folder / 'catalog.db'}", f"file://{folder / 'wh'}"
        self.catalog = PyIcebergCatalog("lake", {"type": "sql", "uri": uri, "warehouse": warehouse})
        self.policy = RewriteDataFilesPolicy(proof=ProofLevel(proof))

        def reader_of(table: str) -> MetadataReader:
            from iceberg_maint.core.model.ids import TableId

            io = self.catalog.io_of(TableId.parse(table))
            return MetadataReader(
                lambda at: read_manifest_list(io, at), make_reader(io), lambda m: read_entries(io, m)
            )

        self.engine = SparkEngine(lambda: spark, reader_of)

    def rewrite(self, name: str) -> int:
        """Returns the number of files written."""
        from iceberg_maint.core.model.ids import TableId
        from iceberg_maint.core.model.reasons import Decision, PartitionDecision, Reason, Verdict
        from iceberg_maint.core.outcomes.outcome import CommitStatus
        from iceberg_maint.core.planning.file_groups import PlanInputs
        from iceberg_maint.core.planning.rewrite_data_files import plan_rewrite
        from iceberg_maint.core.policy.data import DEFAULT_TARGET_FILE_SIZE_BYTES, Policy
        from iceberg_maint_tests.support.context import commit_context

        state = self.catalog.pin(TableId.parse(name))
        policy = Policy(rewrite_data_files=self.policy)
        keys = tuple(self.catalog.measure(state, self.policy).partitions)
        due = tuple(PartitionDecision(key, Verdict.RUN, Reason.FORCED) for key in keys)
        decision = Decision(name, "rewrite_data_files", Verdict.RUN, Reason.FORCED, None, due)
        live = self.catalog.live_files(state, keys)
        plan = plan_rewrite(PlanInputs(state, decision, live, policy, DEFAULT_TARGET_FILE_SIZE_BYTES))
        outputs = 0
        for batch in plan.batches:
            written = self.engine.write(batch, policy)
            assert written.proof.equal, written.proof.detail
            ticket = commit_context(uuid4().hex, 1, "bench", 1, lambda: True, lambda _base, _location: None)
            result = self.engine.commit(batch, written, ticket)
            assert result.status is CommitStatus.COMMITTED, result.message
            outputs += len(written.files)
        return outputs


if __name__ == "__main__":
    raise SystemExit(main())
