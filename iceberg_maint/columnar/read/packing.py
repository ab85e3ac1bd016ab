"""Makes one uncompressed Parquet file in memory of many small ones, for Arrow to decode at once.

Arrow opens each file, each column chunk and each page by itself, and makes a decompressor for each page. For a file of
some kilobytes that costs several times as much as its values. The pages of all files are decompressed by one
decompressor and keep their contents. Each file is a row group. Only flat columns with one data page qualify, and each
page must state its size or checksum in a second place, because one decompressor does not show where a page ends.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import accumulate
from typing import Any

import pyarrow as pa

from iceberg_maint.columnar.parquet.parquet_metadata import MAGIC
from iceberg_maint.columnar.parquet.reader import SCHEMA_FIELD, footer_of, schema_bytes, stored_schema
from iceberg_maint.columnar.parquet.thrift import BINARY, I32, I64, LIST, STRUCT, ThriftError, encoded, head
from iceberg_maint.columnar.read.decimals import Integers, without_notes
from iceberg_maint.columnar.storage import raise_shortage

MOST_BYTES = 256 * 1024
_MOST_CHUNK_BYTES = 4 * 1024
_VARINT = rb"([\x80-\xff]*[\x00-\x7f])"
_SIZES = rb"\x15" + _VARINT + rb"\x15" + _VARINT
_CHECKSUM = rb"(?:\x15" + _VARINT
_DATA = re.compile(
    rb"\x15\x00" + _SIZES + _CHECKSUM + rb"\x1c|\x2c)\x15" + _VARINT + rb"(\x15.\x15.\x15.)", re.DOTALL
)
_DICTIONARY = re.compile(
    rb"\x15\x04" + _SIZES + _CHECKSUM + rb"\x3c|\x4c)\x15" + _VARINT + rb"(\x15.)[\x11\x12]?\x00\x00",
    re.DOTALL,
)
"""Headers of pages in Thrift's compact protocol: type, sizes, checksum, number of values, encodings. The statistics of
a data page follow."""
_DATA_PAGE = _DATA, b"\x15\x00", b"\x2c"
_DICTIONARY_PAGE = _DICTIONARY, b"\x15\x04", b"\x4c"
"""The form of a page's header, its first field, and the field of the header of its kind."""
_ZSTD_FRAME = b"\x28\xb5\x2f\xfd"
_PHYSICAL_TYPES = {
    name: number
    for number, name in enumerate(
        ("BOOLEAN", "INT32", "INT64", "INT96", "FLOAT", "DOUBLE", "BYTE_ARRAY", "FIXED_LEN_BYTE_ARRAY")
    )
}
_NO_INTEGERS: Integers = {}


@dataclass(frozen=True, slots=True)
class SmallFile:
    """The bytes of a file and its Parquet metadata, from Arrow."""

    contents: bytes | memoryview
    metadata: Any


class _NotPackedError(Exception):
    """A file has another form than this module packs."""


def is_small(size_bytes: int, columns: int) -> bool:
    """Whether a file of this size with this many leaf columns is decoded together with others: larger files gain nothing."""
    return size_bytes <= max(MOST_BYTES, columns * _MOST_CHUNK_BYTES)


def packed(files: Sequence[SmallFile], integers: Integers = _NO_INTEGERS) -> pa.Buffer | None:
    """Returns a Parquet file with the rows of all files in their order, a row group for each, with `integers` in place of
    decimals. None: one of the files has a form that is not packed, or another schema than the first."""
    try:
        return _Packing(files, integers).file()
    except (
        _NotPackedError,
        ThriftError,
        pa.ArrowException,
        OSError,
        LookupError,
        UnicodeDecodeError,
    ) as why:
        raise_shortage(why)
        return None


