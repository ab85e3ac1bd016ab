"""Expiry and manifests under the whole loop: raced by others, settled from the table."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
from sqlalchemy import update

from iceberg_maint.core.commits.expiry_rules import settle_expiry
from iceberg_maint.core.decisions.history import PartitionHistory
from iceberg_maint.core.model.ids import WHOLE_TABLE, Operation
from iceberg_maint.core.model.reasons import Reason
from iceberg_maint.core.model.table_state import Ref, TableState
from iceberg_maint.core.outcomes.outcome import CommitResult, CommitStatus, OperationOutcome, OutcomeStatus
from iceberg_maint.core.planning.plan import Batch
from iceberg_maint.core.planning.work import ExpireSnapshots
from iceberg_maint.core.policy.data import Mode
from iceberg_maint.ledger.schema import attempt_try as tries
from iceberg_maint.ledger.schema import batch as batch_rows
from iceberg_maint.ledger.schema import record as record_rows
from iceberg_maint.loop.assess import assess
from iceberg_maint.loop.plan_batches import make_plans
from iceberg_maint.ports.engine import CommitContext, Written
from iceberg_maint_tests.support.loop.housekeeping import (
    EXPIRE,
    HOUSEKEEPING_POLICY,
    REGROUP,
    HousekeepingEngine,
    HousekeepingWorld,
)
from iceberg_maint_tests.support.loop.world import TABLE, Killed, Process, SetClock

pytestmark = pytest.mark.seconds


@pytest.mark.parametrize("operation", [EXPIRE, REGROUP])
def test_housekeeping_killed_after_its_swap_is_not_repeated(operation: Operation) -> None:
    world = HousekeepingWorld()
    with pytest.raises(Killed):
        world.run(Process(dies="after:swap"), operations=(operation,))
    world.expire_leases()
    (settled,) = world.reconcile()
    assert settled.settlement.status is CommitStatus.COMMITTED
    assert world.run(operations=(operation,)).reason is Reason.HEALTHY
    assert len(world.tokens) == 1
    assert world.past(operation).crashes == 0


@pytest.mark.parametrize("operation", [EXPIRE, REGROUP])
def test_housekeeping_killed_before_its_swap_is_unknown_until_the_table_moves(operation: Operation) -> None:
    world = HousekeepingWorld()
    with pytest.raises(Killed):
        world.run(Process(dies="before:swap"), operations=(operation,))
    world.expire_leases()
    (settled,) = world.reconcile()
    assert settled.settlement.status is CommitStatus.UNKNOWN
    world.append("p=a", 1)
    world.change()
    (settled,) = world.reconcile()
    assert settled.settlement.status is CommitStatus.REJECTED


def test_expiry_keeps_what_an_unsettled_attempt_was_based_on() -> None:
    """Its token may yet appear after that snapshot, and is looked for from there."""
    world = HousekeepingWorld()
    with pytest.raises(Killed):
        world.run(Process(dies="before:swap"), operations=(REGROUP,))
    world.expire_leases()
    held = world.ids()[-1]
    world.clock.sleep(30 * 86_400)
    for _ in range(2):
        world.append("p=a", 1)
        world.change(refs=(Ref("main", "branch", world.ids()[-1]),))
    world.clock.sleep(30 * 86_400)
    left: list[int] = []
    world.before_commit = lambda batch: left.extend(set(world.ids()) - set(batch.work.snapshots))
    # Settling comes first in a run; here what a plan alone would say.
    context = world.context(Process())
    seen = assess(world.now.state.table, context, (EXPIRE,))
    [plan] = make_plans(seen, context)
    assert held not in plan.batches[0].work.snapshots
    assert min(plan.batches[0].work.snapshots) == world.ids()[0]
    world.run(operations=(EXPIRE,))
    assert world.ids() == [max(left)]


@pytest.mark.parametrize(("days", "stays"), [(0.5, True), (2, False)])
def test_plan_that_no_run_continues_holds_its_snapshot_as_long_as_snapshots_stay(
    days: float, stays: bool
) -> None:
    """An operation that was turned off, or left to another maintainer, never closes its plan."""
    world = HousekeepingWorld()
    with pytest.raises(Killed):
        world.run(Process(dies="after:save_plan"), force=True)
    world.expire_leases()
    world.policy = replace(
        HOUSEKEEPING_POLICY, rewrite_data_files=replace(HOUSEKEEPING_POLICY.rewrite_data_files, enabled=False)
    )
    planned = world.ids()[-1]
    world.clock.sleep(30 * 86_400)  # the plan may be as young as what came after its snapshot
    world.append("p=a", 1)
    world.clock.sleep(int(days * 86_400))
    world.append("p=a", 1)
    world.change(refs=(Ref("main", "branch", world.ids()[-1]),))
    assert world.open_work() == (0, 1)
    world.run(operations=(EXPIRE,))
    assert (planned in world.ids()) is stays


def test_expiry_that_is_advised_shows_what_would_go_and_changes_nothing() -> None:
    world = HousekeepingWorld()
    world.policy = replace(HOUSEKEEPING_POLICY, mode=Mode.ADVISE)
    before = world.now.state
    assert world.run(operations=(EXPIRE,)).reason is Reason.ADVISE
    assert world.now.state == before


@pytest.mark.parametrize("expires", [True, False])
def test_trash_waits_for_an_expiry_only_where_there_is_one_to_come(*, expires: bool) -> None:
    """Where expiry is left to others, trash would else pile up for ever: each file is proved again anyhow."""
    world = HousekeepingWorld()
    world.policy = replace(
        HOUSEKEEPING_POLICY, expire_snapshots=replace(HOUSEKEEPING_POLICY.expire_snapshots, enabled=expires)
    )
    operations = (Operation.REMOVE_ORPHAN_FILES,)
    seen = assess(world.now.state.table, world.context(Process()), operations)
    assert seen.retention.expire != ()
    assert seen.sweeps is not expires


def test_expiry_that_took_more_with_it_is_reported_and_held_for_a_person(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = HousekeepingWorld()
    commit = HousekeepingEngine.commit

    def losing(
        engine: HousekeepingEngine, batch: Batch, written: Written, ticket: CommitContext
    ) -> CommitResult:
        return replace(commit(engine, batch, written, ticket), lost=("tag v on snapshot 1",))

    monkeypatch.setattr(HousekeepingEngine, "commit", losing)
    outcome = world.run(operations=(EXPIRE,))
    assert (outcome.outcome, outcome.reason) == (OutcomeStatus.FAILED, Reason.REFS_LOST)
    assert "ICM-130 lake.db.t: the expiry also removed tag v on snapshot 1" in outcome.batches[0].message
    assert world.past(EXPIRE).quarantined
    rarely = replace(HOUSEKEEPING_POLICY.expire_snapshots, every_seconds=10**9)
    for swept in (False, True):
        # That nothing is to expire any more lets nothing go of what has.
        for expiry in (rarely, replace(rarely, enabled=False)):
            world.policy = replace(HOUSEKEEPING_POLICY, expire_snapshots=expiry)
            seen = assess(TABLE, world.context(Process()), (EXPIRE,))
            assert (seen.retention.expire, seen.sweeps) == ((), swept)
        world.ledger.health.set_partition_history(seen.state.uuid, EXPIRE, {WHOLE_TABLE: PartitionHistory()})


class Careless:
    """A catalog that applies an expiry to whatever the table is by then, after `meanwhile` was done to it."""

    def __init__(
        self, monkeypatch: pytest.MonkeyPatch, meanwhile: Callable[[HousekeepingWorld], object]
    ) -> None:
        swap = HousekeepingEngine._swap

        def careless(
            engine: HousekeepingEngine, batch: Batch, ticket: CommitContext, _base: TableState
        ) -> None:
            engine.world.catalog.checks_commit_base = False
            meanwhile(engine.world)
            now = engine.world.now.state
            kept = tuple(r for r in now.refs if r.snapshot_id not in batch.work.snapshots)
            swap(engine, batch, ticket, replace(now, refs=kept))

        monkeypatch.setattr(HousekeepingEngine, "_swap", careless)


def tag(world: HousekeepingWorld) -> None:
    """Somebody tags the oldest snapshot."""
    world.change(refs=(*world.now.state.refs, Ref("audited", "tag", world.ids()[0])))


def killed_after_its_swap(world: HousekeepingWorld) -> None:
    with pytest.raises(Killed):
        world.run(Process(dies="after:swap"), operations=(EXPIRE,))
    world.expire_leases()


def last_record(world: HousekeepingWorld) -> OperationOutcome:
    (record,) = world.ledger.records.newest(str(TABLE), 1)
    return record.outcome


def test_expiry_whose_process_died_before_it_looked_is_reported_and_held_as_any_other(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A tag on a snapshot that expires is set at the moment of the swap, and the process dies after it."""
    world = HousekeepingWorld()
    first = world.ids()[0]
    Careless(monkeypatch, tag)
    killed_after_its_swap(world)
    (settled,) = world.reconcile()
    assert settled.settlement.status is CommitStatus.COMMITTED
    assert settled.settlement.lost == (f"tag audited on snapshot {first}",)
    (told,) = last_record(world).batches
    assert (told.outcome, told.reason) == (OutcomeStatus.FAILED, Reason.REFS_LOST)
    message = f"ICM-130 {TABLE}: the expiry also removed tag audited on snapshot {first};"
    assert told.message == settled.settlement.why
    assert told.message.startswith(message)
    assert world.past(EXPIRE) == PartitionHistory(quarantined=True, reason=told.message)
    assert world.left_open(EXPIRE) == (0, 0)
    seen = assess(TABLE, world.context(Process()), (EXPIRE,))
    assert (seen.history.last_done_ms, seen.sweeps) == (None, False)


