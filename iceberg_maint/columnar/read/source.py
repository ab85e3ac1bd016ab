"""What input files show before they are decoded: which columns have dictionaries, and an upper bound of what their rows take.

The bound comes from footers and, where these leave it open, from dictionaries. A file of some kilobytes may hold gigabytes
of equal values: pages are compressed, a dictionary has a long text once, and a row may have a list of millions of
elements.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from iceberg_maint.columnar.parquet.parquet_metadata import (
    BYTE_ARRAY,
    DICTIONARY_ENCODINGS,
    FIXED,
    Chunk,
    MetadataError,
    ParquetBytes,
    get,
    page_header,
)
from iceberg_maint.columnar.parquet.reader import opened
from iceberg_maint.columnar.parquet.thrift import Reader
from iceberg_maint.columnar.read.decode import check_size, readable
from iceberg_maint.columnar.read.leaves import leaves_of
from iceberg_maint.columnar.read.packing import is_small
from iceberg_maint.columnar.read.projection import FileColumn, file_columns
from iceberg_maint.columnar.read.schema import Column, Primitive, Struct
from iceberg_maint.columnar.storage import FileRange
from iceberg_maint.columnar.task import InputFile, RewriteTask

_FILES = 4
_ROWS_PER_FOOTER = 20_000
"""The rows of a task for each footer that is read. To read a footer costs as much as to decode some hundred rows."""
_FEW_VALUES = 0.1
"""The most values of a dictionary per value of its column chunk, for a column whose values repeat. Writers give each column
of a small file a dictionary."""
_HEADER_BYTES = 64
"""More than the header of a dictionary page has."""


@dataclass(frozen=True, slots=True)
class SourceDictionaries:
    """`repeating` are the field ids of the leaf columns whose values repeat: in the input files each page has a dictionary, and
    the dictionaries have few values. `strings` are the top-level string columns among them that are decoded as
    dictionaries."""

    repeating: frozenset[int] = frozenset()
    strings: frozenset[int] = frozenset()


def source_dictionaries(
    read: Callable[[InputFile], pa.Buffer | FileRange], task: RewriteTask, table: Struct
) -> SourceDictionaries:
    """Reads the footers of the largest input files, of small files that of the largest. A footer that this package cannot
    read gives no hint: Arrow decides whether the file can be read."""
    largest = sorted(task.inputs, key=lambda f: -f.size_bytes)
    is_joined = is_small(largest[0].size_bytes, len(leaves_of(table)))
    count = sum(f.record_count for f in task.inputs) // _ROWS_PER_FOOTER
    try:
        of_files = [
            _repeating(read(f), f, task.name_mapping)
            for f in largest[: min(1 if is_joined else _FILES, count)]
        ]
    except MetadataError:
        of_files = []
    if not of_files:
        return SourceDictionaries()
    repeating = frozenset.intersection(*of_files)
    # Small files that are not decoded together have no dictionaries.
    if is_joined and (task.keep_row_lineage or any(f.has_deletes for f in task.inputs)):
        return SourceDictionaries(repeating)
    strings = (c.field_id for c in table.columns if c.kind == Primitive("string") and "." not in c.name)
    return SourceDictionaries(repeating, repeating.intersection(strings))


def _repeating(contents: pa.Buffer | FileRange, file: InputFile, name_mapping: str | None) -> frozenset[int]:
    # PyArrow ends the process if it makes an object of damaged metadata of a chunk.
    with readable(file.path):
        schema = opened(contents).schema_arrow
    ids = leaf_ids(file_columns(schema, name_mapping, file.path))
    footer = ParquetBytes.of(contents)
    chunks = [(n, i) for n, group in enumerate(footer.row_groups) if get(group, 3) for i in enumerate(ids)]
    others = {
        field_id for group, (index, field_id) in chunks if not _has_few_values(footer.chunk(group, index))
    }
    return frozenset(i for _, (_, i) in chunks if i is not None and i not in others)


def _has_few_values(chunk: Chunk) -> bool:
    """Whether a chunk has no page without dictionary and few values in it. Writers change to plain pages when a dictionary
    gets too large. Decoded with a dictionary, all values would be in it."""
    if not chunk.is_dictionary_encoded:
        return False
    header = page_header(Reader(bytes(chunk.data[chunk.start : chunk.start + _HEADER_BYTES])))
    size = get(get(header, 7, {}), 1)
    return size is not None and size <= _FEW_VALUES * chunk.values


def leaf_ids(columns: Sequence[FileColumn]) -> list[int | None]:
    """Returns the field ids of the leaf columns of a file, in the order of its column chunks."""
    ids: list[int | None] = []
    for column in columns:
        ids.extend(leaf_ids(column.children) if column.children else [column.field_id])
    return ids


_TEXT_BYTES, _REPETITION_LEVELS, _DEFINITION_LEVELS = 1, 2, 3
_REQUIRED, _REPEATED = 0, 2


def size_statistics_problem(file: ParquetBytes) -> str:
    """Returns why size statistics (parquet-format's `SizeStatistics`) do not fit their column, as Arrow's
    `SizeStatistics::Validate` says: histograms with another number of levels, bytes of texts in a column of others. "" if
    all fit. PyArrow's objects of chunks do not catch Arrow's error, so it ends the process. Raises MetadataError for a
    schema that lacks elements."""
    levels = list(_levels(file))
    for number in range(len(file.row_groups)):
        for index, (repetition, definition) in enumerate(levels):
            metadata = file.chunk(number, index).metadata
            sizes = get(metadata, 16, {})
            for number_of_field, most in ((_REPETITION_LEVELS, repetition), (_DEFINITION_LEVELS, definition)):
                found = len(get(sizes, number_of_field, (0, ()))[1])
                if found not in (0, most + 1):
                    return f"column {index}: a histogram of levels has {found} entries, not {most + 1}"
            if _TEXT_BYTES in sizes and get(metadata, 1) != BYTE_ARRAY:
                return f"column {index} has no texts and states their bytes"
    return ""


def _levels(file: ParquetBytes) -> Iterator[tuple[int, int]]:
    """The highest repetition level and definition level of each leaf column."""
    elements = iter(get(file.footer, 2)[1])

    def read(count: int, repetition: int, definition: int) -> Iterator[tuple[int, int]]:
        for _ in range(count):
            if (element := next(elements, None)) is None:
                raise MetadataError("the schema lacks an element")
            form = get(element, 3, _REQUIRED)
            inner = repetition + (form == _REPEATED), definition + (form != _REQUIRED)
            if children := get(element, 5, 0):
                yield from read(children, *inner)
            else:
                yield inner

    yield from read(get(next(elements, {}), 5, 0), 0, 0)


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
            constants = sum(len(str(value)) for value in file.constants.values())
            total += sure + parsed.rows * (defaults + constants)
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