class _Packing:
    def __init__(self, files: Sequence[SmallFile], integers: Integers) -> None:
        self._files, self._integers = files, integers
        first = files[0].metadata
        schema = first.schema
        # Arrow's objects of a schema and of its metadata hold each other, until Python looks for garbage.
        self._start, self._arrow_schema = schema_bytes(files[0].contents), stored_schema(first)
        self._count = first.num_columns
        if any(
            schema.column(i).max_repetition_level or schema.column(i).max_definition_level > 1
            for i in range(self._count)
        ):
            raise _NotPackedError
        group = first.row_group(0)
        self._heads = [_head(group.column(i)) for i in range(self._count)]
        if any("." in group.column(i).path_in_schema for i in range(self._count)):
            raise _NotPackedError
        # Two pieces of each page in the order of the file: the header and the compressed contents.
        self._headers: list[bytes] = []
        self._frames: list[bytes | memoryview] = []
        self._sizes: list[int] = []
        self._has_dictionary: list[bool] = []

    def file(self) -> pa.Buffer:
        """The packed file."""
        for file in self._files:
            self._add(file)
        contents = self._decompressed()
        pieces: list[Any] = [MAGIC]
        for header, start, size in zip(
            self._headers, accumulate(self._sizes, initial=0), self._sizes, strict=False
        ):
            pieces += (header, contents[start : start + size])
        footer = self._footer()
        pieces += (footer, len(footer).to_bytes(4, "little"), MAGIC)
        return pa.py_buffer(b"".join(pieces))

    def _add(self, file: SmallFile) -> None:
        metadata, contents = file.metadata, file.contents
        rows = metadata.num_rows
        if (
            metadata.num_row_groups != 1
            or not footer_of(contents).startswith(self._start)
            or stored_schema(metadata) != self._arrow_schema
        ):
            raise _NotPackedError
        group = metadata.row_group(0)
        for index in range(self._count):
            chunk = group.column(index)
            start, dictionary = chunk.data_page_offset, chunk.dictionary_page_offset
            if chunk.num_values != rows or chunk.compression != "ZSTD":
                raise _NotPackedError
            has_dictionary = bool(dictionary) and dictionary < start
            end = (dictionary if has_dictionary else start) + chunk.total_compressed_size
            if has_dictionary:
                self._page(contents, dictionary, start, None)
            self._page(contents, start, end, rows)
            self._has_dictionary.append(has_dictionary)

    def _page(self, contents: bytes | memoryview, start: int, end: int, rows: int | None) -> None:
        """Takes a page: that of a dictionary without `rows`."""
        form, kind, field = _DICTIONARY_PAGE if rows is None else _DATA_PAGE
        found = form.match(contents, start, end)
        if found is None:
            raise _NotPackedError
        size, compressed, checksum, values, encodings = found.groups()
        first = end - _number(compressed)
        frame = contents[first:end]
        count = _number(size)
        if first < found.end() or (rows is None and first != found.end()) or frame[:4] != _ZSTD_FRAME:
            raise _NotPackedError
        if rows is not None and _number(values) != rows:
            raise _NotPackedError
        if checksum is None:
            if _stated_size(frame) != count:
                raise _NotPackedError
        elif zlib.crc32(frame) != _checksum_number(checksum):
            raise _NotPackedError
        self._headers.append(
            b"%b\x15%b\x15%b%b\x15%b%b\x00\x00" % (kind, size, size, field, values, encodings)
        )
        self._frames.append(frame)
        self._sizes.append(count)

    def _decompressed(self) -> memoryview:
        # Fails unless the frames together have exactly this many bytes.
        return memoryview(pa.decompress(b"".join(self._frames), sum(self._sizes), codec="zstd"))

    def _footer(self) -> bytes:
        # Arrow has the entries of a footer. To parse all of it takes as long as a page takes in each column.
        form, _ = head(self._start, SCHEMA_FIELD)
        entries = [
            {1: (BINARY, k), 2: (BINARY, v)} for k, v in (self._files[0].metadata.metadata or {}).items()
        ]
        rows = sum(f.metadata.num_rows for f in self._files)
        # The last byte ends a struct.
        kind, elements = form[2][1]
        schema = LIST, (kind, without_notes(elements, self._integers))
        pieces = [encoded({1: form[1], 2: schema, 3: (I64, rows)})[:-1], b"\x19", _list(len(self._files))]
        position, page = len(MAGIC), 0
        has_dictionary = iter(self._has_dictionary)
        columns = _list(self._count)
        for file in self._files:
            pieces += (b"\x19", columns)
            number, start_of_group = _zigzag(file.metadata.num_rows), position
            for fields in self._heads:
                start = data = position
                more = b""
                if next(has_dictionary):
                    data = start + len(self._headers[page]) + self._sizes[page]
                    more = b"\x26" + _zigzag(start)
                    page += 1
                position = data + len(self._headers[page]) + self._sizes[page]
                page += 1
                size = _zigzag(position - start)
                pieces.append(
                    b"\x26\x00\x1c%b\x16%b\x16%b\x16%b\x26%b%b\x00\x00"
                    % (fields, number, size, size, _zigzag(data), more)
                )
            pieces += (b"\x16", _zigzag(position - start_of_group), b"\x16", number, b"\x00")
        # Fields count from the one before: field 5 after field 4 is written as field 1.
        pieces.append(encoded({1: (LIST, (STRUCT, entries))} if entries else {}))
        return b"".join(pieces)


