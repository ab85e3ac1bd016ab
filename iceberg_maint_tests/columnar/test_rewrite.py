"""The columnar engine end to end on Parquet files, without Spark."""

from __future__ import annotations

import json
import random
from base64 import b64encode
from dataclasses import replace
from datetime import date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyroaring import BitMap64

from iceberg_maint.columnar.parquet.parquet_metadata import Chunk
from iceberg_maint.columnar.read import decode
from iceberg_maint.columnar.read.packing import MOST_BYTES, packed
from iceberg_maint.columnar.rewrite import rewrite
from iceberg_maint.columnar.task import (
    DeleteKind,
    DeleteReference,
    Encoding,
    UnsupportedColumnError,
    WrongInputError,
)
from iceberg_maint_tests.support.columnar.tables import (
    ALL_TYPES,
    all_types_row,
    field,
    rewritten,
    schema_of,
    task_of,
    write_file,
    write_table,
)
from iceberg_maint_tests.support.columnar.vectors import vector_blob

LONG = schema_of(field(1, "n", "long"))


def numbers(folder: Path, name: str, values: list[int], **options: Any) -> Any:
    return write_file(folder, name, LONG, [{"n": n} for n in values], **options)


@pytest.mark.parametrize("memory", [1 << 30, 1000], ids=["table", "streaming"])
def test_rewrite_of_every_type_keeps_all_rows_in_order(tmp_path: Path, memory: int) -> None:
    rows = [all_types_row(n) for n in range(150)]
    files = [write_file(tmp_path, f"{k}.parquet", ALL_TYPES, rows[50 * k : 50 * k + 50]) for k in range(3)]
    result, found = rewritten(task_of(tmp_path, ALL_TYPES, files, memory_limit_bytes=memory))
    assert result.proof.difference == ""
    assert (result.proof.rows_in, result.proof.rows_out) == (150, 150)
    assert result.streamed is (memory == 1000)
    source = [row for f in files for row in pq.ParquetFile(f.path).read().to_pylist()]
    assert repr(found) == repr(source)
    assert pq.ParquetFile(result.path).schema == pq.ParquetFile(files[0].path).schema
    assert result.size_bytes == Path(result.path).stat().st_size


def test_columns_of_an_evolved_schema_are_found_by_field_id(tmp_path: Path) -> None:
    struct = {"type": "struct", "fields": [field(21, "p", "int"), field(22, "q", "string")]}
    older = schema_of(
        field(1, "i", "int"),
        field(2, "f", "float"),
        field(3, "dec", "decimal(5, 2)"),
        field(4, "dropped", "string"),
        field(5, "old_name", "string"),
        field(20, "st", struct),
        field(30, "li", {"type": "list", "element-id": 31, "element": "int", "element-required": False}),
    )
    newer_struct = {
        "type": "struct",
        "fields": [field(22, "q2", "string"), field(23, "new", "date"), field(21, "p", "long")],
    }
    newer = schema_of(
        field(5, "new_name", "string"),
        field(20, "st", newer_struct),
        field(30, "li", {"type": "list", "element-id": 31, "element": "long", "element-required": False}),
        field(3, "dec", "decimal(12, 2)"),
        field(2, "f", "double"),
        field(1, "i", "long"),
        field(6, "added", "int"),
        field(7, "with_default", "decimal(6, 2)", **{"initial-default": "12.50"}),
        field(
            8, "moment", "timestamp_ns", required=True, **{"initial-default": "2024-01-02T03:04:05.000000006"}
        ),
    )
    old_row = {
        "i": 7,
        "f": 0.5,
        "dec": Decimal("1.25"),
        "dropped": "x",
        "old_name": "kept",
        "st": {"p": 3, "q": "r"},
        "li": [1, None],
    }
    one = write_file(tmp_path, "one.parquet", older, [old_row, {**old_row, "st": None, "li": None}])
    result, found = rewritten(task_of(tmp_path, newer, [one]))
    first = {
        "new_name": "kept",
        "st": {"q2": "r", "new": None, "p": 3},
        "li": [1, None],
        "dec": Decimal("1.25"),
        "f": 0.5,
        "i": 7,
        "added": None,
        "with_default": Decimal("12.50"),
        "moment": found[0]["moment"],
    }
    assert result.proof.difference == ""
    assert found == [first, {**first, "st": None, "li": None}]
    assert found[0]["moment"].value == 1704164645000000006


