"""What the simulation has found, each as small as it can be told."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest

from iceberg_maint.core.model.ids import Operation
from iceberg_maint.core.model.reasons import Reason
from iceberg_maint.core.outcomes.outcome import OutcomeStatus
from iceberg_maint.core.policy.runs import WindowsPolicy
from iceberg_maint.errors import FenceLostError, RefusedError
from iceberg_maint.loop.maintain import MAX_REPLANS
from iceberg_maint_tests.qualification.simulation.faults import Answer, At
from iceberg_maint_tests.qualification.simulation.world import NAMES, POLICY, World, calm

pytestmark = pytest.mark.slow

TABLE = NAMES[0]
REWRITE = Operation.REWRITE_DATA_FILES


def test_table_recreated_under_a_lease_is_refused_and_taken_by_the_next_run() -> None:
    with World(0, calm()).alive() as world:
        process = world.start(TABLE)
        world.step_until(lambda: "acquire" in world.last_line())
        world.lake.append(world.lake.create(TABLE), "p=a", 6)
        world.run_until_idle()
        assert process.ended.startswith("ICM-129")
        after = world.start(TABLE)
        world.run_until_idle()
        assert "IMPROVED" in after.ended


def test_run_terminated_after_its_last_batch_is_on_record_with_it() -> None:
    """The ledger had the end of the batch, the run had not."""
    faults = calm()
    faults.script = [("finish_attempt", At.TERM_AFTER)]
    with World(0, faults).alive() as world:
        world.start(TABLE)
        world.run_until_idle()
        world.start(TABLE)
        world.run_until_idle()
        told = [b.batch_id for r in world.ledger.records.newest(None, 10) for b in r.outcome.batches]
        landed = [one.batch_id for one in world.lake.landed()]
        assert sorted(told) == sorted(landed)
        assert len(landed) == 3


def test_ledger_put_back_to_before_the_attempt_still_knows_its_commit_by_the_token() -> None:
    with World(0, calm()).alive() as world:
        world.start(TABLE)
        world.step_until(lambda: "record_intent" in world.last_line())
        world.back_up()
        world.run_until_idle()
        world.restore()
        world.pass_time(60_000)
        world.start(TABLE)
        world.run_until_idle()
        assert world.ledger.work.open_attempts("uuid-0") == ()
        committed = [a for a in world.watch.seen.attempts.values() if a.status == "DONE"]
        assert [a.batch_id for a in committed][:1] == [next(iter(world.lake.landed())).batch_id]


def test_unknown_commit_whose_base_has_expired_is_settled() -> None:
    faults = calm()
    faults.script = [("swap", At.KILL_BEFORE)]
    with World(3, faults).alive() as world:
        world.start(TABLE)
        world.run_until_idle()
        world.late.clear()
        (table,) = world.lake.tables.values()
        for _ in range(3):
            world.lake.append(table, "p=b", 1)
        table.expire(2)
        world.pass_time(60_000)
        world.start(TABLE)
        world.run_until_idle()
        assert world.ledger.work.open_attempts(table.uuid) == ()


def test_main_rolled_back_behind_a_batch_is_left_until_the_table_changes() -> None:
    """The plan is that of the batch that is DONE; doing again at once what was rolled back would
    help nobody."""
    with World(0, calm()).alive() as world:
        world.start(TABLE, max_batches=1)
        world.run_until_idle()
        (table,) = world.lake.tables.values()
        table.rewind()
        again = world.start(TABLE, partitions=frozenset({"p=a"}))
        world.run_until_idle()
        assert [(o.outcome, o.batches) for o in again.outcomes][-1] == ("NO_OP", ())
        world.lake.append(table, "p=a", 1)
        after = world.start(TABLE, partitions=frozenset({"p=a"}))
        world.run_until_idle()
        assert "IMPROVED" in after.ended


def test_settling_under_the_lease_of_another_table_is_refused() -> None:
    with World(0, calm(), tables=2).alive() as world:
        lease = world.ledger.leases.acquire("uuid-0", str(NAMES[0]), "me", 45, 0)
        state = world.lake.tables[NAMES[1]].state
        with pytest.raises(RefusedError, match="ICM-129"):
            world.settle_now(state, lease)


def test_partition_of_two_batches_whose_first_fails_counts_once_and_waits() -> None:
    """Each batch would fail alike, and a run would put it into quarantine by itself."""
    faults = calm()
    faults.script = [("write", At.FAIL_BEFORE)]
    with World(0, faults).alive() as world:
        world.policy = replace(POLICY, windows=WindowsPolicy(max_files_per_batch=6))
        (table,) = world.lake.tables.values()
        world.lake.append(table, "p=a", 6)
        process = world.start(TABLE, partitions=frozenset({"p=a"}), operations=(REWRITE,))
        world.run_until_idle()
        (outcome,) = process.outcomes
        assert [b.outcome for b in outcome.batches] == [OutcomeStatus.FAILED]
        past = world.ledger.health.history(table.uuid, str(TABLE), REWRITE).of("p=a")
        assert (past.ineffective, past.crashes) == (1, 0)
        assert len(world.ledger.work.open_batches(table.uuid, REWRITE)) == 1


def test_partition_of_two_batches_starts_the_second_with_a_clean_slate_once_the_first_has_worked() -> None:
    """Else the second batch would go on counting the crash before the first."""
    faults = calm()
    faults.script = [("write", At.KILL_BEFORE)]
    with World(0, faults).alive() as world:
        world.policy = replace(POLICY, windows=WindowsPolicy(max_files_per_batch=6))
        (table,) = world.lake.tables.values()
        world.lake.append(table, "p=a", 6)
        for writes in (["write"], ["write", "write"]):
            faults.script = [(name, At.KILL_BEFORE) for name in writes[-1:]]
            faults.spares = len(writes) - 1
            world.start(TABLE, partitions=frozenset({"p=a"}), operations=(REWRITE,))
            world.run_until_idle()
            world.pass_time(60_000)
        assert world.watch.found["reported DONE"] == 1
        past = world.ledger.health.history(table.uuid, str(TABLE), REWRITE).of("p=a")
        assert past.crashes == 1


def test_ledger_put_back_to_its_beginning_goes_on_from_the_fences_of_the_table() -> None:
    with World(0, calm()).alive() as world:
        (table,) = world.lake.tables.values()
        world.back_up()
        for _ in range(3):
            world.start(TABLE)
            world.run_until_idle()
            world.lake.append(table, "p=a", 6)
        world.restore()
        before = len(table.landed)
        world.start(TABLE)
        world.run_until_idle()
        fences = [one.fence for one in table.landed]
        assert len(fences) > before
        assert fences == sorted(fences)
        assert fences[before] > fences[before - 1]


def test_lease_given_by_a_ledger_put_back_is_worth_nothing_below_the_fences_of_the_table() -> None:
    """Whoever waited for it had looked at the table before the others' commits."""
    with World(0, calm()).alive() as world:
        (table,) = world.lake.tables.values()
        world.back_up()
        for _ in range(3):
            world.start(TABLE)
            world.run_until_idle()
            world.lake.append(table, "p=a", 6)
        world.restore()
        lease = world.ledger.leases.acquire(table.uuid, str(TABLE), "me", 45, 0)
        with pytest.raises(FenceLostError, match=r"the lease has fence 1: the ledger was restored"):
            world.settle_now(table.state, lease)


