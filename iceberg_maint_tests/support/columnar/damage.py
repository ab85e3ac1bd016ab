"""Data files with damaged bytes."""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from pathlib import Path

from iceberg_maint.columnar.parquet.parquet_metadata import ParquetBytes, get, page_header
from iceberg_maint.columnar.parquet.thrift import Reader

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


def with_another_value(path: str, column: int, *, in_dictionary: bool = False) -> None:
    """Changes a bit near the end of the last page of a column, or at the end of its dictionary. The file is uncompressed, so
    that it can be decoded."""
    contents = bytearray(Path(path).read_bytes())
    pages = ParquetBytes.of(bytes(contents)).chunk(0, column).pages(with_dictionary=True)
    place = pages[0].offset - 1 if in_dictionary else pages[-1].offset + pages[-1].size - 8
    contents[place] ^= 8
    Path(path).write_bytes(contents)


def checksums(path: str) -> Iterator[bool | None]:
    """Whether each page of a file has the checksum that its header states, None if it states none."""
    file = ParquetBytes.of(Path(path).read_bytes())
    for group in range(len(file.row_groups)):
        for column in file.leaves:
            data, position = file.chunk(group, column).pages_bytes, 0
            while position < len(data):
                reader = Reader(data, position)
                header = page_header(reader)
                end = reader.position + get(header, 3)
                stated = get(header, 4)
                yield (
                    None if stated is None else zlib.crc32(data[reader.position : end]) == stated & 0xFFFFFFFF
                )
                position = end
