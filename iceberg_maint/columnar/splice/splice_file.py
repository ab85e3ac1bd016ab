"""Writes a Parquet file of copied pages and of chunks that another writer encoded.

A spliced column has the page bytes of all its source chunks, in order, as one chunk: nothing is decompressed. A chunk
that is alone in its row group may have a dictionary. The other
columns come from Parquet files in memory that Arrow encoded with the same rows. Each row group of the output is an
ordinary row group with a page index. `splice_check` compares the result with its sources.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import pyarrow as pa
import pyarrow.parquet as pq

from iceberg_maint.columnar.parquet.parquet_metadata import MAGIC, Chunk, MetadataError, ParquetBytes, get
from iceberg_maint.columnar.parquet.thrift import BINARY, I16, I32, I64, LIST, STRUCT, TRUE, Struct, encoded
from iceberg_maint.columnar.splice.splice_rules import merged_statistics

_BLOOM_OFFSET, _BLOOM_LENGTH, _INDEX_PAGE = 14, 15, 10
_UNORDERED = 0


def template(schema: pa.Schema) -> ParquetBytes:
    """A Parquet file without rows in an Arrow schema. A spliced file takes its schema and its column orders."""
    sink = pa.BufferOutputStream()
    pq.ParquetWriter(sink, schema, store_schema=False, store_decimal_as_integer=True).close()
    return ParquetBytes.of(sink.getvalue())


@dataclass(frozen=True)
class Part:
    """One row group to write: its sources in order, none if no column is spliced, and files of one row group that have the
    columns that are not spliced, each column in one of them."""

    sources: Sequence[ParquetBytes]
    encoded: Sequence[ParquetBytes]

    @property
    def rows(self) -> int:
        """The rows of the row group."""
        return sum(s.rows for s in self.sources or self.encoded[:1])

    @property
    def is_isolated(self) -> bool:
        """Whether the row group has the rows of one row group, so that its chunks may keep their dictionaries."""
        return sum(1 for source in self.sources for group in source.row_groups if get(group, 3)) == 1

    def chunks(self, field_id: int) -> list[tuple[Chunk, int]]:
        """The source chunks of a column, each with the rows of its row group."""
        return [
            (source.chunk(group, source.leaf_by_id[field_id]), get(metadata, 3))
            for source in self.sources
            for group, metadata in enumerate(source.row_groups)
            if get(metadata, 3)
        ]


@dataclass(frozen=True)
class EncodedGroup:
    """A row group that was written from encoded chunks: its rows, and the chunks by their path, without their pages."""

    rows: int
    chunks: Mapping[tuple[bytes, ...], Chunk]

    @classmethod
    def of(cls, part: Part) -> EncodedGroup:
        """The row group that was written of a part without sources."""
        return cls(part.rows, {path: chunk.released() for path, chunk in chunks_by_path(part).items()})


class Sink(Protocol):
    """Takes the bytes of a file in their order."""

    def write(self, data: bytes | memoryview, /) -> object:
        """Takes the next bytes."""


class SpliceWriter:
    """Writes row groups to `sink`. `spliced` has the field ids of the columns to splice."""

    def __init__(
        self,
        sink: Sink,
        form: ParquetBytes,
        spliced: Collection[int],
        key_values: Mapping[str, str],
    ) -> None:
        self._sink, self._form, self._spliced, self._key_values = sink, form, spliced, key_values
        self._position = self._rows = 0
        self._groups: list[Struct] = []
        self._indexes: list[tuple[Struct, Struct | None, Struct]] = []
        self._write(MAGIC)

    def write(self, part: Part) -> None:
        """Writes one row group. Raises MetadataError if a source is not as `spliceable` requires."""
        paths = chunks_by_path(part)
        start, columns = self._position, []
        for index, path in enumerate(paths_of(self._form)):
            leaf = self._form.leaves.get(index)
            if leaf is not None and leaf.field_id is not None and leaf.field_id in self._spliced:
                columns.append(self._splice(part.chunks(leaf.field_id), index, path))
            elif path in paths:
                columns.append(self._copy(paths[path]))
            else:
                raise MetadataError(f"column {b'.'.join(path).decode()} is neither spliced nor encoded")
        self._rows += part.rows
        self._groups.append(
            {
                1: (LIST, (STRUCT, columns)),
                2: (I64, sum(get(get(c, 3), 6) for c in columns)),
                3: (I64, part.rows),
                5: (I64, start),
                6: (I64, self._position - start),
                7: (I16, len(self._groups)),
            }
        )

    def close(self) -> None:
        """Writes the page indexes and the footer. Does not close the sink."""
        for chunk, column_index, _ in self._indexes:
            if column_index is not None:
                self._write_index(chunk, column_index, 6, 7)
        for chunk, _, offset_index in self._indexes:
            self._write_index(chunk, offset_index, 4, 5)
        footer = dict(self._form.footer)
        footer[3] = (I64, self._rows)
        footer[4] = (LIST, (STRUCT, self._groups))
        pairs = [
            {1: (BINARY, k.encode()), 2: (BINARY, v.encode())} for k, v in sorted(self._key_values.items())
        ]
        footer.pop(5, None)
        if pairs:
            footer[5] = (LIST, (STRUCT, pairs))
        data = encoded(footer)
        self._write(data + len(data).to_bytes(4, "little") + MAGIC)

    @property
    def size_bytes(self) -> int:
        """The bytes that were written."""
        return self._position

    def _write(self, data: bytes | memoryview) -> None:
        self._sink.write(data)
        self._position += len(data)

    def _write_index(self, chunk: Struct, index: Struct, offset: int, length: int) -> None:
        data = encoded(index)
        chunk[offset], chunk[length] = (I64, self._position), (I32, len(data))
        self._write(data)

    def _splice(self, chunks: Sequence[tuple[Chunk, int]], index: int, path: tuple[bytes, ...]) -> Struct:
        """Writes the pages of all chunks and returns the struct of their chunk."""
        start, row = self._position, 0
        columns = [_required(c.column_index) for c, _ in chunks]
        locations: list[Struct] = []
        for chunk, rows in chunks:
            shift = self._position - chunk.start
            for page in get(_required(chunk.offset_index), 1)[1]:
                locations.append({1: (I64, get(page, 1) + shift), 2: page[2], 3: (I64, get(page, 3) + row)})
            self._write(chunk.pages_bytes)
            row += rows
        all_metadata = [c.metadata for c, _ in chunks]
        metadata: Struct = {
            1: all_metadata[0][1],
            2: (LIST, (I32, sorted({e for md in all_metadata for e in get(md, 2)[1]}))),
            3: (LIST, (BINARY, list(path))),
            4: all_metadata[0][4],
            5: (I64, sum(c.values for c, _ in chunks)),
            6: (I64, sum(get(md, 6) for md in all_metadata)),
            7: (I64, self._position - start),
            9: (I64, get(all_metadata[0], 9) + start - chunks[0][0].start),
            12: (STRUCT, merged_statistics([c for c, _ in chunks], self._form.leaves[index])),
        }
        if dictionary := get(all_metadata[0], 11):
            metadata[11] = (I64, dictionary + start - chunks[0][0].start)
        if all(13 in md for md in all_metadata):
            metadata[13] = (LIST, (STRUCT, _encoding_counts(all_metadata)))
        chunk_struct: Struct = {2: (I64, 0), 3: (STRUCT, metadata)}
        self._indexes.append((chunk_struct, _joined(columns), {1: (LIST, (STRUCT, locations))}))
        return chunk_struct

    def _copy(self, chunk: Chunk) -> Struct:
        """Writes the pages of an encoded chunk and returns its struct with the offsets of the output."""
        shift = self._position - chunk.start
        metadata = dict(chunk.metadata)
        for number in (9, 11):
            if get(metadata, number):
                metadata[number] = (I64, get(metadata, number) + shift)
        for number in (_INDEX_PAGE, _BLOOM_OFFSET, _BLOOM_LENGTH):
            metadata.pop(number, None)
        self._write(chunk.pages_bytes)
        result: Struct = {2: (I64, 0), 3: (STRUCT, metadata)}
        column_index, offset_index = chunk.column_index, chunk.offset_index
        # Arrow writes no column index of a chunk with bounds of more than 4 KiB.
        if offset_index is not None:
            pages = [{**page, 1: (I64, get(page, 1) + shift)} for page in get(offset_index, 1)[1]]
            self._indexes.append((result, column_index, {**offset_index, 1: (LIST, (STRUCT, pages))}))
        return result


def paths_of(form: ParquetBytes) -> list[tuple[bytes, ...]]:
    """The path of each leaf column of a schema."""
    paths: list[tuple[bytes, ...]] = []
    elements = iter(get(form.footer, 2)[1])

    def read(prefix: tuple[bytes, ...], count: int) -> None:
        for _ in range(count):
            element = next(elements)
            path = (*prefix, get(element, 4))
            if get(element, 5, 0):
                read(path, get(element, 5))
            else:
                paths.append(path)

    read((), get(next(elements), 5, 0))
    return paths


def chunks_by_path(part: Part) -> dict[tuple[bytes, ...], Chunk]:
    """The chunks of the columns that are not spliced, by their path. Raises MetadataError if they have other rows than
    the sources, or if two have one path."""
    chunks: dict[tuple[bytes, ...], Chunk] = {}
    for file in part.encoded:
        if len(file.row_groups) != 1 or get(file.row_groups[0], 3) != part.rows:
            raise MetadataError("the encoded columns have another number of rows than the sources")
        for index, path in enumerate(paths_of(file)):
            if path in chunks:
                raise MetadataError(f"column {b'.'.join(path).decode()} is encoded twice")
            chunks[path] = file.chunk(0, index)
    return chunks


def _required(index: Struct | None) -> Struct:
    if index is None:
        raise MetadataError("a chunk has no page index")
    return index


def _encoding_counts(all_metadata: Sequence[Struct]) -> list[Struct]:
    counts: dict[tuple[int, int], int] = {}
    for metadata in all_metadata:
        for item in get(metadata, 13)[1]:
            key = get(item, 1), get(item, 2)
            counts[key] = counts.get(key, 0) + get(item, 3)
    return [{1: (I32, page), 2: (I32, encoding), 3: (I32, n)} for (page, encoding), n in counts.items()]


def _joined(indexes: Sequence[Struct]) -> Struct:
    """The `ColumnIndex` of all pages. Its boundary order is `UNORDERED`, which is always valid. Histograms of levels,
    which are optional, are left out."""

    def values(number: int) -> list[Any]:
        return [v for index in indexes for v in get(index, number)[1]]

    joined: Struct = {
        # 1 is true. Some writers state false as 0, others as 2.
        1: (LIST, (TRUE, [1 if v == 1 else 2 for v in values(1)])),
        2: (LIST, (BINARY, values(2))),
        3: (LIST, (BINARY, values(3))),
        4: (I32, _UNORDERED),
    }
    if all(5 in index for index in indexes):
        joined[5] = (LIST, (I64, values(5)))
    return joined
