"""The statistics of a data file against its rows, for files of any writer."""

from __future__ import annotations

import json
import struct
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from iceberg_maint.columnar.check import file_statistics
from iceberg_maint.columnar.check.file_statistics import StatisticsTask, statistics_difference
from iceberg_maint.columnar.parquet.thrift import BINARY, Struct
from iceberg_maint.columnar.rewrite import rewrite
from iceberg_maint.columnar.storage import Storage
from iceberg_maint.columnar.task import OutputMetrics, UnsupportedColumnError
from iceberg_maint_tests.columnar.test_splice import edited, statistics
from iceberg_maint_tests.support.columnar.tables import (
    ALL_TYPES,
    all_types_row,
    field,
    schema_of,
    task_of,
    write_file,
)

NUMBERS = schema_of(
    field(1, "l", "long"), field(2, "d", "double"), field(3, "s", "string"), field(4, "a.b", "int")
)


def written(folder: Path, schema: str, rows: list[dict[str, Any]], **changes: Any) -> StatisticsTask:
    """A file of these rows with true statistics."""
    result = rewrite(task_of(folder, schema, [write_file(folder, "in.parquet", schema, rows)], **changes))
    modes = changes.get("metrics_modes", {})
    return StatisticsTask(result.path, result.size_bytes, result.record_count, schema, result.metrics, modes)


def difference(task: StatisticsTask) -> str:
    return statistics_difference(StatisticsTask.from_json(task.to_json()), Storage({}))


def number_rows(count: int) -> list[dict[str, Any]]:
    return [{"l": n, "d": float("nan") if n == 3 else n / 2, "s": f"t{n}", "a.b": None} for n in range(count)]


@pytest.mark.parametrize("rows_of_a_batch", [7, 65_536])
def test_true_statistics_of_every_type_differ_in_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rows_of_a_batch: int
) -> None:
    monkeypatch.setattr(file_statistics, "_MOST_ROWS", rows_of_a_batch)
    assert difference(written(tmp_path, ALL_TYPES, [all_types_row(n) for n in range(300)])) == ""


def test_true_statistics_with_row_lineage_differ_in_nothing(tmp_path: Path) -> None:
    rows = [{"l": n} for n in range(5)]
    schema = schema_of(field(1, "l", "long"))
    file = replace(write_file(tmp_path, "in.parquet", schema, rows), first_row_id=40)
    result = rewrite(task_of(tmp_path, schema, [file], format_version=3, keep_row_lineage=True))
    task = StatisticsTask(result.path, result.size_bytes, 5, schema, result.metrics)
    assert difference(task) == ""


def test_name_with_a_dot_is_read_as_one_name(tmp_path: Path) -> None:
    assert difference(written(tmp_path, NUMBERS, number_rows(10))) == ""


def test_rows_larger_than_a_batch_are_decoded_one_by_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(file_statistics, "_BATCH_BYTES", 1)
    assert difference(written(tmp_path, NUMBERS, number_rows(10))) == ""


def changed(metrics: OutputMetrics, name: str, value: Mapping[int, Any]) -> OutputMetrics:
    return replace(metrics, **{name: {**getattr(metrics, name), **value}})


@pytest.mark.parametrize(
    ("name", "value", "sentence"),
    [
        ("value_counts", {1: 9}, "column l: the manifest states 9 values; the rows have 10"),
        ("null_value_counts", {1: 1}, "column l: the manifest states 1 nulls; the rows have 0"),
        ("null_value_counts", {4: 9}, "column a.b: the manifest states 9 nulls; the rows have 10"),
        ("nan_value_counts", {2: 0}, "column d: the manifest states 0 NaNs; the rows have 1"),
        ("lower_bounds", {1: struct.pack("<q", 1)}, "column l: the manifest states lower bound 1; a row has 0"),
        ("upper_bounds", {1: struct.pack("<q", 8)}, "column l: the manifest states upper bound 8; a row has 9"),
        ("lower_bounds", {2: struct.pack("<d", 0.1)}, "column d: the manifest states lower bound 0.1; a row has 0.0"),
        ("upper_bounds", {2: struct.pack("<d", float("nan"))}, "column d: the manifest states upper bound nan; a row has 4.5"),
        ("lower_bounds", {3: b"t1"}, "column s: the manifest states lower bound b't1'; a row has b't0'"),
        ("upper_bounds", {3: b"t8"}, "column s: the manifest states upper bound b't8'; a row has b't9'"),
    ],
)  # fmt: skip
def test_wrong_metrics_are_named(tmp_path: Path, name: str, value: Mapping[int, Any], sentence: str) -> None:
    task = written(tmp_path, NUMBERS, number_rows(10))
    assert difference(replace(task, metrics=changed(task.metrics, name, value))) == sentence


