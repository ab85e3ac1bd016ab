"""What the commit gate adds to a commit on a table with 200,000 live files, for a batch in one manifest.

    python -m bench.gate [--rounds N]

Every round replaces twenty files of one partition by one, as a metadata-only commit through the gate. Counted
is what the gate does between Iceberg's call and the swap: reading the change back from the manifests and
checking every rule. CPU seconds of this process, medians; the whole commit (Iceberg's own part included) is
shown beside it. Exits 1 when the target is missed.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
from pyiceberg.io.pyarrow import PyArrowFileIO
from rich.console import Console
from rich.table import Table

from bench.large_table import large_table
from iceberg_maint.catalog.manifests import make_reader, read_manifest_list
from iceberg_maint.core.change import MetadataReader
from iceberg_maint.core.gate import check
from iceberg_maint.core.intent import GroupIntent, Intent
from iceberg_maint.spark.bridge import Bridge
from iceberg_maint.spark.gate import CommitGate

PROJECT = Path(__file__).resolve().parent.parent
CACHE = PROJECT / ".cache"
TABLE = "lake.db.large"
LIMIT_SECONDS = 0.3
SOURCES = 20


class TimedGate(CommitGate):
    """Notes the CPU seconds of this process when Iceberg hands over and when the swap may happen."""

    started = 0.0

    def commit(self, base: Any, metadata: Any) -> None:
        self.started = time.process_time()
        super().commit(base, metadata)


def main() -> int:
    """Prints a table and one line of JSON."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=7)
    rounds = parser.parse_args().rounds
    source = large_table()
    before = set(source.rglob("*"))
    try:
        with tempfile.TemporaryDirectory(prefix="bench-gate-") as scratch:
            database = Path(scratch) / "catalog.db"
            shutil.copy(source / "catalog.db", database)
            figures = _commits(_session(database, source), rounds)
    finally:
        for left in sorted(set(source.rglob("*")) - before, reverse=True):
            left.unlink() if left.is_file() else left.rmdir()
    return _report(figures)


def _session(database: Path, warehouse: Path) -> Any:
    from iceberg_maint.spark.jars import ivy_fetch, load_lock, resolve
    from iceberg_maint.spark.java import find_java
    from iceberg_maint.spark.session import build_session
    from iceberg_maint.spark.settings import SparkSettings, catalog_conf

    java = find_java(os.environ, shim_dir=CACHE / "java")
    os.environ["JAVA_HOME"] = str(java.path)
    jars = resolve(load_lock(), CACHE / "jars", ivy_fetch(java))
    lake = catalog_conf("lake", "jdbc", f"sqlite:///{database}", warehouse.as_uri(), {})
    return build_session(SparkSettings("local[2]", tuple(map(str, jars)), {"lake": lake}))


def _commits(spark: Any, rounds: int) -> dict[str, list[float]]:
    bridge = Bridge(spark)
    jvm = psutil.Process(spark.sparkContext._gateway.proc.pid)
    figures: dict[str, list[float]] = {"gate": [], "commit": [], "commit_jvm": []}
    files = _files_of_one_partition(bridge, (1 + rounds) * SOURCES)
    for number in range(1 + rounds):
        chosen = files[number * SOURCES : (number + 1) * SOURCES]
        ended: list[float] = []
        java_before, whole = sum(jvm.cpu_times()[:2]), time.process_time()
        gate = _commit(bridge, chosen, number, lambda: ended.append(time.process_time()) or True)  # noqa: B023
        if number == 0:
            continue  # the JVM compiles and imports happen here
        figures["gate"].append(ended[0] - gate.started)
        figures["commit"].append(time.process_time() - whole)
        figures["commit_jvm"].append(sum(jvm.cpu_times()[:2]) - java_before)
    spark.stop()
    return figures


def _files_of_one_partition(bridge: Bridge, count: int) -> list[Any]:
    """The first files of the first manifest; a partition has 200."""
    table = bridge.load_table(TABLE)
    manifest = table.currentSnapshot().dataManifests(table.io()).get(0)
    opened = bridge.iceberg.ManifestFiles.read(manifest, table.io(), table.specs())
    return [file.copy() for file, _ in zip(bridge.iterate(opened), range(count), strict=False)]


def _commit(bridge: Bridge, sources: list[Any], number: int, holds: Callable[[], bool]) -> TimedGate:
    table = bridge.load_table(TABLE)
    spec, pinned = table.spec(), table.currentSnapshot()
    path = f"{table.location()}/data/rewritten-{number}.parquet"
    output = (
        bridge.iceberg.DataFiles.builder(spec)
        .withPath(path)
        .withFormat(bridge.iceberg.FileFormat.PARQUET)
        .withFileSizeInBytes(1 << 28)
        .withRecordCount(1000)
        .withPartition(sources[0].partition())
        .build()
    )
    group = GroupIntent(
        "p",
        int(spec.specId()),
        int(spec.specId()),
        frozenset(str(f.location()) for f in sources),
        frozenset({path}),
    )
    intent = Intent(
        str(table.uuid()),
        int(table.operations().current().formatVersion()),
        int(pinned.snapshotId()),
        int(pinned.sequenceNumber()),
        int(table.schema().schemaId()),
        (group,),
    )
    io = PyArrowFileIO()
    reader = MetadataReader(lambda location: read_manifest_list(io, location), make_reader(io))
    gate = TimedGate(bridge, table.operations(), intent, reader, check, holds, lambda *_: None)
    with bridge.callbacks():
        rewrite = gate.table(TABLE).newRewrite().validateFromSnapshot(pinned.snapshotId())
        rewrite.dataSequenceNumber(pinned.sequenceNumber())
        for file in sources:
            rewrite.deleteFile(file)
        rewrite.addFile(output).commit()
    return gate


def _report(figures: dict[str, list[float]]) -> int:
    median = {name: statistics.median(values) for name, values in figures.items()}
    missed = median["gate"] > LIMIT_SECONDS
    table = Table("figure", "median", "limit", "spread")
    rows = (
        ("the gate in one commit: CPU s", "gate", f"{LIMIT_SECONDS:g}{' MISSED' if missed else ''}"),
        ("the whole commit, Python: CPU s", "commit", ""),
        ("the whole commit, JVM: CPU s", "commit_jvm", ""),
    )
    for label, name, limit in rows:
        spread = f"{min(figures[name]):.3f} to {max(figures[name]):.3f}"
        table.add_row(label, f"{median[name]:.3f}", limit, spread)
    Console().print(table)
    print(
        json.dumps({**{f"{n}_cpu_seconds": round(m, 4) for n, m in median.items()}, "limit": LIMIT_SECONDS})
    )
    return 1 if missed else 0


if __name__ == "__main__":
    raise SystemExit(main())
