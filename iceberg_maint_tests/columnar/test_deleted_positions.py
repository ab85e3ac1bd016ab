"""The positions under equality deletes are those that Iceberg's reader would leave out, and no others."""

from __future__ import annotations

from base64 import b64decode
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyroaring import BitMap64

from iceberg_maint.columnar.deleted_positions import WrongKeysError, deleted_positions
from iceberg_maint.columnar.read.deletes import key_schema
from iceberg_maint.columnar.read.schema import table_schema
from iceberg_maint.columnar.task import (
    DeletedPositionsResult,
    DeletedPositionsTask,
    DeleteKind,
    DeleteReference,
    EqualityDelete,
    InputFile,
    UnsupportedColumnError,
    WrongInputError,
)
from iceberg_maint_tests.support.columnar.tables import (
    ALL_TYPES,
    PRIMITIVES,
    all_types_row,
    field,
    schema_of,
    write_file,
)

PAIR = schema_of(field(1, "k", "long"), field(2, "v", "string"))
FLOATS = {"f", "d"}


def delete_file(
    folder: Path, name: str, schema: str, rows: list[dict[str, Any]], ids: tuple[int, ...], number: int
) -> EqualityDelete:
    found = write_file(folder, name, schema, rows)
    return EqualityDelete(found.path, found.size_bytes, found.record_count, number, ids)


def data_file(folder: Path, name: str, schema: str, rows: list[dict[str, Any]], number: int) -> InputFile:
    return replace(write_file(folder, name, schema, rows), data_sequence_number=number)


def positions(
    schema: str, files: list[InputFile], deletes: list[EqualityDelete], **more: Any
) -> dict[str, list[int]]:
    task = DeletedPositionsTask(tuple(files), tuple(deletes), schema, **more)
    result = deleted_positions(DeletedPositionsTask.from_json(task.to_json()))
    result = DeletedPositionsResult.from_json(result.to_json())
    return {
        Path(path).stem: list(BitMap64.deserialize(b64decode(text)))
        for path, text in result.positions.items()
    }


def pairs(*values: int | None) -> list[dict[str, Any]]:
    return [{"k": k, "v": f"v{k}"} for k in values]


@pytest.mark.parametrize("slice_rows", [1, 1 << 20])
def test_rows_with_a_deleted_key_are_marked_and_null_equals_null(tmp_path: Path, slice_rows: int) -> None:
    delete = delete_file(tmp_path, "d", PAIR, [{"k": 2}, {"k": None}, {"k": 9}], (1,), 5)
    files = [data_file(tmp_path, n, PAIR, rows, 4) for n, rows in (("a", pairs(1, 2, None, 3, 2)), ("b", pairs(9)))]  # fmt: skip
    assert positions(PAIR, files, [delete], slice_rows=slice_rows) == {"a": [1, 2, 4], "b": [0]}


@pytest.mark.parametrize(("number", "expected"), [(4, {"a": [0, 1]}), (5, {}), (6, {})])
def test_delete_applies_only_to_files_with_a_lower_sequence_number(
    tmp_path: Path, number: int, expected: dict[str, list[int]]
) -> None:
    delete = delete_file(tmp_path, "d", PAIR, pairs(1, 2), (1,), 5)
    assert positions(PAIR, [data_file(tmp_path, "a", PAIR, pairs(1, 2), number)], [delete]) == expected


def test_each_file_is_marked_by_the_deletes_after_it(tmp_path: Path) -> None:
    deletes = [
        delete_file(tmp_path, "d1", PAIR, pairs(1, 2), (1,), 2),
        delete_file(tmp_path, "d2", PAIR, pairs(2, 3), (1,), 4),
    ]
    files = [
        data_file(tmp_path, "a", PAIR, pairs(1, 2, 3, 4), 1),
        data_file(tmp_path, "b", PAIR, pairs(1, 2, 3), 3),
        data_file(tmp_path, "c", PAIR, pairs(2, 3), 4),
    ]
    assert positions(PAIR, files, deletes) == {"a": [0, 1, 2], "b": [1, 2]}


