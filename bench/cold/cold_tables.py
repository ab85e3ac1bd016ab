"""The tables of `bench.cold.end_to_end`: small files as people have them, appended by PyIceberg one by one.

A lake is a folder with a SQLite catalog `lake`, its warehouse, and the configuration that `iceberg-maint init` writes, in
mode act. Rows come from a seed.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from bench.deletes.tables import SHAPES, make

if TYPE_CHECKING:
    from pyiceberg.catalog.sql import SqlCatalog

NAMESPACE = "b"
_CODEC = "write.parquet.compression-codec"
_DAY_US = 86_400_000_000


@dataclass(frozen=True, slots=True)
class Kind:
    """Tables of one kind: `rows` of file `number` from a generator, `files` of them, in `partitions` of the column `p`. Each
    declares the codec zstd, as Iceberg's Java API does for new tables, unless `declares` is false, as PyIceberg leaves it."""

    rows: Callable[[np.random.Generator, int, int], pa.Table]
    rows_per_file: int
    files: int
    partitions: int = 1
    declares: bool = True
    tables: int = 1


def _events(rng: np.random.Generator, count: int, number: int) -> pa.Table:
    return pa.table(
        {
            "id": pa.array(np.arange(count) + number * count),
            "k": pa.array(rng.integers(0, 1000, count)),
            "price": pa.array(rng.random(count)),
            "d": pa.array(rng.integers(0, 2500, count).astype("int32")),
            "s": pa.array([f"comment {x} of {number}" for x in rng.integers(0, 10**6, count)]),
            "flag": pa.array(rng.choice(["A", "N", "R"], count)),
        }
    )


def _web_logs(rng: np.random.Generator, count: int, number: int) -> pa.Table:
    """100 columns: times, ids, addresses, sparse texts."""
    columns = {
        "time": pa.array(np.sort(rng.integers(0, _DAY_US, count)) + number * _DAY_US, pa.timestamp("us"))
    }
    columns["session"] = pa.array([f"{x:032x}" for x in rng.integers(0, 2**62, count)])
    columns["url"] = pa.array(
        [f"https://shop.example/p/{x}?r={y}" for x, y in rng.integers(0, 50_000, (count, 2))]
    )
    for n in range(57):
        columns[f"n{n}"] = pa.array(rng.integers(0, 10 ** (1 + n % 7), count))
    for n in range(40):
        values = rng.integers(0, 10 ** (1 + n % 5), count)
        columns[f"t{n}"] = pa.array([None if x % 3 == 0 else f"value {x}" for x in values], pa.string())
    return pa.table(columns)


def _json(rng: np.random.Generator, count: int, number: int) -> pa.Table:
    ids = rng.integers(0, 2**40, (count, 2))
    bodies = [
        json.dumps(
            {"user": int(a), "item": int(b), "tags": [f"t{a % 7}", f"t{b % 11}"], "text": f"order {b} of {a}"}
        )
        for a, b in ids
    ]
    return pa.table({"id": pa.array(np.arange(count) + number * count), "body": pa.array(bodies)})


def _sensors(rng: np.random.Generator, count: int, number: int) -> pa.Table:
    """A reading a second of some devices, with NaN and NULL."""
    values = rng.normal(20, 5, (4, count))
    values[0][rng.random(count) < 0.02] = np.nan
    time = np.arange(count) * 1_000_000 + number * count * 1_000_000
    columns = {f"v{n}": pa.array(v, mask=rng.random(count) < 0.01) for n, v in enumerate(values)}
    return pa.table(
        {"time": pa.array(time, pa.timestamp("us")), "device": pa.array(rng.integers(0, 200, count))}
        | columns
    )


def _nested(rng: np.random.Generator, count: int, number: int) -> pa.Table:
    items = [
        [{"sku": f"s{x % 9000}", "price": float(x) / 7} for x in rng.integers(0, 10**6, n)]
        for n in rng.integers(0, 6, count)
    ]
    address = [{"city": f"c{x % 300}", "zip": str(x)} for x in rng.integers(10_000, 99_999, count)]
    return pa.table(
        {
            "id": pa.array(np.arange(count) + number * count),
            "items": pa.array(items),
            "address": pa.array(address),
        }
    )


def _wide(rng: np.random.Generator, count: int, number: int) -> pa.Table:
    values = rng.integers(0, 10_000, (2_000, count)) + number
    return pa.table({f"c{n}": pa.array(v) for n, v in enumerate(values)})


