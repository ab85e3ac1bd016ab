"""The fingerprint: what it must tell apart, what it must not, and its definition recomputed by hand."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest
from pyspark.sql import SparkSession

from iceberg_maint.core.outcomes.verification import Fingerprint
from iceberg_maint.engines.spark.scan import row_proof
from iceberg_maint_tests.support.spark.versions import not_on_spark_3

pytestmark = pytest.mark.spark

MASK = (1 << 64) - 1
P1, P2, P3, P4, P5 = (
    0x9E3779B185EBCA87,
    0xC2B2AE3D27D4EB4F,
    0x165667B19E3779F9,
    0x85EBCA77C2B2AE63,
    0x27D4EB2F165667C5,
)


def rotate(value: int, bits: int) -> int:
    return ((value << bits) | (value >> (64 - bits))) & MASK


def finish(value: int) -> int:
    value = (value ^ (value >> 33)) * P2 & MASK
    value = (value ^ (value >> 29)) * P3 & MASK
    return value ^ (value >> 32)


def xx_int(value: int, seed: int) -> int:
    start = (seed + P5 + 4) & MASK
    mixed = start ^ ((value & 0xFFFFFFFF) * P1 & MASK)
    return finish((rotate(mixed, 23) * P2 + P3) & MASK)


def xx_long(value: int, seed: int) -> int:
    start = (seed + P5 + 8) & MASK
    mixed = start ^ (rotate((value & MASK) * P2 & MASK, 31) * P1 & MASK)
    return finish((rotate(mixed, 27) * P1 + P4) & MASK)


def by_hand(
    rows: Sequence[Sequence[int | None]],
    ids: Sequence[int],
    hashes: Sequence[Callable[[int, int], int]] = (xx_int, xx_long),
) -> Fingerprint:
    """Rows hashed by the definition in the module's text, each column by its function."""
    lanes = []
    for lane in (0, 1):
        low = high = 0
        for row in rows:
            joined = 0
            for value, field_id, hashed in zip(row, ids, hashes, strict=True):
                seed = xx_int(~field_id if lane else field_id, 42)
                joined ^= seed if value is None else hashed(value, seed)
            whole = xx_long(joined, 42)
            low += whole & 0xFFFFFFFF
            high += whole >> 32
        lanes.append((low, high))
    return Fingerprint(len(rows), tuple(lanes))


def of(spark: SparkSession, query: str, ids: dict[str, int] | None = None) -> Fingerprint:
    frame = spark.sql(query)
    ids = ids or {name: number for number, name in enumerate(frame.columns, 1)}
    row = frame.agg(*row_proof.measures(frame.schema, ids)).collect()[0]
    return row_proof.fingerprint_of(row.asDict())


def test_fingerprint_is_what_its_definition_says(spark: SparkSession) -> None:
    rows = [(1, -5), (None, 2**62), (-(2**31), None), (None, None), (1, -5)]
    values = ", ".join(
        f"({'null' if a is None else f'int({a})'}, {'null' if b is None else f'bigint({b})'})"
        for a, b in rows
    )
    found = of(spark, f"select * from values {values} as t(a, b)", {"a": 7, "b": 1000})
    assert found == by_hand(rows, (7, 1000))


def test_fingerprint_of_no_rows_is_zero_and_adds_nothing(spark: SparkSession) -> None:
    none = of(spark, "select 1 as a where false")
    some = of(spark, "select 1 as a")
    assert none == row_proof.total(())
    assert none + some == some


def test_fingerprint_ignores_order_and_partitioning_and_adds_up(spark: SparkSession) -> None:
    whole = of(spark, "select id as a, string(id) as b from range(0, 100, 1, 3)")
    other = of(spark, "select id as a, string(id) as b from range(0, 100, 1, 2) order by b desc")
    parts = [of(spark, f"select id as a, string(id) as b from range({s}, {s + 50})") for s in (0, 50)]
    assert whole == other == parts[0] + parts[1]


def test_fingerprint_goes_by_field_id_not_by_name_or_position(spark: SparkSession) -> None:
    one = of(spark, "select 1 as a, 'x' as b", {"a": 1, "b": 2})
    assert of(spark, "select 'x' as renamed, 1 as moved", {"renamed": 2, "moved": 1}) == one
    assert of(spark, "select 1 as a, 'x' as b", {"a": 1, "b": 3}) != one


def test_row_hash_of_one_to_nine_columns_contains_every_column(spark: SparkSession) -> None:
    values = [100 + number for number in range(9)]
    frame = spark.sql("select " + ", ".join(f"bigint({v}) as c{n}" for n, v in enumerate(values, 1)))
    ids = {name: number for number, name in enumerate(frame.columns, 1)}
    parts = [frame.select(*frame.columns[:count]).schema for count in range(1, 10)]
    hashes: list[Any] = [row_proof.row_hash(part, ids, lane) for part in parts for lane in (0, 1)]
    found = [int(value) & MASK for value in frame.select(*hashes).collect()[0]]
    for count in range(1, 10):
        expected = by_hand([values[:count]], range(1, count + 1), [xx_long] * count)
        lanes = found[2 * count - 2 : 2 * count]
        assert tuple((value & 0xFFFFFFFF, value >> 32) for value in lanes) == expected.lanes


