"""Housekeeping beside work that is begun: what is in use never expires, no file goes that may yet be needed."""

from __future__ import annotations

import pytest

from iceberg_maint.core.model.ids import HOUSEKEEPING_OPERATIONS, Operation
from iceberg_maint.core.model.reasons import Reason
from iceberg_maint_tests.qualification.simulation.faults import Answer, At
from iceberg_maint_tests.qualification.simulation.sim_table import SimTable
from iceberg_maint_tests.qualification.simulation.world import NAMES, World, calm

pytestmark = pytest.mark.slow

TABLE = NAMES[0]
HOUR_MS = 3_600_000
REWRITE = Operation.REWRITE_DATA_FILES
EXPIRE, ORPHANS = Operation.EXPIRE_SNAPSHOTS, Operation.REMOVE_ORPHAN_FILES


def killed(world: World, call: str, at: At = At.KILL_BEFORE) -> SimTable:
    """A rewrite of one partition is killed at this call; its lease runs out."""
    world.faults.script = [(call, at)]
    world.start(TABLE, operations=(REWRITE,), partitions=frozenset({"p=a"}), max_batches=1)
    world.run_until_idle()
    world.late.clear()
    world.pass_time(60_000)
    (table,) = world.lake.tables.values()
    return table


def keep_house(world: World, *operations: Operation) -> str:
    process = world.start(TABLE, operations=operations or HOUSEKEEPING_OPERATIONS)
    world.run_until_idle()
    return process.ended


def written(world: World) -> set[str]:
    """Files that attempts have written down."""
    return {path for a in world.watch.seen.attempts.values() for path in a.files or ()}


def there(world: World) -> set[str]:
    return set(world.lake.disk.files)


