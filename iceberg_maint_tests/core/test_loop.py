"""The loop under faults: a crash at every step, foreign commits, and every answer a commit can give."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace

import pytest

from iceberg_maint.core.codec import dumps, loads
from iceberg_maint.core.history import PartitionHistory
from iceberg_maint.core.ids import Operation
from iceberg_maint.core.outcome import CommitStatus, OutcomeStatus, Rejection
from iceberg_maint.core.plan import Batch
from iceberg_maint.core.policy import Mode, WindowsPolicy
from iceberg_maint.core.proof import Proof
from iceberg_maint.core.reasons import Reason
from iceberg_maint.core.record import Record
from iceberg_maint.core.state import FileKind
from iceberg_maint.errors import RefusedError, StaleBatchError, UnknownTableError
from iceberg_maint.heartbeat import leased
from iceberg_maint.maintain import BatchEnded, PlanReady
from iceberg_maint.ports import Lease
from iceberg_maint_tests.core.build import delete
from iceberg_maint_tests.core.loop import POLICY, TABLE, Killed, Process, SetClock, World

LEDGER_STEPS = (
    "acquire_lease",
    "save_plan",
    "start_attempt",
    "record_intent",
    "record_try",
    "finish_attempt",
    "put_health",
    "release_lease",
    "append_record",
)
STEPS = [f"{when}:{what}" for what in (*LEDGER_STEPS, "write", "swap") for when in ("before", "after")]


def check_healed(world: World, rows: int) -> None:
    """Every partition is one file, no row is lost or doubled, and nothing is left open."""
    assert [len(world.files(p)) for p in ("p=a", "p=b")] == [1, 1]
    assert world.rows() == rows
    assert world.our_commits() == 2
    assert world.open_work() == (0, 0)


def test_run_heals_every_due_partition_and_records_it() -> None:
    world = World()
    rows = world.rows()
    found = world.run()
    check_healed(world, rows)
    assert (found.outcome, found.reason) == (OutcomeStatus.IMPROVED, Reason.SMALL_FILES)
    assert [b.partitions for b in found.batches] == [("p=a",), ("p=b",)]
    assert [(b.input_files, b.output_files) for b in found.batches] == [(6, 1), (6, 1)]
    (record,) = world.ledger.records(str(TABLE), 10)
    assert record.outcome == found
    assert loads(Record, dumps(record)) == record
    before, after = next((e.before, e.after) for e in world.events if isinstance(e, BatchEnded))
    assert (before["p=a"].data_files, after["p=a"].data_files) == (6, 1)


def test_run_of_a_healthy_table_does_nothing() -> None:
    world = World()
    world.run()
    writes = len(world.writes)
    found = world.run()
    assert (found.outcome, found.reason) == (OutcomeStatus.NO_OP, Reason.HEALTHY)
    assert len(world.writes) == writes
    assert len(world.ledger.records(str(TABLE), 10)) == 1


@pytest.mark.parametrize("spares", [0, 1])
@pytest.mark.parametrize("step", STEPS)
def test_killed_at_any_step_the_next_run_finishes_exactly_once(step: str, spares: int) -> None:
    world = World()
    rows = world.rows()
    process = Process(dies=step, spares=spares)
    try:
        world.run(process)
    except Killed:
        assert step in process.seen
    else:
        assert spares, f"{step} never happened"
    world.expire_leases()
    committed = list(world.tokens)
    world.run()
    check_healed(world, rows)
    assert world.tokens[: len(committed)] == committed
    assert len(set(world.tokens)) == 2


@pytest.mark.parametrize("step", STEPS)
def test_killed_again_and_again_still_finishes(step: str) -> None:
    """Each process gets one step further; back-off is waited out, no quarantine below its limit."""
    world = World()
    rows = world.rows()
    world.policy = replace(POLICY, retry=replace(POLICY.retry, quarantine_after_crashes=50))
    for spares in range(6):
        with suppress(Killed):
            world.run(Process(dies=step, spares=spares // 2))
        world.expire_leases()
        world.clock.sleep(7 * 86_400)
    world.run()
    check_healed(world, rows)


def test_killed_before_its_swap_is_settled_by_the_commits_that_follow() -> None:
    world = World()
    with pytest.raises(Killed):
        world.run(Process(dies="before:swap"))
    world.expire_leases()
    (settled,) = world.reconcile()
    assert settled.settlement.status is CommitStatus.UNKNOWN
    assert settled.leftover_bytes == 0
    assert world.open_work() == (1, 2)
    world.run()
    assert world.open_work() == (0, 0)
    assert world.writes == [("p=a",), ("p=a",), ("p=b",)]


def test_killed_after_its_swap_is_not_repeated() -> None:
    world = World()
    with pytest.raises(Killed):
        world.run(Process(dies="after:swap"))
    world.expire_leases()
    (settled,) = world.reconcile()
    assert settled.settlement.status is CommitStatus.COMMITTED
    world.run()
    assert world.writes == [("p=a",), ("p=b",)]
    assert world.history("p=a").crashes == 0


def test_killed_while_writing_leaves_bytes_told_of_nowhere() -> None:
    world = World()
    with pytest.raises(Killed):
        world.run(Process(dies="after:record_intent"))
    world.expire_leases()
    (settled,) = world.reconcile()
    assert (settled.settlement.status, settled.leftover_bytes) == (CommitStatus.REJECTED, 60)


def test_crash_that_repeats_is_held_for_a_person() -> None:
    """A batch that kills its process must not kill every process after it."""
    world = World("a")
    for _ in range(3):
        with pytest.raises(Killed):
            world.run(Process(dies="after:write"))
        world.expire_leases()
        world.clock.sleep(7 * 86_400)
    assert world.history("p=a").quarantined
    found = world.run()
    assert found.reason is Reason.QUARANTINED
    assert len(world.writes) == 3


def test_crash_backs_off_before_the_batch_is_resumed() -> None:
    world = World("a")
    for _ in range(2):
        with pytest.raises(Killed):
            world.run(Process(dies="after:write"))
        world.expire_leases()
    assert world.run().reason is Reason.BACK_OFF
    assert len(world.writes) == 2
    world.clock.sleep(POLICY.retry.crash_backoff_seconds + 1)
    assert world.run().outcome is OutcomeStatus.IMPROVED


def test_resume_keeps_to_the_partitions_asked_for() -> None:
    world = World()
    with pytest.raises(Killed):
        world.run(Process(dies="after:save_plan"))
    world.expire_leases()
    world.run(partitions=frozenset({"p=b"}))
    assert world.writes == [("p=b",)]
    assert world.open_work() == (0, 1)
    world.run()
    assert world.writes == [("p=b",), ("p=a",)]


def test_resume_does_not_touch_more_than_was_asked_for() -> None:
    """The open batch holds both partitions: it is planned anew, for the one asked for."""
    world = World(policy=replace(POLICY, windows=WindowsPolicy(max_partitions_per_batch=2)))
    with pytest.raises(Killed):
        world.run(Process(dies="after:save_plan"))
    world.expire_leases()
    world.run(partitions=frozenset({"p=b"}))
    assert world.writes == [("p=b",)]
    assert len(world.files("p=a")) == 6
    world.run()
    assert world.writes == [("p=b",), ("p=a",)]


def test_resume_leaves_out_a_batch_whose_inputs_are_gone() -> None:
    world = World("a")
    with pytest.raises(Killed):
        world.run(Process(dies="after:save_plan"))
    world.expire_leases()
    world.commit(["p=a/0"], ())
    world.run()
    assert world.files("p=a") == ["out-1-0"]
    assert world.rows() == 50
    assert world.open_work() == (0, 0)


def test_resume_leaves_out_a_batch_with_newer_deletes() -> None:
    world = World("a")
    with pytest.raises(Killed):
        world.run(Process(dies="after:save_plan"))
    world.expire_leases()
    world.commit((), [delete("d", of="p=a/0", seq=2)])
    world.run()
    (batch,) = [e.plan.batches[0] for e in world.events if isinstance(e, PlanReady)][-1:]
    assert batch.snapshot_sequence_number == 2
    assert next(f for f in batch.groups[0].files if f.path == "p=a/0").delete_files == ("d",)


def test_resume_goes_on_over_foreign_appends() -> None:
    world = World("a")
    with pytest.raises(Killed):
        world.run(Process(dies="after:save_plan"))
    world.expire_leases()
    world.append("p=a", 1)
    world.run()
    assert world.files("p=a") == ["out-1-0", "p=a/2-0"]


def test_stale_batch_is_planned_again_in_the_same_run() -> None:
    world = World("a")

    def foreign(_batch: Batch) -> None:
        world.before_commit = lambda _batch: None
        world.commit(["p=a/0"], ())

    world.before_commit = foreign
    found = world.run()
    assert [(b.outcome, b.reason) for b in found.batches] == [
        (OutcomeStatus.FAILED, Reason.STALE),
        (OutcomeStatus.IMPROVED, Reason.SMALL_FILES),
    ]
    assert found.outcome is OutcomeStatus.IMPROVED
    assert world.history("p=a").ineffective == 0
    assert world.open_work() == (0, 0)


def test_stale_again_and_again_backs_off() -> None:
    """Or automation would have it written for nothing at every tick."""
    world = World("a")

    def stale(_batch: Batch) -> None:
        raise StaleBatchError("the table moved on.")

    world.before_write = stale
    found = world.run()
    assert [b.reason for b in found.batches] == [Reason.STALE] * 3
    assert world.history("p=a").ineffective == 1
    assert world.our_commits() == 0
    assert world.run().reason is Reason.BACK_OFF


@pytest.mark.parametrize(
    ("rejection", "reason"),
    [
        (Rejection.CONFLICT, Reason.CONFLICT),
        (Rejection.REFUSED, Reason.GATE),
        (Rejection.ERROR, Reason.ERROR),
    ],
)
def test_rejected_commit_backs_off_doubling_to_quarantine(rejection: Rejection, reason: Reason) -> None:
    world = World("a")
    world.reject = rejection
    waits = []
    for _ in range(3):
        found = world.run()
        assert (found.outcome, found.reason) == (OutcomeStatus.FAILED, reason)
        assert world.run().reason in (Reason.BACK_OFF, Reason.QUARANTINED)
        past = world.history("p=a")
        waits.append((past.not_before_ms - world.clock.ms) // 1000)
        world.clock.ms = past.not_before_ms
    assert waits == [100, 200, 400]
    world.reject = None
    found = world.run()
    assert (found.outcome, found.reason) == (OutcomeStatus.NO_OP, Reason.QUARANTINED)
    assert len(world.writes) == 3
    assert world.run(partitions=frozenset({"p=a"})).reason is Reason.QUARANTINED
    assert world.run(partitions=frozenset({"p=a"}), force=True).outcome is OutcomeStatus.IMPROVED
    assert not world.history("p=a").quarantined


def test_rejected_commit_of_one_partition_does_not_stop_the_others() -> None:
    world = World()

    def first_only(batch: Batch) -> None:
        world.reject = Rejection.CONFLICT if batch.partitions == ("p=a",) else None

    world.before_commit = first_only
    found = world.run()
    assert [b.outcome for b in found.batches] == [OutcomeStatus.FAILED, OutcomeStatus.IMPROVED]
    assert found.outcome is OutcomeStatus.FAILED


def test_write_that_fails_backs_off() -> None:
    world = World("a")

    def fails(_batch: Batch) -> None:
        raise OSError("disk full\nsecond line")

    world.before_write = fails
    found = world.run()
    assert (found.outcome, found.reason) == (OutcomeStatus.FAILED, Reason.ERROR)
    assert found.batches[0].message == "OSError: disk full second line"
    assert world.history("p=a").ineffective == 1
    assert world.our_commits() == 0


@pytest.mark.parametrize("why", [RefusedError("ICM-103", "no Java found"), OSError("no jars")])
def test_engine_that_cannot_start_is_no_failure_of_a_partition(why: Exception) -> None:
    world = World("a")
    world.unfit = why
    for _ in range(5):
        with pytest.raises(type(why), match=r"no Java found|no jars"):
            world.run()
    assert world.history("p=a") == PartitionHistory()
    assert world.open_work() == (0, 1)
    world.unfit = None
    assert world.run().outcome is OutcomeStatus.IMPROVED


def test_write_refused_for_equality_deletes_is_unsupported() -> None:
    world = World("a")

    def refuses(_batch: Batch) -> None:
        raise RefusedError("ICM-119", "equality deletes apply.", "wait.")

    world.before_write = refuses
    found = world.run()
    assert (found.outcome, found.reason) == (OutcomeStatus.UNSUPPORTED, Reason.UNSUPPORTED_KEY)


def test_unequal_proof_commits_nothing() -> None:
    world = World("a")
    world.write_result = lambda w: replace(w, proof=Proof("full", False, 60, 59, 0, detail="rows 60 ≠ 59"))
    found = world.run()
    assert (found.outcome, found.reason) == (OutcomeStatus.FAILED, Reason.PROOF)
    assert found.batches[0].wasted_bytes == 60
    assert world.our_commits() == 0


def test_unknown_commit_that_was_done_is_found_by_its_token() -> None:
    """The answer was lost; the table shows the commit, and the table is what counts."""
    world = World()
    rows = world.rows()
    world.unknown = "done"
    assert world.run().outcome is OutcomeStatus.IMPROVED
    check_healed(world, rows)


def test_unknown_commit_stops_the_run_and_is_settled_by_a_later_one() -> None:
    world = World()
    rows = world.rows()
    world.unknown = "lost"
    found = world.run()
    assert (found.outcome, found.reason) == (OutcomeStatus.UNKNOWN, Reason.UNKNOWN_COMMIT)
    assert len(found.batches) == 1
    assert world.open_work()[0] == 1
    world.unknown = ""
    world.run()
    check_healed(world, rows)


def test_unknown_commit_that_lands_late_has_one_effect() -> None:
    """The zombie's swap succeeds after its process died: the next run finds the token."""
    world = World("a")
    rows = world.rows()
    with pytest.raises(Killed):
        world.run(Process(dies="before:swap"))
    (attempt,) = world.ledger.open_attempts(world.now.state.uuid)
    stored = world.ledger.open_batches(world.now.state.uuid, Operation.REWRITE_DATA_FILES)[0]
    replaced = [
        replace(world.now.live_files[0], path=f.path, size_bytes=f.size_bytes, record_count=f.record_count)
        for f in attempt.files or ()
    ]
    world.commit(stored.batch.paths(), replaced, {"iceberg-maint.token": attempt.token})
    world.expire_leases()
    world.run()
    assert (world.rows(), len(world.writes), world.open_work()) == (rows, 1, (0, 0))