def test_bounds_of_a_column_of_mode_none_are_named(tmp_path: Path) -> None:
    task = written(tmp_path, NUMBERS, number_rows(10))
    assert (
        difference(replace(task, metrics_modes={1: "none"}))
        == "column l: the manifest states counts or bounds"
    )


def test_other_number_of_rows_is_named(tmp_path: Path) -> None:
    task = written(tmp_path, NUMBERS, number_rows(10))
    assert difference(replace(task, record_count=11)) == "the footer states 10 rows; 11 were written"


def test_file_of_another_schema_is_named(tmp_path: Path) -> None:
    task = written(tmp_path, NUMBERS, number_rows(10))
    other = schema_of(
        field(1, "l", "long"), field(7, "d", "double"), field(3, "s", "string"), field(4, "a.b", "int")
    )
    assert difference(replace(task, schema=other)).startswith("column d: the file states ")


def test_columns_with_other_names_in_the_file_are_compared_by_their_ids(tmp_path: Path) -> None:
    inner = {"type": "struct", "fields": [field(4, "in ner", "int")]}
    kinds = ({"type": "list", "element-id": 6, "element-required": False, "element": inner}, inner)
    for number, kind in enumerate(kinds):
        stored = json.loads(json.dumps(kind).replace("in ner", "in_x20ner"))
        value = {"in_x20ner": 7}
        rows = [{"with_x20space": n, "s": value if number else [value]} for n in range(9)]
        folder = tmp_path / str(number)
        folder.mkdir()
        task = written(folder, schema_of(field(1, "with_x20space", "long"), field(2, "s", stored)), rows)
        task = replace(task, schema=schema_of(field(1, "with space", "long"), field(2, "s", kind)))
        assert difference(task) == ""
        wrong = changed(task.metrics, "upper_bounds", {1: struct.pack("<q", 7)})
        sentence = "column with space: the manifest states upper bound 7; a row has 8"
        assert difference(replace(task, metrics=wrong)) == sentence


def test_type_that_arrow_does_not_read_is_not_compared(tmp_path: Path) -> None:
    task = written(tmp_path, NUMBERS, number_rows(10))
    with pytest.raises(UnsupportedColumnError, match="the engine does not read type variant"):
        difference(replace(task, schema=schema_of(field(1, "v", "variant"))))


def test_row_of_the_first_batch_outside_of_a_bound_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(file_statistics, "_MOST_ROWS", 4)
    task = written(tmp_path, NUMBERS, [*number_rows(10)[::-1]])
    wrong = changed(task.metrics, "upper_bounds", {1: struct.pack("<q", 8)})
    sentence = "column l: the manifest states upper bound 8; a row has 9"
    assert difference(replace(task, metrics=wrong)) == sentence


def test_footer_that_states_other_bounds_than_the_rows_is_named(tmp_path: Path) -> None:
    task = written(tmp_path, NUMBERS, number_rows(10))
    with_footer(task, lambda footer: statistics(footer, 0).update({5: (BINARY, struct.pack("<q", 8))}))
    assert difference(task) == "column l, row group 0: the footer states upper bound 8; a row has 9"


def test_nan_bound_of_a_footer_is_no_bound(tmp_path: Path) -> None:
    task = written(tmp_path, NUMBERS, number_rows(3))
    nan = struct.pack("<d", float("nan"))
    with_footer(task, lambda footer: statistics(footer, 1).update({5: (BINARY, nan), 6: (BINARY, nan)}))
    assert difference(task) == ""


def with_footer(task: StatisticsTask, edit: Callable[[Struct], object]) -> None:
    """Changes the footer of the file in place, without a change of its size."""
    path = Path(task.path)
    data = edited(path.read_bytes(), edit)
    assert len(data) == task.size_bytes
    path.write_bytes(data)
