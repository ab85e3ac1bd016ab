"""The ledger's rows of dropped tables go after `ledger_keep_days`, where tables are listed."""

from __future__ import annotations

from dataclasses import replace

from sqlalchemy import func, select, update

from iceberg_maint.core.model.ids import READING
from iceberg_maint.errors import UnreadableTableError
from iceberg_maint.ledger.schema import batch, outcome, partition_history, record
from iceberg_maint.loop.fleet.known_tables import list_and_forget, prune_dropped_tables
from iceberg_maint.loop.read_table import note_unreadable
from iceberg_maint_tests.support.loop.world import POLICY, TABLE, Process, World

DAY_MS = 86_400_000


def dropped_world(idle_days: int) -> World:
    """A table that was maintained, and dropped as many days ago."""
    world = World("a")
    world.run()
    with world.ledger.work._database.write("t") as conn:
        for at in (batch.c.updated_ms, record.c.appended_ms, outcome.c.recorded_ms):
            conn.execute(update(at.table).values({at.name: at - idle_days * DAY_MS}))
    world.clock.ms = world.ledger.registry.now_ms()
    world.catalog.content.clear()
    return world


def test_work_of_a_table_dropped_longer_ago_than_the_policy_keeps_goes_with_the_next_listing() -> None:
    world = dropped_world(idle_days=91)
    list_and_forget(world.context(Process()))
    assert (world.ledger.records.newest(str(TABLE), 10), world.ledger.records.dropped_tables()) == ((), ())


def test_work_of_a_dropped_table_stays_as_long_as_the_policy_says() -> None:
    world = dropped_world(idle_days=89)
    list_and_forget(world.context(Process()))
    assert len(world.ledger.records.dropped_tables()) == 1
    world.policy = replace(POLICY, ledger_keep_days=None)
    with world.ledger.work._database.write("t") as conn:
        conn.execute(update(record).values(appended_ms=0))
    prune_dropped_tables(world.context(Process()))
    assert len(world.ledger.records.dropped_tables()) == 1


def test_work_under_a_name_that_is_no_tables_stays() -> None:
    world = dropped_world(idle_days=89)
    list_and_forget(world.context(Process()))
    (dropped,) = world.ledger.records.dropped_tables()
    world.ledger.leases.adopt_table(dropped.table_uuid, "db.t")
    world.policy = replace(POLICY, ledger_keep_days=1)
    prune_dropped_tables(world.context(Process()))
    assert [d.name for d in world.ledger.records.dropped_tables()] == ["db.t"]


def test_nothing_of_a_dropped_table_goes_while_clocks_disagree() -> None:
    world = dropped_world(idle_days=91)
    world.clock.ms += 2 * 3_600_000
    world.ledger_clock = replace(world.clock, ms=world.clock.ms - 2 * 3_600_000)
    list_and_forget(world.context(Process()))
    assert len(world.ledger.records.dropped_tables()) == 1


def test_failure_to_read_a_table_goes_with_the_listing_that_lacks_the_table() -> None:
    world = World("a")
    world.run()
    other, elsewhere = replace(TABLE, name="other"), replace(TABLE, catalog="elsewhere")
    error = UnreadableTableError("ICM-101", "garbage", "restore it.")
    context = world.context(Process())
    for table in (TABLE, other, elsewhere):
        note_unreadable(table, error, context)
    list_and_forget(context)
    assert unread(world) == 2
    world.catalog.content.clear()
    list_and_forget(context)
    # Another installation may have the other catalog.
    assert unread(world) == 1


def unread(world: World) -> int:
    with world.ledger.work._database.read() as conn:
        rows = select(func.count()).where(partition_history.c.operation == READING)
        return conn.scalar(rows) or 0
