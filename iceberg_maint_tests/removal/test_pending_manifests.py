"""Files that a streaming writer has written and not committed: through scan, trash, sweep and restore."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from iceberg_maint.core.policy.housekeeping import RemoveOrphanFilesPolicy
from iceberg_maint.core.removal.orphan_rules import TRASH, Kept
from iceberg_maint.errors import RefusedError, UnreadableTableError
from iceberg_maint.removal.orphan_scan import scan
from iceberg_maint.removal.store_requests import RemovalLease
from iceberg_maint.removal.sweep import restore, sweep
from iceberg_maint.removal.target import Removal
from iceberg_maint.removal.trash import trash
from iceberg_maint_tests.support.catalog.table_files import File, register, write_avro
from iceberg_maint_tests.support.removal.layouts import (
    DAY_MS,
    FLINK_JOB,
    FLINK_OPERATOR,
    LAYOUTS,
    ORPHANS,
    SCHEMA,
    Lake,
    ShiftedStore,
    flink_manifest,
)

pytestmark = pytest.mark.seconds

PLAIN = LAYOUTS[0]
POLICY = RemoveOrphanFilesPolicy()
DAY_SECONDS = 86_400


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    return PLAIN.build(tmp_path)


def at(lake: Lake) -> Path:
    return lake.folder / PLAIN.table_folder


def orphan(lake: Lake, n: int) -> Path:
    return at(lake) / "data" / f"orphan-{n}.parquet"


def pend(lake: Lake, *numbers: int, checkpoint: int = 17, **changes: Any) -> Path:
    """A manifest that names these of the planted orphans, as old as they are."""
    files = [File(f"file://{orphan(lake, n)}") for n in numbers]
    manifest = flink_manifest(lake, at(lake), files, checkpoint=checkpoint, **changes)
    make_old(manifest)
    return manifest


def make_old(path: Path, days: float = 30) -> None:
    then = time.time() - days * DAY_SECONDS
    os.utime(path, (then, then))


def change(lake: Lake, edit: Callable[[dict[str, Any]], None]) -> None:
    """Publishes the table's metadata with a change."""
    place = at(lake) / "metadata" / "00009-last.metadata.json"
    document = json.loads(place.read_text())
    edit(document)
    place = place.with_name("00010-changed.metadata.json")
    place.write_text(json.dumps(document))
    register(lake.database, "db.t", place.as_uri())


def summary(lake: Lake, **facts: str) -> None:
    """Adds to the summary of the newest snapshot."""
    change(lake, lambda document: document["snapshots"][-1]["summary"].update(facts))


def orphans(
    lake: Lake, store: ShiftedStore | None = None, policy: RemoveOrphanFilesPolicy = POLICY
) -> set[str]:
    """The names of the orphans that a scan finds."""
    target, store = lake.target(), store or ShiftedStore()
    found = scan(Removal(target, policy, store, lake.walk(target), lake.folder, store.local_now_ms))
    try:
        return {o.path.rpartition("/")[2] for o in found.paths.orphans()}
    finally:
        found.paths.close()


def put_into_trash(lake: Lake, store: ShiftedStore | None = None) -> int:
    target, store = lake.target(), store or ShiftedStore()
    found = scan(Removal(target, POLICY, store, lake.walk(target), lake.folder, store.local_now_ms))
    try:
        return trash(found, RemovalLease(lambda: True), approved=found.digest).files
    finally:
        found.paths.close()


def test_files_that_a_pending_manifest_names_are_no_orphans(lake: Lake) -> None:
    pend(lake, 3, 4)
    deletes = [File(f"file://{orphan(lake, 5)}", content=2, equality_ids=(1,))]
    make_old(flink_manifest(lake, at(lake), deletes, checkpoint=17, count=2))
    found = orphans(lake)
    assert len(found) == ORPHANS + 1 - 3
    assert not found & {"orphan-3.parquet", "orphan-4.parquet", "orphan-5.parquet"}


def test_scan_counts_pending_files_apart(lake: Lake) -> None:
    pend(lake, 3, 4)
    target, store = lake.target(), ShiftedStore()
    found = scan(Removal(target, POLICY, store, lake.walk(target), lake.folder, store.local_now_ms))
    found_kept = found.counts.kept
    found.paths.close()
    assert (found_kept[Kept.PENDING], found_kept[Kept.FLINK_MANIFEST]) == (2, 1)


def test_manifest_in_a_hidden_folder_is_read(lake: Lake) -> None:
    hidden = at(lake) / "_flink" / pend(lake, 3).name
    hidden.parent.mkdir()
    pend(lake, 3).rename(hidden)
    assert "orphan-3.parquet" not in orphans(lake)


