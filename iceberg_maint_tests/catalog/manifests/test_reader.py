"""Manifests as values: inheritance, statuses, kinds, and what is refused."""

from __future__ import annotations

import math
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import NoReturn
from uuid import UUID

import pytest
from pyiceberg.io.pyarrow import PyArrowFileIO
from pyiceberg.manifest import DATA_FILE_TYPE
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import IdentityTransform
from pyiceberg.typedef import Record
from pyiceberg.types import DecimalType, DoubleType, FixedType, LongType, NestedField, StringType, UUIDType

from iceberg_maint.catalog.manifests import reader
from iceberg_maint.catalog.manifests.metadata_file import read_bytes
from iceberg_maint.catalog.manifests.reader import (
    DELETE_FILE_PATH,
    DELETION_VECTOR,
    EQUALITY_DELETES,
    PATH,
    POSITION_DELETES,
    first_row_ids,
    has_live_files,
    make_reader,
    read_live_entries,
    read_manifest_list,
)
from iceberg_maint.core.model import partition_key as core
from iceberg_maint.core.model.partition_key import encode_partition
from iceberg_maint.core.model.table_state import NO_ROW_IDS, EntryStatus, FileKind, Manifest
from iceberg_maint.core.outcomes.failures import ENVIRONMENT_CODES
from iceberg_maint.errors import UnreadableTableError
from iceberg_maint_tests.support.catalog.table_files import (
    DELETED,
    EXISTING,
    File,
    ManifestFile,
    TableFiles,
    spec,
)

IO = PyArrowFileIO({})
SCHEMA = Schema(
    NestedField(1, "id", LongType(), required=False),
    NestedField(2, "region", StringType(), required=False),
    NestedField(3, "ratio", DoubleType(), required=False),
)
UNPARTITIONED = spec(0)


def manifest(
    folder: Path, *files: File, by: PartitionSpec = UNPARTITIONED, version: int = 2, **options: object
) -> Manifest:
    """The manifest of these files, as its manifest list tells of it."""
    table = TableFiles(folder, SCHEMA, [by], format_version=version)
    written = ManifestFile(files, by, options.pop("sequence_number", 5), 55, version=version, **options)
    table.commit([written], snapshot_id=55, sequence_number=5, timestamp_ms=1000)
    [found] = read_manifest_list(IO, table.snapshots[0]["manifest-list"])
    return found


def test_live_entries_added_entry_inherits_sequence_number_and_snapshot(tmp_path: Path) -> None:
    found = read_live_entries(
        IO, manifest(tmp_path, File("a"), File("b", sequence_number=3, snapshot_id=33)), "t"
    )
    assert found.sequence_number.tolist() == [5, 3]
    assert found.snapshot_id.tolist() == [55, 33]


def test_live_entries_existing_entry_without_sequence_number_is_refused(tmp_path: Path) -> None:
    found = manifest(tmp_path, File("a", status=EXISTING, snapshot_id=1))
    with pytest.raises(
        UnreadableTableError, match="entry of status EXISTING without a sequence number"
    ) as refused:
        read_live_entries(IO, found, "lake.db.t")
    assert refused.value.code == "ICM-101"
    with pytest.raises(UnreadableTableError):
        list(make_reader(IO)(found.path, found.sequence_number, found.added_snapshot_id))


def test_live_entries_existing_entry_of_a_v1_manifest_has_number_zero(tmp_path: Path) -> None:
    found = manifest(
        tmp_path, File("a", status=EXISTING, snapshot_id=1), File("b", snapshot_id=55), version=1
    )
    assert (found.sequence_number, found.is_deletes) == (0, False)
    entries = read_live_entries(IO, found, "t")
    assert entries.sequence_number.tolist() == [0, 0]
    assert entries.kind.tolist() == [0, 0]


