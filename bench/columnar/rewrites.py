"""The columnar strategy against the native one and against Iceberg's stock `rewrite_data_files`, on identical tables.

    python -m bench.columnar.rewrites [PART...] [--rounds N] [--variants NAME... --no-targets] [--share F] [--tables FOLDER]

A part is a table: `small` (301 files of 1 MB in seven partitions), `encoded` (the same, but no page can be copied: the
files have another codec than the table), `large` (50 of 8 MB), `tiny` (1,000 of 55 KB), `partitions` (5,000 of 10 KB in
50 partitions), `wide` (100 of 1 MB: texts of 200 to 2,000 characters, with few and with many values), `nested` (100 of
1 MB: structs, lists, maps). `wide` and `nested` have no targets. The part `proof` is what the proof costs
(`bench.columnar.proof`). Without a part, all of them run.

`--share` makes a table with that share of its files. `--tables` keeps the tables in a folder and takes those that are
there. Each table is rolled back in between, so that every run rewrites the same files. Fresh JVMs take turns, forwards
and backwards. Each rewrites the table three times: the first run is `cold`, the median of the others `warm`. Figures
are CPU seconds of the JVM, of Python and of Spark's Python workers from planning to commit, with the full proof for
ours; the lines on stderr have those of each process. Stock runs through SparkActions with every file selected; `tuned`
adds zstd level 1 and batches of 20,000 rows. All variants start with the archive of Java's classes in the cache. Exits 1 below a target. Variants without `stock` or `columnar` need
`--no-targets`, which prints figures and checks nothing.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bench.columnar.proof import proof_misses
from bench.columnar.tables import PARTS, Part, table_of
from bench.record import publish

PROJECT = Path(__file__).resolve().parents[2]
VARIANTS = ("stock", "tuned", "native", "columnar")
RUNS = ("cold", "warm")
PROOF = "proof"
Runs = dict[str, list[dict[str, Any]]]
"""The results of the processes of each variant."""


def main() -> int:
    """Prints a table and one line of JSON for each part."""
    parser = argparse.ArgumentParser()
    parser.add_argument("parts", nargs="*", metavar="PART", default=[*PARTS, PROOF])
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--variants", nargs="+", choices=VARIANTS, default=list(VARIANTS))
    parser.add_argument("--no-targets", action="store_true")
    parser.add_argument("--share", type=float, default=1.0)
    parser.add_argument("--tables", type=Path)
    given = parser.parse_args()
    if unknown := set(given.parts) - {*PARTS, PROOF}:
        parser.error(f"{min(unknown)} is no part. Fix: name one of {', '.join([*PARTS, PROOF])}.")
    if not given.no_targets and not {"stock", "columnar"} <= set(given.variants):
        parser.error(
            "targets compare columnar with stock. Fix: name both in --variants, or add --no-targets."
        )
    checks = not given.no_targets
    missed: list[str] = []
    for name in given.parts:
        if name == PROOF:
            missed += proof_misses(given.share, given.tables, checks=checks)
        else:
            with table_of(name, given.share, given.tables) as folder:
                results = _results(name, [str(folder)], given.rounds, given.variants)
            missed += _report(name, results, checks=checks)
    if not checks:
        print("No target was checked.")
    return int(bool(missed))


def _results(name: str, arguments: Sequence[str], rounds: int, variants: Sequence[str]) -> Runs:
    results: Runs = {variant: [] for variant in variants}
    for turn in range(rounds):
        for variant in variants if turn % 2 == 0 else variants[::-1]:
            command = [sys.executable, "-m", "bench.columnar.run", variant, *arguments]
            run = subprocess.run(command, check=True, cwd=PROJECT, stdout=subprocess.PIPE, text=True)
            result = json.loads(run.stdout.splitlines()[-1])
            results[variant].append(result)
            print(name, variant, json.dumps(result), file=sys.stderr, flush=True)
    return results


def _report(name: str, results: Runs, *, checks: bool) -> list[str]:
    """Prints the figures of one part. Returns the targets that `columnar` misses, none unless it `checks` them."""
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
        ratios = [f"{cpu['stock'][i] / cpu[variant][i]:.2f}" if "stock" in cpu else "" for i in range(2)]
        table.add_row(
            variant, f"{cpu[variant][0]:.1f}", ratios[0], f"{cpu[variant][1]:.1f}", ratios[1],
            f"{wall:.1f}", f"{1000 * cpu[variant][1] / first['input_files']:.2f}",
            f"{runs[0]['output_bytes'] / 1e6:.1f}",
        )  # fmt: skip
    console = Console()
    size = f"{first['input_files']} files, {first['input_bytes'] / 1e6:.0f} MB, {first['records']} rows"
    console.print(f"{name}: {size}")
    console.print(table)
    missed = _missed(PARTS[name], cpu, first["input_files"]) if checks else []
    for line in missed:
        console.print(f"MISSED {line}")
    rounded = {v: [round(s, 2) for s in seconds] for v, seconds in cpu.items()}
    rounds = len(next(iter(results.values())))
    document = {"part": name, "cpu_seconds": rounded, "rounds": rounds, "missed": missed}
    if {"stock", "columnar"} <= set(cpu):
        for at, state in enumerate(("cold", "warm")):
            document[f"{name}_{state}"] = round(cpu["stock"][at] / cpu["columnar"][at], 2)
    publish("columnar", document)
    return missed


def _missed(part: Part, cpu: dict[str, list[float]], files: int) -> list[str]:
    missed = []
    for run, target, stock, ours in zip(RUNS, part.least_ratios, cpu["stock"], cpu["columnar"], strict=True):
        if target is not None and stock / ours < target:
            missed.append(f"{run}: {stock / ours:.2f} times, target {target:g}")
    each = 1000 * cpu["columnar"][1] / files
    if part.most_milliseconds is not None and each > part.most_milliseconds:
        missed.append(f"{each:.2f} ms per file, target {part.most_milliseconds:g}")
    return missed


if __name__ == "__main__":
    raise SystemExit(main())
