"""Parquet's footer, page headers and page index as values (parquet-format's `parquet.thrift`).

Only what a splice needs has a name here. The rest stays in the Thrift structs and is copied.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from iceberg_maint.columnar.parquet.metadata_forms import COLUMN_INDEX, FOOTER, OFFSET_INDEX, PAGE_HEADER
from iceberg_maint.columnar.parquet.thrift import I32, Form, Reader, Struct, ThriftError
from iceberg_maint.columnar.storage import FileRange

MAGIC = b"PAR1"
TAIL_BYTES = 8
# Physical types.
BOOLEAN, INT32, INT64, INT96, FLOAT, DOUBLE_TYPE, BYTE_ARRAY, FIXED = range(8)
PLAIN = 0
# Encodings of data pages that need a dictionary.
_RLE_DICTIONARY = 8
_LEVEL_ENCODINGS = frozenset({3, 4})
"""RLE and BIT_PACKED."""
DICTIONARY_ENCODINGS = frozenset({2, _RLE_DICTIONARY})
DATA_PAGE, DICTIONARY_PAGE, DATA_PAGE_V2 = 0, 2, 3
_DECIMAL = 5


class MetadataError(Exception):
    """The metadata of a Parquet file are damaged, or have a form that a splice does not copy."""


def get(fields: Struct, number: int, default: Any = None) -> Any:
    """The value of a field, `default` if the struct lacks it."""
    return fields[number][1] if number in fields else default


@dataclass(frozen=True)
class Leaf:
    """A column at the top level without children: its schema element."""

    element: Struct

    @cached_property
    def field_id(self) -> int | None:
        """Iceberg's field id. None: the column has none."""
        value: int | None = get(self.element, 9)
        return value

    @cached_property
    def form(self) -> tuple[Any, ...]:
        """What two columns must have in common so that the pages of one are valid in the other: physical type,
        length, repetition, decimal scale and precision, and logical type."""
        e = self.element
        return get(e, 1), get(e, 2), get(e, 3), self._logical()

    def _logical(self) -> Any:
        if 10 in self.element:
            return repr(sorted(get(self.element, 10).items()))
        return tuple(get(self.element, n) for n in (6, 7, 8))

    @property
    def is_decimal(self) -> bool:
        """Whether the values are decimal numbers."""
        return get(self.element, 6) == _DECIMAL or _DECIMAL in get(self.element, 10, {})

    @property
    def physical_type(self) -> int:
        """Parquet's physical type."""
        value: int = get(self.element, 1)
        return value


@dataclass(frozen=True)
class Page:
    """A data page: the offset of its header in the file, its bytes with the header, its number of values."""

    offset: int
    size: int
    values: int


@dataclass(frozen=True)
class ParquetBytes:
    """The bytes of a Parquet file and its footer."""

    data: memoryview | FileRange
    footer: Struct

    @classmethod
    def of(cls, buffer: Any) -> ParquetBytes:
        """Parses the footer. Raises MetadataError if the bytes are not an unencrypted Parquet file."""
        data = buffer if isinstance(buffer, FileRange) else memoryview(buffer).cast("B")
        if len(data) < len(MAGIC) + TAIL_BYTES or data[-4:] != MAGIC or data[:4] != MAGIC:
            raise MetadataError("the bytes do not start and end with PAR1")
        start = len(data) - TAIL_BYTES - int.from_bytes(data[-8:-4], "little")
        if start < len(MAGIC):
            raise MetadataError("the footer is longer than the file")
        return cls(data, _struct(data[start:-TAIL_BYTES], FOOTER))

    @cached_property
    def _chunks(self) -> dict[tuple[int, int], Chunk]:
        return {}

    @cached_property
    def rows(self) -> int:
        """The number of rows."""
        value: int = get(self.footer, 3)
        return value

    @cached_property
    def row_groups(self) -> Sequence[Struct]:
        """The row groups."""
        groups: Sequence[Struct] = get(self.footer, 4)[1]
        return groups

    @cached_property
    def leaves(self) -> Mapping[int, Leaf]:
        """The columns at the top level without children, by their index among the leaf columns. Raises MetadataError if
        there is no schema."""
        elements = get(self.footer, 2)[1]
        if not elements:
            raise MetadataError("the schema has no elements")
        leaves: dict[int, Leaf] = {}
        index, open_children = 0, [get(elements[0], 5, 0)]
        for element in elements[1:]:
            open_children[-1] -= 1
            children = get(element, 5, 0)
            if children:
                open_children.append(children)
            else:
                if len(open_children) == 1:
                    leaves[index] = Leaf(element)
                index += 1
            while len(open_children) > 1 and not open_children[-1]:
                open_children.pop()
        return leaves

    @cached_property
    def leaf_by_id(self) -> Mapping[int, int]:
        """The index of each top-level leaf column by its field id. Raises MetadataError if two have one id."""
        found: dict[int, int] = {}
        for index, leaf in self.leaves.items():
            if leaf.field_id is not None:
                if leaf.field_id in found:
                    raise MetadataError(f"field id {leaf.field_id} occurs twice")
                found[leaf.field_id] = index
        return found

    def chunk(self, group: int, column: int) -> Chunk:
        """The chunk of a leaf column in a row group. Raises MetadataError if the row group lacks it."""
        key = group, column
        if key not in self._chunks:
            chunks = get(self.row_groups[group], 1)[1]
            if column >= len(chunks):
                raise MetadataError(f"row group {group} has {len(chunks)} columns")
            self._chunks[key] = Chunk(self.data, chunks[column])
        return self._chunks[key]


