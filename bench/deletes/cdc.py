"""Rounds of upserts and maintenance: ours against what users of Iceberg's own actions run.

    python -m bench.deletes.cdc [--versions 2 3] [--rows N…] [--rounds N] [--commits N] [--upserts N] [--spark-reads N]
        [--no-targets]

Stock rewrites every base file in each round, ours does not: what ours saves grows with the base, so each size that is
measured is reported with its own ratios. Two tables with the same rows in four partitions get the same upserts by equality deletes, in each commit and partition a
file of deletes and a data file. After every round of 50 commits both are maintained: `ours` by `iceberg-maint run` of the
operations on data and on manifests with the defaults of the policy, but the age of equality deletes; `stock` by
`rewrite_data_files` with `delete-file-threshold=1` and `remove-dangling-deletes`, then `rewrite_position_delete_files` and
`rewrite_manifests`. A session per table lives through all rounds, and they take turns. CPU seconds are those of the JVM, of
Python and of its workers, bytes those of data and delete files that maintenance wrote, reads median CPU seconds by Spark
and DuckDB after maintenance. Exits 1 below a target, or if the tables do not have the rows that the upserts leave.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
from collections import defaultdict
from dataclasses import asdict
from pathlib import Path
from typing import Any

from bench.deletes.tables import Shape
from bench.stock_session import PROJECT

VARIANTS = ("stock", "ours")
LEAST_CPU, LEAST_BYTES, LEAST_READ = 4.0, 10.0, 0.95
ROWS_OF_A_BASE_FILE = 750_000
Rounds = dict[str, list[dict[str, Any]]]
"""What each variant measured in each round."""


def main() -> int:
    """Prints a table and one line of JSON for each size and format version."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--versions", type=int, nargs="+", default=[2, 3])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--commits", type=int, default=50, help="of a round")
    parser.add_argument(
        "--rows", type=int, nargs="+", default=[3_000_000, 30_000_000], help="before the first upsert"
    )
    parser.add_argument("--upserts", type=int, default=2_000, help="rows of a commit")
    parser.add_argument("--spark-reads", type=int, default=5, help="of each query after a round")
    parser.add_argument("--no-targets", action="store_true", help="check the rows only, for a small size")
    given = parser.parse_args()
    commits = given.rounds * given.commits
    upserts = given.upserts * commits
    missed = False
    for rows in given.rows:
        for version in given.versions:
            files = max(1, rows // (4 * ROWS_OF_A_BASE_FILE))
            shape = Shape("cdc", rows, files, commits, upserts, upserts, 0.9, regions=4, version=version)
            measured = _measure(shape, given.rounds, given.commits, given.spark_reads)
            missed |= _report(shape, measured, with_targets=not given.no_targets)
    return int(missed)


def _measure(shape: Shape, rounds: int, commits: int, spark_reads: int) -> Rounds:
    """Runs the rounds on both tables."""
    measured: Rounds = defaultdict(list)
    with tempfile.TemporaryDirectory(prefix="bench-cdc-") as folder:
        children = {name: _Child(Path(folder) / name, name, shape) for name in VARIANTS}
        for index in range(rounds):
            order = VARIANTS if index % 2 == 0 else VARIANTS[::-1]
            for name in order:
                expected = children[name].step(f"upserts {commits}")
                found = children[name].step("maintain")
                reads = children[name].step(f"read {spark_reads}")
                found |= {"reads": reads["cpu_seconds"], "wrong": _wrong(expected, reads["rows"])}
                found["rows"] = reads["rows"]
                measured[name].append(found)
                print(
                    f"{shape.base_rows} rows, v{shape.version} round {index + 1} {name}",
                    json.dumps(found),
                    file=sys.stderr,
                    flush=True,
                )
        for child in children.values():
            child.end()
    return measured


class _Child:
    """The process of one table."""

    def __init__(self, folder: Path, variant: str, shape: Shape) -> None:
        command = [
            sys.executable,
            "-m",
            "bench.deletes.cdc_run",
            str(folder),
            variant,
            json.dumps(asdict(shape)),
        ]
        self.process = subprocess.Popen(
            command, cwd=PROJECT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def step(self, line: str) -> dict[str, Any]:
        """Asks for a step and returns its answer."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()
        for answer in self.process.stdout:
            if answer.startswith("answer "):
                found: dict[str, Any] = json.loads(answer.removeprefix("answer "))
                return found
        raise RuntimeError(f"{line!r}: the process ended with {self.process.wait()}")

    def end(self) -> None:
        """Ends the process."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.wait()


def _wrong(expected: dict[str, Any], rows: dict[str, list[str]]) -> list[str]:
    """The queries whose rows are not those that the upserts leave."""
    whole = [str(expected[key]) for key in ("rows", "id_sum", "amount_sum")]
    some = [str(expected[key]) for key in ("open_rows", "open_amount")]
    wanted = {"all columns": whole, "filter": some}
    return [
        key
        for key, found in rows.items()
        if (of_query := wanted.get(key.partition(", ")[2])) and found[: len(of_query)] != of_query
    ]


def _report(shape: Shape, measured: Rounds, *, with_targets: bool) -> bool:
    """Prints the figures of a size and version. Returns whether rows are wrong, or a target is missed."""
    from rich.console import Console
    from rich.table import Table

    console = Console(width=150)
    table = Table(
        "round", "variant", "CPU s", "wall s", "commits", "MB written", "data files", "delete files",
        title=f"{shape.base_rows} rows, v{shape.version}",
    )  # fmt: skip
    for index in range(len(measured["ours"])):
        for name in VARIANTS:
            c = measured[name][index]
            table.add_row(
                str(index + 1), name, f"{c['cpu_seconds']:.1f}", f"{c['wall_seconds']:.1f}", str(c["commits"]),
                f"{c['written_bytes'] / 1e6:.1f}", str(c["data_files"]), str(c["delete_files"]),
            )  # fmt: skip
    console.print(table)
    totals = {
        name: {key: sum(c[key] for c in rounds) for key in ("cpu_seconds", "written_bytes")}
        for name, rounds in measured.items()
    }
    ratios = {key: totals["stock"][key] / max(1e-9, totals["ours"][key]) for key in totals["ours"]}
    reads = {
        query: {
            name: statistics.median(c["reads"][query] for c in rounds) for name, rounds in measured.items()
        }
        for query in measured["ours"][0]["reads"]
    }
    wrong = [f"wrong rows: {name}, {c['wrong']}" for name in VARIANTS for c in measured[name] if c["wrong"]]
    for index, (a, b) in enumerate(zip(measured["stock"], measured["ours"], strict=True)):
        if a["rows"] != b["rows"]:
            wrong.append(f"other rows after round {index + 1}")
    missed: list[str] = []
    if ratios["cpu_seconds"] < LEAST_CPU:
        missed.append(f"CPU: {ratios['cpu_seconds']:.2f} times less than stock, target {LEAST_CPU:g}")
    if ratios["written_bytes"] < LEAST_BYTES:
        missed.append(f"bytes: {ratios['written_bytes']:.2f} times fewer than stock, target {LEAST_BYTES:g}")
    for query, seconds in reads.items():
        ratio = seconds["stock"] / max(1e-9, seconds["ours"])
        console.print(f"{query}: {seconds['ours']:.3f} CPU s, stock {ratio:.2f} times")
        if ratio < LEAST_READ:
            missed.append(f"{query}: {ratio:.2f} of stock, target {LEAST_READ:g}")
    for line in (*wrong, *missed):
        console.print(f"MISSED {line}")
    rounded = {key: round(ratio, 2) for key, ratio in ratios.items()}
    facts = {"base_rows": shape.base_rows, "version": shape.version}
    print(
        json.dumps({**facts, "stock_over_ours": rounded, "reads": reads, "missed": [*wrong, *missed]}),
        flush=True,
    )
    return bool(wrong or (with_targets and missed))


if __name__ == "__main__":
    raise SystemExit(main())
