"""The schema of a file is its own, and columns are found by name."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from iceberg_maint.columnar.parquet import reader
from iceberg_maint.columnar.parquet.reader import Schemas, footer_of, opened
from iceberg_maint.columnar.storage import Storage
from iceberg_maint_tests.support.columnar.damage import TEXTS, with_index_outside, with_negative_index

STRUCT = pa.struct([pa.field("x", pa.int32()), pa.field("y", pa.string())])
ROWS = pa.table({"n": pa.array([1, 2]), "s": pa.array([{"x": 1, "y": "a"}, None], STRUCT)})


def written(rows: pa.Table, **options: Any) -> pa.Buffer:
    sink = pa.BufferOutputStream()
    pq.write_table(rows, sink, **{"store_schema": False, **options})
    return sink.getvalue()


def test_columns_are_read_by_name() -> None:
    assert opened(written(ROWS)).read(columns=["s.y"]).to_pylist() == [{"s": {"y": "a"}}, {"s": None}]
    assert opened(written(ROWS), dictionaries=["n"]).read(columns=["n"]).to_pylist() == [{"n": 1}, {"n": 2}]


@pytest.mark.parametrize("rows", [1000, 10_000])
@pytest.mark.parametrize("has_null", [False, True])
def test_index_outside_of_its_dictionary_is_an_error(tmp_path: Path, rows: int, has_null: bool) -> None:
    path = tmp_path / "texts.parquet"
    values = [None if has_null and not n else TEXTS[n * 7919 % 5] for n in range(rows)]
    pq.write_table(pa.table({"t": values}), path, compression="none")
    assert opened(pa.py_buffer(path.read_bytes()), dictionaries=["t"]).read().num_rows == rows
    with_index_outside(str(path), 0)
    file = opened(pa.py_buffer(path.read_bytes()), dictionaries=["t"])
    words = "index 7 is outside of a dictionary of 5 values"
    with pytest.raises(pa.ArrowInvalid, match=words):
        file.read()
    with pytest.raises(pa.ArrowInvalid, match=words):
        file.read_row_group(0, columns=["t"])
    with pytest.raises(pa.ArrowInvalid, match=words):
        list(file.iter_batches(100))


def test_text_that_is_no_utf8_is_read_with_its_dictionary() -> None:
    rows = pa.table({"t": pa.array([b"\xff", b"a", b"\xff"]).view(pa.string())})
    found = opened(written(rows), dictionaries=["t"]).read().column(0)
    assert [c.as_py() for c in found.cast(pa.binary())] == [b"\xff", b"a", b"\xff"]


@pytest.mark.parametrize("few_rows", [reader._FEW_ROWS, 1])
def test_negative_index_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, few_rows: int) -> None:
    monkeypatch.setattr(reader, "_FEW_ROWS", few_rows)
    path = tmp_path / "texts.parquet"
    pq.write_table(pa.table({"t": ["aa"] * 500 + ["b"] * 500}), path, compression="none")
    with_negative_index(str(path), 0)
    file = opened(pa.py_buffer(path.read_bytes()), dictionaries=["t"])
    with pytest.raises(pa.ArrowInvalid, match="index -1 is outside of a dictionary of 2 values"):
        file.read()


def test_schema_is_kept_for_files_that_start_alike() -> None:
    schemas = Schemas()
    one, same = written(ROWS), written(ROWS.slice(1))
    assert footer_of(one) != footer_of(same)
    first = schemas.of(opened(one), one)
    assert schemas.of(opened(same), same) is first


OTHERS = {
    "another type": ROWS.set_column(0, "n", ROWS.column(0).cast(pa.int32())),
    "another name": ROWS.rename_columns(["m", "s"]),
    "another order": ROWS.select([1, 0]),
    "a column more": ROWS.append_column("more", ROWS.column(0)),
    "a column less": ROWS.select([0]),
    "field ids": ROWS.set_column(0, pa.field("n", pa.int64(), metadata={"PARQUET:field_id": "7"}), ROWS.column(0)),
}  # fmt: skip


@pytest.mark.parametrize("name", OTHERS)
def test_file_of_another_schema_has_its_own(name: str) -> None:
    schemas = Schemas()
    for contents in (written(ROWS), written(OTHERS[name]), written(ROWS)):
        found = schemas.of(opened(contents), contents)
        assert found.equals(opened(contents).schema_arrow, check_metadata=True)


def test_schema_that_arrow_stored_counts() -> None:
    large = ROWS.set_column(0, "n", pa.array(["a", "b"], pa.large_string()))
    schemas = Schemas()
    for options in ({}, {"store_schema": True}, {}):
        contents = written(large, **options)
        kind = pa.large_string() if options else pa.string()
        assert schemas.of(opened(contents), contents).field("n").type == kind


def test_bytes_without_a_footer_have_none() -> None:
    assert footer_of(pa.py_buffer(b"\xff" * 12)) == b""


@pytest.mark.parametrize("size", [0, 1, 100_000])
def test_file_is_read_whole(tmp_path: Any, size: int) -> None:
    (tmp_path / "file").write_bytes(bytes(range(256)) * (size // 256) + b"x" * (size % 256))
    assert Storage({}).read(str(tmp_path / "file")).to_pybytes() == (tmp_path / "file").read_bytes()
