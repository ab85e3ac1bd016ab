"""Released files on real metadata and files: exactly they go, by name, with every guard and after every crash."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

from iceberg_maint.core.removal.orphan_rules import TRASH, Kept
from iceberg_maint.errors import FenceLostError, RefusedError
from iceberg_maint.removal.remove_orphans import Scope
from iceberg_maint_tests.support.catalog.table_files import File, register
from iceberg_maint_tests.support.removal.expired_table import SIZE, TABLE, CountingWalk, ExpiredTable
from iceberg_maint_tests.support.removal.layouts import flink_manifest

pytestmark = pytest.mark.seconds

HOLD_DAYS = 3.1
ALONE = {"l1", "l2", "l3", "l5", "A", "DA", "B", "E", "f2", "f5", "e1", "s1", "p1"}
"""What snapshots 1, 2, 3 and 5 reference and snapshot 4 does not."""
WITHOUT_SIDE = {"l1", "l2", "l3", "DA", "B", "e1", "s1", "p1"}
"""What snapshots 1, 2 and 3 reference and snapshots 4 and 5 do not."""


@pytest.fixture
def table(tmp_path: Path) -> ExpiredTable:
    return ExpiredTable(tmp_path)


def expired(table: ExpiredTable, *numbers: int) -> ExpiredTable:
    """The table after an expiry of the snapshots that has not removed a file yet."""
    table.record(*numbers)
    table.expire(*numbers)
    return table


@pytest.mark.parametrize(("numbers", "released"), [((1, 2, 3, 5), ALONE), ((1, 2, 3), WITHOUT_SIDE)])
def test_released_files_are_those_that_the_removed_snapshots_alone_reference(
    table: ExpiredTable, numbers: tuple[int, ...], released: set[str]
) -> None:
    sizes = sum(table.placed[name].stat().st_size for name in released)
    done = expired(table, *numbers).remove()
    assert done.stopped is None
    assert table.gone() == table.in_trash() == released
    assert (done.released_files, done.released_bytes, done.skipped_files) == (len(released), sizes, 0)
    assert (done.retained_files, done.retained_bytes, done.deleted_files) == (len(released), sizes, 0)
    assert table.stored() == 0


def test_files_that_name_others_move_after_all_of_them_where_many_move_at_once(table: ExpiredTable) -> None:
    """A manifest in the trash no longer names its files to a run that continues after a crash."""
    moved: list[str] = []
    names = {str(path): name for name, path in table.placed.items()}

    def act(what: str, path: str) -> None:
        name = names.get("/" + path.removeprefix("file:").lstrip("/"))
        if what == "move" and name is not None:
            time.sleep(0.03 if name[0] in "fe" else 0.0)
            moved.append(name)

    expired(table, 1, 2, 3, 5)
    table.store.at_once = 8
    table.store.act = act
    assert table.remove().stopped is None
    assert sorted(moved) == sorted(ALONE)
    content, manifests, lists = (
        [moved.index(name) for name in ALONE if name[0] in kind] for kind in ("fe", "ABDE", "l")
    )
    assert max(content) < min(manifests) <= max(manifests) < min(lists)


@pytest.mark.parametrize("spelling", ["file:{}", "{}", "file:///{}/", "file://{}"])
def test_location_in_another_spelling_than_the_files_releases_the_same(tmp_path: Path, spelling: str) -> None:
    """Hadoop's file systems write one slash after the scheme, whatever the table's location has."""
    table = ExpiredTable(
        tmp_path, location=lambda at: spelling.format(str(at).lstrip("/") if "///" in spelling else at)
    )
    expired(table, 1, 2, 3).remove()
    assert table.gone() == table.in_trash() == WITHOUT_SIDE
    assert table.later(HOLD_DAYS).remove().deleted_files == len(WITHOUT_SIDE)


def test_tag_keeps_the_files_of_its_snapshot(table: ExpiredTable) -> None:
    expired(table, 1, 2, 5).remove()
    assert table.gone() == ALONE - {"l3"}


def test_released_files_are_deleted_after_the_hold_and_not_before(table: ExpiredTable) -> None:
    done = expired(table, 1, 2, 3, 5).remove()
    early = table.later(2.9).remove()
    assert (early.deleted_files, early.retained_files, table.in_trash()) == (0, len(ALONE), ALONE)
    late = table.later(0.2).remove()
    assert (late.deleted_files, late.deleted_bytes) == (len(ALONE), done.released_bytes)
    assert (late.retained_files, late.stopped, table.in_trash(), table.gone()) == (0, None, set(), ALONE)
    assert not (table.at / TRASH).exists()


def test_release_lists_only_the_trash_and_the_metadata_folder(table: ExpiredTable) -> None:
    expired(table, 1, 2, 3, 5)
    table.store.listed.clear()
    table.remove()
    location = f"file://{table.at}"
    assert {p for p in table.store.listed if TRASH not in p} == {f"{location}/metadata"}


def test_manifests_of_retained_snapshots_are_not_opened_for_candidates(table: ExpiredTable) -> None:
    expired(table, 1, 2, 3).remove()
    assert sorted(Path(path).name for path in table.opened) == ["B-m0.avro", "DA-m0.avro"]


def test_expiry_without_a_released_manifest_opens_no_manifest(
    table: ExpiredTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(CountingWalk, "paths", lambda _self: pytest.fail("a manifest was opened"))
    expired(table, 3).remove()
    assert (table.gone(), table.opened) == ({"l3"}, [])


def test_file_that_is_registered_again_after_the_expiry_stays(table: ExpiredTable) -> None:
    expired(table, 1, 2, 3, 5)
    again = table.manifest("again", 6, File(table.uri("f2"), size_bytes=SIZE))
    table.commit(6, (again,), parent=4)
    table.refs["main"]["snapshot-id"] = 6
    table.publish()
    table.remove()
    assert table.gone() == ALONE - {"f2"}


def test_file_that_is_registered_again_from_the_trash_is_restored(table: ExpiredTable) -> None:
    expired(table, 1, 2, 3, 5).remove()
    again = table.manifest("again", 6, File(table.uri("f2"), size_bytes=SIZE))
    table.commit(6, (again,), parent=4)
    table.refs["main"]["snapshot-id"] = 6
    table.publish()
    table.later(HOLD_DAYS).remove()
    assert table.gone() == ALONE - {"f2"}
    assert table.placed["f2"].read_bytes() == b"x" * SIZE


def test_file_that_is_registered_during_the_moves_is_restored(table: ExpiredTable) -> None:
    expired(table, 1, 2, 3, 5)

    def act(name: str, path: str) -> None:
        if name == "move" and path.endswith("f5.parquet"):
            table.store.act = lambda *_: None
            again = table.manifest("again", 6, File(table.uri("f2"), size_bytes=SIZE))
            table.commit(6, (again,), parent=4)
            table.refs["main"]["snapshot-id"] = 6
            table.publish()

    table.store.act = act
    done = table.remove()
    assert (done.stopped, done.released_files) == (None, len(ALONE) - 1)
    assert table.gone() == ALONE - {"f2"}


@pytest.mark.parametrize(("days", "size"), [(19, SIZE), (30, SIZE + 1)])
def test_file_written_again_at_a_released_path_waits_for_an_orphan_pass(
    table: ExpiredTable, days: float, size: int
) -> None:
    """A writer may use a path again before it commits: such a file is younger, or has another size."""
    expired(table, 1, 2, 3, 5)
    table.file("f2", "data/f2.parquet", days=days, size=size)
    done = table.remove()
    assert (done.skipped_files, done.released_files) == (1, len(ALONE) - 1)
    assert table.gone() == ALONE - {"f2"}


def test_file_of_an_unfinished_batch_stays(table: ExpiredTable) -> None:
    table.in_flight = frozenset({table.uri("f2")})
    expired(table, 1, 2, 3, 5).remove()
    assert table.gone() == ALONE - {"f2"}


def test_file_that_a_flink_job_may_still_commit_stays(table: ExpiredTable) -> None:
    flink_manifest(table.lake, table.at, [File(table.uri("f2"))], checkpoint=17, version=3)
    expired(table, 1, 2, 3, 5).remove()
    assert table.gone() == ALONE - {"f2"}


def test_file_that_a_person_restored_stays(table: ExpiredTable) -> None:
    expired(table, 1, 2, 3, 5)
    [stored] = (table.at / TRASH / "releases").iterdir()
    release = stored.read_bytes()
    table.remove()
    state = table.lake.catalog.pin(TABLE)
    table.remove_orphans().restore(
        state, table.policy, mark_id=None, holds=lambda: True, report=lambda _: None
    )
    stored.parent.mkdir(exist_ok=True)
    stored.write_bytes(release)
    assert (table.remove().released_files, table.gone(), table.stored()) == (0, set(), 0)


def test_file_outside_the_location_stays(tmp_path: Path) -> None:
    table = ExpiredTable(tmp_path)
    outside = tmp_path / "hive" / "f9.parquet"
    outside.parent.mkdir()
    outside.write_bytes(b"x" * SIZE)
    listed = table.manifest("N", 6, File(f"file://{outside}", size_bytes=SIZE))
    table.commit(6, (listed,), parent=4)
    table.publish()
    expired(table, 6).remove()
    assert (table.gone(), outside.exists()) == ({"l6", "N"}, True)


def test_path_that_is_no_location_stays_and_stops_nothing(table: ExpiredTable) -> None:
    listed = table.manifest("N", 6, File("relative/f9.parquet", size_bytes=SIZE))
    table.commit(6, (listed,), parent=4)
    table.publish()
    assert expired(table, 6).remove().stopped is None
    assert table.gone() == {"l6", "N"}


def test_release_of_an_expiry_that_did_not_commit_removes_nothing(table: ExpiredTable) -> None:
    table.record(1, 2, 3, 5)
    done = table.remove()
    assert (done.stopped, done.released_files, table.gone(), table.stored()) == (None, 0, set(), 0)


def test_release_of_a_table_with_a_second_owner_waits(table: ExpiredTable) -> None:
    expired(table, 1, 2, 3, 5)
    register(table.folder / "other.db", "db.t", table.log[-1]["metadata-file"])
    table.publish()
    register(table.lake.database, "db.t", table.log[-2]["metadata-file"])
    done = table.remove()
    assert isinstance(done.stopped, RefusedError)
    assert (done.stopped.code, table.gone(), table.stored()) == ("ICM-111", set(), 1)


def test_release_of_a_table_that_may_not_be_cleaned_is_not_stored(table: ExpiredTable) -> None:
    table.table.properties["gc.enabled"] = "false"
    table.publish()
    with pytest.raises(RefusedError, match="ICM-110"):
        table.record(1, 2)
    assert table.stored() == 0


def test_release_waits_where_two_decoders_disagree(
    table: ExpiredTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A retained manifest that ours misreads would release live files."""
    real = CountingWalk.paths
    monkeypatch.setattr(CountingWalk, "paths", lambda self: (p for p in real(self) if "f4" not in p))
    done = expired(table, 1, 2, 3, 5).remove()
    assert "ICM-122" in str(done.stopped)
    assert (table.gone(), table.stored()) == (set(), 1)


