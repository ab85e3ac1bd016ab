"""Data files with damaged bytes."""

from __future__ import annotations

from pathlib import Path

from iceberg_maint.columnar.parquet_metadata import ParquetBytes

TEXTS = ("aa", "b", "c", "d", "e")
"""Five values: an index of a page has three bits, so it may be 7."""
_TWO_RUNS = bytes.fromhex("01e80700e80701")
_RUN_OF_32_BITS = bytes.fromhex("20d00fffffffff")


def with_index_outside(path: str, column: int) -> None:
    """Damages the last data page of a column of TEXTS in an uncompressed file: some indexes are outside of the dictionary."""
    contents = bytearray(Path(path).read_bytes())
    page = ParquetBytes.of(bytes(contents)).chunk(0, column).pages(with_dictionary=True)[-1]
    end = page.offset + page.size
    contents[end - 24 : end - 20] = b"\xff" * 4
    Path(path).write_bytes(contents)


def with_negative_index(path: str, column: int) -> None:
    """Damages an uncompressed file whose column has two values, 500 times each: all its indexes are -1, in 32 bits."""
    contents = bytearray(Path(path).read_bytes())
    page = ParquetBytes.of(bytes(contents)).chunk(0, column).pages(with_dictionary=True)[-1]
    end = page.offset + page.size
    assert contents[end - len(_TWO_RUNS) : end] == _TWO_RUNS
    contents[end - len(_TWO_RUNS) : end] = _RUN_OF_32_BITS
    Path(path).write_bytes(contents)
