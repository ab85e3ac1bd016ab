"""Corruption planted into an output file, its footer or its metrics is found by the proof.

An engine that damages its output is imitated: the file is encoded from changed rows or metadata, or its bytes are
changed on storage, before the proof reads it back.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from iceberg_maint.columnar import rewrite as rewrite_module
from iceberg_maint.columnar.check import file_proof
from iceberg_maint.columnar.check.file_proof import Comparison
from iceberg_maint.columnar.check.metrics import MetricsBuilder, split_offsets
from iceberg_maint.columnar.encode import WriterOptions, open_writer, write_group
from iceberg_maint.columnar.parquet.parquet_metadata import TAIL_BYTES, ParquetBytes, get
from iceberg_maint.columnar.parquet.thrift import I32, I64, TRUE, Struct
from iceberg_maint.columnar.parquet.thrift import encoded as thrift_bytes
from iceberg_maint.columnar.read.decimals import unscaled, with_integers
from iceberg_maint.columnar.read.leaves import leaves_of
from iceberg_maint.columnar.read.schema import table_schema
from iceberg_maint.columnar.rewrite import rewrite
from iceberg_maint.columnar.storage import FileRange, Storage
from iceberg_maint.columnar.task import Encoding, OutputMetrics
from iceberg_maint_tests.support.columnar.tables import (
    ALL_TYPES,
    all_types_row,
    field,
    schema_of,
    table_from,
    task_of,
    write_file,
)

pytestmark = pytest.mark.seconds

TABLE = table_schema(ALL_TYPES, lineage=False)
ROWS = [all_types_row(n) for n in range(60)]
DICTIONARIES = ("s", "u", "i", "f", "ls.list.element.s")
FLIP = 0x10


@pytest.fixture(scope="module")
def rows() -> pa.Table:
    return table_from(ALL_TYPES, ROWS)


def encoded(
    rows: pa.Table,
    *,
    codec: str = "none",
    dictionaries: tuple[str, ...] = DICTIONARIES,
    page_rows: int = 20_000,
) -> bytes:
    """Rows as a file of two row groups."""
    sink = pa.BufferOutputStream()
    encoding = Encoding(codec, None, page_row_limit=page_rows)
    with open_writer(sink, rows.schema, encoding, WriterOptions(dictionaries)) as writer:
        write_group(writer, rows.slice(0, 30))
        write_group(writer, rows.slice(30))
    return bytes(sink.getvalue())


def metrics_of(rows: pa.Table, contents: bytes) -> OutputMetrics:
    builder = MetricsBuilder(TABLE, {})
    builder.add(rows.slice(0, 30))
    builder.add(rows.slice(30))
    return builder.of_footer(pq.read_metadata(pa.BufferReader(contents)))


def difference(
    rows: pa.Table,
    contents: bytes,
    metrics: OutputMetrics | None = None,
    *,
    modes: Mapping[int, str] | None = None,
    values: bool = True,
) -> str:
    """The proof's first difference between a file and the rows that it ought to hold."""
    if metrics is None:
        metrics = metrics_of(rows, encoded(rows))
    found = [
        first_difference(form, contents, metrics, modes=modes, values=values)
        for form in (rows, with_integer_decimals(rows))
    ]
    assert found[0] == found[1]
    return found[0]


def with_integer_decimals(rows: pa.Table) -> pa.Table:
    """Rows as a task has them: decimals of up to 18 digits are integers."""
    schema = (
        with_integers(rows.schema, TABLE)
        if rows.schema.names == [c.name for c in TABLE.columns]
        else rows.schema
    )
    columns = [
        column if column.type == f.type else pa.chunked_array([unscaled(c, f.type) for c in column.chunks])
        for column, f in zip(rows.columns, schema, strict=True)
    ]
    return pa.Table.from_arrays(columns, schema=schema)


def first_difference(
    rows: pa.Table,
    contents: bytes,
    metrics: OutputMetrics,
    *,
    modes: Mapping[int, str] | None,
    values: bool,
) -> str:
    comparison = Comparison(TABLE, pa.py_buffer(contents), metrics, modes or {})
    return (
        comparison.footer_difference(rows.num_rows)
        or comparison.group_difference(0, rows.slice(0, 30), values=values)
        or comparison.group_difference(1, rows.slice(30), values=values)
        or comparison.end_difference()
    )


