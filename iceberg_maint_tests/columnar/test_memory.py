"""Tasks that run out of memory, in processes with a limit of their address space, as Spark's Python workers have one."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import iceberg_maint.columnar
from iceberg_maint.columnar.rewrite import rewrite
from iceberg_maint.columnar.storage import raise_shortage
from iceberg_maint.columnar.task import InputFile, RewriteTask
from iceberg_maint_tests.support.columnar.tables import field, schema_of, task_of, write_table

pytestmark = pytest.mark.seconds

LONGS = schema_of(*(field(i, f"n{i}", "long") for i in range(1, 9)))
_PROGRAM = """
import resource, sys
resource.setrlimit(resource.RLIMIT_AS, (int(sys.argv[1]), int(sys.argv[1])))
from iceberg_maint.engines.spark.rewrite.columnar.worker import rewrite_task
print(rewrite_task(sys.stdin.read(), 0))
"""
MIB = 1 << 20


def limited(task: RewriteTask, address_space: int) -> dict[str, Any]:
    """The result of a task in a process with so much address space."""
    program = [sys.executable, "-c", _PROGRAM, str(address_space)]
    done = subprocess.run(program, input=task.to_json(), capture_output=True, text=True, check=True)
    result: dict[str, Any] = json.loads(done.stdout)
    return result


def file_of_longs(folder: Path, rows: int) -> InputFile:
    """A small file whose rows take 64 bytes each."""
    column = pa.array(np.arange(rows) // 65_536)
    table = pa.table([column] * 8, schema=pa.schema([(f"n{i}", pa.int64()) for i in range(1, 9)]))
    ids = [f.with_metadata({"PARQUET:field_id": str(i)}) for i, f in enumerate(table.schema, 1)]
    return write_table(folder, "a.parquet", table.cast(pa.schema(ids)))


def test_rows_that_do_not_fit_the_process_are_streamed(tmp_path: Path) -> None:
    file = file_of_longs(tmp_path, 6_000_000)
    task = task_of(tmp_path, LONGS, [file], memory_limit_bytes=600 * MIB)
    result = limited(task, 750 * MIB)
    assert (result["wrong_input"], result["unsupported"], result["difference"]) == ("", "", "")
    assert (result["out_of_memory"], result["written_records"]) == ("", 6_000_000)


def test_task_without_memory_says_so_and_leaves_no_output(tmp_path: Path) -> None:
    file = file_of_longs(tmp_path, 6_000_000)
    # A part of the rows does not fit either.
    task = task_of(tmp_path, LONGS, [file], memory_limit_bytes=1 << 40)
    result = limited(task, 600 * MIB)
    assert (result["wrong_input"], result["unsupported"], result["difference"]) == ("", "", "")
    assert result["out_of_memory"].endswith("failed")
    assert result["content"] is None
    assert list((tmp_path / "out").glob("*")) == []


def test_task_without_memory_for_a_thread_says_so_and_leaves_no_output(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_thread(_thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    task = task_of(tmp_path, LONGS, [file_of_longs(tmp_path, 100_000)], memory_limit_bytes=MIB)
    monkeypatch.setattr(threading.Thread, "start", no_thread)
    with pytest.raises(MemoryError, match=r"^can't start new thread$"):
        rewrite(task)
    assert list((tmp_path / "out").glob("*")) == []


@pytest.mark.parametrize(
    "error",
    [
        pa.ArrowMemoryError("realloc of size 64 failed"),
        MemoryError(),
        OSError(12, "Cannot allocate memory"),
        OSError("ZSTD decompression failed: Allocation error : not enough memory"),
        RuntimeError("can't start new thread"),
    ],
    ids=["arrow", "python", "system", "codec", "thread"],
)
def test_shortage_is_told_from_damage(error: Exception) -> None:
    with pytest.raises(MemoryError) as found:
        raise_shortage(error)
    assert not isinstance(found.value, pa.ArrowException)
    raise_shortage(pa.ArrowInvalid("Parquet magic bytes not found in footer."))
    raise_shortage(OSError("ZSTD decompression failed: Data corruption detected"))


def handlers() -> Iterator[tuple[str, ast.ExceptHandler]]:
    for file in sorted(Path(iceberg_maint.columnar.__path__[0]).rglob("*.py")):
        for node in ast.walk(ast.parse(file.read_text())):
            kind = node.type if isinstance(node, ast.ExceptHandler) else None
            if kind is not None and "ArrowException" in ast.unparse(kind):
                yield f"{file.name}:{node.lineno}", node


def test_every_handler_of_arrow_errors_tells_a_shortage_apart() -> None:
    found = {place: ast.unparse(node.body[0]) for place, node in handlers()}
    assert len(found) == 12
    again = "if not is_shortage(why):\n    raise"
    assert {p for p, first in found.items() if first not in ("raise_shortage(why)", again)} == set()


TEXTS = schema_of(field(1, "text", "string"))


def file_of_texts(folder: Path, rows: int, size_bytes: int, **options: Any) -> InputFile:
    """A small file of long texts, which no two rows share."""
    texts = pa.array((f"{n:08d}" + "a" * (size_bytes - 8) for n in range(rows)), pa.string())
    kind = pa.field("text", pa.string(), metadata={"PARQUET:field_id": "1"})
    table = pa.table([texts], schema=pa.schema([kind]))
    return write_table(folder, "t.parquet", table, compression="zstd", use_dictionary=False, **options)


def test_texts_that_take_more_than_the_memory_of_a_task_are_streamed_within_it(tmp_path: Path) -> None:
    # 480 MB of texts in a small file, which was decoded as a whole.
    file = file_of_texts(tmp_path, 24_000, 20_000)
    assert file.size_bytes < MIB
    result = limited(task_of(tmp_path, TEXTS, [file], memory_limit_bytes=128 * MIB), 640 * MIB)
    assert (result["wrong_input"], result["unsupported"], result["difference"]) == ("", "", "")
    assert (result["out_of_memory"], result["written_records"]) == ("", 24_000)


def test_row_that_exceeds_the_memory_of_a_task_is_refused_before_it_is_decoded(tmp_path: Path) -> None:
    file = file_of_texts(tmp_path, 3, 40 * MIB)
    task = task_of(tmp_path, TEXTS, [file], memory_limit_bytes=128 * MIB)
    with pytest.raises(MemoryError, match=rf"t.parquet has rows of {40 * MIB + 14} bytes$"):
        rewrite(task)
    assert not Path(task.output_path).exists()