def test_key_that_is_deleted_again_has_its_latest_delete(tmp_path: Path) -> None:
    deletes = [delete_file(tmp_path, f"d{n}", PAIR, pairs(1), (1,), n) for n in (2, 6, 4)]
    deletes.append(delete_file(tmp_path, "other", PAIR, pairs(2), (1,), 9))
    files = [data_file(tmp_path, n, PAIR, pairs(1), number) for n, number in (("a", 1), ("b", 5), ("c", 6))]
    assert positions(PAIR, files, deletes) == {"a": [0], "b": [0]}


def test_deletes_with_several_and_with_different_key_columns_apply_together(tmp_path: Path) -> None:
    both = delete_file(tmp_path, "d1", PAIR, [{"k": 1, "v": "v2"}, {"k": 2, "v": "v2"}], (2, 1), 5)
    text = delete_file(tmp_path, "d2", PAIR, [{"v": "v4"}], (2,), 5)
    file = data_file(tmp_path, "a", PAIR, [*pairs(1, 2, 3, 4), {"k": 2, "v": None}], 1)
    assert positions(PAIR, [file], [both, text]) == {"a": [1, 3]}


def test_combination_of_values_of_different_keys_is_no_key(tmp_path: Path) -> None:
    triple = schema_of(*(field(i, name, "long") for i, name in enumerate("abc", 1)))
    rows = [{"a": a, "b": b, "c": c} for a in range(4) for b in range(4) for c in range(4)]
    deleted = [n for n, row in enumerate(rows) if (row["a"] * 16 + row["b"] * 4 + row["c"]) % 3 == 0]
    delete = delete_file(tmp_path, "d", triple, [rows[n] for n in deleted], (1, 2, 3), 5)
    assert positions(triple, [data_file(tmp_path, "a", triple, rows, 1)], [delete]) == {"a": deleted}


def test_null_struct_is_not_equal_to_a_struct_of_nulls(tmp_path: Path) -> None:
    kind = {"type": "struct", "fields": [field(11, "a", "int"), field(12, "b", "int")]}
    schema = schema_of(field(1, "s", kind), field(2, "n", "int"))
    values = [None, {"a": None, "b": 1}, {"a": 1, "b": 2}]
    file = data_file(tmp_path, "a", schema, [{"s": v, "n": n} for n, v in enumerate(values)], 1)

    def marked(name: str, deleted: Any) -> dict[str, list[int]]:
        return positions(schema, [file], [delete_file(tmp_path, name, schema, [{"s": deleted}], (11,), 5)])

    assert marked("null", None) == {"a": [0]}
    assert marked("nulls", {"a": None, "b": 7}) == {"a": [1]}
    assert marked("one", {"a": 1, "b": 7}) == {"a": [2]}


@pytest.mark.parametrize("name", [n for n in PRIMITIVES if n not in FLOATS])
def test_key_of_every_type_is_compared(tmp_path: Path, name: str) -> None:
    number = list(PRIMITIVES).index(name) + 1
    rows = [all_types_row(n) for n in range(1, 41)]
    delete = delete_file(tmp_path, "d", ALL_TYPES, rows[::3], (number,), 5)
    deleted = {repr(row[name]) for row in rows[::3]}
    expected = [n for n, row in enumerate(rows) if repr(row[name]) in deleted]
    assert positions(ALL_TYPES, [data_file(tmp_path, "a", ALL_TYPES, rows, 1)], [delete]) == {"a": expected}


@pytest.mark.parametrize("name", sorted(FLOATS))
def test_key_of_a_floating_point_type_is_refused(tmp_path: Path, name: str) -> None:
    number = list(PRIMITIVES).index(name) + 1
    delete = delete_file(tmp_path, "d", ALL_TYPES, [all_types_row(1)], (number,), 5)
    with pytest.raises(UnsupportedColumnError, match="keys of its type are not compared"):
        positions(ALL_TYPES, [data_file(tmp_path, "a", ALL_TYPES, [all_types_row(1)], 1)], [delete])


