"""Looking for orphans among 100,000 files against stock `remove_orphan_files`, and among 1,000,000 paths.

    python -m bench.removal.orphans [--rounds N]

Fresh processes take turns on one table on the local disk: 500 snapshots, 2,000 manifests, 100,000 data files and
1,000 orphans among them. Ours is a whole process; of stock's dry run the session's start is told apart. Both must
find the same orphans. A million paths come from a store that makes them up, so that the comparison alone is measured. An S3 endpoint in another process makes up
1,000,000 objects in the trash, which are swept: `--part s3` measures only these. `bench.removal.orphan_scan` scans as many.
CPU seconds are those of the process and its JVM. Exits 1 when a target is missed or the orphans differ.
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
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from bench.record import publish
from bench.removal.orphan_table import DATA, FILES, make
from bench.removal.scanned_store import (
    MADE_UP,
    TABLE,
    Reached,
    digest_of_paths,
    made_up_store,
    process_start,
    scanned,
    table_state,
)
from bench.used import jvm_process
from bench.worker import PROJECT

CACHE = PROJECT / ".cache"
PATHS, MADE_UP_ORPHANS = 1_000_000, 10_000
LIMITS = {
    "million_peak_mb": 1024.0,
    "s3_sweep_deletes": 1_000.0,
    "s3_sweep_over_baseline_mb": 200.0,
}
LEAST = {"stock_action_cpu_over_ours": 2.0, "stock_action_seconds_over_ours": 1.0}


def main() -> int:
    """Prints a table and one line of JSON."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--part", choices=("all", "s3"), default="all")
    parser.add_argument("--worker", choices=WORKERS, help=argparse.SUPPRESS)
    parser.add_argument("--objects", type=int, default=PATHS, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.worker:
        worker = WORKERS[given.worker]
        print(json.dumps(worker(given.objects) if given.worker.startswith("s3_") else worker()))
        return 0
    return _compare(given.rounds) if given.part == "all" else _s3_only(given.rounds)


def _s3_only(rounds: int) -> int:
    return _report(_medians(_runs(rounds, ("s3_sweep",))), equal=True, rounds=rounds)


def _runs(rounds: int, workers: Iterable[str]) -> dict[str, list[dict[str, Any]]]:
    found: dict[str, list[dict[str, Any]]] = {name: [] for name in workers}
    for _ in range(rounds):
        for name, results in found.items():
            command = [sys.executable, "-m", "bench.removal.orphans", "--worker", name]
            run = subprocess.run(command, cwd=PROJECT, stdout=subprocess.PIPE, text=True, check=True)
            results.append(json.loads(run.stdout.splitlines()[-1]))
    return found


def _medians(found: dict[str, list[dict[str, Any]]]) -> dict[str, float]:
    return {
        f"{name}_{key}": round(statistics.median(run[key] for run in runs), 3)
        for name, runs in found.items()
        for key in runs[0]
        if key != "digest"
    }


def _compare(rounds: int) -> int:
    make()
    found = _runs(rounds, WORKERS)
    figures = _medians(found)
    for kind in ("cpu", "seconds"):
        ours = figures["ours_cpu_seconds" if kind == "cpu" else "ours_seconds"]
        action = figures["stock_action_cpu_seconds" if kind == "cpu" else "stock_action_seconds"]
        figures[f"stock_action_{kind}_over_ours"] = round(action / ours, 2)
    digests = {run["digest"] for name in ("ours", "stock") for run in found[name]}
    return _report(figures, equal=len(digests) == 1, rounds=rounds)


def _report(figures: dict[str, float], *, equal: bool, rounds: int) -> int:
    from rich.console import Console
    from rich.table import Table

    rows = (
        (f"orphans among {FILES:,} files: s, start included", "ours_seconds"),
        ("  CPU s", "ours_cpu_seconds"),
        ("  highest resident memory, MB", "ours_peak_mb"),
        ("stock remove_orphan_files, dry run: s, session's start included", "stock_seconds"),
        ("  s of the action alone", "stock_action_seconds"),
        ("  CPU s, session's start included", "stock_cpu_seconds"),
        ("  CPU s of the action alone", "stock_action_cpu_seconds"),
        ("  highest resident memory, MB", "stock_peak_mb"),
        ("stock's action over our process: CPU", "stock_action_cpu_over_ours"),
        ("  s", "stock_action_seconds_over_ours"),
        (f"orphans among {PATHS:,} paths: s", "million_seconds"),
        ("  CPU s", "million_cpu_seconds"),
        ("  highest resident memory, MB", "million_peak_mb"),
        ("  scratch on disk, MB", "million_scratch_mb"),
        *(
            (f"{'  ' * (key != 'seconds')}{text}", f"s3_sweep_{key}")
            for text, key in (
                (f"sweep of {PATHS:,} S3 objects: s", "seconds"),
                ("CPU s", "cpu_seconds"),
                ("LIST requests", "lists"),
                ("DELETE requests", "deletes"),
                ("memory above that of the start, MB", "over_baseline_mb"),
            )
        ),
    )
    table = Table(f"figure (median of {rounds})", "measured", "target")
    missed = not equal
    for title, key in rows:
        if key not in figures:
            continue
        most, least = LIMITS.get(key), LEAST.get(key)
        bad = (most is not None and figures[key] > most) or (least is not None and figures[key] < least)
        missed |= bad
        target = (
            f"at most {most:g}" if most is not None else f"at least {least:g}" if least is not None else ""
        )
        table.add_row(title, f"{figures[key]:g}{' MISSED' if bad else ''}", target)
    table.add_row("the same orphans are found", "yes" if equal else "NO", "yes")
    Console().print(table)
    publish("orphans", {**figures, "equal": equal, "limits": LIMITS, "least": LEAST})
    return int(missed)


def _ours() -> dict[str, Any]:
    from iceberg_maint.catalog.adapter import PyIcebergCatalog
    from iceberg_maint.catalog.local_store import LocalStore
    from iceberg_maint.catalog.location_owners import FleetLocationOwners
    from iceberg_maint.catalog.reachable_files import MetadataWalk
    from iceberg_maint.core.model.ids import TableId
    from iceberg_maint_tests.support.catalog.claim_memory import ClaimMemory

    uri, table = f"sqlite:///{DATA / 'catalog.db'}", TableId.parse(TABLE)
    claims: Any = ClaimMemory()
    catalog = PyIcebergCatalog(
        "lake", {"type": "sql", "uri": uri, "warehouse": (DATA / "warehouse").as_uri()}
    )
    return scanned(
        catalog.pin(table),
        others=FleetLocationOwners({"lake": catalog}, claims).others,
        store=lambda _state: LocalStore(),
        reachability=lambda state: MetadataWalk(catalog, state.table, state.uuid),
    )


def _million() -> dict[str, Any]:
    from iceberg_maint.catalog.local_store import LocalStore
    from iceberg_maint.ports.storage import StoredFile

    with tempfile.TemporaryDirectory(prefix="bench-orphans-") as folder:
        location = f"file://{folder}"

        def path(n: int) -> str:
            return (
                f"{location}/data/day=2026-01-{n % 28:02d}/{n % 997:03d}/{n:08d}-0-4f0d6c1e-{n:012x}.parquet"
            )

        class Store(LocalStore):
            def list(self, prefix: str) -> Iterator[StoredFile]:
                if prefix == location:
                    yield from (StoredFile(path(n), 1, 1) for n in range(PATHS))

        found = scanned(
            table_state(location),
            others=lambda _table: (),
            store=lambda _state: Store(),
            reachability=lambda _state: Reached(location, lambda: map(path, range(PATHS - MADE_UP_ORPHANS))),
        )
        del found["digest"]
        return found


def _s3_sweep(objects: int) -> dict[str, Any]:
    """The sweep of so many objects of an S3 endpoint in another process that makes them up. Only listings and deletions
    are requests: the trash manifest and the store's clock are made up here. `bench.removal.orphan_scan` measures scans."""
    from bench.removal.made_up_s3 import MARK, name
    from iceberg_maint.catalog.s3_store import S3Store
    from iceberg_maint.core.policy.housekeeping import RemoveOrphanFilesPolicy
    from iceberg_maint.core.removal.orphan_rules import Orphan, TrashBatchHeader
    from iceberg_maint.ports.storage import StoredFile
    from iceberg_maint.removal.remove_orphans import CleanupContext, OrphanRemoval, Scope
    from iceberg_maint.removal.trash_manifest import manifest_lines, manifest_location, trashed_file

    header = TrashBatchHeader(MARK, TABLE, "1", MADE_UP, 1767225600000, 604800, "", "")

    class Store(S3Store):
        def list(self, prefix: str) -> Iterator[StoredFile]:
            if prefix.endswith("/marks"):
                yield StoredFile(manifest_location(header), 1, 1)
            else:
                yield from super().list(prefix)

        def read_lines(self, _path: str) -> Iterator[bytes]:
            orphans = (Orphan(f"{MADE_UP}/{name(n)}", 1, 1) for n in range(objects))
            return manifest_lines(header, (trashed_file(o, MADE_UP, MARK, "") for o in orphans))

        def now_ms(self, _folder: str) -> int:
            return time.time_ns() // 1_000_000

        def tidy(self, _folder: str) -> None:
            pass

        def delete(self, _path: str) -> None:
            pass

    with made_up_store(objects) as (opened, counts):
        store = Store(opened._resolve, opened._properties, opened._region)
        baseline_mb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        started = time.time()
        with tempfile.TemporaryDirectory(prefix="bench-orphans-") as scratch:
            world = CleanupContext(
                others=lambda _table: (),
                store=lambda _state: store,
                reachability=lambda _state: Reached(MADE_UP, lambda: iter(())),
                scratch=Path(scratch),
                now_ms=lambda: time.time_ns() // 1_000_000,
            )
            work = OrphanRemoval(world, Scope(marks=False)).run(
                table_state(MADE_UP),
                RemoveOrphanFilesPolicy(),
                in_flight=frozenset(),
                sweep=True,
                holds=lambda: True,
            )
        assert work.swept_files == objects, work
        used = resource.getrusage(resource.RUSAGE_SELF)
        return {
            "seconds": time.time() - started,
            "cpu_seconds": used.ru_utime + used.ru_stime,
            "over_baseline_mb": used.ru_maxrss / 1024 - baseline_mb,
            "lists": counts()["LIST"],
            "deletes": counts()["DELETE"],
        }


def _stock() -> dict[str, Any]:

    from bench.used import peak_mb
    from iceberg_maint.engines.spark.session.jars import ivy_fetch, load_lock, resolve_jars
    from iceberg_maint.engines.spark.session.java import find_java
    from iceberg_maint.engines.spark.session.session import build_session
    from iceberg_maint.engines.spark.session.settings import SparkSettings, catalog_conf

    java = find_java(os.environ, shim_dir=CACHE / "java")
    os.environ["JAVA_HOME"] = str(java.path)
    jars = resolve_jars(load_lock().jars, CACHE / "jars", ivy_fetch(java))
    lake = catalog_conf("lake", "jdbc", f"sqlite:///{DATA / 'catalog.db'}", (DATA / "warehouse").as_uri(), {})
    spark = build_session(SparkSettings("local[2]", tuple(map(str, jars)), {"lake": lake}))
    jvm = jvm_process(spark)

    def cpu_seconds() -> float:
        used, java_used = resource.getrusage(resource.RUSAGE_SELF), jvm.cpu_times()
        return float(used.ru_utime + used.ru_stime + java_used.user + java_used.system)

    started, cpu_before = time.time(), cpu_seconds()
    older_than = time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime(time.time() - 7 * 86_400))
    rows = spark.sql(
        f"CALL lake.system.remove_orphan_files(table => 'db.t', older_than => TIMESTAMP '{older_than}', dry_run => true)"
    ).collect()
    paths = sorted("file://" + row[0].removeprefix("file:").removeprefix("//") for row in rows)
    found = {
        "seconds": time.time() - process_start(),
        "action_seconds": time.time() - started,
        "cpu_seconds": cpu_seconds(),
        "action_cpu_seconds": cpu_seconds() - cpu_before,
        "peak_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024 + peak_mb(jvm.pid),
        "digest": digest_of_paths(iter(paths)),
    }
    spark.stop()
    return found


WORKERS: Mapping[str, Callable[..., dict[str, Any]]] = {
    "ours": _ours,
    "stock": _stock,
    "million": _million,
    "s3_sweep": _s3_sweep,
}


if __name__ == "__main__":
    sys.exit(main())
