"""Arrow's reader of a Parquet file, with the checks that Arrow leaves out."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from iceberg_maint.columnar.parquet.parquet_metadata import TAIL_BYTES
from iceberg_maint.columnar.parquet.thrift import ThriftError, head
from iceberg_maint.columnar.read.leaves import numbers_of
from iceberg_maint.columnar.storage import FileRange, arrow_file

_ARROW_SCHEMA = b"ARROW:schema"
SCHEMA_FIELD = 2
_FEW_ROWS = 4_000
"""Rows of a chunk below which a call costs more than to read its rows. Arrow validates many chunks in one call, and
takes ten times as long for a row."""


class ParquetReader(pq.ParquetFile):  # type: ignore[misc]
    """Raises ArrowInvalid for an index outside of its dictionary. Arrow does not look at the indexes of a column that keeps
    its dictionary, and reads memory at random when it uses them."""

    def read(self, *args: Any, **options: Any) -> pa.Table:
        """Reads rows, as ParquetFile does."""
        return _checked(super().read(*args, **options))

    def read_row_group(self, *args: Any, **options: Any) -> pa.Table:
        """Reads the rows of a row group, as ParquetFile does."""
        return _checked(super().read_row_group(*args, **options))

    def iter_batches(self, *args: Any, **options: Any) -> Iterator[pa.RecordBatch]:
        """Reads rows part by part, as ParquetFile does."""
        return map(_checked, super().iter_batches(*args, **options))


Rows = TypeVar("Rows", pa.Table, pa.RecordBatch)


def _checked(rows: Rows) -> Rows:
    for column in rows.columns:
        if pa.types.is_dictionary(column.type):
            _check_indexes(column if isinstance(column, pa.ChunkedArray) else pa.chunked_array([column]))
    return rows


def _check_indexes(column: pa.ChunkedArray) -> None:
    if len(column) < _FEW_ROWS * column.num_chunks:
        try:
            column.validate(full=True)
        except pa.ArrowInvalid:
            # The values of a dictionary may be the reason: text that is no UTF-8, which Arrow reads and writes.
            pass
        else:
            return
    for chunk in column.chunks:
        indexes, size = chunk.indices, len(chunk.dictionary)
        # An index of 32 bits may be negative, which is a large one without its sign.
        if not indexes.null_count and numbers_of(indexes).view(np.uint32).max(initial=0) < size:
            continue
        for index in pc.min_max(indexes).as_py().values():
            if index is not None and not 0 <= index < size:
                raise pa.ArrowInvalid(f"index {index} is outside of a dictionary of {size} values")


def opened(
    contents: pa.Buffer | FileRange,
    *,
    metadata: Any = None,
    dictionaries: Sequence[str] = (),
    read_bytes: int = 0,
    verify: bool = True,
) -> ParquetReader:
    """Returns a reader of a file with these bytes. `metadata` are read before. The columns `dictionaries` keep theirs.
    Column chunks are read in parts of `read_bytes`, whole if it is 0. With `verify`, the reader raises OSError for a
    page with another checksum than its header states."""
    return ParquetReader(
        arrow_file(contents),
        metadata=metadata,
        read_dictionary=list(dictionaries) or None,
        pre_buffer=False,
        buffer_size=read_bytes,
        page_checksum_verification=verify,
    )


def footer_of(contents: pa.Buffer | FileRange | bytes | memoryview) -> bytes:
    """Returns the bytes of the footer of a Parquet file."""
    end = len(contents) - TAIL_BYTES
    size = int.from_bytes(bytes(contents[end : end + 4]), "little")
    return bytes(contents[end - size : end]) if size <= end else b""


def schema_bytes(contents: pa.Buffer | FileRange | bytes | memoryview) -> bytes:
    """Returns the first bytes of a footer, through its schema. Raises ThriftError."""
    footer = footer_of(contents)
    return footer[: head(footer, SCHEMA_FIELD)[1]]


def stored_schema(metadata: Any) -> bytes | None:
    """Returns the schema that Arrow stored in a file, None if it did not."""
    return (metadata.metadata or {}).get(_ARROW_SCHEMA)


class Schemas:
    """Arrow's schemas of files. Files of one writer start their footers with the same schema, so the last one is kept:
    Arrow takes as long to compare two schemas as to open a file."""

    def __init__(self) -> None:
        self._start = b""
        self._stored: bytes | None = None
        self._last: pa.Schema | None = None

    def of(self, parquet: pq.ParquetFile, contents: pa.Buffer | FileRange) -> pa.Schema:
        """Returns the schema of an open file with these bytes."""
        stored = stored_schema(parquet.metadata)
        if self._last is None or stored != self._stored or not footer_of(contents).startswith(self._start):
            try:
                self._start = schema_bytes(contents)
            except ThriftError:
                return parquet.schema_arrow
            self._last, self._stored = parquet.schema_arrow, stored
        return self._last