def test_expiry_whose_process_died_before_it_looked_lost_nothing_to_a_writer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = HousekeepingWorld()
    Careless(monkeypatch, lambda world: world.append("p=a", 1))
    killed_after_its_swap(world)
    (settled,) = world.reconcile()
    assert (settled.settlement.status, settled.settlement.lost) == (CommitStatus.COMMITTED, ())
    assert last_record(world).outcome is OutcomeStatus.IMPROVED
    assert world.past(EXPIRE) == PartitionHistory()


def test_expiry_whose_log_no_longer_reaches_back_waits_for_a_person(monkeypatch: pytest.MonkeyPatch) -> None:
    world = HousekeepingWorld()
    Careless(monkeypatch, tag)
    killed_after_its_swap(world)
    for _ in range(100):
        world.change()
    (settled,) = world.reconcile()
    (told,) = settled.settlement.lost
    assert told.startswith(
        "the check for lost snapshots and refs failed: LookupError: the metadata log does not reach back to mem://v"
    )
    assert last_record(world).reason is Reason.REFS_LOST
    assert world.past(EXPIRE).quarantined


def test_expiry_that_was_compared_with_its_base_has_lost_nothing_however_short_the_log() -> None:
    world = HousekeepingWorld()
    killed_after_its_swap(world)
    for _ in range(100):
        world.change()
    (settled,) = world.reconcile()
    assert (settled.settlement.status, settled.settlement.lost) == (CommitStatus.COMMITTED, ())
    assert world.past(EXPIRE) == PartitionHistory()


