"""A table of 20,000 partitions that are all due, whose 100,000 small files came in one commit.

    python -m bench.all_due [--partitions 20000]

Each command is a process of its own. `run` maintains the whole table. Exits 1 if a command fails, if a partition is not
rewritten exactly once, if a row is lost, if Python exceeds its limit of memory, or if a command that only reads exceeds its
CPU seconds.
"""

from __future__ import annotations

import argparse
import io
import json
import sys
import tempfile
import time
from collections import Counter
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.schema import Schema
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import LongType, NestedField, StringType

from bench.fleet_tables import write_config
from bench.used import peak_mb
from bench.worker import run_worker
from iceberg_maint.engines.spark.session.process_tree import used
from iceberg_maint_tests.support.catalog.table_files import File, ManifestFile, TableFiles, spec

MODULE = "bench.all_due"
TABLE = "lake.db.wide"
FILES_OF_A_PARTITION = 5
ROWS = 4
READ_CPU_SECONDS, PEAK_MB = 60, 2500
SCHEMA = Schema(
    NestedField(1, "p", LongType(), required=False),
    NestedField(2, "id", LongType(), required=False),
    NestedField(3, "v", StringType(), required=False),
)
_BY = spec(0, (1, 1000, IdentityTransform(), "p"))


def main() -> int:
    """Prints a line per command and one line of JSON."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--partitions", type=int, default=20_000)
    parser.add_argument("--worker", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.worker:
        print(json.dumps(_run_command(given.worker.split())))
        return 0
    with tempfile.TemporaryDirectory() as folder:
        return _measure(Path(folder), given.partitions)


def _measure(home: Path, partitions: int) -> int:
    make(home, partitions)
    before = rows(home)
    wrong, figures = [], {}
    for command in ("observe", "tables", f"why {TABLE}", f"plan {TABLE}", f"run {TABLE}", "report"):
        began = time.monotonic()
        result = run_worker(MODULE, command, home)
        name, seconds = command.split()[0], time.monotonic() - began
        cpu = result["cpu_seconds"]
        figures[name] = {
            "seconds": round(seconds),
            "cpu_seconds": round(cpu, 1),
            "peak_mb": round(result["peak_mb"]),
        }
        print(f"{name}: {figures[name]}", flush=True)
        if result["code"]:
            wrong.append(f"{name} ended with {result['code']}")
        if name == "run":
            wrong += _faults_of_run(result["document"], partitions)
        elif cpu > READ_CPU_SECONDS:
            wrong.append(f"{name} took {cpu:.0f} CPU s of {READ_CPU_SECONDS}")
        if result["peak_mb"] > PEAK_MB:
            wrong.append(f"{name} took {result['peak_mb']:.0f} MB of {PEAK_MB}")
    if rows(home) != before:
        wrong.append(f"rows before {before}, after {rows(home)}")
    print(json.dumps({"partitions": partitions, "commands": figures, "wrong": wrong}))
    return int(bool(wrong))


def make(home: Path, partitions: int) -> None:
    """Writes the table with one commit, and its configuration."""
    table = TableFiles(home / "wh" / "db" / "wide", SCHEMA, [_BY])
    files = []
    for partition in range(partitions):
        folder = table.folder / "data" / f"p={partition}"
        folder.mkdir(parents=True)
        for number in range(FILES_OF_A_PARTITION):
            path, first = folder / f"{number}.parquet", (partition * FILES_OF_A_PARTITION + number) * ROWS
            pq.write_table(_rows(partition, first), path)
            files.append(File(f"file://{path}", (partition,), ROWS, path.stat().st_size, split_offsets=(4,)))
    manifest = ManifestFile(tuple(files), _BY, 1, 1)
    table.commit([manifest], snapshot_id=1, sequence_number=1, timestamp_ms=1_728_000_000_000)
    table.register(home / "catalog.db", "db.wide")
    with write_config(home).open("a", encoding="utf-8") as config:
        config.write("defaults: {windows: {max_partitions_per_run: null, max_partitions_per_batch: 1000}}\n")


def _rows(partition: int, first: int) -> pa.Table:
    ids = range(first, first + ROWS)
    return pa.table([[partition] * ROWS, list(ids), [f"v{i}" for i in ids]], schema=_ARROW)


_ARROW = pa.schema(
    [
        pa.field(name, kind, metadata={"PARQUET:field_id": str(number)})
        for number, (name, kind) in enumerate((("p", pa.int64()), ("id", pa.int64()), ("v", pa.string())), 1)
    ]
)


def rows(home: Path) -> tuple[int, int, int]:
    """Count of the table's rows, and two sums that tie each value to its row."""
    from iceberg_maint_tests.support.e2e.lake import catalog_of

    paths = [
        t.file.file_path.removeprefix("file://")
        for t in catalog_of(home).load_table("db.wide").scan().plan_files()
    ]
    count = total = tied = 0
    for path in paths:
        part = pq.ParquetFile(path).read().to_pydict()
        count += len(part["id"])
        total += sum(part["id"])
        tied += sum(p * i + int(v[1:]) ** 2 for p, i, v in zip(part["p"], part["id"], part["v"], strict=True))
    return count, total, tied


def _faults_of_run(document: dict[str, Any], partitions: int) -> list[str]:
    [table] = document["tables"]
    batches = [
        b
        for o in table["operations"]
        if o["operation"] == "rewrite_data_files"
        for b in o["batches"]
        if b["snapshot_after"] is not None
    ]
    times = Counter(p for b in batches for p in b["partitions"])
    print(f"{len(batches)} batches, {len(times)} partitions", flush=True)
    if len(times) == partitions and set(times.values()) == {1}:
        return []
    return [f"{len(times)} of {partitions} partitions rewritten, {sorted(set(times.values()))} times"]


def _run_command(words: list[str]) -> dict[str, Any]:
    """Runs a command of the program in this process. Returns its exit code, its document, the peak of Python, and the CPU
    seconds of all processes."""
    import os

    from iceberg_maint.cli import iceberg_maint as program

    out, code = io.StringIO(), 0
    with redirect_stdout(out):
        try:
            code = program.main([*words, "--json"], standalone_mode=False) or 0
        except SystemExit as ended:
            code = int(ended.code or 0)
    document = json.loads(out.getvalue())
    return {
        "code": code,
        "document": document,
        "peak_mb": peak_mb(os.getpid()),
        "cpu_seconds": used().total(),
    }


if __name__ == "__main__":
    sys.exit(main())
