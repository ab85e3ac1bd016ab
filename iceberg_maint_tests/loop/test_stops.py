"""What ends a run or keeps it from work: Terminate, leases, pauses, budgets."""

from __future__ import annotations

import signal
import threading
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest

from iceberg_maint.core.decisions import rules
from iceberg_maint.core.model.ids import Operation
from iceberg_maint.core.model.reasons import Reason, Verdict
from iceberg_maint.core.outcomes.outcome import OutcomeStatus
from iceberg_maint.core.planning.plan import Batch
from iceberg_maint.core.policy.data import Mode, Policy
from iceberg_maint.core.policy.runs import ForeignMaintainersPolicy, ForeignMode, WindowsPolicy
from iceberg_maint.ledger.database import Database
from iceberg_maint.ledger.leases import SqlLeases
from iceberg_maint.loop.guards import TableTimeout, leased, table_deadline
from iceberg_maint.loop.maintain import maintain
from iceberg_maint.loop.request import Request
from iceberg_maint.ports.observers import NoAudit
from iceberg_maint.ports.stored import Lease
from iceberg_maint_tests.support.context import changed
from iceberg_maint_tests.support.loop.world import POLICY, TABLE, Killed, Process, World

pytestmark = pytest.mark.seconds


def test_terminated_while_writing_hands_the_batch_back() -> None:
    world = World()

    def interrupt(_batch: Batch) -> None:
        world.before_write = lambda _batch: None
        world.clock.ms += 20_000
        raise KeyboardInterrupt

    world.before_write = interrupt
    with pytest.raises(KeyboardInterrupt):
        world.run()
    assert world.cancelled == 1
    report = world.ledger.records.last_report(world.now.state.uuid, Operation.REWRITE_DATA_FILES)
    assert report is not None
    assert (report.outcome.outcome, report.outcome.reason) == (OutcomeStatus.DEFERRED, Reason.TERMINATED)
    assert report.outcome.seconds == 20.0
    assert world.history("p=a").crashes == 0
    assert world.open_work() == (0, 2)
    (record,) = world.ledger.records.newest(str(TABLE), 10)
    assert (record.outcome.outcome, record.outcome.reason, record.outcome.message) == (
        OutcomeStatus.DEFERRED,
        Reason.TERMINATED,
        "stopped in order: 0 of 2 partitions done, the rest resumes",
    )
    found = world.run()
    assert [b.partitions for b in found.batches] == [("p=a",), ("p=b",)]
    assert world.open_work() == (0, 0)


def test_terminated_under_a_lost_lease_stays_terminated() -> None:
    """An interrupt that became a lost lease would have the program go on with the next table."""
    world = World()

    def interrupt(_batch: Batch) -> None:
        world.expire_leases()
        raise KeyboardInterrupt

    world.before_write = interrupt
    with pytest.raises(KeyboardInterrupt):
        world.run()
    world.before_write = lambda _batch: None
    world.run()
    assert world.open_work() == (0, 0)


def test_lost_fence_stops_before_the_table_is_touched() -> None:
    world = World()
    stolen = []

    def steal(_batch: Batch) -> None:
        if not stolen:
            world.expire_leases()
            stolen.append(world.ledger.leases.acquire(world.now.state.uuid, str(TABLE), "thief", 60, 0))

    world.before_commit = steal
    found = world.run()
    assert found.reason is Reason.LEASE_HELD
    assert world.our_commits() == 0
    world.expire_leases()
    world.run()
    assert world.our_commits() == 2


@pytest.mark.parametrize("is_taken", [True, False])
def test_batches_of_a_run_that_lost_its_lease_are_recorded_once(is_taken: bool) -> None:
    """It was stopped for longer than its lease, in the second batch. Another run may have taken the table since."""
    world = World("abc")

    def stand_still(batch: Batch) -> None:
        if batch.partitions == ("p=b",):
            world.before_write = lambda _batch: None
            world.clock.ms += 60_000
            world.expire_leases()
            if is_taken:
                assert world.run().outcome is OutcomeStatus.IMPROVED

    world.before_write = stand_still
    found = world.run()
    assert (found.outcome, found.reason) == (OutcomeStatus.IMPROVED, Reason.LEASE_HELD)
    world.run()
    records = world.ledger.records.newest(str(TABLE), 10)
    committed = sorted(
        (r.run_id, *b.partitions) for r in records for b in r.outcome.batches if b.snapshot_after is not None
    )
    words = {r.outcome.reason for r in records if r.run_id == "run-1" and not is_taken}
    assert words == (set() if is_taken else {Reason.LEASE_HELD})
    by_other = "run-2"
    assert committed == [("run-1", "p=a"), (by_other, "p=b"), (by_other, "p=c")]


