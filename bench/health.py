"""Health of a table with 200,000 live files, from metadata only, and a look at 1,000 unchanged tables.

    python -m bench.health [--rounds N] [--files N]

Fresh processes take turns: ours, and the same metrics from Spark's metadata tables with its session's start
included; their results must be equal. CPU seconds are those of the process and its JVM, memory is the highest
resident size: for Spark the sum of Python and JVM, whose heap is the 2 GiB of `init`. Exits 1 when the results differ,
when a measurement takes more than its estimate, or when a target is missed. The targets are those of 200,000 files.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

PROJECT = Path(__file__).resolve().parent.parent
CACHE = PROJECT / ".cache"
TABLE = "lake.db.large"
TABLES = 1000
FILES = 200_000
LIMITS = {
    "ours_cpu_seconds": 5.0,
    "ours_peak_mb": 500.0,
    "layout_cpu_seconds": 5.0,
    "layout_peak_mb": 500.0,
    "pointers_seconds": 1.0,
}


def main() -> int:
    """Prints a table and one line of JSON."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--files", type=int, default=FILES)
    parser.add_argument("--worker", choices=WORKERS, help=argparse.SUPPRESS)
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.worker:
        print(json.dumps(WORKERS[given.worker](given.folder)))
        return 0
    return _compare(given.rounds, given.files)


def _compare(rounds: int, files: int) -> int:
    from bench.large_table import large_table

    folder = large_table(files)
    found: dict[str, list[dict[str, Any]]] = {name: [] for name in WORKERS}
    with tempfile.TemporaryDirectory(prefix="bench-health-") as scratch:
        _make_catalog(Path(scratch))
        for _ in range(rounds):
            for name in WORKERS:
                found[name].append(_run(name, Path(scratch) if name == "pointers" else folder))
    figures = {
        f"{name}_{key}": _median(runs, key)
        for name, runs in found.items()
        for key in FIGURES
        if key in runs[0]
    }
    digests = {run["digest"] for name in ("ours", "spark") for run in found[name]}
    digests_of_layout = {run["digest"] for name in ("layout", "spark_layout") for run in found[name]}
    equal = len(digests) == len(digests_of_layout) == 1
    return _report(figures, equal=equal, rounds=rounds, files=files)


FIGURES = ("cpu_seconds", "peak_mb", "grown_mb", "estimated_mb", "python_mb", "seconds")


def _median(runs: list[dict[str, Any]], key: str) -> float:
    return round(statistics.median(run[key] for run in runs), 3)


def _run(worker: str, folder: Path) -> dict[str, Any]:
    command = [sys.executable, "-m", "bench.health", "--worker", worker, "--folder", str(folder)]
    run = subprocess.run(command, cwd=PROJECT, stdout=subprocess.PIPE, text=True, check=True)
    return json.loads(run.stdout.splitlines()[-1])


def _report(figures: dict[str, float], *, equal: bool, rounds: int, files: int) -> int:
    from rich.console import Console
    from rich.table import Table

    ratio = figures["spark_cpu_seconds"] / figures["ours_cpu_seconds"]
    limits = LIMITS if files == FILES else {}
    rows = (
        (f"health of {files:,} files: CPU s, imports included", "ours_cpu_seconds"),
        ("  highest resident memory, MB", "ours_peak_mb"),
        ("  of that, since the imports", "ours_grown_mb"),
        ("  its estimate (core.health.source)", "ours_estimated_mb"),
        ("the same with the overlap of one column: CPU s", "layout_cpu_seconds"),
        ("  highest resident memory, MB", "layout_peak_mb"),
        ("  of that, since the imports", "layout_grown_mb"),
        ("  its estimate", "layout_estimated_mb"),
        ("health by Spark: CPU s, session included", "spark_cpu_seconds"),
        ("  highest resident memory, MB", "spark_peak_mb"),
        ("  of that, Python", "spark_python_mb"),
        ("the same with the overlap of one column: CPU s", "spark_layout_cpu_seconds"),
        ("  highest resident memory, MB", "spark_layout_peak_mb"),
        ("  of that, Python", "spark_layout_python_mb"),
        ("live files of one partition from manifests: CPU s", "candidates_cpu_seconds"),
        ("  highest resident memory, MB", "candidates_peak_mb"),
        (f"look at {TABLES:,} unchanged tables: s", "pointers_seconds"),
        ("  of that, CPU s", "pointers_cpu_seconds"),
    )
    table = Table(f"figure (median of {rounds})", "measured", "limit")
    for title, key in rows:
        limit = limits.get(key)
        missed = " MISSED" if limit is not None and figures[key] > limit else ""
        table.add_row(title, f"{figures[key]:g}{missed}", "" if limit is None else f"{limit:g}")
    table.add_row("Spark's CPU over ours", f"{ratio:.1f}", "")
    table.add_row("results are equal", "yes" if equal else "NO", "yes")
    Console().print(table)
    print(json.dumps({**figures, "spark_over_ours": round(ratio, 2), "equal": equal, "limits": limits}))
    over = any(figures[f"{name}_grown_mb"] > figures[f"{name}_estimated_mb"] for name in ("ours", "layout"))
    return int(over or not equal or any(figures[key] > limit for key, limit in limits.items()))


