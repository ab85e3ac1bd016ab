"""Equality deletes drop the rows that Iceberg's reader would drop, and no others."""

from __future__ import annotations

import math
import struct
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from iceberg_maint.columnar.equality import key_schema
from iceberg_maint.columnar.rewrite import rewrite
from iceberg_maint.columnar.schema import table_schema
from iceberg_maint.columnar.task import (
    EqualityDelete,
    EqualityDeletesTooLargeError,
    InputFile,
    RewriteTask,
    UnsupportedColumnError,
)
from iceberg_maint_tests.support.columnar.tables import (
    ALL_TYPES,
    PRIMITIVES,
    all_types_row,
    field,
    rewritten,
    schema_of,
    task_of,
    write_file,
)

PAIR = schema_of(field(1, "k", "long"), field(2, "v", "string"))


def delete_file(
    folder: Path, name: str, schema: str, rows: list[dict[str, Any]], ids: tuple[int, ...], number: int
) -> EqualityDelete:
    found = write_file(folder, name, schema, rows)
    return EqualityDelete(found.path, found.size_bytes, found.record_count, number, ids)


def data_file(
    folder: Path, name: str, schema: str, rows: list[dict[str, Any]], number: int, *deletes: EqualityDelete
) -> InputFile:
    file = write_file(folder, name, schema, rows)
    return replace(file, data_sequence_number=number, equality_deletes=deletes)


def keys(task: RewriteTask, column: str = "k") -> list[Any]:
    result, rows = rewritten(task)
    assert result.proof.difference == ""
    assert result.proof.rows_in - result.proof.rows_deleted == len(rows)
    return [row[column] for row in rows]


def pairs(*values: int | None) -> list[dict[str, Any]]:
    return [{"k": k, "v": f"v{k}"} for k in values]


@pytest.mark.parametrize("memory", [1 << 30, 200_000], ids=["table", "streaming"])
def test_rows_with_a_deleted_key_are_dropped_and_null_equals_null(tmp_path: Path, memory: int) -> None:
    delete = delete_file(tmp_path, "d", PAIR, [{"k": 2}, {"k": None}, {"k": 9}], (1,), 5)
    file = data_file(tmp_path, "a", PAIR, pairs(1, 2, None, 3, 2), 4, delete)
    assert keys(task_of(tmp_path, PAIR, [file], memory_limit_bytes=memory)) == [1, 3]


@pytest.mark.parametrize(("number", "expected"), [(4, []), (5, [1, 2]), (6, [1, 2])])
def test_delete_applies_only_to_files_with_a_lower_sequence_number(
    tmp_path: Path, number: int, expected: list[int]
) -> None:
    delete = delete_file(tmp_path, "d", PAIR, pairs(1, 2), (1,), 5)
    file = data_file(tmp_path, "a", PAIR, pairs(1, 2), number, delete)
    assert keys(task_of(tmp_path, PAIR, [file])) == expected


def test_each_file_is_filtered_by_the_deletes_after_it(tmp_path: Path) -> None:
    first = delete_file(tmp_path, "d1", PAIR, pairs(1, 2), (1,), 2)
    second = delete_file(tmp_path, "d2", PAIR, pairs(2, 3), (1,), 4)
    files = [
        data_file(tmp_path, "a", PAIR, pairs(1, 2, 3, 4), 1, first, second),
        data_file(tmp_path, "b", PAIR, pairs(1, 2, 3), 3, second),
        data_file(tmp_path, "c", PAIR, pairs(2, 3), 5),
    ]
    assert keys(task_of(tmp_path, PAIR, files)) == [4, 1, 2, 3]


def test_delete_that_is_listed_for_one_file_does_not_apply_to_another(tmp_path: Path) -> None:
    # A delete of another partition spec has a higher sequence number and does not apply.
    delete = delete_file(tmp_path, "d", PAIR, pairs(1), (1,), 9)
    files = [
        data_file(tmp_path, "a", PAIR, pairs(1, 2), 1, delete),
        data_file(tmp_path, "b", PAIR, pairs(1, 2), 1),
    ]
    assert keys(task_of(tmp_path, PAIR, files)) == [2, 1, 2]


def test_deletes_with_several_and_with_different_key_columns_apply_together(tmp_path: Path) -> None:
    both = delete_file(tmp_path, "d1", PAIR, [{"k": 1, "v": "v2"}, {"k": 2, "v": "v2"}], (2, 1), 5)
    text = delete_file(tmp_path, "d2", PAIR, [{"v": "v4"}], (2,), 5)
    file = data_file(tmp_path, "a", PAIR, [*pairs(1, 2, 3, 4), {"k": 2, "v": None}], 1, both, text)
    assert keys(task_of(tmp_path, PAIR, [file])) == [1, 3, 2]


def test_combination_of_values_of_different_keys_is_no_key(tmp_path: Path) -> None:
    triple = schema_of(*(field(i, name, "long") for i, name in enumerate("abc", 1)))
    rows = [{"a": a, "b": b, "c": c} for a in range(4) for b in range(4) for c in range(4)]
    deleted = [row for row in rows if (row["a"] * 16 + row["b"] * 4 + row["c"]) % 3 == 0]
    delete = delete_file(tmp_path, "d", triple, deleted, (1, 2, 3), 5)
    file = data_file(tmp_path, "a", triple, rows, 1, delete)
    _, found = rewritten(task_of(tmp_path, triple, [file]))
    assert found == [row for row in rows if row not in deleted]