@pytest.mark.parametrize(
    ("name", "content", "waiting"),
    [
        ("l2", None, {"l2", "B"}),
        ("B", None, {"B"}),
        ("E", b"no manifest", {"E", "f5"}),
    ],
)
def test_missing_or_damaged_file_leaves_what_only_it_names_to_an_orphan_pass(
    table: ExpiredTable, name: str, content: bytes | None, waiting: set[str]
) -> None:
    expired(table, 1, 2, 3, 5)
    table.placed[name].unlink()
    if content is not None:
        table.placed[name].write_bytes(content)
    done = table.remove()
    assert (done.stopped, table.stored()) == (None, 0)
    assert table.in_trash() == ALONE - waiting


def test_stored_release_that_is_cut_off_gives_the_files_before_the_cut(table: ExpiredTable) -> None:
    expired(table, 1, 2, 3, 5)
    [stored] = (table.at / TRASH / "releases").iterdir()
    lines = stored.read_bytes().splitlines(keepends=True)
    stored.write_bytes(b"".join(lines[:2]) + lines[2][:20])
    assert (table.remove().stopped, table.stored()) == (None, 0)
    assert table.gone() == {"l1", "A", "DA", "f2", "e1", "s1", "p1"}


@pytest.mark.parametrize("content", [b"", b"{}\n", b'{"release_id": "x"'])
def test_stored_release_that_cannot_be_read_is_dropped(table: ExpiredTable, content: bytes) -> None:
    expired(table, 1, 2, 3, 5)
    [stored] = (table.at / TRASH / "releases").iterdir()
    stored.write_bytes(content)
    assert (table.remove().released_files, table.gone(), table.stored()) == (0, set(), 0)


