"""A file of which some bytes are in memory: what it holds, and what it gives."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from iceberg_maint.columnar.storage import TAIL_BYTES, FileRange, Storage, arrow_file

SIZE = 10 * TAIL_BYTES


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "file"
    path.write_bytes(bytes(i * 7919 % 251 for i in range(SIZE)))
    return path


def test_file_that_is_not_held_has_its_last_bytes_in_memory(path: Path) -> None:
    before = pa.total_allocated_bytes()
    data = FileRange(Storage({}), str(path), SIZE, hold=False)
    assert pa.total_allocated_bytes() - before == TAIL_BYTES
    contents = path.read_bytes()
    for part in (slice(0, 4), slice(-4, None), slice(SIZE - TAIL_BYTES - 1, SIZE), slice(5, 5)):
        assert bytes(data[part]) == contents[part]
    path.unlink()
    assert bytes(data[-TAIL_BYTES:]) == contents[-TAIL_BYTES:]


def test_arrow_reads_a_file_that_is_not_held(path: Path) -> None:
    stream = arrow_file(FileRange(Storage({}), str(path), SIZE, hold=False))
    contents = path.read_bytes()
    assert stream.read_at(1_000, 77) == contents[77:1_077]
    stream.seek(SIZE - 10)
    assert stream.read() == contents[-10:]
    assert stream.read() == b""


def test_range_after_the_end_of_a_file_is_short(path: Path) -> None:
    storage = Storage({})
    assert len(storage.read_range(str(path), SIZE - 3, 10)) == 3
    assert len(storage.read_range(str(path), SIZE + 3, 10)) == 0
