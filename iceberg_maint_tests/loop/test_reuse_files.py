"""Files of a dead run: committed by the next one as they are, or left and written again."""

from __future__ import annotations

from dataclasses import replace

import pytest
from sqlalchemy import update

from iceberg_maint.core.model.ids import Operation
from iceberg_maint.core.model.reasons import Reason
from iceberg_maint.core.model.table_state import TOKEN_PROPERTY
from iceberg_maint.core.outcomes.outcome import BatchOutcome, CommitStatus, Rejection
from iceberg_maint.core.outcomes.verification import Proof
from iceberg_maint.core.policy.data import RewriteDataFilesPolicy
from iceberg_maint.errors import StaleBatchError
from iceberg_maint.ledger.schema import attempt
from iceberg_maint.loop.attempts.attempt import ADOPT_WITHIN_SECONDS
from iceberg_maint.loop.maintain import BatchEnded
from iceberg_maint_tests.support.core.values import delete
from iceberg_maint_tests.support.loop.world import POLICY, TABLE, Killed, Process, World

pytestmark = pytest.mark.slow

A = ("p=a",)
REWRITE = Operation.REWRITE_DATA_FILES


def killed_at(world: World, step: str) -> None:
    with pytest.raises(Killed):
        world.run(Process(dies=step))
    world.expire_leases()


def dead(step: str = "after:record_intent") -> World:
    """One partition; its files are written, and the run was killed."""
    world = World("a")
    killed_at(world, step)
    return world


def last(world: World) -> BatchOutcome:
    return [e.outcome for e in world.events if isinstance(e, BatchEnded)][-1]


def expire_all_but_head(world: World) -> None:
    state = world.now.state
    assert state.snapshot is not None
    world.now = replace(world.now, state=replace(state, snapshots=(state.snapshot,)))
    world.catalog.put(world.now)


@pytest.mark.parametrize(
    "step", ["after:record_intent", "before:record_try", "after:record_try", "before:swap"]
)
def test_files_of_a_dead_run_are_committed_and_not_written_again(step: str) -> None:
    world = dead(step)
    rows = world.rows()
    world.run()
    assert (world.writes, world.adoptions) == ([A], [A])
    assert world.files("p=a") == ["out-1-0"]
    assert (world.rows(), world.our_commits(), world.open_work()) == (rows, 1, (0, 0))
    assert (last(world).counts, last(world).wasted_bytes) == ({"adopted_files": 1}, 0)


@pytest.mark.parametrize("step", ["before:write", "after:write", "before:record_intent"])
def test_files_that_were_not_written_down_are_written_again(step: str) -> None:
    world = dead(step)
    before = len(world.writes)
    world.run()
    assert (len(world.writes), world.adoptions) == (before + 1, [])


def test_process_that_dies_again_and_again_at_its_commit_writes_one_batch_of_bytes() -> None:
    world = World("a", replace(POLICY, retry=replace(POLICY.retry, quarantine_after_crashes=50)))
    for _ in range(5):
        killed_at(world, "before:swap")
        world.clock.sleep(7 * 86_400)
    world.run()
    assert world.writes == [A]
    assert world.files("p=a") == ["out-1-0"]
    assert world.open_work() == (0, 0)


@pytest.mark.parametrize(("step", "committed"), [("before:swap", False), ("after:swap", True)])
def test_files_are_reported_once_however_many_died_with_them(step: str, *, committed: bool) -> None:
    world = World("a", replace(POLICY, retry=replace(POLICY.retry, quarantine_after_crashes=50)))
    for at in ("before:record_try", "before:record_try", step):
        killed_at(world, at)
        world.clock.sleep(3600)
    if not committed:
        world.commit(["p=a/0"], ())
    world.reconcile()
    told = [b for r in reversed(world.ledger.records.newest(str(TABLE), 9)) for b in r.outcome.batches]
    assert world.writes == [A]
    assert [b.wasted_bytes for b in told] == [60, 0, 0]
    adopted = [{}, {}, {"adopted_files": 1} if committed else {}]
    assert [dict(b.counts) for b in told] == adopted


def test_leftover_files_of_attempts_that_adopted_them_of_each_other_are_counted_once() -> None:
    """Both are unsettled: neither has the table moved on since."""
    world = World("a", replace(POLICY, retry=replace(POLICY.retry, quarantine_after_crashes=50)))
    for _ in range(2):
        killed_at(world, "before:swap")
        world.clock.sleep(3600)
    world.commit(["p=a/0"], ())
    settled = world.reconcile()
    assert sorted(s.leftover_bytes for s in settled) == [0, 60]


def test_files_that_are_gone_are_written_again() -> None:
    world = dead()
    world.lost = {"out-1-0"}
    world.run()
    assert world.files("p=a") == ["out-2-0"]
    assert last(world).counts == {}


def test_files_that_cannot_be_read_are_written_again() -> None:
    world = dead()
    world.adopt_fails = OSError("no such file")
    world.run()
    assert world.files("p=a") == ["out-2-0"]


