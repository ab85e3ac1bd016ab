"""A fleet of small tables: what `observe` and `tables` cost cold, unchanged, and after some commits; and one
table of many files, cold and after a commit of ten files.

    python -m bench.fleet [--tables 1000] [--rounds 3] [--large-files 200000]

Every pass is a process of its own. CPU seconds include its start and imports; `pass` rows are of the pass
alone, without start and output. Exits 1 when a target is missed.
"""

from __future__ import annotations

import argparse
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
from typing import Any, cast

PROJECT = Path(__file__).resolve().parent.parent
DATA = Path(__file__).parent / ".data"
FILES, PARTITIONS, COMMITS = 12, 4, 2
CHANGED = 100
LARGE = "db.many"
LARGE_DAYS, LARGE_BUCKETS, LARGE_MANIFESTS = 500, 10, 60
_FIRST_MS = 1_728_000_000_000


def main() -> int:
    """Prints a table and one line of JSON."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--tables", type=int, default=1000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--large-files", type=int, default=200_000)
    parser.add_argument("--worker", choices=WORKERS, help=argparse.SUPPRESS)
    parser.add_argument("--config", type=Path, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.worker:
        print(json.dumps(WORKERS[given.worker](given.config)))
        return 0
    return _compare(given.tables, given.rounds, given.large_files)


def limits(tables: int) -> dict[str, float]:
    """The targets: CPU seconds at 10,000 tables, in proportion, with the second that a start costs."""
    scale = tables / 10_000
    return {
        "observe_pass_unchanged": 0.5 * scale,
        "tables_unchanged": 1 + 3 * scale,
        "observe_cold": 1 + 60 * scale,
        "assess": 600 * scale,
        "large_measure_after_commit": 1.0,
        "large_live_files_of_one_partition": 1.0,
    }


def _compare(tables: int, rounds: int, files: int) -> int:
    runs: dict[str, list[float]] = {}

    def note(name: str, seconds: float) -> None:
        runs.setdefault(name, []).append(seconds)

    for _ in range(rounds):
        with tempfile.TemporaryDirectory(prefix="bench-fleet-") as scratch:
            home = Path(scratch)
            make_fleet_catalog(home, tables)
            config = write_config(home)
            note("assess", _command(config, "assess"))
            note("observe_cold", _command(config, "observe"))
            note("observe_unchanged", _command(config, "observe"))
            note("observe_pass_unchanged", _run("look", config)["cpu_seconds"])
            note("tables_unchanged", _command(config, "tables"))
            change(home, min(CHANGED, tables))
            note("observe_changed", _command(config, "observe"))
        with tempfile.TemporaryDirectory(prefix="bench-fleet-") as scratch:
            home = Path(scratch)
            config = large_copy(home, files)
            for name, seconds in _run("large", config)["cpu"].items():
                note(f"large_{name}", seconds)
            commit_ten_files(home, files)
            again = _run("large", config)
            note("large_measure_after_commit", again["cpu"]["measure"])
            note("large_peak_mb", again["peak_mb"])
    figures = {name: round(statistics.median(seconds), 3) for name, seconds in runs.items()}
    return _report(figures, tables, rounds, files)


def _report(figures: dict[str, float], tables: int, rounds: int, files: int) -> int:
    from rich.console import Console
    from rich.table import Table

    targets = limits(tables)
    table = Table(f"{tables:,} tables, {files:,} files (median of {rounds})", "CPU s", "limit")
    missed = [name for name, limit in targets.items() if figures[name] > limit]
    for name, value in figures.items():
        mark = " MISSED" if name in missed else ""
        table.add_row(
            name.replace("_", " "),
            f"{value:g}{mark}",
            f"{targets.get(name, ''):g}" if name in targets else "",
        )
    Console().print(table)
    print(json.dumps({**figures, "limits": targets, "missed": missed}))
    return int(bool(missed))


def _command(config: Path, command: str) -> float:
    """Runs a command with its JSON thrown away. Returns the CPU seconds of its process."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    environ = {**os.environ, "ICEBERG_MAINT_CONFIG": str(config)}
    subprocess.run(
        [sys.executable, "-m", "iceberg_maint", command, "--json"],
        cwd=PROJECT,
        env=environ,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        check=True,
    )
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def _run(worker: str, config: Path) -> dict[str, Any]:
    command = [sys.executable, "-m", "bench.fleet", "--worker", worker, "--config", str(config)]
    run = subprocess.run(command, cwd=PROJECT, stdout=subprocess.PIPE, text=True, check=True)
    found: dict[str, Any] = json.loads(run.stdout.splitlines()[-1])
    return found


def _look(config: Path) -> dict[str, Any]:
    from iceberg_maint.runner.unchanged import unchanged_tables
    from iceberg_maint.wiring import load

    runtime = load(config)
    tables = runtime.tables()
    runtime.ledger.now_ms()
    start = time.process_time()
    unchanged = unchanged_tables(tables, runtime)
    used = time.process_time() - start
    assert len(unchanged) == len(tables), (len(unchanged), len(tables))
    return {"cpu_seconds": used}