def _head(chunk: Any) -> bytes:
    """The first fields of a chunk's `ColumnMetaData`: type, encodings, path, codec. Arrow takes encodings from pages."""
    return encoded(
        {
            1: (I32, _PHYSICAL_TYPES[chunk.physical_type]),
            2: (LIST, (I32, [0])),
            3: (LIST, (BINARY, [chunk.path_in_schema.encode()])),
            4: (I32, 0),
        }
    )[:-1]


def _list(count: int) -> bytes:
    """The header of a list of structs."""
    return bytes([count << 4 | 12]) if count < 15 else b"\xfc" + _varint(count)


@lru_cache(maxsize=1 << 14)
def _number(raw: bytes) -> int:
    """The integer that a varint has in zigzag form. The numbers of pages repeat."""
    value = 0
    for byte in reversed(raw):
        value = value << 7 | byte & 127
    return (value >> 1) ^ -(value & 1)


def _checksum_number(raw: bytes) -> int:
    """The unsigned checksum that a varint has: mostly five bytes, and hardly ever a second time."""
    if len(raw) == 5:
        value = (
            raw[0] & 127 | (raw[1] & 127) << 7 | (raw[2] & 127) << 14 | (raw[3] & 127) << 21 | raw[4] << 28
        )
        return ((value >> 1) ^ -(value & 1)) & 0xFFFFFFFF
    return _number(raw) & 0xFFFFFFFF


def _zigzag(value: int) -> bytes:
    value <<= 1
    if 1 << 14 <= value < 1 << 21:
        return bytes((value & 127 | 128, value >> 7 & 127 | 128, value >> 14))
    if 1 << 21 <= value < 1 << 28:
        return bytes((value & 127 | 128, value >> 7 & 127 | 128, value >> 14 & 127 | 128, value >> 21))
    return _varint(value)


def _varint(value: int) -> bytes:
    if value < 1 << 7:
        return bytes((value,))
    return bytes((value & 127 | 128,)) + _varint(value >> 7)


def _stated_size(frame: bytes | memoryview) -> int | None:
    """The size of its contents that a zstd frame states (RFC 8878), None if it states none."""
    descriptor = frame[4]
    single = descriptor >> 5 & 1
    length = (single, 2, 4, 8)[descriptor >> 6]
    if not length:
        return None
    start = 5 + (not single) + (0, 1, 2, 4)[descriptor & 3]
    return int.from_bytes(frame[start : start + length], "little") + (256 if length == 2 else 0)
