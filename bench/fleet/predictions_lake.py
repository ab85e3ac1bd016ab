"""The lake of `bench.fleet.predictions`: tables of several kinds whose partitions differ in the number and the size of their files."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass
from math import exp, log
from pathlib import Path
from typing import Any

TARGET_BYTES = 12 * 1024 * 1024
FEWEST_FILES, MOST_FILES = 4, 200
LEAST_FILE_BYTES, MOST_FILE_BYTES = 10_000, 8_000_000
MOST_PARTITION_BYTES = 60_000_000
_ROW_BYTES = 210
_SAME = (40, 200_000)
CONFIG = """\
catalogs:
  lake: {{type: jdbc, uri: 'sqlite:///{dir}/catalog.db', warehouse: 'file://{dir}/wh'}}
ledger: 'sqlite:///{dir}/ledger.db'
spark: {{master: 'local[2]', conf: {{spark.sql.shuffle.partitions: '2'}}}}
defaults:
  windows: {{max_partitions_per_batch: 1, max_partitions_per_run: {per_run}, max_bytes_per_run: null}}
  rewrite_data_files: {{target_file_size_bytes: {target}}}
"""


@dataclass(frozen=True, slots=True)
class TableKind:
    """One table. With `deletes` Spark deletes rows of every second partition: by position deletes in v2, by deletion vectors in v3."""

    name: str
    version: int
    deletes: bool = False
    properties: tuple[tuple[str, str], ...] = ()


_SORTED = ("maintenance.layout.sort_by", "id")
_NATIVE = ("maintenance.rewrite_data_files.strategy", "native")
_EIGHT = ("maintenance.windows.max_partitions_per_batch", "8")
_THIRTY = ("maintenance.windows.max_partitions_per_run", "16")
KINDS = (
    TableKind("plain_v2", 2),
    TableKind("plain_v3", 3),
    TableKind("deletes_v2", 2, deletes=True),
    TableKind("deletes_v3", 3, deletes=True),
    TableKind("native_v2", 2, properties=(_NATIVE,)),
    TableKind("sorted_v2", 2, properties=(_SORTED,)),
    TableKind("eight_v2", 2, properties=(_EIGHT, _THIRTY)),
)


def make_lake(
    folder: Path, partitions: int, per_run: int, draw: random.Random, *, same: bool = False
) -> list[str]:
    """Makes configuration and tables in the folder. Each run rewrites at most `per_run` partitions of a table. `same`: all partitions
    have 40 files of 200 kB. Returns the names of the tables."""
    from pyiceberg.catalog.sql import SqlCatalog

    config = folder / "config.yaml"
    config.write_text(CONFIG.format(dir=folder, target=TARGET_BYTES, per_run=per_run), "utf-8")
    catalog: Any = SqlCatalog("lake", uri=f"sqlite:///{folder}/catalog.db", warehouse=f"file://{folder}/wh")
    catalog.create_namespace("db")
    for kind in KINDS:
        scale = 0.25 if _EIGHT in kind.properties else 1.0
        count = partitions * (4 if _EIGHT in kind.properties else 1)
        _fill(catalog, kind, [_SAME if same else _shape(draw, scale) for _ in range(count)], draw)
    return [f"db.{kind.name}" for kind in KINDS]


def finish_lake(spark: Any) -> None:
    """Makes the tables of v3, and the deletes, by Spark."""
    for kind in KINDS:
        name = f"lake.db.{kind.name}"
        if kind.version == 3:
            spark.sql(f"alter table {name} set tblproperties ('format-version'='3')")
        if kind.deletes:
            spark.sql(f"delete from {name} where p % 2 = 0 and id % 20 = 3")


def _shape(draw: random.Random, scale: float) -> tuple[int, int]:
    """Files of a partition, and bytes of each."""
    files = round(_between(draw, FEWEST_FILES, MOST_FILES))
    file_bytes = _between(draw, LEAST_FILE_BYTES, MOST_FILE_BYTES)
    return files, int(max(LEAST_FILE_BYTES, min(file_bytes, MOST_PARTITION_BYTES / files) * scale))


def _between(draw: random.Random, least: float, most: float) -> float:
    return exp(draw.uniform(log(least), log(most)))


def _fill(catalog: Any, kind: TableKind, shapes: list[tuple[int, int]], draw: random.Random) -> None:
    from pyiceberg.io.pyarrow import _dataframe_to_data_files
    from pyiceberg.partitioning import PartitionField, PartitionSpec
    from pyiceberg.schema import Schema
    from pyiceberg.transforms import IdentityTransform
    from pyiceberg.types import BinaryType, IntegerType, LongType, NestedField

    schema = Schema(
        NestedField(1, "p", IntegerType()),
        NestedField(2, "id", LongType()),
        NestedField(3, "v", BinaryType()),
    )
    spec = PartitionSpec(PartitionField(1, 1000, IdentityTransform(), "p"))
    properties = {
        "format-version": "2",
        "write.delete.mode": "merge-on-read",
        "write.distribution-mode": "none",
        **dict(kind.properties),
    }
    table = catalog.create_table(f"db.{kind.name}", schema, partition_spec=spec, properties=properties)
    with table.transaction() as change, change.update_snapshot().fast_append() as append:
        for rows in _rounds(shapes, draw):
            for file in _dataframe_to_data_files(table.metadata, rows, table.io):
                append.append_data_file(file)


def _rounds(shapes: list[tuple[int, int]], draw: random.Random) -> Iterator[Any]:
    """Rows of one file of each partition that has so many."""
    import numpy as np
    import pyarrow as pa

    numbers = np.random.default_rng(draw.getrandbits(32))
    schema = pa.schema([("p", pa.int32()), ("id", pa.int64()), ("v", pa.binary())])
    for n in range(MOST_FILES):
        tables = []
        for p, (files, file_bytes) in enumerate(shapes):
            if n >= files:
                continue
            count = max(1, int(file_bytes * draw.uniform(0.6, 1.4)) // _ROW_BYTES)
            width = _ROW_BYTES - 10
            offsets = np.arange(0, (count + 1) * width, width, dtype=np.int32)
            values = pa.Array.from_buffers(
                pa.binary(), count, [None, pa.py_buffer(offsets), pa.py_buffer(numbers.bytes(count * width))]
            )
            ids = np.sort(numbers.integers(0, 1 << 40, count))
            tables.append(pa.table([pa.array([p] * count, pa.int32()), pa.array(ids), values], schema=schema))
        if tables:
            yield pa.concat_tables(tables)
