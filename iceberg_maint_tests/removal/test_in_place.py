"""Released files that are retained in place: nothing moves, and after the hold exactly the unreferenced ones are deleted."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from iceberg_maint.core.policy.housekeeping import ReleasedRetention
from iceberg_maint.core.removal.orphan_rules import TRASH, Kept
from iceberg_maint.errors import FenceLostError, RefusedError
from iceberg_maint.removal import in_place_retention
from iceberg_maint.removal.remove_orphans import Scope
from iceberg_maint_tests.removal.test_released import ALONE, HOLD_DAYS, WITHOUT_SIDE, Killed
from iceberg_maint_tests.support.catalog.table_files import File, register
from iceberg_maint_tests.support.removal.expired_table import (
    POLICY,
    SIZE,
    TABLE,
    CountingWalk,
    ExpiredTable,
    LoggingStore,
)
from iceberg_maint_tests.support.removal.layouts import flink_manifest

pytestmark = pytest.mark.seconds

IN_PLACE = replace(POLICY, released_files=ReleasedRetention.IN_PLACE)


@pytest.fixture
def table(tmp_path: Path) -> ExpiredTable:
    return ExpiredTable(tmp_path, policy=IN_PLACE)


def expired(table: ExpiredTable, *numbers: int) -> ExpiredTable:
    table.record(*numbers)
    table.expire(*numbers)
    return table


def lists(table: ExpiredTable) -> list[Path]:
    return sorted(table.at.glob(f"{TRASH}/in-place/*"))


def register_again(table: ExpiredTable, name: str, number: int = 6) -> None:
    again = table.manifest(f"again{number}", number, File(table.uri(name), size_bytes=SIZE))
    table.commit(number, (again,), parent=4)
    table.refs["main"]["snapshot-id"] = number
    table.publish()


def run_pass(table: ExpiredTable, **options: Any) -> Any:
    state = table.lake.catalog.pin(TABLE)
    return table.remove_orphans().run(
        state, table.policy, in_flight=frozenset(), sweep=True, holds=lambda: True, **options
    )


@pytest.mark.parametrize(("numbers", "released"), [((1, 2, 3, 5), ALONE), ((1, 2, 3), WITHOUT_SIDE)])
def test_files_held_in_place_stay_for_the_hold_and_are_deleted_after_it(
    table: ExpiredTable, numbers: tuple[int, ...], released: set[str]
) -> None:
    size_bytes = sum(table.placed[name].stat().st_size for name in released)
    done = expired(table, *numbers).remove()
    numbers_now = (done.released_files, done.released_bytes, done.retained_files, done.retained_bytes)
    assert (numbers_now, done.stopped) == ((len(released), size_bytes) * 2, None)
    assert (done.deleted_files, done.skipped_files) == (0, 0)
    assert (table.gone(), table.in_trash(), table.stored(), len(lists(table))) == (set(), set(), 0, 1)
    early = table.later(2.9).remove()
    assert (early.deleted_files, early.retained_files, table.gone()) == (0, len(released), set())
    late = table.later(0.2).remove()
    assert (late.deleted_files, late.deleted_bytes, late.retained_files) == (len(released), size_bytes, 0)
    assert (late.stopped, table.gone()) == (None, released)
    assert not (table.at / TRASH).exists()


def test_mark_in_place_moves_nothing_and_looks_at_no_file_of_known_size(
    table: ExpiredTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    changes: list[str] = []
    looks: list[str] = []
    real = LoggingStore.stat
    expired(table, 1, 2, 3, 5)
    table.store.act = lambda name, path: changes.append(
        f"{name} {TRASH in path or '.iceberg-maint-' in path}"
    )
    monkeypatch.setattr(LoggingStore, "stat", lambda s, path: (looks.append(path), real(s, path))[1])
    table.remove()
    assert not any(change.startswith("move") or change.endswith("False") for change in changes)
    looked = {
        name for name, place in table.placed.items() if any(path.endswith(place.name) for path in looks)
    }
    assert looked == {"l1", "l2", "l3", "l5", "s1", "p1"}


def test_file_registered_again_during_the_hold_in_place_stays(table: ExpiredTable) -> None:
    expired(table, 1, 2, 3, 5).remove()
    register_again(table, "f2")
    late = table.later(HOLD_DAYS).remove()
    assert (late.stopped, late.deleted_files, table.gone()) == (None, len(ALONE) - 1, ALONE - {"f2"})
    assert (lists(table), run_pass(table).trashed_files) == ([], 0)


def test_file_registered_during_the_deletion_in_place_stays(
    table: ExpiredTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(in_place_retention, "_FILES_PER_READING", 1)
    expired(table, 1, 2, 3, 5).remove()

    def act(name: str, path: str) -> None:
        if name == "delete" and path.endswith("f2.parquet"):
            table.store.act = lambda *_: None
            register_again(table, "f5")

    table.store.act = act
    late = table.later(HOLD_DAYS).remove()
    assert (late.stopped, late.deleted_files, table.gone()) == (None, len(ALONE) - 1, ALONE - {"f5"})


@pytest.mark.parametrize("days", [HOLD_DAYS, 2.0])
def test_file_released_again_waits_for_the_younger_hold(table: ExpiredTable, days: float) -> None:
    expired(table, 1, 2, 3, 5).remove()
    register_again(table, "f2")
    table.commit(7, (), parent=6)
    table.refs["main"]["snapshot-id"] = 7
    table.publish()
    first = expired(table.later(days), 6).remove()
    second = table.later(HOLD_DAYS - days).remove()
    assert (first.released_files, first.deleted_files + second.deleted_files) == (3, len(ALONE) - 1)
    assert table.gone() == ALONE - {"f2"}
    assert table.later(days - 0.2).remove().deleted_files == 0
    assert table.later(0.3).remove().deleted_files == 3
    assert table.gone() == ALONE | {"again6", "l6"}


def test_stored_release_that_is_not_taken_keeps_every_file_held_in_place(table: ExpiredTable) -> None:
    """Its hold has not begun, and it may name a file of an older mark."""
    expired(table, 1, 2, 3).remove()
    expired(table.later(HOLD_DAYS), 5)
    table.scope = Scope(marks=False)
    run_pass(table)
    assert table.gone() == set()
    table.scope = Scope(takes_released=False)
    run_pass(table)
    assert (table.gone(), table.stored()) == (set(), 1)
    table.scope = Scope()
    assert run_pass(table).released.deleted_files == len(WITHOUT_SIDE)


@pytest.mark.parametrize(("days", "size"), [(19, SIZE), (30, SIZE + 1), (None, None)])
def test_file_held_in_place_that_was_replaced_or_deleted_is_left_alone(
    table: ExpiredTable, days: float | None, size: int | None
) -> None:
    expired(table, 1, 2, 3, 5).remove()
    if days is None or size is None:
        table.placed["f2"].unlink()
    else:
        table.file("f2", "data/f2.parquet", days=days, size=size)
    late = table.later(HOLD_DAYS).remove()
    assert (late.stopped, late.deleted_files, late.retained_files) == (None, len(ALONE) - 1, 0)
    assert table.gone() == (ALONE if days is None else ALONE - {"f2"})


def test_file_of_an_unfinished_batch_or_a_flink_job_is_not_deleted_in_place(table: ExpiredTable) -> None:
    expired(table, 1, 2, 3, 5).remove()
    flink_manifest(table.lake, table.at, [File(table.uri("f2"))], checkpoint=17, version=3)
    table.in_flight = frozenset({table.uri("f5")})
    table.later(HOLD_DAYS).remove()
    assert table.gone() == ALONE - {"f2", "f5"}


def test_orphan_pass_leaves_files_held_in_place_and_counts_them_as_released(table: ExpiredTable) -> None:
    expired(table, 1, 2, 3, 5).remove()
    table.file("nobody", "data/nobody.parquet")
    state = table.lake.catalog.pin(TABLE)
    with table.remove_orphans().scan(state, table.policy, in_flight=frozenset()) as scan:
        assert [o.path for o in scan.paths.orphans()] == [table.uri("nobody")]
        assert (scan.counts.kept[Kept.RELEASED], scan.needs_approval) == (len(ALONE), False)
    done = run_pass(table)
    assert (done.trashed_files, done.needs_approval, table.gone()) == (1, False, {"nobody"})
    assert done.released.retained_files == len(ALONE)
    assert {(h.files, h.marked_ms is None) for h in done.retained} == {(1, False), (len(ALONE), False)}


def test_restored_mark_in_place_keeps_its_files_for_good(table: ExpiredTable) -> None:
    expired(table, 1, 2, 3, 5).remove()
    state = table.lake.catalog.pin(TABLE)
    [batch] = table.remove_orphans().trash_batches(state, table.policy)
    assert (batch.files, batch.restored) == (len(ALONE), False)
    emptied: list[Any] = []
    table.remove_orphans().restore(
        state, table.policy, mark_id=batch.header.mark_id, holds=lambda: True, report=emptied.append
    )
    assert ([e.restored_files for e in emptied], lists(table)) == ([len(ALONE)], [])
    table.later(HOLD_DAYS).remove()
    assert (run_pass(table).trashed_files, table.gone()) == (0, set())
    assert [b.restored for b in table.remove_orphans().trash_batches(state, table.policy)] == [True]


def test_restoration_in_place_that_was_killed_keeps_its_files(table: ExpiredTable) -> None:
    expired(table, 1, 2, 3, 5).remove()
    state = table.lake.catalog.pin(TABLE)

    def act(name: str, path: str) -> None:
        if name == "delete" and "/in-place/" in path:
            raise Killed

    table.store.act = act
    with pytest.raises(Killed):
        table.remove_orphans().restore(
            state, table.policy, mark_id=None, holds=lambda: True, report=lambda _: None
        )
    table.store.act = lambda *_: None
    assert len(lists(table)) == 1
    late = table.later(HOLD_DAYS).remove()
    assert (late.stopped, late.deleted_files, table.gone(), lists(table)) == (None, 0, set(), [])


def test_change_of_the_policy_leaves_each_file_to_the_way_of_its_mark(table: ExpiredTable) -> None:
    expired(table, 1, 2, 3).remove()
    table.policy = POLICY
    expired(table, 5).remove()
    assert (table.gone(), table.in_trash()) == (ALONE - WITHOUT_SIDE, ALONE - WITHOUT_SIDE)
    table.policy = IN_PLACE
    late = table.later(HOLD_DAYS).remove()
    assert (late.deleted_files, late.retained_files, table.in_trash(), table.gone()) == (
        len(ALONE),
        0,
        set(),
        ALONE,
    )
    assert not (table.at / TRASH).exists()


def test_mark_in_place_that_a_crash_cut_off_is_made_again(table: ExpiredTable) -> None:
    expired(table, 1, 2, 3, 5)
    [release] = (table.at / TRASH / "releases").iterdir()
    stored, stored_at = release.read_bytes(), release.stat().st_mtime
    table.remove()
    [mark] = lists(table)
    mark.write_bytes(b"".join(mark.read_bytes().splitlines(keepends=True)[:4]) + b'["file:')
    release.parent.mkdir(exist_ok=True)
    release.write_bytes(stored)
    os.utime(release, (stored_at, stored_at))
    done = table.later(HOLD_DAYS).remove()
    assert (done.released_files, done.deleted_files, table.gone()) == (len(ALONE), 0, set())
    assert table.later(HOLD_DAYS).remove().deleted_files == len(ALONE)


def test_crash_between_the_lists_of_two_prefixes_loses_no_name(tmp_path: Path) -> None:
    other = tmp_path / "other"
    policy = replace(IN_PLACE, exclusive_prefixes=(other.as_uri(),))
    table = ExpiredTable(tmp_path / "lake", policy=policy)
    table.at = other
    outside = table.file("f9", "data/f9.parquet")
    table.at = table.folder / "warehouse" / "db" / "t"
    listed = table.manifest("N", 6, File(outside, size_bytes=SIZE))
    table.commit(6, (listed,), parent=4)
    table.publish()

    def act(name: str, path: str) -> None:
        if name == "create" and "other/" in path and "/in-place/" in path:
            raise Killed

    expired(table, 6)
    table.store.act = act
    with pytest.raises(Killed):
        table.remove()
    table.store.act = lambda *_: None
    assert (table.stored(), len(lists(table))) == (1, 1)
    assert table.remove().stopped is None
    assert table.later(HOLD_DAYS).remove().stopped is None
    assert table.gone() == {"l6", "N", "f9"}


@pytest.mark.parametrize("before_ms", [0, 1])
def test_release_that_a_crash_left_beside_its_mark_does_not_begin_a_second_hold(
    table: ExpiredTable, before_ms: int
) -> None:
    expired(table, 1, 2, 3, 5)
    [release] = (table.at / TRASH / "releases").iterdir()

    def act(name: str, path: str) -> None:
        if name == "delete" and "/releases/" in path:
            raise Killed

    table.store.act = act
    with pytest.raises(Killed):
        table.remove()
    table.store.act = lambda *_: None
    [mark] = lists(table)
    marked_ms = int(mark.name.partition("-")[0])
    os.utime(release, ns=((marked_ms - before_ms) * 1_000_000,) * 2)
    again = table.later(1).remove()
    assert (again.released_files, again.retained_files, table.stored()) == (0, len(ALONE), 0)
    assert table.later(2.1).remove().deleted_files == len(ALONE)


@pytest.mark.parametrize("content", [b"", b"{}\n", b"no list"])
def test_mark_in_place_that_cannot_be_read_leaves_its_files_to_an_orphan_pass(
    table: ExpiredTable, content: bytes
) -> None:
    expired(table, 1, 2, 3, 5).remove()
    [mark] = lists(table)
    mark.write_bytes(content)
    done = table.later(HOLD_DAYS).remove()
    assert (done.stopped, done.deleted_files, table.gone(), lists(table)) == (None, 0, set(), [])
    assert run_pass(table).needs_approval


def test_mark_in_place_may_not_name_a_file_outside_the_location(table: ExpiredTable) -> None:
    expired(table, 1, 2, 3, 5).remove()
    [mark] = lists(table)
    outside = table.folder / "outside.parquet"
    outside.write_bytes(b"x" * SIZE)
    first, *lines = mark.read_text().splitlines()
    mark.write_text(
        "\n".join((first, *lines[:2], lines[2].replace(table.uri("f5"), outside.as_uri()))) + "\n"
    )
    table.later(HOLD_DAYS).remove()
    assert outside.exists()


def test_lost_lease_stops_the_mark_and_the_deletion_in_place(table: ExpiredTable) -> None:
    expired(table, 1, 2, 3, 5)
    with pytest.raises(FenceLostError):
        table.remove(holds=lambda: False)
    assert (lists(table), table.stored()) == ([], 1)
    table.remove()
    table.later(HOLD_DAYS)
    with pytest.raises(FenceLostError):
        table.remove(holds=lambda: False)
    assert (table.gone(), len(lists(table))) == (set(), 1)


def test_deletion_in_place_waits_where_two_decoders_disagree(
    table: ExpiredTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    expired(table, 1, 2, 3, 5).remove()
    real = CountingWalk.paths
    monkeypatch.setattr(CountingWalk, "paths", lambda self: (p for p in real(self) if "f4" not in p))
    late = table.later(HOLD_DAYS).remove()
    assert "ICM-122" in str(late.stopped)
    assert (table.gone(), len(lists(table))) == (set(), 1)


def test_deletion_in_place_of_a_table_with_a_second_owner_waits(table: ExpiredTable) -> None:
    expired(table, 1, 2, 3, 5).remove()
    register(table.folder / "other.db", "db.t", table.log[-1]["metadata-file"])
    table.publish()
    register(table.lake.database, "db.t", table.log[-2]["metadata-file"])
    late = table.later(HOLD_DAYS).remove()
    assert isinstance(late.stopped, RefusedError)
    assert (late.stopped.code, table.gone(), len(lists(table))) == ("ICM-111", set(), 1)


class BulkStore(LoggingStore):
    """A store that deletes two files per request, and refuses one file."""

    at_once, bulk = 4, 2
    requests = 0

    def delete_bulk(self, paths: Sequence[str]) -> frozenset[str]:
        self.requests += 1
        refused = frozenset(path for path in paths if path.endswith("f2.parquet"))
        for path in paths:
            if path not in refused:
                LoggingStore.delete(self, path)
        return refused


def test_files_held_in_place_are_deleted_in_bulk_where_the_store_can(tmp_path: Path) -> None:
    table = ExpiredTable(tmp_path, policy=IN_PLACE, store=BulkStore())
    expired(table, 1, 2, 3, 5).remove()
    late = table.later(HOLD_DAYS).remove()
    assert (late.deleted_files, table.gone(), table.store.requests) == (len(ALONE), ALONE, 7)


def test_hold_in_place_that_is_killed_at_any_change_is_finished_by_the_next(tmp_path: Path) -> None:
    """Before each file that is created or deleted, from the stored release to the last delete."""
    whole = ExpiredTable(tmp_path / "whole", policy=IN_PLACE)
    changes: list[str] = []
    whole.store.act = lambda name, _path: changes.append(name)
    _expire_and_remove(whole)
    assert "move" not in changes
    for number in range(len(changes)):
        table = ExpiredTable(tmp_path / f"{number}", policy=IN_PLACE)
        _kill_at(table, number)
        if len(table.table.snapshots) == 5:
            table.record(1, 2, 3)  # the next run plans the same batch
            table.expire(1, 2, 3)
        assert table.remove().stopped is None
        assert table.gone() <= WITHOUT_SIDE, (number, changes)
        table.later(HOLD_DAYS).remove()
        assert (table.gone(), lists(table), table.stored()) == (WITHOUT_SIDE, [], 0), (number, changes)


def _expire_and_remove(table: ExpiredTable) -> None:
    expired(table, 1, 2, 3).remove()
    table.later(HOLD_DAYS).remove()


def _kill_at(table: ExpiredTable, number: int) -> None:
    left = iter(range(number))

    def act(_name: str, _path: str) -> None:
        if next(left, None) is None:
            raise Killed

    table.store.act = act
    with pytest.raises(Killed):
        _expire_and_remove(table)
    table.store.act = lambda *_: None