def _line_items(_rng: np.random.Generator, count: int, number: int) -> pa.Table:
    """The rows of TPC-H from `number` * `count` on."""
    if not _LINE_ITEMS:
        import tempfile

        import pyarrow.parquet as pq

        with tempfile.TemporaryDirectory(prefix="bench-lineitem-") as folder:
            tool = Path(sys.executable).parent / "tpchgen-cli"
            command = [str(tool), "parquet", "-s", "2", "--tables=lineitem", f"--output-dir={folder}"]
            subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
            rows = pq.read_table(next(Path(folder).rglob("*.parquet")))
        # Arrow filters no `string_view`, as which the tool declares texts.
        texts = [f.with_type(pa.string()) if pa.types.is_string_view(f.type) else f for f in rows.schema]
        _LINE_ITEMS.append(rows.cast(pa.schema(texts)))
    whole = _LINE_ITEMS[0]
    return whole.slice(number * count, count)


_LINE_ITEMS: list[pa.Table] = []

CDC = "cdc"
"""Upserts by equality deletes of twenty commits in eight partitions: the shape `cold` of `bench.deletes.tables`."""
KINDS = {
    "tiny": Kind(_events, 1_500, 60),
    "lineitem": Kind(_line_items, 39_000, 301, 7),
    "events-small": Kind(_events, 45_000, 300, 7),
    "events-large": Kind(_events, 360_000, 50),
    "events-undeclared": Kind(_events, 45_000, 300, 7, declares=False),
    "web-logs": Kind(_web_logs, 4_000, 100),
    "json": Kind(_json, 38_000, 100),
    "sensors": Kind(_sensors, 24_000, 200, 7),
    "nested": Kind(_nested, 30_000, 100),
    "wide": Kind(_wide, 120, 40),
    "big": Kind(_events, 400_000, 600, 10),
    "small-tables": Kind(_events, 50, 8, tables=200),
}


def make_lake(folder: Path, name: str, share: float) -> None:
    """Makes the lake of a kind, or CDC, in an empty folder, with that share of the files and tables of a kind."""
    from pyiceberg.catalog.sql import SqlCatalog

    folder.mkdir(parents=True)
    subprocess.run(
        [sys.executable, "-m", "iceberg_maint", "init", str(folder)], check=True, stdout=subprocess.DEVNULL
    )
    configuration = folder / "iceberg_maint.yaml"
    policy = "mode: act"
    if name == CDC:
        policy += "\n  rewrite_data_files: {equality_delete_max_age_seconds: 0}"
    configuration.write_text(configuration.read_text("utf-8").replace("mode: advise", policy), "utf-8")
    if name == CDC:
        make(SHAPES["cold"], folder)
        return
    kind = KINDS[name]
    catalog = SqlCatalog("lake", uri=f"sqlite:///{folder}/catalog.db", warehouse=f"file://{folder}/warehouse")
    (folder / "warehouse").mkdir(exist_ok=True)
    catalog.create_namespace_if_not_exists(NAMESPACE)
    for number in range(max(1, round(kind.tables * (share if kind.tables > 1 else 1)))):
        _make_table(catalog, f"{NAMESPACE}.t{number}", kind, share if kind.tables == 1 else 1)
    catalog.close()


def _make_table(catalog: SqlCatalog, name: str, kind: Kind, share: float) -> None:
    from pyiceberg.transforms import IdentityTransform

    rng = np.random.default_rng(1)
    files = max(kind.partitions * 5, round(kind.files * share))

    def content(number: int) -> pa.Table:
        rows = kind.rows(rng, kind.rows_per_file, number)
        if kind.partitions == 1:
            return rows
        return rows.append_column("p", pa.array(np.full(len(rows), number % kind.partitions, dtype="int32")))

    first = content(0)
    properties = {"format-version": "2"} | ({_CODEC: "zstd"} if kind.declares else {})
    table = catalog.create_table(name, first.schema, properties=properties)
    if kind.partitions > 1:
        with table.update_spec() as update:
            update.add_field("p", IdentityTransform(), "p")
    for number in range(files):
        table.append(first if number == 0 else content(number))


def copy_lake(source: Path, target: Path) -> None:
    """Copies a lake. Data files and metadata are links, because no one changes them in place."""
    shutil.rmtree(target, ignore_errors=True)
    shutil.copytree(source, target, copy_function=os.link)
    for file in (*target.glob("*.db*"), target / "iceberg_maint.yaml"):
        if file.exists():
            content = file.read_bytes()
            file.unlink()
            file.write_bytes(content)