def test_run_that_slept_past_its_lease_learns_that_another_has_taken_the_table() -> None:
    """Nobody has put the ledger back: who is told so looks for a backup that was never restored."""
    with World(0, calm()).alive() as world:
        (table,) = world.lake.tables.values()
        lease = world.ledger.leases.acquire(table.uuid, str(TABLE), "me", 45, 0)
        world.pass_time(60_000)
        world.start(TABLE)
        world.run_until_idle()
        with pytest.raises(FenceLostError, match=r"the lease has fence 1 and is over: another run has taken"):
            world.settle_now(table.state, lease)


def test_writer_that_is_always_faster_is_left_alone_after_a_few_plans() -> None:
    with World(0, calm()).alive() as world:
        world.competes_until = 10_000
        process = world.start(TABLE, operations=(REWRITE,))
        world.run_until_idle()
        (outcome,) = process.outcomes
        assert {b.reason for b in outcome.batches} == {Reason.STALE}
        assert world.watch.found["attempts"] == 3 * (MAX_REPLANS + 1)
        again = world.start(TABLE, operations=(REWRITE,))
        world.run_until_idle()
        assert "back_off" in again.ended


def test_swap_that_lands_long_after_its_answer_was_lost_is_recognised() -> None:
    """Until main moves it may still come, whoever asks."""
    faults = calm()
    faults.answer_script = [Answer.LATE]
    with World(0, faults).alive() as world:
        (table,) = world.lake.tables.values()
        world.late_ms = 600_000
        first = world.start(TABLE)
        world.run_until_idle()
        told = [b.outcome for o in first.outcomes for b in o.batches]
        assert told == [OutcomeStatus.UNKNOWN]
        world.start(TABLE, settles=True)
        world.run_until_idle()
        attempts = world.ledger.work.open_attempts(table.uuid)
        assert len(attempts) == 1
        world.pass_time(600_000)
        world.start(TABLE, settles=True)
        world.run_until_idle()
        assert world.ledger.work.open_attempts(table.uuid) == ()
        assert world.watch.seen.attempts[attempts[0].attempt_id].status == "DONE"


def test_batch_that_kills_its_process_again_and_again_is_held() -> None:
    faults = calm()
    with World(0, faults).alive() as world:
        (_table,) = world.lake.tables.values()
        for _ in range(5):
            faults.script = [("write", At.KILL_BEFORE)]
            world.start(TABLE, operations=(REWRITE,), max_batches=1)
            world.run_until_idle()
            world.pass_time(60_000)
        attempts = world.watch.seen.attempts.values()
        assert max(Counter(a.partitions for a in attempts).values()) <= 3


def test_attempt_that_was_handed_back_is_so_after_the_ledger_is_put_back() -> None:
    """The record of a run that was terminated before it wrote tells of the batch by its reason alone."""
    faults = calm()
    faults.script = [("write", At.TERM_BEFORE)]
    with World(0, faults).alive() as world:
        world.start(TABLE)
        world.run_until_idle()
        world.back_up()
        world.restore()
        (attempt,) = world.watch.seen.attempts.values()
        assert (attempt.status, attempt.handed_back) == ("FAILED", True)
