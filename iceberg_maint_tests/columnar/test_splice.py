"""A spliced file holds the rows of its sources, and each planted damage to it is a difference."""

from __future__ import annotations

import io
import zlib
from collections.abc import Callable
from decimal import Decimal
from functools import cache
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from iceberg_maint.columnar.parquet.parquet_metadata import Leaf, MetadataError, ParquetBytes, get
from iceberg_maint.columnar.parquet.thrift import (
    BINARY,
    FALSE,
    I32,
    I64,
    LIST,
    STRUCT,
    TRUE,
    Reader,
    Struct,
    ThriftError,
    encoded,
)
from iceberg_maint.columnar.splice.splice_check import copy_difference, difference
from iceberg_maint.columnar.splice.splice_file import EncodedGroup, Part, SpliceWriter, template
from iceberg_maint.columnar.splice.splice_rules import CODECS, spliceable

ROWS = 400


def field(name: str, kind: pa.DataType, number: int) -> pa.Field:
    return pa.field(name, kind, metadata={"PARQUET:field_id": str(number)})


SCHEMA = pa.schema(
    [
        field("id", pa.int64(), 1),
        field("price", pa.float64(), 2),
        field("text", pa.string(), 3),
        field("nested", pa.struct([field("a", pa.int32(), 5)]), 4),
        field("amount", pa.decimal128(12, 2), 6),
        field("flag", pa.string(), 7),
        field("wide", pa.decimal128(30, 2), 8),
        field("empty", pa.int32(), 9),
        field("id2", pa.int64(), 10),
    ]
)
SPLICED = (1, 2, 3, 6, 8, 9, 10)


def rows(number: int) -> pa.Table:
    ids = [number * ROWS + i for i in range(ROWS)]
    columns = [
        ids,
        [None if i % 9 == 0 else (i - 500) / 7 for i in ids],
        [f"text {i * 7919 % 1009}" for i in ids],
        [None if i % 5 == 0 else {"a": i % 3} for i in ids],
        [Decimal(i * 31 % 777 - 300) for i in ids],
        [f"v{i % 5}" for i in ids],
        [Decimal(300 - i) for i in ids],
        [None] * ROWS,
        [i + 1 for i in ids],
    ]
    return pa.table(
        [pa.array(v, f.type) for v, f in zip(columns, SCHEMA, strict=True)],
        schema=SCHEMA,
    )


def parquet(table: pa.Table, **settings: Any) -> bytes:
    sink = io.BytesIO()
    defaults = {
        "compression": "zstd",
        "store_schema": False,
        "store_decimal_as_integer": True,
        "write_page_index": True,
        "use_dictionary": ["flag"],
        "max_rows_per_page": 100,
        "write_batch_size": 50,
        "write_page_checksum": True,
    }
    pq.write_table(table, sink, **{**defaults, **settings})
    return sink.getvalue()


@cache
def spliced() -> tuple[bytes, ParquetBytes, Part]:
    """The bytes of a spliced file of three files, its form and its part."""
    tables = [rows(i) for i in range(3)]
    sources = [ParquetBytes.of(parquet(t)) for t in tables]
    rest = pa.concat_tables(tables).select(["nested", "flag"])
    part = Part(sources, [ParquetBytes.of(parquet(rest))])
    form = template(SCHEMA)
    return write(form, [part], SPLICED), form, part


def write(form: ParquetBytes, parts: list[Part], columns: tuple[int, ...]) -> bytes:
    sink = io.BytesIO()
    writer = SpliceWriter(sink, form, columns, {"iceberg.schema": "{}"})
    for part in parts:
        writer.write(part)
    writer.close()
    return sink.getvalue()


