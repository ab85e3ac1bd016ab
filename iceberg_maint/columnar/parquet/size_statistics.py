"""The form of the size statistics of column chunks (parquet-format's `SizeStatistics`).

Arrow refuses statistics that do not fit their column. PyArrow's objects of chunks do not catch that error, so it ends the
process.
"""

from __future__ import annotations

from collections.abc import Iterator

from iceberg_maint.columnar.parquet.parquet_metadata import BYTE_ARRAY, MetadataError, ParquetBytes, get
from iceberg_maint.columnar.parquet.thrift import Struct

_TEXT_BYTES, _REPETITION_LEVELS, _DEFINITION_LEVELS = 1, 2, 3
_REQUIRED, _REPEATED = 0, 2


def size_statistics_problem(file: ParquetBytes) -> str:
    """Returns why size statistics do not fit their column, as Arrow's `SizeStatistics::Validate` says: histograms with
    another number of levels, bytes of texts in a column of others. "" if all fit. Raises MetadataError for a schema that
    lacks elements."""
    levels = list(_levels(file))
    for number in range(len(file.row_groups)):
        for index, (repetition, definition) in enumerate(levels):
            metadata = file.chunk(number, index).metadata
            sizes: Struct = get(metadata, 16, {})
            for field, most in ((_REPETITION_LEVELS, repetition), (_DEFINITION_LEVELS, definition)):
                found = len(get(sizes, field, (0, ()))[1])
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
