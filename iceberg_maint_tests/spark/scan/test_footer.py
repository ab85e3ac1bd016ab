"""The footer proof as a function of content files in Iceberg's JSON."""

from __future__ import annotations

import struct
from typing import Any

import pytest

from iceberg_maint.engines.spark.scan.footer_proof import statistics_difference

TYPES = {1: "long", 2: "string", 3: "double", 4: "decimal(9, 2)", 5: "boolean"}


def file(records: int, **metrics: dict[int, Any]) -> dict[str, Any]:
    made: dict[str, Any] = {"record-count": records}
    for name, values in metrics.items():
        made[name.replace("_", "-")] = {"keys": list(values), "values": list(values.values())}
    return made


def number(value: int) -> str:
    return value.to_bytes(8, "little", signed=True).hex().upper()


def real(value: float) -> str:
    return struct.pack("<d", value).hex().upper()


def test_difference_merged_counts_and_bounds_is_none() -> None:
    inputs = [
        file(
            2,
            value_counts={1: 2},
            null_value_counts={1: 1},
            lower_bounds={1: number(-5)},
            upper_bounds={1: number(3)},
        ),
        file(
            1,
            value_counts={1: 1},
            null_value_counts={1: 0},
            lower_bounds={1: number(-7)},
            upper_bounds={1: number(2)},
        ),
    ]
    output = file(
        3,
        value_counts={1: 3},
        null_value_counts={1: 1},
        lower_bounds={1: number(-7)},
        upper_bounds={1: number(3)},
    )
    assert statistics_difference(inputs, [output], TYPES) is None
    assert statistics_difference(inputs, [inputs[0], inputs[1]], TYPES) is None


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"record-count": 2}, "records"),
        ({"value-counts": {"keys": [1], "values": [2]}}, "value-counts of field 1"),
        ({"null-value-counts": {"keys": [1], "values": [1]}}, "null-value-counts of field 1"),
        ({"nan-value-counts": {"keys": [3], "values": [0]}}, "nan-value-counts of field 3"),
        ({"lower-bounds": {"keys": [1], "values": [number(-4)]}}, "lower-bounds of field 1"),
        ({"upper-bounds": {"keys": [1], "values": [number(4)]}}, "upper-bounds of field 1"),
    ],
)
def test_difference_is_named(change: dict[str, Any], said: str) -> None:
    whole = file(
        3, value_counts={1: 3}, null_value_counts={1: 0}, nan_value_counts={3: 1},
        lower_bounds={1: number(-5)}, upper_bounds={1: number(5)},
    )  # fmt: skip
    assert statistics_difference([whole], [whole], TYPES) is None
    found = statistics_difference([whole], [{**whole, **change}], TYPES)
    assert found is not None
    assert said in found


def test_difference_metric_that_one_file_lacks_is_not_compared() -> None:
    inputs = [file(1, value_counts={1: 1, 2: 1}), file(1, value_counts={1: 1})]
    assert statistics_difference(inputs, [file(2, value_counts={1: 2, 2: 2})], TYPES) is None


def test_difference_orc_counts_inside_a_null_struct_are_those_that_add_up() -> None:
    # As Iceberg writes them: in a file whose other rows have the struct the field counts its values
    # alone, in one where the field is NULL the rows.
    whole = {**file(1, value_counts={6: 1}, null_value_counts={6: 0}), "file-format": "ORC"}
    without = {**file(1, value_counts={6: 0}, null_value_counts={6: 0}), "file-format": "ORC"}
    merged = {**file(2, value_counts={6: 2}, null_value_counts={6: 1}), "file-format": "ORC"}
    assert statistics_difference([whole, without], [merged], TYPES) is None
    lost = {**file(2, value_counts={6: 2}, null_value_counts={6: 2}), "file-format": "ORC"}
    assert statistics_difference([whole, without], [lost], TYPES) == "non-null values of field 6: 1 in, 0 out"


def test_difference_promoted_and_negative_bounds_compare_as_values() -> None:
    narrow = file(1, lower_bounds={1: (-2).to_bytes(4, "little", signed=True).hex(), 4: "FF38"})
    wide = file(1, lower_bounds={1: number(-2), 4: "FFFFFF38"})
    assert statistics_difference([narrow], [wide], TYPES) is None


def test_difference_negative_zero_and_zero_bounds_are_the_same() -> None:
    assert (
        statistics_difference(
            [file(1, upper_bounds={3: real(-0.0)})], [file(1, upper_bounds={3: real(0.0)})], TYPES
        )
        is None
    )


def test_difference_bound_of_a_length_that_no_number_has_is_not_compared() -> None:
    assert (
        statistics_difference(
            [file(1, upper_bounds={3: "00"})], [file(1, upper_bounds={3: real(1.0)})], TYPES
        )
        is None
    )


def test_difference_bounds_that_may_be_truncated_are_not_compared() -> None:
    short, long = b"abc".hex(), b"abcdefghijklmnop".hex()
    assert (
        statistics_difference([file(1, lower_bounds={2: long})], [file(1, lower_bounds={2: short})], TYPES)
        is None
    )
    assert (
        statistics_difference(
            [file(1, lower_bounds={2: b"x".hex()})], [file(1, lower_bounds={2: short})], TYPES
        )
        is not None
    )


def test_difference_nothing_written_for_rows_read_is_named() -> None:
    assert statistics_difference([file(1)], [], TYPES) == "1 records in, 0 out"
    assert statistics_difference([file(0)], [], TYPES) is None