def test_partition_value_is_that_of_the_manifest_whatever_the_file_holds(tmp_path: Path) -> None:
    schema = schema_of(field(1, "n", "long"), field(2, "day", "date"))
    lacking = numbers(tmp_path, "a.parquet", [1, 2])
    other = write_file(tmp_path, "b.parquet", schema, [{"n": 3, "day": date(2024, 5, 7)}])
    null = write_file(tmp_path, "c.parquet", schema, [{"n": 4, "day": None}])
    for value, day in (("2024-05-06", date(2024, 5, 6)), (None, None)):
        inputs = [replace(f, constants={2: value}) for f in (lacking, other, null)]
        result, found = rewritten(task_of(tmp_path, schema, inputs))
        assert found == [{"n": n, "day": day} for n in (1, 2, 3, 4)]
        assert result.metrics.null_value_counts[2] == (4 if value is None else 0)
        Path(result.path).unlink()


def test_partition_value_keeps_the_sign_of_zero(tmp_path: Path) -> None:
    schema = schema_of(field(1, "n", "long"), field(2, "f", "float"), field(3, "d", "double"))
    file = write_file(tmp_path, "a.parquet", schema, [{"n": 1, "f": 0.0, "d": -0.0}])
    result, [found] = rewritten(task_of(tmp_path, schema, [replace(file, constants={2: -0.0, 3: 0.0})]))
    assert (repr(found["f"]), repr(found["d"])) == ("-0.0", "0.0")
    assert (result.metrics.lower_bounds[2], result.metrics.lower_bounds[3]) == (b"\0\0\0\x80", bytes(8))


def test_partition_value_of_a_field_of_a_struct_is_that_of_the_manifest(tmp_path: Path) -> None:
    kind = {"type": "struct", "fields": [field(2, "a", "int"), field(3, "s", "string")]}
    schema = schema_of(field(1, "st", kind))
    file = write_file(tmp_path, "a.parquet", schema, [{"st": {"a": 1, "s": "x"}}, {"st": None}])
    _, found = rewritten(task_of(tmp_path, schema, [replace(file, constants={3: "y"})]))
    assert found == [{"st": {"a": 1, "s": "y"}}, {"st": None}]


def test_column_with_the_name_of_row_lineage_is_not_supported_beside_row_lineage(tmp_path: Path) -> None:
    schema = schema_of(field(1, "n", "long"), field(2, "_row_id", "long"))
    file = write_file(tmp_path, "a.parquet", schema, [{"n": 1, "_row_id": 2}])
    _, found = rewritten(task_of(tmp_path, schema, [file]))
    assert found == [{"n": 1, "_row_id": 2}]
    task = task_of(tmp_path, schema, [replace(file, first_row_id=0)], keep_row_lineage=True, format_version=3)
    with pytest.raises(UnsupportedColumnError, match="Column _row_id: the table has a column with the name"):
        rewrite(task)


def test_file_without_field_ids_is_read_by_the_name_mapping(tmp_path: Path) -> None:
    table = pa.table(
        {"a": [1, 2], "li": [[1.0], None], "m": pa.array([[("k", 1)], []], pa.map_(pa.string(), pa.int64()))}
    )
    file = write_table(tmp_path, "a.parquet", table)
    schema = schema_of(
        field(1, "renamed", "long"),
        field(2, "li", {"type": "list", "element-id": 3, "element": "double", "element-required": False}),
        field(
            4,
            "m",
            {
                "type": "map",
                "key-id": 5,
                "key": "string",
                "value-id": 6,
                "value": "long",
                "value-required": False,
            },
        ),
    )
    mapping = [
        {"field-id": 1, "names": ["renamed", "a"]},
        {"field-id": 2, "names": ["li"], "fields": [{"field-id": 3, "names": ["element"]}]},
        {
            "field-id": 4,
            "names": ["m"],
            "fields": [{"field-id": 5, "names": ["key"]}, {"field-id": 6, "names": ["value"]}],
        },
    ]
    result, found = rewritten(task_of(tmp_path, schema, [file], name_mapping=json.dumps(mapping)))
    assert result.proof.difference == ""
    assert found == [{"renamed": 1, "li": [1.0], "m": [("k", 1)]}, {"renamed": 2, "li": None, "m": []}]
    with pytest.raises(UnsupportedColumnError, match="no field ids and the table has no name mapping"):
        rewrite(task_of(tmp_path / "other", schema, [file]))
    with pytest.raises(UnsupportedColumnError, match="name mapping is no JSON: RecursionError"):
        rewrite(task_of(tmp_path / "other", schema, [file], name_mapping="[" * 5000))


