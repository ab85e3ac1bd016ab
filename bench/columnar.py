"""The columnar strategy against the native one and against Iceberg's stock `rewrite_data_files`, on identical tables.

    python -m bench.columnar [PART...] [--rounds N] [--variants NAME...] [--share F] [--tables FOLDER]

A part is a table: `small` (301 files of 1 MB in seven partitions), `large` (50 of 8 MB), `tiny` (1,000 of 55 KB),
`partitions` (5,000 of 10 KB in 50 partitions). `--share` makes a table with that share of its files. `--tables` keeps the tables in
a folder and takes those that are there. Without a part, all of them run. Each table is rolled back in between, so that
every run rewrites the same files. Fresh JVMs take turns, forwards and backwards. Each rewrites the table three times: the first
run is `cold`, the median of the others `warm`. Figures are CPU seconds of the JVM, of Python and of Spark's Python
workers from planning to commit, with the full proof for ours; the lines on stderr have those of each process. Stock runs through SparkActions with every file
selected; `tuned` adds zstd level 1 and batches of 20,000 rows. Exits 1 below a target.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

PROJECT = Path(__file__).resolve().parent.parent
VARIANTS = ("stock", "tuned", "native", "columnar")
RUNS = ("cold", "warm")
Runs = dict[str, list[dict[str, Any]]]
"""The results of the processes of each variant."""


@dataclass(frozen=True)
class Part:
    """A table of lineitem, and the targets of `columnar`: how many times less CPU than stock it uses in each run, and
    CPU milliseconds per file of a warm run."""

    scale_factor: float
    files: int
    partitions: int
    least_ratios: tuple[float, float]
    most_milliseconds: float | None = None


PARTS = {
    "small": Part(2.0, 301, 7, (4.0, 4.5)),
    "large": Part(2.5, 50, 0, (4.0, 4.5)),
    "tiny": Part(0.33, 1000, 0, (4.0, 4.0)),
    "partitions": Part(0.2, 5000, 50, (6.0, 6.0), 1.6),
}


def main() -> int:
    """Prints a table and one line of JSON for each part."""
    parser = argparse.ArgumentParser()
    parser.add_argument("parts", nargs="*", metavar="PART", default=list(PARTS))
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--variants", nargs="+", choices=VARIANTS, default=list(VARIANTS))
    parser.add_argument("--share", type=float, default=1.0)
    parser.add_argument("--tables", type=Path)
    given = parser.parse_args()
    if unknown := set(given.parts) - set(PARTS):
        parser.error(f"{min(unknown)} is no part. Fix: name one of {', '.join(PARTS)}.")
    missed = [
        _part_misses(name, given.share, given.rounds, given.variants, given.tables) for name in given.parts
    ]
    return int(any(missed))


def _part_misses(name: str, share: float, rounds: int, variants: Sequence[str], tables: Path | None) -> bool:
    whole = PARTS[name]
    files = max(whole.partitions, 1, round(whole.files * share))
    part = replace(whole, scale_factor=whole.scale_factor * share, files=files)
    with tempfile.TemporaryDirectory(prefix="bench-columnar-") as temporary:
        scratch = temporary if tables is None else str(tables / name)
        if tables is None or not (tables / name).exists():
            Path(scratch).mkdir(parents=True, exist_ok=True)
            _child("make", scratch, json.dumps(asdict(part)))
        results: Runs = {variant: [] for variant in variants}
        for turn in range(rounds):
            for variant in variants if turn % 2 == 0 else variants[::-1]:
                result = json.loads(_child(variant, scratch).splitlines()[-1])
                results[variant].append(result)
                print(name, variant, json.dumps(result), file=sys.stderr, flush=True)
    return _report(name, part, results)


def _child(what: str, folder: str, *more: str) -> str:
    command = [sys.executable, "-m", "bench.columnar_run", what, folder, *more]
    return subprocess.run(command, check=True, cwd=PROJECT, stdout=subprocess.PIPE, text=True).stdout


def _report(name: str, part: Part, results: Runs) -> bool:
    """Prints the figures of one part. Returns whether `columnar` misses a target."""
    from rich.console import Console
    from rich.table import Table

    cpu = {
        variant: [statistics.median(r[run]["cpu_seconds"] for r in runs) for run in RUNS]
        for variant, runs in results.items()
    }
    first = next(iter(results.values()))[0]
    table = Table(
        "strategy", "cold CPU s", "stock/it", "warm CPU s", "stock/it", "warm wall s", "ms per file", "MB out"
    )
    for variant, runs in results.items():
        wall = statistics.median(r["warm"]["wall_seconds"] for r in runs)
        ratios = [cpu["stock"][i] / cpu[variant][i] if "stock" in cpu else 0.0 for i in range(2)]
        table.add_row(
            variant, f"{cpu[variant][0]:.1f}", f"{ratios[0]:.2f}", f"{cpu[variant][1]:.1f}", f"{ratios[1]:.2f}",
            f"{wall:.1f}", f"{1000 * cpu[variant][1] / first['input_files']:.2f}",
            f"{runs[0]['output_bytes'] / 1e6:.1f}",
        )  # fmt: skip
    console = Console()
    size = f"{first['input_files']} files, {first['input_bytes'] / 1e6:.0f} MB, {first['records']} rows"
    console.print(f"{name}: {size}")
    console.print(table)
    missed = _missed(part, cpu, first["input_files"])
    for line in missed:
        console.print(f"MISSED {line}")
    rounded = {v: [round(s, 2) for s in seconds] for v, seconds in cpu.items()}
    rounds = len(next(iter(results.values())))
    print(json.dumps({"part": name, "cpu_seconds": rounded, "rounds": rounds, "missed": missed}), flush=True)
    return bool(missed)


def _missed(part: Part, cpu: dict[str, list[float]], files: int) -> list[str]:
    if not {"stock", "columnar"} <= cpu.keys():
        return []
    missed = []
    for run, target, stock, ours in zip(RUNS, part.least_ratios, cpu["stock"], cpu["columnar"], strict=True):
        if stock / ours < target:
            missed.append(f"{run}: {stock / ours:.2f} times, target {target:g}")
    each = 1000 * cpu["columnar"][1] / files
    if part.most_milliseconds is not None and each > part.most_milliseconds:
        missed.append(f"{each:.2f} ms per file, target {part.most_milliseconds:g}")
    return missed


if __name__ == "__main__":
    raise SystemExit(main())