def test_sound_file_has_no_difference(rows: pa.Table) -> None:
    assert difference(rows, encoded(rows)) == ""


def with_column(rows: pa.Table, name: str, change: Callable[[pa.Array], pa.Array]) -> pa.Table:
    index = rows.schema.get_field_index(name)
    changed = change(rows.column(index).combine_chunks())
    return rows.set_column(index, rows.schema.field(index), changed)


def swapped(rows: pa.Table, one: str, two: str) -> pa.Table:
    a, b = rows.column(one).combine_chunks(), rows.column(two).combine_chunks()
    return with_column(with_column(rows, one, lambda _: b.cast(a.type)), two, lambda _: a.cast(b.type))


def shifted(values: pa.Array) -> pa.Array:
    return values.take(pa.array([*range(1, len(values)), 0]))


def twice(values: pa.Array, first: int, second: int) -> pa.Array:
    """The value of one row in another row too."""
    order = list(range(len(values)))
    order[second] = first
    return values.take(pa.array(order))


def changed_cells(*cells: tuple[str, int, Any]) -> pa.Table:
    """The rows with other values in some cells."""
    found = [dict(row) for row in ROWS]
    for name, row, value in cells:
        found[row][name] = value
    return table_from(ALL_TYPES, found)


def of_rows(order: Iterable[int]) -> pa.Table:
    """Rows by their numbers."""
    return table_from(ALL_TYPES, [ROWS[i] for i in order])


def mirrored_nan(rows: pa.Table) -> pa.Table:
    """A NaN with another bit pattern."""
    bits = rows.column("d").combine_chunks().view(pa.int64()).to_pylist()
    at = next(i for i, v in enumerate(bits) if v is not None and v == 0x7FF8000000000000)
    bits[at] ^= 1
    return with_column(rows, "d", lambda _: pa.array(bits, pa.int64()).view(pa.float64()))


VALUES: dict[str, Callable[[pa.Table], pa.Table]] = {
    "value_changed": lambda _: changed_cells(("l", 7, 1)),
    "text_changed": lambda _: changed_cells(("s", 5, "zolc-5")),
    "decimal_of_9_digits_changed": lambda _: changed_cells(("dec9", 9, Decimal("1.23"))),
    "decimal_of_18_digits_changed": lambda _: changed_cells(("dec18", 9, None)),
    "decimal_changed": lambda _: changed_cells(("dec38", 9, None)),
    "null_became_a_value": lambda t: with_column(t, "i", lambda a: a.fill_null(0)),
    "value_became_null": lambda _: changed_cells(("b", 45, None)),
    "empty_text_for_null": lambda t: with_column(t, "s", lambda a: a.fill_null("")),
    "zero_lost_its_sign": lambda _: changed_cells(("d", 5, 0.0)),
    "nan_became_null": lambda _: changed_cells(("f", 7, None)),
    "nan_has_other_bits": mirrored_nan,
    "nan_in_a_struct_changed": lambda _: changed_cells(("st", 9, {"x": 1.0, "in": ROWS[9]["st"]["in"]})),
    "null_struct_became_a_struct_of_nulls": lambda _: changed_cells(("st", 4, {"x": None, "in": None})),
    "inner_null_struct_became_a_struct": lambda _: changed_cells(
        ("ls", 2, [{"a": 2, "s": "2"}, {"a": None, "s": None}])
    ),
    "null_list_became_empty": lambda _: changed_cells(("li", 5, [])),
    "empty_list_became_null": lambda _: changed_cells(("li", 4, None)),
    "element_of_a_list_lost": lambda _: changed_cells(("li", 2, [2 / 3])),
    "null_element_became_a_value": lambda _: changed_cells(("li", 3, [1.0, float("nan"), 0.0])),
    "element_moved_to_the_next_list": lambda _: changed_cells(("ls", 1, []), ("ls", 3, ROWS[1]["ls"])),
    "entry_of_a_map_changed": lambda _: changed_cells(("mp", 2, [("k0", 2.0), ("k2", float("nan"))])),
    "null_map_became_empty": lambda _: changed_cells(("mp", 6, [])),
    "rows_of_a_column_shifted": lambda t: with_column(t, "ts", shifted),
    "two_rows_of_a_column_swapped": lambda t: with_column(
        t, "day", lambda a: a.take(pa.array([1, 0, *range(2, len(a))]))
    ),
    "row_doubled_in_a_column": lambda t: with_column(t, "fx", lambda a: twice(a, 3, 4)),
    "rows_reordered": lambda _: of_rows(range(59, -1, -1)),
    "row_groups_swapped": lambda t: pa.concat_tables([t.slice(30), t.slice(0, 30)]),
    "row_replaced_by_another": lambda _: of_rows([0, 0, *range(2, 60)]),
    "columns_of_one_type_swapped": lambda t: swapped(t, "ts", "tz"),
    "integer_columns_swapped": lambda t: swapped(t, "ns", "nstz"),
}


