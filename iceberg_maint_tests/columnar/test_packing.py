"""Small files that are packed have their rows. What is not known to be sound is not packed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from iceberg_maint.columnar.parquet.parquet_metadata import ParquetBytes
from iceberg_maint.columnar.read.packing import _DATA, MOST_BYTES, SmallFile, is_small, packed

SCHEMA = pa.schema(
    [
        pa.field("id", pa.int64(), nullable=False, metadata={"PARQUET:field_id": "1"}),
        pa.field("text", pa.string(), metadata={"PARQUET:field_id": "2"}),
        pa.field("flag", pa.bool_(), metadata={"PARQUET:field_id": "3"}),
        pa.field("price", pa.float64(), metadata={"PARQUET:field_id": "4"}),
        pa.field("amount", pa.decimal128(9, 2), metadata={"PARQUET:field_id": "5"}),
        pa.field("at", pa.timestamp("us", "UTC"), metadata={"PARQUET:field_id": "6"}),
        pa.field("code", pa.binary(3), metadata={"PARQUET:field_id": "7"}),
        pa.field("day", pa.date32(), metadata={"PARQUET:field_id": "8"}),
    ]
)


def rows(start: int, count: int) -> pa.Table:
    numbers = range(start, start + count)
    columns = [
        pa.array(numbers, pa.int64()),
        pa.array([None if n % 5 == 0 else f"ż{n % 7}" * (n % 3) for n in numbers]),
        pa.array([None if n % 4 == 0 else n % 3 == 0 for n in numbers], pa.bool_()),
        pa.array([float("nan") if n % 9 == 0 else -0.0 if n % 2 else n / 7 for n in numbers]),
        pa.array([None if n % 6 == 0 else n for n in numbers], pa.int64()).cast(pa.decimal128(19, 0)).cast(pa.decimal128(21, 2)).cast(pa.decimal128(9, 2)),
        pa.array(numbers, pa.int64()).cast(pa.timestamp("us", "UTC")),
        pa.array([None if n % 8 == 0 else bytes([n % 256, 0, 1]) for n in numbers], pa.binary(3)),
        pa.nulls(count, pa.date32()),
    ]  # fmt: skip
    return pa.table(columns, schema=SCHEMA)


def written(table: pa.Table, **options: Any) -> bytes:
    sink = pa.BufferOutputStream()
    given = {"compression": "zstd", "store_schema": False, "write_page_checksum": True, **options}
    pq.write_table(table, sink, **given)
    return bytes(sink.getvalue())


def small(contents: bytes) -> SmallFile:
    return SmallFile(contents, pq.ParquetFile(pa.BufferReader(contents)).metadata)


def read(contents: Any) -> pa.Table:
    return pq.ParquetFile(pa.BufferReader(contents)).read()


OPTIONS: dict[str, dict[str, Any]] = {
    "checksums": {},
    "sizes in the frames": {"write_page_checksum": False},
    "plain pages": {"use_dictionary": False},
    "an Arrow schema": {"store_schema": True},
}


def test_file_is_small_by_its_size_or_by_the_mean_size_of_its_column_chunks() -> None:
    sizes = [(MOST_BYTES, 1), (MOST_BYTES + 1, 64), (2_000 * 4_096, 2_000), (2_000 * 4_096 + 1, 2_000)]
    assert [is_small(*size) for size in sizes] == [True, False, True, False]


@pytest.mark.parametrize("name", OPTIONS)
def test_packed_files_have_their_rows_in_order(name: str) -> None:
    tables = [rows(100 * i, count) for i, count in enumerate([1, 300, 7, 2_000] * 5)]
    contents = packed([small(written(t, **OPTIONS[name])) for t in tables])
    assert contents is not None
    file = pq.ParquetFile(pa.BufferReader(contents))
    assert file.metadata.num_row_groups == len(tables)
    found, expected = file.read(), pa.concat_tables(tables)
    assert found.schema.remove_metadata().equals(SCHEMA, check_metadata=True)
    assert found.num_rows == expected.num_rows
    for column in SCHEMA.names:
        # NaN is no equal of itself, but its text is.
        assert found.column(column).to_pylist().__repr__() == expected.column(column).to_pylist().__repr__()


def changed_page(edit: Callable[[bytearray, int], None], **options: Any) -> bytes:
    """A file whose first page is edited. The edit gets the offset of the page's contents."""
    contents = bytearray(written(rows(0, 500), use_dictionary=False, **options))
    [page] = ParquetBytes.of(bytes(contents)).chunk(0, 0).pages()
    edit(contents, contents.index(b"\x28\xb5\x2f\xfd", page.offset))
    return bytes(contents)


def flip(contents: bytearray, frame: int) -> None:
    contents[frame + 40] ^= 1


def headers_changed(edits: dict[int, tuple[int, int]], **options: Any) -> bytes:
    """A file with changes in the headers of its pages: by column, the group of the pattern and the number to add to its
    first byte."""
    contents = bytearray(written(rows(0, 500), use_dictionary=False, **options))
    file = ParquetBytes.of(bytes(contents))
    for column, (group, change) in edits.items():
        [page] = file.chunk(0, column).pages()
        found = _DATA.match(contents, page.offset)
        assert found is not None
        contents[found.start(group)] += change
    return bytes(contents)


NESTED = pa.table({"list": pa.array([[1, 2], None])})
DOTTED = pa.table({"a.b": pa.array([1, 2])})
OTHER_WIDTH = rows(0, 10).set_column(
    0, SCHEMA.field(0).with_type(pa.int32()), pa.array(range(10), pa.int32())
)
OTHER_ID = rows(0, 10).cast(SCHEMA.set(0, SCHEMA.field(0).with_metadata({"PARQUET:field_id": "9"})))
NOT_PACKED: dict[str, bytes] = {
    "another codec": written(rows(0, 10), compression="snappy"),
    "no codec": written(rows(0, 10), compression="none"),
    "several row groups": written(rows(0, 10), row_group_size=5),
    "several pages": written(rows(0, 500), use_dictionary=False, max_rows_per_page=100),
    "pages of version 2": written(rows(0, 500), data_page_version="2.0"),
    "no rows": written(rows(0, 0)),
    "a type of another width": written(OTHER_WIDTH),
    "another field id": written(OTHER_ID),
    "another Arrow schema": written(rows(0, 10), store_schema=True),
    "a page with a wrong checksum": changed_page(flip, compression_level=1),
    # Together, the pages have the stated size.
    "frames that state other sizes": headers_changed({0: (1, 2), 5: (1, -2)}, write_page_checksum=False),
    "a page with more bytes than its header states": headers_changed({0: (1, -2)}),
    "a page with fewer bytes than its header states": headers_changed({0: (1, 2)}),
    "a page with another number of values": headers_changed({0: (4, 2)}),
}


@pytest.mark.parametrize("name", NOT_PACKED)
def test_file_of_another_form_is_not_packed(name: str) -> None:
    sound = small(written(rows(0, 100)))
    assert packed([sound]) is not None
    assert packed([sound, small(NOT_PACKED[name])]) is None


@pytest.mark.parametrize("table", [NESTED, DOTTED], ids=["a list", "a name with a dot"])
def test_columns_that_are_not_flat_are_not_packed(table: pa.Table) -> None:
    assert packed([small(written(table))]) is None