DIFFERENT: list[tuple[str, list[str]]] = [
    ("int", ["null", "0", "1", "-1"]),
    ("string", ["null", "''", "'null'", "' '", "'a'", "'\u00e4'", "'A'"]),
    ("binary", ["null", "X''", "X'00'", "X'0000'"]),
    ("decimal(9,2)", ["null", "0", "0.01", "-0.01"]),
    ("decimal(38,10)", ["null", "0", "0.0000000001", "-0.0000000001", "1234567890123456789012345678"]),
    ("double", ["null", "0", "double('NaN')", "double('Infinity')", "1e-300"]),
    ("timestamp", ["null", "timestamp'1970-01-01 00:00:00'", "timestamp'1969-12-31 23:59:59.999999'"]),
    ("struct<a: int, b: int>", ["null", "named_struct('a', null, 'b', null)", "named_struct('a', 5, 'b', null)",
                                "named_struct('a', null, 'b', 5)"]),
    ("array<int>", ["null", "array()", "array(null)", "array(null, null)", "array(1)", "array(1, null)",
                    "array(null, 1)", "array(1, 2)", "array(2, 1)"]),
    ("array<array<int>>", ["array()", "array(array())", "array(null)", "array(array(1), array(2))",
                           "array(array(1, 2))", "array(array(), array(1, 2))"]),
    ("map<string,int>", ["null", "map()", "map('a', null)", "map('a', 1)", "map('b', 1)", "map('a', 1, 'b', 2)"]),
    ("array<struct<a: string>>", ["array(named_struct('a', null))", "array(null)", "array(named_struct('a', ''))"]),
    ("struct<a: struct<b: int>>", ["named_struct('a', null)", "named_struct('a', named_struct('b', null))", "null"]),
]  # fmt: skip


@pytest.mark.parametrize(("kind", "values"), DIFFERENT, ids=[kind for kind, _ in DIFFERENT])
def test_fingerprint_distinguishes_values_null_and_empty_included(
    spark: SparkSession, kind: str, values: list[str]
) -> None:
    rows = ", ".join(f"({number}, cast({value} as {kind}))" for number, value in enumerate(values))
    frame = spark.sql(f"select * from values {rows} as t(n, x)")
    only = frame.select("x")
    hashes: list[Any] = [row_proof.row_hash(only.schema, {"x": 1}, lane) for lane in (0, 1)]
    for lane in hashes:
        assert frame.select(lane).distinct().count() == len(values)


def test_fingerprint_value_moved_between_columns_or_rows_is_seen(spark: SparkSession) -> None:
    rows = of(spark, "select * from values (1, 2), (3, 4) as t(a, b)")
    assert of(spark, "select * from values (2, 1), (3, 4) as t(a, b)") != rows
    assert of(spark, "select * from values (1, 4), (3, 2) as t(a, b)") != rows
    assert of(spark, "select * from values (1, 2), (1, 2) as t(a, b)") != rows


def test_fingerprint_lanes_are_independent(spark: SparkSession) -> None:
    (first, second) = of(spark, "select id as a from range(10)").lanes
    assert first != second


def test_fingerprint_negative_zero_is_zero_and_nan_is_nan(spark: SparkSession) -> None:
    assert of(spark, "select -0.0D as a") == of(spark, "select 0.0D as a")
    assert of(spark, "select double('NaN') as a") == of(spark, "select sqrt(-1.0D) as a")


@pytest.mark.drawn(1)
@pytest.mark.parametrize("levels", [6, 7, 24])
def test_fingerprint_of_structs_in_each_other_distinguishes_the_innermost_values(
    spark: SparkSession, levels: int
) -> None:
    def nested(value: str, null_at: int = 0) -> Fingerprint:
        text = value
        for level in range(levels, 0, -1):
            text = f"if(id < 0 or {level} = {null_at}, null, named_struct('f', {text}))"
        return of(spark, f"select {text} as c from range(2)")

    found = [
        nested("id"),
        nested("id + 1"),
        nested("cast(null as bigint)"),
        nested("id", 1),
        nested("id", levels),
    ]
    assert nested("id") == found[0]
    assert len({f.text() for f in found}) == 5


def test_fingerprint_of_a_struct_in_six_others_is_that_of_a_list_of_it(spark: SparkSession) -> None:
    def hashed(value: int, seed: int) -> int:
        for _outer in range(6):
            seed = xx_int(0, seed)
        element = xx_long(value, xx_int(0, xx_int(0, 42)))
        return xx_long(element, seed)

    text = "id"
    for _struct in range(7):
        text = f"named_struct('f', {text})"
    assert of(spark, f"select {text} as c from range(1, 3)") == by_hand([(1,), (2,)], (1,), (hashed,))


@pytest.mark.variant
def test_fingerprint_of_a_thousand_columns_is_computed(spark: SparkSession) -> None:
    found = of(spark, f"select {', '.join(f'id + {n} as c{n}' for n in range(1000))} from range(2)")
    rows = [range(1000), range(1, 1001)]
    assert found == by_hand(rows, range(1, 1001), [xx_long] * 1000)


def test_fingerprint_of_kept_rows_only(spark: SparkSession) -> None:
    from pyspark.sql import functions as F

    frame = spark.sql("select id as a from range(10)")
    kept = frame.agg(*row_proof.measures(frame.schema, {"a": 1}, F.col("a") < 4)).collect()[0]
    assert row_proof.fingerprint_of(kept.asDict()) == of(spark, "select id as a from range(4)")


@not_on_spark_3("it has no variant")
def test_fingerprint_variant_distinguishes_types_and_values(spark: SparkSession) -> None:
    texts = ["1", "1.0", '"1"', "null", '{"a": 1}', "[1]"]
    rows = ", ".join(f"(parse_json('{text}'))" for text in texts)
    frame = spark.sql(f"select * from values {rows}, (cast(null as variant)) as t(x)")
    hashed = row_proof.row_hash(frame.schema, {"x": 1}, 0)
    assert frame.select(hashed).distinct().count() == len(texts) + 1
