"""Partition keys: readable, reversible, injective, safe in Dagster's range syntax."""

from __future__ import annotations

import math
import re
from decimal import Decimal
from uuid import UUID

import pytest

from iceberg_maint.core.model.ids import UNPARTITIONED_KEY, WHOLE_TABLE
from iceberg_maint.core.model.partition_key import (
    PartitionField,
    PartitionSpec,
    PartitionValue,
    decode_partition,
    encode_partition,
)
from iceberg_maint_tests.support.core.partition_keys import (
    STRINGS,
    UNSAFE,
    back,
    field,
    key_of,
    same,
    spec_of,
)

DAYS = (-719_162, 2_932_896, -719_163, 2_932_897, -2_147_483_648, 2_147_483_647, -1, 0, 1, 19_723)
LONGS = (-(2**63), 2**63 - 1, -(2**31), 2**31 - 1, -1, 0, 1, 12, 10**15)
FLOATS = (0.0, -0.0, math.inf, -math.inf, math.nan, 1.5, -1e300, 5e-324, 0.1, 3.4028234663852886e38)
DECIMALS = tuple(
    Decimal(t) for t in ("0.00", "-0.01", "1.10", "99999999999999999999999999999999999999", "-1e-18")
)
BINARIES = (b"", b"\0", b"\xff" * 16, b"abc", bytes(range(256)))
UUIDS = (UUID(int=0), UUID(int=2**128 - 1), UUID("f79c3e09-677c-4bbd-a479-3f349cb785e7"))
MICROS = tuple(
    d * 86_400_000_000 + u
    for d in (-719_163, -719_162, -1, 0, 19_723, 2_932_897)
    for u in (0, 1, 86_399_999_999)
)
NANOS = tuple(d * 86_400 * 10**9 + u for d in (-1, 0, 19_723) for u in (0, 1, 86_400 * 10**9 - 1))

CASES: tuple[tuple[str, str, tuple[PartitionValue, ...]], ...] = (
    ("identity", "string", STRINGS),
    ("truncate[5]", "string", tuple(s[:5] for s in STRINGS)),
    ("identity", "boolean", (True, False)),
    ("identity", "int", tuple(v for v in LONGS if -(2**31) <= v < 2**31)),
    ("identity", "long", LONGS),
    ("truncate[10]", "int", (-20, -10, 0, 10, 2_147_483_640)),
    ("truncate[10]", "long", tuple(v - v % 10 for v in LONGS)),
    ("identity", "float", (0.0, -0.0, 0.10000000149011612, math.inf, math.nan)),
    ("identity", "double", FLOATS),
    ("identity", "decimal(38, 18)", DECIMALS),
    ("truncate[50]", "decimal(9, 2)", (Decimal("0.50"), Decimal("-1.00"), Decimal("9999999.50"))),
    ("identity", "date", DAYS),
    ("identity", "time", (0, 1, 86_399_999_999, 43_200_000_000)),
    ("identity", "timestamp", MICROS),
    ("identity", "timestamptz", MICROS),
    ("identity", "timestamp_ns", NANOS),
    ("identity", "timestamptz_ns", NANOS),
    ("identity", "uuid", UUIDS),
    ("identity", "fixed[16]", (b"\0" * 16, b"\xff" * 16)),
    ("identity", "binary", BINARIES),
    ("truncate[2]", "binary", (b"", b"a", b"\xff\xff")),
    ("bucket[16]", "int", tuple(range(16))),
    ("bucket[1000]", "int", tuple(range(0, 1000, 7))),
    ("year", "int", (-1970, -2000, -1, 0, 1, 54, 8029, 300_000)),
    ("month", "int", (*range(-40, 40), -12 * 1970 - 1, 12 * 8030, 12 * 98_030)),
    ("day", "date", DAYS),
    ("day", "int", DAYS),
    ("hour", "int", (*range(-30, 30), -(2**31), 2**31 - 1, 473_352)),
)


def all_cases() -> list[tuple[PartitionField, PartitionValue]]:
    return [(field("f", t, k), v) for t, k, values in CASES for v in (None, *values)]