def _order() -> Any:
    from iceberg_maint.core.model.sort_order import LayoutOrder, SortColumn

    column = SortColumn("c3", 3, "long")
    return LayoutOrder((column,), (column,), sort_order_id=1)


def _layout(folder: Path) -> dict[str, Any]:
    return _ours(folder, _order())


def _ours(folder: Path, order: Any = None) -> dict[str, Any]:
    from dataclasses import replace

    from iceberg_maint.core.health.source import measuring_bytes
    from iceberg_maint.core.policy.data import RewriteDataFilesPolicy

    catalog, table = _catalog(folder)
    state = replace(catalog.pin(table), order=order)
    before_mb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    measured = catalog.measure(state, RewriteDataFilesPolicy())
    used = resource.getrusage(resource.RUSAGE_SELF)
    return {
        "cpu_seconds": used.ru_utime + used.ru_stime,
        "peak_mb": used.ru_maxrss / 1024,
        "grown_mb": used.ru_maxrss / 1024 - before_mb,
        "estimated_mb": measuring_bytes(state) / 1024**2,
        "digest": _digest(measured),
    }


def _candidates(folder: Path) -> dict[str, Any]:
    from iceberg_maint.core.model.ids import PartitionKey

    catalog, table = _catalog(folder)
    files = catalog.live_files(catalog.pin(table), [PartitionKey("c2_day=2024-10-04/c1_bucket=0")])
    assert files
    used = resource.getrusage(resource.RUSAGE_SELF)
    return {"cpu_seconds": used.ru_utime + used.ru_stime, "peak_mb": used.ru_maxrss / 1024}


def _spark_layout(folder: Path) -> dict[str, Any]:
    return _spark(folder, _order())


def _spark(folder: Path, order: Any = None) -> dict[str, Any]:
    from dataclasses import replace

    import psutil

    from bench.used import peak_mb
    from iceberg_maint.core.policy.data import RewriteDataFilesPolicy
    from iceberg_maint.spark.health.measure import SparkHealthSource
    from iceberg_maint.spark.jvm.bridge import bridge_of
    from iceberg_maint.spark.session.jars import ivy_fetch, load_lock, resolve
    from iceberg_maint.spark.session.java import find_java
    from iceberg_maint.spark.session.session import build_session
    from iceberg_maint.spark.session.settings import SparkSettings, catalog_conf

    java = find_java(os.environ, shim_dir=CACHE / "java")
    os.environ["JAVA_HOME"] = str(java.path)
    jars = resolve(load_lock(), CACHE / "jars", ivy_fetch(java))
    lake = catalog_conf("lake", "jdbc", f"sqlite:///{folder / 'catalog.db'}", folder.as_uri(), {})
    conf = {"spark.driver.memory": "2g"}
    settings = SparkSettings("local[2]", tuple(map(str, jars)), {"lake": lake}, conf)
    catalog, table = _catalog(folder)
    spark = build_session(settings)
    state = replace(catalog.pin(table), order=order)
    measured = SparkHealthSource(bridge_of(spark)).measure(state, RewriteDataFilesPolicy())
    jvm = psutil.Process(spark.sparkContext._gateway.proc.pid)
    used, java_used = resource.getrusage(resource.RUSAGE_SELF), jvm.cpu_times()
    found = {
        "cpu_seconds": used.ru_utime + used.ru_stime + java_used.user + java_used.system,
        "peak_mb": used.ru_maxrss / 1024 + peak_mb(jvm.pid),
        "python_mb": used.ru_maxrss / 1024,
        "digest": _digest(measured),
    }
    spark.stop()
    return found


def _pointers(folder: Path) -> dict[str, Any]:
    import time

    catalog, _ = _catalog(folder)
    tables = catalog.tables()
    before = catalog.pointers(tables)
    start, start_cpu = time.perf_counter(), time.process_time()
    assert catalog.pointers(tables) == before
    seconds, cpu_seconds = time.perf_counter() - start, time.process_time() - start_cpu
    assert len(before) == TABLES
    return {"seconds": seconds, "cpu_seconds": cpu_seconds}


WORKERS: dict[str, Callable[[Path], dict[str, Any]]] = {
    "ours": _ours,
    "layout": _layout,
    "spark": _spark,
    "spark_layout": _spark_layout,
    "candidates": _candidates,
    "pointers": _pointers,
}


def _catalog(folder: Path) -> tuple[Any, Any]:
    from iceberg_maint.catalog.adapter import PyIcebergCatalog
    from iceberg_maint.core.model.ids import TableId

    uri = f"sqlite:///{folder / 'catalog.db'}"
    return PyIcebergCatalog("lake", {"type": "sql", "uri": uri, "warehouse": folder.as_uri()}), TableId.parse(
        TABLE
    )


def _digest(measured: Any) -> str:
    return hashlib.sha256(repr(measured).encode()).hexdigest()


def _make_catalog(folder: Path) -> None:
    """A catalog that lists many tables; nothing but their pointers is looked at."""
    from pyiceberg.schema import Schema

    from iceberg_maint_tests.support.catalog.table_files import TableFiles, register, spec

    location = TableFiles(folder / "t", Schema(), [spec(0)]).publish()
    for number in range(TABLES):
        register(folder / "catalog.db", f"db.t{number:04d}", location)


if __name__ == "__main__":
    sys.exit(main())
