"""Batches that land beside a writer that commits all the time, with rehearsed retries and without.

    python -m bench.metadata.conflicts [--every 0.7] [--every 0.2] [--batches N] [--load N]

One unpartitioned table of small files; a writer in a process of its own appends a file every so many seconds, and so many
other processes keep the cores busy. Ours runs batch after batch. `plain` tries a commit five times, each as the
first; `rehearsed` is the product. The two take turns on tables of their own, all in one run. Exits 1 when a target is missed:
every batch lands beside a commit per 0.7 s, most do at five commits a second.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

from py4j.protocol import Py4JJavaError

from iceberg_maint_tests.support.context import changed

CONFIG = """\
catalogs:
  lake: {{type: jdbc, uri: 'sqlite:///{dir}/catalog.db', warehouse: 'file://{dir}/wh'}}
ledger: 'sqlite:///{dir}/ledger.db'
spark: {{master: 'local[2]', conf: {{spark.sql.shuffle.partitions: '2'}}}}
defaults:
  windows: {{max_files_per_batch: 10, cold_after_seconds: 0}}
  rewrite_data_files: {{min_input_files: 2}}
"""
WAYS = ("plain", "rehearsed")
PROJECT = Path(__file__).resolve().parents[2]


def main() -> int:
    """Prints a table and one line of JSON."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--every", type=float, action="append")
    parser.add_argument("--batches", type=int, default=8)
    parser.add_argument("--load", type=int, default=2)
    given = parser.parse_args()
    figures: dict[str, Any] = {}
    with tempfile.TemporaryDirectory(prefix="bench-conflicts-") as scratch:
        folder = Path(scratch)
        config = folder / "config.yaml"
        config.write_text(CONFIG.format(dir=folder), "utf-8")
        loop_context = _loop_context(config)
        _beside(loop_context, folder, "warm", "rehearsed", 60.0, 2, 0)
        for every in given.every or (0.7, 0.2):
            for way in WAYS:
                name = f"{way}_{every:g}"
                figures[name] = _beside(
                    loop_context, folder, name.replace(".", "_"), way, every, given.batches, given.load
                )
                print(name, figures[name], file=sys.stderr, flush=True)
    print(json.dumps(figures))
    missed = [
        n for n, f in figures.items() if n.startswith("rehearsed") and f["landed"] < _needed(n, f["batches"])
    ]
    return int(bool(missed))


def _needed(name: str, batches: int) -> int:
    return batches if float(name.rpartition("_")[2]) >= 0.7 else batches // 2 + 1


def _loop_context(config: Path) -> Any:
    from iceberg_maint.wiring.adapters import load

    loop_context = load(config)
    loop_context.engine.spark.session()
    return loop_context


def _beside(
    loop_context: Any, folder: Path, table: str, way: str, every: float, batches: int, load: int
) -> dict[str, Any]:
    from iceberg_maint.loop.maintain import Request, maintain

    _make(folder, table, 10 * batches)
    context = multiprocessing.get_context("spawn")
    others = [context.Process(target=_write, args=(str(folder), table, every), daemon=True)]
    others += [context.Process(target=_spin, daemon=True) for _ in range(load)]
    for process in others:
        process.start()
    appended = _snapshots(folder, table)
    while _snapshots(folder, table) < appended + 3:  # until the writer's JVM is warm
        time.sleep(0.5)
    before = _snapshots(folder, table)
    began = time.monotonic()
    tries = 5 if way == "plain" else None
    policy_for = loop_context.policies.of_table
    if tries is not None:
        loop_context = changed(
            loop_context,
            policy_for=lambda t, p: replace(
                policy_for(t, p), retry=replace(policy_for(t, p).retry, commit_tries=tries)
            ),
        )
    with patch(
        "iceberg_maint.engines.spark.commit.gate.Gate.rehearse", _nothing if way == "plain" else _rehearse()
    ):
        outcomes = maintain(
            loop_context.catalogs.find(f"db.{table}"),
            Request(f"bench-{table}", max_batches=batches),
            loop_context,
        )
    seconds = time.monotonic() - began
    commits = _snapshots(folder, table) - before
    for process in others:
        process.terminate()
        process.join()
    done = [batch for outcome in outcomes for batch in outcome.batches]
    windows = [b.counts["base_to_swap_ms"] for b in done if "base_to_swap_ms" in b.counts]
    landed = sum(b.snapshot_after is not None for b in done)
    return {
        "batches": len(done),
        "landed": landed,
        "tries": [b.commit_tries for b in done],
        "window_ms": round(statistics.median(windows)) if windows else None,
        "writer_per_second": round((commits - landed) / seconds, 2),
        "reasons": sorted({str(b.reason) for b in done}),
        "seconds": round(seconds, 1),
    }


