"""The memory that the encoded columns of a splice need: one column of a row group is decoded at a time."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable

from iceberg_maint.columnar.parquet_metadata import BYTE_ARRAY, FIXED, Chunk, ParquetBytes, get

_VALUE_BYTES = 8
_DECODED_COPIES = 2
"""The rows of a column from the input, and from the output that they are compared with."""
_BYTES_PER_BYTE = 3
"""The inputs, the encoded columns and the output of a row group."""
_SIZES, _TEXT_BYTES = 16, 1
"""Parquet's `SizeStatistics` of a chunk, and in it the bytes of its texts."""


def needed_bytes(sources: Iterable[ParquetBytes], spliced: Collection[int]) -> int:
    """Returns the bytes of memory that a row group of these files takes. A column of few values has few bytes in a file and
    many in memory."""
    size = 0
    decoded: dict[tuple[bytes, ...], int] = defaultdict(int)
    for source in sources:
        size += len(source.data)
        copied = {source.leaf_by_id[i] for i in spliced if i in source.leaf_by_id}
        for group, metadata in enumerate(source.row_groups):
            for index in range(len(get(metadata, 1)[1])):
                if index not in copied:
                    chunk = source.chunk(group, index)
                    decoded[tuple(get(chunk.metadata, 3)[1][:1])] += _decoded_bytes(chunk)
    return _BYTES_PER_BYTE * size + _DECODED_COPIES * max(decoded.values(), default=0)


def _decoded_bytes(chunk: Chunk) -> int:
    kind, stated = get(chunk.metadata, 1), int(get(chunk.metadata, 6))
    of_values = chunk.values * _VALUE_BYTES
    if kind == BYTE_ARRAY:
        texts = int(get(get(chunk.metadata, _SIZES, {}), _TEXT_BYTES, 0))
        return of_values + max(stated, texts)
    return of_values * 2 if kind == FIXED else of_values
