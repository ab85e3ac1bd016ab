"""Compares the statistics of a spliced file with its rows: those of footer and manifest, and those of copied pages.

A copied page keeps the entry of its column index. Readers skip pages by these entries, so a wrong one loses rows.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import pairwise

import pyarrow as pa
import pyarrow.parquet as pq

from iceberg_maint.columnar.check.file_proof import Comparison
from iceberg_maint.columnar.check.metrics import chunk_statistics
from iceberg_maint.columnar.check.page_index import page_difference, starts_of
from iceberg_maint.columnar.parquet.file_range import FileRange
from iceberg_maint.columnar.parquet.parquet_metadata import MetadataError, ParquetBytes
from iceberg_maint.columnar.parquet.reader import opened
from iceberg_maint.columnar.read.decimals import IntegerFooters, integers_of
from iceberg_maint.columnar.read.leaves import (
    Leaf,
    Statistics,
    layout_type,
    leaves_of,
    row_statistics,
    sum_of,
    viewed,
)
from iceberg_maint.columnar.read.schema import Struct
from iceberg_maint.columnar.storage import raise_shortage
from iceberg_maint.columnar.task import OutputMetrics

_TEXTS = ("string", "binary")
_BATCH_ROWS = 65_536
"""Rows that are decoded together: few pages, which stay in the processor's cache."""


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
        parsed = comparison.parsed
        file = opened(output, metadata=metadata, dictionaries=_dictionary_texts(parsed, table, spliced))
        problem = comparison.footer_difference(file.metadata.num_rows)
        for number in range(file.metadata.num_row_groups):
            for index, leaf in enumerate(leaves_of(table)):
                if leaf.column.field_id in spliced and not problem:
                    chunk = parsed.chunk(number, parsed.leaf_by_id[leaf.column.field_id])
                    pages = _page_statistics(file, number, leaf, starts_of(chunk))
                    found = sum_of(pages)
                    problem = comparison.column_difference(number, index, found.values, found)
                    place = f"column {leaf.column.path}, row group {number}"
                    problem = problem or page_difference(place, chunk, leaf, pages)
                    stated = chunk_statistics(file.metadata.row_group(number).column(index), leaf.primitive)
                    if not problem and (stated.lower, stated.upper) != (found.lower, found.upper):
                        problem = f"{place}: the footer states a bound that no row has"
    except (pa.ArrowException, OSError, MetadataError) as why:
        raise_shortage(why)
        return f"the copied columns cannot be read: {why}"
    return problem or comparison.end_difference()


def _dictionary_texts(output: ParquetBytes, table: Struct, spliced: Collection[int]) -> list[str]:
    """The paths of copied texts of which every page has a dictionary. They are decoded as dictionaries: a text for each
    row takes several times as long."""
    groups = range(len(output.row_groups))
    return [
        leaf.path
        for leaf in leaves_of(table)
        if (field_id := leaf.column.field_id) in spliced
        and leaf.primitive.base in _TEXTS
        and all(output.chunk(n, output.leaf_by_id[field_id]).is_dictionary_encoded for n in groups)
    ]


def _page_statistics(
    file: pq.ParquetFile, number: int, leaf: Leaf, starts: Sequence[int]
) -> list[Statistics]:
    """The statistics of the rows of each page of a column. The last page has all rows after its start."""
    batches = file.iter_batches(_BATCH_ROWS, row_groups=[number], columns=[leaf.path], use_threads=False)
    values = _pages((b.column(0) for b in batches), [end - start for start, end in pairwise(starts)])
    # Arrow has no bounds of extension types, which a UUID is.
    return [
        row_statistics([viewed(c, layout_type(c.type)) for c in chunks], leaf.primitive) for chunks in values
    ]


def _pages(batches: Iterator[pa.Array], sizes: Sequence[int]) -> Iterator[list[pa.Array]]:
    """Cuts batches into pages of these sizes, and one of the rest."""
    waiting: list[pa.Array] = []
    for size in sizes:
        page: list[pa.Array] = []
        while size > 0 and (batch := waiting.pop() if waiting else next(batches, None)) is not None:
            page.append(batch.slice(0, size))
            if len(batch) > size:
                waiting.append(batch.slice(size))
            size -= len(page[-1])
        yield page
    yield [*waiting, *batches]
