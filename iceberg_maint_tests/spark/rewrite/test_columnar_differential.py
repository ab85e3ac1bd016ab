"""Generated tables: the columnar engine states what Iceberg's Java writer states of the same rows.

A seed gives a schema, rows and properties. `make test` runs a few, `make qualify SUITE=variants` all.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from iceberg_maint.columnar.read.leaves import leaves_of
from iceberg_maint.columnar.read.schema import table_schema
from iceberg_maint.columnar.rewrite import rewrite
from iceberg_maint.columnar.task import Encoding
from iceberg_maint.engines.spark.jvm.bridge import Bridge
from iceberg_maint_tests.spark.rewrite.test_columnar_metrics import COUNTS, as_json, by_field, java_metrics
from iceberg_maint_tests.support.columnar.tables import EPOCH, field, schema_of, task_of

pytestmark = [pytest.mark.spark, pytest.mark.drawn(3)]

SEEDS = range(60)
MODES = ["truncate(16)", "truncate(1)", "truncate(5)", "full", "counts", "none"]
CODECS = ["zstd", "snappy", "gzip", "uncompressed"]
TEXTS = [
    "",
    "a",
    "ab" * 8,
    "ab" * 9,
    "ż" * 17,
    "\U0001f600" * 20,
    "\U0010ffff" * 17,
    "\ud7ff" * 18,
    "\x00",
    "z" * 3000,
]
BYTES = [b"", b"\x00", b"\xff" * 16, b"\xff" * 17, b"a" * 15 + b"\xff\xff", b"\x80" * 40]
NUMBERS = [0.0, -0.0, math.nan, math.inf, -math.inf, 1.5, -1.5, 2.0**-20]


def whole(bits: int) -> Callable[[random.Random], int]:
    """Integers of a type, its ends and small ones among them."""
    most = (1 << (bits - 1)) - 1
    return lambda r: r.choice([0, -1, most, -most - 1, r.randint(-100, 100), r.randint(-most, most)])


def decimal(precision: int, scale: int) -> Callable[[random.Random], Decimal]:
    most = 10**precision - 1

    def value(r: random.Random) -> Decimal:
        # Of text, because arithmetic rounds to 28 digits.
        return Decimal(f"{r.choice([0, most, -most, r.randint(-99, 99), r.randint(-most, most)])}e-{scale}")

    return value


def moment(r: random.Random) -> datetime:
    return EPOCH + timedelta(days=r.randint(-40_000, 40_000), microseconds=r.randint(0, 10**9))


KINDS: dict[str, Callable[[random.Random], Any]] = {
    "boolean": lambda r: r.random() < 0.5,
    "int": whole(32),
    "long": whole(64),
    "float": lambda r: r.choice([*NUMBERS, float(r.randint(-9, 9))]),
    "double": lambda r: r.choice([*NUMBERS, r.random()]),
    "decimal(9, 2)": decimal(9, 2),
    "decimal(18, 0)": decimal(18, 0),
    "decimal(27, 9)": decimal(27, 9),
    "decimal(38, 38)": decimal(38, 38),
    "date": lambda r: date(1970, 1, 1) + timedelta(days=r.randint(-20_000, 40_000)),
    "time": lambda r: time(r.randint(0, 23), r.randint(0, 59), 59, r.randint(0, 999_999)),
    "timestamp": moment,
    "timestamptz": lambda r: moment(r).replace(tzinfo=UTC),
    "timestamp_ns": whole(62),
    "string": lambda r: r.choice([*TEXTS, f"{r.random()}", f"v{r.randint(0, 3)}"]),
    "uuid": lambda r: r.randbytes(16),
    "fixed[5]": lambda r: r.choice([b"\x00" * 5, b"\xff" * 5, r.randbytes(5)]),
    "binary": lambda r: r.choice([*BYTES, r.randbytes(20)]),
}
FIXED = frozenset({"decimal", "fixed", "uuid"})
"""Iceberg's writer gives values of a fixed length no dictionary, so ours may be smaller."""
Generator = Callable[[random.Random], Any]


