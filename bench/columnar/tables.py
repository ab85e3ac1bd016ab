"""The tables of `bench.columnar.rewrites`, made by Spark from TPC-H lineitem.

python -m bench.columnar.tables FOLDER PART
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from bench.columnar import strategies


@dataclass(frozen=True)
class Part:
    """A table, and the targets of `columnar`: how many times less CPU than stock it uses in the cold and the warm run,
    and CPU milliseconds per file of a warm run. None: no target. `scale_factor` is that of lineitem, whose rows become
    the `columns`. Files are written with `codec` and rewritten with zstd."""

    scale_factor: float
    files: int
    partitions: int
    least_ratios: tuple[float | None, float | None] = (None, None)
    most_milliseconds: float | None = None
    columns: str = "lineitem"
    codec: str = "zstd"


PARTS = {
    "small": Part(2.0, 301, 7, (4.0, 4.5)),
    "encoded": Part(1.5, 301, 7, (None, 2.7), codec="snappy"),
    "large": Part(2.5, 50, 0, (4.0, 4.5)),
    "tiny": Part(0.33, 1000, 0, (4.0, 4.0)),
    "partitions": Part(0.2, 5000, 50, (6.0, 6.0), 1.6),
    "wide": Part(0.02, 100, 0, columns="wide"),
    "nested": Part(0.5, 100, 0, columns="nested"),
}
_VOCABULARY_ROWS = 2_000
_KEY = "xxhash64(l_orderkey, l_linenumber)"
_TEXTS = {
    "few": (f"pmod({_KEY}, 8)", "200"),
    "thousands": (f"pmod({_KEY}, 5000)", "500"),
    "unique": (_KEY, "500"),
    "lengths": (_KEY, f"200 + pmod({_KEY}, 1801)"),
    "half": (f"if(pmod({_KEY}, 2) = 0, null, pmod({_KEY}, 20000))", "300"),
}
"""Columns of `wide`: the key of a text, equal for equal texts, and its characters."""
_NESTED = (
    "l_orderkey",
    """if(l_linenumber = 7, null, named_struct('part', l_partkey, 'supplier', l_suppkey, 'comment', l_comment,
       'days', named_struct('ship', l_shipdate, 'commit', l_commitdate, 'receipt', l_receiptdate))) as item""",
    "transform(sequence(1, l_linenumber), i -> l_extendedprice * i) as prices",
    """transform(sequence(1, cast(l_quantity as int) % 4), i -> named_struct('suppkey', l_suppkey + i,
       'mode', if(i = 2, null, l_shipmode))) as offers""",
    """if(l_linenumber = 6, null, map('tax', cast(l_tax as double), 'discount', cast(l_discount as double)))
       as rates""",
)


def part_of(name: str, share: float) -> Part:
    """The part with that share of its files and of its rows."""
    whole = PARTS[name]
    files = max(whole.partitions, 1, round(whole.files * share))
    return replace(whole, scale_factor=whole.scale_factor * share, files=files)


@contextmanager
def table_of(name: str, share: float, tables: Path | None) -> Iterator[Path]:
    """Gives the folder of a part's table. One below `tables` stays there, and is made if it is not there."""
    with tempfile.TemporaryDirectory(prefix="bench-columnar-") as temporary:
        folder = Path(temporary) if tables is None else tables / name
        if tables is None or not folder.exists():
            folder.mkdir(parents=True, exist_ok=True)
            part = json.dumps(asdict(part_of(name, share)))
            command = [sys.executable, "-m", "bench.columnar.tables", str(folder), part]
            subprocess.run(command, check=True, cwd=strategies.PROJECT, stdout=subprocess.DEVNULL)
        yield folder


def _make(folder: Path, part: Part) -> None:
    """The table and a small one, `strategies.WARM`."""
    (folder / "wh").mkdir()
    tool, raw = Path(sys.executable).parent / "tpchgen-cli", folder / "raw"
    command = [str(tool), "parquet", "-s", str(part.scale_factor), "--tables=lineitem", f"--output-dir={raw}"]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    spark = strategies.session(folder)
    rows = _columns(spark.read.parquet(str(next(raw.glob("lineitem*")))), part.columns)
    spark.sql("create namespace lake.bench")
    properties = {"format-version": "2", "write.parquet.compression-codec": part.codec}
    if part.partitions:
        key = f"cast(pmod(hash(l_comment), {part.partitions}) as int) as part"
        rows = rows.selectExpr("*", key)
        properties |= {"write.distribution-mode": "none", "write.spark.fanout.enabled": "true"}
    each = rows.repartition(part.files // max(1, part.partitions))
    for name, frame in ((strategies.TABLE, each), (strategies.WARM, rows.limit(10_000).repartition(2))):
        writer = frame.writeTo(name).using("iceberg")
        if part.partitions:
            writer = writer.partitionedBy("part")
        for key, value in properties.items():
            writer = writer.tableProperty(key, value)
        writer.create()
        if part.codec != "zstd":
            spark.sql(f"alter table {name} set tblproperties ('write.parquet.compression-codec' = 'zstd')")
    spark.stop()


def _columns(rows: Any, columns: str) -> Any:
    """lineitem's rows with these columns."""
    if columns == "lineitem":
        return rows
    if columns == "nested":
        return rows.selectExpr(*_NESTED)
    texts = [r[0] for r in rows.select("l_comment").limit(_VOCABULARY_ROWS).collect()]
    words = sorted({word for text in texts for word in text.split() if word.isalpha()})
    array = ", ".join(f"'{word}'" for word in words)
    text = (
        "substring(array_join(transform(sequence(1, cast({size} / 4 as int)), "
        f"i -> element_at(array({array}), cast(1 + pmod(xxhash64({{key}}, i), {len(words)}) as int))), ' '), 1, {{size}})"
    )
    made = [
        f"if({key} is null, null, {text.format(key=key, size=size)}) as {n}"
        for n, (key, size) in _TEXTS.items()
    ]
    return rows.selectExpr("l_orderkey", *made)


if __name__ == "__main__":
    _make(Path(sys.argv[1]), Part(**json.loads(sys.argv[2])))
