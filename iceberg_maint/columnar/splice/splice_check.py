"""Checks a spliced file, read back from storage, against its sources. Any difference means: encode again.

Each spliced chunk must have exactly the page bytes of its sources. Its pages are parsed, and their places and encodings
compared with the metadata. The page index, sizes, counts and statistics are compared with what the sources state. Arrow
must read the metadata and the first value of each column.

Then the statistics are compared with the rows: those of footer and manifest, and those of copied pages. A copied page
keeps the entry of its column index. Readers skip pages by these entries, so a wrong one loses rows.

Blind spots: `difference` and `copy_difference` decode no values. `page_statistics` decodes the copied pages, with their checksums,
and `statistics_difference` compares the statistics with the rows. A page that was damaged in its source before this program read it, without a checksum, is
copied. The columns that are not spliced are proved by comparison with the decoded input; here their bytes, statistics and
page index are compared with what Arrow encoded.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from iceberg_maint.columnar.check.file_proof import Comparison
from iceberg_maint.columnar.check.metrics import chunk_statistics
from iceberg_maint.columnar.check.page_index import page_difference, starts_of
from iceberg_maint.columnar.parquet.parquet_metadata import Chunk, MetadataError, Page, ParquetBytes, get
from iceberg_maint.columnar.parquet.reader import opened
from iceberg_maint.columnar.parquet.thrift import TRUE, Struct
from iceberg_maint.columnar.read.decimals import IntegerFooters, integers_of
from iceberg_maint.columnar.read.leaves import (
    Leaf,
    Statistics,
    layout_type,
    leaves_of,
    row_statistics,
    sum_of,
    viewed,
)
from iceberg_maint.columnar.read.schema import Struct as TableSchema
from iceberg_maint.columnar.splice.splice_file import EncodedGroup, Part, chunks_by_path, paths_of
from iceberg_maint.columnar.splice.splice_rules import merged_statistics
from iceberg_maint.columnar.storage import FileRange, arrow_file, raise_shortage
from iceberg_maint.columnar.task import OutputMetrics


def difference(output: Any, form: ParquetBytes, parts: Sequence[Part], spliced: Collection[int]) -> str:
    """Returns the first difference between the bytes of an output and its sources, "" if there is none."""
    try:
        file = ParquetBytes.of(output)
        return (
            _layout(file, form, [p.rows for p in parts])
            or _columns(file, parts, spliced)
            or _encoded_columns(file, parts, spliced)
            or _arrow(output, file)
        )
    except MetadataError as why:
        return str(why)


def copy_difference(output: Any, form: ParquetBytes, groups: Sequence[EncodedGroup]) -> str:
    """Returns the first difference between the metadata of an output and those of the encoded chunks that it has, "" if there
    is none. Their bytes are compared elsewhere."""
    try:
        file = ParquetBytes.of(output)
        if problem := _layout(file, form, [g.rows for g in groups]):
            return problem
        for number, group in enumerate(groups):
            for index, path in enumerate(paths_of(file)):
                if problem := _copied_metadata(file.chunk(number, index), group.chunks[path]):
                    return f"row group {number}, column {b'.'.join(path).decode()}: {problem}"
        return _arrow(output, file)
    except MetadataError as why:
        return str(why)


def _layout(file: ParquetBytes, form: ParquetBytes, rows: Sequence[int]) -> str:
    if get(file.footer, 2) != get(form.footer, 2):
        return "the output has another schema"
    if file.footer.get(7) != form.footer.get(7):
        return "the output has other column orders"
    if [get(g, 3) for g in file.row_groups] != rows:
        return "the row groups have other numbers of rows than their sources"
    if file.rows != sum(rows):
        return "the footer has another number of rows than the sources"
    # Chunks of a file are next to each other, so no chunk has a byte of another.
    position = 4
    for number, group in enumerate(file.row_groups):
        for column in range(len(get(group, 1)[1])):
            chunk = file.chunk(number, column)
            if chunk.start != position:
                return f"row group {number}, column {column} starts at {chunk.start}, not at {position}"
            position += chunk.size
    return ""


def _columns(file: ParquetBytes, parts: Sequence[Part], spliced: Collection[int]) -> str:
    if missing := sorted(set(spliced) - file.leaf_by_id.keys()):
        return f"the output has no column with field id {missing[0]}"
    for number, part in enumerate(parts):
        for field_id in spliced:
            index = file.leaf_by_id[field_id]
            chunks = part.chunks(field_id)
            found = file.chunk(number, index)
            sources = [c for c, _ in chunks]
            problem = _chunk(found, chunks, part.is_isolated) or _merged(file, found, sources, index)
            if problem := problem or _dictionary(found, sources, part.is_isolated):
                return f"row group {number}, field id {field_id}: {problem}"
    return ""


def _encoded_columns(file: ParquetBytes, parts: Sequence[Part], spliced: Collection[int]) -> str:
    """Compares the chunks that are not spliced with those that Arrow encoded."""
    spliced_indexes = {file.leaf_by_id[field_id] for field_id in spliced}
    for number, part in enumerate(parts):
        encoded = chunks_by_path(part)
        for index, path in enumerate(paths_of(file)):
            if index in spliced_indexes:
                continue
            if path not in encoded:
                return f"column {b'.'.join(path).decode()} is neither spliced nor encoded"
            if problem := _copy(file.chunk(number, index), encoded[path]):
                return f"row group {number}, column {b'.'.join(path).decode()}: {problem}"
    return ""


def _copy(found: Chunk, source: Chunk) -> str:
    if not _same_bytes(found.pages_bytes, source.pages_bytes):
        return "the pages differ from those that were encoded"
    return _copied_metadata(found, source)


def _copied_metadata(found: Chunk, source: Chunk) -> str:
    shift = found.start - source.start
    for number in (1, 2, 3, 4, 5, 6, 7, 12, 13):
        if found.metadata.get(number) != source.metadata.get(number):
            return "the metadata differ from those that were encoded"
    for number in (9, 11):
        if get(found.metadata, number, 0) != (get(source.metadata, number) or -shift) + shift:
            return "a page offset differs from the one that was encoded"
    if found.column_index != source.column_index:
        return "the column index differs from the one that was encoded"
    locations, expected = (get(c.offset_index or {}, 1, (0, ()))[1] for c in (found, source))
    moved = [(get(p, 1) + shift, get(p, 2), get(p, 3)) for p in expected]
    if [(get(p, 1), get(p, 2), get(p, 3)) for p in locations] != moved:
        return "the offset index differs from the one that was encoded"
    return ""


def _chunk(found: Chunk, sources: Sequence[tuple[Chunk, int]], is_isolated: bool) -> str:
    """Compares the bytes and the pages of a chunk with its sources."""
    data, position = found.pages_bytes, 0
    pages: list[Page] = []
    first_rows: list[int] = []
    row = 0
    for source, rows in sources:
        contents = source.pages_bytes
        if not _same_bytes(data[position : position + source.size], contents):
            return "the pages differ from those of a source"
        shift = found.start + position - source.start
        source_row = row
        for page in source.pages(contents, with_dictionary=is_isolated):
            pages.append(Page(page.offset + shift, page.size, page.values))
            first_rows.append(source_row)
            source_row += page.values
        position += source.size
        row += rows
        if source_row != row:
            return "the pages of a source have another number of rows than its row group"
    if position != found.size:
        return "the chunk has other bytes than its sources"
    offsets = found.offset_index
    stated = [(get(p, 1), get(p, 2), get(p, 3)) for p in get(offsets or {}, 1, (0, ()))[1]]
    if stated != [(p.offset, p.size, r) for p, r in zip(pages, first_rows, strict=True)]:
        return "the offset index differs from the pages"
    return _column_index(found.column_index, [c.column_index for c, _ in sources], len(pages))


def _same_bytes(data: memoryview, other: memoryview) -> bool:
    # Python compares the views byte by byte in a loop.
    return bool(pa.py_buffer(data).equals(pa.py_buffer(other)))


def _column_index(found: Struct | None, sources: Sequence[Struct | None], pages: int) -> str:
    if found is None or any(s is None for s in sources):
        return "the chunk or a source has no column index"
    for number in (1, 2, 3):
        expected = [v for s in sources for v in get(s or {}, number)[1]]
        values = get(found, number)[1]
        if number == 1:
            expected, values = [v == TRUE for v in expected], [v == TRUE for v in values]
        if len(values) != pages or values != expected:
            return "the column index differs from those of the sources"
    if get(found, 4) != 0:
        return "the column index claims an order of its pages"
    nulls = get(found, 5)
    if nulls is not None and nulls[1] != [v for s in sources for v in get(s or {}, 5, (0, ()))[1]]:
        return "the column index has other null counts than the sources"
    return ""


def _merged(file: ParquetBytes, found: Chunk, sources: Sequence[Chunk], index: int) -> str:
    """Compares the metadata of a chunk with those of its sources."""
    md = found.metadata
    for number, name in ((5, "values"), (6, "uncompressed bytes"), (7, "compressed bytes")):
        if get(md, number) != sum(get(s.metadata, number) for s in sources):
            return f"the chunk has another number of {name} than its sources"
    for number, name in ((1, "physical type"), (4, "codec")):
        if any(get(s.metadata, number) != get(md, number) for s in sources):
            return f"the chunk has another {name} than its sources"
    if set(get(md, 2)[1]) != {e for s in sources for e in get(s.metadata, 2)[1]}:
        return "the chunk states other encodings than its sources"
    if found.statistics != merged_statistics(sources, file.leaves[index]):
        return "the statistics differ from those of the sources"
    return ""


def _dictionary(found: Chunk, sources: Sequence[Chunk], is_isolated: bool) -> str:
    """Compares the places of the dictionary and of the first data page with those of a chunk that is alone. Others have
    no dictionary."""
    if not is_isolated:
        return "the chunk states a dictionary" if get(found.metadata, 11) else ""
    [source] = sources
    shift = found.start - source.start
    for number in (9, 11):
        stated, expected = get(found.metadata, number), get(source.metadata, number)
        if (stated or None) != (expected and expected + shift):
            return "the chunk states another place of its dictionary or of its first page"
    return ""


def _arrow(output: Any, file: ParquetBytes) -> str:
    """Lets Arrow, which shares no code with this package's parser, read the metadata and the first row of each row
    group."""
    try:
        reader = pq.ParquetFile(arrow_file(output), pre_buffer=False)
        metadata = reader.metadata
        if (metadata.num_rows, metadata.num_row_groups) != (file.rows, len(file.row_groups)):
            return "Arrow reads another number of rows or row groups"
        for group in range(metadata.num_row_groups):
            for index, column in enumerate(get(file.row_groups[group], 1)[1]):
                stated, expected = metadata.row_group(group).column(index), get(column, 3)
                if stated.path_in_schema != ".".join(p.decode() for p in get(expected, 3)[1]):
                    return "Arrow reads another column path"
                if stated.num_values != get(expected, 5):
                    return "Arrow reads another number of values"
            rows = next(reader.iter_batches(batch_size=1, row_groups=[group], use_threads=False))
            if rows.num_rows != 1:
                return "Arrow reads no row of a row group"
    except (pa.ArrowException, OSError, StopIteration) as why:
        raise_shortage(why)
        return f"Arrow cannot read the output: {why}"
    return ""


_TEXTS = ("string", "binary")
_BATCH_ROWS = 65_536
"""Rows that are decoded together: few pages, which stay in the processor's cache."""