@pytest.mark.parametrize("memory", [1 << 30, 1000], ids=["table", "streaming"])
def test_rows_under_position_deletes_and_deletion_vectors_are_dropped(tmp_path: Path, memory: int) -> None:
    one, two = (
        numbers(tmp_path, "1.parquet", list(range(10))),
        numbers(tmp_path, "2.parquet", list(range(10, 20))),
    )
    marks = pa.table({"file_path": [two.path, one.path, two.path, "elsewhere"], "pos": [9, 0, 1, 5]})
    deletes = write_table(tmp_path, "deletes.parquet", marks)
    of_file = DeleteReference(DeleteKind.POSITION_FILE, deletes.path, deletes.size_bytes, record_count=4)
    blob = vector_blob([3, 9])
    (tmp_path / "dv.puffin").write_bytes(b"PFA1" + blob)
    vector = DeleteReference(DeleteKind.DELETION_VECTOR, str(tmp_path / "dv.puffin"), len(blob), 4, 2)
    files = [replace(one, deletes=(of_file, vector)), replace(two, deletes=(of_file,))]
    result, found = rewritten(task_of(tmp_path, LONG, files, memory_limit_bytes=memory))
    assert [row["n"] for row in found] == [1, 2, 4, 5, 6, 7, 8, 10, 12, 13, 14, 15, 16, 17, 18]
    assert (result.proof.rows_deleted, result.proof.rows_out, result.proof.difference) == (5, 15, "")


@pytest.mark.parametrize("memory", [1 << 30, 1000], ids=["table", "streaming"])
def test_rows_marked_in_the_task_are_dropped_beside_those_of_a_vector(tmp_path: Path, memory: int) -> None:
    file = numbers(tmp_path, "1.parquet", list(range(10)))
    blob = vector_blob([3, 9])
    (tmp_path / "dv.puffin").write_bytes(blob)
    vector = DeleteReference(DeleteKind.DELETION_VECTOR, str(tmp_path / "dv.puffin"), len(blob), 0, 2)
    positions = b64encode(BitMap64([0, 4]).serialize()).decode()
    files = [replace(file, deletes=(vector,), deleted_positions=positions)]
    result, found = rewritten(task_of(tmp_path, LONG, files, memory_limit_bytes=memory))
    assert [row["n"] for row in found] == [1, 2, 5, 6, 7, 8]
    assert (result.proof.rows_deleted, result.proof.rows_out, result.proof.difference) == (4, 6, "")


def test_mark_beyond_the_rows_of_a_file_is_refused(tmp_path: Path) -> None:
    positions = b64encode(BitMap64([3]).serialize()).decode()
    file = replace(numbers(tmp_path, "1.parquet", [1, 2, 3]), deleted_positions=positions)
    with pytest.raises(WrongInputError, match="has 3 rows; the position 3 is deleted"):
        rewrite(task_of(tmp_path, LONG, [file]))


def test_deletion_vector_with_a_wrong_checksum_or_cardinality_is_refused(tmp_path: Path) -> None:
    file = numbers(tmp_path, "1.parquet", [1, 2, 3])
    good = vector_blob([1])
    torn = good[:-1] + bytes([good[-1] ^ 1])
    for blob, count, words in (
        (torn, 1, "wrong checksum"),
        (good, 2, "has 1 positions; its manifest states 2. Fix: remove this vector"),
    ):
        path = tmp_path / f"{count}.puffin"
        path.write_bytes(blob)
        vector = DeleteReference(DeleteKind.DELETION_VECTOR, str(path), len(blob), 0, count)
        with pytest.raises(WrongInputError, match=words):
            rewrite(task_of(tmp_path, LONG, [replace(file, deletes=(vector,))]))
    assert not (tmp_path / "out").exists()


def test_deletion_vector_beyond_32_bits_is_read() -> None:
    from iceberg_maint.columnar.read.deletes import vector_positions

    assert vector_positions(vector_blob([1, 2**33 + 5]), "x").tolist() == [1, 2**33 + 5]
    assert BitMap64([1, 2**33 + 5]).serialize() in vector_blob([1, 2**33 + 5])