def test_live_entries_deleted_entry_is_not_live_and_is_read_by_the_reader(tmp_path: Path) -> None:
    gone = File("gone", status=DELETED, sequence_number=2, snapshot_id=55)
    found = manifest(tmp_path, File("a"), gone)
    assert read_live_entries(IO, found, "t", (PATH,)).more == (["a"],)
    entries = list(make_reader(IO)(found.path, found.sequence_number, found.added_snapshot_id))
    assert [(e.path, e.status, e.snapshot_id, e.data_sequence_number) for e in entries] == [
        ("a", EntryStatus.ADDED, 55, 5),
        ("gone", EntryStatus.DELETED, 55, 2),
    ]


def test_manifest_of_deleted_entries_only_has_no_live_files(tmp_path: Path) -> None:
    gone = File("gone", status=DELETED, sequence_number=2)
    assert not has_live_files(manifest(tmp_path / "a", gone))
    assert has_live_files(manifest(tmp_path / "b", gone, File("a")))
    unknown = replace(manifest(tmp_path / "c", gone), existing_files=None)
    assert has_live_files(unknown)


def test_live_entries_kinds_and_sizes_of_deletes(tmp_path: Path) -> None:
    vector = {"content": 1, "file_format": "puffin", "referenced_data_file": "a", "content_offset": 4}
    found = manifest(
        tmp_path,
        File("p", content=1, size_bytes=100),
        File("e", content=2, size_bytes=200, equality_ids=(1,)),
        File("v.puffin", size_bytes=9000, content_bytes=40, **vector),
        File("v.puffin", size_bytes=9000, content_bytes=50, **vector),
        is_deletes=True,
        version=3,
    )
    entries = read_live_entries(IO, found, "t")
    assert entries.kind.tolist() == [POSITION_DELETES, EQUALITY_DELETES, DELETION_VECTOR, DELETION_VECTOR]
    assert entries.size_bytes.tolist() == [100, 200, 40, 50]
    read = list(make_reader(IO)(found.path, 5, 55))
    assert [e.kind for e in read] == [
        FileKind.POSITION_DELETES,
        FileKind.EQUALITY_DELETES,
        *[FileKind.DELETION_VECTOR] * 2,
    ]
    assert [e.size_bytes for e in read] == [100, 200, 40, 50]
    assert (read[3].referenced_data_file, read[3].content_offset) == ("a", 4)


def test_reader_names_the_data_file_of_position_deletes_as_stated_or_from_the_bounds(tmp_path: Path) -> None:
    """A writer that states the data file may leave out the bounds."""
    of_b, no_text = {DELETE_FILE_PATH: b"b"}, {DELETE_FILE_PATH: b"\xff\xfe"}
    found = manifest(
        tmp_path,
        File("stated", content=1, referenced_data_file="a"),
        File("by bounds", content=1, lower_bounds=of_b, upper_bounds=of_b),
        File("unknown", content=1),
        File("no text", content=1, lower_bounds=no_text, upper_bounds=no_text),
        is_deletes=True,
        version=3,
    )
    read = make_reader(IO)(found.path, 5, 55)
    assert [e.referenced_data_file for e in read] == ["a", "b", None, None]


def test_field_ids_of_manifest_entries_are_those_of_the_spec() -> None:
    ids = {f.name: f.field_id for version in (1, 2, 3) for f in DATA_FILE_TYPE[version].fields}
    ours = (reader.COLUMN_SIZES, reader.VALUE_COUNTS, reader.NULL_COUNTS, reader.NAN_COUNTS)
    statistics = ("column_sizes", "value_counts", "null_value_counts", "nan_value_counts")
    assert ours == tuple(ids[name] for name in statistics)
    others = (reader.LOWER_BOUNDS, reader.UPPER_BOUNDS, reader.KEY_METADATA, reader.SPLIT_OFFSETS)
    assert others == tuple(ids[n] for n in ("lower_bounds", "upper_bounds", "key_metadata", "split_offsets"))