def test_spliced_file_has_the_rows_schema_and_statistics_of_its_sources() -> None:
    output, form, part = spliced()
    expected = pa.concat_tables([rows(i) for i in range(3)])
    file = pq.ParquetFile(io.BytesIO(output), page_checksum_verification=True)
    assert file.read().equals(expected)
    assert file.schema_arrow.remove_metadata().equals(SCHEMA, check_metadata=True)
    assert file.metadata.num_row_groups == 1
    assert file.metadata.metadata == {b"iceberg.schema": b"{}"}
    group = file.metadata.row_group(0)
    assert (group.column(0).statistics.min, group.column(0).statistics.max) == (0, 1199)
    assert group.column(1).statistics.null_count == expected.column("price").null_count
    assert group.column(4).statistics.min == Decimal("-300.00")
    assert group.column(6).statistics.min == Decimal("-899.00")
    assert (group.column(7).statistics.has_min_max, group.column(7).statistics.null_count) == (False, 1200)
    assert all(group.column(i).has_offset_index and group.column(i).has_column_index for i in range(9))
    assert difference(output, form, [part], SPLICED) == ""


def test_two_row_groups_of_sources_with_several_row_groups_keep_their_rows() -> None:
    form = template(SCHEMA)
    tables = [rows(i) for i in range(4)]
    sources = [ParquetBytes.of(parquet(t, row_group_size=150)) for t in tables]
    parts = []
    for first in (0, 2):
        rest = pa.concat_tables(tables[first : first + 2]).select(["nested", "flag"])
        parts.append(Part(sources[first : first + 2], [ParquetBytes.of(parquet(rest))]))
    output = write(form, parts, SPLICED)
    assert pq.ParquetFile(io.BytesIO(output)).read().equals(pa.concat_tables(tables))
    assert pq.ParquetFile(io.BytesIO(output)).metadata.num_row_groups == 2
    assert difference(output, form, parts, SPLICED) == ""


def test_column_that_was_renamed_is_spliced_by_its_field_id() -> None:
    renamed = SCHEMA.set(0, field("key", pa.int64(), 1))
    form = template(renamed)
    _, _, part = spliced()
    output = write(form, [part], SPLICED)
    assert pq.ParquetFile(io.BytesIO(output)).read(["key"]).column(0).to_pylist() == list(range(1200))
    assert difference(output, form, [part], SPLICED) == ""


def reason(wanted: pa.Field, *files: bytes, pages: int = 100, codec: str = "zstd") -> str:
    [leaf] = template(pa.schema([wanted])).leaves.values()
    return spliceable([ParquetBytes.of(f) for f in files], leaf, CODECS[codec], pages)


@pytest.mark.parametrize("number", SPLICED)
def test_plain_column_with_statistics_and_indexes_is_spliced(number: int) -> None:
    [wanted] = [f for f in SCHEMA if f.metadata[b"PARQUET:field_id"] == str(number).encode()]
    assert reason(wanted, parquet(rows(0)), parquet(rows(1))) == ""


@pytest.mark.parametrize(
    ("column", "settings", "expected"),
    [
        (0, {"use_dictionary": ["id"]}, "a chunk has a dictionary"),
        (0, {"compression": "snappy"}, "a chunk has another codec"),
        (
            0,
            {"use_dictionary": False, "column_encoding": {"id": "DELTA_BINARY_PACKED"}},
            "a chunk has an encoding that Iceberg's writer does not use",
        ),
        (0, {"write_page_index": False}, "a chunk has no page index"),
        (0, {"write_statistics": False}, "a chunk has no page index"),
        (0, {"max_rows_per_page": 50}, "pages have 66 rows on average"),
    ],
)
def test_column_that_breaks_a_rule_is_encoded(column: int, settings: dict[str, Any], expected: str) -> None:
    assert reason(SCHEMA.field(column), parquet(rows(0)), parquet(rows(1), **settings), pages=80) == expected