def test_expiry_keeps_the_snapshot_of_a_plan_that_is_not_done() -> None:
    with World(0, calm()).alive() as world:
        table = killed(world, "start_attempt")
        planned = table.state.snapshot
        world.pass_time(HOUR_MS)
        for _ in range(2):
            world.lake.append(table, "p=b", 1)
        world.pass_time(HOUR_MS + HOUR_MS // 2)
        assert "expire_snapshots IMPROVED" in keep_house(world, EXPIRE)
        assert planned in table.state.snapshots
        world.pass_time(48 * HOUR_MS)
        keep_house(world, EXPIRE)
        assert planned not in table.state.snapshots


def test_expiry_keeps_what_an_unsettled_commit_was_based_on() -> None:
    """On a table where nothing happens it may land still, however late."""
    with World(0, calm()).alive() as world:
        table = killed(world, "swap")
        base = table.state.snapshot
        world.pass_time(48 * HOUR_MS)
        keep_house(world, EXPIRE)
        assert len(world.ledger.work.open_attempts(table.uuid)) == 1
        assert base in table.state.snapshots


def test_tag_set_between_plan_and_commit_of_an_expiry_is_kept() -> None:
    with World(0, calm()).alive() as world:
        (table,) = world.lake.tables.values()
        oldest = table.state.snapshots[0].snapshot_id
        world.pass_time(48 * HOUR_MS)
        world.start(TABLE, operations=(EXPIRE,))
        world.step_until(lambda: "record_intent" in world.last_line())
        table.tag("release", oldest)
        world.run_until_idle()
        assert oldest in {s.snapshot_id for s in table.state.snapshots}


def test_reader_that_is_silent_for_a_month_holds_its_snapshot() -> None:
    with World(0, calm()).alive() as world:
        (table,) = world.lake.tables.values()
        oldest = table.state.snapshots[0].snapshot_id
        world.ledger.registry.put_reader(table.uuid, "consumer", oldest)
        world.pass_time(31 * 24 * HOUR_MS)
        keep_house(world, EXPIRE)
        assert oldest in {s.snapshot_id for s in table.state.snapshots}


def test_reader_that_registers_between_plan_and_commit_of_an_expiry_keeps_its_snapshot() -> None:
    with World(0, calm()).alive() as world:
        (table,) = world.lake.tables.values()
        oldest = table.state.snapshots[0].snapshot_id
        world.pass_time(48 * HOUR_MS)
        world.start(TABLE, operations=(EXPIRE,))
        world.step_until(lambda: "record_intent" in world.last_line())
        world.ledger.registry.put_reader(table.uuid, "consumer", oldest)
        world.run_until_idle()
        assert oldest in {s.snapshot_id for s in table.state.snapshots}


def test_expiry_that_a_catalog_says_it_has_done_and_has_not_is_unknown() -> None:
    with World(0, calm()).alive() as world:
        world.pass_time(48 * HOUR_MS)
        world.faults.answer_script = [Answer.OK_LIE]
        assert "expire_snapshots UNKNOWN" in keep_house(world, EXPIRE)


def test_reader_holds_the_snapshot_it_has_come_to() -> None:
    with World(0, calm()).alive() as world:
        (table,) = world.lake.tables.values()
        oldest = table.state.snapshots[0].snapshot_id
        world.ledger.registry.put_reader(table.uuid, "consumer", oldest)
        world.pass_time(48 * HOUR_MS)
        keep_house(world, EXPIRE)
        assert oldest in {s.snapshot_id for s in table.state.snapshots}


def test_files_of_an_unsettled_commit_are_no_orphans_however_old() -> None:
    with World(0, calm()).alive() as world:
        table = killed(world, "swap")
        files = written(world)
        world.pass_time(100 * HOUR_MS)
        keep_house(world, ORPHANS)
        assert len(world.ledger.work.open_attempts(table.uuid)) == 1
        assert files
        assert files <= there(world)


def test_files_written_lately_are_no_orphans_although_no_snapshot_reaches_them() -> None:
    with World(0, calm()).alive() as world:
        killed(world, "record_intent", At.KILL_AFTER)
        world.pass_time(HOUR_MS)
        keep_house(world, ORPHANS)
        assert written(world) <= there(world)


def test_files_that_a_pending_manifest_names_are_no_orphans_until_it_is_gone() -> None:
    with World(0, calm()).alive() as world:
        (table,) = world.lake.tables.values()
        pending = world.lake.new_file(table, "p=a", [1], 0).path
        folder = table.state.metadata_location.rpartition("/")[0]
        manifest = f"{folder}/{'f' * 32}-op-00000-0-17-00001.avro"
        world.lake.disk.put(manifest, 1, [pending.encode()])
        for _ in range(3):
            world.pass_time(25 * HOUR_MS)
            keep_house(world)
            assert {pending, manifest} <= there(world)
        world.lake.disk.delete(manifest)
        world.pass_time(25 * HOUR_MS)
        keep_house(world)
        assert pending not in there(world)


def test_orphans_stay_in_the_trash_for_the_hold() -> None:
    with World(0, calm()).alive() as world:
        (table,) = world.lake.tables.values()
        stray = world.lake.new_file(table, "p=a", [1], 0).path
        for hours, trashed in ((25, 1), (23, 1), (2, 0)):
            world.pass_time(hours * HOUR_MS)
            keep_house(world)
            assert stray not in there(world)
            assert [p for p in world.lake.disk.origin.values() if p == stray] == [stray]
            assert len([p for p in world.lake.disk.origin if p in there(world)]) == trashed


def test_files_of_a_dead_run_that_no_run_adopts_are_trashed_and_swept() -> None:
    with World(0, calm()).alive() as world:
        table = killed(world, "record_intent", At.KILL_AFTER)
        files = written(world)
        for gone in table.live[:1]:
            table.commit([f for f in table.live if f is not gone], "delete")
        for _ in range(3):
            world.pass_time(30 * HOUR_MS)
            keep_house(world)
        assert files
        assert files.isdisjoint(there(world))
        assert table.reach() <= there(world)
        assert not [p for p in world.lake.disk.files if "trash" in p and p not in world.lake.disk.lines]


def test_files_that_an_orphan_pass_may_be_about_to_move_are_not_adopted() -> None:
    """It was stopped before its first move, for longer than its lease lasts."""
    with World(0, calm()).alive() as world:
        table = killed(world, "record_intent", At.KILL_AFTER)
        files = written(world)
        world.pass_time(25 * HOUR_MS)
        world.faults.script = [("move", At.STOP)]
        zombie = world.start(TABLE, operations=(ORPHANS,))
        world.run_until_idle()
        assert zombie.stopped
        world.pass_time(60_000)
        world.start(TABLE, operations=(REWRITE,))
        world.run_until_idle()
        zombie.stopped = False
        world.run_until_idle()
        assert files.isdisjoint(table.reach())
        assert table.reach() <= there(world)


def test_orphan_pass_stopped_past_its_lease_moves_nothing_that_came_into_use_since() -> None:
    """But for the one file it was stopped at: another engine adds two that were written long ago."""
    with World(0, calm()).alive() as world:
        (table,) = world.lake.tables.values()
        strays = [world.lake.new_file(table, "p=a", [n], table.next_number()) for n in (1000, 1001, 1002)]
        world.pass_time(25 * HOUR_MS)
        world.faults.script = [("move", At.STOP)]
        zombie = world.start(TABLE, operations=(ORPHANS,))
        world.run_until_idle()
        assert zombie.stopped
        world.pass_time(60_000)
        stray, *used = sorted(strays, key=lambda f: f.path)
        table.commit([*table.live, *used], "append")
        zombie.stopped = False
        world.run_until_idle()
        assert "LEASE_HELD" in zombie.ended.upper()
        assert stray.path not in there(world)
        assert {f.path for f in used} <= there(world)


def test_files_of_a_dead_run_that_somebody_has_removed_are_written_again() -> None:
    with World(0, calm()).alive() as world:
        table = killed(world, "record_intent", At.KILL_AFTER)
        for path in written(world):
            world.lake.disk.delete(path)
        world.start(TABLE, operations=(REWRITE,))
        world.run_until_idle()
        assert len(table.landed) == 3
        assert table.reach() <= there(world)


def test_orphan_pass_killed_between_two_moves_is_taken_up_by_the_next() -> None:
    with World(0, calm()).alive() as world:
        table = killed(world, "record_intent", At.KILL_AFTER)
        strays = [world.lake.new_file(table, "p=a", [n], 0).path for n in (1, 2, 3)]
        orphans = {*strays, *written(world)}
        world.pass_time(25 * HOUR_MS)
        world.faults.script, world.faults.spares = [("move", At.KILL_AFTER)], 1
        world.start(TABLE, operations=(ORPHANS,))
        world.run_until_idle()
        assert len(orphans & there(world)) == 2
        world.pass_time(60_000)
        keep_house(world, ORPHANS)
        assert not orphans & there(world)
        world.pass_time(30 * HOUR_MS)
        keep_house(world)
        assert not [p for p in world.lake.disk.origin if p in world.lake.disk.files]
        assert table.reach() <= there(world)


def test_file_that_is_committed_while_it_is_looked_at_stays_at_its_place() -> None:
    """Another engine adds a file that was written long ago."""
    with World(0, calm()).alive() as world:
        (table,) = world.lake.tables.values()
        file = world.lake.new_file(table, "p=a", [world.lake.new_key() * 1000], table.next_number())
        world.pass_time(25 * HOUR_MS)
        world.start(TABLE, operations=(ORPHANS,))
        world.step_until(lambda: world.last_line().endswith("reach"))
        table.commit([*table.live, file], "append")
        world.run_until_idle()
        assert file.path in there(world)
        assert table.reach() <= there(world)


def test_expiry_killed_after_its_swap_is_known_by_what_is_gone() -> None:
    with World(0, calm()).alive() as world:
        (table,) = world.lake.tables.values()
        world.pass_time(48 * HOUR_MS)
        world.faults.script = [("read back", At.KILL_BEFORE)]
        world.start(TABLE, operations=(EXPIRE,))
        world.run_until_idle()
        assert len(table.state.snapshots) == 1
        world.pass_time(60_000)
        world.start(TABLE, settles=True)
        world.run_until_idle()
        assert [a.status for a in world.watch.seen.attempts.values()] == ["DONE"]


def test_tag_that_went_with_an_expiry_is_reported_although_its_process_died() -> None:
    """A catalog that compares no base takes the tag along; the process dies before it sees that."""
    with World(0, calm()).alive() as world:
        (table,) = world.lake.tables.values()
        table.by_ref = True
        oldest = table.state.snapshots[0].snapshot_id
        world.pass_time(48 * HOUR_MS)
        world.faults.script = [("read back", At.KILL_BEFORE)]
        world.start(TABLE, operations=(EXPIRE,))
        world.step_until(lambda: "record_try" in world.last_line())
        table.tag("release", oldest)
        world.run_until_idle()
        assert oldest not in {s.snapshot_id for s in table.state.snapshots}
        world.pass_time(60_000)
        world.start(TABLE, settles=True)
        world.run_until_idle()
        assert [a.status for a in world.watch.seen.attempts.values()] == ["FAILED"]
        (record,) = world.ledger.records.newest(str(TABLE), 1)
        assert record.outcome.reason is Reason.REFS_LOST
        assert f"also removed tag release on snapshot {oldest};" in record.outcome.batches[0].message
        world.pass_time(48 * HOUR_MS)
        world.lake.append(table, "p=b", 1)
        world.pass_time(48 * HOUR_MS)
        assert "quarantined" in keep_house(world, EXPIRE)


def test_expiry_stopped_past_its_lease_expires_nothing_that_is_in_use_by_then() -> None:
    with World(1, calm()).alive() as world:
        (table,) = world.lake.tables.values()
        oldest = table.state.snapshots[0].snapshot_id
        world.pass_time(48 * HOUR_MS)
        world.faults.script = [("load", At.STOP)]
        zombie = world.start(TABLE, operations=(EXPIRE,))
        world.run_until_idle()
        world.ledger.registry.put_reader(table.uuid, "consumer", oldest)
        world.pass_time(60_000)
        keep_house(world, EXPIRE)
        zombie.stopped = False
        world.run_until_idle()
        assert zombie.ended
        assert oldest in {s.snapshot_id for s in table.state.snapshots}


@pytest.mark.parametrize("skew_days", [30, -30])
def test_run_whose_clock_is_a_month_off_removes_nothing(skew_days: int) -> None:
    with World(0, calm()).alive() as world:
        (table,) = world.lake.tables.values()
        stray = world.lake.new_file(table, "p=a", [1000], table.next_number())
        for _ in range(3):
            world.pass_time(HOUR_MS)
            world.lake.append(table, "p=a", 1)
        snapshots = [s.snapshot_id for s in table.state.snapshots]
        for operation in (EXPIRE, ORPHANS):
            run = world.start(TABLE, operations=(operation,), skew_ms=skew_days * 24 * HOUR_MS, force=True)
            world.run_until_idle()
            assert "clock_skew" in run.ended
        assert [s.snapshot_id for s in table.state.snapshots] == snapshots
        assert stray.path in there(world)