def test_manifest_outside_the_table_is_read(lake: Lake) -> None:
    outside = lake.folder / "flink-manifests"
    outside.mkdir()
    pend(lake, 3).rename(outside / f"{FLINK_JOB}-{FLINK_OPERATOR}-00000-0-17-00001.avro")
    assert "orphan-3.parquet" in orphans(lake)
    change(lake, lambda d: d["properties"].update({"flink.manifests.location": f"file://{outside}/"}))
    assert "orphan-3.parquet" not in orphans(lake)


def test_folder_of_manifests_on_another_storage_holds_the_pass(lake: Lake) -> None:
    change(lake, lambda d: d["properties"].update({"flink.manifests.location": "s3://bucket/flink"}))
    with pytest.raises(UnreadableTableError, match=r"ICM-101 s3://bucket/flink, .* another kind of storage"):
        orphans(lake)


@pytest.mark.parametrize(
    "damage", ["empty", "truncated", "encrypted", "no entry", "version 4", "no manifest"]
)
def test_pending_manifest_that_cannot_be_read_holds_the_pass(damage: str, lake: Lake) -> None:
    manifest = pend(lake, 3)
    content = manifest.read_bytes()
    sync = content[-16:]
    manifest.write_bytes(
        {
            "empty": b"",
            "truncated": content[:-20],
            "encrypted": b"AGS1" + content[4:],
            "no entry": content[: content.index(sync) + 16],
            "version 4": content.replace(b"format-version\x022", b"format-version\x024"),
            "no manifest": content.replace(b"partition-spec\x04", b"partition-spoc\x04"),
        }[damage]
    )
    assert manifest.read_bytes() != content
    make_old(manifest)
    with pytest.raises(UnreadableTableError, match=r"ICM-101 pending manifest .*-17-00001.avro") as refused:
        orphans(lake)
    assert refused.value.fix.startswith("restore the manifest; delete it if")
    assert not list(lake.folder.rglob(f"{TRASH}/files/**/*.parquet"))


def test_manifest_of_a_relative_path_holds_the_pass(lake: Lake) -> None:
    make_old(flink_manifest(lake, at(lake), [File("data/orphan-3.parquet")], checkpoint=17))
    with pytest.raises(UnreadableTableError, match=r"ICM-101 pending manifest .* names a file"):
        orphans(lake)


def test_damaged_manifest_that_is_committed_or_abandoned_holds_nothing(lake: Lake) -> None:
    pend(lake, 3).write_bytes(b"")
    make_old(at(lake) / "metadata" / f"{FLINK_JOB}-{FLINK_OPERATOR}-00000-0-17-00001.avro")
    abandoned = RemoveOrphanFilesPolicy(writer_state_max_age_seconds=20 * DAY_SECONDS)
    assert "orphan-3.parquet" in orphans(lake, policy=abandoned)
    facts = {"flink.job-id": FLINK_JOB, "flink.operator-id": FLINK_OPERATOR}
    summary(lake, **facts, **{"flink.max-committed-checkpoint-id": "17"})
    assert "orphan-3.parquet" in orphans(lake)


def test_committed_manifest_goes_and_its_files_with_it(lake: Lake) -> None:
    manifest = pend(lake, 3)
    facts = {"flink.job-id": FLINK_JOB, "flink.operator-id": FLINK_OPERATOR}
    summary(lake, **facts, **{"flink.max-committed-checkpoint-id": "16"})
    assert not orphans(lake) & {"orphan-3.parquet", manifest.name}
    summary(lake, **facts, **{"flink.max-committed-checkpoint-id": "17"})
    assert {"orphan-3.parquet", manifest.name} <= orphans(lake)


def test_manifest_of_a_dead_job_goes_after_the_age_of_the_policy(lake: Lake) -> None:
    manifest = pend(lake, 3)
    kept = RemoveOrphanFilesPolicy(writer_state_max_age_seconds=31 * DAY_SECONDS)
    gone = RemoveOrphanFilesPolicy(writer_state_max_age_seconds=29 * DAY_SECONDS)
    assert not orphans(lake, policy=kept) & {"orphan-3.parquet", manifest.name}
    assert {"orphan-3.parquet", manifest.name} <= orphans(lake, policy=gone)


def test_age_of_pending_state_below_the_floor_is_refused(lake: Lake) -> None:
    with pytest.raises(RefusedError, match=r"ICM-114 remove_orphan_files.writer_state_max_age_seconds=1 is"):
        orphans(lake, policy=RemoveOrphanFilesPolicy(writer_state_max_age_seconds=1))


