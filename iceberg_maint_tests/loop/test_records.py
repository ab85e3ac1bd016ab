"""What is on record of runs that were killed, and how often."""

from __future__ import annotations

import pytest
from sqlalchemy import update

from iceberg_maint.core.model.ids import Operation
from iceberg_maint.core.model.reasons import Reason
from iceberg_maint.core.model.table_state import FileKind
from iceberg_maint.core.outcomes.outcome import CommitStatus, OutcomeStatus
from iceberg_maint.core.outcomes.record import Record
from iceberg_maint.core.outcomes.verification import Proof
from iceberg_maint.core.planning.plan import Batch, BatchBody, make_plan
from iceberg_maint.core.planning.work import FileGroup, InputFile
from iceberg_maint.ledger.schema import attempt, lease
from iceberg_maint.loop.guards import LEASE_TTL_SECONDS
from iceberg_maint.loop.record import stored_observation
from iceberg_maint.ports.engine import WrittenFile
from iceberg_maint.ports.stored import Lease
from iceberg_maint_tests.support.core.values import delete
from iceberg_maint_tests.support.loop.world import TABLE, Killed, Process, World

pytestmark = pytest.mark.seconds


def records(world: World) -> list[Record]:
    """Those of work, oldest first."""
    return [r for r in reversed(world.ledger.records.newest(str(TABLE), 100)) if r.outcome.batches]


def kill(world: World, step: str, spares: int = 0) -> None:
    with pytest.raises(Killed):
        world.run(Process(dies=step, spares=spares))
    world.expire_leases()


def test_run_killed_after_its_swap_is_on_record_with_the_commit_it_made() -> None:
    world = World()
    kill(world, "after:swap", spares=1)
    assert records(world) == []
    world.run()
    (dead,) = records(world)
    assert (dead.run_id, dead.outcome.message) == ("run-1", "the run ended without a record")
    assert dead.outcome.outcome is OutcomeStatus.IMPROVED
    assert [(b.partitions, b.outcome, b.output_files) for b in dead.outcome.batches] == [
        (("p=a",), OutcomeStatus.IMPROVED, 1),
        (("p=b",), OutcomeStatus.IMPROVED, 1),
    ]
    ours = [s.snapshot_id for s in world.now.state.snapshots if s.summary]
    assert [b.snapshot_after for b in dead.outcome.batches] == ours
    assert dead.outcome.batches[1].message == "its token is in the table"
    assert dead.plan_id is not None


def test_run_killed_while_writing_is_on_record_with_what_it_left_undone() -> None:
    world = World()
    kill(world, "before:write", spares=1)
    world.run()
    dead, after = records(world)
    assert (dead.run_id, after.run_id) == ("run-1", "run-2")
    assert (dead.outcome.outcome, dead.outcome.reason) == (OutcomeStatus.FAILED, Reason.CRASHED)
    assert [(b.partitions, b.outcome, b.reason) for b in dead.outcome.batches] == [
        (("p=a",), OutcomeStatus.IMPROVED, Reason.SMALL_FILES),
        (("p=b",), OutcomeStatus.FAILED, Reason.CRASHED),
    ]
    assert [b.partitions for b in after.outcome.batches] == [("p=b",)]


def test_killed_run_worked_until_the_last_heartbeat_of_its_lease() -> None:
    world = World("a")
    with pytest.raises(Killed):
        world.run(Process(dies="before:write"))
    started_ms = world.ledger.registry.now_ms() - 100_000
    with world.ledger.work._database.write(world.now.state.uuid) as conn:
        conn.execute(update(attempt).values(started_ms=started_ms))
        beat_ms = started_ms + 20_000
        conn.execute(update(lease).values(expires_ms=beat_ms + LEASE_TTL_SECONDS * 1000))
    world.run()
    dead = records(world)[0]
    assert (dead.run_id, dead.ended_ms - dead.started_ms) == ("run-1", 20_000)
    assert [b.seconds for b in dead.outcome.batches] == [20.0]


def test_killed_run_that_left_nothing_to_do_is_on_record_with_the_next_run() -> None:
    world = World("a")
    kill(world, "before:append")
    assert world.open_work() == (0, 0)
    assert world.run().outcome is OutcomeStatus.NO_OP
    (dead,) = records(world)
    assert (dead.run_id, dead.outcome.outcome) == ("run-1", OutcomeStatus.IMPROVED)


