"""Every layout through mark, trash, sweep and restore: no live file is lost, every orphan goes, every byte comes back."""

from __future__ import annotations

from pathlib import Path

import pytest

from iceberg_maint.core.policy.housekeeping import RemoveOrphanFilesPolicy
from iceberg_maint.removal.orphan_scan import Scan, scan
from iceberg_maint.removal.store_requests import RemovalLease
from iceberg_maint.removal.sweep import restore, sweep
from iceberg_maint.removal.target import Removal, Target
from iceberg_maint.removal.trash import trash
from iceberg_maint.removal.trash_manifest import trash_batches
from iceberg_maint_tests.support.removal.layouts import (
    DATA_FILES,
    DAY_MS,
    LAYOUTS,
    ORPHANS,
    Lake,
    Layout,
    ShiftedStore,
    forget_restored,
)

pytestmark = pytest.mark.slow

POLICY = RemoveOrphanFilesPolicy()


def run_scan(lake: Lake, target: Target, store: ShiftedStore) -> Scan:
    return scan(Removal(target, POLICY, store, lake.walk(target), lake.folder, store.local_now_ms))


def put_into_trash(lake: Lake, target: Target, store: ShiftedStore) -> Scan:
    found = run_scan(lake, target, store)
    try:
        done = trash(found, RemovalLease(lambda: True), approved=found.digest)
        assert (done.files, done.skipped) == (len(lake.orphans), 0)
    finally:
        found.paths.close()
    return found


@pytest.mark.drawn(8, always=("writers", "delete_files", "partitions_with_encoded_dots"))
@pytest.mark.parametrize("layout", LAYOUTS, ids=lambda layout: layout.name)
def test_layout_loses_no_live_file_and_every_orphan(layout: Layout, tmp_path: Path) -> None:
    lake, store = layout.build(tmp_path), ShiftedStore()
    target = lake.target()
    found = put_into_trash(lake, target, store)
    assert found.counts.orphan_files == len(lake.orphans)
    assert (lake.lost(), lake.remaining()) == ([], [])

    [mark, *_] = restored = restore(target, store, lake.walk(target), RemovalLease(lambda: True))
    assert sum(r.restored_files for r in restored) == len(lake.orphans)
    assert {p: p.read_bytes() for p in lake.orphans} == lake.orphans
    assert [m.restored for m in trash_batches(target.prefixes, store)] == [True] * len(restored)
    assert mark.left_files == 0
    assert forget_restored(target, store) == len(restored)

    put_into_trash(lake, target, store)
    assert (
        sweep(
            Removal(target, POLICY, store, lake.walk(target), tmp_path, store.local_now_ms),
            RemovalLease(lambda: True),
        )
        == ()
    )
    store.ahead_ms = 3 * DAY_MS + 1
    swept = sweep(
        Removal(target, POLICY, store, lake.walk(target), tmp_path, store.local_now_ms),
        RemovalLease(lambda: True),
    )
    assert sum(s.deleted_files for s in swept) == len(lake.orphans)
    assert (lake.lost(), lake.remaining()) == ([], [])
    assert [p for p in tmp_path.rglob("*trash*/**/*") if p.is_file()] == []


def test_layouts_are_enough() -> None:
    assert len({layout.name for layout in LAYOUTS}) >= 30
    assert len(LAYOUTS) * DATA_FILES >= 5_000
    assert len(LAYOUTS) * ORPHANS >= 500