def test_lost_lease_stops_the_moves(table: ExpiredTable) -> None:
    expired(table, 1, 2, 3, 5)
    with pytest.raises(FenceLostError):
        table.remove(holds=lambda: False)
    assert (table.gone(), table.stored()) == (set(), 1)


class Killed(BaseException):
    """The process ends here."""


@pytest.mark.slow
def test_removal_that_is_killed_at_any_change_is_finished_by_the_next(tmp_path: Path) -> None:
    """Before each file that is created, moved or deleted, from the stored release to the last delete."""
    whole = ExpiredTable(tmp_path / "whole")
    changes: list[str] = []
    whole.store.act = lambda name, _path: changes.append(name)
    _expire_and_remove(whole)
    assert changes.count("move") == len(WITHOUT_SIDE)
    for number in range(len(changes)):
        table = ExpiredTable(tmp_path / f"{number}")
        _kill_at(table, number)
        if len(table.table.snapshots) == 5:
            table.record(1, 2, 3)  # the next run plans the same batch
            table.expire(1, 2, 3)
        assert table.remove().stopped is None
        assert table.gone() == WITHOUT_SIDE, (number, changes)
        table.later(HOLD_DAYS).remove()
        assert (table.gone(), table.in_trash(), table.stored()) == (WITHOUT_SIDE, set(), 0), (number, changes)


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