@pytest.mark.parametrize("memory", [1 << 30, 1000], ids=["table", "streaming"])
def test_row_ids_and_sequence_numbers_are_kept_and_materialised(tmp_path: Path, memory: int) -> None:
    plain = replace(numbers(tmp_path, "1.parquet", [10, 11, 12]), first_row_id=100, data_sequence_number=7)
    rows = [
        {"n": 20, "_row_id": 5, "_last_updated_sequence_number": 2},
        {"n": 21, "_row_id": None, "_last_updated_sequence_number": None},
    ]
    kept = write_file(tmp_path, "2.parquet", LONG, rows, lineage=True)
    kept = replace(kept, first_row_id=200, data_sequence_number=9)
    marks = write_table(tmp_path, "d.parquet", pa.table({"file_path": [plain.path], "pos": [1]}))
    delete = DeleteReference(DeleteKind.POSITION_FILE, marks.path, marks.size_bytes)
    files = [replace(plain, deletes=(delete,)), kept]
    result, found = rewritten(
        task_of(tmp_path, LONG, files, keep_row_lineage=True, format_version=3, memory_limit_bytes=memory)
    )
    assert result.proof.difference == ""
    assert [tuple(row.values()) for row in found] == [(10, 100, 7), (12, 102, 7), (20, 5, 2), (21, 201, 9)]
    ids = [f.metadata[b"PARQUET:field_id"] for f in pq.ParquetFile(result.path).schema_arrow]
    assert ids == [b"1", b"2147483540", b"2147483539"]
    # Iceberg's writer states bounds of both columns too.
    bounds = [result.metrics.lower_bounds[i][0] for i in (2147483540, 2147483539)]
    assert bounds + [result.metrics.upper_bounds[i][0] for i in (2147483540, 2147483539)] == [5, 2, 201, 9]
    stated = json.loads(pq.read_metadata(result.path).metadata[b"iceberg.schema"])
    assert [f["name"] for f in stated["fields"]] == ["n", "_row_id", "_last_updated_sequence_number"]


def test_file_without_a_first_row_id_keeps_null_row_ids(tmp_path: Path) -> None:
    file = numbers(tmp_path, "1.parquet", [1])
    _, found = rewritten(task_of(tmp_path, LONG, [file], keep_row_lineage=True))
    assert found == [{"n": 1, "_row_id": None, "_last_updated_sequence_number": None}]
    row = {"n": 20, "_row_id": 5, "_last_updated_sequence_number": 2}
    kept = write_file(tmp_path, "2.parquet", LONG, [row], lineage=True)
    with pytest.raises(UnsupportedColumnError, match="has row ids"):
        rewrite(task_of(tmp_path / "b", LONG, [kept], keep_row_lineage=True))


def test_task_without_a_live_row_writes_no_file(tmp_path: Path) -> None:
    file = numbers(tmp_path, "1.parquet", [1])
    marks = write_table(tmp_path, "d.parquet", pa.table({"file_path": [file.path], "pos": [0]}))
    delete = DeleteReference(DeleteKind.POSITION_FILE, marks.path, marks.size_bytes)
    result = rewrite(task_of(tmp_path, LONG, [replace(file, deletes=(delete,))]))
    assert (result.path, result.record_count, result.proof.equal) == ("", 0, True)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"record_count": 2}, "has 3 rows; its manifest states 2"),
        ({"size_bytes": 10}, "its manifest states 10"),
    ],
)
def test_input_other_than_stated_is_refused(tmp_path: Path, changes: dict[str, Any], words: str) -> None:
    file = replace(numbers(tmp_path, "1.parquet", [1, 2, 3]), **changes)
    with pytest.raises(WrongInputError, match=words):
        rewrite(task_of(tmp_path, LONG, [file]))
    assert not (tmp_path / "out").exists()


def test_required_column_with_a_null_is_refused(tmp_path: Path) -> None:
    file = write_file(tmp_path, "1.parquet", LONG, [{"n": None}])
    with pytest.raises(WrongInputError, match="required column n has a null"):
        rewrite(task_of(tmp_path, schema_of(field(1, "n", "long", required=True)), [file]))


def test_tiny_files_of_several_schemas_and_with_deletes_keep_rows_and_order(tmp_path: Path) -> None:
    renamed = schema_of(field(1, "old", "long"), field(9, "dropped", "string"))
    constant = replace(numbers(tmp_path, "constant.parquet", [8, 9]), constants={2: "p"})
    deleted = numbers(tmp_path, "deleted.parquet", [5, 6, 7])
    positions = tmp_path / "positions.parquet"
    pq.write_table(pa.table({"file_path": [deleted.path], "pos": [1]}), positions)
    reference = DeleteReference(DeleteKind.POSITION_FILE, str(positions), positions.stat().st_size)
    files = [
        numbers(tmp_path, "1.parquet", [0, 1]),
        numbers(tmp_path, "2.parquet", [2, 3]),
        write_file(tmp_path, "other.parquet", renamed, [{"old": 4, "dropped": "x"}]),
        replace(deleted, deletes=(reference,)),
        constant,
        numbers(tmp_path, "3.parquet", [10]),
    ]
    table = schema_of(field(1, "n", "long"), field(2, "p", "string"))
    result, found = rewritten(task_of(tmp_path, table, files))
    assert result.proof.difference == ""
    assert (result.proof.rows_in, result.proof.rows_deleted, result.proof.rows_out) == (11, 1, 10)
    assert [row["n"] for row in found] == [0, 1, 2, 3, 4, 5, 7, 8, 9, 10]
    assert [row["n"] for row in found if row["p"] == "p"] == [8, 9]