def column(r: random.Random, field_id: int) -> tuple[dict[str, Any], Generator]:
    """A column with its values: mostly of a primitive type, else with one inside."""
    name, kind = f"c{field_id}", r.choice(list(KINDS))
    value, required, nulls = KINDS[kind], r.random() < 0.2, r.choice([0.0, 0.1, 0.9, 1.0])
    inner = 1000 + field_id

    def optional(r: random.Random) -> Any:
        return None if not required and r.random() < nulls else value(r)

    shape = r.choice(["primitive"] * 5 + ["struct", "list", "map"])
    if shape == "struct":
        child = field(inner, "x", kind)
        made = field(field_id, name, {"type": "struct", "fields": [child]})
        return made, lambda r: None if r.random() < 0.2 else {"x": optional(r)}
    if shape == "list":
        made = field(
            field_id, name, {"type": "list", "element-id": inner, "element": kind, "element-required": False}
        )
        return made, lambda r: None if r.random() < 0.2 else [optional(r) for _ in range(r.randint(0, 3))]
    if shape == "map":
        ids = {
            "type": "map",
            "key-id": inner,
            "key": "string",
            "value-id": inner + 1000,
            "value-required": False,
        }
        made = field(field_id, name, {**ids, "value": kind})
        return made, lambda r: [(f"k{n}", optional(r)) for n in range(r.randint(0, 2))]
    return field(field_id, name, kind, required=required), optional


@pytest.fixture(scope="module")
def bridge(spark: SparkSession) -> Bridge:
    spark.sql("create namespace if not exists lake.metrics")
    return Bridge(spark)


@pytest.mark.parametrize("seed", SEEDS)
def test_generated_table_has_the_metrics_of_icebergs_writer(
    bridge: Bridge, tmp_path: Path, seed: int
) -> None:
    r = random.Random(seed)
    columns = [column(r, n) for n in range(1, r.randint(2, 9))]
    rows = [{f["name"]: value(r) for f, value in columns} for _ in range(r.choice([1, 2, 40, 400]))]
    properties = {"write.parquet.compression-codec": r.choice(CODECS)}
    default = r.choice(MODES)
    properties["write.metadata.metrics.default"] = default
    schema, file, written = java_metrics(
        bridge, f"generated{seed}", schema_of(*(f for f, _ in columns)), rows, tmp_path
    )
    leaves = leaves_of(table_schema(schema, lineage=False))
    modes = {leaf.column.field_id: default for leaf in leaves}
    for leaf in leaves:
        if r.random() < 0.3:
            modes[leaf.column.field_id] = r.choice(MODES)
            properties[f"write.metadata.metrics.column.{leaf.column.path}"] = modes[leaf.column.field_id]
    theirs = written(properties)
    encoding = Encoding(codec=properties["write.parquet.compression-codec"], level=None)
    result = rewrite(replace(task_of(tmp_path, schema, [file]), metrics_modes=modes, encoding=encoding))
    assert result.proof.difference == ""
    for key in COUNTS:
        assert as_json(result.metrics, key) == by_field(theirs, key), key
    sizes, others = result.metrics.column_sizes, by_field(theirs, "column-sizes")
    assert sizes.keys() == others.keys()
    fixed = {leaf.column.field_id for leaf in leaves if leaf.primitive.base in FIXED}
    differing = {
        k: (size, others[k])
        for k, size in sizes.items()
        if not near(size, others[k]) and (k not in fixed or size > others[k])
    }
    assert differing == {}
    assert (list(result.metrics.split_offsets), result.sort_order_id) == (theirs["split-offsets"], 0)


def near(size: int, other: int) -> bool:
    """Whether two sizes differ by what page headers and dictionaries of small pages take, or a fifth."""
    return abs(size - other) <= max(200, 0.2 * other)