def test_stored_release_is_no_share_of_orphans(table: ExpiredTable) -> None:
    """Until its files are in the trash, a scan knows them: only unexplained files need an approval."""
    expired(table, 1, 2, 3, 5)
    table.file("nobody", "data/nobody.parquet")
    state = table.lake.catalog.pin(TABLE)
    with table.remove_orphans().scan(state, table.policy, in_flight=frozenset()) as scan:
        assert [o.path for o in scan.paths.orphans()] == [table.uri("nobody")]
        assert scan.counts.kept[Kept.RELEASED] == len(ALONE)
        assert not scan.needs_approval


def test_expired_files_without_a_release_need_an_approval(table: ExpiredTable) -> None:
    table.expire(1, 2, 3, 5)
    state = table.lake.catalog.pin(TABLE)
    with table.remove_orphans().scan(state, table.policy, in_flight=frozenset()) as scan:
        assert (scan.counts.orphan_files, scan.needs_approval) == (len(ALONE), True)


def test_orphan_pass_takes_a_release_and_its_share_is_of_the_others(table: ExpiredTable) -> None:
    expired(table, 1, 2, 3, 5)
    table.file("nobody", "data/nobody.parquet")
    done = run_pass(table)
    assert (done.needs_approval, done.trashed_files, done.stopped) == (False, 1, None)
    assert done.released.released_files == len(ALONE)
    assert table.gone() == ALONE | {"nobody"}


def test_orphan_pass_that_may_not_take_a_release_leaves_its_files(table: ExpiredTable) -> None:
    expired(table, 1, 2, 3, 5)
    table.file("nobody", "data/nobody.parquet")
    table.scope = Scope(takes_released=False)
    done = run_pass(table)
    assert (done.trashed_files, table.gone(), table.stored()) == (1, {"nobody"}, 1)


def run_pass(table: ExpiredTable, *, sweep: bool = True) -> Any:
    state = table.lake.catalog.pin(TABLE)
    return table.remove_orphans().run(
        state, table.policy, in_flight=frozenset(), sweep=sweep, holds=lambda: True
    )


def test_expiry_deletes_no_trash_that_is_not_released(table: ExpiredTable) -> None:
    table.file("nobody", "data/nobody.parquet")
    expired(table, 1, 2, 3)
    run_pass(table)
    done = table.later(HOLD_DAYS).remove()
    assert (done.deleted_files, table.in_trash()) == (len(WITHOUT_SIDE), {"nobody"})


def test_trash_past_its_hold_is_deleted_only_if_the_plan_and_the_scope_say_so(table: ExpiredTable) -> None:
    table.file("nobody", "data/nobody.parquet")
    run_pass(table)
    table.later(HOLD_DAYS)
    assert run_pass(table, sweep=False).swept_files == 0
    table.scope = Scope(sweeps=False)
    assert run_pass(table).swept_files == 0
    assert table.in_trash() == {"nobody"}
    table.scope = Scope()
    assert run_pass(table).swept_files == 1