class SettledTables(NoAudit):
    """An audit log that counts how often a run appends what it lacks."""

    def __init__(self) -> None:
        self.settled = 0

    def settle(self, table: str, table_uuid: str) -> bool:
        self.settled += 1
        return super().settle(table, table_uuid)


@pytest.mark.parametrize("is_stolen", [False, True])
def test_run_appends_to_the_audit_log_only_while_it_has_the_lease(is_stolen: bool) -> None:
    """The owner of the lease appends at the same time."""
    world, audit = World("a"), SettledTables()

    def steal(_batch: Batch) -> None:
        world.expire_leases()
        world.ledger.leases.acquire(world.now.state.uuid, str(TABLE), "thief", 60, 0)

    if is_stolen:
        world.before_commit = steal
    context = changed(world.context(Process()), audit=audit)
    maintain(TABLE, Request("run-1", operations=(Operation.REWRITE_DATA_FILES,)), context)
    assert audit.settled == (0 if is_stolen else 1)


def test_lease_of_another_run_is_waited_for_then_left() -> None:
    world = World()
    world.ledger.leases.acquire(world.now.state.uuid, str(TABLE), "other", 600, 0)
    started = world.clock.ms
    found = world.run()
    assert (found.outcome, found.reason) == (OutcomeStatus.NO_OP, Reason.LEASE_HELD)
    assert world.writes == []
    assert 45 <= (world.clock.ms - started) / 1000 <= 60


def test_fence_grows_beyond_the_tables_own_history() -> None:
    world = World("a")
    world.commit((), (), {"iceberg-maint.fence": "41"})
    world.run()
    assert world.now.state.newest_fence() == 42


def foreign_rewrite(world: World, fence: int) -> None:
    """A data rewrite of another installation."""
    (first, *_) = world.files("p=b")
    kept = next(f for f in world.now.live_files if f.path == first)
    marks = {
        "iceberg-maint.token": "theirs",
        "iceberg-maint.fence": str(fence),
        "iceberg-maint.installation": "other",
    }
    world.commit((first,), (replace(kept, path=f"{first}-theirs"),), marks)


def test_rewrite_of_another_installation_refuses_the_table_by_default() -> None:
    world = World()
    foreign_rewrite(world, 1)
    outcome = world.run()
    assert (outcome.outcome, outcome.reason) == (OutcomeStatus.UNSUPPORTED, Reason.FOREIGN_MAINTAINER)
    assert world.writes == []
    (commit,) = world.ledger.health.get(TABLE).foreign
    assert commit.maintainer == "iceberg_maint (installation other)"


def test_higher_fence_of_another_installation_ends_no_lease() -> None:
    policy = replace(POLICY, foreign_maintainers=ForeignMaintainersPolicy(mode=ForeignMode.IGNORE))
    world = World(policy=policy)

    acquire = world.ledger.leases.acquire

    def acquire_then_foreign_commit(*args: Any) -> Lease | None:
        lease = acquire(*args)
        foreign_rewrite(world, 1000)
        return lease

    world.ledger.leases.acquire = acquire_then_foreign_commit
    outcome = world.run()
    assert outcome.outcome is OutcomeStatus.IMPROVED
    assert [b.partitions for b in outcome.batches] == [("p=a",), ("p=b",)]


def test_advise_touches_nothing() -> None:
    world = World(policy=replace(POLICY, mode=Mode.ADVISE))
    before = world.now
    found = world.run()
    assert (found.outcome, found.reason) == (OutcomeStatus.NO_OP, Reason.ADVISE)
    assert set(found.partitions) == {(p, OutcomeStatus.NO_OP, Reason.ADVISE) for p in ("p=a", "p=b")}
    assert world.now is before
    assert (world.writes, world.open_work()) == ([], (0, 0))


def test_paused_table_resumes_not_even_old_work() -> None:
    world = World()
    with pytest.raises(Killed):
        world.run(Process(dies="after:save_plan"))
    world.expire_leases()
    world.ledger.registry.pause(str(TABLE), "migration")
    assert world.run().reason is Reason.PAUSED
    assert world.writes == []
    world.ledger.registry.resume(str(TABLE))
    assert world.run().outcome is OutcomeStatus.IMPROVED


