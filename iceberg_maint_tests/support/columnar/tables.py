"""Data files of every type that the columnar engine rewrites, written with Arrow as other engines write them."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from iceberg_maint.columnar.read.projection import FileColumn, conversion, file_columns
from iceberg_maint.columnar.read.schema import Column, arrow_schema, table_schema
from iceberg_maint.columnar.rewrite import rewrite
from iceberg_maint.columnar.task import InputFile, RewriteResult, RewriteTask

EPOCH = datetime.fromisoformat("2024-01-01")

PRIMITIVES: dict[str, str] = {
    "bool": "boolean",
    "i": "int",
    "l": "long",
    "f": "float",
    "d": "double",
    "dec9": "decimal(9, 2)",
    "dec18": "decimal(18, 4)",
    "dec38": "decimal(38, 6)",
    "day": "date",
    "at": "time",
    "ts": "timestamp",
    "tz": "timestamptz",
    "ns": "timestamp_ns",
    "nstz": "timestamptz_ns",
    "s": "string",
    "u": "uuid",
    "fx": "fixed[5]",
    "b": "binary",
}


def field(field_id: int, name: str, kind: Any, *, required: bool = False, **more: Any) -> dict[str, Any]:
    return {"id": field_id, "name": name, "required": required, "type": kind, **more}


def schema_of(*fields: Mapping[str, Any]) -> str:
    return json.dumps({"type": "struct", "schema-id": 0, "fields": list(fields)})


ALL_TYPES = schema_of(
    *(field(i, name, kind) for i, (name, kind) in enumerate(PRIMITIVES.items(), 1)),
    field(
        30,
        "st",
        {
            "type": "struct",
            "fields": [
                field(31, "x", "double"),
                field(32, "in", {"type": "struct", "fields": [field(33, "y", "uuid")]}),
            ],
        },
    ),
    field(40, "li", {"type": "list", "element-id": 41, "element": "float", "element-required": False}),
    field(
        50,
        "mp",
        {
            "type": "map",
            "key-id": 51,
            "key": "string",
            "value-id": 52,
            "value": "double",
            "value-required": False,
        },
    ),
    field(
        60,
        "ls",
        {
            "type": "list",
            "element-id": 61,
            "element": {"type": "struct", "fields": [field(62, "a", "int"), field(63, "s", "string")]},
            "element-required": False,
        },
    ),
)


def all_types_row(n: int) -> dict[str, Any]:
    """Row n: each column is null in some rows."""
    nan = float("nan")
    uuid = n.to_bytes(16, "big")
    row: dict[str, Any] = {
        "bool": n % 2 == 0,
        "i": n - 50,
        "l": n * 10**12,
        "f": nan if n % 7 == 0 else n / 4,
        "d": -0.0 if n % 5 == 0 else nan if n % 6 == 0 else -n / 8,
        "dec9": Decimal(n - 20).scaleb(-2),
        "dec18": Decimal(n * 10**10).scaleb(-4),
        "dec38": Decimal(-n * 10**30).scaleb(-6),
        "day": date(1960, 1, 1) + timedelta(days=n * 97),
        "at": time(n % 24, 1, 2, n),
        "ts": EPOCH + timedelta(microseconds=n),
        "tz": (EPOCH - timedelta(days=30000, microseconds=n)).replace(tzinfo=UTC),
        "ns": 1_700_000_000_000_000_000 + n,
        "nstz": -n,
        "s": f"żółć-{n % 9}",
        "u": uuid,
        "fx": n.to_bytes(5, "big"),
        "b": bytes([255, n % 256]) * (n % 4),
        "st": None
        if n % 4 == 0
        else {"x": nan if n % 3 == 0 else n / 2, "in": None if n % 5 == 0 else {"y": uuid}},
        "li": None if n % 5 == 0 else [n / 3, nan, None][: n % 4],
        "mp": None if n % 6 == 0 else [(f"k{k}", nan if k else float(n)) for k in range(n % 3)],
        "ls": [None if k else {"a": n, "s": None if n % 2 else str(n)} for k in range(n % 3)],
    }
    return {
        k: None if n % 11 == i % 11 and i < len(PRIMITIVES) else v for i, (k, v) in enumerate(row.items())
    }


def write_file(
    folder: Path,
    name: str,
    schema: str,
    rows: Sequence[Mapping[str, Any]],
    *,
    lineage: bool = False,
    **options: Any,
) -> InputFile:
    """Writes a data file with field ids."""
    return write_table(folder, name, table_from(schema, rows, lineage=lineage), **options)


def table_from(schema: str, rows: Sequence[Mapping[str, Any]], *, lineage: bool = False) -> pa.Table:
    """Rows as an Arrow table. Arrow builds no nested UUID from Python's values, so UUIDs are bytes at first."""
    table = table_schema(schema, lineage=lineage)
    stored = arrow_schema(table_schema(schema.replace('"uuid"', '"fixed[16]"'), lineage=lineage))
    found = pa.Table.from_pylist(list(rows), schema=stored)
    columns = [
        _converted(found.column(i), file_columns(stored, None, "")[i], column)
        for i, column in enumerate(table.columns)
    ]
    return pa.Table.from_arrays(columns, schema=arrow_schema(table))


def _converted(values: pa.ChunkedArray, source: FileColumn, column: Column) -> pa.ChunkedArray:
    convert = conversion(source, column)
    return values if convert is None else pa.chunked_array([convert(values.combine_chunks())])


def write_table(folder: Path, name: str, table: pa.Table, **options: Any) -> InputFile:
    path = folder / name
    pq.write_table(table, path, **{"store_schema": False, "store_decimal_as_integer": True, **options})
    return InputFile(str(path), path.stat().st_size, table.num_rows, 1)


def task_of(folder: Path, schema: str, inputs: Sequence[InputFile], **changes: Any) -> RewriteTask:
    task = RewriteTask(tuple(inputs), str(folder / "out" / "out.parquet"), schema, 2)
    return replace(task, **changes)


def rewritten(task: RewriteTask) -> tuple[RewriteResult, list[dict[str, Any]]]:
    """Runs a task. Returns its result and the rows of its output."""
    result = rewrite(RewriteTask.from_json(task.to_json()))
    assert RewriteResult.from_json(result.to_json()) == result
    rows = pq.ParquetFile(result.path).read().to_pylist() if result.path else []
    return result, rows
