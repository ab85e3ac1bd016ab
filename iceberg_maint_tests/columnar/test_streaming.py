"""Streaming mode: output and memory do not depend on how the rows are divided."""

from __future__ import annotations

import json
import random
import subprocess
import sys
import threading
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from iceberg_maint.columnar import encode
from iceberg_maint.columnar.encode import write_group
from iceberg_maint.columnar.read.leaves import compacted
from iceberg_maint.columnar.read.schema import arrow_schema, table_schema
from iceberg_maint.columnar.read.source import source_dictionaries
from iceberg_maint.columnar.rewrite import rewrite
from iceberg_maint.columnar.storage import Storage
from iceberg_maint.columnar.task import InputFile, RewriteTask, WrongInputError
from iceberg_maint_tests.support.columnar.tables import field, schema_of, task_of, write_file, write_table

pytestmark = pytest.mark.seconds

SCHEMA = schema_of(field(1, "few", "string"), field(2, "many", "string"), field(3, "n", "long"))
TABLE = table_schema(SCHEMA, lineage=False)
MIB = 1 << 20


def file_of(folder: Path, name: str, start: int, rows: int, **options: Any) -> InputFile:
    """A file as PyArrow writes it: `many` starts with a dictionary and goes on without."""
    numbers, drawn = range(start, start + rows), random.Random(start)
    table = pa.table(
        [[f"ż{n % 7}" for n in numbers], [f"{drawn.getrandbits(96):024x}" for _ in numbers], numbers],
        schema=arrow_schema(TABLE),
    )
    return write_table(folder, name, table, **options)


def repeating(task: RewriteTask) -> frozenset[int]:
    storage = Storage({})
    found = source_dictionaries(lambda f: storage.read(f.path), task, TABLE)
    assert found.repeating == found.strings
    return found.strings


def test_column_with_pages_without_dictionary_keeps_none(tmp_path: Path) -> None:
    task = task_of(
        tmp_path, SCHEMA, [file_of(tmp_path, "a.parquet", 0, 60_000, dictionary_pagesize_limit=100_000)]
    )
    encodings = [
        c["encodings"] for c in pq.read_metadata(task.inputs[0].path).row_group(0).to_dict()["columns"]
    ]
    # The dictionary page itself is plain, so this does not tell the columns apart.
    assert encodings[:2] == [("PLAIN", "RLE", "RLE_DICTIONARY")] * 2
    assert repeating(task) == {1}


@pytest.mark.parametrize("limit", [100_000, 100 * MIB], ids=["fallback pages", "dictionary pages"])
def test_streaming_writes_about_as_many_bytes_as_one_table(tmp_path: Path, limit: int) -> None:
    file = file_of(tmp_path, "a.parquet", 0, 200_000, dictionary_pagesize_limit=limit)
    task = task_of(tmp_path, SCHEMA, [file])
    whole = rewrite(task)
    parts = rewrite(replace(task, output_path=str(tmp_path / "parts.parquet"), memory_limit_bytes=8 * MIB))
    assert (whole.streamed, parts.streamed) == (False, True)
    assert (whole.proof.difference, parts.proof.difference) == ("", "")
    assert parts.digest == sha256(Path(parts.path).read_bytes()).hexdigest()
    assert pq.read_metadata(parts.path).num_row_groups > 1
    assert parts.size_bytes <= 1.1 * whole.size_bytes