def open_world(policy: Policy = POLICY) -> World:
    """A table with two open batches of a run that is dead."""
    world = World(policy=policy)
    with pytest.raises(Killed):
        world.run(Process(dies="after:save_plan"))
    world.expire_leases()
    return world


def test_rule_of_the_table_alone_stops_stored_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    world = open_world()

    def at_full_moon(_operation: Operation, _situation: rules.Situation) -> rules.Stop:
        return rules.Stop(Verdict.DEFER, Reason.NO_GAIN, {})

    with monkeypatch.context() as patch:
        patch.setattr(rules, "TABLE_STOPS", (*rules.TABLE_STOPS, at_full_moon))
        assert (world.run().reason, world.writes, world.open_work()) == (Reason.NO_GAIN, [], (0, 2))
    assert world.run().outcome is OutcomeStatus.IMPROVED


@pytest.mark.parametrize(
    "policy",
    [
        replace(POLICY, mode=Mode.ADVISE),
        replace(POLICY, foreign_maintainers=ForeignMaintainersPolicy(mode=ForeignMode.REFUSE)),
    ],
    ids=["advise", "foreign maintainer"],
)
def test_stored_batches_of_a_table_without_due_work_stop_by_the_same_rules(policy: Policy) -> None:
    world = open_world(replace(POLICY, foreign_maintainers=ForeignMaintainersPolicy(mode=ForeignMode.IGNORE)))
    foreign_rewrite(world, 1)
    world.append("p=a", 1)
    world.append("p=b", 1)
    world.policy = replace(policy, windows=replace(POLICY.windows, cold_after_seconds=3600))
    world.run()
    assert (world.writes, world.open_work()) == ([], (0, 2))


@pytest.mark.parametrize("name", [str(TABLE), "*"])
def test_pause_while_a_batch_is_at_work_starts_no_further_one(name: str) -> None:
    world = World("abc")
    world.before_write = lambda _batch: world.ledger.registry.pause(name, "migration")
    found = world.run()
    assert [b.partitions for b in found.batches] == [("p=a",)]
    assert [r for _, _, r in found.partitions] == [Reason.SMALL_FILES, Reason.PAUSED, Reason.PAUSED]
    assert world.open_work() == (0, 2)
    world.before_write = lambda _batch: None
    world.ledger.registry.resume(name)
    assert [b.partitions for b in world.run().batches] == [("p=b",), ("p=c",)]


def test_blackout_that_begins_while_a_batch_is_at_work_starts_no_further_one() -> None:
    world = World("abc")
    minute = world.clock.now_ms() // 60_000 % 1440 + 1
    window = f"{minute // 60:02}:{minute % 60:02}-{minute // 60 + 1:02}:{minute % 60:02}"
    world.policy = replace(POLICY, blackout_hours=(window,))
    world.before_write = lambda _batch: world.clock.sleep(60)
    found = world.run()
    assert [b.partitions for b in found.batches] == [("p=a",)]
    assert {r for _, _, r in found.partitions} == {Reason.SMALL_FILES, Reason.BLACKOUT}


def test_max_batches_leaves_the_rest_for_the_next_run() -> None:
    world = World("abc")
    found = world.run(max_batches=1)
    assert [b.partitions for b in found.batches] == [("p=a",)]
    assert [(p, r) for p, _, r in found.partitions if p != "p=a"] == [
        ("p=b", Reason.RUN_BUDGET),
        ("p=c", Reason.RUN_BUDGET),
    ]
    assert world.open_work() == (0, 2)
    world.run()
    assert [w for (w,) in world.writes] == ["p=a", "p=b", "p=c"]


def test_max_run_seconds_starts_no_new_batch() -> None:
    world = World("abc", replace(POLICY, max_run_seconds=60))
    world.before_write = lambda _batch: world.clock.sleep(40)
    found = world.run()
    assert len(found.batches) == 2
    assert found.partitions[-1][2] is Reason.TIME_BUDGET


def test_request_that_must_yield_starts_no_new_batch_and_the_next_run_does_the_rest() -> None:
    world, asked = World("abc"), [False]
    world.before_write = lambda _batch: asked.__setitem__(0, True)
    found = world.run(must_yield=lambda: asked[0])
    assert [b.partitions for b in found.batches] == [("p=a",)]
    assert [(p, r) for p, _, r in found.partitions if p != "p=a"] == [
        ("p=b", Reason.YIELDED),
        ("p=c", Reason.YIELDED),
    ]
    assert [b.partitions for b in world.run().batches] == [("p=b",), ("p=c",)]


