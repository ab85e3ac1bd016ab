"""Decimals of up to 18 digits are integers between pages: the files are those that Arrow writes of decimals."""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from iceberg_maint.columnar.encode import WriterOptions, open_writer, write_group
from iceberg_maint.columnar.parquet.parquet_metadata import get
from iceberg_maint.columnar.parquet.thrift import I32
from iceberg_maint.columnar.parquet.thrift import Struct as Fields
from iceberg_maint.columnar.read.decimals import (
    IntegerFooters,
    integer_decimals,
    integers_of,
    unscaled,
    with_integers,
)
from iceberg_maint.columnar.read.decode import Decoder
from iceberg_maint.columnar.read.packing import MOST_BYTES
from iceberg_maint.columnar.read.schema import Struct, arrow_schema, table_schema
from iceberg_maint.columnar.storage import Storage
from iceberg_maint.columnar.task import Encoding, InputFile, WrongInputError
from iceberg_maint_tests.columnar.test_splice import edited
from iceberg_maint_tests.support.columnar.tables import field, rewritten, schema_of, task_of, write_table

INSIDE = {"type": "struct", "fields": [field(11, "short", "decimal(9, 2)"), field(12, "long", "long")]}
TEXT = schema_of(
    field(1, "short", "decimal(9, 2)"),
    field(2, "long", "decimal(18, 4)", required=True),
    field(3, "wide", "decimal(19, 4)"),
    field(4, "a.b", "decimal(9, 2)"),
    field(10, "inside", INSIDE),
    field(5, "n", "long"),
)
TABLE = table_schema(TEXT, lineage=False)
LAST = 999_999_999


def row(number: int) -> dict[str, Any]:
    short = (-LAST, LAST, 0, -1, None)[number % 5]
    decimal = None if short is None else Decimal(short).scaleb(-2)
    return {
        "short": decimal,
        "long": Decimal((-1) ** number * (10**18 - 1 - number)).scaleb(-4),
        "wide": Decimal(-(10**18) * number % 10**19).scaleb(-4),
        "a.b": decimal,
        "inside": {"short": decimal, "long": number},
        "n": number,
    }


def table(numbers: range, of: Struct = TABLE) -> pa.Table:
    return pa.Table.from_pylist([row(n) for n in numbers], schema=arrow_schema(of))


def stored(path: str) -> list[tuple[str, str, str]]:
    schema = pq.ParquetFile(path).schema
    columns = [schema.column(i) for i in range(len(schema.names))]
    return [(c.path, c.physical_type, str(c.logical_type)) for c in columns]


FORMS: dict[str, dict[str, Any]] = {
    "integers": {"store_decimal_as_integer": True},
    "bytes": {"store_decimal_as_integer": False},
}
SIZES = {
    "packed": (300, {"compression": "zstd"}),
    "one_by_one": (6_500, {"use_dictionary": False, "compression": "none"}),
}


@pytest.mark.drawn(3)
@pytest.mark.parametrize("memory", [1 << 30, 1000], ids=["table", "streaming"])
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("size", SIZES)
def test_decimals_of_every_form_and_size_keep_their_values(
    tmp_path: Path, size: str, form: str, memory: int
) -> None:
    rows, options = SIZES[size]
    given = {**options, **FORMS[form]}
    files = [
        write_table(tmp_path, f"{k}.parquet", table(range(rows * k, rows * k + rows)), **given)
        for k in range(2)
    ]
    assert (files[0].size_bytes > MOST_BYTES) is (size == "one_by_one")
    result, found = rewritten(task_of(tmp_path, TEXT, files, memory_limit_bytes=memory))
    assert result.proof.difference == ""
    assert found == [row(n) for n in range(2 * rows)]
    assert stored(result.path) == [
        ("short", "INT32", "Decimal(precision=9, scale=2)"),
        ("long", "INT64", "Decimal(precision=18, scale=4)"),
        ("wide", "FIXED_LEN_BYTE_ARRAY", "Decimal(precision=19, scale=4)"),
        ("a.b", "INT32", "Decimal(precision=9, scale=2)"),
        ("inside.short", "INT32", "Decimal(precision=9, scale=2)"),
        ("inside.long", "INT64", "None"),
        ("n", "INT64", "None"),
    ]


def encoded(rows: pa.Table, decimals: dict[str, pa.DataType]) -> bytes:
    sink = pa.BufferOutputStream()
    with open_writer(sink, rows.schema, Encoding(), WriterOptions(["short", "n"]), decimals) as writer:
        write_group(writer, rows.slice(0, 600))
        write_group(writer, rows.slice(600))
    return bytes(sink.getvalue())


def test_file_of_integers_has_the_bytes_of_a_file_of_decimals() -> None:
    rows = table(range(1000))
    schema = with_integers(rows.schema, TABLE)
    assert [str(f.type) for f in schema][:4] == ["int32", "int64", "decimal128(19, 4)", "decimal128(9, 2)"]
    columns = [
        c if c.type == f.type else pa.chunked_array([unscaled(chunk, f.type) for chunk in c.chunks])
        for c, f in zip(rows.columns, schema, strict=True)
    ]
    integers = pa.Table.from_arrays(columns, schema=schema)
    assert encoded(integers, dict(integer_decimals(TABLE))) == encoded(rows, {})