@pytest.mark.parametrize(
    ("field", "listed", "message"),
    [
        ("added_files_count", 3, "holds 2 added entries, but the manifest list counts 3"),
        ("existing_files_count", 0, "holds 1 existing entries, but the manifest list counts 0"),
        ("deleted_files_count", 7, "holds 1 deleted entries, but the manifest list counts 7"),
        ("added_rows_count", 21, "holds 20 added rows, but the manifest list counts 21"),
        ("existing_rows_count", 11, "holds 10 existing rows, but the manifest list counts 11"),
    ],
)
def test_live_entries_counts_that_contradict_the_manifest_list_are_refused(
    tmp_path: Path, field: str, listed: int, message: str
) -> None:
    files = (
        *(File("a"), File("b")),
        File("c", status=EXISTING, sequence_number=1),
        File("d", status=DELETED, sequence_number=1),
    )
    found = manifest(tmp_path, *files, wrong={field: listed})
    with pytest.raises(UnreadableTableError) as refused:
        read_live_entries(IO, found, "lake.db.t")
    assert refused.value.code == "ICM-101"
    assert message in str(refused.value)
    assert "lake.db.t" in str(refused.value)
    assert found.path in str(refused.value)


def test_live_entry_older_than_the_manifest_list_says_is_refused(tmp_path: Path) -> None:
    files = (
        File("a"),
        File("c", status=EXISTING, sequence_number=3),
        File("d", status=DELETED, sequence_number=1),
    )
    right = manifest(tmp_path, *files, wrong={"min_sequence_number": 3})
    assert read_live_entries(IO, right, "lake.db.t").sequence_number.min() == 3
    wrong = manifest(tmp_path, *files, wrong={"min_sequence_number": 4})
    with pytest.raises(UnreadableTableError) as refused:
        read_live_entries(IO, wrong, "lake.db.t")
    assert refused.value.code == "ICM-101"
    assert (
        "holds a live entry with data sequence number 3, but the manifest list says that the lowest is 4"
        in str(refused.value)
    )


@pytest.mark.parametrize(
    ("own", "of_manifest", "row_ids"),
    [([None, 5, None], 40, [40, 5, 43]), ([None, 5], None, [NO_ROW_IDS, 5]), ([], 40, [])],
)
def test_row_ids_are_inherited_by_the_entries_that_have_none(
    own: list[int | None], of_manifest: int | None, row_ids: list[int]
) -> None:
    assert first_row_ids(own, [3, 1, 2][: len(own)], of_manifest) == row_ids


def test_live_entries_counts_a_v1_writer_left_out_are_not_compared(tmp_path: Path) -> None:
    absent = dict.fromkeys(
        (
            "added_files_count",
            "existing_files_count",
            "deleted_files_count",
            "added_rows_count",
            "existing_rows_count",
        )
    )
    found = manifest(tmp_path, File("a", snapshot_id=55), version=1, wrong=absent)
    assert (found.added_files, found.existing_rows) == (None, None)
    assert len(read_live_entries(IO, found, "t")) == 1


def test_live_entries_zero_minus_zero_and_nan_are_three_partitions(tmp_path: Path) -> None:
    by = spec(0, (3, 1000, IdentityTransform(), "ratio"))
    values = (0.0, -0.0, math.nan, 0.1, None, -0.0)
    found = read_live_entries(
        IO, manifest(tmp_path, *(File(f"{n}", (v,)) for n, v in enumerate(values)), by=by), "t"
    )
    assert [repr(p) for p in found.partitions] == ["(0.0,)", "(-0.0,)", "(nan,)", "(0.1,)", "(None,)"]
    assert found.partition.tolist() == [0, 1, 2, 3, 4, 1]


@pytest.mark.parametrize(("spoil", "message"), [("delete", "is missing"), ("truncate", "cannot be read")])
def test_live_entries_file_that_is_gone_or_spoilt_is_refused(
    tmp_path: Path, spoil: str, message: str
) -> None:
    found = manifest(tmp_path, File("a"))
    path = Path(found.path.removeprefix("file://"))
    if spoil == "delete":
        path.unlink()
    else:
        path.write_bytes(path.read_bytes()[:-30])
    with pytest.raises(UnreadableTableError, match=message) as refused:
        read_live_entries(IO, found, "lake.db.t")
    assert refused.value.code == "ICM-101"