@pytest.mark.parametrize("name", VALUES)
def test_changed_values_are_found(rows: pa.Table, name: str) -> None:
    damaged = VALUES[name](rows)
    assert damaged.num_rows == rows.num_rows
    contents = encoded(damaged)
    assert "values differ" in difference(rows, contents, metrics_of(rows, contents))


@pytest.mark.parametrize("kept", [range(59), [*range(60), 59]], ids=["row_lost", "row_doubled"])
def test_other_number_of_rows_is_found(rows: pa.Table, kept: Any) -> None:
    damaged = of_rows(kept)
    assert difference(rows, encoded(damaged)) == f"the footer states {len(kept)} rows; 60 were written"


def test_row_moved_to_another_row_group_is_found(rows: pa.Table) -> None:
    sink = pa.BufferOutputStream()
    with open_writer(sink, rows.schema, Encoding(), WriterOptions()) as writer:
        write_group(writer, rows.slice(0, 31))
        write_group(writer, rows.slice(31))
    contents = bytes(sink.getvalue())
    found = difference(rows, contents, metrics_of(rows, contents))
    assert found == "row group 0 states 31 rows; 30 were written"


def relabelled(rows: pa.Table, change: Callable[[pa.Field], pa.Field], name: str) -> pa.Table:
    index = rows.schema.get_field_index(name)
    schema = rows.schema.set(index, change(rows.schema.field(index)))
    return pa.Table.from_arrays(rows.columns, schema=schema)


SCHEMAS: dict[str, Callable[[pa.Table], pa.Table]] = {
    "wrong_field_id": lambda t: relabelled(t, lambda f: f.with_metadata({"PARQUET:field_id": "99"}), "i"),
    "field_id_lost": lambda t: relabelled(t, lambda f: f.remove_metadata(), "i"),
    "column_renamed": lambda t: relabelled(t, lambda f: f.with_name("other"), "i"),
    "columns_exchanged": lambda t: t.select([1, 0, *range(2, t.num_columns)]),
    "column_lost": lambda t: t.drop_columns(["ls"]),
    "type_narrowed": lambda t: with_type(t, "ns", pa.timestamp("us")),
    "time_zone_lost": lambda t: with_type(t, "tz", pa.timestamp("us")),
    "precision_changed": lambda t: with_type(t, "dec9", pa.decimal128(10, 2)),
    "scale_changed": lambda t: with_type(t, "dec9", pa.decimal128(9, 1)),
    "decimals_became_integers": lambda t: with_type(t, "dec18", pa.int64()),
    "uuid_became_fixed": lambda t: with_type(t, "u", pa.binary(16)),
}


def with_type(rows: pa.Table, name: str, kind: pa.DataType) -> pa.Table:
    index = rows.schema.get_field_index(name)
    values = rows.column(index).combine_chunks()
    values = values.storage if isinstance(values, pa.ExtensionArray) else values.cast(kind, safe=False)
    return rows.set_column(index, rows.schema.field(index).with_type(kind), values)


