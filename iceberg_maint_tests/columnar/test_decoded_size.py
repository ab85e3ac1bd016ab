"""Decoded rows are bounded before they are decoded: small files may hold gigabytes of equal values."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from iceberg_maint.columnar.read.schema import arrow_schema, table_schema
from iceberg_maint.columnar.read.source import DecodedSizeError, check_decoded_size
from iceberg_maint.columnar.rewrite import rewrite
from iceberg_maint.columnar.storage import Storage
from iceberg_maint.columnar.task import InputFile, WrongInputError
from iceberg_maint_tests.support.columnar.tables import field, schema_of, task_of, write_table

MIB = 1 << 20
LONGS = {"type": "list", "element-id": 11, "element": "long", "element-required": False}
TEXT = {"type": "struct", "fields": [field(11, "x", "string")]}
ZSTANDARD = b"\x28\xb5\x2f\xfd"
"""The first bytes of a compressed page."""
NUMBER = schema_of(field(1, "c", "long"))


def file_of(folder: Path, kind: Any, values: Any, **options: Any) -> tuple[str, InputFile]:
    schema = schema_of(field(1, "c", kind))
    columns = arrow_schema(table_schema(schema, lineage=False))
    data = values if isinstance(values, pa.Array) else pa.array(values, columns.field(0).type)
    table = pa.table([data.cast(columns.field(0).type)], schema=columns)
    return schema, write_table(folder, "a.parquet", table, compression="zstd", **options)


def is_within(schema: str, file: InputFile, most_bytes: int) -> bool:
    table = table_schema(schema, lineage=False)
    try:
        check_decoded_size([(file, Storage({}).read(file.path))], table, most_bytes)
    except DecodedSizeError:
        return False
    return True


def equal_numbers(count: int) -> pa.Array:
    return pa.ListArray.from_arrays(pa.array([0, count], pa.int32()), pa.array(np.ones(count, np.int64)))


@pytest.mark.parametrize(
    ("kind", "values", "options"),
    [
        (LONGS, equal_numbers(4 * MIB), {}),
        ("string", ["x" * 10_000] * 10_000, {}),
        ("string", ["x" * 10_000] * 10_000, {"use_dictionary": False}),
        (
            "string",
            ["x" * 10_000] * 10_000,
            {"use_dictionary": False, "column_encoding": {"c": "DELTA_BYTE_ARRAY"}},
        ),
        ("binary", [b"x" * 10_000] * 10_000, {}),
        ("fixed[10000]", [b"x" * 10_000] * 10_000, {}),
        (TEXT, [{"x": "x" * 10_000}] * 10_000, {}),
    ],
    ids=["list", "dictionary", "plain", "prefixes", "binary", "fixed", "struct"],
)
def test_small_file_of_many_equal_values_is_refused_before_it_is_decoded(
    tmp_path: Path, kind: Any, values: Any, options: dict[str, Any]
) -> None:
    schema, file = file_of(tmp_path, kind, values, **options)
    assert file.size_bytes < MIB
    before = pa.total_allocated_bytes()
    values = None
    with pytest.raises(DecodedSizeError, match=r"a\.parquet: up to \d+ bytes"):
        rewrite(task_of(tmp_path, schema, [file]), 64 * MIB)
    assert pa.total_allocated_bytes() - before < MIB
    assert [p.name for p in tmp_path.iterdir()] == ["a.parquet"]


def test_dictionaries_tell_many_different_texts_from_many_long_ones(tmp_path: Path) -> None:
    # By its footer, each of the 20,000 values may be as long as the 800 kB of the dictionary.
    schema, file = file_of(tmp_path, "string", [f"{n:036d}" for n in range(20_000)])
    assert (is_within(schema, file, 4 * MIB), is_within(schema, file, MIB)) == (True, False)


@pytest.mark.parametrize(("length", "within"), [(100, True), (4000, False)])
def test_default_and_partition_value_of_a_column_that_files_lack_count_for_each_row(
    tmp_path: Path, length: int, within: bool
) -> None:
    _, file = file_of(tmp_path, "long", [1] * 20_000)
    default = schema_of(field(1, "c", "long"), field(2, "d", "string", **{"initial-default": "x" * length}))
    partitioned = replace(file, constants={2: "x" * length})
    assert is_within(default, file, 16 * MIB) is within
    assert is_within(NUMBER, partitioned, 16 * MIB) is within


def cut_in_half(contents: bytes) -> bytes:
    return contents[: len(contents) // 2]


def without_footer(contents: bytes) -> bytes:
    return contents[:-600] + bytes(600)


def with_another_dictionary(contents: bytes) -> bytes:
    at = contents.index(ZSTANDARD) + len(ZSTANDARD)
    return contents[:at] + b"\xff" * 20 + contents[at + 20 :]


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (cut_in_half, r"a\.parquet has \d+ bytes; its manifest states \d+\."),
        (with_another_dictionary, r"a\.parquet cannot be read as Parquet: "),
        (without_footer, r"a\.parquet cannot be read as Parquet: Parquet magic bytes not found in footer"),
    ],
    ids=["cut off", "dictionary", "footer"],
)
def test_damaged_file_is_named_before_it_is_decoded(
    tmp_path: Path, damage: Callable[[bytes], bytes], message: str
) -> None:
    # By its footer, the rows are too large; its dictionary is read for their true size.
    schema, file = file_of(tmp_path, "string", [f"{n:036d}" for n in range(20_000)])
    Path(file.path).write_bytes(damage(Path(file.path).read_bytes()))
    with pytest.raises(WrongInputError, match=message):
        rewrite(task_of(tmp_path, schema, [file]), 4 * MIB)
    assert [p.name for p in tmp_path.iterdir()] == ["a.parquet"]


def test_rows_within_the_bound_are_rewritten_as_without_one(tmp_path: Path) -> None:
    schema, file = file_of(tmp_path, "string", ["a", None, "b" * 300])
    task = task_of(tmp_path, schema, [file])
    bounded = rewrite(replace(task, output_path=str(tmp_path / "bounded.parquet")), MIB)
    assert (bounded.proof.difference, bounded.digest) == ("", rewrite(task).digest)