def on_its_way(world: HousekeepingWorld) -> tuple[int, ...]:
    """An expiry whose process died when it had asked a catalog that compares no base: what it is to remove."""
    world.catalog.checks_commit_base = False
    with pytest.raises(Killed):
        world.run(Process(dies="after:record_try"), operations=(EXPIRE,))
    world.expire_leases()
    (stored,) = world.ledger.work.open_batches(world.now.state.uuid, EXPIRE)
    return stored.batch.work.snapshots


def arrives(world: HousekeepingWorld, expired: tuple[int, ...]) -> None:
    """The catalog applies an expiry to the table as it is by now."""
    state = world.now.state
    kept = tuple(s for s in state.snapshots if s.snapshot_id not in expired)
    world.change(snapshots=kept, refs=tuple(r for r in state.refs if r.snapshot_id not in expired))


def test_expiry_that_a_catalog_may_still_apply_is_unknown_for_an_hour() -> None:
    world = HousekeepingWorld()
    on_its_way(world)
    world.append("p=a", 1)
    world.ledger_clock = SetClock(world.ledger.registry.now_ms())  # tries are dated by the database
    for age_seconds, status in ((0, CommitStatus.UNKNOWN), (3600, CommitStatus.REJECTED)):
        with world.ledger.work._database.write(world.now.state.uuid) as conn:
            conn.execute(update(tries).values(recorded_ms=tries.c.recorded_ms - age_seconds * 1000))
        (settled,) = world.reconcile()
        assert settled.settlement.status is status
        world.expire_leases()
    assert world.reconcile() == ()


def test_expiry_that_comes_late_is_reported_with_what_it_took_though_its_batch_was_planned_again() -> None:
    """A tag is set after the request was given up on, and what was planned meanwhile leaves its snapshot out."""
    world = HousekeepingWorld()
    first = world.ids()[0]
    late = on_its_way(world)
    assert first in late
    world.append("p=a", 1)
    tag(world)
    world.run(operations=(EXPIRE,))
    assert first in world.ids()
    assert world.left_open(EXPIRE) == (1, 0)
    arrives(world, late)
    (settled,) = world.reconcile()
    assert settled.settlement.lost == (f"tag audited on snapshot {first}",)
    assert world.past(EXPIRE).quarantined
    assert world.left_open(EXPIRE) == (0, 0)