@pytest.mark.parametrize("name", SCHEMAS)
def test_changed_schema_is_found(rows: pa.Table, name: str) -> None:
    found = difference(rows, encoded(SCHEMAS[name](rows), dictionaries=()))
    assert "the file states" in found or found == "the file has 21 columns; the schema has 22"


def flipped(contents: bytes, offset: int) -> bytes:
    return contents[:offset] + bytes([contents[offset] ^ FLIP]) + contents[offset + 1 :]


def page_body(contents: bytes, name: str, *, dictionary: bool) -> int:
    """The offset of a byte within the values of a column's first page."""
    footer = pq.read_metadata(pa.BufferReader(contents))
    group = footer.row_group(1)
    chunk = next(group.column(i) for i in range(group.num_columns) if group.column(i).path_in_schema == name)
    if dictionary:
        return chunk.data_page_offset - 4
    return chunk.data_page_offset + chunk.total_compressed_size - 4 - (chunk.data_page_offset - _start(chunk))


def _start(chunk: Any) -> int:
    return chunk.dictionary_page_offset if chunk.has_dictionary_page else chunk.data_page_offset


@pytest.mark.parametrize(
    ("column", "dictionary"),
    [
        ("l", False),
        ("dec38", False),
        ("d", False),
        ("b", False),
        ("fx", False),
        ("s", True),
        ("u", True),
        ("i", True),
        ("f", True),
    ],
)
def test_flipped_bit_of_a_page_is_found(rows: pa.Table, column: str, dictionary: bool) -> None:
    contents = encoded(rows)
    damaged = flipped(contents, page_body(contents, column, dictionary=dictionary))
    found = difference(rows, damaged)
    assert found.startswith(f"column {column}, row group 1: ")


@pytest.mark.parametrize("codec", ["zstd", "gzip", "snappy"])
def test_flipped_bit_of_a_compressed_page_is_found(rows: pa.Table, codec: str) -> None:
    contents = encoded(rows, codec=codec)
    damaged = flipped(contents, page_body(contents, "l", dictionary=False))
    assert difference(rows, damaged, metrics_of(rows, contents)).startswith("column l, row group 1: ")