def test_row_groups_of_one_table_have_their_own_dictionaries(tmp_path: Path) -> None:
    file = file_of(tmp_path, "a.parquet", 0, 60_000, dictionary_pagesize_limit=100 * MIB)
    task = task_of(tmp_path, SCHEMA, [file])
    one = rewrite(task)
    encoding = replace(task.encoding, row_group_bytes=file.size_bytes // 4 + 1)
    four = rewrite(replace(task, output_path=str(tmp_path / "four.parquet"), encoding=encoding))
    assert pq.read_metadata(four.path).num_row_groups == 4
    assert (four.streamed, four.proof.difference) == (False, "")
    assert four.size_bytes <= 1.1 * one.size_bytes


def test_slice_has_the_dictionary_of_its_rows() -> None:
    column = pa.chunked_array([["a", "b", None], ["c", "b", "d"]]).dictionary_encode()
    table = pa.table({"s": column, "n": [1, 2, 3, 4, 5, 6]}).unify_dictionaries()
    found = compacted(table.slice(1, 4))
    assert found.column("s").to_pylist() == ["b", None, "c", "b"]
    assert [c.dictionary.to_pylist() for c in found.column("s").chunks] == [["b", "c"], ["b", "c"]]
    assert compacted(table.slice(6)).num_rows == 0


_PROGRAM = """
import json, sys
import pyarrow as pa
from iceberg_maint.columnar.rewrite import rewrite
from iceberg_maint.columnar.task import RewriteTask
result = rewrite(RewriteTask.from_json(sys.stdin.read()))
[line] = [l for l in open("/proc/self/status") if l.startswith("VmHWM")]
print(json.dumps([result.proof.difference, result.streamed, pa.default_memory_pool().max_memory(),
    int(line.split()[1]) * 1024]))
"""


def peak_of(task: RewriteTask) -> tuple[int, int]:
    """The most bytes of Arrow and of the process while a task runs in streaming mode."""
    done = subprocess.run(
        [sys.executable, "-c", _PROGRAM], input=task.to_json(), capture_output=True, text=True, check=True
    )
    difference, streamed, pool, resident = json.loads(done.stdout)
    assert (difference, streamed) == ("", True)
    return pool, resident


def test_memory_of_streaming_does_not_grow_with_the_input(tmp_path: Path) -> None:
    def task(name: str, rows: int) -> RewriteTask:
        numbers = np.random.default_rng(0).integers(0, 1 << 60, rows)
        table = pa.table([pa.array(numbers)] * 4, schema=arrow_schema(table_schema(LONGS, lineage=False)))
        file = write_table(tmp_path, f"{name}.parquet", table, row_group_size=rows, use_dictionary=False)
        return task_of(tmp_path / name, LONGS, [file], memory_limit_bytes=32 * MIB)

    one, four = peak_of(task("one", 1_000_000)), peak_of(task("four", 4_000_000))
    assert four[0] <= 1.2 * one[0]
    # The input and the output are 92 MB longer each.
    assert four[1] <= one[1] + 48 * MIB


def test_later_row_group_with_other_values_is_a_difference(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    numbers = iter(range(12))

    def moved(writer: pq.ParquetWriter, rows: pa.Table) -> None:
        write_group(
            writer, pa.concat_tables([rows.slice(1), rows.slice(0, 1)]) if next(numbers) == 2 else rows
        )

    monkeypatch.setattr(encode, "write_group", moved)
    files = [
        write_file(tmp_path, f"{k}.parquet", LONG, [{"n": k * 10 + n} for n in range(10)]) for k in range(12)
    ]
    found = rewrite(task_of(tmp_path, LONG, files, memory_limit_bytes=640))
    assert found.streamed
    assert found.proof.difference == "after 2 row groups, column n, row group 0: values differ at row 0"
    # One more was encoded while it was compared.
    assert next(numbers) == 4


def test_thread_that_decodes_ahead_ends_with_the_task(tmp_path: Path) -> None:
    files = [write_file(tmp_path, f"{k}.parquet", LONG, [{"n": n} for n in range(10)]) for k in range(4)]
    Path(files[3].path).write_bytes(b"PAR1")
    before = threading.active_count()
    with pytest.raises(WrongInputError, match=r"3.parquet"):
        rewrite(task_of(tmp_path, LONG, files, memory_limit_bytes=640))
    assert threading.active_count() == before
    assert not list((tmp_path / "out").glob("*"))


LONG = schema_of(field(1, "n", "long"))
LONGS = schema_of(*(field(i, f"n{i}", "long") for i in range(1, 5)))


def test_row_group_of_whole_files_takes_no_more_than_an_eighth_of_the_memory(tmp_path: Path) -> None:
    schema = schema_of(field(1, "n", "long"))
    files = [write_file(tmp_path, f"{k}.parquet", schema, [{"n": k}] * 10_000) for k in range(12)]
    # A file has 80 kB decoded, so two of them fit.
    found = rewrite(task_of(tmp_path, schema, files, memory_limit_bytes=1_400_000))
    footer = pq.read_metadata(found.path)
    assert [footer.row_group(i).num_rows for i in range(footer.num_row_groups)] == [20_000] * 6
