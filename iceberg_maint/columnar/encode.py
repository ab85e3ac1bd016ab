"""Encodes rows as Parquet, as Iceberg's writer does: field ids, integers for decimals, page index, dictionaries."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from iceberg_maint.columnar.decimals import NotedFile
from iceberg_maint.columnar.leaves import leaves_of, values_of
from iceberg_maint.columnar.schema import Struct
from iceberg_maint.columnar.task import Encoding

_CODECS = {"uncompressed": "none", "lz4": "lz4_raw"}
"""Arrow's names of codecs, where they differ. Iceberg's lz4 of old properties is written as lz4_raw."""
_LEVELS = {"zstd": 3, "gzip": 6, "brotli": 1}
"""Codecs with a level, and the level that Parquet's Java writer has by default. Arrow's defaults are others."""
_NO_DECIMALS: Mapping[str, pa.DataType] = {}
_SAMPLE_ROWS = 20_000
_DISTINCT_SHARE = 0.5
"""A column whose sample has a smaller share of distinct values gets a dictionary."""
_DECIDING_SHARE = 0.55
"""The share of the sample that is counted first."""


@contextmanager
def open_writer(
    sink: Any,
    schema: pa.Schema,
    schema_text: str,
    encoding: Encoding,
    dictionaries: Collection[str],
    decimals: Mapping[str, pa.DataType] = _NO_DECIMALS,
) -> Iterator[pq.ParquetWriter]:
    """Gives a writer of tables with this schema. `dictionaries` are the Parquet paths of the columns with a dictionary.
    `decimals` are the types of the columns that are integers here and decimals in the file, by name."""
    codec = _CODECS.get(encoding.codec.lower(), encoding.codec.lower())
    noted = NotedFile(sink, decimals) if decimals else None
    writer = pq.ParquetWriter(
        sink if noted is None else noted,
        schema,
        compression=codec,
        compression_level=_LEVELS.get(codec)
        if encoding.level is None or codec not in _LEVELS
        else encoding.level,
        use_dictionary=sorted(dictionaries) or False,
        dictionary_pagesize_limit=encoding.dictionary_bytes,
        data_page_size=encoding.page_bytes,
        max_rows_per_page=encoding.page_row_limit,
        store_decimal_as_integer=True,
        store_schema=False,
        write_page_index=True,
    )
    writer.add_key_value_metadata({"iceberg.schema": schema_text})
    with writer:
        yield writer
        if noted is not None:
            noted.keep()
    if noted is not None:
        noted.finish()


def sampled_dictionaries(rows: pa.Table, table: Struct, of_source: dict[int, bool]) -> set[str]:
    """Returns the Parquet paths of the columns that get a dictionary. `of_source` has, by field id, whether all input
    files have one, where they agree. The others are chosen by a sample of the rows."""
    head = rows.slice(0, _SAMPLE_ROWS)
    chosen = set()
    for leaf in leaves_of(table):
        if leaf.primitive.base == "boolean":
            continue
        wanted = of_source.get(leaf.column.field_id)
        if wanted is None:
            wanted = _repeats(values_of(head, leaf))
        if wanted:
            chosen.add(leaf.path)
    return chosen


def _repeats(chunks: Sequence[pa.Array]) -> bool:
    if any(pa.types.is_dictionary(c.type) for c in chunks):
        column = pa.chunked_array(chunks).unify_dictionaries()
        rows = len(column) - column.null_count
        if rows and len(column.chunk(0).dictionary) < _DISTINCT_SHARE * rows:
            return True
        chunks = [c.dictionary_decode() for c in chunks]
    values = pa.chunked_array(chunks).drop_null() if chunks else None
    if values is None or not len(values):
        return True
    # Of most columns, the first rows decide: whatever the others are, there are enough distinct values, or too few.
    most = _DISTINCT_SHARE * len(values)
    first = values.slice(0, int(_DECIDING_SHARE * len(values)))
    distinct = len(first.unique())
    if distinct >= most:
        return False
    return distinct + len(values) - len(first) < most or len(values.unique()) < most


def write_group(writer: pq.ParquetWriter, rows: pa.Table) -> None:
    """Writes rows as one row group."""
    if rows.num_rows:
        writer.write_table(rows, row_group_size=rows.num_rows)
