"""Trash, sweep and restore: each guard, and a crash between any two steps."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from iceberg_maint.catalog.reachable_files import MetadataWalk
from iceberg_maint.core.policy.housekeeping import RemoveOrphanFilesPolicy
from iceberg_maint.core.removal.orphan_rules import TRASH, Kept
from iceberg_maint.errors import FenceLostError, RefusedError, UnreadableTableError
from iceberg_maint.removal.orphan_scan import scan
from iceberg_maint.removal.removal_progress import Moved, TrashChange
from iceberg_maint.removal.store_requests import RemovalLease
from iceberg_maint.removal.sweep import restore, sweep
from iceberg_maint.removal.target import Removal
from iceberg_maint.removal.trash import trash
from iceberg_maint.removal.trash_manifest import read_batch_headers
from iceberg_maint_tests.removal.test_scan import commit
from iceberg_maint_tests.support.removal.layouts import (
    DAY_MS,
    LAYOUTS,
    ORPHANS,
    Lake,
    ShiftedStore,
    forget_restored,
)

pytestmark = pytest.mark.seconds

PLAIN = LAYOUTS[0]
POLICY = RemoveOrphanFilesPolicy()
HOLD_MS = POLICY.delete_after_seconds * 1000


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    return PLAIN.build(tmp_path)


def put_into_trash(
    lake: Lake,
    store: ShiftedStore | None = None,
    policy: RemoveOrphanFilesPolicy = POLICY,
    meanwhile: Callable[[], object] = lambda: None,
    holds: Callable[[], bool] = lambda: True,
    **options: Any,
) -> Moved:
    target, store = lake.target(), store or ShiftedStore()
    walk = lake.walk(target)
    found = scan(Removal(target, policy, store, walk, lake.folder, store.local_now_ms))
    meanwhile()
    try:
        return trash(found, RemovalLease(holds), **options)
    finally:
        found.paths.close()


def sweep_all(
    lake: Lake, store: ShiftedStore, *, holds: Callable[[], bool] = lambda: True, **options: Any
) -> tuple[TrashChange, ...]:
    target = lake.target()
    removal = Removal(target, POLICY, store, lake.walk(target), lake.folder, store.local_now_ms)
    return sweep(removal, RemovalLease(holds), **options)


def later() -> ShiftedStore:
    return ShiftedStore(HOLD_MS + 60_000)


def forget(lake: Lake) -> None:
    forget_restored(lake.target(), ShiftedStore())


def manifest_of(lake: Lake) -> Path:
    [place] = (lake.folder / PLAIN.table_folder / TRASH / "marks").iterdir()
    return place


def test_manifest_reports_what_was_where_and_why(lake: Lake) -> None:
    done = put_into_trash(lake)
    assert done == Moved(done.headers, ORPHANS + 1, sum(len(b) for b in lake.orphans.values()), 0)
    header, *lines = (json.loads(line) for line in manifest_of(lake).read_text().splitlines())
    assert header["mark_id"] == done.headers[0].mark_id == manifest_of(lake).stem
    assert (header["table"], header["table_uuid"]) == ("lake.db.t", lake.target().state.uuid)
    assert {line["path"] for line in lines} == {f"file://{p}" for p in lake.orphans}
    for line in lines:
        place = Path(line["trash_path"].removeprefix("file://"))
        assert place.read_bytes() == lake.orphans[Path(line["path"].removeprefix("file://"))]
        assert place.stat().st_mtime_ns // 1_000_000 == line["modified_ms"]
        assert line["why"] == "no metadata references it"
    assert lake.lost() == []


class Recording(ShiftedStore):
    """Notes each change, and fails before the n-th."""

    def __init__(self, ahead_ms: int = 0, fail_at: int | None = None) -> None:
        super().__init__(ahead_ms)
        self.steps: list[str] = []
        self._fail_at = fail_at

    def _step(self, what: str) -> None:
        if len(self.steps) == self._fail_at:
            raise InterruptedError(what)
        self.steps.append(what)

    def create(self, path: str, lines: Iterable[bytes]) -> None:
        if ".iceberg-maint-trash" in path:
            self._step("manifest")
        super().create(path, lines)

    def move(self, source: str, target: str) -> None:
        self._step("move")
        super().move(source, target)

    def delete(self, path: str) -> None:
        if ".iceberg-maint-trash" in path:
            self._step("delete manifest" if path.endswith(".jsonl") else "delete")
        super().delete(path)


def test_manifest_is_written_before_the_first_move(lake: Lake) -> None:
    store = Recording()
    put_into_trash(lake, store)
    assert store.steps == ["manifest", *["move"] * (ORPHANS + 1)]


def test_abnormal_share_needs_the_digest_of_this_very_scan(lake: Lake) -> None:
    strict = replace(POLICY, max_orphan_ratio=0.01)
    with pytest.raises(RefusedError, match=r"ICM-122 lake.db.t: 21 of \d+ files.* \(limit 1%\)") as refused:
        put_into_trash(lake, policy=strict)
    digest = refused.value.fix.rstrip(".").rpartition(" ")[2]
    lake.plant(lake.orphans, lake.folder / PLAIN.table_folder / "data" / "one-more")
    lake.age()
    with pytest.raises(RefusedError, match="ICM-122") as refused:
        put_into_trash(lake, policy=strict, approved=digest)
    digest = refused.value.fix.rstrip(".").rpartition(" ")[2]
    assert lake.remaining() == list(lake.orphans)
    assert put_into_trash(lake, policy=strict, approved=digest).files == ORPHANS + 2


def test_file_committed_since_the_scan_stays(lake: Lake) -> None:
    """It is not even moved and put back: a reader may come at any moment."""
    moved: list[str] = []

    class Told(ShiftedStore):
        def move(self, source: str, target: str) -> None:
            moved.append(source)
            super().move(source, target)

    done = put_into_trash(lake, Told(), meanwhile=lambda: commit(lake, "data/orphan-3.parquet"))
    assert (done.files, done.skipped) == (ORPHANS, 1)
    assert len(moved) == ORPHANS
    assert [p.name for p in lake.remaining()] == ["orphan-3.parquet"]


def test_file_changed_or_gone_since_the_scan_stays(lake: Lake) -> None:
    at = lake.folder / PLAIN.table_folder / "data"

    def change() -> None:
        written = (at / "orphan-1.parquet").stat()
        (at / "orphan-1.parquet").write_bytes(b"written again, longer")
        os.utime(at / "orphan-1.parquet", ns=(written.st_atime_ns, written.st_mtime_ns))
        os.utime(at / "orphan-2.parquet")
        (at / "orphan-3.parquet").unlink()

    done = put_into_trash(lake, meanwhile=change)
    assert (done.files, done.skipped) == (ORPHANS + 1 - 3, 3)
    assert [p.name for p in lake.remaining()] == ["orphan-1.parquet", "orphan-2.parquet"]


def test_lost_lease_moves_nothing_more(lake: Lake) -> None:
    store = Recording()
    with pytest.raises(FenceLostError):
        put_into_trash(lake, store, holds=lambda: False)
    assert store.steps == []
    assert len(lake.remaining()) == ORPHANS + 1


def held_for(answers: int) -> Callable[[], bool]:
    """A lease that is ours so many times."""
    given = iter(range(answers))
    return lambda: next(given, None) is not None


def test_lease_is_asked_for_before_each_file(lake: Lake) -> None:
    moving, restoring, sweeping = Recording(), Recording(), Recording(HOLD_MS + 60_000)
    with pytest.raises(FenceLostError):
        put_into_trash(lake, moving, holds=held_for(3))
    assert moving.steps == ["manifest", "move", "move"]
    restore(lake.target(), ShiftedStore(), lake.walk(lake.target()), RemovalLease(lambda: True))
    forget(lake)
    put_into_trash(lake)
    with pytest.raises(FenceLostError):
        sweep_all(lake, sweeping, holds=held_for(2))
    assert sweeping.steps == ["delete", "delete"]
    with pytest.raises(FenceLostError):
        restore(lake.target(), restoring, lake.walk(lake.target()), RemovalLease(held_for(4)))
    assert restoring.steps == ["move", "move"]  # of the two deleted there is nothing to move


def test_nothing_to_move_leaves_no_mark(lake: Lake) -> None:
    put_into_trash(lake)
    before = manifest_of(lake)
    assert put_into_trash(lake) == Moved()
    assert manifest_of(lake) == before


def test_sweep_waits_for_the_hold_by_the_stores_clock(lake: Lake) -> None:
    put_into_trash(lake)
    assert sweep_all(lake, ShiftedStore(HOLD_MS - 60_000)) == ()
    [swept] = sweep_all(lake, later())
    assert swept.deleted_files == ORPHANS + 1
    assert swept.deleted_bytes == sum(len(b) for b in lake.orphans.values())
    assert (lake.lost(), lake.remaining()) == ([], [])
    assert list(read_batch_headers(lake.target().prefixes, ShiftedStore())) == []
    assert sweep_all(lake, later()) == ()


def test_sweep_spares_what_is_in_flight_after_all(lake: Lake) -> None:
    put_into_trash(lake)
    lake.in_flight.add(f"file://{lake.folder}/{PLAIN.table_folder}/data/orphan-3.parquet")
    told: list[TrashChange] = []
    [swept] = sweep_all(lake, later(), report=told.append)
    assert (swept.deleted_files, [e.restored_files for e in told]) == (ORPHANS, [1, 0])


def test_sweep_leaves_what_is_not_what_was_put_there(lake: Lake) -> None:
    put_into_trash(lake)
    [changed] = (lake.folder / PLAIN.table_folder / TRASH).rglob("orphan-3.parquet")
    changed.write_bytes(b"another file altogether")
    [swept] = sweep_all(lake, later())
    assert (swept.deleted_files, swept.left_files) == (ORPHANS, 1)
    assert changed.exists()
    assert manifest_of(lake).exists()


def test_sweep_counts_only_what_is_gone(lake: Lake) -> None:
    class Undeleting(ShiftedStore):
        def delete(self, path: str) -> None:
            if not path.endswith("orphan-3.parquet"):
                super().delete(path)

    put_into_trash(lake)
    [swept] = sweep_all(lake, Undeleting(HOLD_MS + 60_000))
    assert (swept.deleted_files, swept.left_files) == (ORPHANS, 1)


def test_sweep_of_a_table_with_changed_ownership_is_refused(lake: Lake) -> None:
    put_into_trash(lake)
    target, store = lake.target(), later()
    for change, code in (
        ({"properties": {"gc.enabled": "false"}}, "ICM-110"),
        ({"uuid": "another"}, "ICM-129"),
        ({"properties": {"write.data.path": "s3://elsewhere"}}, "ICM-112"),
    ):
        other = replace(target, state=replace(target.state, **change))
        with pytest.raises(RefusedError, match=code):
            sweep(
                Removal(other, POLICY, store, lake.walk(target), lake.folder, store.local_now_ms),
                RemovalLease(lambda: True),
            )
    quick = replace(POLICY, delete_after_seconds=60)
    with pytest.raises(RefusedError, match="ICM-114"):
        sweep(
            Removal(target, quick, store, lake.walk(target), lake.folder, store.local_now_ms),
            RemovalLease(lambda: True),
        )
    with pytest.raises(RefusedError, match="ICM-115"):
        sweep(
            Removal(target, POLICY, store, lake.walk(target), lake.folder, ShiftedStore().local_now_ms),
            RemovalLease(lambda: True),
        )


def test_sweep_with_metadata_that_cannot_be_read_deletes_nothing(lake: Lake) -> None:
    put_into_trash(lake)
    next(p for p in lake.live if p.name.endswith("-m0.avro")).unlink()
    with pytest.raises(UnreadableTableError, match="ICM-101"):
        sweep_all(lake, later())
    assert len(list((lake.folder / PLAIN.table_folder / TRASH).rglob("orphan-*"))) == ORPHANS


@pytest.mark.parametrize(
    "edit",
    [
        lambda lines: [b"no json\n", *lines[1:]],
        lambda lines: [],
        lambda lines: [lines[0].replace(b'"mark_id":"', b'"mark_id":"x'), *lines[1:]],
        lambda lines: [lines[0], b"no json\n", *lines[2:]],
        lambda lines: [lines[0], lines[1].replace(b'"path":"file://', b'"path":"file:///other'), *lines[2:]],
        lambda lines: [lines[0], lines[1].replace(b".iceberg-maint-trash", b"data"), *lines[2:]],
        lambda lines: [lines[0], b'["no object"]\n', *lines[2:]],
        lambda lines: [lines[0], lines[1].replace(b'{"', b'{"another":1,"', 1), *lines[2:]],
        lambda lines: [lines[0], re.sub(rb'"size_bytes":(\d+)', rb'"size_bytes":"\1"', lines[1]), *lines[2:]],
    ],
)
def test_manifest_that_was_tampered_with_is_refused(
    lake: Lake, edit: Callable[[list[bytes]], list[bytes]]
) -> None:
    put_into_trash(lake)
    place = manifest_of(lake)
    place.write_bytes(b"".join(edit(place.read_bytes().splitlines(keepends=True))))
    for work in (
        lambda: sweep_all(lake, later()),
        lambda: restore(lake.target(), ShiftedStore(), lake.walk(lake.target()), RemovalLease(lambda: True)),
    ):
        with pytest.raises(UnreadableTableError, match="ICM-101 trash manifest"):
            work()
    assert lake.lost() == []


def test_restore_of_one_mark_leaves_the_others(lake: Lake) -> None:
    [first] = (h.mark_id for h in put_into_trash(lake).headers)
    more = lake.folder / PLAIN.table_folder / "data" / "later-orphan"
    lake.plant(lake.orphans, more)
    os.utime(more, (1, 1))
    [second] = (h.mark_id for h in put_into_trash(lake).headers)
    assert {m.mark_id for m in read_batch_headers(lake.target().prefixes, ShiftedStore())} == {first, second}
    assert restore(
        lake.target(), ShiftedStore(), lake.walk(lake.target()), RemovalLease(lambda: True), second
    ) == (TrashChange(second, restored_files=1),)
    assert lake.remaining() == [more]
    assert (
        restore(lake.target(), ShiftedStore(), lake.walk(lake.target()), RemovalLease(lambda: True), "none")
        == ()
    )


@pytest.mark.parametrize("crash_at", [0, 1, 2, 11, 21])
def test_crash_while_moving_is_made_good(lake: Lake, crash_at: int) -> None:
    """A later scan takes up what was not moved, and restore brings back what was."""
    with pytest.raises(InterruptedError):
        put_into_trash(lake, Recording(fail_at=crash_at))
    assert lake.lost() == []
    assert len(lake.remaining()) == ORPHANS + 1 - max(0, crash_at - 1)
    restore(lake.target(), ShiftedStore(), lake.walk(lake.target()), RemovalLease(lambda: True))
    assert {p: p.read_bytes() for p in lake.orphans} == lake.orphans
    assert list(read_batch_headers(lake.target().prefixes, ShiftedStore())) == []
    forget(lake)
    put_into_trash(lake)
    assert lake.remaining() == []


@pytest.mark.parametrize("crash_at", [0, 1, 11, 20, 21])
def test_crash_while_sweeping_is_made_good(lake: Lake, crash_at: int) -> None:
    put_into_trash(lake)
    with pytest.raises(InterruptedError):
        sweep_all(lake, Recording(HOLD_MS + 60_000, fail_at=crash_at))
    assert lake.lost() == []
    [swept] = sweep_all(lake, later())
    assert swept.deleted_files == ORPHANS + 1 - crash_at
    assert list(read_batch_headers(lake.target().prefixes, ShiftedStore())) == []
    assert not [p for p in (lake.folder / PLAIN.table_folder / TRASH).rglob("*") if p.is_file()]


@pytest.mark.parametrize("crash_at", [0, 1, 20, 21])
def test_crash_while_restoring_is_made_good(lake: Lake, crash_at: int) -> None:
    put_into_trash(lake)
    with pytest.raises(InterruptedError):
        restore(
            lake.target(), Recording(fail_at=crash_at), lake.walk(lake.target()), RemovalLease(lambda: True)
        )
    restore(lake.target(), ShiftedStore(), lake.walk(lake.target()), RemovalLease(lambda: True))
    assert {p: p.read_bytes() for p in lake.orphans} == lake.orphans
    assert list(read_batch_headers(lake.target().prefixes, ShiftedStore())) == []


def test_lost_lease_sweeps_and_restores_nothing(lake: Lake) -> None:
    put_into_trash(lake)
    with pytest.raises(FenceLostError):
        sweep_all(lake, later(), holds=lambda: False)
    with pytest.raises(FenceLostError):
        restore(lake.target(), ShiftedStore(), lake.walk(lake.target()), RemovalLease(lambda: False))
    assert lake.remaining() == []
    assert len(list((lake.folder / PLAIN.table_folder / TRASH).rglob("orphan-*"))) == ORPHANS


def test_interrupt_of_a_sweep_is_not_replaced_by_a_store_that_fails_then(lake: Lake) -> None:
    class Gone(ShiftedStore):
        def list(self, prefix: str) -> Any:
            if deleted:
                raise OSError("no route to host")
            return super().list(prefix)

        def delete(self, path: str) -> None:
            super().delete(path)
            if TRASH in path:
                deleted.append(path)
                raise KeyboardInterrupt

    deleted: list[str] = []
    put_into_trash(lake)
    with pytest.raises(KeyboardInterrupt):
        sweep_all(lake, Gone(HOLD_MS + 60_000))
    assert len(deleted) == 1


def test_scan_does_not_count_the_trash(lake: Lake) -> None:
    put_into_trash(lake)
    target, store = lake.target(), ShiftedStore(30 * DAY_MS)
    found = scan(Removal(target, POLICY, store, lake.walk(target), lake.folder, store.local_now_ms))
    try:
        assert found.counts.orphan_files == 0
        assert found.counts.listed_files == sum(found.counts.kept.values())
        assert found.counts.kept[Kept.HIDDEN] == 2  # those of the table, not what lies in the trash
    finally:
        found.paths.close()


def test_orphan_whose_name_is_no_unicode_goes_and_comes_back(lake: Lake) -> None:
    place = Path(os.fsdecode(bytes(lake.folder / PLAIN.table_folder) + b"/data/\xff"))
    lake.plant(lake.orphans, place, b"bytes")
    lake.age()
    assert put_into_trash(lake).files == ORPHANS + 2
    [restored] = restore(lake.target(), ShiftedStore(), lake.walk(lake.target()), RemovalLease(lambda: True))
    assert restored.restored_files == ORPHANS + 2
    assert place.read_bytes() == lake.orphans[place]


def test_emptied_trash_leaves_no_folder(lake: Lake) -> None:
    put_into_trash(lake)
    sweep_all(lake, later())
    assert not (lake.folder / PLAIN.table_folder / TRASH).exists()


def test_file_that_is_registered_in_the_trash_stays_there(lake: Lake) -> None:
    # A person got rows back by `add_files` from the trash, in place of `orphans restore`.
    put_into_trash(lake)
    [trashed] = lake.folder.rglob(f"{TRASH}/files/*/data/orphan-0.parquet")
    commit(lake, str(trashed.relative_to(lake.folder / PLAIN.table_folder)))
    [emptied] = sweep_all(lake, later())
    assert (emptied.deleted_files, emptied.left_files) == (ORPHANS, 1)
    assert trashed.is_file()
    target = lake.target()
    found = scan(Removal(target, POLICY, later(), lake.walk(target), lake.folder, later().local_now_ms))
    found.paths.close()
    assert found.counts.orphan_files == 0


def test_restore_leaves_a_file_that_is_registered_in_the_trash(lake: Lake) -> None:
    [mark] = (h.mark_id for h in put_into_trash(lake).headers)
    [trashed] = lake.folder.rglob(f"{TRASH}/files/*/data/orphan-0.parquet")
    commit(lake, str(trashed.relative_to(lake.folder / PLAIN.table_folder)))
    [restored] = restore(lake.target(), ShiftedStore(), lake.walk(lake.target()), RemovalLease(lambda: True))
    assert restored == TrashChange(mark, restored_files=ORPHANS, left_files=1)
    assert trashed.is_file()
    assert lake.lost() == []


def test_restore_needs_no_metadata(lake: Lake) -> None:
    """The trash may hold what the metadata lack."""
    put_into_trash(lake)
    target = lake.target()

    class Unreadable:
        def paths(self) -> Iterator[str]:
            raise UnreadableTableError("ICM-101", "a manifest is missing", "restore it.")

    unreadable: Any = Unreadable()
    [restored] = restore(target, ShiftedStore(), unreadable, RemovalLease(lambda: True))
    assert (restored.restored_files, restored.left_files) == (ORPHANS + 1, 0)


class SlowWalk:
    """Reads the metadata in ten minutes, by the clocks of machine and store alike."""

    def __init__(self, walk: MetadataWalk, store: ShiftedStore) -> None:
        self._walk, self._store = walk, store

    def __getattr__(self, name: str) -> Any:
        return getattr(self._walk, name)

    def paths(self) -> Iterable[str]:
        self._store.ahead_ms += 600_000
        return self._walk.paths()


def test_metadata_that_take_minutes_to_read_are_not_taken_for_a_wrong_clock(lake: Lake) -> None:
    target, store = lake.target(), ShiftedStore()
    slow: Any = SlowWalk(lake.walk(target), store)
    found = scan(Removal(target, POLICY, store, slow, lake.folder, store.local_now_ms))
    assert trash(found, RemovalLease(lambda: True)).files == ORPHANS + 1
    found.paths.close()
    store.ahead_ms += HOLD_MS
    [emptied] = sweep(
        Removal(target, POLICY, store, slow, lake.folder, store.local_now_ms), RemovalLease(lambda: True)
    )
    assert (emptied.deleted_files, lake.lost()) == (ORPHANS + 1, [])