@pytest.mark.parametrize(
    ("version", "expected"),
    [("1.0", ""), ("2.0", "a chunk has booleans that Iceberg's vectorized reader does not read")],
)
def test_booleans_as_in_pages_of_version_2_are_encoded(version: str, expected: str) -> None:
    wanted = field("sure", pa.bool_(), 11)
    table = pa.table([pa.array([True, False, None] * 200)], schema=pa.schema([wanted]))
    assert reason(wanted, parquet(table, use_dictionary=False, data_page_version=version)) == expected


@pytest.mark.parametrize(
    "other",
    [
        field("id", pa.int32(), 1),
        field("id", pa.timestamp("us"), 1),
        field("id", pa.int64(), 1).with_nullable(nullable=False),
    ],
)
def test_column_of_another_type_or_repetition_is_encoded(other: pa.Field) -> None:
    assert reason(other, parquet(rows(0))) == "a file has another type or repetition"


def test_column_that_a_file_lacks_is_encoded() -> None:
    lacking = parquet(rows(1).drop_columns(["id"]))
    assert reason(SCHEMA.field(0), parquet(rows(0)), lacking) == "a file lacks the column"


def test_column_with_a_nan_bound_is_encoded() -> None:
    nan = bytes.fromhex("000000000000f87f")
    damaged = edited(parquet(rows(0)), lambda footer: statistics(footer, 1).update({5: (BINARY, nan)}))
    assert reason(SCHEMA.field(1), damaged) == "a bound is NaN"


def test_column_with_shortened_bounds_is_encoded() -> None:
    damaged = edited(parquet(rows(0)), lambda footer: statistics(footer, 2).update({8: (FALSE, None)}))
    assert reason(SCHEMA.field(2), damaged) == "a chunk has shortened bounds"


def test_bytes_that_are_no_parquet_file_are_an_error() -> None:
    for data in (b"", b"PAR1PAR1", b"PAR1" + b"\xff" * 20 + b"PAR1", b"x" * 100):
        with pytest.raises(MetadataError):
            ParquetBytes.of(data)


# ------------------------------------------------------------------------------- planted damage


def edited(data: bytes, edit: Callable[[Struct], object]) -> bytes:
    """The file with a changed footer."""
    footer_bytes = int.from_bytes(data[-8:-4], "little")
    start = len(data) - 8 - footer_bytes
    footer = Reader(data, start).struct()
    edit(footer)
    changed = encoded(footer)
    return data[:start] + changed + len(changed).to_bytes(4, "little") + b"PAR1"


def chunk(footer: Struct, column: int, group: int = 0) -> Struct:
    found: Struct = get(get(footer, 4)[1][group], 1)[1][column]
    return found


def metadata(footer: Struct, column: int) -> Struct:
    found: Struct = get(chunk(footer, column), 3)
    return found


def statistics(footer: Struct, column: int) -> Struct:
    found: Struct = get(metadata(footer, column), 12)
    return found


def element(footer: Struct, index: int) -> Struct:
    found: Struct = get(footer, 2)[1][index]
    return found


def footer_edit(edit: Callable[[Struct], object]) -> Callable[[bytes], bytes]:
    return lambda data: edited(data, edit)


def byte_of(column: int, position: Callable[[int, int], int]) -> Callable[[bytes], bytes]:
    """Flips a bit at a position between the start and the end of a column's chunk."""

    def flip(data: bytes) -> bytes:
        found = ParquetBytes.of(data).chunk(0, column)
        at = position(found.start, found.start + found.size)
        return data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :]

    return flip


def index_edit(
    column: int, offset: int, length: int, edit: Callable[[Struct], object]
) -> Callable[[bytes], bytes]:
    """Changes the column index (6, 7) or offset index (4, 5) of a column and appends it before the footer."""

    def change(data: bytes) -> bytes:
        file = ParquetBytes.of(data)
        owner = file.chunk(0, column)
        found = owner.column_index if offset == 6 else owner.offset_index
        assert found is not None
        edit(found)
        changed = encoded(found)
        end = len(data) - 8 - int.from_bytes(data[-8:-4], "little")
        moved = data[:end] + changed + data[end:]
        return edited(
            moved,
            lambda footer: chunk(footer, column).update({offset: (I64, end), length: (I32, len(changed))}),
        )

    return change