def test_key_that_was_promoted_and_renamed_is_found_by_its_field_id(tmp_path: Path) -> None:
    delete = delete_file(tmp_path, "d", schema_of(field(1, "old", "int")), [{"old": 2}], (1,), 5)
    assert positions(PAIR, [data_file(tmp_path, "a", PAIR, pairs(1, 2), 1)], [delete]) == {"a": [1]}


def test_column_that_a_data_file_lacks_has_its_initial_default(tmp_path: Path) -> None:
    table = schema_of(field(1, "k", "long"), field(2, "v", "string", **{"initial-default": "x"}))
    file = data_file(tmp_path, "a", schema_of(field(1, "k", "long")), [{"k": 1}, {"k": 2}], 1)
    delete = delete_file(tmp_path, "d", PAIR, [{"k": 1, "v": "x"}, {"k": 2, "v": None}], (1, 2), 5)
    assert positions(table, [file], [delete]) == {"a": [0]}


def test_delete_file_that_lacks_its_key_column_is_refused(tmp_path: Path) -> None:
    delete = delete_file(tmp_path, "d", schema_of(field(1, "k", "long")), [{"k": 1}], (1, 2), 5)
    with pytest.raises(UnsupportedColumnError, match="lacks its key column with field id 2"):
        positions(PAIR, [data_file(tmp_path, "a", PAIR, pairs(1), 1)], [delete])


def test_partition_value_is_that_of_the_manifest_whatever_the_file_holds(tmp_path: Path) -> None:
    file = data_file(tmp_path, "a", PAIR, [{"k": 1, "v": "x"}, {"k": 2, "v": "y"}], 1)
    delete = delete_file(tmp_path, "d", PAIR, [{"k": 1, "v": "y"}, {"k": 2, "v": "x"}], (1, 2), 5)
    assert positions(PAIR, [file], [delete], constants={2: "x"}) == {"a": [1]}
    assert positions(PAIR, [file], [delete], constants={2: None}) == {}
    assert positions(PAIR, [file], [delete]) == {}


def test_null_partition_is_deleted_by_a_null_key(tmp_path: Path) -> None:
    file = data_file(tmp_path, "a", PAIR, [{"k": 1, "v": None}, {"k": 2, "v": None}], 1)
    delete = delete_file(tmp_path, "d", PAIR, [{"k": 1, "v": "x"}, {"k": 2, "v": None}], (1, 2), 5)
    assert positions(PAIR, [file], [delete], constants={2: None}) == {"a": [1]}


def test_key_that_is_the_partition_marks_all_rows_of_older_files(tmp_path: Path) -> None:
    files = [data_file(tmp_path, n, PAIR, pairs(1, 2), number) for n, number in (("a", 1), ("b", 5))]
    deletes = [
        delete_file(tmp_path, "d", PAIR, [{"v": "x"}], (2,), 5),
        delete_file(tmp_path, "e", PAIR, [{"v": "y"}], (2,), 9),
    ]
    assert positions(PAIR, files, deletes, constants={2: "x"}) == {"a": [0, 1]}


def test_rows_that_are_deleted_already_are_left_out(tmp_path: Path) -> None:
    file = data_file(tmp_path, "a", PAIR, pairs(1, 1, 1), 1)
    path = tmp_path / "p.parquet"
    pq.write_table(pa.table({"file_path": [file.path], "pos": [1]}), path)
    reference = DeleteReference(DeleteKind.POSITION_FILE, str(path), path.stat().st_size)
    delete = delete_file(tmp_path, "d", PAIR, pairs(1), (1,), 5)
    assert positions(PAIR, [replace(file, deletes=(reference,))], [delete]) == {"a": [0, 2]}


