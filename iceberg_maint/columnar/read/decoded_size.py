"""An upper bound of what the rows of data files take when they are decoded, from footers and, where these leave it open, from
dictionaries. A file of some kilobytes may hold gigabytes of equal values: pages are compressed, a dictionary has a long text
once, and a row may have a list of millions of elements."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping

import pyarrow as pa
import pyarrow.compute as pc

from iceberg_maint.columnar.parquet.parquet_metadata import (
    BYTE_ARRAY,
    DICTIONARY_ENCODINGS,
    FIXED,
    MetadataError,
    ParquetBytes,
    get,
)
from iceberg_maint.columnar.parquet.reader import opened
from iceberg_maint.columnar.parquet.size_statistics import size_statistics_problem
from iceberg_maint.columnar.read.decode import check_size, readable
from iceberg_maint.columnar.read.schema import Column, Struct
from iceberg_maint.columnar.task import InputFile

_VALUE_BYTES = 16
"""The most of a value of a fixed length but `fixed` itself, or of an offset and the marks of a null."""
_PREFIXES = 7
"""The encoding DELTA_BYTE_ARRAY, which states the start of a value in the value before it."""
_REPEATING = DICTIONARY_ENCODINGS | {_PREFIXES}


class DecodedSizeError(Exception):
    """The decoded rows of a task may take more than its process may hold."""


def check_decoded_size(files: Iterable[tuple[InputFile, pa.Buffer]], table: Struct, most_bytes: int) -> None:
    """Raises DecodedSizeError if the decoded rows of files with these contents may take more than `most_bytes`. Decodes
    no values but those of dictionaries that are smaller. Raises WrongInputError for a file of another size, or one that
    Arrow cannot read, MetadataError for one that only this package's parser cannot read."""
    defaults = sum(map(_default_bytes, table.columns))
    total = 0
    for file, contents in files:
        check_size(file, len(contents))
        with readable(file.path):
            parsed = _parsed(contents)
            sure, more = _bytes_of(parsed)
            total += sure + parsed.rows * (defaults + _constant_bytes(file.constants))
            if total <= most_bytes < total + sum(more.values()):
                more = {index: _text_bytes(contents, parsed, index, most) for index, most in more.items()}
        total += sum(more.values())
        if total > most_bytes:
            raise DecodedSizeError(f"{file.path}: up to {total} bytes")


def _parsed(contents: pa.Buffer) -> ParquetBytes:
    # PyArrow ends the process if it makes an object of damaged metadata of a chunk.
    try:
        parsed = ParquetBytes.of(contents)
    except MetadataError:
        opened(contents)
        raise
    if problem := size_statistics_problem(parsed):
        raise pa.ArrowInvalid(problem)
    return parsed


def _bytes_of(file: ParquetBytes) -> tuple[int, dict[int, int]]:
    """The bytes of a file's rows without those of texts that stand for several values, and the most that these add, by
    the number of their leaf column."""
    lengths = [get(e, 2, 0) for e in get(file.footer, 2)[1][1:] if not get(e, 5, 0)]
    sure, more = 0, defaultdict[int, int](int)
    for number in range(len(file.row_groups)):
        for index, length in enumerate(lengths):
            metadata = file.chunk(number, index).metadata
            values, stated = get(metadata, 5), get(metadata, 6)
            sure += values * _VALUE_BYTES + stated
            if get(metadata, 1) == FIXED:
                sure += values * length
            elif get(metadata, 1) == BYTE_ARRAY and not _REPEATING.isdisjoint(get(metadata, 2)[1]):
                # Each value may be the longest one, which no page but one states.
                more[index] += values * stated
    return sure, more


def _text_bytes(contents: pa.Buffer, file: ParquetBytes, index: int, most: int) -> int:
    """The bytes of the texts of a column, decoded with dictionaries. `most` if Arrow would not keep these, would make one
    of all values, or does not find the column by its name."""
    names = [get(leaf.element, 4) for leaf in file.leaves.values()]
    name = get(file.leaves[index].element, 4) if index in file.leaves else b"."
    chunks = [file.chunk(number, index) for number in range(len(file.row_groups))]
    has_prefixes = any(_PREFIXES in get(c.metadata, 2)[1] for c in chunks)
    if b"." in name or names.count(name) != 1 or has_prefixes:
        return most
    path = name.decode()
    column = opened(contents, dictionaries=[path]).read(columns=[path], use_threads=False).column(0)
    if not pa.types.is_dictionary(column.type):
        return most
    lengths = (pc.binary_length(c.dictionary).take(c.indices) for c in column.chunks)
    return sum(pc.sum(n.cast(pa.int64())).as_py() or 0 for n in lengths)


def _default_bytes(column: Column) -> int:
    return len(str(column.default or "")) + sum(map(_default_bytes, column.children))


def _constant_bytes(constants: Mapping[int, object]) -> int:
    return sum(len(str(value)) for value in constants.values())