def column_index(column: int, edit: Callable[[Struct], object]) -> Callable[[bytes], bytes]:
    return index_edit(column, 6, 7, edit)


def offset_index(column: int, edit: Callable[[Struct], object]) -> Callable[[bytes], bytes]:
    return index_edit(column, 4, 5, edit)


def swapped_pages(column: int) -> Callable[[bytes], bytes]:
    """Exchanges the first two pages of a column that have one size, or rotates the chunk by a page."""

    def change(data: bytes) -> bytes:
        found = ParquetBytes.of(data).chunk(0, column)
        first, second = found.pages()[:2]
        end = second.offset + second.size
        pages = data[second.offset : end] + data[first.offset : first.offset + first.size]
        return data[: first.offset] + pages + data[end:]

    return change


def swapped_columns(first: int, second: int) -> Callable[[Struct], None]:
    def change(footer: Struct) -> None:
        columns = get(get(footer, 4)[1][0], 1)[1]
        a, b = metadata(footer, first), metadata(footer, second)
        a[3], b[3] = b[3], a[3]
        columns[first], columns[second] = columns[second], columns[first]

    return change


def add(struct: Struct, number: int, by: int) -> None:
    kind, value = struct[number]
    struct[number] = kind, value + by


def first_page(index: Struct) -> Struct:
    found: Struct = get(index, 1)[1][0]
    return found