def test_zeros_differ_by_sign_and_nans_are_equal_whatever_their_bits(tmp_path: Path) -> None:
    schema = schema_of(field(1, "f", "double"))
    [other_nan] = struct.unpack("<d", bytes.fromhex("010000000000f8ff"))
    delete = delete_file(tmp_path, "d", schema, [{"f": -0.0}, {"f": math.nan}], (1,), 5)
    rows = [{"f": v} for v in (0.0, -0.0, other_nan, math.nan, 1.0, None)]
    file = data_file(tmp_path, "a", schema, rows, 1, delete)
    found = keys(task_of(tmp_path, schema, [file]), "f")
    assert [str(v) for v in found] == ["0.0", "1.0", "None"]


def test_null_struct_is_not_equal_to_a_struct_of_nulls(tmp_path: Path) -> None:
    kind = {"type": "struct", "fields": [field(11, "a", "int"), field(12, "b", "int")]}
    schema = schema_of(field(1, "s", kind), field(2, "n", "int"))
    values = [None, {"a": None, "b": 1}, {"a": 1, "b": 2}]
    rows = [{"s": v, "n": n} for n, v in enumerate(values)]

    def remaining(deleted: Any) -> list[int]:
        name = repr(deleted)
        delete = delete_file(tmp_path, f"d{name}", schema, [{"s": deleted}], (11,), 5)
        file = data_file(tmp_path, f"a{name}", schema, rows, 1, delete)
        task = task_of(tmp_path, schema, [file], output_path=str(tmp_path / f"o{name}"))
        return keys(task, "n")

    assert remaining(None) == [1, 2]
    assert remaining({"a": None, "b": 7}) == [0, 2]
    assert remaining({"a": 1, "b": 7}) == [0, 1]


@pytest.mark.parametrize("name", PRIMITIVES)
def test_key_of_every_type_is_compared(tmp_path: Path, name: str) -> None:
    number = list(PRIMITIVES).index(name) + 1
    rows = [all_types_row(n) for n in range(1, 41)]
    delete = delete_file(tmp_path, "d", ALL_TYPES, rows[::3], (number,), 5)
    file = data_file(tmp_path, "a", ALL_TYPES, rows, 1, delete)
    deleted = {repr(row[name]) for row in rows[::3]}
    expected = [row["l"] for row in rows if repr(row[name]) not in deleted]
    assert keys(task_of(tmp_path, ALL_TYPES, [file]), "l") == expected


def test_key_that_was_promoted_and_renamed_is_found_by_its_field_id(tmp_path: Path) -> None:
    older = schema_of(field(1, "old", "int"))
    delete = delete_file(tmp_path, "d", older, [{"old": 2}], (1,), 5)
    file = data_file(tmp_path, "a", PAIR, pairs(1, 2), 1, delete)
    assert keys(task_of(tmp_path, PAIR, [file])) == [1]


def test_dictionary_encoded_strings_are_compared(tmp_path: Path) -> None:
    rows = [{"k": n, "v": f"v{n % 5}"} for n in range(25_000)]
    delete = delete_file(tmp_path, "d", PAIR, [{"v": "v3"}], (2,), 5)
    file = data_file(tmp_path, "a", PAIR, rows, 1, delete)
    assert len(keys(task_of(tmp_path, PAIR, [file]))) == 20_000


def test_file_without_a_live_row_has_no_output(tmp_path: Path) -> None:
    delete = delete_file(tmp_path, "d", PAIR, pairs(1, 2), (1,), 5)
    file = data_file(tmp_path, "a", PAIR, pairs(1, 2, 1), 1, delete)
    result = rewrite(task_of(tmp_path, PAIR, [file]))
    assert (result.path, result.record_count, result.proof.rows_deleted) == ("", 0, 3)


def test_delete_file_without_rows_deletes_nothing(tmp_path: Path) -> None:
    delete = delete_file(tmp_path, "d", PAIR, [], (1, 2), 5)
    file = data_file(tmp_path, "a", PAIR, pairs(1, None), 1, delete)
    assert keys(task_of(tmp_path, PAIR, [file])) == [1, None]


def test_row_ids_of_live_rows_stay(tmp_path: Path) -> None:
    delete = delete_file(tmp_path, "d", PAIR, pairs(1, 3), (1,), 5)
    file = replace(data_file(tmp_path, "a", PAIR, pairs(1, 2, 3, 4), 1, delete), first_row_id=100)
    task = task_of(tmp_path, PAIR, [file], format_version=3, keep_row_lineage=True)
    assert keys(task, "_row_id") == [101, 103]


def test_keys_that_do_not_fit_the_memory_are_an_error_before_anything_is_written(tmp_path: Path) -> None:
    delete = delete_file(tmp_path, "d", PAIR, pairs(*range(500)), (1,), 5)
    file = data_file(tmp_path, "a", PAIR, pairs(1, 2), 1, delete)
    task = task_of(tmp_path, PAIR, [file], memory_limit_bytes=10_000)
    with pytest.raises(EqualityDeletesTooLargeError, match="do not fit a task with 10000 bytes"):
        rewrite(task)
    assert not Path(task.output_path).exists()


@pytest.mark.parametrize("number", [99, 41])
def test_key_that_no_struct_of_the_table_has_is_an_error(number: int) -> None:
    table = table_schema(ALL_TYPES, lineage=False)
    with pytest.raises(UnsupportedColumnError, match=f"with field id {number}"):
        key_schema(table, [1, number])


def test_file_with_equality_deletes_is_not_spliced_and_its_task_survives_json(tmp_path: Path) -> None:
    delete = delete_file(tmp_path, "d", PAIR, pairs(1), (1,), 5)
    file = data_file(tmp_path, "a", PAIR, pairs(1, 2), 1, delete)
    task = task_of(tmp_path, PAIR, [file], splice=True)
    assert RewriteTask.from_json(task.to_json()) == task
    assert rewrite(task).spliced == ()
    assert pq.read_table(task.output_path).column("k") == pa.chunked_array([[2]])
