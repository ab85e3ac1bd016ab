"""What a file's name says, what share is abnormal, what a digest covers."""

from __future__ import annotations

from dataclasses import replace

import pytest

from iceberg_maint.core.model.partition_key import PartitionField, PartitionSpec
from iceberg_maint.core.removal.orphan_rules import (
    Kept,
    NameRules,
    Orphan,
    OrphanFolder,
    OrphanSummary,
    RetainedOrphans,
    ScanCounts,
    orphans_digest,
    retained_orphans,
    summarize,
)
from iceberg_maint.core.removal.pending_manifests import PendingManifests
from iceberg_maint_tests.support.core.snapshots import snapshot
from iceberg_maint_tests.support.core.values import table_of

JOB = "fd72014d4c864993a2e5a9287b4a9c5d"


def rules() -> NameRules:
    spec = PartitionSpec(0, (PartitionField(1000, 1, "_p", "identity", "string"),))
    state = replace(table_of([], specs=[spec]).state, snapshots=(snapshot(1, 0),))
    flink = replace(state.snapshots[0], summary={"flink.job-id": "my-job"})
    state = replace(state, snapshots=(flink,))
    return NameRules(state, PendingManifests(state))


@pytest.mark.parametrize(
    ("path", "kept"),
    [
        ("/data/1.parquet", None),
        ("/data/_p=x/1.parquet", None),
        ("/data/_q=x/1.parquet", Kept.HIDDEN),
        ("/_delta_log/0.parquet", Kept.HIDDEN),
        ("/data/.1.parquet.crc", Kept.HIDDEN),
        ("/data/_SUCCESS", Kept.HIDDEN),
        ("/.iceberg-maint-trash/files/1/data/1.parquet", Kept.TRASH),
        ("/data/.iceberg-maint-trash/1.parquet", Kept.HIDDEN),
        ("/metadata/1.metadata.json", Kept.METADATA_FILE),
        ("/metadata/1.gz.metadata.json", Kept.METADATA_FILE),
        ("/metadata/1.metadata.json.gz", Kept.METADATA_FILE),
        ("/metadata/version-hint.text", Kept.METADATA_FILE),
        ("/metadata/anything.json", Kept.METADATA_FILE),
        (f"/metadata/{JOB}-op-00000-0-17-00001.avro", Kept.FLINK_MANIFEST),
        ("/metadata/my-job-op-00000-0-17-00001.avro", Kept.FLINK_MANIFEST),
        ("/metadata/0a0a0a0a-0000-4000-8000-000000000000-m0.avro", None),
        ("/metadata/snap-17-1-0a0a0a0a-0000-4000-8000-000000000000.avro", None),
        ("/metadata/1.stats", None),
        ("/data//1.parquet", Kept.EMPTY_SEGMENT),
        ("//1.parquet", Kept.EMPTY_SEGMENT),
        ("/data//_SUCCESS", Kept.HIDDEN),
        ("/metadata//1.metadata.json", Kept.METADATA_FILE),
    ],
)
def test_name_says_whether_a_file_stays(path: str, kept: Kept | None) -> None:
    assert rules().kept(path, 0) is kept


@pytest.mark.parametrize(
    ("files", "size", "abnormal"), [(20, 200, False), (21, 10, True), (1, 201, True), (0, 0, False)]
)
def test_share_is_abnormal_beyond_the_limit_of_files_or_bytes(
    files: int, size: int, *, abnormal: bool
) -> None:
    assert ScanCounts(100, 1000, {}, files, size).is_abnormal(0.2) is abnormal


def test_digest_covers_path_size_and_time() -> None:
    one = Orphan("/a", 1, 2)
    others = [replace(one, path="/b"), replace(one, size_bytes=2), replace(one, modified_ms=3)]
    assert len({orphans_digest([o]) for o in (one, *others)} | {orphans_digest([])}) == 5
    assert orphans_digest([Orphan("/\udcff", 1, 2)]) != orphans_digest([Orphan("/\udcfe", 1, 2)])


def test_held_orphans_are_counted_and_the_largest_named_as_text() -> None:
    files = [Orphan(f"/t/data/{n}\udcff", n, 100 - n) for n in range(1, 8)]
    retained = retained_orphans("m", 5, iter(files), ("/t",), 2)
    assert (retained.mark_id, retained.marked_ms, retained.files, retained.size_bytes) == ("m", 5, 7, 28)
    assert (retained.oldest_ms, retained.youngest_ms) == (93, 99)
    assert retained.paths == ("/t/data/7\\udcff", "/t/data/6\\udcff")
    assert retained_orphans("m", None, (), ("/t",), 2) == RetainedOrphans("m", None, 0, 0, None, None, ())


def test_summary_adds_up_folders_below_their_prefix_and_names_the_largest_files() -> None:
    small = Orphan("s3://b/t/data/day=1/a.parquet", 10, 300)
    large = Orphan("s3://b/t/data/day=1/b.parquet", 20, 200)
    other = Orphan("s3://b/t/metadata/c.avro", 15, 100)
    assert summarize([small, large, other], ["s3://b/t/"], 2) == OrphanSummary(
        folders=(OrphanFolder("s3://b/t/data/day=1", 2, 30), OrphanFolder("s3://b/t/metadata", 1, 15)),
        largest=(large, other),
        oldest_ms=100,
        youngest_ms=300,
    )
    assert summarize([], ["s3://b/t/"], 2) == OrphanSummary((), (), None, None)
