"""Health of a table with 200,000 live files, from metadata only, and the pointers of 1,000 unchanged tables.

    python -m bench.metadata.health [--rounds N] [--files N] [--manifests N] [--without-spark]

Fresh processes take turns: ours, and the same metrics from Spark's metadata tables with its session's start
included; then ours with the memo of manifests, empty, and after a commit of ten files. Results of one table must be equal. CPU
seconds are those of the process and its JVM, but for the memo those of the measurement alone; memory is the highest
resident size: for Spark the sum of Python and JVM, whose heap is the 2 GiB of `init`. Exits 1 when the results differ,
when a measurement takes more than its estimate, or when a target of this number of files is missed.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from bench.record import publish
from bench.used import jvm_process

PROJECT = Path(__file__).resolve().parents[2]
CACHE = PROJECT / ".cache"
TABLE = "lake.db.large"
TABLES = 1000
FILES = 200_000
MILLION = 1_000_000
LIMITS: dict[int, dict[str, float]] = {
    FILES: {
        "ours_cpu_seconds": 5.0,
        "ours_peak_mb": 500.0,
        "layout_cpu_seconds": 5.0,
        "layout_peak_mb": 500.0,
        "after_commit_measure_seconds": 1.0,
        "memo_candidates_measure_seconds": 1.0,
        "pointers_seconds": 1.0,
    },
    MILLION: {
        "ours_cpu_seconds": 20.0,
        "ours_peak_mb": 600.0,
        "layout_cpu_seconds": 20.0,
        "layout_peak_mb": 600.0,
        "memo_cold_peak_mb": 600.0,
        "after_commit_measure_seconds": 1.0,
        "after_commit_peak_mb": 600.0,
        "memo_candidates_measure_seconds": 1.0,
        "pointers_seconds": 1.0,
    },
}
"""Number of files → the targets of such a table. Other numbers have none."""
MEMO = "manifests.db"


def main() -> int:
    """Prints a table and one line of JSON."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--files", type=int, default=FILES)
    parser.add_argument("--manifests", type=int, help="data manifests; default: one for each 16,667 files")
    parser.add_argument("--without-spark", action="store_true", help="leave Spark's results out")
    parser.add_argument("--worker", choices=WORKERS, help=argparse.SUPPRESS)
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.worker:
        print(json.dumps(WORKERS[given.worker](given.folder)))
        return 0
    return _compare(given.rounds, given.files, given.manifests, with_spark=not given.without_spark)


def _compare(rounds: int, files: int, manifests: int | None, *, with_spark: bool) -> int:
    from bench.metadata.large_table import commit_ten_files, large_table

    folder = large_table(files, manifests)
    names = [name for name in WORKERS if with_spark or "spark" not in name]
    found: dict[str, list[dict[str, Any]]] = {name: [] for name in names}
    with tempfile.TemporaryDirectory(prefix="bench-health-") as scratch:
        before, after, fleet = (Path(scratch) / name for name in ("before", "after", "fleet"))
        for home in (before, after, fleet):
            home.mkdir()
        shutil.copy(folder / "catalog.db", before)
        commit_ten_files(folder, after)
        _make_catalog(fleet)
        homes = {"memo_cold": before, "pointers": fleet, **dict.fromkeys(OF_COMMIT, after)}
        for _ in range(rounds):
            (before / MEMO).unlink(missing_ok=True)
            for name in names:
                found[name].append(_run(name, homes.get(name, folder)))
                if name == "memo_cold":
                    shutil.copy(before / MEMO, after)
    figures = {
        f"{name}_{key}": _median(runs, key)
        for name, runs in found.items()
        for key in FIGURES
        if key in runs[0]
    }
    groups = (
        ("ours", "memo_cold", "spark"),
        ("layout", "spark_layout"),
        ("after_commit", "committed"),
        ("candidates", "memo_candidates"),
    )
    digests = [{run["digest"] for name in group if name in found for run in found[name]} for group in groups]
    equal = all(len(of_group) == 1 for of_group in digests)
    return _report(figures, equal=equal, rounds=rounds, files=files, manifests=manifests)


