"""Pruned Avro reads, against files PyIceberg writes and bytes made by hand."""

from __future__ import annotations

import json
from decimal import Decimal
from pathlib import Path
from uuid import UUID

import pyiceberg.avro.file
import pytest
from pyiceberg.schema import Schema
from pyiceberg.typedef import Record
from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DecimalType,
    DoubleType,
    FixedType,
    FloatType,
    IntegerType,
    ListType,
    LongType,
    MapType,
    NestedField,
    StringType,
    StructType,
    UUIDType,
)

from iceberg_maint.catalog.manifests.avro import check_bounds_of_pyiceberg, read_columns
from iceberg_maint.catalog.manifests.avro_values import AvroError
from iceberg_maint_tests.support.catalog.table_files import write_avro


def written(path: Path, fields: list[tuple[int, object]], rows: list[tuple], codec: str = "deflate") -> bytes:
    schema = Schema(*(NestedField(i, f"f{i}", t, required=False) for i, t in fields))
    write_avro(path / "x.avro", schema, "x", [Record(*r) for r in rows], {}, codec)
    return (path / "x.avro").read_bytes()


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        (IntegerType(), -5),
        (LongType(), 1 << 62),
        (FloatType(), 0.5),
        (DoubleType(), -0.1),
        (BooleanType(), False),
        (StringType(), "grün"),
        (BinaryType(), b"\x00\xff"),
        (FixedType(3), b"abc"),
        (DecimalType(9, 2), Decimal("-7.00")),
        (DecimalType(38, 10), Decimal("1234567890.0123456789")),
        (UUIDType(), UUID("12345678-1234-5678-1234-567812345678")),
        (ListType(51, IntegerType(), element_required=True), (1, 2, 3)),
    ],
    ids=str,
)
def test_read_columns_every_type_comes_back_and_null_is_none(
    tmp_path: Path, kind: object, value: object
) -> None:
    stored = list(value) if isinstance(value, tuple) else value
    data = written(tmp_path, [(11, kind), (12, LongType())], [(stored, 1), (None, 2)])
    assert read_columns(
        data,
        (11, 12),
    ) == [[value, None], [1, 2]]


@pytest.mark.parametrize(
    "kind",
    [
        IntegerType(),
        FloatType(),
        DoubleType(),
        BooleanType(),
        StringType(),
        BinaryType(),
        FixedType(3),
        StructType(NestedField(60, "a", LongType(), required=False)),
        ListType(51, LongType(), element_required=True),
        ListType(51, StringType(), element_required=True),
        MapType(52, IntegerType(), 53, LongType()),
        MapType(52, IntegerType(), 53, BinaryType()),
        MapType(52, StringType(), 53, StringType()),
    ],
    ids=str,
)
def test_read_columns_field_not_wanted_is_skipped(tmp_path: Path, kind: object) -> None:
    values = {
        IntegerType: 3,
        FloatType: 1.0,
        DoubleType: 1.0,
        BooleanType: True,
        StringType: "xyz",
        BinaryType: b"xyz",
        FixedType: b"xyz",
        StructType: Record(4),
    }
    value = values.get(type(kind))
    if isinstance(kind, ListType):
        value = [1, 2] if isinstance(kind.element_type, LongType) else ["a", "b"]
    if isinstance(kind, MapType):
        value = {"k": "v"} if isinstance(kind.key_type, StringType) else {1: 2, 3: 4}
        value = {1: b"ab", 2: b""} if isinstance(kind.value_type, BinaryType) else value
    data = written(tmp_path, [(11, LongType()), (12, kind), (13, LongType())], [(7, value, 8), (9, None, 10)])
    assert read_columns(
        data,
        (13, 11),
    ) == [[8, 10], [7, 9]]


def test_read_columns_named_type_used_twice_is_resolved(tmp_path: Path) -> None:
    fields = [
        (11, DecimalType(9, 2)),
        (12, DecimalType(9, 2)),
        (13, UUIDType()),
        (14, UUIDType()),
        (15, FixedType(2)),
        (16, FixedType(2)),
    ]
    a, b = UUID(int=1), UUID(int=2)
    row = (Decimal("1.10"), Decimal("2.20"), a, b, b"aa", b"bb")
    data = written(tmp_path, fields, [row])
    for name in (b"decimal_9_2", b"uuid_fixed", b"fixed_2"):
        assert data.count(b'"name": "' + name) == 1
        assert data.count(b'"' + name + b'"]') == 1  # the second use refers to the first
    assert read_columns(
        data,
        (11, 12, 13, 14, 15, 16),
    ) == [[v] for v in row]


@pytest.mark.parametrize("codec", ["null", "deflate", "zstandard"])
def test_read_columns_many_blocks_come_in_order_under_each_codec(tmp_path: Path, codec: str) -> None:
    rows = [(n, "x" * 1000) for n in range(200)]
    assert read_columns(written(tmp_path, [(11, LongType()), (12, StringType())], rows, codec), (11,)) == [
        list(range(200))
    ]


