"""Strings of small files with few values keep their dictionaries."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from iceberg_maint.columnar.encode import sampled_dictionaries
from iceberg_maint.columnar.read.decode import Decoder
from iceberg_maint.columnar.read.schema import Struct, table_schema
from iceberg_maint.columnar.read.source import source_dictionaries
from iceberg_maint.columnar.storage import Storage
from iceberg_maint.columnar.task import DeleteKind, DeleteReference, Encoding, RewriteTask
from iceberg_maint_tests.support.columnar.tables import field, rewritten, schema_of, task_of, write_file

TEXT = schema_of(field(1, "few", "string"), field(2, "many", "string"))
TABLE = table_schema(TEXT, lineage=False)


def row(number: int) -> dict[str, Any]:
    # Each file has other values.
    few = None if number % 7 == 0 else f"ż{number // 7_000}-{number % 3}"
    return {"few": few, "many": str(number)}


def small_files(folder: Path, codec: str) -> RewriteTask:
    options = {"compression": codec, "write_page_checksum": True}
    files = [
        write_file(
            folder, f"{k}.parquet", TEXT, [row(n) for n in range(7_000 * k, 7_000 * k + 7_000)], **options
        )
        for k in range(3)
    ]
    return task_of(folder, TEXT, files)


def strings(task: RewriteTask) -> frozenset[int]:
    storage = Storage({})
    return source_dictionaries(lambda f: storage.read(f.path), task, TABLE).strings


@pytest.mark.parametrize("codec", ["zstd", "snappy"], ids=["packed", "one by one"])
def test_small_files_keep_dictionaries_of_few_values(tmp_path: Path, codec: str) -> None:
    task = small_files(tmp_path, codec)
    assert strings(task) == {1}
    decoder = Decoder(Storage({}), TABLE, None, dictionaries=strings(task))
    files = [decoder.decoded(f, Storage({}).read(f.path)) for f in task.inputs]
    rows, deleted = decoder.live(files)
    assert [pa.types.is_dictionary(f.type) for f in rows.schema] == [True, False]
    assert (rows.to_pylist(), deleted) == ([row(n) for n in range(21_000)], 0)
    result, found = rewritten(task)
    assert result.proof.difference == ""
    assert found == [row(n) for n in range(21_000)]
    footer = pq.read_metadata(result.path).row_group(0)
    assert ["RLE_DICTIONARY" in footer.column(i).encodings for i in range(2)] == [True, False]


def test_files_that_are_decoded_one_by_one_keep_no_dictionary(tmp_path: Path) -> None:
    task = small_files(tmp_path, "zstd")
    assert strings(replace(task, keep_row_lineage=True)) == set()
    delete = DeleteReference(DeleteKind.POSITION_FILE, "d.parquet", 1)
    first, *others = task.inputs
    assert strings(replace(task, inputs=(replace(first, deletes=(delete,)), *others))) == set()


def chosen(
    values: list[int | None],
    *,
    dictionary: bool,
    repeating: frozenset[int] = frozenset(),
    encoding: Encoding | None = None,
) -> bool:
    column = pa.array([None if v is None else str(v) for v in values], pa.string())
    rows = pa.table({"few": column.dictionary_encode() if dictionary else column, "many": column})
    return "few" in sampled_dictionaries(rows, Struct(TABLE.columns[:1]), repeating, encoding or Encoding())


@pytest.mark.parametrize("dictionary", [True, False])
@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([], True),
        ([None, None], True),
        # A value takes 7 bytes, an index 7 bits: 609 + 87 bytes against 700, 616 + 87 against 700.
        ([100 + n % 87 for n in range(100)], True),
        ([100 + n % 88 for n in range(100)], False),
        # The first rows do not decide.
        ([100 + min(n, 86) for n in range(100)], True),
        ([100 + min(n, 87) for n in range(100)], False),
        ([100 + max(0, n - 13) for n in range(100)], True),
        ([100 + max(0, n - 12) for n in range(100)], False),
        # 20 + 1 bytes against 30, 30 + 2 against 30.
        ([0, 0, 0, None, None, 1, 2, 3], True),
        ([0, 4, 5, None, None, 1, 2, 3], False),
    ],
)
def test_column_whose_first_page_is_smaller_with_a_dictionary_gets_one(
    values: list[int | None], expected: bool, dictionary: bool
) -> None:
    assert chosen(values, dictionary=dictionary) is expected


@pytest.mark.parametrize("step", [1, 1000])
@pytest.mark.parametrize(
    ("kind", "type_name", "most"),
    [(pa.int64(), "long", 89), (pa.int32(), "int", 78), (pa.date32(), "date", 78)],
)
def test_numbers_get_a_dictionary_if_it_is_smaller_whether_or_not_they_are_close_together(
    kind: pa.DataType, type_name: str, most: int, step: int
) -> None:
    # An index takes 7 bits: 89 * 8 + 87 bytes against 800, 78 * 4 + 87 against 400.
    table = table_schema(schema_of(field(1, "n", type_name)), lineage=False)
    for distinct, expected in ((most, {"n"}), (most + 1, set())):
        numbers = pa.array([step * (k % distinct) - 7 for k in range(100)], pa.int32()).cast(kind)
        rows = pa.table({"n": numbers})
        assert sampled_dictionaries(rows, table, set(), Encoding()) == expected


@pytest.mark.parametrize(("distinct", "expected"), [(89, {"n"}), (90, set())])
def test_largest_longs_get_a_dictionary_if_it_is_smaller(distinct: int, expected: set[str]) -> None:
    table = table_schema(schema_of(field(1, "n", "long")), lineage=False)
    rows = pa.table({"n": pa.array([2**63 - 1 - k % distinct for k in range(100)])})
    assert sampled_dictionaries(rows, table, set(), Encoding()) == expected


def test_column_whose_values_repeat_in_the_inputs_gets_a_dictionary_whatever_its_first_page_has() -> None:
    many = [100 + n for n in range(100)]
    assert not chosen(many, dictionary=False)
    assert chosen(many, dictionary=False, repeating=frozenset({1}))


@pytest.mark.parametrize(("bytes_", "expected"), [(8 * 3 + 8 * 4, True), (8 * 3 + 8 * 4 - 1, False)])
def test_texts_whose_dictionary_would_overflow_get_none(bytes_: int, expected: bool) -> None:
    # Eight texts of three letters, and their offsets.
    values = [100 + n % 8 for n in range(100)]
    encoding = Encoding(dictionary_bytes=bytes_)
    found = chosen(values, dictionary=True, repeating=frozenset({1}), encoding=encoding)
    assert found is expected


@pytest.mark.parametrize(
    ("distinct", "limit", "expected"),
    [(700, 1 << 20, {1}), (701, 1 << 20, set()), (7_000, 1 << 20, set()), (700, 100, set())],
    ids=["one in ten", "more", "no value repeats", "with pages outside of the dictionary"],
)
def test_values_repeat_if_dictionaries_are_whole_and_have_one_in_ten_of_them(
    tmp_path: Path, distinct: int, limit: int, expected: set[int]
) -> None:
    rows = [{"few": f"{n % distinct:04d}", "many": str(n)} for n in range(7_000)]
    options: dict[str, Any] = {"dictionary_pagesize_limit": limit, "write_batch_size": 100}
    files = [write_file(tmp_path, f"{k}.parquet", TEXT, rows, **options) for k in range(3)]
    storage = Storage({})
    found = source_dictionaries(lambda f: storage.read(f.path), task_of(tmp_path, TEXT, files), TABLE)
    assert (found.repeating, found.strings) == (expected, expected)


def test_rows_after_the_first_page_do_not_decide() -> None:
    values = [100 + max(0, n - 50) for n in range(400)]
    assert not chosen(values, dictionary=False)
    assert chosen(values, dictionary=False, encoding=Encoding(page_row_limit=50))
    assert chosen(values, dictionary=False, encoding=Encoding(page_bytes=50 * 7))


def test_long_texts_with_a_dictionary_are_not_decoded_for_the_choice() -> None:
    # 20,000 rows of 300 kB each: 6 GB, more than an array of Arrow holds.
    texts = pa.array(["a" * 300_000, "b" * 300_000])
    column = pa.DictionaryArray.from_arrays(pa.array([0, 1, 0, None] * 5_000, pa.int32()), texts)
    rows = pa.table({"few": column})
    assert sampled_dictionaries(rows, Struct(TABLE.columns[:1]), set(), Encoding(page_bytes=1 << 30)) == {
        "few"
    }
