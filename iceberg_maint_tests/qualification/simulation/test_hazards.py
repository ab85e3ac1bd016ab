"""Paths that are registered again, catalogs that are not configured or restored, clocks that jump, paused writers:
nothing is lost, nothing comes back, nothing in use goes."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from iceberg_maint.core.model.ids import Operation
from iceberg_maint.core.model.table_state import FileKind, LiveFile
from iceberg_maint_tests.qualification.simulation.faults import At
from iceberg_maint_tests.qualification.simulation.hazards import checkpoint, register_again
from iceberg_maint_tests.qualification.simulation.process import Process
from iceberg_maint_tests.qualification.simulation.sim_table import SimTable
from iceberg_maint_tests.qualification.simulation.world import NAMES, World, calm

pytestmark = pytest.mark.slow

TABLE = NAMES[0]
HOUR_MS = 3_600_000
MONTH_MS = 30 * 24 * HOUR_MS
REWRITE = Operation.REWRITE_DATA_FILES
EXPIRE, ORPHANS = Operation.EXPIRE_SNAPSHOTS, Operation.REMOVE_ORPHAN_FILES


def only_table(world: World) -> SimTable:
    (table,) = world.lake.tables.values()
    return table


def run(world: World, *operations: Operation, skew_ms: int = 0) -> str:
    process = world.start(TABLE, operations=operations, skew_ms=skew_ms)
    world.run_until_idle()
    return process.ended


def written(world: World) -> Process:
    """A rewrite of one partition that stands before it loads the base of its commit."""
    world.faults.script = [("load", At.STOP)]
    process = world.start(TABLE, operations=(REWRITE,), partitions=frozenset({"p=a"}), max_batches=1)
    world.run_until_idle()
    assert process.stopped
    return process


def goes_on(world: World, process: Process) -> None:
    process.stopped = False
    world.run_until_idle()


def data_files(table: SimTable) -> list[LiveFile]:
    return [f for f in table.live if f.kind is FileKind.DATA and f.partition == "p=a"]


def stored(world: World, paths: Iterable[str]) -> bool:
    return set(paths) <= set(world.lake.disk.files)


def expected_after(world: World, change: str) -> tuple[list[int], SimTable]:
    """The rows after a writer has changed the sources of a rewrite on its way, and the rewrite has gone on."""
    table = only_table(world)
    process = written(world)
    register_again(world.lake, table, data_files(table)[:2], change)
    rows = table.rows()
    goes_on(world, process)
    return rows, table


@pytest.mark.parametrize("between", ["", "key", "position"])
def test_sources_registered_again_before_the_commit_keep_their_rows(between: str) -> None:
    with World(0, calm()).alive() as world:
        rows, table = expected_after(world, between)
        assert table.rows() == rows
        assert len(rows) == 36


def test_delete_that_was_applied_and_is_taken_back_brings_its_rows_back() -> None:
    with World(0, calm()).alive() as world:
        table = only_table(world)
        file = data_files(table)[0]
        row = min(world.lake.content[file.path])
        number = table.next_number()
        delete = world.lake.new_file(table, "p=a", [row], number, FileKind.POSITION_DELETES)
        table.commit((*table.live, delete), "delete")
        process = written(world)
        table.commit([f for f in table.live if f is not delete], "delete")
        rows = table.rows()
        goes_on(world, process)
        assert table.rows() == rows
        assert row in rows


def test_file_put_back_while_its_expiry_is_on_its_way_stays() -> None:
    with World(0, calm()).alive() as world:
        table = only_table(world)
        (file, *_) = data_files(table)
        table.commit([f for f in table.live if f is not file], "delete")
        world.pass_time(48 * HOUR_MS)
        world.start(TABLE, operations=(EXPIRE,))
        world.step_until(lambda: "record_try" in world.last_line())
        world.lake.register(table, [file])
        world.run_until_idle()
        for _ in range(3):
            world.pass_time(48 * HOUR_MS)
            run(world, EXPIRE, ORPHANS)
        assert stored(world, [file.path])
        assert table.reach() <= set(world.lake.disk.files)


def test_files_of_a_catalog_that_is_not_configured_stay() -> None:
    with World(0, calm()).alive() as world:
        table = only_table(world)
        other = table.second_line()
        for _ in range(2):
            world.lake.append(other, "p=a", 1)
        world.pass_time(48 * HOUR_MS)
        assert "remove_orphan_files UNSUPPORTED refused" in run(world, ORPHANS)
        assert stored(world, other.reach())


def test_files_of_two_catalogs_that_commit_in_turn_stay() -> None:
    with World(0, calm()).alive() as world:
        table = only_table(world)
        other = table.second_line()
        for _ in range(2):
            world.lake.append(other, "p=a", 1)
            world.lake.append(table, "p=b", 1)
        world.lake.append(table, "p=b", 1)
        world.pass_time(48 * HOUR_MS)
        assert "remove_orphan_files UNSUPPORTED refused" in run(world, ORPHANS)
        assert stored(world, other.reach())


def test_released_files_that_another_catalog_reaches_stay() -> None:
    with World(0, calm()).alive() as world:
        table = only_table(world)
        (file, *_) = data_files(table)
        other = table.second_line()
        for _ in range(2):
            world.lake.append(other, "p=a", 1)
        table.commit([f for f in table.live if f is not file], "delete")
        world.lake.append(table, "p=b", 1)
        for _ in range(3):
            world.pass_time(48 * HOUR_MS)
            run(world, EXPIRE, ORPHANS)
        assert stored(world, other.reach())
        assert file.path in other.reach() - table.reach()


def test_file_registered_again_while_it_is_held_in_place_stays() -> None:
    with World(2, calm()).alive() as world:
        table = only_table(world)
        (file, other, *_) = data_files(table)
        table.commit([f for f in table.live if f not in (file, other)], "delete")
        world.lake.append(table, "p=b", 1)
        world.pass_time(48 * HOUR_MS)
        run(world, EXPIRE)
        assert stored(world, [file.path, other.path])
        world.lake.register(table, [file])
        world.pass_time(48 * HOUR_MS)
        run(world, EXPIRE, ORPHANS)
        assert (stored(world, [file.path]), stored(world, [other.path])) == (True, False)
        assert table.reach() <= set(world.lake.disk.files)
        assert world.watch.found["deleted in place"] > 0


def test_files_behind_a_restored_pointer_stay() -> None:
    with World(0, calm()).alive() as world:
        table = only_table(world)
        before = table.rows()
        for _ in range(3):
            world.lake.append(table, "p=c", 1)
        table.restore_pointer(3)
        (other,) = world.lake.others
        assert table.rows() == before
        assert len(other.rows()) == len(before) + 6
        world.pass_time(48 * HOUR_MS)
        assert "remove_orphan_files UNSUPPORTED refused" in run(world, ORPHANS)
        assert stored(world, other.reach())


def young(world: World) -> tuple[SimTable, set[int], LiveFile]:
    """A table of snapshots that are an hour old, with a file that nothing reaches."""
    table = only_table(world)
    stray = world.lake.new_file(table, "p=a", [1000], table.next_number())
    world.lake.append(table, "p=a", 1)
    world.pass_time(HOUR_MS)
    return table, {s.snapshot_id for s in table.state.snapshots}, stray


def is_whole(world: World, table: SimTable, snapshots: set[int], stray: LiveFile) -> bool:
    return snapshots == {s.snapshot_id for s in table.state.snapshots} and stored(world, [stray.path])


@pytest.mark.parametrize("ahead_ms", [MONTH_MS, -MONTH_MS])
@pytest.mark.parametrize("clock", ["machine", "ledger", "store"])
def test_one_clock_a_month_off_removes_nothing(clock: str, ahead_ms: int) -> None:
    with World(0, calm()).alive() as world:
        table, snapshots, stray = young(world)
        world.ledger_ahead_ms = ahead_ms if clock == "ledger" else 0
        world.store_ahead_ms = ahead_ms if clock == "store" else 0
        for operation in (EXPIRE, ORPHANS):
            run(world, operation, skew_ms=ahead_ms if clock == "machine" else 0)
        assert is_whole(world, table, snapshots, stray)


def test_machine_and_ledger_that_share_a_clock_a_month_ahead_of_the_store_remove_nothing() -> None:
    with World(0, calm()).alive() as world:
        table, snapshots, stray = young(world)
        world.ledger_ahead_ms = MONTH_MS
        run(world, EXPIRE, skew_ms=MONTH_MS)
        run(world, ORPHANS, skew_ms=MONTH_MS)
        assert is_whole(world, table, snapshots, stray)


def test_clock_that_jumps_between_plan_and_commit_expires_nothing_that_is_young() -> None:
    with World(0, calm()).alive() as world:
        table = only_table(world)
        world.pass_time(48 * HOUR_MS)
        for _ in range(2):
            world.lake.append(table, "p=a", 1)
        process = world.start(TABLE, operations=(EXPIRE,))
        world.step_until(lambda: "record_intent" in world.last_line())
        process.skew_ms = MONTH_MS
        kept = {s.snapshot_id for s in table.state.snapshots}
        world.run_until_idle()
        assert kept == {s.snapshot_id for s in table.state.snapshots}


def test_writer_that_was_paused_for_a_month_finds_its_position() -> None:
    with World(0, calm()).alive() as world:
        table = only_table(world)
        for job in ("first", "second"):
            checkpoint(world.lake, table, job, 1)
        positions = {s.snapshot_id for s in table.state.snapshots[-2:]}
        for _ in range(2):
            world.lake.append(table, "p=b", 1)
            world.pass_time(MONTH_MS)
            run(world, EXPIRE)
        assert positions <= {s.snapshot_id for s in table.state.snapshots}
