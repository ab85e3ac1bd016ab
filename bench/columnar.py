"""The columnar strategy against the native one and against Iceberg's stock `rewrite_data_files`, on identical tables.

    python -m bench.columnar [--rounds N] [--tables NAME...]

Each table is rolled back in between, so that every run rewrites the same files. Fresh JVMs take turns, forwards and
backwards. Each rewrites the table twice: the first run is `cold`, the second `warm`. Figures are CPU seconds of the
JVM, of Python and of Spark's Python workers from planning to commit, with the full proof for ours. Stock runs through
SparkActions with every file selected; `tuned` adds zstd level 1 and batches of 20,000 rows. Exits 1 below a target.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from bench import native
from bench.used import tree_cpu_seconds

PROJECT = Path(__file__).resolve().parent.parent
VARIANTS = ("stock", "tuned", "native", "columnar")
RUNS = ("cold", "warm")


@dataclass(frozen=True)
class Shape:
    """A table of lineitem, and how many times less CPU than stock `columnar` must use in each run."""

    scale_factor: float
    files: int
    targets: tuple[float, float]
    milliseconds_per_file: float | None = None


SHAPES = {
    "small": Shape(2.0, 300, (4.0, 4.5)),
    "large": Shape(2.0, 50, (4.0, 4.5)),
    "tiny": Shape(0.33, 1000, (4.0, 4.0), 1.6),
}


def main() -> int:
    """Prints a table and one line of JSON for each shape."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--tables", nargs="+", choices=SHAPES, default=list(SHAPES))
    parser.add_argument("--variants", nargs="+", choices=VARIANTS, default=list(VARIANTS))
    parser.add_argument("--run", choices=("make", *VARIANTS), help=argparse.SUPPRESS)
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.run:
        [shape] = given.tables
        if given.run == "make":
            native._make(given.folder, SHAPES[shape].scale_factor, SHAPES[shape].files)
        else:
            print(json.dumps(_measure(given.folder, given.run)))
        return 0
    missed = False
    for name in given.tables:
        with tempfile.TemporaryDirectory(prefix="bench-columnar-") as scratch:
            _child("make", name, Path(scratch))
            found: dict[str, list[dict[str, Any]]] = {variant: [] for variant in given.variants}
            for turn in range(given.rounds):
                for variant in given.variants if turn % 2 == 0 else given.variants[::-1]:
                    found[variant].append(json.loads(_child(variant, name, Path(scratch)).splitlines()[-1]))
                    print(name, variant, found[variant][-1], file=sys.stderr, flush=True)
        missed |= _report(name, SHAPES[name], found)
    return int(missed)


def _child(what: str, shape: str, folder: Path) -> str:
    command = [
        sys.executable,
        "-m",
        "bench.columnar",
        "--run",
        what,
        "--tables",
        shape,
        "--folder",
        str(folder),
    ]
    return subprocess.run(command, check=True, cwd=PROJECT, stdout=subprocess.PIPE, text=True).stdout


def _report(name: str, shape: Shape, found: dict[str, list[dict[str, Any]]]) -> bool:
    """Prints the figures of one table. Returns whether `columnar` misses a target."""
    from rich.console import Console
    from rich.table import Table

    first = next(iter(found.values()))[0]
    cpu = {
        v: [statistics.median(r[run]["cpu_seconds"] for r in runs) for run in RUNS]
        for v, runs in found.items()
    }
    table = Table(
        "strategy", "cold CPU s", "stock/it", "warm CPU s", "stock/it", "warm wall s", "ms per file"
    )
    for variant, runs in found.items():
        wall = statistics.median(r["warm"]["wall_seconds"] for r in runs)
        ratios = [cpu["stock"][i] / cpu[variant][i] if "stock" in cpu else 0.0 for i in range(2)]
        table.add_row(
            variant, f"{cpu[variant][0]:.1f}", f"{ratios[0]:.2f}", f"{cpu[variant][1]:.1f}", f"{ratios[1]:.2f}",
            f"{wall:.1f}", f"{1000 * cpu[variant][1] / first['input_files']:.2f}",
        )  # fmt: skip
    megabytes = first["input_bytes"] / 1e6
    console = Console()
    console.print(f"{name}: {first['input_files']} files, {megabytes:.0f} MB, {first['records']} rows")
    console.print(table)
    missed = []
    if "stock" in cpu and "columnar" in cpu:
        for run, target, stock, ours in zip(RUNS, shape.targets, cpu["stock"], cpu["columnar"], strict=True):
            if stock / ours < target:
                missed.append(f"{run}: {stock / ours:.2f} times, target {target:g}")
        each = 1000 * cpu["columnar"][1] / first["input_files"]
        if shape.milliseconds_per_file is not None and each > shape.milliseconds_per_file:
            missed.append(f"{each:.2f} ms per file, target {shape.milliseconds_per_file:g}")
    for line in missed:
        console.print(f"MISSED {line}")
    rounded = {v: [round(s, 2) for s in seconds] for v, seconds in cpu.items()}
    print(json.dumps({"table": name, "cpu_seconds": rounded, "missed": missed}), flush=True)
    return bool(missed)


# in a process of its own


def _measure(folder: Path, variant: str) -> dict[str, Any]:
    spark = native._session(folder)
    run = _variant(spark, folder, variant)
    table = run.bridge.load_table(native.TABLE)
    start = int(table.currentSnapshot().snapshotId())
    summary = table.currentSnapshot().summary()
    result: dict[str, Any] = {
        "input_files": int(summary.get("total-data-files")),
        "input_bytes": int(summary.get("total-files-size")),
        "records": int(summary.get("total-records")),
    }
    for name in RUNS:
        before_cpu, before = tree_cpu_seconds(), time.monotonic()
        outputs = run.rewrite(native.TABLE)
        wall, cpu = time.monotonic() - before, tree_cpu_seconds() - before_cpu
        written = run.bridge.load_table(native.TABLE).currentSnapshot().summary()
        assert int(written.get("total-records")) == result["records"]
        result[name] = {
            "cpu_seconds": round(cpu, 2),
            "wall_seconds": round(wall, 2),
            "output_files": outputs,
            "output_bytes": int(written.get("total-files-size")),
        }
        run.bridge.load_table(native.TABLE).manageSnapshots().setCurrentSnapshot(start).commit()
    spark.stop()
    return result


def _variant(spark: Any, folder: Path, variant: str) -> Any:
    from iceberg_maint.core.policy.data import RewriteStrategy

    if variant == "stock":
        return native._Stock(spark)
    if variant == "tuned":
        spark.conf.set("spark.sql.iceberg.compression-level", "1")
        spark.conf.set("spark.sql.iceberg.vectorization.batch-size", "20000")
        return native._Stock(spark)
    run = native._Native(spark, folder, "full")
    run.policy = replace(run.policy, strategy=RewriteStrategy(variant))
    return run


if __name__ == "__main__":
    raise SystemExit(main())
