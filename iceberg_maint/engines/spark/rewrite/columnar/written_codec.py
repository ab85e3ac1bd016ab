"""The codec of rewritten Parquet files: that of the table's property, else that of most bytes of the input files.

Iceberg's Java writer takes gzip for a table without the property (`PARQUET_COMPRESSION_DEFAULT`). PyIceberg, DuckDB and
others write zstd or snappy and set no property: their tables would get gzip, for several times the CPU.
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Iterable
from typing import Any

from iceberg_maint.columnar.parquet.parquet_metadata import Chunk, MetadataError, ParquetBytes, get
from iceberg_maint.columnar.splice.splice_rules import CODECS
from iceberg_maint.columnar.storage import FileRange, Storage
from iceberg_maint.columnar.task import WrongInputError
from iceberg_maint.core.model.columns import codec_of, writes_parquet
from iceberg_maint.core.planning.work import InputFile
from iceberg_maint.engines.spark.rewrite.columnar.file_io_settings import NotColumnarError, io_of

_ICEBERG_DEFAULT = "gzip"
_NAMES = {number: name for name, number in CODECS.items()}
"""Iceberg's names of the codecs that every writer has, by Parquet's number."""
_FILES_READ = 3
_COLUMNS, _CODEC, _COMPRESSED_BYTES = 1, 4, 7
"""Fields of Parquet's RowGroup and ColumnMetaData."""


def codec_to_write(java_table: Any, files: Iterable[InputFile]) -> str:
    """Returns Iceberg's name of the codec, in lower case; "" if the table writes another format than Parquet.

    Reads the footers of the largest three files if the table declares none. If they cannot be read, which the rewrite
    then says, or most of their bytes have a codec that not every writer has, returns Iceberg's default.
    """
    properties = dict(java_table.properties())
    if not writes_parquet(properties):
        return ""
    if declared := codec_of(properties):
        return declared
    largest = heapq.nlargest(_FILES_READ, files, key=lambda f: f.size_bytes)
    byte_counts: Counter[int] = Counter()
    try:
        storage = Storage(io_of(java_table, [f.path for f in largest]) or {})
        for file in largest:
            byte_counts += _bytes_by_codec(FileRange(storage, file.path, file.size_bytes, hold=False))
    except (NotColumnarError, MetadataError, WrongInputError, OSError, ValueError):
        return _ICEBERG_DEFAULT
    return _NAMES.get(max(byte_counts, key=byte_counts.__getitem__, default=-1), _ICEBERG_DEFAULT)


def _bytes_by_codec(content: FileRange) -> Counter[int]:
    """Compressed bytes by Parquet's number of the codec. Raises MetadataError if the file is not Parquet, or encrypted."""
    byte_counts: Counter[int] = Counter()
    for group in ParquetBytes.of(content).row_groups:
        for chunk in get(group, _COLUMNS)[1]:
            metadata = Chunk(content, chunk).metadata
            byte_counts[get(metadata, _CODEC)] += get(metadata, _COMPRESSED_BYTES)
    return byte_counts