def test_read_columns_field_the_file_lacks_is_all_none(tmp_path: Path) -> None:
    assert read_columns(
        written(tmp_path, [(11, LongType())], [(1,), (2,)]),
        (19, 11),
    ) == [[None, None], [1, 2]]


def test_read_columns_no_rows_is_empty_columns(tmp_path: Path) -> None:
    assert read_columns(written(tmp_path, [(11, LongType())], []), (11,)) == [[]]


def test_read_columns_bytes_longer_than_their_schema_is_refused(tmp_path: Path) -> None:
    # What a writer leaves that prefixes fixed values with their length: each record is too long.
    data = written(tmp_path, [(11, BinaryType())], [(b"abcd",)], codec="null")
    lying = data.replace(b'"bytes"', b'"long" ')
    with pytest.raises(AvroError, match="1 records end at byte 2 of a block of 6"):
        read_columns(lying, (11,))


@pytest.mark.parametrize(
    ("spoil", "reason"),
    [
        (lambda data: b"PAR1" + data[4:], "not an Avro object container file"),
        (lambda data: data[:-1] + bytes([data[-1] ^ 1]), "sync marker"),
        (lambda data: data[:-20], "the file ends within a block"),
        (lambda data: data.replace(b"deflate", b"reflate"), "KeyError"),
    ],
    ids=["magic", "sync", "cut off", "codec"],
)
def test_read_columns_spoilt_file_is_refused(tmp_path: Path, spoil: object, reason: str) -> None:
    data = written(tmp_path, [(11, LongType())], [(n,) for n in range(100)])
    with pytest.raises(AvroError, match=reason):
        read_columns(spoil(data), (11,))


def test_read_columns_map_from_integers_to_bytes_gives_the_values_of_the_keys_asked_for(
    tmp_path: Path,
) -> None:
    kind = MapType(52, IntegerType(), 53, BinaryType())
    rows = [({1: b"a", 2: b"", 9: b"z"}, 8), (None, 10), ({9: b"y"}, 12)]
    data = written(tmp_path, [(12, kind), (13, LongType())], rows)
    assert read_columns(data, (12, 13), (2, 9)) == [[(b"", b"z"), None, (None, b"y")], [8, 10, 12]]
    assert read_columns(data, (12,)) == [[(), None, ()]]


def test_read_columns_map_from_integers_to_bytes_gives_the_value_of_one_key_or_none(tmp_path: Path) -> None:
    kind = MapType(52, IntegerType(), 53, BinaryType())
    data = written(tmp_path, [(12, kind)], [({1: b"a", 2: b"b"},), ({1: b"a"},), (None,)])
    assert read_columns(data, (12,), (2,)) == [[(b"b",), (None,), None]]


def test_read_columns_map_from_integers_to_integers_gives_pairs_by_key(tmp_path: Path) -> None:
    kind = MapType(52, IntegerType(), 53, LongType())
    data = written(tmp_path, [(12, kind)], [({9: -2, 1: 70},), (None,), ({},), ({3: 1 << 40},)])
    assert read_columns(data, (12,)) == [[((1, 70), (9, -2)), None, (), ((3, 1 << 40),)]]


def by_hand(fields: list[tuple[int, object]], body: bytes, meta: dict[str, bytes] | None = None) -> bytes:
    """A container with one record of these bytes."""
    schema = {
        "type": "record",
        "name": "r",
        "fields": [{"name": f"f{i}", "field-id": i, "type": kind} for i, kind in fields],
    }
    text = json.dumps(schema).encode()
    pairs = {"avro.schema": text} | (meta or {})
    framed = [part for key, value in pairs.items() for part in (key.encode(), value)]
    head = b"Obj\x01" + number(len(pairs)) + b"".join(number(len(p)) + p for p in framed) + number(0)
    return head + bytes(16) + number(1) + number(len(body)) + body + bytes(16)


def number(value: int) -> bytes:
    """Zig-zag, seven bits to a byte, the lowest first."""
    rest, found = (value << 1) ^ (value >> 63), bytearray()
    while rest > 127:
        found.append(rest & 127 | 128)
        rest >>= 7
    return bytes([*found, rest])


LONGS = {"type": "array", "items": "long"}
TEXTS = {"type": "map", "values": "string"}
ANY = ["null", "long", "string"]


def test_read_columns_block_that_states_its_size_is_read_and_skipped() -> None:
    block = number(-2) + number(3) + number(5) + number(300) + number(1) + number(7) + number(0)
    texts = number(-1) + number(6) + number(1) + b"k" + number(3) + b"abc" + number(0)
    data = by_hand([(11, LONGS), (12, TEXTS), (13, LONGS)], block + texts + block)
    assert read_columns(data, (13,)) == [[(5, 300, 7)]]


@pytest.mark.parametrize(
    ("stored", "value"),
    [(number(0), None), (number(1) + number(9), 9), (number(2) + number(2) + b"ab", "ab")],
)
def test_read_columns_union_of_several_types_is_read_and_skipped(stored: bytes, value: object) -> None:
    data = by_hand([(11, ANY), (12, ANY)], stored + stored)
    assert read_columns(data, (11,)) == [[value]]
    assert read_columns(data, (12,)) == [[value]]