def test_every_type_and_transform_comes_back_and_is_injective() -> None:
    names = ("f", "", "a.b", "spec", UNPARTITIONED_KEY, "ts_day", "sp ec", "a=b", "a/b", "ключ", "..", "%")
    checked = 0
    for name in names:
        for transform, kind, values in CASES:
            one = field(name or "x", transform, kind)
            keys: dict[str, PartitionValue] = {}
            for value in (None, *values):
                key = key_of(one, value)
                assert same(back(one, key), value), (one, value, key)
                assert key not in keys or same(keys[key], value), (key, value)
                keys[key] = value
                checked += 1
    assert checked >= 1000


def test_keys_hold_nothing_dagster_or_a_shell_would_read() -> None:
    for one, value in all_cases():
        key = key_of(one, value)
        assert not UNSAFE & set(key), key[:80]
        assert key.isascii()
        assert key.isprintable()
        assert ".." not in key
        assert key
        assert key[0] != "."
        assert key[-1] != "."


def test_keys_of_a_range_split_at_its_dots_only() -> None:
    for name, value in (("f.", None), ("f", "a."), ("f", "."), (".f", "x"), ("f.", ".")):
        key = key_of(field(name), value)
        assert f"{key}...{key}".split("...") == [key, key]


@pytest.mark.parametrize(
    ("one", "value", "key"),
    [
        (field("region"), "eu west", "region=eu%20west"),
        (field("region"), None, "region"),
        (field("region"), "", "region="),
        (field("ts_day", "day", "date"), 19_723, "ts_day=2024-01-01"),
        (field("ts_day", "day", "date"), 2_932_896, "ts_day=9999-12-31"),
        (field("ts_day", "day", "date"), 2_932_897, "ts_day=d2932897"),
        (field("ts_day", "day", "date"), -719_162, "ts_day=0001-01-01"),
        (field("ts_day", "day", "date"), -719_163, "ts_day=d-719163"),
        (field("ts_month", "month", "int"), 648, "ts_month=2024-01"),
        (field("ts_month", "month", "int"), -1, "ts_month=1969-12"),
        (field("ts_year", "year", "int"), 54, "ts_year=2024"),
        (field("ts_hour", "hour", "int"), 473_352, "ts_hour=2024-01-01-00"),
        (field("ts_hour", "hour", "int"), -1, "ts_hour=1969-12-31-23"),
        (field("id_bucket", "bucket[16]", "int"), 3, "id_bucket=3"),
        (field("amount", "identity", "decimal(9, 2)"), Decimal("1.10"), "amount=1.10"),
        (field("ok", "identity", "boolean"), False, "ok=false"),
        (field("raw", "identity", "binary"), b"\x00\xff", "raw=00ff"),
        (field("x", "identity", "double"), math.nan, "x=NaN"),
        (field("x", "identity", "double"), -0.0, "x=-0.0"),
        (field("t", "identity", "timestamp"), 1, "t=1970-01-01T00-00-00.000001"),
        (field("t", "identity", "timestamptz_ns"), -1, "t=1969-12-31T23-59-59.999999999"),
        (field("spec"), "1", "%73pec=1"),
        (field("spec"), None, "spec"),
        (field(UNPARTITIONED_KEY), None, "%5F_all__"),
        (field(UNPARTITIONED_KEY), "x", "__all__=x"),
        (field("v"), "a..b", "v=a%2E%2Eb"),
        (field("v"), "a.b", "v=a.b"),
        (field("v"), "a.", "v=a%2E"),
    ],
)
def test_key_reads_as_documented(one: PartitionField, value: PartitionValue, key: str) -> None:
    assert key_of(one, value) == key


def test_null_empty_and_null_word_are_three_keys() -> None:
    assert len({key_of(field(), v) for v in (None, "", "null", "NULL", "__HIVE_DEFAULT_PARTITION__")}) == 5


def test_unpartitioned_and_void_only_specs_are_all() -> None:
    assert encode_partition(PartitionSpec(0, ()), (), 0) == UNPARTITIONED_KEY
    gone = spec_of(field("a", "void"), spec_id=3)
    assert encode_partition(gone, (None,), 0) == UNPARTITIONED_KEY
    assert decode_partition(UNPARTITIONED_KEY, {3: gone, 1: spec_of(field("b"), spec_id=1)}, 1) == (
        3,
        (None,),
    )


def test_sentinels_are_stored_as_before() -> None:
    assert (UNPARTITIONED_KEY, WHOLE_TABLE) == ("__all__", "*")


@pytest.mark.parametrize("specs", [{0: PartitionSpec(0, ())}, {0: spec_of(field("*"))}])
def test_whole_table_is_no_partition_key(specs: dict[int, PartitionSpec]) -> None:
    with pytest.raises(ValueError, match=r"'\*'"):
        decode_partition(WHOLE_TABLE, specs, 0)