def test_batch_that_went_stale_while_it_was_looked_at_is_planned_again() -> None:
    world = dead()
    world.adopt_fails = StaleBatchError("its snapshot has expired")
    world.run()
    assert Reason.STALE in {e.outcome.reason for e in world.events if isinstance(e, BatchEnded)}
    assert world.writes == [A]


@pytest.mark.parametrize("deletes", [True, False])
def test_files_whose_inputs_have_changed_are_left_to_the_orphan_pass(*, deletes: bool) -> None:
    world = dead()
    if deletes:
        world.commit((), [delete("d", of="p=a/0", seq=2)])
    else:
        world.commit(["p=a/0"], ())
    world.run(operations=(REWRITE,))
    assert (world.adoptions, world.writes) == ([], [A, A])
    assert "out-1-0" not in world.files("p=a")
    # Nothing holds them any more: no attempt is open that names them as in flight.
    assert world.open_work() == (0, 0)


def test_files_survive_a_commit_of_others_beside_them() -> None:
    world = dead()
    world.append("p=a", 1)
    world.run()
    assert world.files("p=a") == ["out-1-0", "p=a/2-0"]


@pytest.mark.parametrize(("older_seconds", "writes"), [(-60, 1), (60, 2)])
def test_files_wait_half_as_long_as_an_orphan_must_be_old(older_seconds: int, writes: int) -> None:
    world = dead()
    then_ms = world.ledger.registry.now_ms() - (ADOPT_WITHIN_SECONDS + older_seconds) * 1000
    with world.ledger.work._database.write(world.now.state.uuid) as conn:
        conn.execute(update(attempt).values(started_ms=then_ms))
    world.run()
    assert len(world.writes) == writes


def test_proof_that_says_less_than_the_policy_asks_is_none() -> None:
    world = World("a")
    world.write_result = lambda w: replace(w, proof=Proof("footer", True, 60, 60, 0))
    killed_at(world, "after:record_intent")
    world.run()
    assert (world.adoptions, len(world.writes)) == ([], 2)


def test_proof_at_the_level_of_the_policy_will_do() -> None:
    world = World("a", replace(POLICY, rewrite_data_files=_footer(POLICY.rewrite_data_files)))
    world.write_result = lambda w: replace(w, proof=Proof("footer", True, 60, 60, 0))
    killed_at(world, "after:record_intent")
    world.run()
    assert world.adoptions == [A]


def _footer(policy: RewriteDataFilesPolicy) -> RewriteDataFilesPolicy:
    return replace(policy, proof=type(policy.proof)("footer"))


@pytest.mark.parametrize(
    ("rejection", "writes"), [(Rejection.ERROR, 1), (Rejection.CONFLICT, 1), (Rejection.REFUSED, 2)]
)
def test_files_are_offered_again_unless_they_were_refused(rejection: Rejection, writes: int) -> None:
    """A catalog that was away has nothing against them."""
    world = World("a")
    world.reject = rejection
    world.run()
    world.reject = None
    world.clock.sleep(86_400)
    world.run()
    assert len(world.writes) == writes
    assert world.files("p=a") == [f"out-{writes}-0"]


def test_commit_whose_snapshot_has_expired_is_known_by_its_file_and_not_repeated() -> None:
    """The token is gone with the snapshot; the file tells."""
    world = dead("after:swap")
    world.append("p=b", 1)
    expire_all_but_head(world)
    assert all(TOKEN_PROPERTY not in s.summary for s in world.now.state.snapshots)
    (settled,) = world.reconcile()
    assert settled.settlement.status is CommitStatus.COMMITTED
    world.run()
    assert (world.adoptions, world.our_commits()) == ([], 0)
    assert world.files("p=a") == ["out-1-0"]


def test_files_of_two_attempts_are_the_commit_of_one() -> None:
    """Adopted, committed, and nobody took note before the snapshot had expired."""
    world = dead("before:swap")
    killed_at(world, "after:swap")
    world.append("p=b", 1)
    expire_all_but_head(world)
    older, newer = world.reconcile()
    assert newer.settlement.status is CommitStatus.COMMITTED
    assert older.settlement.status is not CommitStatus.COMMITTED
    assert (older.leftover_bytes, newer.leftover_bytes) == (0, 0)
    assert world.ledger.work.open_batches(world.now.state.uuid, REWRITE) == ()


def test_swap_of_the_dead_run_that_comes_late_is_its_own_commit() -> None:
    """Its files were adopted meanwhile, and the other run died before its own swap."""
    world = dead("before:swap")
    killed_at(world, "before:swap")
    first, second = world.ledger.work.open_attempts(world.now.state.uuid)
    assert first.files == second.files
    token = {TOKEN_PROPERTY: first.token}
    added = [replace(f, path="out-1-0") for f in world.now.live_files[:1]]
    world.commit([f.path for f in world.now.live_files], added, token)
    older, newer = world.reconcile()
    assert older.settlement.status is CommitStatus.COMMITTED
    assert newer.settlement.status is CommitStatus.REJECTED
    assert (older.leftover_bytes, newer.leftover_bytes) == (0, 0)
    world.run()
    assert world.adoptions == [A]
    assert world.our_commits() == 1
