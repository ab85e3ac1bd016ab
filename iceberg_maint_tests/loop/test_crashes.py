"""What the next run resumes, settles or plans again after a crash. The grid of steps: `test_kill_grid.py`."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from sqlalchemy import update

from iceberg_maint.core.decisions.waits import CRASH_SHARE
from iceberg_maint.core.model.ids import Operation
from iceberg_maint.core.model.reasons import Reason
from iceberg_maint.core.outcomes.outcome import CommitStatus, OutcomeStatus
from iceberg_maint.core.planning.plan import batch_text
from iceberg_maint.core.policy.runs import WindowsPolicy
from iceberg_maint.ledger.schema import batch as batch_table
from iceberg_maint.loop.maintain import PlanReady
from iceberg_maint.ports.stored import BatchStatus, StoredBatch
from iceberg_maint_tests.support.core.values import delete
from iceberg_maint_tests.support.loop.world import POLICY, Killed, Process, World

pytestmark = pytest.mark.seconds


def check_healed(world: World, rows: int) -> None:
    """Every partition is one file, no row is lost or doubled, and nothing is left open."""
    assert [len(world.files(p)) for p in ("p=a", "p=b")] == [1, 1]
    assert world.rows() == rows
    assert world.our_commits() == 2
    assert world.open_work() == (0, 0)


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
    assert world.writes == [("p=a",), ("p=b",)]


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


def test_killed_while_writing_leaves_bytes_in_no_record() -> None:
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
    world.clock.sleep(int(POLICY.retry.backoff_seconds * CRASH_SHARE) + 1)
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
    """The open batch holds both partitions: it is planned again, for the one asked for."""
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
    plans = [e.plan for e in world.events if isinstance(e, PlanReady)]
    (batch,) = [p.batches[0] for p in plans if p.operation == Operation.REWRITE_DATA_FILES][-1:]
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


def registered_again(world: World, path: str) -> None:
    """Somebody removes the file and registers the same path: with a sequence number of its own."""
    file = next(f for f in world.now.live_files if f.path == path)
    world.commit([path], ())
    number = world.now.state.last_sequence_number + 1
    world.commit((), [replace(file, data_sequence_number=number)])


def left_open(world: World) -> str:
    """The id of the batch that a run leaves open."""
    with pytest.raises(Killed):
        world.run(Process(dies="after:save_plan"))
    world.expire_leases()
    (stored,) = world.ledger.work.open_batches(world.now.state.uuid, Operation.REWRITE_DATA_FILES)
    return stored.batch.batch_id


def stored_batch(world: World, batch_id: str) -> StoredBatch:
    return world.ledger.work.batch(batch_id)


def test_resume_leaves_out_a_batch_whose_input_was_registered_again() -> None:
    world = World("a")
    batch_id = left_open(world)
    registered_again(world, "p=a/0")
    world.run()
    assert stored_batch(world, batch_id).status is BatchStatus.SUPERSEDED
    assert (world.files("p=a"), world.rows(), world.open_work()) == (["out-1-0"], 60, (0, 0))


def test_resume_leaves_out_a_batch_whose_delete_was_undone() -> None:
    world = World("a")
    world.commit((), [delete("d", of="p=a/0", seq=2)])
    batch_id = left_open(world)
    world.commit(["d"], ())
    world.run()
    assert stored_batch(world, batch_id).status is BatchStatus.SUPERSEDED


def test_resume_plans_a_batch_again_that_was_stored_without_its_deletes() -> None:
    world = World("a")
    world.commit((), [delete("d", of="p=a/0", seq=2)])
    batch_id = left_open(world)
    stored = stored_batch(world, batch_id).batch
    body = json.loads(batch_text(stored))
    body["applied_deletes"] = []
    with world.ledger.work._database.write(world.now.state.uuid) as conn:
        conn.execute(update(batch_table).values(body=json.dumps(body)))
    assert stored_batch(world, batch_id).batch.applied_deletes == ()
    world.events.clear()
    world.run()
    assert next(e.resumed for e in world.events if isinstance(e, PlanReady)) == ()
    assert stored_batch(world, batch_id).batch == stored
    assert stored_batch(world, batch_id).status is BatchStatus.DONE


def test_batch_that_crashed_twice_is_planned_one_partition_at_a_time() -> None:
    world = World("ab", replace(POLICY, windows=WindowsPolicy()))
    for _ in range(2):
        with pytest.raises(Killed):
            world.run(Process(dies="after:write"))
        world.expire_leases()
        world.clock.sleep(7 * 86_400)
    assert world.writes[0] == ("p=a", "p=b")
    world.writes.clear()
    world.run()
    assert world.writes == [("p=a",), ("p=b",)]
    check_healed(world, 120)