def test_large_file_is_read_by_ranges_and_its_positions_cross_row_groups(tmp_path: Path) -> None:
    rows = [{"k": n % 5000, "v": f"text number {n * 7919}"} for n in range(30_000)]
    file = data_file(tmp_path, "a", PAIR, rows, 1)
    table = pq.read_table(file.path)
    pq.write_table(table, file.path, row_group_size=7000, compression="none")
    file = replace(file, size_bytes=Path(file.path).stat().st_size)
    assert file.size_bytes > 128 * 1024
    delete = delete_file(tmp_path, "d", PAIR, [{"k": 4321}], (1,), 5)
    assert positions(PAIR, [file], [delete]) == {"a": [4321 + 5000 * n for n in range(6)]}


@pytest.mark.parametrize("name", ["data", "delete"])
def test_file_with_other_rows_than_its_manifest_states_is_refused(tmp_path: Path, name: str) -> None:
    file = data_file(tmp_path, "a", PAIR, pairs(1, 2), 1)
    delete = delete_file(tmp_path, "d", PAIR, pairs(1), (1,), 5)
    if name == "data":
        file = replace(file, record_count=3)
    else:
        delete = replace(delete, record_count=2)
    with pytest.raises(WrongInputError, match="its manifest states"):
        positions(PAIR, [file], [delete])


def test_delete_file_without_rows_marks_nothing(tmp_path: Path) -> None:
    delete = delete_file(tmp_path, "d", PAIR, [], (1, 2), 5)
    assert positions(PAIR, [data_file(tmp_path, "a", PAIR, pairs(1, None), 1)], [delete]) == {}


@pytest.mark.parametrize("number", [99, 41])
def test_key_that_no_struct_of_the_table_has_is_refused(number: int) -> None:
    table = table_schema(ALL_TYPES, lineage=False)
    with pytest.raises(UnsupportedColumnError, match=f"with field id {number}"):
        key_schema(table, [3, number])


@pytest.mark.parametrize(("lower", "upper"), [(3, 9), (-9, 1), (3, None), (None, 1)])
def test_delete_file_with_keys_outside_its_bounds_is_named(
    tmp_path: Path, lower: int | None, upper: int | None
) -> None:
    ends = tuple(None if v is None else v.to_bytes(8, "little", signed=True).hex() for v in (lower, upper))
    delete = replace(delete_file(tmp_path, "d", PAIR, pairs(2), (1,), 5), bounds={1: ends})
    with pytest.raises(WrongKeysError, match=rf"^{delete.path} has keys outside its bounds of column k$"):
        positions(PAIR, [data_file(tmp_path, "a", PAIR, pairs(2), 4)], [delete])


def test_delete_file_with_keys_within_its_bounds_is_applied(tmp_path: Path) -> None:
    ends = tuple(v.to_bytes(4, "little", signed=True).hex() for v in (-2, 2))
    delete = replace(delete_file(tmp_path, "d", PAIR, pairs(-2, 2), (1,), 5), bounds={1: ends})
    assert positions(PAIR, [data_file(tmp_path, "a", PAIR, pairs(2), 4)], [delete]) == {"a": [0]}


def test_delete_file_with_null_keys_that_its_metadata_denies_is_named(tmp_path: Path) -> None:
    delete = replace(delete_file(tmp_path, "d", PAIR, pairs(2, None), (1,), 5), without_null=(1,))
    problem = rf"^{delete.path} has NULL keys, and its metadata says that column k has none$"
    with pytest.raises(WrongKeysError, match=problem):
        positions(PAIR, [data_file(tmp_path, "a", PAIR, pairs(2), 4)], [delete])


def test_null_count_of_a_structs_field_says_nothing_of_the_struct(tmp_path: Path) -> None:
    schema = schema_of(field(1, "s", {"type": "struct", "fields": [field(2, "k", "long")]}))
    delete = replace(delete_file(tmp_path, "d", schema, [{"s": None}], (2,), 5), without_null=(2,))
    assert positions(schema, [data_file(tmp_path, "a", schema, [{"s": None}], 4)], [delete]) == {"a": [0]}