@pytest.mark.parametrize(
    ("kind", "as_bytes"), [("decimal(18, 2)", None), ("decimal(18, 2)", 2), ("string", None)]
)
def test_small_files_beside_large_ones_keep_rows_and_order(
    tmp_path: Path, kind: str, as_bytes: int | None
) -> None:
    """A large file keeps its integers and dictionaries between pages, a small one alone has none."""
    schema = schema_of(field(1, "v", kind), field(2, "n", "long"), field(3, "pad", "string"))
    # A file of 16,384 rows is joined with none.
    sizes, start, rows, files = [10_500, 100, 10_600, 10_700, 10_800, 100], 0, [], []
    for number, size in enumerate(sizes):
        some = [
            {"v": f"v{k % 40}" if kind == "string" else Decimal(k), "n": k * 10**12, "pad": f"{k:020}"}
            for k in range(start, start + size)
        ]
        stored = {"store_decimal_as_integer": number != as_bytes, "use_dictionary": ["v"]}
        files.append(write_file(tmp_path, f"{number}.parquet", schema, some, compression="none", **stored))
        rows, start = rows + some, start + size
    assert [f.size_bytes > MOST_BYTES for f in files] == [True, False, True, True, True, False]
    for order in (files, files[::-1]):
        task = task_of(tmp_path, schema, order, output_path=str(tmp_path / "out" / f"{order[0].size_bytes}"))
        result, found = rewritten(task)
        assert result.proof.difference == ""
        assert sorted(found, key=lambda row: row["n"]) == sorted(rows, key=lambda row: row["n"])