def test_all_of_a_partitioned_table_is_refused() -> None:
    with pytest.raises(ValueError, match="no unpartitioned spec"):
        decode_partition(UNPARTITIONED_KEY, {0: spec_of(field())}, 0)


def test_void_field_takes_no_part_and_comes_back_null() -> None:
    spec = spec_of(field("a"), field("gone", "void"), field("b", "bucket[4]", "int"))
    key = encode_partition(spec, ("x", None, 3), 0)
    assert key == "a=x/b=3"
    assert decode_partition(key, {0: spec}, 0) == (0, ("x", None, 3))


def test_specs_that_look_alike_have_different_keys() -> None:
    specs = {0: spec_of(field("spec")), 1: spec_of(field("spec"), spec_id=1)}
    keys = {
        encode_partition(s, (v,), 0): (i, (v,)) for i, s in specs.items() for v in (None, "1", "1/spec=1", "")
    }
    assert len(keys) == 8
    for key, identity in keys.items():
        assert decode_partition(key, specs, 0) == identity


def test_keys_stay_when_specs_are_added() -> None:
    first = spec_of(field("a"))
    key = encode_partition(first, ("x",), 0)
    assert decode_partition(key, {0: first, 7: spec_of(field("a"), spec_id=7)}, 0) == (0, ("x",))


@pytest.mark.parametrize(
    "key",
    [
        "",
        "=",
        "g=x",
        "f=1/f=1",
        "f=01",
        "f=+1",
        "f= 1",
        "f=\uff11",
        "f=1.0",
        "f=x",
        "f=",
        "F=1",
        "%66=1",
        "spec=0/f=1",
        "spec=00/f=1",
        "spec=1/f=1",
        "spec=9/f=1",
        "spec=/f=1",
        "f=1/",
        "/f=1",
        "f=1\n",
        "__all__/f=1",
        "f=%FF",
        "f=%",
    ],
)
def test_decode_refuses_what_encode_would_not_write(key: str) -> None:
    with pytest.raises(ValueError):
        decode_partition(key, {0: spec_of(field("f", "identity", "int"))}, 0)


@pytest.mark.parametrize(
    ("transform", "kind", "text"),
    [
        ("identity", "boolean", "True"),
        ("identity", "boolean", "1"),
        ("identity", "date", ""),
        ("identity", "date", "2024-1-1"),
        ("identity", "date", "20240101"),
        ("identity", "date", "d19723"),
        ("identity", "date", "d"),
        ("identity", "date", "2024-02-30"),
        ("identity", "time", "25-00"),
        ("identity", "time", "24-00-00.000000"),
        ("identity", "timestamp", "2024-01-01"),
        ("identity", "timestamp", "2024-01-01T24-00-00.000000"),
        ("identity", "double", "nan"),
        ("identity", "double", "1"),
        ("identity", "double", "Infinity"),
        ("identity", "decimal(9, 2)", "1e1"),
        ("identity", "decimal(9, 2)", "x"),
        ("identity", "decimal(9, 2)", "Infinity"),
        ("identity", "decimal(9, 2)", "NaN"),
        ("identity", "uuid", "F79C3E09-677C-4BBD-A479-3F349CB785E7"),
        ("identity", "uuid", "x"),
        ("identity", "binary", "0"),
        ("identity", "binary", "0A"),
        ("identity", "string", "%E9"),
        ("month", "int", "2024-13"),
        ("month", "int", "2024-1"),
        ("month", "int", "2024"),
        ("year", "int", "02024"),
        ("hour", "int", "2024-01-01-24"),
        ("hour", "int", "2024-01-01"),
        ("bucket[4]", "int", "1_0"),
    ],
)
def test_decode_refuses_malformed_values(transform: str, kind: str, text: str) -> None:
    one = field("f", transform, kind)
    with pytest.raises(ValueError, match=re.escape(f"'f={text}'")):
        decode_partition(f"f={text}", {0: spec_of(one)}, 0)


def test_malformed_value_is_named_with_its_key_and_field() -> None:
    with pytest.raises(ValueError) as refused:
        decode_partition("f=2024-02-30", {0: spec_of(field("f", "day", "date"))}, 0)
    assert str(refused.value).startswith("'f=2024-02-30': '2024-02-30' is no value of f (day ")