@pytest.fixture
def parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each column is read alone, and a few rows at a time."""
    monkeypatch.setattr(file_proof, "_READ_BYTES", 1)
    monkeypatch.setattr(file_proof, "_PART_BYTES", 32)


@pytest.mark.usefixtures("parts")
@pytest.mark.parametrize("name", VALUES)
def test_changed_values_are_found_in_parts(rows: pa.Table, name: str) -> None:
    contents = encoded(VALUES[name](rows))
    assert "values differ" in difference(rows, contents, metrics_of(rows, contents))


@pytest.mark.usefixtures("parts")
def test_value_that_differs_in_a_later_part_is_named_by_its_row(rows: pa.Table) -> None:
    assert difference(rows, encoded(rows)) == ""
    damaged = with_column(rows, "l", lambda a: pa.concat_arrays([a[:52], pa.array([-1], a.type), a[53:]]))
    contents = encoded(damaged)
    assert difference(rows, contents, metrics_of(rows, contents)) == (
        "column l, row group 1: values differ at row 22"
    )


@pytest.mark.parametrize("kept", [0, 10, -1, -9])
def test_torn_file_is_found(rows: pa.Table, kept: int) -> None:
    assert difference(rows, encoded(rows)[:kept]).startswith("the output cannot be read")


def test_other_bytes_for_a_dictionary_page_are_found(rows: pa.Table) -> None:
    """The data pages of one row group with the dictionary of another."""
    contents = encoded(rows)
    footer = pq.read_metadata(pa.BufferReader(contents))
    first, second = (footer.row_group(i).column(15) for i in range(2))
    assert first.path_in_schema == "u"
    length = first.data_page_offset - first.dictionary_page_offset
    assert length == second.data_page_offset - second.dictionary_page_offset
    page = contents[first.dictionary_page_offset : first.data_page_offset]
    start = second.dictionary_page_offset
    damaged = contents[:start] + page + contents[start + length :]
    assert difference(rows, damaged).startswith("column u, row group 1: values differ")


STATISTICS: dict[str, Callable[[pa.Table], pa.Table]] = {
    "lower_bound_too_high": lambda t: with_column(t, "l", lambda a: pa.array([10**15] * len(a))),
    "null_count_wrong": lambda _: changed_cells(("day", 33, None)),
    "text_bounds_wrong": lambda t: with_column(t, "s", lambda a: pa.array(["m"] * len(a))),
    "decimal_bounds_wrong": lambda t: with_column(t, "dec9", shifted_decimal),
    "bounds_of_a_nested_column_wrong": lambda t: with_column(t, "ls", lambda a: twice(a, 0, 59)),
}


def shifted_decimal(values: pa.Array) -> pa.Array:
    return pa.array([None if v is None else v + 1 for v in values.to_pylist()], values.type)


@pytest.mark.parametrize("name", STATISTICS)
def test_footer_statistics_other_than_those_of_the_rows_are_found(rows: pa.Table, name: str) -> None:
    """The level that compares statistics only."""
    damaged = encoded(STATISTICS[name](rows))
    found = difference(rows, damaged, metrics_of(rows, damaged), values=False)
    assert "the footer states" in found


def changed(metrics: OutputMetrics, name: str, key: int, value: Any) -> OutputMetrics:
    stated = dict(getattr(metrics, name))
    if value is None:
        del stated[key]
    else:
        stated[key] = value
    return replace(metrics, **{name: stated})


METRICS: dict[str, tuple[str, int, Any, str]] = {
    "value_count_wrong": ("value_counts", 3, 59, "the manifest states 59 values; the rows have 60"),
    "value_count_lost": ("value_counts", 3, None, "the manifest states None values; the rows have 60"),
    "null_count_zero": ("null_value_counts", 3, 0, "the manifest states 0 nulls; the rows have"),
    "nan_count_zero": ("nan_value_counts", 4, 0, "the manifest states 0 NaNs; the rows have"),
    "nan_count_lost": ("nan_value_counts", 5, None, "the manifest states None NaNs; the rows have"),
    "lower_too_high": ("lower_bounds", 3, struct.pack("<q", 10**13), "the manifest states lower bound"),
    "upper_too_low": ("upper_bounds", 3, struct.pack("<q", 10**13), "the manifest states upper bound"),
    "lower_is_nan": (
        "lower_bounds",
        5,
        struct.pack("<d", float("nan")),
        "the manifest states lower bound nan",
    ),
    "upper_is_nan": (
        "upper_bounds",
        4,
        struct.pack("<f", float("nan")),
        "the manifest states upper bound nan",
    ),
    "upper_cut_without_increment": ("upper_bounds", 15, "żół".encode(), "the manifest states upper bound"),
    "decimal_as_little_endian": ("upper_bounds", 8, b"\x80", "the manifest states upper bound -128"),
    "bounds_of_another_column": (
        "lower_bounds",
        2,
        struct.pack("<i", 5),
        "the manifest states lower bound 5",
    ),
    "uuid_upper_too_low": ("upper_bounds", 16, bytes(16), "the manifest states upper bound"),
    "list_has_bounds": ("lower_bounds", 41, bytes(4), "the manifest states counts or bounds"),
    "nested_upper_too_low": (
        "upper_bounds",
        31,
        struct.pack("<d", 1.0),
        "the manifest states upper bound 1.0",
    ),
}


@pytest.mark.parametrize("name", METRICS)
def test_metrics_other_than_those_of_the_rows_are_found(rows: pa.Table, name: str) -> None:
    field_name, key, value, words = METRICS[name]
    contents = encoded(rows)
    table = table_schema(ALL_TYPES, lineage=False)
    assert table == TABLE
    assert words in difference(rows, contents, changed(metrics_of(rows, contents), field_name, key, value))


def with_page_index(contents: bytes, path: str, change: Callable[[Struct, Struct], None]) -> bytes:
    """A file with another page index of a column in the second row group, which has three pages."""
    file = ParquetBytes.of(contents)
    index = next(i for i, leaf in enumerate(leaves_of(TABLE)) if leaf.path == path)
    chunk = file.chunk(1, index)
    columns, offsets = dict(chunk.column_index or {}), dict(chunk.offset_index or {})
    assert len(get(offsets, 1)[1]) == 3
    change(columns, offsets)
    end = len(contents) - TAIL_BYTES - int.from_bytes(contents[-8:-4], "little")
    body = contents[:end]
    for number, entries in ((6, columns), (4, offsets)):
        data = thrift_bytes(entries)
        chunk.struct[number], chunk.struct[number + 1] = (I64, len(body)), (I32, len(data))
        body += data
    footer = thrift_bytes(file.footer)
    return body + footer + len(footer).to_bytes(4, "little") + b"PAR1"


def entry(index: Struct, number: int, value: Any) -> None:
    """Changes what the index states of the second page."""
    get(index, number)[1][1] = value


def upper_as_lower(columns: Struct, _: Struct) -> None:
    entry(columns, 3, get(columns, 2)[1][1])


def lower_as_upper(columns: Struct, _: Struct) -> None:
    entry(columns, 2, get(columns, 3)[1][1])


def page_of_nulls(columns: Struct, _: Struct) -> None:
    entry(columns, 1, TRUE)


def other_nulls(columns: Struct, _: Struct) -> None:
    entry(columns, 5, 9)


def later_row(_: Struct, offsets: Struct) -> None:
    page = get(offsets, 1)[1][1]
    page[3] = (I64, get(page, 3) + 1)


def row_before(_: Struct, offsets: Struct) -> None:
    get(offsets, 1)[1][1][3] = (I64, 0)


def first_row_left_out(_: Struct, offsets: Struct) -> None:
    get(offsets, 1)[1][0][3] = (I64, 1)


def first_row_lost(_: Struct, offsets: Struct) -> None:
    del get(offsets, 1)[1][1][3]


def pages_of_another_order(_: Struct, offsets: Struct) -> None:
    first, second = get(offsets, 1)[1][1:3]
    first[3], second[3] = second[3], first[3]


def other_place(_: Struct, offsets: Struct) -> None:
    page = get(offsets, 1)[1][1]
    page[1] = (I64, get(page, 1) + 1)


def shorter_page(_: Struct, offsets: Struct) -> None:
    page = get(offsets, 1)[1][2]
    page[2] = (I32, get(page, 2) - 1)


def page_left_out(columns: Struct, _: Struct) -> None:
    for number in (1, 2, 3, 5):
        get(columns, number)[1].pop()


BOUNDS = "the page index states bounds that a row is outside of"


@pytest.mark.parametrize(
    "path", ["l", "s", "f", "d", "dec9", "dec38", "u", "fx", "ts", "st.x", "mp.key_value.value"]
)
@pytest.mark.parametrize("change", [upper_as_lower, lower_as_upper], ids=["upper", "lower"])
def test_bounds_of_a_page_that_exclude_a_row_are_found(
    rows: pa.Table, path: str, change: Callable[[Struct, Struct], None]
) -> None:
    contents = with_page_index(encoded(rows, page_rows=10), path, change)
    assert difference(rows, contents, metrics_of(rows, encoded(rows, page_rows=10))).endswith(BOUNDS)


@pytest.mark.parametrize(
    ("path", "change", "words"),
    [
        ("l", page_of_nulls, "rows from 10: the page index states otherwise whether all values are null"),
        ("li.list.element", page_of_nulls, "the page index states otherwise whether all values are null"),
        ("l", other_nulls, "rows from 10: the page index states 9 nulls; the rows have 1"),
        ("l", later_row, "a page has other rows than the offset index states"),
        ("s", row_before, "the first rows of the pages are in no order"),
        ("l", first_row_left_out, "the first rows of the pages are in no order"),
        ("l", first_row_lost, "the page location lacks field 3"),
        ("l", pages_of_another_order, "the first rows of the pages are in no order"),
        ("l", other_place, "the offset index has another place of a page"),
        ("li.list.element", shorter_page, "the pages of the offset index do not end with the chunk"),
        ("l", page_left_out, "the page index has another number of pages"),
    ],
)
def test_entries_of_the_page_index_other_than_the_pages_are_found(
    rows: pa.Table, path: str, change: Callable[[Struct, Struct], None], words: str
) -> None:
    contents = with_page_index(encoded(rows, page_rows=10), path, change)
    assert difference(rows, contents, metrics_of(rows, encoded(rows, page_rows=10))).endswith(words)


def test_wrong_offset_index_beside_no_column_index_has_no_difference(rows: pa.Table) -> None:
    """Readers do without the page index then."""
    contents = with_page_index(encoded(rows, page_rows=10), "l", first_row_lost)
    file = ParquetBytes.of(contents)
    for number in (6, 7):
        del file.chunk(1, 2).struct[number]
    footer = thrift_bytes(file.footer)
    end = len(contents) - TAIL_BYTES - int.from_bytes(contents[-8:-4], "little")
    without = contents[:end] + footer + len(footer).to_bytes(4, "little") + b"PAR1"
    assert difference(rows, without, metrics_of(rows, encoded(rows, page_rows=10))) == ""


def test_sound_page_index_of_several_pages_has_no_difference(rows: pa.Table) -> None:
    contents = encoded(rows, page_rows=7)
    assert difference(rows, contents, metrics_of(rows, contents)) == ""
    kept = with_dictionary(rows)
    plain = metrics_of(rows, contents)
    assert (
        first_difference(
            kept,
            encoded(kept, page_rows=7),
            replace(plain, split_offsets=split_of(kept)),
            modes=None,
            values=True,
        )
        == ""
    )


def with_dictionary(rows: pa.Table) -> pa.Table:
    column = rows.column("s").combine_chunks().dictionary_encode()
    number = rows.schema.get_field_index("s")
    return rows.set_column(number, rows.schema.field(number).with_type(column.type), column)


def split_of(rows: pa.Table) -> tuple[int, ...]:
    footer = pq.read_metadata(pa.BufferReader(encoded(rows, page_rows=7)))
    return split_offsets([footer.row_group(i) for i in range(2)])


def test_split_offsets_other_than_the_row_groups_are_found(rows: pa.Table) -> None:
    contents = encoded(rows)
    wrong = replace(metrics_of(rows, contents), split_offsets=(4,))
    assert difference(rows, contents, wrong).startswith("split offsets are (4,); row groups start at (4, ")


def test_bounds_under_the_mode_counts_are_found(rows: pa.Table) -> None:
    contents = encoded(rows)
    found = difference(rows, contents, metrics_of(rows, contents), modes={3: "counts"})
    assert found == "column l: the manifest states bounds"


def test_output_damaged_on_storage_is_unequal_in_both_modes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The proof reads the file back; the bytes in memory do not count."""
    schema = schema_of(field(1, "n", "long"))
    file = write_file(tmp_path, "a.parquet", schema, [{"n": n} for n in range(1000)])

    def damaged(storage: Storage, location: str, size: int, *, hold: bool) -> FileRange:
        path = Path(location)
        contents = path.read_bytes()
        path.write_bytes(flipped(contents, page_body_of_only_group(contents)))
        return FileRange(storage, location, size, hold=hold)

    monkeypatch.setattr(rewrite_module, "FileRange", damaged)
    encoding = Encoding("uncompressed", None)
    differences = "column n, row group 0", "the output on storage has other bytes than were written"
    for memory, difference in zip((1 << 30, 1000), differences, strict=True):
        task = task_of(tmp_path, schema, [file], encoding=encoding, memory_limit_bytes=memory)
        result = rewrite(replace(task, output_path=str(tmp_path / f"{memory}-out.parquet")))
        assert result.proof.difference.startswith(difference)
        assert not result.proof.equal


def page_body_of_only_group(contents: bytes) -> int:
    chunk = pq.read_metadata(pa.BufferReader(contents)).row_group(0).column(0)
    return int(chunk.data_page_offset + chunk.total_compressed_size - 4)


def test_level_statistics_compares_no_values(tmp_path: Path) -> None:
    schema = schema_of(field(1, "n", "long"))
    file = write_file(tmp_path, "a.parquet", schema, [{"n": 1}])
    result = rewrite(task_of(tmp_path, schema, [file], proof="statistics"))
    assert (result.proof.level, result.proof.equal) == ("statistics", True)
    assert json.loads(result.to_json())["proof"]["difference"] == ""
