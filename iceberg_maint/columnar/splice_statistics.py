"""Compares the statistics of a spliced file with its rows: those of footer and manifest, and those of copied pages.

A copied page keeps the entry of its column index. Readers skip pages by these entries, so a wrong one loses rows.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

import pyarrow as pa
import pyarrow.parquet as pq

from iceberg_maint.columnar.leaves import Leaf, leaves_of, row_statistics, values_of
from iceberg_maint.columnar.parquet_metadata import Chunk, MetadataError, ParquetBytes, get
from iceberg_maint.columnar.proof import Comparison
from iceberg_maint.columnar.schema import Struct
from iceberg_maint.columnar.splice_rules import order_of
from iceberg_maint.columnar.task import OutputMetrics
from iceberg_maint.columnar.thrift import TRUE


def statistics_difference(
    output: pa.Buffer,
    table: Struct,
    spliced: Collection[int],
    encoded: Sequence[pa.Table],
    metrics: OutputMetrics,
    modes: Mapping[int, str],
) -> str:
    """Returns the first difference, "" if there is none. `spliced` are the field ids of the copied columns, which are
    decoded from the output. `encoded` has the rows of the other columns, by row group."""
    comparison = Comparison(table, output, metrics, modes)
    try:
        file, parsed = pq.ParquetFile(pa.BufferReader(output), pre_buffer=False), ParquetBytes.of(output)
        problem = comparison.footer_difference(file.metadata.num_rows)
        for number in range(file.metadata.num_row_groups):
            rows = _rows(file, number, table, spliced, encoded)
            problem = problem or comparison.statistics_difference(number, rows)
            for leaf in leaves_of(table):
                if leaf.column.field_id in spliced and not problem:
                    index = parsed.leaf_by_id[leaf.column.field_id]
                    problem = page_difference(parsed, number, index, leaf, rows)
    except (pa.ArrowException, OSError, MetadataError) as why:
        return f"the copied columns cannot be read: {why}"
    return problem or comparison.end_difference()


def _rows(
    file: pq.ParquetFile, number: int, table: Struct, spliced: Collection[int], encoded: Sequence[pa.Table]
) -> pa.Table:
    names = [c.name for c in table.columns if c.field_id in spliced]
    copied = file.read_row_group(number, columns=names, use_threads=False)
    columns = [(copied if c.field_id in spliced else encoded[number]).column(c.name) for c in table.columns]
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