@pytest.mark.parametrize("wanted", [11, 12])
def test_read_columns_union_without_such_a_branch_is_refused(wanted: int) -> None:
    with pytest.raises(AvroError, match="a union has no branch 3"):
        read_columns(by_hand([(11, ANY)], number(3)), (wanted,))


@pytest.mark.parametrize(
    ("stored", "value"), [(number(0) + number(9), 9), (number(1) + number(2) + b"ab", "ab")]
)
def test_read_columns_union_of_two_types_without_null_is_read(stored: bytes, value: object) -> None:
    data = by_hand([(11, ["long", "string"]), (12, "long")], stored + number(5))
    assert read_columns(data, (11, 12)) == [[value], [5]]
    assert read_columns(data, (12,)) == [[5]]


FIXED = {"type": "fixed", "name": "fixed_4", "size": 4}


@pytest.mark.parametrize("is_java", [False, True])
@pytest.mark.parametrize("value", [b"abcd", b"\xff\xff\xff\xff", b"\x08abc"])
def test_fixed_partition_is_read_as_avro_and_as_iceberg_java_writes_it(value: bytes, is_java: bool) -> None:
    fields = [(1000, ["null", FIXED]), (1001, [FIXED["name"], "null"]), (103, "long"), (104, "long")]
    stored = number(4) + value if is_java else value
    record = number(1) + stored + number(0) + stored + number(5) + number(700)
    data = by_hand(fields, record, {"iceberg.schema": b"{}"} if is_java else {})
    assert read_columns(data, (1000, 1001, 103, 104)) == [[value], [value], [5], [700]]
    assert read_columns(data, (103,)) == [[5]]


def test_fixed_uuid_and_decimal_have_no_length_in_files_of_java() -> None:
    decimal = {
        "type": "fixed",
        "name": "decimal_9_2",
        "size": 4,
        "logicalType": "decimal",
        "precision": 9,
        "scale": 2,
    }
    kinds = {"type": "fixed", "name": "uuid_fixed", "size": 16, "logicalType": "uuid"}, decimal, FIXED
    stored = UUID(int=7).bytes + (-125).to_bytes(4, signed=True) + number(4) + b"abcd"
    data = by_hand(list(enumerate(kinds, 11)), stored, {"iceberg.schema": b"{}"})
    assert read_columns(data, (11, 12, 13)) == [[UUID(int=7)], [Decimal("-1.25")], [b"abcd"]]


@pytest.mark.parametrize(
    ("kind", "stored", "reason"),
    [
        ("bytes", number(64) + b"xy", "a value of 64 bytes exceeds the 2 bytes that follow"),
        ("bytes", number(-1), "a value of -1 bytes exceeds the 0 bytes that follow"),
        ("bytes", number((1 << 63) - 1) + b"xy", "exceeds the 2 bytes that follow"),
        ("long", b"\xff", "the bytes end within a value"),
        ("double", bytes(7), "a value of 8 bytes exceeds the 7 bytes that follow"),
        (FIXED, b"abc", "the bytes end within a value|a value of 4 bytes exceeds the 3 bytes that follow"),
        ("boolean", b"\x02", "a boolean is 2"),
        (LONGS, number(1 << 40), "1099511627776 items exceed the 0 bytes that follow"),
        (TEXTS, number(1) + number(9), "a value of 9 bytes exceeds the 0 bytes that follow"),
    ],
)
@pytest.mark.parametrize("requested", [(11,), (12,)])
def test_bytes_that_end_within_a_value_are_refused(
    kind: object, stored: bytes, reason: str, requested: tuple[int, ...]
) -> None:
    with pytest.raises(AvroError, match=reason):
        read_columns(by_hand([(11, kind)], stored), requested)


def test_records_without_bytes_and_types_in_each_other_without_end_are_refused() -> None:
    data = by_hand([(11, "null")], b"")
    with pytest.raises(AvroError, match="a block of 0 bytes states 1 records"):
        read_columns(data, (11,))
    items: object = "long"
    record: object = "long"
    for level in range(30):
        items = ["null", {"type": "array", "items": items}]
        record = {"type": "record", "name": f"r{level}", "fields": [{"name": "a", "type": record}]}
    for kind in (items, record):
        with pytest.raises(AvroError, match="more than 20 types in each other"):
            read_columns(by_hand([(11, kind)], number(1) + number(1) * 60), (11,))


def test_pyiceberg_reads_no_bytes_behind_its_buffer() -> None:
    check_bounds_of_pyiceberg()
    with pytest.raises(EOFError):
        pyiceberg.avro.file.new_decoder(number(64) + b"xy").read_bytes()


def test_schema_nested_without_end_is_refused() -> None:
    schema = b'{"type": "record", "name": "r", "fields": [{"name": "a", "field-id": 1, "type": '
    for levels in (200, 5000):
        kind = b'{"type": "array", "items": ' * levels + b'"long"' + b"}" * levels
        data = by_hand([], b"", {"avro.schema": schema + kind + b"}]}"})
        with pytest.raises(AvroError):
            read_columns(data, (1,))