def test_files_of_many_small_columns_are_decoded_together(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kinds = ("long", "string", "double", "decimal(9, 2)")
    schema = schema_of(*(field(i + 1, f"c{i}", kinds[i % 4]) for i in range(100)))
    number = random.Random(1).getrandbits
    values = (
        lambda: number(62),
        lambda: f"{number(64):016x}",
        lambda: number(62) / 7,
        lambda: Decimal(number(29)) / 100,
    )
    rows = [{f"c{i}": values[i % 4]() for i in range(100)} for _ in range(1_200)]
    files = [
        write_file(tmp_path, f"{k}.parquet", schema, rows[400 * k : 400 * (k + 1)], use_dictionary=False)
        for k in range(3)
    ]
    assert all(MOST_BYTES < f.size_bytes <= 100 * 4_096 for f in files)
    together: list[int] = []
    monkeypatch.setattr(
        decode, "packed", lambda files, integers: together.append(len(files)) or packed(files, integers)
    )
    result, found = rewritten(task_of(tmp_path, schema, files))
    assert (result.proof.difference, found, together) == ("", rows, [3])


def test_tiny_files_of_one_schema_keep_their_own_row_ids(tmp_path: Path) -> None:
    files = [
        replace(numbers(tmp_path, f"{k}.parquet", [k]), first_row_id=100 * k, data_sequence_number=k + 1)
        for k in range(3)
    ]
    result, found = rewritten(task_of(tmp_path, LONG, files, keep_row_lineage=True, format_version=3))
    assert result.proof.difference == ""
    assert [tuple(row.values()) for row in found] == [(0, 0, 1), (1, 100, 2), (2, 200, 3)]


def test_tiny_file_that_breaks_a_rule_among_others_is_named(tmp_path: Path) -> None:
    files = [numbers(tmp_path, f"{k}.parquet", [k]) for k in range(5)]
    files[3] = write_file(tmp_path, "wrong.parquet", LONG, [{"n": None}])
    with pytest.raises(WrongInputError, match=r"wrong\.parquet: the required column n has a null"):
        rewrite(task_of(tmp_path, schema_of(field(1, "n", "long", required=True)), files))


@pytest.mark.parametrize("memory", [1 << 30, 100_000], ids=["table", "streaming"])
def test_tiny_files_that_decode_to_more_than_the_memory_are_streamed(tmp_path: Path, memory: int) -> None:
    text = schema_of(field(1, "s", "string"))
    files = [write_file(tmp_path, f"{k}.parquet", text, [{"s": "x" * 9_000}] * 9) for k in range(9)]
    assert sum(f.size_bytes for f in files) < 10_000
    result, found = rewritten(task_of(tmp_path, text, files, memory_limit_bytes=memory))
    assert result.proof.difference == ""
    assert result.streamed is (memory == 100_000)
    assert len(found) == 81


@pytest.mark.parametrize(
    ("kind", "values", "words"),
    [
        ("variant", pa.array([1]), "Column c: the engine does not read type variant"),
        ("int", pa.array([1]), "Column c: a file has type int64; the table has int32"),
        ("decimal(9, 3)", pa.array([Decimal("1.25")]), "Column c: a file has type decimal128"),
        (
            "timestamptz",
            pa.array([datetime.fromisoformat("2024-01-01")]),
            "Column c: a file has type timestamp",
        ),
        ("string", pa.array([b"x"]), "Column c: a file has type binary"),
        ("timestamp", pa.array([1], pa.timestamp("ns")), "Column c: a file has type timestamp"),
    ],
)
def test_unsupported_column_is_named(tmp_path: Path, kind: str, values: pa.Array, words: str) -> None:
    schema = pa.schema([pa.field("c", values.type, metadata={b"PARQUET:field_id": b"1"})])
    file = write_table(tmp_path, "a.parquet", pa.Table.from_arrays([values], schema=schema))
    with pytest.raises(UnsupportedColumnError) as raised:
        rewrite(task_of(tmp_path, schema_of(field(1, "c", kind)), [file]))
    assert str(raised.value).startswith(words)
    assert raised.value.column == "c"
    assert not (tmp_path / "out").exists()


def test_int96_timestamp_is_unsupported(tmp_path: Path) -> None:
    schema = schema_of(field(1, "c", "timestamp"))
    file = write_file(
        tmp_path,
        "a.parquet",
        schema,
        [{"c": datetime.fromisoformat("2024-01-01")}],
        use_deprecated_int96_timestamps=True,
    )
    with pytest.raises(UnsupportedColumnError, match="Column c"):
        rewrite(task_of(tmp_path, schema, [file]))


def test_output_follows_the_encoding(tmp_path: Path) -> None:
    schema = schema_of(
        field(1, "few", "string"), field(2, "many", "string"), field(3, "dec", "decimal(9, 2)")
    )
    rows = [{"few": f"v{n % 5}", "many": f"unique-{n}", "dec": Decimal(n)} for n in range(30_000)]
    files = [write_file(tmp_path, f"{k}.parquet", schema, rows) for k in range(2)]
    encoding = Encoding("gzip", 6, row_group_bytes=files[0].size_bytes, page_row_limit=5000)
    result, found = rewritten(task_of(tmp_path, schema, files, encoding=encoding))
    footer = pq.ParquetFile(result.path).metadata
    assert found == rows * 2
    assert [footer.row_group(i).num_rows for i in range(footer.num_row_groups)] == [30_000, 30_000]
    assert result.metrics.split_offsets[0] == 4
    chunks = [footer.row_group(0).column(i) for i in range(3)]
    assert {c.compression for c in chunks} == {"GZIP"}
    assert all(c.has_offset_index for c in chunks)
    assert chunks[2].physical_type == "INT32"
    assert b"ARROW:schema" not in footer.metadata
    assert json.loads(footer.metadata[b"iceberg.schema"]) == json.loads(schema)


@pytest.mark.slow
@pytest.mark.parametrize("memory", [1 << 30, 1 << 16], ids=["table", "streaming"])
@pytest.mark.parametrize("kind", ["float", "double"])
def test_filter_finds_nan_that_a_rewrite_leaves_among_small_numbers(
    tmp_path: Path, kind: str, memory: int
) -> None:
    import duckdb  # not in the environment of the fast tests, which import this module

    nested = {"type": "struct", "fields": [{"id": 4, "name": "x", "required": False, "type": kind}]}
    schema = schema_of(field(1, "v", kind), field(2, "other", kind), field(3, "s", nested))
    rows: list[dict[str, Any]] = [
        {"v": [0.5, None, 1.5][n % 3], "other": n / 8, "s": {"x": float(n % 2)}} for n in range(3000)
    ]
    for number in (7, 2000):
        rows[number] |= {"v": float("nan"), "s": {"x": float("nan")}}
    rows[2500]["v"] = 9.5
    file = write_file(tmp_path, "f.parquet", schema, rows, row_group_size=1000)
    result = rewrite(task_of(tmp_path, schema, [file], memory_limit_bytes=memory))
    assert (result.proof.difference, result.streamed) == ("", memory == 1 << 16)
    assert (result.metrics.nan_value_counts, result.metrics.null_value_counts) == (
        {1: 2, 2: 0, 4: 2},
        {1: 1000 - 2, 2: 0, 4: 0},
    )
    for condition, count in (("v > 5", 3), ("s.x > 5", 2), ("other >= 374", 8), ("v is null", 998)):
        assert duckdb.sql(f"select count(*) from '{result.path}' where {condition}").fetchall() == [(count,)]
    footer = pq.ParquetFile(result.path).metadata
    groups = [footer.row_group(n) for n in range(footer.num_row_groups)]
    assert all(g.column(1).statistics.has_min_max and g.column(1).has_column_index for g in groups)


@pytest.mark.parametrize("memory", [1 << 30, 1 << 20], ids=["table", "streaming"])
@pytest.mark.parametrize("has_bounds", [True, False], ids=["bounds", "no bounds"])
def test_list_of_which_arrow_writes_a_page_without_a_row_is_unsupported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, memory: int, has_bounds: bool
) -> None:
    """Java's reader fails on such a page. Long texts leave a column without a column index."""
    if not has_bounds:
        monkeypatch.setattr(Chunk, "column_index", None)
    schema = schema_of(
        field(1, "l", {"type": "list", "element-id": 2, "element": "string", "element-required": False})
    )
    rows = [{"l": [f"{n}", ""]} for n in range(11)]
    file = write_file(tmp_path, "f.parquet", schema, rows)
    encoding = Encoding(page_bytes=100, page_row_limit=10)
    task = task_of(tmp_path, schema, [file], encoding=encoding, memory_limit_bytes=memory)
    with pytest.raises(UnsupportedColumnError, match=r"^Column l.element: Arrow wrote a page without a row$"):
        rewrite(task)
    assert list((tmp_path / "out").glob("*")) == []
    assert rewritten(replace(task, encoding=Encoding()))[1] == rows