FIGURES = (
    "cpu_seconds",
    "measure_seconds",
    "peak_mb",
    "grown_mb",
    "estimated_mb",
    "python_mb",
    "seconds",
)


def _median(runs: list[dict[str, Any]], key: str) -> float:
    return float(round(statistics.median(run[key] for run in runs), 3))


def _run(worker: str, folder: Path) -> dict[str, Any]:
    command = [sys.executable, "-m", "bench.metadata.health", "--worker", worker, "--folder", str(folder)]
    run = subprocess.run(command, cwd=PROJECT, stdout=subprocess.PIPE, text=True, check=True)
    return dict(json.loads(run.stdout.splitlines()[-1]))


def _report(figures: dict[str, float], *, equal: bool, rounds: int, files: int, manifests: int | None) -> int:
    from rich.console import Console
    from rich.table import Table

    limits = LIMITS.get(files, {})
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
        ("with an empty memo: CPU s", "memo_cold_measure_seconds"),
        ("  highest resident memory, MB", "memo_cold_peak_mb"),
        ("after a commit of ten files, with the memo: CPU s", "after_commit_measure_seconds"),
        ("  highest resident memory, MB", "after_commit_peak_mb"),
        ("live files of one partition, with the memo: CPU s", "memo_candidates_measure_seconds"),
        ("live files of one partition from manifests: CPU s", "candidates_cpu_seconds"),
        ("  highest resident memory, MB", "candidates_peak_mb"),
        (f"pointers of {TABLES:,} unchanged tables: s", "pointers_seconds"),
        ("  of that, CPU s", "pointers_cpu_seconds"),
    )
    table = Table(f"figure (median of {rounds})", "measured", "limit")
    for title, key in rows:
        if key not in figures:
            continue
        limit = limits.get(key)
        missed = " MISSED" if limit is not None and figures[key] > limit else ""
        table.add_row(title, f"{figures[key]:g}{missed}", "" if limit is None else f"{limit:g}")
    document = {**figures, "files": files, "manifests": manifests, "equal": equal, "limits": limits}
    if "spark_cpu_seconds" in figures:
        ratio = figures["spark_cpu_seconds"] / figures["ours_cpu_seconds"]
        table.add_row("Spark's CPU over ours", f"{ratio:.1f}", "")
        document["spark_over_ours"] = round(ratio, 2)
    table.add_row("results are equal", "yes" if equal else "NO", "yes")
    Console().print(table)
    publish("health", document)
    over = any(figures[f"{name}_grown_mb"] > figures[f"{name}_estimated_mb"] for name in ("ours", "layout"))
    return int(over or not equal or any(figures[key] > limit for key, limit in limits.items()))


def _order() -> Any:
    from iceberg_maint.core.model.table_state import LayoutOrder, SortColumn

    column = SortColumn("c3", 3, "long")
    return LayoutOrder((column,), (column,), sort_order_id=1)


def _layout(folder: Path) -> dict[str, Any]:
    return _ours(folder, _order())


def _ours(folder: Path, order: Any = None) -> dict[str, Any]:
    from dataclasses import replace

    from iceberg_maint.core.health.state_facts import measuring_bytes
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


def _with_memo(folder: Path) -> dict[str, Any]:
    """Measures with the memo of the folder. The seconds are those of the measurement, without imports: pin and measurement."""
    from iceberg_maint.core.policy.data import RewriteDataFilesPolicy

    _import_readers(folder)
    catalog, table = _catalog(folder, with_memo=True)
    began = time.process_time()
    measured = catalog.measure(catalog.pin(table), RewriteDataFilesPolicy())
    measure_seconds = time.process_time() - began
    peak_mb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return {"measure_seconds": measure_seconds, "peak_mb": peak_mb, "digest": _digest(measured)}


def _import_readers(folder: Path) -> None:
    """Imports what a measurement imports: another catalog object pins the table."""
    catalog, table = _catalog(folder)
    catalog.pin(table)


def _committed(folder: Path) -> dict[str, Any]:
    return {"digest": _ours(folder)["digest"]}