def _rehearse() -> Callable[..., None]:
    from iceberg_maint.engines.spark.commit.gate import Gate

    return Gate.rehearse


def _nothing(*_: object) -> None:
    pass


def _catalog(folder: Path) -> Any:
    from pyiceberg.catalog.sql import SqlCatalog

    return SqlCatalog("lake", uri=f"sqlite:///{folder}/catalog.db", warehouse=f"file://{folder}/wh")


def _rows(number: int) -> Any:
    import pyarrow as pa

    return pa.table({"id": [number], "v": [str(number)]})


def _make(folder: Path, name: str, files: int) -> None:
    import pyarrow as pa

    catalog = _catalog(folder)
    catalog.create_namespace_if_not_exists("db")
    table = catalog.create_table(f"db.{name}", pa.schema([("id", pa.int64()), ("v", pa.string())]))
    for number in range(files):
        table.append(_rows(number))


def _snapshots(folder: Path, name: str) -> int:
    return len(_catalog(folder).load_table(f"db.{name}").metadata.snapshots)


def _write(folder: str, name: str, every: float) -> None:
    """Appends a prepared file each `every` seconds with Iceberg's own API, in a JVM without Spark. PyIceberg makes
    two commits per second at most on two busy cores."""
    with suppress(PermissionError):
        # A writer has a machine of its own. Here it shares the cores with the load.
        os.setpriority(os.PRIO_PROCESS, 0, -15)
    gateway = _gateway()
    jvm: Any = gateway.jvm
    apache = jvm.org.apache.iceberg
    catalog = apache.jdbc.JdbcCatalog()
    catalog.setConf(jvm.org.apache.hadoop.conf.Configuration())
    uri = f"jdbc:sqlite:{folder}/catalog.db?journal_mode=WAL&busy_timeout=30000"
    properties = jvm.java.util.HashMap()
    for key, value in {"uri": uri, "warehouse": f"file://{folder}/wh", "jdbc.schema-version": "V1"}.items():
        properties.put(key, value)
    catalog.initialize("lake", properties)
    table = catalog.loadTable(apache.catalog.TableIdentifier.parse(f"db.{name}"))
    tasks = table.newScan().planFiles().iterator()
    first = tasks.next().file().copy()
    source = Path(str(first.location()).removeprefix("file:"))
    number, due = 0, time.monotonic()
    while True:
        number, due = number + 1, due + every
        path = source.with_name(f"appended-{number}.parquet")
        shutil.copy(source, path)
        file = apache.DataFiles.builder(table.spec()).copy(first).withPath(path.as_uri()).build()
        try:
            table.newAppend().appendFile(file).commit()
        except Py4JJavaError:
            table.refresh()
        time.sleep(max(0.0, due - time.monotonic()))


def _gateway() -> Any:
    from py4j.java_gateway import GatewayParameters, JavaGateway, launch_gateway

    from iceberg_maint.engines.spark.session.jars import load_lock, pyspark_jars_dir
    from iceberg_maint.engines.spark.session.java import find_java

    java = find_java(os.environ, shim_dir=PROJECT / ".cache" / "java")
    jars = [str(PROJECT / ".cache" / "jars" / jar.file_name) for jar in load_lock().jars]
    spark_jars = pyspark_jars_dir()
    port = launch_gateway(
        jarpath=str(next(spark_jars.glob("py4j-*.jar"))),
        classpath=os.pathsep.join((*jars, f"{spark_jars}/*")),
        java_path=str(java.executable),
        javaopts=["-Xmx512m", "-XX:TieredStopAtLevel=1"],
        die_on_exit=True,
    )
    return JavaGateway(gateway_parameters=GatewayParameters(port=port))


def _spin() -> None:
    while True:
        pass


if __name__ == "__main__":
    raise SystemExit(main())