PageStatistics = Mapping[int, Sequence[Sequence[Statistics]]]
"""By field id and row group, the statistics of the rows of each page."""


def page_statistics(
    output: pa.Buffer | FileRange, table: TableSchema, spliced: Collection[int]
) -> PageStatistics:
    """Decodes the copied columns of an output, whose field ids are `spliced`. Raises MetadataError if they cannot be read."""
    try:
        metadata = IntegerFooters().metadata(output, integers_of(table))
        parsed = ParquetBytes.of(output)
        file = opened(output, metadata=metadata, dictionaries=_dictionary_texts(parsed, table, spliced))
        return {
            key: [
                _page_statistics(file, n, leaf, starts_of(parsed.chunk(n, parsed.leaf_by_id[key])))
                for n in range(file.metadata.num_row_groups)
            ]
            for leaf in leaves_of(table)
            if (key := leaf.column.field_id) in spliced
        }
    except (pa.ArrowException, OSError) as why:
        raise_shortage(why)
        raise MetadataError(f"the copied columns cannot be read: {why}") from why


def statistics_difference(
    output: pa.Buffer | FileRange,
    table: TableSchema,
    pages: PageStatistics,
    totals: Mapping[int, list[Statistics]],
    metrics: OutputMetrics,
    modes: Mapping[int, str],
) -> str:
    """Returns the first difference, "" if there is none. `pages` are those of the copied columns. `totals` has the statistics
    of the rows of the other columns, which were compared."""
    comparison = Comparison(table, output, metrics, modes)
    comparison.totals.update(totals)
    parsed, footer = comparison.parsed, pq.read_metadata(arrow_file(output))
    problem = comparison.footer_difference(footer.num_rows)
    for index, leaf in enumerate(leaves_of(table)):
        for number, of_group in enumerate(pages.get(leaf.column.field_id, ())):
            found = sum_of(of_group)
            problem = problem or comparison.column_difference(number, index, found.values, found)
            place = f"column {leaf.column.path}, row group {number}"
            chunk = parsed.chunk(number, parsed.leaf_by_id[leaf.column.field_id])
            problem = problem or page_difference(place, chunk, leaf, of_group)
            stated = chunk_statistics(footer.row_group(number).column(index), leaf.primitive)
            if not problem and (stated.lower, stated.upper) != (found.lower, found.upper):
                problem = f"{place}: the footer states a bound that no row has"
    return problem or comparison.end_difference()