def _candidates(folder: Path, *, with_memo: bool = False) -> dict[str, Any]:
    from iceberg_maint.core.model.ids import PartitionKey

    _import_readers(folder)
    catalog, table = _catalog(folder, with_memo=with_memo)
    began = time.process_time()
    files = catalog.live_files(catalog.pin(table), [PartitionKey(CANDIDATES)])
    measure_seconds = time.process_time() - began
    assert files
    used = resource.getrusage(resource.RUSAGE_SELF)
    cpu_seconds, peak_mb = used.ru_utime + used.ru_stime, used.ru_maxrss / 1024
    return {
        "cpu_seconds": cpu_seconds,
        "measure_seconds": measure_seconds,
        "peak_mb": peak_mb,
        "digest": _digest(sorted(files, key=lambda f: f.path)),
    }


def _memo_candidates(folder: Path) -> dict[str, Any]:
    return _candidates(folder, with_memo=True)


def _spark_layout(folder: Path) -> dict[str, Any]:
    return _spark(folder, _order())


def _spark(folder: Path, order: Any = None) -> dict[str, Any]:
    from dataclasses import replace

    from bench.used import peak_mb
    from iceberg_maint.core.policy.data import RewriteDataFilesPolicy
    from iceberg_maint.engines.spark.health.measure import SparkHealthSource
    from iceberg_maint.engines.spark.jvm.bridge import bridge_of
    from iceberg_maint.engines.spark.session.jars import ivy_fetch, load_lock, resolve_jars
    from iceberg_maint.engines.spark.session.java import find_java
    from iceberg_maint.engines.spark.session.session import build_session
    from iceberg_maint.engines.spark.session.settings import SparkSettings, catalog_conf

    java = find_java(os.environ, shim_dir=CACHE / "java")
    os.environ["JAVA_HOME"] = str(java.path)
    jars = resolve_jars(load_lock().jars, CACHE / "jars", ivy_fetch(java))
    lake = catalog_conf("lake", "jdbc", f"sqlite:///{folder / 'catalog.db'}", folder.as_uri(), {})
    conf = {"spark.driver.memory": "2g"}
    settings = SparkSettings("local[2]", tuple(map(str, jars)), {"lake": lake}, conf)
    catalog, table = _catalog(folder)
    spark = build_session(settings)
    state = replace(catalog.pin(table), order=order)
    measured = SparkHealthSource(bridge_of(spark)).measure(state, RewriteDataFilesPolicy())
    jvm = jvm_process(spark)
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
    "memo_cold": _with_memo,
    "after_commit": _with_memo,
    "committed": _committed,
    "candidates": _candidates,
    "memo_candidates": _memo_candidates,
    "pointers": _pointers,
}


OF_COMMIT = ("after_commit", "committed", "candidates", "memo_candidates")
"""What measures the table with one more commit of ten files."""
CANDIDATES = "c2_day=2024-10-05/c1_bucket=0"


def _catalog(folder: Path, *, with_memo: bool = False) -> tuple[Any, Any]:
    from iceberg_maint.catalog.adapter import PyIcebergCatalog
    from iceberg_maint.catalog.manifests.memo import ManifestMemo
    from iceberg_maint.core.model.ids import TableId

    uri = f"sqlite:///{folder / 'catalog.db'}"
    memo = ManifestMemo(folder / MEMO) if with_memo else None
    properties = {"type": "sql", "uri": uri, "warehouse": folder.as_uri()}
    return PyIcebergCatalog("lake", properties, memo), TableId.parse(TABLE)


def _digest(measured: Any) -> str:
    return hashlib.sha256(repr(measured).encode()).hexdigest()


def _make_catalog(folder: Path) -> None:
    """A catalog that lists many tables; only their pointers are read."""
    from pyiceberg.schema import Schema

    from iceberg_maint_tests.support.catalog.table_files import TableFiles, register, spec

    location = TableFiles(folder / "t", Schema(), [spec(0)]).publish()
    for number in range(TABLES):
        register(folder / "catalog.db", f"db.t{number:04d}", location)


if __name__ == "__main__":
    sys.exit(main())
