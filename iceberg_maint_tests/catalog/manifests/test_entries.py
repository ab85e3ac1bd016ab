"""Live entries whole, inheritance resolved as the spec has it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from pyiceberg.io.pyarrow import PyArrowFileIO
from pyiceberg.schema import Schema
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import DoubleType, LongType, NestedField

from iceberg_maint.catalog.manifests.entries import read_entries
from iceberg_maint.catalog.manifests.reader import read_manifest_list
from iceberg_maint.core.model.table_state import FileKind, Manifest
from iceberg_maint.errors import UnreadableTableError
from iceberg_maint_tests.support.catalog.table_files import (
    DELETED,
    EXISTING,
    File,
    ManifestFile,
    TableFiles,
    spec,
)

IO = PyArrowFileIO()
SCHEMA = Schema(NestedField(1, "d", DoubleType()), NestedField(2, "n", LongType()))
BY_D, BY_NONE = spec(0, (1, 1000, IdentityTransform(), "d")), spec(0)


def written(
    folder: Path, *files: File, by: object = BY_NONE, deletes: bool = False, version: int = 2
) -> Manifest:
    """A manifest of these entries, of sequence number 7 and snapshot 70, as its list has it."""
    table = TableFiles(folder, SCHEMA, [by])  # type: ignore[list-item]
    manifest = ManifestFile(files, by, 7, 70, is_deletes=deletes, version=version)  # type: ignore[arg-type]
    table.commit([manifest], snapshot_id=70, sequence_number=7, timestamp_ms=1)
    [listed] = read_manifest_list(IO, table.snapshots[0]["manifest-list"])
    return listed


def numbers(manifest: Manifest) -> Sequence[tuple[object, ...]]:
    return [
        (e.path, e.data_sequence_number, e.file_sequence_number, e.snapshot_id, e.first_row_id)
        for e in read_entries(IO, manifest)
    ]


def test_added_entries_inherit_from_their_manifest(tmp_path: Path) -> None:
    existing = File("b", status=EXISTING, snapshot_id=50, sequence_number=5)
    found = written(
        tmp_path, File("a"), existing, File("c", status=DELETED, snapshot_id=70, sequence_number=6)
    )
    assert numbers(found) == [("a", 7, 7, 70, None), ("b", 5, 5, 50, None)]


def test_row_ids_are_counted_over_the_data_files_that_have_none(tmp_path: Path) -> None:
    gone = File("b", status=DELETED, snapshot_id=70, sequence_number=6)
    found = replace(
        written(tmp_path, File("a", records=3), gone, File("c", records=5), File("d")), first_row_id=40
    )
    assert [n[-1] for n in numbers(found)] == [40, 43, 48]


def test_deletes_have_no_row_ids(tmp_path: Path) -> None:
    vector = File("v", content=1, file_format="PUFFIN", referenced_data_file="a", content_offset=4)
    found = written(tmp_path, vector, File("e", content=2), deletes=True)
    [first, second] = read_entries(IO, replace(found, first_row_id=40))
    assert (first.kind, second.kind) == (FileKind.DELETION_VECTOR, FileKind.EQUALITY_DELETES)
    assert first.first_row_id is None


def test_equality_deletes_have_the_columns_they_go_by(tmp_path: Path) -> None:
    """Without them, or with others, the same file deletes other rows."""
    files = (File("e", content=2, equality_ids=(2, 1)), File("f", content=2, equality_ids=(1,)))
    found = written(tmp_path, *files, File("p", content=1), deletes=True)
    assert [e.equality_ids for e in read_entries(IO, found)] == [(2, 1), (1,), None]


def test_entries_have_bounds_of_all_columns_ordered_by_column(tmp_path: Path) -> None:
    """A writer may store the columns of a map in any order."""
    bounds = {"lower_bounds": {2: b"b", 1: b"a"}, "upper_bounds": {1: b"y", 2: b"z"}}
    turned = {name: dict(reversed(of.items())) for name, of in bounds.items()}
    found = written(
        tmp_path,
        File("a", sort_order_id=3, **bounds),  # type: ignore[arg-type]
        File("b", **turned),  # type: ignore[arg-type]
        File("c", sort_order_id=0),
    )
    [first, second, third] = read_entries(IO, found)
    both = (((1, b"a"), (2, b"b")), ((1, b"y"), (2, b"z")))
    assert (first.statistics[4:], second.statistics[4:], third.statistics[4:]) == (both, both, ((), ()))
    assert (first.sort_order_id, second.sort_order_id, third.sort_order_id) == (3, 0, 0)
    assert first.file_format == "PARQUET"


def test_entries_have_the_split_offsets_that_are_stated(tmp_path: Path) -> None:
    found = written(tmp_path, File("a", split_offsets=(4, 1000)), File("b"))
    assert [e.split_offsets for e in read_entries(IO, found)] == [(4, 1000), ()]


def test_blob_of_a_vector_is_part_of_its_entry(tmp_path: Path) -> None:
    vector = File(
        "v", content=1, file_format="PUFFIN", referenced_data_file="a", content_offset=4, content_bytes=31
    )
    [entry] = read_entries(IO, written(tmp_path, vector, deletes=True, version=3))
    assert (entry.content_offset, entry.content_size_bytes, entry.size_bytes) == (4, 31, 1000)


def test_float_partitions_are_distinguished_by_their_bits(tmp_path: Path) -> None:
    values = (0.0, -0.0, float("nan"))
    found = written(tmp_path, *(File(f"f{n}", (v,)) for n, v in enumerate(values)), by=BY_D)
    once, again = read_entries(IO, found), read_entries(IO, found)
    assert once == again
    assert len({e.partition for e in once}) == 3


def test_manifest_of_other_entries_than_listed_is_refused(tmp_path: Path) -> None:
    found = replace(written(tmp_path, File("a")), added_files=2)
    with pytest.raises(UnreadableTableError, match=r"ICM-101 manifest .* holds 1 live entries"):
        read_entries(IO, found)