def _dictionary_texts(output: ParquetBytes, table: TableSchema, spliced: Collection[int]) -> list[str]:
    """The paths of copied texts of which every page has a dictionary. They are decoded as dictionaries: a text for each
    row takes several times as long."""
    groups = range(len(output.row_groups))
    return [
        leaf.path
        for leaf in leaves_of(table)
        if (field_id := leaf.column.field_id) in spliced
        and leaf.primitive.base in _TEXTS
        and all(output.chunk(n, output.leaf_by_id[field_id]).is_dictionary_encoded for n in groups)
    ]


def _page_statistics(
    file: pq.ParquetFile, number: int, leaf: Leaf, starts: Sequence[int]
) -> list[Statistics]:
    """The statistics of the rows of each page of a column. The last page has all rows after its start."""
    batches = file.iter_batches(_BATCH_ROWS, row_groups=[number], columns=[leaf.path], use_threads=False)
    values = _pages((b.column(0) for b in batches), [end - start for start, end in pairwise(starts)])
    # Arrow has no bounds of extension types, which a UUID is.
    return [
        row_statistics([viewed(c, layout_type(c.type)) for c in chunks], leaf.primitive) for chunks in values
    ]


def _pages(batches: Iterator[pa.Array], sizes: Sequence[int]) -> Iterator[list[pa.Array]]:
    """Cuts batches into pages of these sizes, and one of the rest."""
    waiting: list[pa.Array] = []
    for size in sizes:
        page: list[pa.Array] = []
        while size > 0 and (batch := waiting.pop() if waiting else next(batches, None)) is not None:
            page.append(batch.slice(0, size))
            if len(batch) > size:
                waiting.append(batch.slice(size))
            size -= len(page[-1])
        yield page
    yield [*waiting, *batches]
