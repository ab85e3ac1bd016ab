"""Tasks of the columnar engine with a planted fault, which Spark's workers run."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa

from iceberg_maint.engines.spark.rewrite.columnar import worker


def swapping(task: str, attempt: int) -> str:
    """A task for which Arrow decodes the first two numbers of each input in the other order."""
    return misreading(task, attempt, lambda column: swapped(column, 0))


def swapping_late(task: str, attempt: int) -> str:
    """A task for which Arrow decodes two numbers after row 1,000 of each input in the other order."""
    return misreading(task, attempt, lambda column: swapped(column, 1000))


def swapped(column: pa.ChunkedArray, row: int) -> pa.ChunkedArray:
    """A column of numbers in which this value and the next one changed places."""
    if not pa.types.is_integer(column.type):
        return column
    order = np.arange(len(column))
    order[row : row + 2] = order[row : row + 2][::-1]
    return column.take(pa.array(order))


def shifting(task: str, attempt: int) -> str:
    """A task for which Arrow decodes the decimals of each input as the next larger ones."""

    def wrong(column: pa.ChunkedArray) -> pa.ChunkedArray:
        if not pa.types.is_decimal(column.type):
            return column
        values = [None if v is None else v + Decimal("0.01") for v in column.to_pylist()]
        return pa.chunked_array([pa.array(values, column.type)])

    return misreading(task, attempt, wrong)


def misreading(task: str, attempt: int, wrong: Any) -> str:
    """Runs a task with a fault of the decoder."""
    from iceberg_maint.columnar.read import decode

    real = decode.projected
    decode.projected = lambda rows, source: wrong(real(rows, source))
    try:
        return worker.rewrite_task(task, attempt)
    finally:
        decode.projected = real


def misdeleting(task: str, attempt: int) -> str:
    """A task that leaves out the row after each deleted one."""
    from iceberg_maint.columnar.read import decode

    real = decode.Positions.of

    def moved(positions: Any, file: Any) -> Any:
        found = real(positions, file)
        return None if found is None else found + 1

    decode.Positions.of = moved  # type: ignore[method-assign]
    try:
        return worker.rewrite_task(task, attempt)
    finally:
        decode.Positions.of = real  # type: ignore[method-assign]


def misnumbering(task: str, attempt: int) -> str:
    """A task that gives each row the id of the next one."""
    from iceberg_maint.columnar.read import decode

    real = decode._lineage
    decode._lineage = lambda field, rows, file, start: real(field, rows, file, start + 1)
    try:
        return worker.rewrite_task(task, attempt)
    finally:
        decode._lineage = real


def miswriting(task: str, attempt: int) -> str:
    """A task that writes the first column with its values moved by one row."""
    from iceberg_maint.columnar import encode as engine

    real = engine.write_group

    def write_group(writer: Any, group: pa.Table) -> None:
        column = group.column(0)
        moved = pa.chunked_array([*column.slice(1).chunks, *column.slice(0, 1).chunks], column.type)
        real(writer, group.set_column(0, group.schema.field(0), moved))

    engine.write_group = write_group
    try:
        return worker.rewrite_task(task, attempt)
    finally:
        engine.write_group = real