def test_dictionary_is_chosen_by_the_values_and_not_by_the_writer_of_the_source(tmp_path: Path) -> None:
    schema = schema_of(field(1, "few", "long"), field(2, "many", "long"))

    def dictionaries(path: str) -> list[bool]:
        group = pq.ParquetFile(path).metadata.row_group(0)
        return ["RLE_DICTIONARY" in group.column(i).encodings for i in range(2)]

    small = write_file(tmp_path, "s.parquet", schema, [{"few": n % 5, "many": n} for n in range(1000)])
    assert dictionaries(rewritten(task_of(tmp_path, schema, [small]))[0].path) == [True, False]
    rows = [{"few": n % 5, "many": n} for n in range(20_000)]
    large = write_file(tmp_path, "l.parquet", schema, rows, use_dictionary=["many"])
    assert dictionaries(rewritten(task_of(tmp_path / "2", schema, [large]))[0].path) == [True, False]


def test_output_that_exists_is_not_overwritten(tmp_path: Path) -> None:
    task = task_of(tmp_path, LONG, [numbers(tmp_path, "1.parquet", [1])])
    Path(task.output_path).parent.mkdir()
    Path(task.output_path).write_bytes(b"another writer's")
    with pytest.raises(FileExistsError):
        rewrite(task)
    assert Path(task.output_path).read_bytes() == b"another writer's"


def test_file_uri_is_a_path(tmp_path: Path) -> None:
    file = numbers(tmp_path, "1.parquet", [1])
    task = task_of(tmp_path, LONG, [replace(file, path=f"file:{file.path}")])
    result = rewrite(replace(task, output_path=f"file:{task.output_path}"))
    assert result.path == f"file:{task.output_path}"
    assert pq.ParquetFile(task.output_path).metadata.num_rows == 1