def test_hour_budget_holds_across_runs() -> None:
    windows = WindowsPolicy(max_partitions_per_batch=1, max_partitions_per_hour=2)
    world = World("abc", replace(POLICY, windows=windows))
    assert len(world.run().batches) == 2
    found = world.run()
    assert (found.outcome, found.reason) == (OutcomeStatus.NO_OP, Reason.HOUR_BUDGET)


def test_resumed_batches_spend_of_the_run_budget() -> None:
    windows = WindowsPolicy(max_partitions_per_batch=1, max_bytes_per_run=120)
    world = World("ab", replace(POLICY, windows=windows))
    with pytest.raises(Killed):
        world.run(Process(dies="before:write"))
    world.expire_leases()
    world.append("p=c", 12)
    found = world.run()
    assert [b.partitions for b in found.batches] == [("p=a",), ("p=b",)]
    assert {p: r for p, _, r in found.partitions}["p=c"] is Reason.RUN_BUDGET


def test_lease_that_cannot_be_released_hides_no_interrupt() -> None:
    class Unreachable(SqlLeases):
        def release(self, _lease: Lease) -> None:
            raise OSError("the database went away")

    world = World()
    with (
        pytest.raises(KeyboardInterrupt),
        leased(
            changed(
                world.context(Process()),
                ledger=replace(world.ledger, leases=Unreachable(Database("sqlite://"))),
            ),
            world.now.state,
            "me",
        ),
    ):
        raise KeyboardInterrupt


def test_wait_for_a_lease_names_its_owner_and_its_end(caplog: pytest.LogCaptureFixture) -> None:
    world = World("a")
    uuid = world.now.state.uuid
    assert world.ledger.leases.acquire(uuid, str(TABLE), "run-of-anna", 45, 0) is not None
    owner = world.ledger.leases.owner(uuid)
    assert owner is not None
    assert world.run().reason is Reason.LEASE_HELD
    end = datetime.fromtimestamp(owner[1] / 1000, UTC).strftime("%H:%M:%S")
    assert [r.getMessage() for r in caplog.records] == [
        f"{TABLE}: waits for run run-of-anna, whose lease ends at {end} UTC unless it still works."
    ]


def test_table_that_hangs_gives_up_after_its_time_and_its_batch_counts_as_failed() -> None:
    world = World("ab", replace(POLICY, table_timeout_seconds=3600))
    before = signal.getsignal(signal.SIGALRM)
    world.before_write = lambda _batch: signal.raise_signal(signal.SIGALRM)  # as the timer does
    with pytest.raises(
        TableTimeout, match=r"^ICM-171 .* used up its time: table_timeout_seconds = 3600\. Fix: "
    ):
        world.run()
    assert signal.getsignal(signal.SIGALRM) is before
    assert world.abandoned == 1
    assert (world.history("p=a").ineffective, world.history("p=b").ineffective) == (1, 0)
    (record,) = world.ledger.records.newest(str(TABLE), 10)
    assert (record.outcome.outcome, record.outcome.reason) == (OutcomeStatus.FAILED, Reason.TERMINATED)
    assert record.outcome.message.startswith("ICM-171 ")
    world.before_write = lambda _batch: None
    assert [b.partitions for b in world.run().batches] == [("p=b",)]


def test_time_that_is_not_used_up_interrupts_nothing() -> None:
    world = World("ab", replace(POLICY, table_timeout_seconds=3600))
    assert world.run().outcome is OutcomeStatus.IMPROVED
    assert signal.getitimer(signal.ITIMER_REAL)[0] == 0


def test_work_that_waits_for_an_answer_is_interrupted_after_its_time() -> None:
    cancelled = threading.Event()
    with pytest.raises(TableTimeout), table_deadline("lake.db.t", 1, cancelled.set):
        threading.Event().wait(60)
    assert cancelled.wait(60)


def test_work_off_the_main_thread_is_cancelled_after_its_time() -> None:
    """Only the main thread can be interrupted."""
    cancelled = threading.Event()
    seen: list[bool] = []

    def body() -> None:
        with table_deadline("lake.db.t", 1, cancelled.set):
            seen.append(cancelled.wait(60))

    thread = threading.Thread(target=body)
    thread.start()
    thread.join()
    assert seen == [True]