def _large(config: Path) -> dict[str, Any]:
    from iceberg_maint.core.model.ids import TableId
    from iceberg_maint.core.policy.data import RewriteDataFilesPolicy
    from iceberg_maint.wiring import load

    runtime = load(config)
    table = TableId.parse(f"lake.{LARGE}")
    catalog = runtime.catalog_of(table)
    cpu: dict[str, float] = {}

    def timed(name: str, work: Callable[[], Any]) -> Any:
        start = time.process_time()
        value = work()
        cpu[name] = time.process_time() - start
        return value

    state = catalog.pin(table)
    measured = timed("measure", lambda: catalog.measure(state, RewriteDataFilesPolicy()))
    key = next(iter(measured.partitions))
    timed("live_files_of_one_partition", lambda: catalog.live_files(state, [key]))
    return {"cpu": cpu, "peak_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024}


WORKERS: dict[str, Callable[[Path], dict[str, Any]]] = {"look": _look, "large": _large}


def write_config(home: Path) -> Path:
    """Writes a configuration with this catalog and a ledger beside it."""
    path = home / "iceberg_maint.yaml"
    path.write_text(
        "catalogs:\n  lake:\n    type: jdbc\n"
        f"    uri: sqlite:///{home / 'catalog.db'}\n    warehouse: {home.as_uri()}\n"
        f"ledger: sqlite:///{home / 'ledger.db'}\n"
    )
    return path


def fleet(tables: int) -> Path:
    """The folder with the metadata of this many tables; made on first use."""
    folder = DATA / f"fleet-{tables}"
    stamp = folder / "complete"
    if not stamp.is_file():
        shutil.rmtree(folder, ignore_errors=True)
        for number in range(tables):
            small_table(folder / "lake", number).publish()
        stamp.touch()
    return folder


def small_table(folder: Path, number: int, commits: int = COMMITS) -> Any:
    """A table of few files in four partitions. The name of its files and its UUID follow from `number`."""
    import uuid

    from pyiceberg.schema import Schema
    from pyiceberg.transforms import IdentityTransform
    from pyiceberg.types import LongType, NestedField

    from iceberg_maint_tests.support.catalog.table_files import TableFiles, spec

    schema = Schema(NestedField(1, "id", LongType(), required=False))
    by = spec(0, (1, 1000, IdentityTransform(), "id"))
    table = TableFiles(folder / f"t{number:05d}", schema, [by], table_uuid=str(uuid.UUID(int=number + 1)))
    manifests = []
    for commit in range(1, commits + 1):
        manifests.append(_small_manifest(number, commit, by))
        table.commit(manifests, snapshot_id=commit, sequence_number=commit, timestamp_ms=_FIRST_MS + commit)
    return table


def _small_manifest(number: int, commit: int, by: Any) -> Any:
    from iceberg_maint_tests.support.catalog.table_files import File, ManifestFile

    files = tuple(
        File(f"file:///t{number}/{commit}-{n}.parquet", (n % PARTITIONS,), 10, 600 << 20)
        for n in range(FILES)
    )
    return ManifestFile(files, by, commit, commit)


def make_fleet_catalog(home: Path, tables: int) -> None:
    """Makes a catalog in `home` of the tables, whose metadata stay where they were made."""
    made = fleet(tables)
    from iceberg_maint_tests.support.catalog.table_files import register

    register(home / "catalog.db", "db.t00000", _pointer(made, 0))
    import sqlite3
    from contextlib import closing

    with closing(sqlite3.connect(home / "catalog.db")) as connection, connection:
        connection.executemany(
            "INSERT OR REPLACE INTO iceberg_tables VALUES ('lake', 'db', ?, ?, NULL, 'TABLE')",
            [(f"t{n:05d}", _pointer(made, n)) for n in range(tables)],
        )


def _pointer(made: Path, number: int, version: int = 1) -> str:
    return (made / "lake" / f"t{number:05d}" / "metadata" / f"{version:05d}.metadata.json").as_uri()


def change(home: Path, tables: int) -> None:
    """Commits once more to the first of the tables."""
    from iceberg_maint_tests.support.catalog.table_files import register

    for number in range(tables):
        location = small_table(home / "changed", number, COMMITS + 1).publish()
        register(home / "catalog.db", f"db.t{number:05d}", location)


def _large_table(folder: Path, files: int) -> tuple[Any, list[Any], Any]:
    from pyiceberg.schema import Schema
    from pyiceberg.transforms import BucketTransform, DayTransform
    from pyiceberg.types import LongType, NestedField, TimestampType

    from iceberg_maint_tests.support.catalog.table_files import File, ManifestFile, TableFiles, spec

    columns = [
        NestedField(1, "id", LongType(), required=False),
        NestedField(2, "at", TimestampType(), required=False),
    ]
    schema = Schema(*columns, *(NestedField(i, f"c{i}", LongType(), required=False) for i in range(3, 17)))
    by = spec(0, (2, 1000, DayTransform(), "at_day"), (1, 1001, BucketTransform(LARGE_BUCKETS), "id_bucket"))
    table = TableFiles(folder / "many", schema, [by], table_uuid="00000000-0000-0000-0000-00000000abcd")
    partitions = [(20_000 + day, bucket) for day in range(LARGE_DAYS) for bucket in range(LARGE_BUCKETS)]

    def manifest(at: int, first: int, last: int) -> Any:
        entries = tuple(
            File(
                f"{table.folder.as_uri()}/data/{n:08d}.parquet",
                partitions[n % files * len(partitions) // files],
                1000 + n % 7,
                (1 + n % 200) << 20,
                lower_bounds={i: (n * i).to_bytes(8, "little") for i in range(1, 17)},
                upper_bounds={i: (n * i + 9).to_bytes(8, "little") for i in range(1, 17)},
            )
            for n in range(first, last)
        )
        return ManifestFile(entries, by, at + 1, at + 1)

    each = -(-files // LARGE_MANIFESTS)
    ranges = [(at, at * each, min(files, (at + 1) * each)) for at in range(LARGE_MANIFESTS)]
    return table, ranges, manifest


def large_table(files: int) -> Path:
    """The folder with one table of many files; made on first use. Its manifests have partition bounds."""
    folder = DATA / f"many-{files}"
    stamp = folder / "complete"
    if not stamp.is_file():
        shutil.rmtree(folder, ignore_errors=True)
        table, ranges, manifest = _large_table(folder, files)
        listed = [table._write_manifest(manifest(*of)) for of in ranges]
        for entry, (_, first, last) in zip(listed, ranges, strict=True):
            entry["partitions"] = _bounds(files, first, last)
        (folder / "listed.json").write_text(json.dumps([_plain(e) for e in listed]))
        stamp.touch()
    return folder


def _bounds(files: int, first: int, last: int) -> Any:
    """Field summaries: the days of the manifest, and every bucket."""
    count = LARGE_DAYS * LARGE_BUCKETS
    days = [20_000 + n % files * count // files // LARGE_BUCKETS for n in (first, last - 1)]
    return [sorted(days), [0, LARGE_BUCKETS - 1]]


def _plain(entry: dict[str, Any]) -> dict[str, Any]:
    return {k: v for k, v in entry.items() if v is not None}


def _summaries(bounds: list[list[int]]) -> Any:
    from pyiceberg.typedef import Record

    return [
        Record(False, False, low.to_bytes(4, "little"), high.to_bytes(4, "little")) for low, high in bounds
    ]


def large_copy(home: Path, files: int) -> Path:
    """A catalog in `home` with the table; its manifests stay where they were made."""
    _publish_large(home, large_table(files), files, extra=None)
    return write_config(home)


def commit_ten_files(home: Path, files: int) -> None:
    """Adds ten files in a manifest of their own."""
    _, _, manifest = _large_table(home, files)
    _publish_large(home, large_table(files), files, extra=manifest(LARGE_MANIFESTS, files, files + 10))


def large_head_of_ten_files(home: Path, files: int) -> None:
    """The table with the snapshot of `large_copy`, and one with ten files more after it."""
    _, _, manifest = _large_table(home, files)
    extra = manifest(LARGE_MANIFESTS, files, files + 10)
    _publish_large(home, large_table(files), files, extra=extra, keep=True)


def _publish_large(home: Path, made: Path, files: int, extra: Any, *, keep: bool = False) -> None:
    from iceberg_maint_tests.support.catalog.table_files import ManifestFile

    table, _, _ = _large_table(home, files)
    listed = json.loads((made / "listed.json").read_text())
    table._count = 0 if extra is None else 1
    rows = [{**entry, "partitions": _summaries(entry["partitions"])} for entry in listed]
    write = table._write_manifest
    fixed = iter(rows)

    def written(of: ManifestFile | None) -> dict[str, Any]:
        return (
            next(fixed)
            if of is None
            else {**write(of), "partitions": _summaries(_bounds(files, files, files + 10))}
        )

    table._write_manifest = written
    if keep:
        fixed = iter([*rows, *rows])
        table.commit(
            cast("Any", [None] * len(rows)),
            snapshot_id=LARGE_MANIFESTS,
            sequence_number=LARGE_MANIFESTS,
            timestamp_ms=_FIRST_MS + LARGE_MANIFESTS,
        )
    manifests: list[Any] = [None] * len(rows) + ([] if extra is None else [extra])
    number = LARGE_MANIFESTS if extra is None else LARGE_MANIFESTS + 1
    table.commit(manifests, snapshot_id=number, sequence_number=number, timestamp_ms=_FIRST_MS + number)
    table.register(home / "catalog.db", LARGE)


if __name__ == "__main__":
    sys.exit(main())