@pytest.mark.parametrize("step", ["set_partition_history", "settle_attempt", "append"])
@pytest.mark.parametrize("when", ["before", "after"])
def test_hold_of_an_expiry_that_lost_more_outlives_who_settles_it(
    monkeypatch: pytest.MonkeyPatch, when: str, step: str
) -> None:
    """Whoever dies at it leaves the attempt to be settled, or the hold behind."""
    world = HousekeepingWorld()
    Careless(monkeypatch, tag)
    killed_after_its_swap(world)
    with pytest.raises(Killed):
        world.run(Process(dies=f"{when}:{step}"), operations=(EXPIRE,))
    assert world.past(EXPIRE).quarantined or world.left_open(EXPIRE)[0] == 1
    world.expire_leases()
    world.run(operations=(EXPIRE,))
    assert world.past(EXPIRE).quarantined
    assert world.left_open(EXPIRE) == (0, 0)
    told = [b.reason for r in world.ledger.records.newest(str(TABLE), 9) for b in r.outcome.batches]
    assert told == [Reason.REFS_LOST]


def test_both_in_one_cycle_leave_the_newest_snapshot_and_one_manifest() -> None:
    world = HousekeepingWorld()
    assert world.run(operations=(REGROUP, EXPIRE)).outcome is OutcomeStatus.IMPROVED
    assert len(world.ids()) == 2  # main's head of a second ago, and the rewrite of manifests
    assert len(world.now.state.manifests) == 1


def test_manifests_that_are_rewritten_beside_a_refused_file_name_the_fault() -> None:
    world = HousekeepingWorld()
    refused = PartitionHistory(ineffective=1, reason="ICM-101 x.parquet is damaged. Fix: restore the file.")
    world.ledger.health.set_partition_history(
        world.now.state.uuid, Operation.REWRITE_DATA_FILES, {"p=a": refused, "p=b": refused}
    )
    outcome = world.run(operations=(REGROUP,))
    assert outcome.outcome is OutcomeStatus.IMPROVED
    assert [b.message for b in outcome.batches] == [
        (
            "the files of the manifests are as before, also those of a fault that remains: rewrite_data_files of p=a (2 "
            "partitions have a fault): ICM-101 x.parquet is damaged. Fix: restore the file."
        )
    ]


def test_open_batch_of_housekeeping_is_planned_again() -> None:
    world = HousekeepingWorld()
    with pytest.raises(Killed):
        world.run(Process(dies="after:save_plan"), operations=(EXPIRE,))
    world.expire_leases()
    world.append("p=a", 1)
    world.change(refs=(Ref("main", "branch", world.ids()[-1]), Ref("new", "tag", world.ids()[1])))
    second, last = world.ids()[1], world.ids()[-2:]
    world.run(operations=(EXPIRE,))
    assert world.ids() == [second, *last]
    assert world.left_open(EXPIRE) == (0, 0)


EXPIRY = ExpireSnapshots((1,), ("r",))


@pytest.mark.parametrize(
    ("work", "base", "may_come", "status"),
    [
        (EXPIRY, None, True, CommitStatus.REJECTED),
        (EXPIRY, "here", False, CommitStatus.COMMITTED),
        (EXPIRY, "elsewhere", True, CommitStatus.COMMITTED),
        (replace(EXPIRY, refs=("main",)), "elsewhere", False, CommitStatus.REJECTED),
        (replace(EXPIRY, refs=("main",)), "elsewhere", True, CommitStatus.UNKNOWN),
        (replace(EXPIRY, refs=("main",)), "here", False, CommitStatus.UNKNOWN),
        (None, "elsewhere", False, CommitStatus.REJECTED),
        (None, "elsewhere", True, CommitStatus.UNKNOWN),
        (None, "here", False, CommitStatus.UNKNOWN),
    ],
)
def test_expiry_is_settled_by_what_it_meant_to_remove(
    work: ExpireSnapshots | None, base: str | None, may_come: bool, status: CommitStatus
) -> None:
    state = replace(HousekeepingWorld().now.state, metadata_location="here")
    assert settle_expiry(work, base, state, may_come=may_come).status is status


def test_ended_work_of_long_ago_is_forgotten_at_the_end_of_a_run() -> None:
    world = HousekeepingWorld()
    world.run(operations=(REGROUP,))
    world.run(operations=(EXPIRE,))
    with world.ledger.work._database.write(world.now.state.uuid) as conn:
        conn.execute(update(batch_rows).values(updated_ms=0))
        conn.execute(update(record_rows).values(appended_ms=0))
    world.clock.ms = world.ledger.registry.now_ms()
    kept = replace(HOUSEKEEPING_POLICY, ledger_keep_days=None)
    for world.policy, records in ((kept, 3), (HOUSEKEEPING_POLICY, 2)):
        world.append("p=a", 1)
        world.change(refs=(Ref("main", "branch", world.ids()[-1]),))
        world.clock.sleep(2 * 86_400)
        world.append("p=a", 1)
        world.change(refs=(Ref("main", "branch", world.ids()[-1]),))
        assert world.run(operations=(EXPIRE,)).outcome is OutcomeStatus.IMPROVED
        assert len(world.ledger.records.newest(str(world.now.state.table), 10)) == records
