"""Compares the statistics of a data file with its rows, whatever engine wrote it: those that the footer and the manifest
state. Engines skip files and row groups by them, so a wrong one loses rows in queries."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import pyarrow as pa
import pyarrow.parquet as pq

from iceberg_maint.columnar.check.file_proof import Comparison
from iceberg_maint.columnar.parquet.reader import opened
from iceberg_maint.columnar.read.leaves import Leaf, Statistics, leaves_of, row_statistics, sum_of, values_of
from iceberg_maint.columnar.read.schema import (
    ROW_ID,
    Column,
    ColumnType,
    ListOf,
    MapOf,
    Struct,
    arrow_schema,
    child_fields,
    field_id,
    table_schema,
)
from iceberg_maint.columnar.storage import FileRange, Storage, raise_shortage
from iceberg_maint.columnar.task import JsonText, OutputMetrics

_MOST_ROWS = 65_536
_BATCH_BYTES = 16 * 1024 * 1024
"""The bytes of a column that are decoded together, by the mean size of its rows."""


@dataclass(frozen=True, slots=True)
class StatisticsTask(JsonText):
    """A Parquet file and what its manifest states. `schema` and `metrics_modes` are as in `RewriteTask`."""

    path: str
    size_bytes: int
    record_count: int
    schema: str
    metrics: OutputMetrics
    metrics_modes: Mapping[int, str] = field(default_factory=dict)


def statistics_difference(task: StatisticsTask, storage: Storage) -> str:
    """Returns the first difference between the statistics of a file and its rows, "" if there is none. Reads some rows of a
    column at a time. Raises UnsupportedColumnError for a type that Arrow does not read, MemoryError, OSError if the store
    does not serve."""
    contents = FileRange(storage, task.path, task.size_bytes, hold=False)
    try:
        file = opened(contents)
        lineage = any(field_id(f) == ROW_ID for f in file.schema_arrow)
        table = table_schema(task.schema, lineage=lineage)
        arrow_schema(table)
        table = _with_names(table, list(file.schema_arrow))
        comparison = Comparison(table, contents, task.metrics, task.metrics_modes)
        problem = comparison.footer_difference(task.record_count)
        return problem or _groups_difference(file, table, comparison) or comparison.end_difference()
    except pa.ArrowException as why:
        raise_shortage(why)
        return f"the output cannot be read: {why}"


def _with_names(table: Struct, fields: Sequence[pa.Field]) -> Struct:
    """The table with the names that a file has for its columns. Field ids identify columns; Iceberg's writer stores a name with
    letters that Avro does not have in another form (`with_x20space`)."""
    by_id = {field_id(f): f for f in fields}
    columns = []
    for column in table.columns:
        if (found := by_id.get(column.field_id)) is not None:
            column = replace(column, name=found.name, kind=_kind_with_names(column.kind, found.type))
        columns.append(column)
    return Struct(tuple(columns))


def _kind_with_names(kind: ColumnType, stored: pa.DataType) -> ColumnType:
    children = child_fields(stored)
    match kind:
        case Struct() if pa.types.is_struct(stored):
            return _with_names(kind, children)
        case ListOf(element) if pa.types.is_list(stored):
            below = _kind_with_names(element.kind, children[0].type)
            return ListOf(replace(element, kind=below))
        case MapOf(key, value) if pa.types.is_map(stored):
            keys, values = (
                _kind_with_names(c.kind, f.type) for c, f in zip((key, value), children, strict=True)
            )
            return MapOf(replace(key, kind=keys), replace(value, kind=values))
    return kind


def _groups_difference(file: pq.ParquetFile, table: Struct, comparison: Comparison) -> str:
    leaves = list(enumerate(leaves_of(table)))
    for group in range(file.metadata.num_row_groups):
        for number, column in enumerate(table.columns):
            below = [(index, leaf) for index, leaf in leaves if leaf.steps[0] == number]
            rows, parts = _statistics(file, group, table, column, [leaf for _, leaf in below])
            for (index, _), found in zip(below, parts, strict=True):
                if problem := comparison.column_difference(group, index, rows, found):
                    return problem
    return ""


def _statistics(
    file: pq.ParquetFile, group: int, table: Struct, column: Column, leaves: Sequence[Leaf]
) -> tuple[int, list[Statistics]]:
    """The number of rows of a row group, and the statistics of the leaf columns below a column."""
    count = 0
    parts: list[list[Statistics]] = [[] for _ in leaves]
    for rows in _batches(file, group, table, column):
        count += rows.num_rows
        for found, leaf in zip(parts, leaves, strict=True):
            values = values_of(rows, replace(leaf, steps=(0, *leaf.steps[1:])))
            found.append(row_statistics(values, leaf.primitive))
    return count, [sum_of(found) for found in parts]


def _batches(file: pq.ParquetFile, group: int, table: Struct, column: Column) -> Iterator[pa.Table]:
    """The rows of a row group, with the column as their only one."""
    # Arrow asks for columns by path, where a dot separates names.
    by_name = not any("." in c.name for c in table.columns)
    footer = file.metadata.row_group(group)
    wanted = range(footer.num_columns)
    of_column = [i for i in wanted if footer.column(i).path_in_schema.split(".")[0] == column.name]
    size = sum(footer.column(i).total_uncompressed_size for i in (of_column if by_name else wanted))
    rows = min(_MOST_ROWS, max(1, _BATCH_BYTES * max(1, footer.num_rows) // max(1, size)))
    names = [column.name] if by_name else None
    for batch in file.iter_batches(rows, row_groups=[group], columns=names, use_threads=False):
        yield pa.Table.from_batches([batch]).select([0 if by_name else table.columns.index(column)])