def test_file_in_the_trash_that_a_manifest_names_comes_back(lake: Lake) -> None:
    store = ShiftedStore()
    assert put_into_trash(lake, store) == ORPHANS + 1
    pend(lake, 3)
    store.ahead_ms = 3 * DAY_MS + 1
    target = lake.target()
    swept = sweep(
        Removal(target, POLICY, store, lake.walk(target), lake.folder, store.local_now_ms),
        RemovalLease(lambda: True),
    )
    assert sum(s.deleted_files for s in swept) == ORPHANS
    assert orphan(lake, 3).read_bytes() == lake.orphans[orphan(lake, 3)]


def test_sweep_deletes_nothing_while_a_manifest_cannot_be_read(lake: Lake) -> None:
    store = ShiftedStore()
    put_into_trash(lake, store)
    pend(lake, 3).write_bytes(b"Obj\x01")
    store.ahead_ms = 3 * DAY_MS + 1
    target = lake.target()
    with pytest.raises(UnreadableTableError, match="ICM-101 pending manifest"):
        sweep(
            Removal(target, POLICY, store, lake.walk(target), lake.folder, store.local_now_ms),
            RemovalLease(lambda: True),
        )
    [restored] = restore(target, store, lake.walk(target), RemovalLease(lambda: True))
    assert restored.restored_files == ORPHANS + 1
    assert lake.remaining() == list(lake.orphans)


def test_file_whose_manifest_is_written_while_files_are_moved_comes_back(lake: Lake) -> None:
    class Slow(ShiftedStore):
        def move(self, source: str, target: str) -> None:
            super().move(source, target)
            if source.endswith("orphan-3.parquet"):
                pend(lake, 3)

    assert put_into_trash(lake, Slow()) == ORPHANS
    assert orphan(lake, 3).exists()


def test_manifest_that_its_job_commits_and_deletes_after_the_listing_loses_no_file(lake: Lake) -> None:
    manifest = pend(lake, 3)

    class Racing(ShiftedStore):
        def read(self, path: str, most_bytes: int | None = None) -> bytes:
            if path.endswith(manifest.name):
                commit(lake, orphan(lake, 3))
                manifest.unlink()
            return super().read(path, most_bytes)

    assert "orphan-3.parquet" not in orphans(lake, Racing())


def commit(lake: Lake, path: Path) -> None:
    """Makes a file live: statistics stand for any file that the metadata reaches."""
    named = [{"snapshot-id": 1, "statistics-path": f"file://{path}"}]
    change(lake, lambda document: document.update(statistics=named))


def test_pending_manifest_is_read_once_a_scan(lake: Lake) -> None:
    manifest = pend(lake, 3)
    reads: list[str] = []

    class Counting(ShiftedStore):
        def read(self, path: str, most_bytes: int | None = None) -> bytes:
            reads.append(path)
            return super().read(path, most_bytes)

    put_into_trash(lake, Counting())
    assert [p for p in reads if p.endswith(manifest.name)] == [f"file://{manifest}"]


def test_avro_file_that_only_begins_like_a_manifest_and_is_none_holds_nothing(lake: Lake) -> None:
    data = at(lake) / "data" / f"{FLINK_JOB}-part.avro"
    write_avro(data, SCHEMA, "row", [], {})
    make_old(data)
    assert len(orphans(lake)) == ORPHANS + 1


@pytest.mark.parametrize(
    ("silent_days", "written_days", "goes"), [(10, 16, False), (10, 18, True), (0, 8, True)]
)
def test_age_counts_from_the_last_commit_of_kafka_connect(
    silent_days: int, written_days: int, *, goes: bool, lake: Lake
) -> None:
    def silent(document: dict[str, Any]) -> None:
        head = document["snapshots"][-1]
        head["timestamp-ms"] = int((time.time() - silent_days * DAY_SECONDS) * 1000)
        head["summary"]["kafka.connect.offsets.control-iceberg.cg-control-sink"] = '{"0": 7}'

    change(lake, silent)
    make_old(orphan(lake, 3), written_days)
    assert ("orphan-3.parquet" in orphans(lake)) is goes


def test_avro_file_that_has_the_whole_name_of_a_manifest_and_is_none_holds_the_pass(lake: Lake) -> None:
    write_avro(pend(lake, 3), SCHEMA, "row", [], {})
    with pytest.raises(UnreadableTableError, match="its header has no 'partition-spec'"):
        orphans(lake)
