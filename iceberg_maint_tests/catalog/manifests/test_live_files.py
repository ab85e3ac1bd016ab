"""Live entries of real tables, and of manifests written to the spec."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyiceberg.table import Table
from pyiceberg.transforms import IdentityTransform

from iceberg_maint.catalog.adapter import PyIcebergCatalog
from iceberg_maint.core.health.metrics import total
from iceberg_maint.core.model.table_state import FileKind
from iceberg_maint.core.policy.data import RewriteDataFilesPolicy
from iceberg_maint.errors import RefusedError
from iceberg_maint_tests.catalog.conftest import BY_REGION, EVENTS, SCHEMA
from iceberg_maint_tests.support.catalog.table_files import EXISTING, File, ManifestFile, TableFiles, spec

POLICY = RewriteDataFilesPolicy()


def test_live_files_and_health_agree_with_pyicebergs_scan(events: Table, catalog: PyIcebergCatalog) -> None:
    state = catalog.pin(EVENTS)
    measured = catalog.measure(state, POLICY)
    planned = [task.file for task in events.refresh().scan().plan_files()]
    live = catalog.live_files(state, list(measured.partitions))
    assert {f.path: (f.record_count, f.size_bytes) for f in live} == {
        f.file_path: (f.record_count, f.file_size_in_bytes) for f in planned
    }
    whole = total(measured.partitions.values())
    assert (whole.data_files, whole.data_bytes) == (len(planned), sum(f.file_size_in_bytes for f in planned))
    assert set(measured.partitions) == {"region=us", "region"}
    assert {f.path for f in catalog.live_files(state, ["region"])} == {
        f.file_path for f in planned if f.partition[0] is None
    }
    assert catalog.live_files(state, ["region=eu"]) == ()


def test_find_live_finds_files_of_older_snapshots_and_not_removed_or_foreign_ones(
    events: Table, catalog: PyIcebergCatalog
) -> None:
    removed = next(
        t.file.file_path
        for t in events.scan(snapshot_id=events.snapshots()[0].snapshot_id).plan_files()
        if t.file.partition[0] == "eu"
    )
    live = next(iter(events.scan().plan_files())).file.file_path
    state = catalog.pin(EVENTS)
    assert catalog.find_live(state, [removed, live, "never"]) == {removed, live}
    events.maintenance.expire_snapshots().by_ids([s.snapshot_id for s in events.snapshots()[:-1]]).commit()
    assert catalog.find_live(catalog.pin(EVENTS), [removed, live]) == {live}


def test_find_live_of_deletes_finds_delete_files_only(tmp_path: Path, catalog: PyIcebergCatalog) -> None:
    """Deletion vectors share a file, and deletes may be gone from the newest snapshot."""
    table = TableFiles(tmp_path / "t", SCHEMA, [BY_REGION], format_version=3)
    data = ManifestFile((File("eu.parquet", ("eu",)),), BY_REGION, 1, 11)
    vector = File(
        "dv.puffin", ("eu",), content=1, file_format="PUFFIN", referenced_data_file="eu.parquet",
        content_offset=4, content_bytes=40,
    )  # fmt: skip
    deletes = ManifestFile(
        (
            vector,
            File("pos.parquet", ("eu",), content=1),
            File("old.parquet", ("eu",), content=1, status=2, sequence_number=1),
        ),
        BY_REGION, 2, 12, is_deletes=True, version=3,
    )  # fmt: skip
    table.commit([data, deletes], snapshot_id=12, sequence_number=2, timestamp_ms=1)
    table.commit([data], snapshot_id=13, sequence_number=3, timestamp_ms=2)
    table.register(tmp_path / "catalog.db", "db.events")
    state, paths = catalog.pin(EVENTS), ["eu.parquet", "dv.puffin", "pos.parquet", "old.parquet", "never"]
    assert catalog.find_live(state, paths, deletes=True) == {"dv.puffin", "pos.parquet"}
    assert catalog.find_live(state, paths) == {"eu.parquet"}


@pytest.mark.parametrize("name", ["a#1", "a?versionId=1"])
def test_live_files_path_that_names_two_objects_is_refused(
    tmp_path: Path, catalog: PyIcebergCatalog, name: str
) -> None:
    table = TableFiles(tmp_path / "t", SCHEMA, [BY_REGION])
    named = ManifestFile((File(f"s3://b/t/{name}", ("eu",)),), BY_REGION, 1, 11)
    table.commit([named], snapshot_id=11, sequence_number=1, timestamp_ms=1)
    table.register(tmp_path / "catalog.db", "db.events")
    with pytest.raises(RefusedError, match="as 's3://b/t/a'") as refused:
        catalog.live_files(catalog.pin(EVENTS), ["region=eu"])
    assert refused.value.code == "ICM-173"
    assert catalog.live_files(catalog.pin(EVENTS), ["region=us"]) == ()


def test_live_files_data_file_listed_twice_is_refused(tmp_path: Path, catalog: PyIcebergCatalog) -> None:
    table = TableFiles(tmp_path / "t", SCHEMA, [BY_REGION])
    twice = ManifestFile((File("same", ("eu",)),), BY_REGION, 1, 11)
    table.commit([twice, twice], snapshot_id=11, sequence_number=1, timestamp_ms=1)
    table.register(tmp_path / "catalog.db", "db.events")
    with pytest.raises(RefusedError, match="data file same is referenced twice") as refused:
        catalog.live_files(catalog.pin(EVENTS), ["region=eu"])
    assert refused.value.code == "ICM-120"


def test_live_files_carry_deletes_of_the_partition_and_global_equality_deletes(
    tmp_path: Path, catalog: PyIcebergCatalog
) -> None:
    void = spec(1, (2, 1000, IdentityTransform(), "region"))
    unpartitioned = spec(2)
    table = TableFiles(tmp_path / "t", SCHEMA, [BY_REGION, void, unpartitioned], format_version=3)
    data = ManifestFile(
        (File("eu.parquet", ("eu",), sort_order_id=1), File("us.parquet", ("us",))), BY_REGION, 1, 11
    )
    deletes = ManifestFile(
        (
            File(
                "dv.puffin",
                ("eu",),
                content=1,
                file_format="PUFFIN",
                referenced_data_file="eu.parquet",
                content_offset=4,
                content_bytes=40,
            ),
            File("pos.parquet", ("us",), content=1),
            File("eq.parquet", ("eu",), content=2, equality_ids=(1, 2)),
        ),
        BY_REGION,
        2,
        12,
        is_deletes=True,
        version=3,
    )
    everywhere = ManifestFile(
        (File("global.parquet", content=2, equality_ids=(1,)),),
        unpartitioned,
        2,
        12,
        is_deletes=True,
        version=3,
    )
    table.commit([data, deletes, everywhere], snapshot_id=12, sequence_number=2, timestamp_ms=1)
    table.register(tmp_path / "catalog.db", "db.events")
    live = {f.path: f for f in catalog.live_files(catalog.pin(EVENTS), ["region=eu"])}
    assert {p: f.kind for p, f in live.items()} == {
        "eu.parquet": FileKind.DATA,
        "dv.puffin": FileKind.DELETION_VECTOR,
        "eq.parquet": FileKind.EQUALITY_DELETES,
        "global.parquet": FileKind.EQUALITY_DELETES,
    }
    vector = live["dv.puffin"]
    assert (vector.size_bytes, vector.content_offset, vector.referenced_data_file) == (40, 4, "eu.parquet")
    assert (live["eq.parquet"].equality_ids, live["eu.parquet"].sort_order_id) == ((1, 2), 1)
    assert (live["global.parquet"].partition, live["global.parquet"].spec_id) == ("__all__", 2)
    assert live["eq.parquet"].data_sequence_number == 2


def test_position_deletes_of_one_file_name_it_by_their_bounds(
    tmp_path: Path, catalog: PyIcebergCatalog
) -> None:
    """As Spark writes them: without `referenced_data_file`, the bounds of `file_path` are one path."""
    path_id = 2147483546
    one, other = {path_id: b"a.parquet"}, {path_id: b"b.parquet"}
    table = TableFiles(tmp_path / "t", SCHEMA, [BY_REGION])
    data = ManifestFile((File("a.parquet", ("eu",)), File("b.parquet", ("eu",))), BY_REGION, 1, 11)
    deletes = ManifestFile(
        (
            File("of-a", ("eu",), content=1, lower_bounds=one, upper_bounds=one),
            File("of-both", ("eu",), content=1, lower_bounds=one, upper_bounds=other),
            File("unknown", ("eu",), content=1),
            File("equality", ("eu",), content=2, equality_ids=(1,), lower_bounds=one, upper_bounds=one),
        ),
        BY_REGION,
        2,
        12,
        is_deletes=True,
    )
    table.commit([data, deletes], snapshot_id=12, sequence_number=2, timestamp_ms=1)
    table.register(tmp_path / "catalog.db", "db.events")
    live = {f.path: f.referenced_data_file for f in catalog.live_files(catalog.pin(EVENTS), ["region=eu"])}
    assert live == {
        "a.parquet": None,
        "b.parquet": None,
        "of-a": "a.parquet",
        "of-both": None,
        "unknown": None,
        "equality": None,
    }


def test_file_sequence_number_that_is_not_stated_is_inherited_by_added_entries_only(
    tmp_path: Path, catalog: PyIcebergCatalog
) -> None:
    table = TableFiles(tmp_path / "t", SCHEMA, [BY_REGION])
    files = (
        File("added", ("eu",)),
        File("added with its snapshot", ("eu",), snapshot_id=12),
        File("kept", ("eu",), status=EXISTING, snapshot_id=11, sequence_number=1),
    )
    table.commit([ManifestFile(files, BY_REGION, 2, 12)], snapshot_id=12, sequence_number=2, timestamp_ms=1)
    table.register(tmp_path / "catalog.db", "db.events")
    live = {f.path: f.file_sequence_number for f in catalog.live_files(catalog.pin(EVENTS), ["region=eu"])}
    assert live == {"added": 2, "added with its snapshot": 2, "kept": 1}
