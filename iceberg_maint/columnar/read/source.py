"""What input files show before they are decoded: which columns have dictionaries, and an upper bound of what their rows take.

The bound comes from footers and, where these leave it open, from dictionaries. A file of some kilobytes may hold gigabytes
of equal values: pages are compressed, a dictionary has a long text once, and a row may have a list of millions of
elements.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

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
from iceberg_maint.columnar.read.decode import check_size, readable
from iceberg_maint.columnar.read.packing import MOST_BYTES
from iceberg_maint.columnar.read.projection import FileColumn, file_columns
from iceberg_maint.columnar.read.schema import Column, Primitive, Struct
from iceberg_maint.columnar.storage import FileRange
from iceberg_maint.columnar.task import InputFile, RewriteTask

_FILES = 4
_FEWEST_ROWS = 20_000
"""Rows from which the choice of the source's writer is a hint. Writers give small files dictionaries always."""
_FEW_VALUES = 0.1
"""The most values per row of a string column that keeps the dictionaries of small files."""


@dataclass(frozen=True, slots=True)
class SourceDictionaries:
    """`by_field` has, by field id, whether the files have a dictionary, where they agree. `strings` are the top-level
    string columns with a dictionary that keep it: of small files, those with few values, of others, those without a page
    of plain values, whose values the dictionary lacks."""

    by_field: dict[int, bool] = field(default_factory=dict)
    strings: frozenset[int] = frozenset()


def source_dictionaries(
    read: Callable[[InputFile], pa.Buffer | FileRange], task: RewriteTask, table: Struct
) -> SourceDictionaries:
    """Reads the footers of the largest input files, of small files that of the largest. A footer that this package cannot
    read gives no hint: Arrow decides whether the file can be read."""
    largest = sorted(task.inputs, key=lambda f: -f.size_bytes)[:_FILES]
    is_hint = all(f.record_count >= _FEWEST_ROWS for f in largest)
    if not is_hint:
        largest = largest[:1]
        is_packed = largest[0].size_bytes <= MOST_BYTES and not task.keep_row_lineage
        if not is_packed or any(f.has_deletes for f in task.inputs):
            return SourceDictionaries()
    try:
        of_files = [_of_file(read(f), f, task.name_mapping) for f in largest]
    except MetadataError:
        return SourceDictionaries()
    if not of_files:
        return SourceDictionaries()
    agreed = {
        key: value
        for key, value in of_files[0].items()
        if all(found.get(key, not value) == value for found in of_files[1:])
    }
    strings = frozenset(
        c.field_id
        for c in table.columns
        if c.kind == Primitive("string") and agreed.get(c.field_id, False) and "." not in c.name
    )
    if not is_hint:
        return SourceDictionaries(strings=_with_few_values(read(largest[0]), largest[0], task, strings))
    plain = {i for f in largest for i in _with_plain_pages(read(f), f, task.name_mapping, strings)}
    return SourceDictionaries(agreed, strings - plain)


def _with_few_values(
    contents: pa.Buffer | FileRange, file: InputFile, task: RewriteTask, strings: frozenset[int]
) -> frozenset[int]:
    """The string columns of which a file has few values. The dictionaries of many small files must be merged, which
    costs more than it saves if each file has many values."""
    with readable(file.path):
        parquet = opened(contents)
        columns = file_columns(parquet.schema_arrow, task.name_mapping, file.path)
        names = {
            c.field.name: c.field_id
            for c in columns
            if c.field_id in strings and pa.types.is_string(c.field.type) and "." not in c.field.name
        }
        if not names:
            return frozenset()
        rows = parquet.read(columns=list(names), use_threads=False)
    few = [n for n in names if len(rows.column(n).unique()) <= _FEW_VALUES * rows.num_rows]
    return frozenset(i for n in few if (i := names[n]) is not None)


def _with_plain_pages(
    contents: pa.Buffer | FileRange, file: InputFile, name_mapping: str | None, strings: frozenset[int]
) -> set[int]:
    """The string columns of which a file has data pages without dictionary, or does not say. Writers change to plain
    pages when a dictionary gets too large. Decoded with a dictionary, all values would be in it."""
    if not strings:
        return set()
    ids, footer = _leaf_ids(contents, file, name_mapping), ParquetBytes.of(contents)
    return {
        field_id
        for group in range(len(footer.row_groups))
        for index, field_id in enumerate(ids)
        if field_id in strings and not footer.chunk(group, index).is_dictionary_encoded
    }


def _of_file(contents: pa.Buffer | FileRange, file: InputFile, name_mapping: str | None) -> dict[int, bool]:
    # PyArrow ends the process if it makes an object of damaged metadata of a chunk.
    ids, footer = _leaf_ids(contents, file, name_mapping), ParquetBytes.of(contents)
    found: dict[int, bool] = {}
    for number in range(len(footer.row_groups)):
        for index, field_id in enumerate(ids):
            if field_id is not None:
                has = footer.chunk(number, index).has_dictionary
                found[field_id] = has and found.get(field_id, True)
    return found


def _leaf_ids(contents: pa.Buffer | FileRange, file: InputFile, name_mapping: str | None) -> list[int | None]:
    with readable(file.path):
        schema = opened(contents).schema_arrow
    return leaf_ids(file_columns(schema, name_mapping, file.path))


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
