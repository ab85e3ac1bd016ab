"""Encodes rows as Parquet, as Iceberg's writer does: field ids, integers for decimals, page index, checksums, dictionaries."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from iceberg_maint.columnar.read.decimals import NotedFile
from iceberg_maint.columnar.read.leaves import leaves_of, values_of
from iceberg_maint.columnar.read.numbers import array_of_numbers
from iceberg_maint.columnar.read.schema import Struct
from iceberg_maint.columnar.task import Encoding

_CODECS = {"uncompressed": "none", "lz4": "lz4_raw"}
"""Arrow's names of codecs, where they differ. Iceberg's lz4 of old properties is written as lz4_raw."""
_LEVELS = {"zstd": 3, "gzip": 6}
"""Codecs with a level, and the level that Parquet's Java writer has by default. Arrow's defaults are others."""
_NO_DECIMALS: Mapping[str, pa.DataType] = {}
_LENGTH_BYTES = 4
"""The bytes of a length that stand before each text in a plain page and in a dictionary."""


@contextmanager
def open_writer(
    sink: Any,
    schema: pa.Schema,
    schema_text: str,
    encoding: Encoding,
    dictionaries: Collection[str],
    decimals: Mapping[str, pa.DataType] = _NO_DECIMALS,
    batch_rows: int | None = None,
) -> Iterator[pq.ParquetWriter]:
    """Gives a writer of tables with this schema. `dictionaries` are the Parquet paths of the columns with a dictionary.
    `decimals` are the types of the columns that are integers here and decimals in the file, by name. `batch_rows` are
    encoded together, 1,024 if it is None: the size of a page is looked at after each of them."""
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
        write_page_checksum=True,
        write_batch_size=batch_rows,
    )
    writer.add_key_value_metadata({"iceberg.schema": schema_text})
    with writer:
        yield writer
        if noted is not None:
            noted.keep()
    if noted is not None:
        noted.finish()


def sampled_dictionaries(
    rows: pa.Table, table: Struct, of_source: Mapping[int, bool], encoding: Encoding
) -> set[str]:
    """Returns the Parquet paths of the columns that get a dictionary. `of_source` has, by field id, whether all input
    files have one, where they agree. The other columns, and those of which no input file has one, are chosen by the first
    page, as Parquet's Java writer does (`DictionaryValuesWriter.isCompressionSatisfying`): pages of small files say
    little of larger ones."""
    head = rows.slice(0, encoding.page_row_limit)
    return {
        leaf.path
        for leaf in leaves_of(table)
        if leaf.primitive.base != "boolean"
        and (of_source.get(leaf.column.field_id) or _is_smaller(values_of(head, leaf), encoding.page_bytes))
    }


def _is_smaller(chunks: Sequence[pa.Array], page_bytes: int) -> bool:
    """Whether dictionary and indexes of a page take fewer bytes than its values. True for a page without values."""
    if not chunks:
        return True
    values, size_of = _measured(pa.chunked_array(chunks))
    values = values.drop_null()
    size = size_of(values)
    if size > page_bytes:
        values = values.slice(0, max(1, len(values) * page_bytes // size))
        size = size_of(values)
    if not len(values):
        return True

    def is_smaller(dictionary: pa.Array) -> bool:
        index_bits = max(1, (len(dictionary) - 1).bit_length())
        return size_of(dictionary) + len(values) * index_bits // 8 < size

    # To look for distinct values takes several times as long as to look for the bounds.
    possible = _all_between(values)
    return (possible is not None and is_smaller(possible)) or is_smaller(values.unique())


def _all_between(values: pa.ChunkedArray) -> pa.Array | None:
    """All integers between the bounds of integers or dates. None: others, or more of them than values."""
    if not (pa.types.is_integer(values.type) or pa.types.is_date32(values.type)):
        return None
    found = pc.min_max(values)
    low, high = (int(b.value if pa.types.is_date32(values.type) else b.as_py()) for b in found.values())
    # The number after the largest long is none of 64 bits.
    return array_of_numbers(low + np.arange(high - low + 1)) if high - low < len(values) else None


def _measured(column: pa.ChunkedArray) -> tuple[pa.ChunkedArray, Callable[[Any], int]]:
    """Returns values to compare, and a function that returns the bytes of some of them in a plain page. Texts with a
    dictionary are compared by its indexes: decoded, a page of long texts can take gigabytes."""
    if not pa.types.is_dictionary(column.type):
        return column, _size
    column = column.unify_dictionaries()
    lengths = pc.binary_length(column.chunk(0).dictionary)
    indexes = pa.chunked_array([c.indices for c in column.chunks])
    return indexes, lambda some: _text_size(lengths.take(some))


def _size(values: pa.ChunkedArray | pa.Array) -> int:
    """The bytes of values without nulls in a plain page."""
    if pa.types.is_string(values.type) or pa.types.is_binary(values.type):
        return _text_size(pc.binary_length(values))
    return len(values) * int(values.type.bit_width) // 8


def _text_size(lengths: pa.ChunkedArray | pa.Array) -> int:
    return int(pc.sum(lengths).as_py() or 0) + _LENGTH_BYTES * len(lengths)


def write_group(writer: pq.ParquetWriter, rows: pa.Table) -> None:
    """Writes rows as one row group."""
    if rows.num_rows:
        writer.write_table(rows, row_group_size=rows.num_rows)
