"""Compares the statistics of a spliced file with its rows: those of footer and manifest, and those of copied pages.

A copied page keeps the entry of its column index. Readers skip pages by these entries, so a wrong one loses rows.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

import pyarrow as pa
import pyarrow.parquet as pq

from iceberg_maint.columnar.decimals import IntegerFooters, integers_of
from iceberg_maint.columnar.file_range import FileRange
from iceberg_maint.columnar.leaves import Leaf, Statistics, leaves_of, row_statistics, values_of
from iceberg_maint.columnar.parquet_metadata import Chunk, MetadataError, ParquetBytes, get
from iceberg_maint.columnar.proof import Comparison
from iceberg_maint.columnar.reader import opened
from iceberg_maint.columnar.schema import Struct
from iceberg_maint.columnar.splice_rules import order_of
from iceberg_maint.columnar.task import OutputMetrics
from iceberg_maint.columnar.thrift import TRUE


def statistics_difference(
    output: pa.Buffer | FileRange,
    table: Struct,
    spliced: Collection[int],
    totals: Mapping[int, list[Statistics]],
    metrics: OutputMetrics,
    modes: Mapping[int, str],
) -> str:
    """Returns the first difference, "" if there is none. `spliced` are the field ids of the copied columns, which are
    decoded from the output. `totals` has the statistics of the rows of the other columns, which were compared."""
    comparison = Comparison(table, output, metrics, modes)
    comparison.totals.update(totals)
    try:
        metadata = IntegerFooters().metadata(output, integers_of(table))
        file, parsed = opened(output, metadata=metadata), ParquetBytes.of(output)
        problem = comparison.footer_difference(file.metadata.num_rows)
        for number in range(file.metadata.num_row_groups):
            for leaf in leaves_of(table):
                field_id = leaf.column.field_id
                if field_id in spliced and not problem:
                    rows = _rows(file, number, table, field_id)
                    problem = comparison.statistics_difference(number, rows, {field_id}) or page_difference(
                        parsed, number, parsed.leaf_by_id[field_id], leaf, rows
                    )
    except (pa.ArrowException, OSError, MetadataError) as why:
        return f"the copied columns cannot be read: {why}"
    return problem or comparison.end_difference()


def _rows(file: pq.ParquetFile, number: int, table: Struct, field_id: int) -> pa.Table:
    """The rows of a row group with nulls in place of the other columns."""
    [name] = [c.name for c in table.columns if c.field_id == field_id]
    column = file.read_row_group(number, columns=[name], use_threads=False).column(name)
    nulls = pa.chunked_array([pa.nulls(len(column))])
    columns = [column if c.field_id == field_id else nulls for c in table.columns]
    return pa.table(columns, names=[c.name for c in table.columns])


def page_difference(file: ParquetBytes, number: int, index: int, leaf: Leaf, rows: pa.Table) -> str:
    """Compares the column index of a chunk with the rows of its pages."""
    chunk: Chunk = file.chunk(number, index)
    order = order_of(file.leaves[index])
    entries, locations = chunk.column_index(), chunk.offset_index()
    if order is None or entries is None or locations is None:
        return f"column {leaf.column.path}, row group {number}: there is no page index"
    starts = [get(page, 3) for page in get(locations, 1)[1]]
    nulls = get(entries, 5, (0, ()))[1] or [None] * len(starts)
    stated = zip(*(get(entries, field)[1] for field in (1, 2, 3)), nulls, strict=True)
    values = pa.chunked_array(values_of(rows, leaf))
    ends = [*starts[1:], len(values)]
    for start, end, (is_null, lower, upper, null_count) in zip(starts, ends, stated, strict=True):
        place = f"column {leaf.column.path}, row group {number}, rows from {start}"
        found = row_statistics(values.slice(start, end - start).chunks, leaf.primitive)
        if null_count is not None and null_count != found.nulls:
            return f"{place}: the page index states {null_count} nulls; the rows have {found.nulls}"
        if (is_null == TRUE) != (found.nulls == found.values):
            return f"{place}: the page index states otherwise whether all values are null"
        if found.lower is None or found.upper is None:
            continue
        low, high = (
            bytes([int(v)]) if leaf.primitive.base == "boolean" else v for v in (found.lower, found.upper)
        )
        if not order(lower) <= low or not order(upper) >= high:
            return f"{place}: the page index states bounds that a row is outside of"
    return ""
