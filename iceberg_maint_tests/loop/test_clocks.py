"""Clocks that disagree in the whole loop: nothing is removed, rewrites go on."""

from __future__ import annotations

from dataclasses import replace

import pytest
from sqlalchemy import update

from iceberg_maint.core.model.ids import Operation
from iceberg_maint.core.model.reasons import Reason
from iceberg_maint.core.model.table_state import Ref
from iceberg_maint.core.outcomes.outcome import OutcomeStatus
from iceberg_maint.core.policy.housekeeping import DAY_SECONDS
from iceberg_maint.core.removal.clock_skew import Uptime
from iceberg_maint.ledger.schema import batch as batch_rows
from iceberg_maint.ledger.schema import record as record_rows
from iceberg_maint_tests.support.loop.housekeeping import EXPIRE, REGROUP, HousekeepingWorld
from iceberg_maint_tests.support.loop.world import SetClock

MONTH_SECONDS = 30 * DAY_SECONDS
REFUSED = (OutcomeStatus.UNSUPPORTED, Reason.CLOCK_SKEW)


def unharmed(world: HousekeepingWorld, snapshots: list[int]) -> bool:
    return world.ids() == snapshots and {r.name for r in world.now.state.refs} == {"main", "old"}


@pytest.mark.parametrize("ahead_seconds", [MONTH_SECONDS, 301, -301, -MONTH_SECONDS])
def test_machine_and_ledger_apart_expire_nothing(ahead_seconds: int) -> None:
    world = HousekeepingWorld()
    world.ledger_clock = SetClock(world.clock.ms)
    world.clock.sleep(ahead_seconds)
    snapshots = world.ids()
    outcome = world.run(operations=(EXPIRE,))
    assert (outcome.outcome, outcome.reason, outcome.batches) == (*REFUSED, ())
    assert outcome.message.startswith("ICM-115 lake.db.t: the clocks of this machine and of the ledger are ")
    assert "iceberg-maint doctor --accept-clock" in outcome.message
    assert unharmed(world, snapshots)


def test_force_does_not_expire_by_clocks_that_disagree() -> None:
    world = HousekeepingWorld()
    world.ledger_clock = SetClock(world.clock.ms - MONTH_SECONDS * 1000)
    snapshots = world.ids()
    outcome = world.run(operations=(EXPIRE,), force=True)
    assert (outcome.outcome, outcome.reason) == REFUSED
    assert unharmed(world, snapshots)


def test_clocks_within_five_minutes_expire() -> None:
    world = HousekeepingWorld()
    world.ledger_clock = SetClock(world.clock.ms - 299_000)
    assert world.run(operations=(EXPIRE,)).outcome is OutcomeStatus.IMPROVED
    assert len(world.ids()) == 1


def test_store_apart_from_the_machine_and_the_ledger_expires_nothing_and_counts_as_no_failure() -> None:
    world = HousekeepingWorld()
    world.store_clock = SetClock(world.clock.ms - MONTH_SECONDS * 1000)
    snapshots = world.ids()
    outcome = world.run(operations=(EXPIRE,))
    assert (outcome.outcome, outcome.reason) == REFUSED
    assert "of the store are 2592000 s apart" in outcome.batches[0].message
    assert unharmed(world, snapshots)
    past = world.past(EXPIRE)
    assert (past.ineffective, past.environment_failures) == (0, 1)  # the automation waits, a person does not
    world.store_clock = world.clock
    assert world.run(operations=(EXPIRE,)).outcome is OutcomeStatus.IMPROVED


def test_clock_set_between_the_plan_and_the_swap_expires_nothing() -> None:
    world = HousekeepingWorld()
    world.ledger_clock = SetClock(world.clock.ms)
    snapshots = world.ids()
    world.before_commit = lambda _batch: world.clock.sleep(MONTH_SECONDS)
    with pytest.raises(Exception, match=r"ICM-115 lake\.db\.t: the clocks of this machine"):
        world.run(operations=(EXPIRE,))
    assert unharmed(world, snapshots)


def test_clock_that_moved_backwards_between_two_runs_expires_nothing_until_it_is_accepted() -> None:
    world = HousekeepingWorld()
    world.run(operations=(EXPIRE,))
    world.append("p=a", 1)
    world.clock.sleep(-400)
    world.change(last_updated_ms=world.clock.ms)
    outcome = world.run(operations=(EXPIRE,))
    assert (outcome.outcome, outcome.reason) == REFUSED
    assert "a clock moved backwards: the ledger holds a time 400 s later" in outcome.message
    world.ledger.leases.accept_clock()
    assert world.run(operations=(EXPIRE,)).reason is not Reason.CLOCK_SKEW


def test_all_clocks_of_one_machine_set_a_month_ahead_expire_nothing() -> None:
    world = HousekeepingWorld()
    world.clock.up = Uptime("boot-1", 1000)
    world.run(operations=(EXPIRE,))
    world.append("p=a", 2)
    world.change(refs=(Ref("main", "branch", world.ids()[-1]), Ref("old", "tag", world.ids()[0], 1000)))
    snapshots = world.ids()
    world.clock.sleep(MONTH_SECONDS)
    world.clock.up = Uptime("boot-1", 2000)
    outcome = world.run(operations=(EXPIRE,))
    assert (outcome.outcome, outcome.reason) == REFUSED
    assert "set forwards by 2591999 s while it ran" in outcome.message
    assert unharmed(world, snapshots)
    world.clock.up = Uptime("boot-2", 5)
    assert world.run(operations=(EXPIRE,), force=True).outcome is OutcomeStatus.IMPROVED


def test_table_updated_in_the_future_keeps_its_snapshots() -> None:
    world = HousekeepingWorld()
    snapshots = world.ids()
    world.change(last_updated_ms=world.clock.ms + 301_000)
    outcome = world.run(operations=(EXPIRE,))
    assert (outcome.outcome, outcome.reason) == REFUSED
    assert "the table's last-updated-ms is 301 s ahead of the clocks" in outcome.message
    assert unharmed(world, snapshots)


def test_rewrites_of_data_and_manifests_go_on_by_clocks_that_disagree() -> None:
    world = HousekeepingWorld()
    world.ledger_clock = SetClock(world.clock.ms - MONTH_SECONDS * 1000)
    assert world.run(operations=(Operation.REWRITE_DATA_FILES,)).outcome is OutcomeStatus.IMPROVED
    assert world.run(operations=(REGROUP,)).reason is not Reason.CLOCK_SKEW


@pytest.mark.parametrize(("ahead_seconds", "records"), [(MONTH_SECONDS, 3), (0, 1)])
def test_ledger_forgets_records_only_by_clocks_that_agree(
    ahead_seconds: int, records: int, caplog: pytest.LogCaptureFixture
) -> None:
    world = HousekeepingWorld()
    world.run(operations=(REGROUP,))
    world.run(operations=(EXPIRE,))
    with world.ledger.work._database.write(world.now.state.uuid) as conn:
        conn.execute(update(batch_rows).values(updated_ms=0))
        conn.execute(update(record_rows).values(appended_ms=0))
    world.policy = replace(world.policy, ledger_keep_days=30)
    world.ledger_clock = SetClock(world.clock.ms - ahead_seconds * 1000)
    assert world.run(operations=(Operation.REWRITE_DATA_FILES,)).outcome is OutcomeStatus.IMPROVED
    assert len(world.ledger.records.newest(str(world.now.state.table), 10)) == records
    assert ("The ledger and the audit log keep their old records." in caplog.text) is (ahead_seconds > 0)