def test_live_entries_partitions_of_equal_uuid_fixed_and_decimal_types_are_distinguished(
    tmp_path: Path,
) -> None:
    # Java defines such a type once and refers to it by name, which PyIceberg's own reader cannot resolve.
    types = (UUIDType(), UUIDType(), FixedType(2), FixedType(2), DecimalType(9, 2), DecimalType(9, 2))
    schema = Schema(*(NestedField(n, f"c{n}", t, required=False) for n, t in enumerate(types, 1)))
    by = spec(0, *((n, 999 + n, IdentityTransform(), f"c{n}") for n in range(1, 7)))
    values = (UUID(int=1), UUID(int=2), b"ab", b"\x00\xff", Decimal("1.10"), Decimal("-7.00"))
    table = TableFiles(tmp_path, schema, [by])
    rows = (File("a", values), File("b", (None,) * 6), File("c", values))
    table.commit([ManifestFile(rows, by, 1, 1)], snapshot_id=1, sequence_number=1, timestamp_ms=1)
    [found] = read_manifest_list(IO, table.snapshots[0]["manifest-list"])
    entries = read_live_entries(IO, found, "t")
    assert entries.partitions == (values, (None,) * 6)
    assert entries.partition.tolist() == [0, 1, 0]
    [key, nulls] = [encode_partition(_core_spec(by, schema), p, 0) for p in entries.partitions]
    assert key == f"c1={UUID(int=1)}/c2={UUID(int=2)}/c3=6162/c4=00ff/c5=1.10/c6=-7.00"
    assert nulls == "c1/c2/c3/c4/c5/c6"


def test_manifest_list_bounds_of_a_partition_field_stand_behind_its_flags(tmp_path: Path) -> None:
    found = manifest(tmp_path, File("a"), wrong={"partitions": [Record(True, False, b"a", b"b")]})
    assert found.bounds == ((b"a", b"b"),)


def _core_spec(by: PartitionSpec, schema: Schema) -> core.PartitionSpec:
    kinds = {f.field_id: str(f.field_type) for f in schema.fields}
    fields = (
        core.PartitionField(f.field_id, f.source_id, f.name, "identity", kinds[f.source_id])
        for f in by.fields
    )
    return core.PartitionSpec(by.spec_id, tuple(fields))


class _Refusing:
    """A FileIO whose store refuses."""

    def __init__(self, error: Exception) -> None:
        self._error = error

    def new_input(self, location: str) -> NoReturn:
        raise self._error


@pytest.mark.parametrize(
    ("error", "code", "fix"),
    [
        (OSError("AWS Error ACCESS_DENIED during HeadObject operation"), "ICM-125", "credentials"),
        (PermissionError(13, "Permission denied"), "ICM-125", "credentials"),
        (OSError("AWS Error NETWORK_CONNECTION during HeadObject operation"), "ICM-133", "s3.endpoint"),
        # S3 answers a HEAD request without a text: to an expired token, and to a signature for another region.
        (OSError("AWS Error UNKNOWN (HTTP status 400) during HeadObject operation"), "ICM-133", "s3.region"),
        (OSError("AWS Error UNKNOWN (HTTP status 301) during HeadObject operation"), "ICM-133", "s3.region"),
        # Arrow names key and bucket again.
        (
            OSError(
                "When reading information for key 't' in bucket 'b': AWS Error SLOW_DOWN: No response body."
            ),
            "ICM-133",
            "s3.endpoint",
        ),
        (ModuleNotFoundError("No module named 'adlfs'"), "ICM-133", "install the package"),
        (OSError("truncated"), "ICM-101", "restore the file"),
        (
            FileNotFoundError(2, "no such file"),
            "ICM-101",
            "restore the file, or the bucket 'b' if it is gone",
        ),
    ],
)
def test_store_that_refuses_a_metadata_file_is_an_error_of_the_environment(
    error: Exception, code: str, fix: str
) -> None:
    with pytest.raises(UnreadableTableError) as refused:
        read_bytes(_Refusing(error), "s3://b/t", "metadata file")  # type: ignore[arg-type]
    assert (refused.value.code, fix in refused.value.fix) == (code, True)
    assert "in bucket" not in refused.value.message
    assert (code in ENVIRONMENT_CODES) is (code != "ICM-101")
