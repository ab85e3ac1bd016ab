"""Bounds and counts as the spec and Iceberg's writer define them. `test_columnar_metrics.py` compares with the writer."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from iceberg_maint.columnar.check.file_proof import value_of
from iceberg_maint.columnar.check.metrics import lower_bound, single_value, truncation, upper_bound
from iceberg_maint.columnar.read.leaves import row_statistics
from iceberg_maint.columnar.read.schema import Primitive
from iceberg_maint.columnar.task import Encoding
from iceberg_maint_tests.support.columnar.tables import field, rewritten, schema_of, task_of, write_file

STRING, BINARY = Primitive("string"), Primitive("binary")


@pytest.mark.parametrize(
    ("value", "length", "lower", "upper"),
    [
        ("km1", 3, "km1", "km1"),
        ("km1x", 3, "km1", "km2"),
        ("żółć", 2, "żó", "żô"),
        ("a\U0010ffffb", 2, "a\U0010ffff", "b"),
        ("a\ud7ffb", 2, "a\ud7ff", "a\ue000"),
        ("\U0010ffff" * 3, 2, "\U0010ffff" * 2, None),
    ],
)
def test_bounds_of_text_are_cut_at_code_points(
    value: str, length: int, lower: str, upper: str | None
) -> None:
    assert lower_bound(value.encode(), STRING, length) == lower.encode()
    assert upper_bound(value.encode(), STRING, length) == (None if upper is None else upper.encode())


@pytest.mark.parametrize(
    ("value", "upper"),
    [(b"km1x", b"km2"), (b"ab\xffd", b"ac"), (b"\xff\xff\xffd", None), (b"abc", b"abc")],
)
def test_upper_bound_of_binary_is_the_next_value(value: bytes, upper: bytes | None) -> None:
    assert upper_bound(value, BINARY, 3) == upper


def test_text_that_is_no_utf8_has_no_truncated_bound() -> None:
    assert lower_bound(b"\xff" * 20, STRING, 16) is None
    assert upper_bound(b"\xff" * 20, STRING, 16) is None
    assert upper_bound(b"\xff" * 20, STRING, None) == b"\xff" * 20


@pytest.mark.parametrize(
    ("kind", "value", "stored"),
    [
        ("boolean", 1, b"\x01"),
        ("int", -2, b"\xfe\xff\xff\xff"),
        ("date", 1, b"\x01\x00\x00\x00"),
        ("long", 1, b"\x01" + bytes(7)),
        ("timestamp_ns", -1, b"\xff" * 8),
        ("float", -0.0, b"\x00\x00\x00\x80"),
        ("double", 1.0, b"\x00\x00\x00\x00\x00\x00\xf0\x3f"),
        ("decimal(9, 2)", 127, b"\x7f"),
        ("decimal(9, 2)", 128, b"\x00\x80"),
        ("decimal(9, 2)", -128, b"\x80"),
        ("decimal(38, 2)", -129, b"\xff\x7f"),
        ("fixed[2]", b"ab", b"ab"),
    ],
)
def test_single_value_has_the_form_of_the_spec(kind: str, value: Any, stored: bytes) -> None:
    assert single_value(value, Primitive(kind)) == stored
    assert value_of(stored, Primitive(kind)) == value


def test_zeros_have_signs_and_nan_is_in_no_bound() -> None:
    nan = float("nan")
    chunks = [pa.array([0.0, nan, None]), pa.array([-0.0, nan])]
    found = row_statistics(chunks, Primitive("double"))
    assert (found.values, found.nulls, found.nans) == (5, 1, 2)
    assert (str(found.lower), str(found.upper)) == ("-0.0", "0.0")
    only_nan = row_statistics([pa.array([nan, None])], Primitive("double"))
    assert (only_nan.nans, only_nan.lower, only_nan.upper) == (1, None, None)


def test_values_of_a_dictionary_that_no_row_has_are_in_no_bound() -> None:
    rows = pa.DictionaryArray.from_arrays(pa.array([1, 1, None], pa.int32()), pa.array(["a", "b", "c"]))
    found = row_statistics([rows], STRING)
    assert (found.nulls, found.lower, found.upper) == (1, b"b", b"b")


def test_metrics_mode_that_iceberg_does_not_have_is_an_error() -> None:
    assert (truncation("full"), truncation("truncate(7)")) == (None, 7)
    with pytest.raises(ValueError, match="is no metrics mode"):
        truncation("truncate")


def test_bounds_of_row_groups_are_merged_and_long_values_have_bounds(tmp_path: Path) -> None:
    schema = schema_of(field(1, "s", "string"), field(2, "f", "float"), field(3, "n", "decimal(38, 0)"))
    nan = float("nan")
    rows = [
        {"s": "y" * 5000, "f": nan, "n": -(10**30)},
        {"s": "z" * 5000, "f": -0.0, "n": 5},
        {"s": "a", "f": 0.0, "n": None},
        {"s": None, "f": None, "n": 10**30},
    ]
    file = write_file(tmp_path, "a.parquet", schema, rows)
    task = task_of(
        tmp_path,
        schema,
        [file],
        encoding=Encoding(row_group_bytes=file.size_bytes // 2),
        metrics_modes={1: "full"},
    )
    result, _ = rewritten(task)
    metrics = result.metrics
    assert result.proof.difference == ""
    assert len(metrics.split_offsets) == 2
    assert metrics.lower_bounds[1] == b"a"
    assert metrics.upper_bounds[1] == b"z" * 5000
    assert metrics.lower_bounds[2] == b"\x00\x00\x00\x80"
    assert metrics.upper_bounds[2] == bytes(4)
    assert metrics.lower_bounds[3] == (-(10**30)).to_bytes(13, "big", signed=True)
    assert (metrics.nan_value_counts, metrics.null_value_counts) == ({2: 1}, {1: 1, 2: 1, 3: 1})


def test_column_without_metrics_has_none_and_repeated_columns_have_sizes_only(tmp_path: Path) -> None:
    schema = schema_of(
        field(1, "a", "int"),
        field(2, "b", "int"),
        field(3, "li", {"type": "list", "element-id": 4, "element": "int", "element-required": False}),
    )
    file = write_file(tmp_path, "a.parquet", schema, [{"a": 1, "b": 2, "li": [3]}])
    result, _ = rewritten(task_of(tmp_path, schema, [file], metrics_modes={1: "none", 2: "counts"}))
    assert result.metrics.column_sizes.keys() == {2, 4}
    assert result.metrics.value_counts == {2: 1}
    assert result.metrics.lower_bounds == {}
