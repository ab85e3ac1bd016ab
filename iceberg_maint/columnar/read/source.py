"""What the input files show of their encoding: which columns have dictionaries."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import pyarrow as pa

from iceberg_maint.columnar.parquet.file_range import FileRange
from iceberg_maint.columnar.parquet.parquet_metadata import MetadataError, ParquetBytes
from iceberg_maint.columnar.parquet.reader import opened
from iceberg_maint.columnar.read.decode import readable
from iceberg_maint.columnar.read.packing import MOST_BYTES
from iceberg_maint.columnar.read.projection import FileColumn, file_columns
from iceberg_maint.columnar.read.schema import Primitive, Struct
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
