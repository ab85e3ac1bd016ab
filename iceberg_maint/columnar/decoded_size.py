"""An upper bound of what the rows of data files take when they are decoded, from footers and, where these leave it open, from
dictionaries. A file of some kilobytes may hold gigabytes of equal values: pages are compressed, a dictionary has a long text
once, and a row may have a list of millions of elements."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from iceberg_maint.columnar.decode import check_size, readable
from iceberg_maint.columnar.reader import opened
from iceberg_maint.columnar.schema import Column, Struct
from iceberg_maint.columnar.task import InputFile

_VALUE_BYTES = 16
"""The most of a value of a fixed length but `fixed` itself, or of an offset and the marks of a null."""
_BYTE_ARRAY, _FIXED = "BYTE_ARRAY", "FIXED_LEN_BYTE_ARRAY"
_DICTIONARIES = frozenset({"RLE_DICTIONARY", "PLAIN_DICTIONARY"})
_PREFIXES = frozenset({"DELTA_BYTE_ARRAY"})
"""The encoding that states the start of a value in the value before it."""


class DecodedSizeError(Exception):
    """The decoded rows of a task may take more than its process may hold."""


def check_decoded_size(files: Iterable[tuple[InputFile, pa.Buffer]], table: Struct, most_bytes: int) -> None:
    """Raises DecodedSizeError if the decoded rows of files with these contents may take more than `most_bytes`. Decodes
    no values but those of dictionaries that are smaller. Raises WrongInputError for a file of another size, or one that cannot
    be read."""
    defaults = sum(map(_default_bytes, table.columns))
    total = 0
    for file, contents in files:
        check_size(file, len(contents))
        with readable(file.path):
            metadata = opened(contents).metadata
            sure, more = _bytes_of(metadata)
            total += sure + metadata.num_rows * (defaults + _constant_bytes(file.constants))
            if total <= most_bytes < total + sum(more.values()):
                more = {path: _text_bytes(contents, metadata, path, most) for path, most in more.items()}
        total += sum(more.values())
        if total > most_bytes:
            raise DecodedSizeError(f"{file.path}: up to {total} bytes")


def _bytes_of(metadata: Any) -> tuple[int, dict[str, int]]:
    """The bytes of a file's rows without those of texts that stand for several values, and the most that these add, by
    the path of their column."""
    sure, more = 0, defaultdict[str, int](int)
    for number in range(metadata.num_row_groups):
        group = metadata.row_group(number)
        for index in range(group.num_columns):
            chunk = group.column(index)
            values, stated = int(chunk.num_values), int(chunk.total_uncompressed_size)
            sure += values * _VALUE_BYTES + stated
            if chunk.physical_type == _FIXED:
                sure += values * int(metadata.schema.column(index).length)
            elif chunk.physical_type == _BYTE_ARRAY and (_DICTIONARIES | _PREFIXES).intersection(
                chunk.encodings
            ):
                # Each value may be the longest one, which no page but one states.
                more[chunk.path_in_schema] += values * stated
    return sure, more


def _text_bytes(contents: pa.Buffer, metadata: Any, path: str, most: int) -> int:
    """The bytes of the texts of a column, decoded with dictionaries. `most` if Arrow would not keep these, or would make
    one of all values."""
    groups = [metadata.row_group(number) for number in range(metadata.num_row_groups)]
    names = [c.path_in_schema for c in map(groups[0].column, range(groups[0].num_columns))]
    chunks = [group.column(names.index(path)) for group in groups]
    if "." in path or any(_PREFIXES.intersection(c.encodings) for c in chunks):
        return most
    column = opened(contents, dictionaries=[path]).read(columns=[path], use_threads=False).column(0)
    if not pa.types.is_dictionary(column.type):
        return most
    lengths = (pc.binary_length(c.dictionary).take(c.indices) for c in column.chunks)
    return sum(pc.sum(n.cast(pa.int64())).as_py() or 0 for n in lengths)


def _default_bytes(column: Column) -> int:
    return len(str(column.default or "")) + sum(map(_default_bytes, column.children))


def _constant_bytes(constants: Mapping[int, object]) -> int:
    return sum(len(str(value)) for value in constants.values())
