"""Strings of small files with few values keep their dictionaries."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from iceberg_maint.columnar.decode import Decoder
from iceberg_maint.columnar.encode import sampled_dictionaries
from iceberg_maint.columnar.schema import Struct, table_schema
from iceberg_maint.columnar.source import source_dictionaries
from iceberg_maint.columnar.storage import Storage
from iceberg_maint.columnar.task import DeleteKind, DeleteReference, RewriteTask
from iceberg_maint_tests.support.columnar.tables import field, rewritten, schema_of, task_of, write_file

TEXT = schema_of(field(1, "few", "string"), field(2, "many", "string"))
TABLE = table_schema(TEXT, lineage=False)


def row(number: int) -> dict[str, Any]:
    # Each file has other values.
    few = None if number % 7 == 0 else f"ż{number // 100}-{number % 3}"
    return {"few": few, "many": str(number)}


def small_files(folder: Path, codec: str) -> RewriteTask:
    options = {"compression": codec, "write_page_checksum": True}
    files = [
        write_file(folder, f"{k}.parquet", TEXT, [row(n) for n in range(100 * k, 100 * k + 100)], **options)
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
    assert (rows.to_pylist(), deleted) == ([row(n) for n in range(300)], 0)
    result, found = rewritten(task)
    assert result.proof.difference == ""
    assert found == [row(n) for n in range(300)]
    footer = pq.read_metadata(result.path).row_group(0)
    assert ["RLE_DICTIONARY" in footer.column(i).encodings for i in range(2)] == [True, False]


def test_files_that_are_decoded_one_by_one_keep_no_dictionary(tmp_path: Path) -> None:
    task = small_files(tmp_path, "zstd")
    assert strings(replace(task, keep_row_lineage=True)) == set()
    delete = DeleteReference(DeleteKind.POSITION_FILE, "d.parquet", 1)
    first, *others = task.inputs
    assert strings(replace(task, inputs=(replace(first, deletes=(delete,)), *others))) == set()


def chosen(values: list[int | None], *, dictionary: bool) -> bool:
    column = pa.array([None if v is None else str(v) for v in values], pa.string())
    rows = pa.table({"few": column.dictionary_encode() if dictionary else column, "many": column})
    return "few" in sampled_dictionaries(rows, Struct(TABLE.columns[:1]), {})


@pytest.mark.parametrize("dictionary", [True, False])
@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([], True),
        ([None, None], True),
        ([n % 49 for n in range(100)], True),
        ([n % 50 for n in range(100)], False),
        # The first rows do not decide.
        ([min(n, 48) for n in range(100)], True),
        ([min(n, 49) for n in range(100)], False),
        ([max(0, n - 51) for n in range(100)], True),
        ([max(0, n - 50) for n in range(100)], False),
        ([0, 0, 0, None, None, 1, 2, 3], False),
    ],
)
def test_column_with_fewer_distinct_values_than_half_of_its_rows_gets_a_dictionary(
    values: list[int | None], expected: bool, dictionary: bool
) -> None:
    assert chosen(values, dictionary=dictionary) is expected