def test_reconcile_puts_a_killed_run_on_record_and_its_commit_again_once_it_is_known() -> None:
    world = World("a")
    kill(world, "before:swap")
    world.reconcile()
    world.reconcile()
    (unknown,) = records(world)
    assert (unknown.outcome.outcome, unknown.outcome.reason) == (
        OutcomeStatus.UNKNOWN,
        Reason.UNKNOWN_COMMIT,
    )
    world.append("p=z")
    world.reconcile()
    world.reconcile()
    _, rejected = records(world)
    assert (rejected.run_id, rejected.outcome.message) == ("run-1", "settled after the run had ended")
    assert (rejected.outcome.outcome, rejected.outcome.reason) == (OutcomeStatus.FAILED, Reason.CRASHED)


def test_unknown_commit_is_on_record_again_once_it_is_settled() -> None:
    world = World("a")
    world.unknown = "lost"
    world.run()
    world.unknown = ""
    world.append("p=z")
    world.clock.sleep(86_400)
    world.run()
    told = [(r.run_id, r.outcome.outcome) for r in records(world)]
    assert told == [
        ("run-1", OutcomeStatus.UNKNOWN),
        ("run-1", OutcomeStatus.FAILED),
        ("run-2", OutcomeStatus.IMPROVED),
    ]


def test_run_is_on_record_before_it_gives_its_lease_back() -> None:
    """Else who takes it in between would tell of it as of one that died."""
    world, process = World("a"), Process()
    world.run(process)
    steps = process.seen
    assert steps.index("after:append") < steps.index("before:release")
    assert world.ledger.records.unrecorded_runs(lease_of(world, "another")) == ()


@pytest.mark.parametrize(
    ("kind", "live", "status"),
    [
        (FileKind.POSITION_DELETES, FileKind.POSITION_DELETES, CommitStatus.COMMITTED),
        (FileKind.DELETION_VECTOR, FileKind.DELETION_VECTOR, CommitStatus.COMMITTED),
        (FileKind.DELETION_VECTOR, FileKind.DATA, CommitStatus.REJECTED),
    ],
)
def test_conversion_whose_token_is_gone_is_known_by_its_delete_files(
    kind: FileKind, live: FileKind, status: CommitStatus
) -> None:
    """Its snapshot has expired; a data file of that name proves nothing."""
    world = World("a")
    batch, lease = conversion(world), lease_of(world, "dead")
    plan = make_plan(str(TABLE), batch.table_uuid, batch.operation, batch.snapshot_id, (batch,), ())
    world.ledger.work.save_plan(lease, plan)
    attempt = world.ledger.work.start_attempt(lease, batch.batch_id, "dead", {})
    written = WrittenFile("deletes", 5, 1, 0, 0, "{}", kind, None, min(batch.paths()))
    proof = Proof("full", equal=True, input_records=10, output_records=1, removed_records=1)
    world.ledger.work.record_intent(lease, attempt.attempt_id, (written,), proof)
    world.ledger.work.record_try(lease, attempt.attempt_id, batch.snapshot_id, "v1")
    world.expire_leases()
    world.commit((), [delete("deletes", live)])
    (settled,) = world.reconcile()
    assert settled.settlement.status is status
    still_open = world.ledger.work.open_batches(batch.table_uuid, batch.operation)
    assert bool(still_open) is (status is CommitStatus.REJECTED)
    (told,) = records(world)
    committed = told.outcome.outcome is OutcomeStatus.IMPROVED
    assert (told.operation, committed) == (batch.operation, status is CommitStatus.COMMITTED)


def conversion(world: World) -> Batch:
    """A conversion that examines the world's first data file."""
    state = world.now.state
    assert state.snapshot is not None
    first = world.now.live_files[0]
    return BatchBody(
        batch_id="conversion",
        table=str(TABLE),
        table_uuid=state.uuid,
        operation=Operation.CONVERT_EQUALITY_DELETES,
        strategy="convert",
        format_version=state.format_version,
        snapshot_id=state.snapshot.snapshot_id,
        snapshot_sequence_number=state.snapshot.sequence_number,
        schema_id=state.schema_id,
        groups=(FileGroup(first.partition, 0, 0, (InputFile(first.path, 10, 10, 1),), 0),),
        target_file_size_bytes=100,
        reasons=(Reason.EQUALITY_DELETES,),
    ).batch()


def lease_of(world: World, owner: str) -> Lease:
    lease = world.ledger.leases.acquire(world.now.state.uuid, str(TABLE), owner, 60, 0)
    assert lease is not None
    return lease


def test_observation_of_a_table_is_stored_once_it_was_measured() -> None:
    world = World("a")
    assert stored_observation(TABLE, world.context(Process())) is None
    world.run()
    observation = stored_observation(TABLE, world.context(Process()))
    assert observation is not None
    assert set(observation.measured.partitions) == {"p=a"}