DAMAGE: dict[str, Callable[[bytes], bytes]] = {
    "a bit of the first page header": byte_of(0, lambda start, _: start + 2),
    "a bit within the pages": byte_of(0, lambda start, end: (start + end) // 2),
    "the last bit of the pages": byte_of(2, lambda _, end: end - 1),
    "a bit of an encoded dictionary": byte_of(5, lambda start, _: start + 20),
    "a bit of an encoded page": byte_of(3, lambda _, end: end - 1),
    "two pages swapped": swapped_pages(0),
    "two columns swapped": footer_edit(swapped_columns(0, 8)),
    "two row ranges of two columns swapped": footer_edit(
        lambda f: metadata(f, 0).update({9: metadata(f, 8)[9]})
    ),
    "a field id": footer_edit(lambda f: element(f, 1).update({9: (I32, 99)})),
    "two field ids swapped": footer_edit(
        lambda f: (element(f, 1).update({9: (I32, 10)}), element(f, 10).update({9: (I32, 1)}))
    ),
    "a column name": footer_edit(lambda f: element(f, 1).update({4: (BINARY, b"other")})),
    "a physical type": footer_edit(lambda f: metadata(f, 0).update({1: (I32, 5)})),
    "a codec": footer_edit(lambda f: metadata(f, 0).update({4: (I32, 0)})),
    "an encoding": footer_edit(lambda f: metadata(f, 0).update({2: (LIST, (I32, [0]))})),
    "a path": footer_edit(lambda f: metadata(f, 3).update({3: (LIST, (BINARY, [b"flag"]))})),
    "a repetition": footer_edit(lambda f: element(f, 1).update({3: (I32, 0)})),
    "the rows of the file": footer_edit(lambda f: add(f, 3, -1)),
    "the rows of the row group": footer_edit(lambda f: add(get(f, 4)[1][0], 3, -1)),
    "the values of a chunk": footer_edit(lambda f: add(metadata(f, 0), 5, -1)),
    "the uncompressed bytes of a chunk": footer_edit(lambda f: add(metadata(f, 0), 6, 1)),
    "a page fewer in a chunk": footer_edit(lambda f: add(metadata(f, 0), 7, -10)),
    "the offset of a chunk": footer_edit(lambda f: add(metadata(f, 2), 9, 1)),
    "a dictionary claimed": footer_edit(lambda f: metadata(f, 0).update({11: (I64, get(metadata(f, 0), 9))})),
    "no statistics": footer_edit(lambda f: metadata(f, 0).pop(12)),
    "a lower bound": footer_edit(lambda f: statistics(f, 0).update({6: (BINARY, (5).to_bytes(8, "little"))})),
    "an upper bound": footer_edit(
        lambda f: statistics(f, 0).update({5: (BINARY, (9).to_bytes(8, "little"))})
    ),
    "bounds swapped": footer_edit(
        lambda f: statistics(f, 0).update({5: statistics(f, 0)[6], 6: statistics(f, 0)[5]})
    ),
    "a bound claimed exact": footer_edit(lambda f: statistics(f, 2).update({7: (FALSE, None)})),
    "bounds of an encoded column": footer_edit(lambda f: statistics(f, 5).update({5: (BINARY, b"a")})),
    "a null count": footer_edit(lambda f: add(statistics(f, 1), 3, -1)),
    "the null count of an encoded column": footer_edit(lambda f: add(statistics(f, 3), 3, -1)),
    "no column index": footer_edit(lambda f: (chunk(f, 0).pop(6), chunk(f, 0).pop(7))),
    "no offset index": footer_edit(lambda f: (chunk(f, 0).pop(4), chunk(f, 0).pop(5))),
    "an offset index of another column": footer_edit(
        lambda f: chunk(f, 0).update({4: chunk(f, 8)[4], 5: chunk(f, 8)[5]})
    ),
    "an index outside of the file": footer_edit(lambda f: chunk(f, 0).update({4: (I64, 1 << 40)})),
    "a page's lower bound": column_index(0, lambda i: get(i, 2)[1].__setitem__(0, b"\x07" * 8)),
    "a page's upper bound": column_index(0, lambda i: get(i, 3)[1].__setitem__(0, b"\x00" * 8)),
    "a page claimed null": column_index(0, lambda i: get(i, 1)[1].__setitem__(0, 1)),
    "a page's null count": column_index(1, lambda i: get(i, 5)[1].__setitem__(0, 0)),
    "an order claimed": column_index(2, lambda i: i.update({4: (I32, 1)})),
    "a page's bound of an encoded column": column_index(5, lambda i: get(i, 2)[1].__setitem__(0, b"v9")),
    "a page's offset": offset_index(0, lambda i: add(first_page(i), 1, 1)),
    "a page's size": offset_index(0, lambda i: add(first_page(i), 2, 1)),
    "a page's first row": offset_index(0, lambda i: add(get(i, 1)[1][1], 3, 1)),
    "a page location lost": offset_index(0, lambda i: get(i, 1)[1].pop()),
    "a page's first row of an encoded column": offset_index(5, lambda i: add(get(i, 1)[1][1], 3, 1)),
    "a column order lost": footer_edit(lambda f: get(f, 7)[1].pop()),
    "no column orders": footer_edit(lambda f: f.pop(7)),
    "a row group twice": footer_edit(lambda f: get(f, 4)[1].append(get(f, 4)[1][0])),
    "a row group lost": footer_edit(lambda f: get(f, 4)[1].pop()),
    "the end of the file lost": lambda data: data[:-3],
    "the start of the file": lambda data: b"PARE" + data[4:],
    "the length of the footer": lambda data: data[:-8] + (1 << 30).to_bytes(4, "little") + b"PAR1",
    "a footer of noise": lambda data: data[:-60] + b"\xff" * 52 + data[-8:],
}


@pytest.mark.parametrize("name", DAMAGE)
def test_planted_damage_is_a_difference(name: str) -> None:
    output, form, part = spliced()
    damaged = DAMAGE[name](output)
    assert damaged != output
    assert difference(damaged, form, [part], SPLICED) != ""


_OF_PAGES = (
    "a bit of the first page header",
    "a bit within the pages",
    "the last bit of the pages",
    "a bit of an encoded dictionary",
    "a bit of an encoded page",
    "two pages swapped",
)
"""Damage that is in no metadata. The digest of a streamed output finds it."""


@pytest.fixture(scope="module")
def copied() -> tuple[bytes, ParquetBytes, list[EncodedGroup]]:
    """Two row groups of which each column is a copy of what was encoded."""
    form = template(SCHEMA)
    parts = [Part((), [ParquetBytes.of(parquet(rows(n)))]) for n in range(2)]
    return write(form, parts, ()), form, [EncodedGroup.of(p) for p in parts]


def test_copy_of_encoded_row_groups_has_their_rows_and_metadata(
    copied: tuple[bytes, ParquetBytes, list[EncodedGroup]],
) -> None:
    output, form, groups = copied
    assert pq.ParquetFile(io.BytesIO(output)).read().equals(pa.concat_tables([rows(0), rows(1)]))
    assert [g.rows for g in groups] == [rows(0).num_rows, rows(1).num_rows]
    assert copy_difference(output, form, groups) == ""
    assert copy_difference(output, form, groups[::-1]) != ""


@pytest.mark.parametrize("name", [n for n in DAMAGE if n not in _OF_PAGES])
def test_planted_damage_of_a_copy_is_a_difference(
    copied: tuple[bytes, ParquetBytes, list[EncodedGroup]], name: str
) -> None:
    output, form, groups = copied
    damaged = DAMAGE[name](output)
    assert damaged != output
    assert copy_difference(damaged, form, groups) != ""


def test_kinds_of_planted_damage_are_at_least_thirty() -> None:
    assert len(DAMAGE) >= 30


def test_encoded_columns_with_other_rows_are_an_error() -> None:
    _, form, part = spliced()
    short = ParquetBytes.of(parquet(rows(0).select(["nested", "flag"])))
    with pytest.raises(
        MetadataError, match="the encoded columns have another number of rows than the sources"
    ):
        write(form, [Part(part.sources, [short])], SPLICED)


def test_column_that_is_encoded_twice_is_an_error() -> None:
    _, form, part = spliced()
    with pytest.raises(MetadataError, match="is encoded twice"):
        write(form, [Part(part.sources, [*part.encoded, *part.encoded])], SPLICED)


def test_column_that_is_neither_spliced_nor_encoded_is_an_error() -> None:
    _, form, part = spliced()
    with pytest.raises(MetadataError, match="column id is neither spliced nor encoded"):
        write(form, [part], SPLICED[1:])


def test_thrift_struct_that_is_read_and_written_is_equal() -> None:
    fields: Struct = {
        1: (TRUE, None),
        2: (FALSE, None),
        5: (I32, -7),
        40: (I64, -(1 << 63)),
        41: (BINARY, b"\x00" * 300),
        42: (LIST, (I32, list(range(-20, 20)))),
        43: (STRUCT, {1: (LIST, (TRUE, [1, 2])), 9: (LIST, (STRUCT, [{}]))}),
    }
    assert Reader(encoded(fields)).struct() == fields


@pytest.mark.parametrize(
    "data", [b"", b"\x15", b"\x18\xff\xff\x03", b"\x19\xf5\xff\xff\x7f", b"\x1b\x00", b"\x1d"]
)
def test_thrift_bytes_that_end_early_or_have_an_unknown_type_are_an_error(data: bytes) -> None:
    with pytest.raises(ThriftError):
        Reader(data).struct()


def test_footer_bytes_of_arrow_are_written_as_they_were_read() -> None:
    data = parquet(rows(0))
    size = int.from_bytes(data[-8:-4], "little")
    assert encoded(ParquetBytes.of(data).footer) == data[-8 - size : -8]
    assert zlib.crc32(data) == zlib.crc32(bytes(ParquetBytes.of(data).data))


def test_leaf_without_a_field_id_has_none() -> None:
    assert Leaf({1: (I32, 2)}).field_id is None
