"""Reads of one file by the size of its row groups, against row groups of Iceberg's default size.

    python -m bench.columnar.row_groups [--rounds N] [--engines NAME...]

6 M rows of TPC-H lineitem, 146 MB, as one file for each size. Pages have at most 20,000 rows, as Java's writer makes them. Spark reads
Iceberg tables, DuckDB the files. Figures are medians of CPU seconds, and how many times that the default size needs. They
are behind `page_splice.LEAST_GROUP_BYTES`.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from bench.columnar import strategies
from bench.columnar.reads import Reader, duckdb_reader, measured, spark_reader

GROUP_ROWS = (4_600_000, 600_000, 300_000, 150_000, 75_000, 37_500)
"""Rows of a row group. The first has 112 MB, near Iceberg's default; 300,000 rows have 7.3 MB, in chunks of 455 kB."""
ENGINES = ("Spark", "DuckDB")
_PLAIN = ("l_orderkey", "l_partkey", "l_extendedprice", "l_comment")
"""The columns to which Java's writer gives no dictionary."""


def main() -> int:
    """Prints a line per engine and query, and one line of JSON."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--engines", nargs="+", choices=ENGINES, default=list(ENGINES))
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="bench-row-groups-") as temporary:
        folder = Path(temporary)
        megabytes = _make(folder)
        figures = _measure(folder, list(megabytes), given.engines, given.rounds)
    names = list(megabytes)
    for key, seconds in figures.items():
        ratios = ", ".join(f"{n} {seconds[n]:.2f} ({seconds[names[0]] / seconds[n]:.2f})" for n in names)
        print(f"{key}: {ratios}", file=sys.stderr)
    rounded = {key: {n: round(s, 3) for n, s in by.items()} for key, by in figures.items()}
    print(json.dumps({"megabytes": megabytes, "cpu_seconds": rounded}))
    return 0


def _make(folder: Path) -> dict[str, float]:
    """Writes a file for each size below `folder`. Returns the megabytes of a row group by the name of its file."""
    tool, raw = Path(sys.executable).parent / "tpchgen-cli", folder / "raw"
    command = [str(tool), "parquet", "-s", "1", "--tables=lineitem", f"--output-dir={raw}"]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    rows: pa.Table = pq.read_table(next(raw.glob("lineitem*")))
    found = {}
    for count in GROUP_ROWS:
        name = f"g{count}"
        (folder / name).mkdir()
        path = folder / name / "rows.parquet"
        pq.write_table(
            rows,
            path,
            row_group_size=count,
            compression="zstd",
            compression_level=3,
            write_page_index=True,
            max_rows_per_page=20_000,
            use_dictionary=[n for n in rows.column_names if n not in _PLAIN],
            store_schema=False,
            store_decimal_as_integer=True,
        )
        found[name] = round(path.stat().st_size * min(1, count / rows.num_rows) / 1e6, 1)
    return found


def _measure(folder: Path, names: list[str], engines: list[str], rounds: int) -> dict[str, dict[str, float]]:
    """Median CPU seconds by engine and query, then by the name of the file."""
    readers: dict[str, Reader] = {}
    if "Spark" in engines:
        readers["Spark"] = spark_reader(_spark(folder, names), {n: f"lake.bench.{n}" for n in names})
    if "DuckDB" in engines:
        readers["DuckDB"] = duckdb_reader({n: [str(folder / n / "rows.parquet")] for n in names})
    return measured(readers, names, rounds)


def _spark(folder: Path, names: list[str]) -> Any:
    """A session with an Iceberg table of each file."""
    (folder / "wh").mkdir()
    spark: Any = strategies.session(folder)
    spark.sql("create namespace lake.bench")
    for name in names:
        schema = spark.read.parquet(str(folder / name)).schema
        spark.createDataFrame([], schema).writeTo(f"lake.bench.{name}").using("iceberg").create()
        source = f"`parquet`.`{folder / name}`"
        spark.sql(
            f"call lake.system.add_files(table => 'bench.{name}', source_table => '{source}')"
        ).collect()
    return spark


if __name__ == "__main__":
    raise SystemExit(main())
