"""Data files with damaged bytes."""

from __future__ import annotations

from pathlib import Path

from iceberg_maint.columnar.parquet_metadata import ParquetBytes

TEXTS = ("aa", "b", "c", "d", "e")
"""Five values: an index of a page has three bits, so it may be 7."""


def with_index_outside(path: str, column: int) -> None:
    """Damages the last data page of a column of TEXTS in an uncompressed file: some indexes are outside of the dictionary."""
    contents = bytearray(Path(path).read_bytes())
    page = ParquetBytes.of(bytes(contents)).chunk(0, column).pages(with_dictionary=True)[-1]
    end = page.offset + page.size
    contents[end - 24 : end - 20] = b"\xff" * 4
    Path(path).write_bytes(contents)