def test_input_or_delete_file_that_is_damaged_is_refused(tmp_path: Path) -> None:
    file = numbers(tmp_path, "1.parquet", list(range(100)), compression="zstd")
    contents = bytearray(Path(file.path).read_bytes())
    marks = write_table(tmp_path, "d.parquet", pa.table({"path": [file.path], "pos": [1]}))
    delete = DeleteReference(DeleteKind.POSITION_FILE, marks.path, marks.size_bytes)
    with pytest.raises(WrongInputError, match="cannot be read as a position delete file"):
        rewrite(task_of(tmp_path, LONG, [replace(file, deletes=(delete,))]))
    chunk = pq.read_metadata(file.path).row_group(0).column(0)
    start = chunk.dictionary_page_offset
    contents[start + 30 : start + 60] = bytes(30)
    Path(file.path).write_bytes(contents)
    for memory in (1 << 30, 1000):
        with pytest.raises(WrongInputError, match="cannot be read as Parquet"):
            rewrite(task_of(tmp_path, LONG, [file], memory_limit_bytes=memory))
    assert not list((tmp_path / "out").glob("*"))


def test_struct_with_required_fields_that_a_file_lacks_is_null(tmp_path: Path) -> None:
    inner = {
        "type": "struct",
        "fields": [field(31, "s", "string", required=True), field(32, "u", "uuid", required=True)],
    }
    fields = [
        *(
            field(20 + i, f"r{i}", kind, required=True)
            for i, kind in enumerate(("int", "boolean", "decimal(9, 2)"))
        ),
        field(30, "in", inner, required=True),
        field(
            40,
            "li",
            {"type": "list", "element-id": 41, "element": "int", "element-required": True},
            required=True,
        ),
    ]
    wider = schema_of(field(1, "n", "long"), field(2, "added", {"type": "struct", "fields": fields}))
    for memory in (1 << 30, 1000):
        task = task_of(
            tmp_path / str(memory), wider, [numbers(tmp_path, "1.parquet", [1, 2])], memory_limit_bytes=memory
        )
        result, found = rewritten(task)
        assert (result.proof.difference, found) == ("", [{"n": 1, "added": None}, {"n": 2, "added": None}])


@pytest.mark.parametrize(("key", "value"), [("uuid", "int"), ("string", "uuid")])
def test_map_of_uuids_that_a_file_lacks_is_null(tmp_path: Path, key: str, value: str) -> None:
    kind = {"type": "map", "key-id": 3, "key": key, "value-id": 4, "value": value, "value-required": False}
    file = numbers(tmp_path, "1.parquet", [1, 2])
    result, found = rewritten(
        task_of(tmp_path, schema_of(field(1, "n", "long"), field(2, "m", kind)), [file])
    )
    assert (result.proof.difference, found) == ("", [{"n": 1, "m": None}, {"n": 2, "m": None}])


def test_partition_value_fills_a_field_of_a_struct(tmp_path: Path) -> None:
    def struct(*fields: Any) -> str:
        return schema_of(field(1, "st", {"type": "struct", "fields": list(fields)}))

    file = write_file(tmp_path, "a.parquet", struct(field(2, "x", "int")), [{"st": {"x": 1}}])
    wider = struct(field(2, "x", "int"), field(3, "p", "string"))
    _, found = rewritten(task_of(tmp_path, wider, [replace(file, constants={3: "v"})]))
    assert found == [{"st": {"x": 1, "p": "v"}}]


def test_file_without_a_column_of_the_table_keeps_its_number_of_rows(tmp_path: Path) -> None:
    file = numbers(tmp_path, "1.parquet", [1, 2])
    for memory in (1 << 30, 1000):
        task = task_of(
            tmp_path / str(memory), schema_of(field(5, "added", "int")), [file], memory_limit_bytes=memory
        )
        assert rewritten(task)[1] == [{"added": None}, {"added": None}]


@pytest.mark.parametrize("codec", ["zstd", "gzip", "snappy", "lz4", "uncompressed"])
def test_each_codec_of_the_table_is_written(tmp_path: Path, codec: str) -> None:
    file = numbers(tmp_path, "1.parquet", list(range(100)))
    result, found = rewritten(task_of(tmp_path, LONG, [file], encoding=Encoding(codec, None)))
    written = pq.read_metadata(result.path).row_group(0).column(0).compression
    assert written == {"lz4": "LZ4"}.get(codec, codec.upper())
    assert len(found) == 100


def test_level_that_is_not_set_is_that_of_parquets_java_writer(tmp_path: Path) -> None:
    file = numbers(tmp_path, "1.parquet", [(n * n) % 1009 for n in range(20_000)])
    sizes = []
    for number, level in enumerate((None, 3, 19)):
        task = task_of(tmp_path / str(number), LONG, [file], encoding=Encoding("zstd", level))
        sizes.append(rewrite(task).size_bytes)
    assert sizes[0] == sizes[1] != sizes[2]
