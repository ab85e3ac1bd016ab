"""Size statistics that do not fit their column, and those that do."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from iceberg_maint.columnar.parquet.parquet_metadata import ParquetBytes, get
from iceberg_maint.columnar.parquet.thrift import I64, LIST, STRUCT
from iceberg_maint.columnar.parquet.thrift import Struct as Fields
from iceberg_maint.columnar.read.source import size_statistics_problem
from iceberg_maint.columnar.rewrite import rewrite
from iceberg_maint.columnar.task import WrongInputError
from iceberg_maint_tests.columnar.test_splice import edited, metadata
from iceberg_maint_tests.support.columnar.tables import field, schema_of, task_of, write_file

SCHEMA = schema_of(field(1, "id", "long", required=True), field(2, "s", "string"))


def levels(repetition: int, definition: int) -> Fields:
    return {2: (LIST, (I64, [7] * repetition)), 3: (LIST, (I64, [7] * definition))}


@pytest.mark.parametrize(
    ("column", "sizes", "problem"),
    [
        (0, levels(1, 1), ""),
        (0, levels(0, 0), ""),
        (0, levels(1, 2), "column 0: a histogram of levels has 2 entries, not 1"),
        (0, {1: (I64, 9)}, "column 0 has no texts and states their bytes"),
        (1, {1: (I64, 9), **levels(1, 2)}, ""),
        (1, levels(3, 2), "column 1: a histogram of levels has 3 entries, not 1"),
        (1, levels(1, 1), "column 1: a histogram of levels has 1 entries, not 2"),
    ],
    ids=str,
)
def test_small_file_whose_size_statistics_do_not_fit_is_refused_where_they_end_the_process(
    tmp_path: Path, column: int, sizes: Fields, problem: str
) -> None:
    rows = [{"id": n, "s": "abcd"[n % 4]} for n in range(700)]
    files = [write_file(tmp_path, f"{k}.parquet", SCHEMA, rows, compression="zstd") for k in range(2)]
    contents = edited(
        Path(files[1].path).read_bytes(),
        lambda footer: metadata(footer, column).update({16: (STRUCT, sizes)}),
    )
    assert size_statistics_problem(ParquetBytes.of(contents)) == problem
    Path(files[1].path).write_bytes(contents)
    task = task_of(tmp_path, SCHEMA, [files[0], replace(files[1], size_bytes=len(contents))])
    if problem:
        with pytest.raises(WrongInputError, match=rf"1\.parquet cannot be read as Parquet: {problem}\."):
            rewrite(task, 1 << 26)
    else:
        assert rewrite(task, 1 << 26).record_count == 1400


def test_size_statistics_of_nested_columns_fit() -> None:
    nested: dict[str, Any] = {
        "a": pa.array([[1, None], None, []], pa.list_(pa.int64())),
        "b": pa.array([{"x": [{"y": "t"}]}, None, {"x": None}]),
        "c": pa.array([[("k", 1.5)], None, []], pa.map_(pa.string(), pa.float64())),
        "d": pa.array([None, True, False]),
    }
    sink = pa.BufferOutputStream()
    pq.write_table(pa.table(nested), sink)
    file = ParquetBytes.of(sink.getvalue())
    chunks = get(file.row_groups[0], 1)[1]
    histograms = [[len(get(get(get(c, 3), 16), n, (0, ()))[1]) for n in (2, 3)] for c in chunks]
    assert histograms == [[2, 4], [2, 6], [2, 3], [2, 4], [0, 2]]
    assert size_statistics_problem(file) == ""