def test_terminated_while_writing_hands_the_batch_back() -> None:
    world = World()

    def interrupt(_batch: Batch) -> None:
        world.before_write = lambda _batch: None
        raise KeyboardInterrupt

    world.before_write = interrupt
    with pytest.raises(KeyboardInterrupt):
        world.run()
    assert world.cancelled == 1
    assert world.history("p=a").crashes == 0
    assert world.open_work() == (0, 2)
    (record,) = world.ledger.records(str(TABLE), 10)
    assert (record.outcome.reason, record.outcome.message) == (
        Reason.TERMINATED,
        "ended by KeyboardInterrupt",
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
            stolen.append(world.ledger.acquire_lease(world.now.state.uuid, str(TABLE), "thief", 60, 0))

    world.before_commit = steal
    found = world.run()
    assert found.reason is Reason.LEASE_HELD
    assert world.our_commits() == 0
    world.expire_leases()
    world.run()
    assert world.our_commits() == 2


def test_lease_of_another_run_is_waited_for_then_left() -> None:
    world = World()
    world.ledger.acquire_lease(world.now.state.uuid, str(TABLE), "other", 600, 0)
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


def test_advise_touches_nothing() -> None:
    world = World(policy=replace(POLICY, mode=Mode.ADVISE))
    before = world.now
    found = world.run()
    assert (found.outcome, found.reason) == (OutcomeStatus.NO_OP, Reason.ADVISE)
    assert world.now is before
    assert (world.writes, world.open_work()) == ([], (0, 0))


def test_paused_table_resumes_not_even_old_work() -> None:
    world = World()
    with pytest.raises(Killed):
        world.run(Process(dies="after:save_plan"))
    world.expire_leases()
    world.ledger.pause(str(TABLE), "migration")
    assert world.run().reason is Reason.PAUSED
    assert world.writes == []
    world.ledger.resume(str(TABLE))
    assert world.run().outcome is OutcomeStatus.IMPROVED


def test_max_batches_leaves_the_rest_for_the_next_run() -> None:
    world = World("abc")
    found = world.run(max_batches=1)
    assert [b.partitions for b in found.batches] == [("p=a",)]
    assert [(p, r) for p, _, r in found.partitions if p != "p=a"] == [
        ("p=b", Reason.BATCH_LIMIT),
        ("p=c", Reason.BATCH_LIMIT),
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


def test_useless_commit_is_told_and_backs_off() -> None:
    world = World("a")

    def useless(written: object) -> object:
        (one,) = written.files  # type: ignore[attr-defined]
        files = tuple(replace(one, path=f"{one.path}-{i}", record_count=10, size_bytes=10) for i in range(6))
        return replace(written, files=files)  # type: ignore[type-var]

    world.write_result = useless  # type: ignore[assignment]
    found = world.run()
    assert (found.outcome, found.reason) == (OutcomeStatus.NO_OP, Reason.NO_EFFECT)
    assert world.history("p=a").ineffective == 1
    assert world.run().reason is Reason.BACK_OFF


def test_due_partition_that_cannot_gain_backs_off() -> None:
    """Its findings stay, so without a wait automation would ask for it at every tick."""
    world = World("a")
    younger = [replace(f, file_sequence_number=9) for f in world.now.live_files[:1]]
    world.commit([f.path for f in world.now.live_files], [*younger, delete("d", seq=2, records=9)])
    found = world.run()
    assert (found.outcome, found.partitions) == (
        OutcomeStatus.NO_OP,
        (("p=a", OutcomeStatus.NO_OP, Reason.NO_GAIN),),
    )
    assert world.history("p=a").ineffective == 1
    assert world.run().reason is Reason.BACK_OFF
    assert world.writes == []


def test_force_rewrites_a_healthy_partition() -> None:
    world = World("a")
    world.run()
    found = world.run(partitions=frozenset({"p=a"}), force=True)
    assert (found.outcome, found.reason) == (OutcomeStatus.NO_OP, Reason.FORCED)
    assert world.our_commits() == 2
    assert world.history("p=a").ineffective == 0


def test_equality_deletes_of_a_dropped_column_are_reported_unsupported_and_left_alone() -> None:
    world = World("a")
    world.commit((), [replace(delete("e", FileKind.EQUALITY_DELETES, seq=2), equality_ids=(99,))])
    found = world.run()
    assert (found.outcome, found.reason) == (OutcomeStatus.UNSUPPORTED, Reason.UNSUPPORTED_KEY)
    assert world.writes == []


def test_partition_the_table_cannot_have_is_refused() -> None:
    with pytest.raises(UnknownTableError, match="ICM-126"):
        World().run(partitions=frozenset({"q=a"}))


def test_partition_without_files_is_empty() -> None:
    found = World("a").run(partitions=frozenset({"p=z"}))
    assert (found.outcome, found.reason) == (OutcomeStatus.NO_OP, Reason.EMPTY)


def test_lease_that_cannot_be_released_hides_no_interrupt() -> None:
    class Unreachable:
        def __init__(self) -> None:
            self.ledger = World().ledger

        def __getattr__(self, name: str) -> object:
            return getattr(self.ledger, name)

        def release_lease(self, _lease: Lease) -> None:
            raise OSError("the database went away")

    with (
        pytest.raises(KeyboardInterrupt),
        leased(
            Unreachable(),  # type: ignore[arg-type]
            SetClock(),
            table_uuid="u",
            table=str(TABLE),
            owner="me",
            min_fence=0,
        ),
    ):
        raise KeyboardInterrupt
