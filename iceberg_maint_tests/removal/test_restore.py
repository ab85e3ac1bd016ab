"""What is reached after all goes back from the trash to its place, whatever its retention, and replaces nothing."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest

from iceberg_maint.core.removal.orphan_rules import TRASH, Kept
from iceberg_maint.errors import FenceLostError, RefusedError, UnreadableTableError
from iceberg_maint.removal.orphan_scan import scan
from iceberg_maint.removal.removal_progress import TrashChange
from iceberg_maint.removal.store_requests import RemovalLease
from iceberg_maint.removal.sweep import restore, sweep
from iceberg_maint.removal.target import Removal
from iceberg_maint.removal.trash_manifest import read_batch_headers, trash_batches
from iceberg_maint_tests.removal.test_scan import commit
from iceberg_maint_tests.removal.test_trash import (
    HOLD_MS,
    PLAIN,
    POLICY,
    Recording,
    forget,
    later,
    manifest_of,
    put_into_trash,
    sweep_all,
)
from iceberg_maint_tests.support.removal.layouts import ORPHANS, Lake, ShiftedStore

pytestmark = pytest.mark.seconds


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    return PLAIN.build(tmp_path)


def test_file_committed_while_others_are_moved_is_put_back(lake: Lake) -> None:
    """Moving many takes an object store hours, and until a sweep nobody could read it."""

    class Busy(ShiftedStore):
        def move(self, source: str, target: str) -> None:
            super().move(source, target)
            if source.endswith("orphan-3.parquet") and TRASH not in source:
                commit(lake, "data/orphan-3.parquet")
                Path(source.removeprefix("file://")).unlink()

    done = put_into_trash(lake, Busy())
    assert (done.files, done.skipped) == (ORPHANS, 1)
    assert lake.remaining() == [lake.folder / PLAIN.table_folder / "data" / "orphan-3.parquet"]
    assert all(p.read_bytes() == lake.orphans[p] for p in lake.remaining())


def test_sweep_puts_back_what_is_reached_after_all(lake: Lake) -> None:
    put_into_trash(lake)
    commit(lake, "data/orphan-3.parquet")  # its writer took longer than the age
    (lake.folder / PLAIN.table_folder / "data" / "orphan-3.parquet").unlink()
    told: list[TrashChange] = []
    [swept] = sweep_all(lake, later(), report=told.append)
    assert told == [TrashChange(swept.mark_id, restored_files=1), swept]
    assert (swept.deleted_files, swept.left_files) == (ORPHANS, 0)
    assert [p.name for p in lake.remaining()] == ["orphan-3.parquet"]
    assert all(p.read_bytes() == lake.orphans[p] for p in lake.remaining())


def committed_late(lake: Lake) -> Path:
    """The place of a file that is committed while it is in the trash."""
    place: Path = lake.folder / PLAIN.table_folder / "data" / "orphan-3.parquet"
    commit(lake, "data/orphan-3.parquet")
    place.unlink()
    return place


def test_what_is_reached_is_put_back_though_nothing_may_be_deleted(lake: Lake) -> None:
    [mark] = (h.mark_id for h in put_into_trash(lake).headers)
    place = committed_late(lake)
    told: list[TrashChange] = []
    assert sweep_all(lake, ShiftedStore(), deletes=False, report=told.append) == ()
    assert told == [TrashChange(mark, restored_files=1)]
    assert place.read_bytes() == lake.orphans[place]
    assert sweep_all(lake, later(), deletes=False, report=told.append) == ()
    assert (len(told), len(lake.remaining()), lake.lost()) == (1, 1, [])


def test_what_is_reached_is_put_back_though_the_owner_forbids_deleting(lake: Lake) -> None:
    put_into_trash(lake)
    place = committed_late(lake)
    target, store = lake.target(), later()
    forbidden = replace(target, state=replace(target.state, properties={"gc.enabled": "false"}))
    with pytest.raises(RefusedError, match="ICM-110"):
        sweep(
            Removal(forbidden, POLICY, store, lake.walk(target), lake.folder, store.local_now_ms),
            RemovalLease(lambda: True),
        )
    assert lake.remaining() == [place]


def test_what_is_reached_is_put_back_only_with_the_lease(lake: Lake) -> None:
    put_into_trash(lake)
    committed_late(lake)
    store = Recording()
    with pytest.raises(FenceLostError):
        sweep_all(lake, store, holds=lambda: False)
    assert store.steps == []


@pytest.mark.parametrize("crash_at", [0, 1, 2])
def test_crash_while_putting_back_is_made_good(lake: Lake, crash_at: int) -> None:
    put_into_trash(lake)
    committed_late(lake)
    lake.in_flight |= {f"file://{p}" for p in lake.orphans if p.stem in ("orphan-5", "orphan-6")}
    told: list[TrashChange] = []
    with pytest.raises(InterruptedError):
        sweep_all(lake, Recording(HOLD_MS + 60_000, fail_at=crash_at), report=told.append)
    assert sum(e.restored_files for e in told) == crash_at
    assert sweep_all(lake, ShiftedStore(), report=told.append) == ()
    assert sum(e.restored_files for e in told) == 3
    assert {p.stem for p in lake.remaining()} == {"orphan-3", "orphan-5", "orphan-6"}
    assert lake.lost() == []


def test_what_is_reached_replaces_nothing_and_is_not_swept(lake: Lake) -> None:
    """Which of the two a reader should have cannot be told."""
    put_into_trash(lake)
    place = committed_late(lake)
    place.write_bytes(b"somebody's")
    [swept] = sweep_all(lake, later())
    assert (swept.deleted_files, swept.restored_files, swept.left_files) == (ORPHANS, 0, 1)
    assert place.read_bytes() == b"somebody's"
    [kept] = (lake.folder / PLAIN.table_folder / TRASH).rglob("orphan-3.parquet")
    assert kept.read_bytes() == lake.orphans[place]
    assert manifest_of(lake).exists()


def test_of_two_files_of_one_path_the_one_put_there_last_comes_back(lake: Lake) -> None:
    put_into_trash(lake)
    place = lake.folder / PLAIN.table_folder / "data" / "orphan-3.parquet"
    place.write_bytes(b"written again, and set aside again")
    os.utime(place, (1, 1))
    put_into_trash(lake, ShiftedStore(60_000))
    committed_late(lake)
    sweep_all(lake, ShiftedStore(60_000))
    assert place.read_bytes() == b"written again, and set aside again"


def test_scan_names_the_way_out_of_the_trash_for_a_file_that_is_reached(lake: Lake) -> None:
    [mark] = (h.mark_id for h in put_into_trash(lake).headers)
    place = committed_late(lake)
    target, store = lake.target(), ShiftedStore()
    with pytest.raises(RefusedError, match=r"orphan-3.parquet, which is in the trash") as refused:
        scan(Removal(target, POLICY, store, lake.walk(target), lake.folder, store.local_now_ms))
    assert refused.value.fix.endswith(f"iceberg-maint orphans restore lake.db.t --mark {mark}`.")
    manifest_of(lake).write_text("torn")
    with pytest.raises(RefusedError, match=r"orphan-3.parquet, which is not in the listing"):
        scan(Removal(target, POLICY, store, lake.walk(target), lake.folder, store.local_now_ms))
    assert not place.exists()


def test_file_put_back_replaces_nothing(lake: Lake) -> None:
    put_into_trash(lake)
    place = lake.folder / PLAIN.table_folder / "data" / "orphan-3.parquet"
    place.write_bytes(b"somebody's")
    [restored] = restore(lake.target(), ShiftedStore(), lake.walk(lake.target()), RemovalLease(lambda: True))
    assert (restored.restored_files, restored.left_files) == (ORPHANS, 1)
    assert place.read_bytes() == b"somebody's"
    assert len(list(read_batch_headers(lake.target().prefixes, ShiftedStore()))) == 1


def test_what_was_put_back_is_no_orphan_until_its_manifest_goes(lake: Lake) -> None:
    [mark] = (h.mark_id for h in put_into_trash(lake).headers)
    restore(lake.target(), ShiftedStore(), lake.walk(lake.target()), RemovalLease(lambda: True))
    [told] = trash_batches(lake.target().prefixes, ShiftedStore())
    assert (told.header.mark_id, told.restored, told.files) == (mark, True, ORPHANS + 1)
    assert told.size_bytes == sum(len(b) for b in lake.orphans.values())
    more = lake.folder / PLAIN.table_folder / "data" / "later-orphan"
    lake.plant(lake.orphans, more)
    os.utime(more, (1, 1))
    target, store = lake.target(), ShiftedStore()
    found = scan(Removal(target, POLICY, store, lake.walk(target), lake.folder, store.local_now_ms))
    assert (found.counts.orphan_files, found.counts.kept[Kept.RESTORED]) == (1, ORPHANS + 1)
    found.paths.close()
    forget(lake)
    assert put_into_trash(lake).files == ORPHANS + 2


def test_manifest_of_what_was_put_back_that_was_tampered_with_is_refused(lake: Lake) -> None:
    put_into_trash(lake)
    restore(lake.target(), ShiftedStore(), lake.walk(lake.target()), RemovalLease(lambda: True))
    [told] = trash_batches(lake.target().prefixes, ShiftedStore())
    place = Path(told.location.removeprefix("file://"))
    place.write_bytes(place.read_bytes() + b"no json\n")
    with pytest.raises(UnreadableTableError, match="ICM-101 trash manifest"):
        put_into_trash(lake)