def test_slices_and_nothing_have_their_integers() -> None:
    decimals = table(range(10)).column("short").chunk(0)
    assert unscaled(decimals.slice(3, 4), pa.int32()).to_pylist() == [-1, None, -LAST, LAST]
    assert unscaled(decimals.slice(3, 0), pa.int64()).equals(pa.array([], pa.int64()))


@pytest.mark.parametrize(
    ("number", "kind"),
    [(2**64 + 5, pa.int64()), (-(2**70), pa.int64()), (2**63, pa.int64()), (2**31, pa.int32())],
)
def test_decimal_that_its_integer_cannot_hold_is_refused(number: int, kind: pa.DataType) -> None:
    decimals = pa.array([None, Decimal(number)], pa.decimal128(38, 0))
    assert unscaled(decimals.slice(0, 1), kind).to_pylist() == [None]
    with pytest.raises(WrongInputError, match=r"more digits than its type decimal128\(38, 0\)"):
        unscaled(decimals, kind)
    last = 2 ** (kind.bit_width - 1)
    bounds = pa.array([Decimal(-last), Decimal(last - 1)], pa.decimal128(38, 0))
    assert unscaled(bounds, kind).to_pylist() == [-last, last - 1]


def more_elements(elements: list[Fields]) -> None:
    elements.append(elements[-1])


def unnamed_element(elements: list[Fields]) -> None:
    del elements[1][4]


def number_for_a_logical_type(elements: list[Fields]) -> None:
    elements[1][10] = (I32, 5)


@pytest.mark.parametrize("damage", [more_elements, unnamed_element, number_for_a_logical_type])
def test_footer_with_a_damaged_schema_has_no_integers(damage: Callable[[list[Fields]], None]) -> None:
    contents = encoded(table(range(1000)), {})
    integers = integers_of(TABLE)
    assert IntegerFooters().metadata(contents, integers) is not None
    damaged = edited(contents, lambda footer: damage(get(footer, 2)[1]))
    assert IntegerFooters().metadata(damaged, integers) is None


def test_decimals_are_integers_in_the_memory_of_a_task(tmp_path: Path) -> None:
    wider = table_schema(TEXT.replace("decimal(9, 2)", "decimal(12, 2)"), lineage=False)
    file = write_table(tmp_path, "a.parquet", table(range(6_500)), use_dictionary=False, compression="none")
    contents = Storage({}).read(file.path)
    for of, kind in ((TABLE, "int32"), (wider, "int64")):
        decoder = Decoder(Storage({}), of, None, integers=True)
        rows, _ = decoder.table_of(file, contents)
        assert [str(f.type) for f in rows.schema][:3] == [kind, "int64", "decimal128(19, 4)"]
        assert rows.column("short").slice(0, 5).to_pylist() == [-LAST, LAST, 0, -1, None]


def test_columns_of_one_name_stay_decimals(tmp_path: Path) -> None:
    older = schema_of(field(1, "x", "decimal(9, 2)"), field(2, "y", "decimal(8, 2)"))
    of_file = arrow_schema(table_schema(older, lineage=False))
    values = [Decimal(n).scaleb(-2) for n in range(-25_000, 25_000)]
    columns = [pa.array(values, of_file.field(0).type), pa.array(values[::-1], of_file.field(1).type)]
    both = pa.Table.from_arrays(
        columns, schema=pa.schema([of_file.field(0), of_file.field(1).with_name("x")])
    )
    newer = schema_of(field(1, "x", "decimal(9, 2)"), field(2, "y", "decimal(9, 2)"))
    file: InputFile = write_table(tmp_path, "a.parquet", both, use_dictionary=False)
    assert file.size_bytes > MOST_BYTES
    result, found = rewritten(task_of(tmp_path, newer, [file]))
    assert result.proof.difference == ""
    assert found == [{"x": a, "y": b} for a, b in zip(values, values[::-1], strict=True)]


def test_notes_of_other_columns_stay() -> None:
    sink = pa.BufferOutputStream()
    pq.write_table(
        pa.table(
            [pa.array([1], pa.timestamp("us")), pa.array([Decimal("1.5")], pa.decimal128(18, 1))],
            ["at", "amount"],
        ),
        sink,
        store_decimal_as_integer=True,
        store_schema=False,
    )
    footers = IntegerFooters()
    for integers, types in (
        ({"at": pa.int64(), "amount": pa.int64()}, ["timestamp[us]", "int64"]),
        ({"amount": pa.int32()}, ["timestamp[us]", "decimal128(18, 1)"]),
    ):
        metadata = footers.metadata(sink.getvalue(), integers)
        schema = pq.ParquetFile(pa.BufferReader(sink.getvalue()), metadata=metadata).schema_arrow
        assert [str(f.type) for f in schema] == types