@dataclass(frozen=True)
class Chunk:
    """A column chunk: the bytes of its file, and its Thrift struct."""

    data: memoryview | FileRange
    struct: Struct

    @cached_property
    def metadata(self) -> Struct:
        """The chunk's `ColumnMetaData`."""
        if 3 not in self.struct or 8 in self.struct or 9 in self.struct or get(self.struct, 1):
            raise MetadataError("the chunk is encrypted or in another file")
        found: Struct = get(self.struct, 3)
        return found

    @property
    def start(self) -> int:
        """The offset of the first page."""
        md = self.metadata
        dictionary = get(md, 11)
        value: int = min(get(md, 9), dictionary) if dictionary else get(md, 9)
        return value

    @property
    def size(self) -> int:
        """The bytes of all pages with their headers."""
        value: int = get(self.metadata, 7)
        return value

    @property
    def values(self) -> int:
        """The number of values with nulls."""
        value: int = get(self.metadata, 5)
        return value

    @property
    def pages_bytes(self) -> memoryview:
        """The bytes of all pages. Raises MetadataError if they are outside of the file."""
        if self.start < len(MAGIC) or self.size < 0 or self.start + self.size > len(self.data) - TAIL_BYTES:
            raise MetadataError("the pages of a chunk are outside of its file")
        return self.data[self.start : self.start + self.size]

    @property
    def statistics(self) -> Struct:
        """The statistics, {} if the chunk has none."""
        found: Struct = get(self.metadata, 12, {})
        return found

    @property
    def has_dictionary(self) -> bool:
        """Whether the metadata state that a data page has the dictionary."""
        return not DICTIONARY_ENCODINGS.isdisjoint(get(self.metadata, 2)[1])

    @property
    def is_dictionary_encoded(self) -> bool:
        """Whether the metadata state that every data page has the dictionary."""
        stated = set(get(self.metadata, 2)[1])
        if 13 in self.metadata:
            counts = get(self.metadata, 13)[1]
            stated = {get(c, 2) for c in counts if get(c, 1) in (DATA_PAGE, DATA_PAGE_V2)}
            return stated <= DICTIONARY_ENCODINGS
        return PLAIN not in stated and self.has_dictionary

    @cached_property
    def column_index(self) -> Struct | None:
        """The chunk's `ColumnIndex`. None: it has none."""
        return self._index(6, 7, COLUMN_INDEX)

    @cached_property
    def offset_index(self) -> Struct | None:
        """The chunk's `OffsetIndex`. None: it has none."""
        return self._index(4, 5, OFFSET_INDEX)

    def released(self) -> Chunk:
        """The chunk with its metadata and its page index, without the bytes of its file."""
        found = Chunk(memoryview(b""), self.struct)
        vars(found).update(column_index=self.column_index, offset_index=self.offset_index)
        return found

    def _index(self, offset: int, length: int, form: Form) -> Struct | None:
        if offset not in self.struct or length not in self.struct:
            return None
        start, size = get(self.struct, offset), get(self.struct, length)
        if start < len(MAGIC) or size <= 0 or start + size > len(self.data) - TAIL_BYTES:
            raise MetadataError("a page index is outside of its file")
        return _struct(self.data[start : start + size], form)

    def pages(self, contents: memoryview | None = None, *, with_dictionary: bool = False) -> tuple[Page, ...]:
        """The data pages, from their headers. `contents` are `pages_bytes`, if they were read before. With
        `with_dictionary`, the first page may be one. Raises MetadataError for a page that is or needs a dictionary
        otherwise, pages that do not fill the chunk, and metadata that state another place, other encodings or other sizes of
        the pages. Arrow ignores some of that, and other readers do not."""
        data = self.pages_bytes if contents is None else contents
        position, end = 0, self.size
        uncompressed_bytes = 0
        has_dictionary = False
        found: list[Page] = []
        encodings: set[int | None] = set()
        while position < end:
            reader = Reader(data, position)
            header = page_header(reader)
            kind = get(header, 1)
            is_dictionary = with_dictionary and kind == DICTIONARY_PAGE and not position
            detail = get(header, {DATA_PAGE: 5, DATA_PAGE_V2: 8}.get(kind, -1))
            if detail is None and not is_dictionary:
                raise MetadataError(f"a page has type {kind}, not a data page")
            has_dictionary |= is_dictionary
            encoding = None if detail is None else get(detail, 2 if kind == DATA_PAGE else 4)
            if encoding in DICTIONARY_ENCODINGS and not has_dictionary:
                raise MetadataError("a data page needs a dictionary")
            uncompressed_bytes += reader.position - position + get(header, 2)
            finish = reader.position + get(header, 3)
            if not reader.position <= finish <= end:
                raise MetadataError("a page ends after its chunk")
            if kind == DATA_PAGE and not {get(detail, 3), get(detail, 4)} <= _LEVEL_ENCODINGS:
                raise MetadataError("the levels of a page have an encoding that no reader knows")
            if detail is not None:
                found.append(Page(self.start + position, finish - position, get(detail, 1)))
                encodings.add(_RLE_DICTIONARY if encoding in DICTIONARY_ENCODINGS else encoding)
            position = finish
        if sum(p.values for p in found) != self.values:
            raise MetadataError("the pages of a chunk have another number of values than its metadata")
        if uncompressed_bytes != get(self.metadata, 6):
            raise MetadataError("the pages of a chunk have other uncompressed bytes than its metadata")
        self._check_places(found, has_dictionary=has_dictionary)
        # Readers skip row groups by the dictionary if all pages are stated to have it.
        if any(not encodings <= stated for stated in self._stated_encodings()):
            raise MetadataError("a page has an encoding that the metadata of its chunk do not state")
        return tuple(found)

    def _check_places(self, pages: Sequence[Page], *, has_dictionary: bool) -> None:
        # Old writers state the place of the dictionary as that of the first data page.
        if dictionary := get(self.metadata, 11):
            places = get(self.metadata, 9), dictionary
            if not has_dictionary or any(places != (p.offset, self.start) for p in pages[:1]):
                raise MetadataError("the chunk states another place of its dictionary or of its first page")

    def _stated_encodings(self) -> list[set[int | None]]:
        """The encodings of data pages, from each list of the metadata that has them."""
        md = self.metadata
        lists = [get(md, 2, (I32, ()))[1]]
        if 13 in md:
            lists.append([get(c, 2) for c in get(md, 13)[1] if get(c, 1) in (DATA_PAGE, DATA_PAGE_V2)])
        return [{_RLE_DICTIONARY if e in DICTIONARY_ENCODINGS else e for e in found} for found in lists]


def page_header(reader: Reader) -> Struct:
    """Reads the header of a page. Raises MetadataError if it is damaged."""
    return _read(reader, PAGE_HEADER)


def _struct(data: memoryview, form: Form) -> Struct:
    return _read(Reader(bytes(data)), form)


def _read(reader: Reader, form: Form) -> Struct:
    try:
        return reader.struct(form)
    except ThriftError as why:
        raise MetadataError(f"damaged metadata: {why}") from why
