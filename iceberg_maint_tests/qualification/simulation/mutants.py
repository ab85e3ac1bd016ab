"""Planted faults in the rules of the protocol: each switches one rule off or turns it round."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import pytest
from sqlalchemy import ColumnElement, and_, bindparam, select, update

from iceberg_maint.core.decisions.waits import succeeded
from iceberg_maint.core.model.reasons import Reason
from iceberg_maint.core.outcomes import record as settling
from iceberg_maint.core.outcomes.outcome import CommitStatus, OutcomeStatus
from iceberg_maint.ledger import attempts, batches, histories, leases, records
from iceberg_maint.ledger.schema import db_now_ms
from iceberg_maint.ledger.schema import lease as lease_table
from iceberg_maint.loop import execute as executing
from iceberg_maint.loop import maintain as maintaining
from iceberg_maint.loop import select_batches as preparing
from iceberg_maint.loop import settle as reconciling
from iceberg_maint.loop.attempts import attempt
from iceberg_maint.ports.stored import BatchStatus, Lease

Plant = Callable[[pytest.MonkeyPatch], None]


@dataclass(frozen=True, slots=True)
class Mutant:
    """`rule` is what is broken; `plant` breaks it. `seed` is that of a life in which an invariant then breaks, if no
    scenario shows the fault: it is tried first."""

    name: str
    rule: str
    plant: Plant
    seed: int | None = None


MUTANTS: list[Mutant] = []


def mutant(rule: str, *, seed: int | None = None) -> Callable[[Plant], Plant]:
    def register(plant: Plant) -> Plant:
        MUTANTS.append(Mutant(plant.__name__, rule, plant, seed))
        return plant

    return register


def wrapped(patch: pytest.MonkeyPatch, where: Any, name: str, make: Callable[..., Any]) -> None:
    patch.setattr(where, name, make(getattr(where, name)))


@mutant("UNKNOWN is not REJECTED")
def unknown_is_rejected(patch: pytest.MonkeyPatch) -> None:
    def make(real):
        def settle(evidence, state):
            found = real(evidence, state)
            unknown = found.status is CommitStatus.UNKNOWN
            return replace(found, status=CommitStatus.REJECTED) if unknown else found

        return settle

    wrapped(patch, reconciling, "settle", make)


@mutant("a base at the head can still be won by a late swap")
def head_at_its_base_is_past_it(patch: pytest.MonkeyPatch) -> None:
    def moved(evidence, state):
        return evidence.base_snapshot_id in {s.snapshot_id for s in state.ancestors()}

    patch.setattr(settling, "_moved_past", moved)


@mutant("the token of an attempt tells that it is committed")
def token_is_not_looked_for(patch: pytest.MonkeyPatch) -> None:
    def make(real):
        def settle(evidence, state):
            return real(replace(evidence, token="", reachable_file=None), state)

        return settle

    wrapped(patch, reconciling, "settle", make)


@mutant("the ledger is believed less than the table")
def never_attempted_is_believed(patch: pytest.MonkeyPatch) -> None:
    def make(real):
        def settle(evidence, state):
            if evidence.attempted:
                return real(evidence, state)
            return settling.Settlement(CommitStatus.REJECTED, None, "never attempted")

        return settle

    wrapped(patch, reconciling, "settle", make)


@mutant("history that is not shown is no history that has expired", seed=134)
def hidden_history_is_taken_for_expired(patch: pytest.MonkeyPatch) -> None:
    def left_no_trace(evidence, state):
        return state.snapshot is not None and state.snapshot.snapshot_id != evidence.base_snapshot_id

    patch.setattr(settling, "_left_no_trace", left_no_trace)


@mutant("history that is gone does not keep an attempt open for ever")
def expired_history_is_never_settled(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(settling, "_left_no_trace", lambda _evidence, _state: False)
    patch.setattr(
        settling,
        "_moved_past",
        lambda e, s: e.base_snapshot_id in {a.snapshot_id for a in s.ancestors()[1:]},
    )


@mutant("every write needs the lease", seed=0)
def lease_is_not_required(patch: pytest.MonkeyPatch) -> None:
    for module in (leases, attempts, batches, records):
        patch.setattr(module, "require", lambda _conn, _held: None)


def _replace_lease_rules(patch: pytest.MonkeyPatch, same_lease: ColumnElement[bool]) -> None:
    in_force = and_(same_lease, lease_table.c.expires_ms > db_now_ms())
    patch.setattr(leases, "_SAME_LEASE", same_lease)
    patch.setattr(leases, "_HELD", in_force)
    patch.setattr(leases, "_HOLDS", select(lease_table.c.fence).where(in_force))


@mutant("a write needs the fence of its lease", seed=8)
def fence_is_not_compared(patch: pytest.MonkeyPatch) -> None:
    given = and_(bindparam("held_owner").is_not(None), bindparam("held_fence").is_not(None))
    _replace_lease_rules(patch, and_(lease_table.c.table_uuid == bindparam("held_table"), given))


@mutant("an expired lease holds nothing", seed=1)
def expiry_of_leases_is_ignored(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(leases, "_HELD", leases._SAME_LEASE)
    patch.setattr(leases, "_HOLDS", select(lease_table.c.fence).where(leases._SAME_LEASE))


@mutant("leases expire by the database's clock", seed=0)
def leases_expire_by_the_local_clock(patch: pytest.MonkeyPatch) -> None:
    """The machine that asks is a hundred seconds ahead."""

    def make(real):
        def acquire(self, table_uuid, table, owner, ttl_seconds, min_fence):
            ahead = lease_table.c.expires_ms - 100_000
            with self._write(table_uuid) as conn:
                conn.execute(
                    update(lease_table).where(lease_table.c.table_uuid == table_uuid).values(expires_ms=ahead)
                )
            return real(self, table_uuid, table, owner, ttl_seconds, min_fence)

        return acquire

    wrapped(patch, leases.SqlLeases, "acquire", make)


@mutant("a new lease has a new fence")
def fence_stays(patch: pytest.MonkeyPatch) -> None:
    def make(real):
        def acquire(self, table_uuid, table, owner, ttl_seconds, min_fence):
            lease = real(self, table_uuid, table, owner, ttl_seconds, min_fence)
            if lease is None or lease.fence == 1:
                return lease
            which = lease_table.c.table_uuid == table_uuid
            with self._write(table_uuid) as conn:
                conn.execute(update(lease_table).where(which).values(fence=lease.fence - 1))
            return Lease(table_uuid, table, owner, lease.fence - 1, ttl_seconds)

        return acquire

    wrapped(patch, leases.SqlLeases, "acquire", make)


@mutant("the fence goes on from the newest in the table")
def fences_of_the_table_are_forgotten(patch: pytest.MonkeyPatch) -> None:
    def make(real):
        def acquire(self, table_uuid, table, owner, ttl_seconds, _min_fence):
            return real(self, table_uuid, table, owner, ttl_seconds, 0)

        return acquire

    wrapped(patch, leases.SqlLeases, "acquire", make)


@mutant("back-off is written before the work")
def nothing_is_written_ahead(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(executing, "write_ahead", lambda past, _policy, _now_ms: past)


@mutant("crashes are counted apart from failures")
def crash_counts_as_failure(patch: pytest.MonkeyPatch) -> None:
    def write_ahead(past, _policy, now_ms):
        return replace(past, ineffective=past.ineffective + 1, not_before_ms=now_ms)

    patch.setattr(executing, "write_ahead", write_ahead)


@mutant("back-off holds open work as well")
def back_off_does_not_hold_open_batches(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(preparing, "_must_wait", lambda _batch, _seen, _run: False)


@mutant("a failure is counted")
def failure_leaves_no_back_off(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(attempt, "failed", lambda past, _policy, _now_ms, _why: past)


@mutant("an unknown commit keeps its back-off")
def unknown_clears_back_off(patch: pytest.MonkeyPatch) -> None:
    def make(real):
        def histories_of(ended, past, policy, context):
            if ended.outcome is OutcomeStatus.UNKNOWN:
                return {p: succeeded() for p in past}
            return real(ended, past, policy, context)

        return histories_of

    wrapped(patch, executing, "histories_after", make)


@mutant("quarantine is kept")
def quarantine_is_never_written(patch: pytest.MonkeyPatch) -> None:
    def make(real):
        def write(conn, table_uuid, operation, changed):
            real(conn, table_uuid, operation, {p: replace(h, quarantined=False) for p, h in changed.items()})

        return write

    wrapped(patch, histories, "write", make)


@mutant("the cursor follows a COMMITTED outcome")
def cursor_advances_at_the_start(patch: pytest.MonkeyPatch) -> None:
    def make(real):
        def start(self, lease, batch_id, run_id, write_ahead):
            with self._write(lease.table_uuid) as conn:
                batches.advance(conn, lease, batches.load(conn, lease, batch_id), None)
            return real(self, lease, batch_id, run_id, write_ahead)

        return start

    wrapped(patch, attempts.SqlWork, "start_attempt", make)


@mutant("what is DONE is not done again")
def done_batches_are_opened_again(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(batches, "_REOPENED", (*batches._REOPENED, BatchStatus.DONE))


@mutant("a batch that is DONE stays so")
def later_outcomes_overwrite_done(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(batches, "OPEN", tuple(BatchStatus))
    patch.setattr(attempts, "_has_later_attempt", lambda _conn, _than: False)


@mutant("the catalog's word is not taken for the commit")
def success_is_believed(patch: pytest.MonkeyPatch) -> None:
    def make(real):
        def judge(commit, context, policy):
            ended = real(commit, context, policy)
            if ended.outcome is not OutcomeStatus.UNKNOWN or commit.result.message != "not there":
                return ended
            return replace(ended, outcome=OutcomeStatus.IMPROVED, reason=Reason.SMALL_FILES)

        return judge

    wrapped(patch, executing, "_judge", make)


@mutant("an exception is not taken for a rejection")
def unknown_is_reported_as_failed(patch: pytest.MonkeyPatch) -> None:
    def make(real):
        def judge(commit, context, policy):
            ended = real(commit, context, policy)
            if ended.outcome is OutcomeStatus.UNKNOWN:
                return replace(ended, outcome=OutcomeStatus.FAILED, reason=Reason.ERROR)
            return ended

        return judge

    wrapped(patch, executing, "_judge", make)


@mutant("open attempts are settled first")
def nothing_is_settled(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(maintaining, "settle_open_attempts", lambda _state, _context, _lease: ())
    patch.setattr(reconciling, "settle_open_attempts", lambda _state, _context, _lease: ())


@mutant("stale work is planned again a few times only")
def stale_work_is_planned_again_for_ever(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(maintaining, "MAX_REPLANS", 10_000)
    patch.setattr(preparing, "with_smaller_batches", lambda assessment, _replans, _batches: assessment)


@mutant("a run without a record is put on record by the next")
def dead_runs_are_not_told_of(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(records.SqlRecords, "unrecorded_runs", lambda _self, _lease: ())


@mutant("a record covers what it tells of")
def any_record_covers_the_whole_run(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(records, "_contains_row", lambda _ends, _row: True)


@mutant("a lease is of one table, not of a name")
def recreated_table_is_not_noticed(patch: pytest.MonkeyPatch) -> None:
    for module in (reconciling, maintaining):
        patch.setattr(module, "require_same", lambda _state, _lease, _ledger: None)
