"""Reads of a table after a rewrite by `columnar`, against the same table before it and after stock's rewrite.

    python -m bench.columnar.reads [PART] [--share F] [--rounds N]

A part is a table of `bench.columnar.rewrites` that has the columns of lineitem. Spark reads the three snapshots in one session by time travel, DuckDB reads their
data files. Queries take turns over the snapshots, forwards and backwards. Figures are medians of CPU seconds of the JVM
and of Python. Exits 1 if a query needs more than 1/0.95 of the CPU that it needs after stock or before.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from bench.columnar import run as columnar_run
from bench.columnar import strategies
from bench.columnar.tables import PARTS, table_of
from bench.used import tree_cpu_seconds

LEAST_RATIO = 0.95
REPEATS = {"Spark": 3, "DuckDB": 20}
"""Reads in one measurement. The clock of CPU time has a resolution of 10 ms."""
QUERIES = {
    "all columns": "select sum(hash(l_orderkey, l_comment, l_shipdate, l_extendedprice)), max(l_shipmode), count(*) from {table}",
    "three columns": "select sum(l_extendedprice * l_discount), count(*) from {table} where l_quantity < 24",
    "a range of keys": "select count(*), sum(l_quantity) from {table} where l_orderkey between 100000 and 120000",
    "groups": "select l_returnflag, l_linestatus, sum(l_quantity), avg(l_extendedprice) from {table} group by 1, 2",
    "a text": "select count(*) from {table} where l_comment like '%special%requests%'",
}
_PARTS = [name for name, part in PARTS.items() if part.columns == "lineitem"]
Reader = Callable[[str, str], None]


def main() -> int:
    """Prints a line per engine and query, and one line of JSON."""
    parser = argparse.ArgumentParser()
    parser.add_argument("part", nargs="?", default="small", choices=_PARTS)
    parser.add_argument("--share", type=float, default=1.0)
    parser.add_argument("--rounds", type=int, default=5)
    given = parser.parse_args()
    with table_of(given.part, given.share, None) as folder:
        figures = _measure(folder, given.rounds)
    return _report(given.part, figures)


def _measure(folder: Path, rounds: int) -> dict[str, dict[str, float]]:
    """Median CPU seconds by engine and query, then by snapshot."""
    spark = strategies.session(folder, more=strategies.SPARKS_DEFAULTS)
    snapshots, paths = _snapshots(spark, folder)
    tables = {name: f"{strategies.TABLE} version as of {snapshot}" for name, snapshot in snapshots.items()}
    figures = measured(
        {"Spark": spark_reader(spark, tables), "DuckDB": duckdb_reader(paths)}, list(tables), rounds
    )
    spark.stop()
    return figures


def measured(readers: Mapping[str, Reader], names: Sequence[str], rounds: int) -> dict[str, dict[str, float]]:
    """Median CPU seconds by engine and query, then by the names that the readers know, which take turns."""
    measured: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    for engine, read in readers.items():
        for query, text in QUERIES.items():
            for turn in range(rounds + 1):
                for name in names if turn % 2 == 0 else names[::-1]:
                    before = tree_cpu_seconds()
                    for _ in range(REPEATS[engine]):
                        read(name, text)
                    seconds = (tree_cpu_seconds() - before) / REPEATS[engine]
                    if turn:  # The first turn fills the caches.
                        measured[f"{engine}, {query}"][name].append(seconds)
            each = {
                name: [round(s, 2) for s in found] for name, found in measured[f"{engine}, {query}"].items()
            }
            print(f"{engine}, {query}", json.dumps(each), file=sys.stderr, flush=True)
    return {key: {n: statistics.median(s) for n, s in by.items()} for key, by in measured.items()}


def _snapshots(spark: Any, folder: Path) -> tuple[dict[str, int], dict[str, list[str]]]:
    """The ids and the data files of the table as it is, and as each strategy rewrites it."""
    run = columnar_run._variant(spark, folder, "stock")
    table = run.bridge.load_table(strategies.TABLE)
    start = int(table.currentSnapshot().snapshotId())
    ids = {"before": start}
    for variant in ("stock", "columnar"):
        columnar_run._variant(spark, folder, variant).rewrite(strategies.TABLE)
        table = run.bridge.load_table(strategies.TABLE)
        ids[variant] = int(table.currentSnapshot().snapshotId())
        table.manageSnapshots().setCurrentSnapshot(start).commit()
    paths = {
        name: [
            row[0].removeprefix("file:")
            for row in spark.sql(
                f"select file_path from {strategies.TABLE}.files version as of {snapshot}"
            ).collect()
        ]
        for name, snapshot in ids.items()
    }
    return ids, paths


def spark_reader(spark: Any, tables: Mapping[str, str]) -> Reader:
    """Reads tables, given as SQL by their names, by Spark."""

    def read(name: str, query: str) -> None:
        spark.sql(query.format(table=tables[name])).collect()

    return read


def duckdb_reader(paths: Mapping[str, Sequence[str]]) -> Reader:
    """Reads data files, given by the names of their tables, by DuckDB."""
    import duckdb

    connection = duckdb.connect()
    connection.execute("set threads to 2")

    def read(name: str, query: str) -> None:
        files = ", ".join(f"'{path}'" for path in paths[name])
        # DuckDB's hash takes any number of values and has 64 bits without a sign.
        text = query.replace("sum(hash(", "max(hash(").format(table=f"read_parquet([{files}])")
        connection.execute(text).fetchall()

    return read


def _report(part: str, figures: dict[str, dict[str, float]]) -> int:
    missed = []
    for key, seconds in figures.items():
        ratios = {name: seconds[name] / seconds["columnar"] for name in ("before", "stock")}
        print(
            f"{key}: {seconds['columnar']:.2f} CPU s; before {ratios['before']:.2f}, stock {ratios['stock']:.2f} times",
            file=sys.stderr,
        )
        missed += [f"{key}: {ratio:.2f} of {name}" for name, ratio in ratios.items() if ratio < LEAST_RATIO]
    rounded = {key: {n: round(s, 3) for n, s in by.items()} for key, by in figures.items()}
    print(json.dumps({"part": part, "cpu_seconds": rounded, "missed": missed}))
    return int(bool(missed))


if __name__ == "__main__":
    raise SystemExit(main())
