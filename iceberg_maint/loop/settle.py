"""Reconcile: settles attempts whose process reported no outcome.

The rules are in `core.outcomes.settle`. This module gathers the evidence from ledger and table and stores
the result. It never deletes a file. The next attempt at the batch reuses the uncommitted files of a dead
attempt, or they stay for the orphan scan.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from iceberg_maint.core.commits.expiry_rules import (
    LATE_SECONDS,
    applied_to,
    lost_with,
    read_removed_refs,
    settle_expiry,
)
from iceberg_maint.core.decisions.history import PartitionHistory
from iceberg_maint.core.decisions.waits import quarantined_history, succeeded
from iceberg_maint.core.model.ids import Operation, PartitionKey, TableId
from iceberg_maint.core.model.table_state import FileKind, TableState
from iceberg_maint.core.outcomes.outcome import CommitStatus
from iceberg_maint.core.outcomes.record import AttemptEvidence, Settlement, record_of, settle
from iceberg_maint.core.planning.work import ExpireSnapshots
from iceberg_maint.errors import FenceLostError, RefusedError
from iceberg_maint.loop.attempts.attempt import one_line
from iceberg_maint.loop.attempts.housekeeping_attempt import lost_error
from iceberg_maint.loop.attempts.statement_attempt import commits_since, note_ordered, statement_engine
from iceberg_maint.loop.context import Context
from iceberg_maint.loop.guards import LEASE_TTL_SECONDS, leased
from iceberg_maint.loop.record import append_record
from iceberg_maint.ports.ledger import Ledger
from iceberg_maint.ports.statement_engine import StatementEngine
from iceberg_maint.ports.stored import Attempt, BatchStatus, Lease


@dataclass(frozen=True, slots=True)
class Settled:
    """One attempt and its settlement. `leftover_bytes` were written and not committed."""

    attempt_id: str
    batch_id: str
    partitions: tuple[PartitionKey, ...]
    settlement: Settlement
    leftover_bytes: int


def reconcile(table: TableId, context: Context, run_id: str) -> tuple[Settled, ...]:
    """Settles every open attempt of a table. Raises RefusedError ICM-109 if there are open attempts and
    another run holds the table's lease."""
    state = context.catalogs.pin(table)
    if not context.ledger.work.open_attempts(state.uuid):
        return ()
    with leased(context, state, run_id, LEASE_TTL_SECONDS + 5) as lease:
        if lease is None:
            raise RefusedError(
                "ICM-109",
                f"{table}: another run holds the lease; its attempts cannot be settled while it runs.",
                "wait until that run has ended, then reconcile again.",
            )
        return settle_open_attempts(context.catalogs.of(table).pin(table), context, lease)


def settle_open_attempts(state: TableState, context: Context, lease: Lease) -> tuple[Settled, ...]:
    """Settles the open attempts under the caller's lease, then records earlier runs that have no record.

    `state` must be pinned after the lease was acquired: an older state could miss a commit. Raises
    RefusedError ICM-129 if the name now belongs to another table.
    """
    require_same(state, lease, context.ledger)
    settled_attempts = []
    counted_paths = set[str]()
    # The newest attempt comes first: the files that it reused were committed under its token.
    for attempt in reversed(context.ledger.work.open_attempts(state.uuid)):
        live = _live_files(attempt, state, context)
        settlement = _settle(attempt, live, state, context)
        if settlement.lost:
            # The quarantine is stored first, so that it stands if this process dies before the next line.
            _store_history(attempt, quarantined_history(succeeded(), settlement.why), context)
        status = _status_of_batch(settlement)
        context.ledger.work.settle_attempt(lease, attempt.attempt_id, settlement, status)
        if status is BatchStatus.DONE:
            _store_history(attempt, succeeded(), context)
        rejected = settlement.status is CommitStatus.REJECTED
        uncommitted_files = (
            [f for f in attempt.files or () if f.path not in live | counted_paths] if rejected else []
        )
        # An attempt that reused files has the same files as the attempt that wrote them.
        counted_paths |= {f.path for f in uncommitted_files}
        leftover_bytes = sum(f.size_bytes for f in uncommitted_files)
        settled_attempts.append(
            Settled(attempt.attempt_id, attempt.batch_id, attempt.partitions, settlement, leftover_bytes)
        )
    settled_attempts.reverse()
    for run in context.ledger.records.unrecorded_runs(lease):
        append_record(record_of(run, state), context)
    return tuple(settled_attempts)


def require_same(state: TableState, lease: Lease, ledger: Ledger) -> None:
    """Raises RefusedError ICM-129 unless the lease belongs to this table: facts about the earlier table of
    this name do not apply to it.

    Raises FenceLostError if the table has a later fence than the lease. If the ledger no longer has our
    lease, another run has taken the table. If it has, the ledger was restored from a backup during the run.
    """
    if state.uuid != lease.table_uuid:
        raise RefusedError(
            "ICM-129",
            f"{state.table} was dropped and created again, or replaced, while a run maintained it.",
            "none; the next run maintains the table that has the name now.",
        )
    newest_fence = state.newest_fence(ledger.registry.installation())
    if newest_fence <= lease.fence:
        return
    message = f"{state.table} has a commit under fence {newest_fence}, the lease has fence {lease.fence}"
    if ledger.leases.holds(lease):
        raise FenceLostError(f"{message}: the ledger was restored to an earlier state.")
    raise FenceLostError(
        f"{message} and is over: another run has taken the table, unless the ledger was restored to an "
        "earlier state."
    )


def _settle(attempt: Attempt, live: frozenset[str], state: TableState, context: Context) -> Settlement:
    if (engine := statement_engine(attempt.proof, context)) is not None:
        return _settle_statement(attempt, engine, state, context)
    if attempt.operation != Operation.EXPIRE_SNAPSHOTS:
        return settle(_evidence(attempt, live, state, context), state)
    stored = context.ledger.work.batch(attempt.batch_id)
    if not isinstance(stored.batch.work, ExpireSnapshots):
        raise ValueError(
            f"attempt {attempt.attempt_id} of expire_snapshots has a batch of {stored.batch.operation}"
        )
    work = stored.batch.work if stored.status is not BatchStatus.DONE else None
    base_location = attempt.tries[-1][1] if attempt.tries else None
    settlement = settle_expiry(work, base_location, state, may_come=_swap_may_arrive(attempt, state, context))
    if work is None or base_location is None or settlement.status is not CommitStatus.COMMITTED:
        return settlement
    if context.catalogs.of(state.table).checks_commit_base:
        return settlement
    lost = tuple(map(context.process.masked, _lost_with(work, base_location, state, context)))
    return (
        replace(settlement, why=str(lost_error(stored.batch.table, lost)), lost=lost) if lost else settlement
    )


def _settle_statement(
    attempt: Attempt, engine: StatementEngine, state: TableState, context: Context
) -> Settlement:
    """Settles a statement of a dead process: its commits have no token, but the mark of the engine."""
    settlement = settle(_evidence(attempt, frozenset(), state, context), state)
    base = state.snapshot_by_id(attempt.tries[0][0]) if attempt.tries else None
    if base is None or not (commits := commits_since(state, base, engine, "")):
        return settlement
    note_ordered(state, commits, context)
    return Settlement(
        CommitStatus.COMMITTED, commits[-1].snapshot_id, "a commit of the engine follows its base"
    )


def _swap_may_arrive(attempt: Attempt, state: TableState, context: Context) -> bool:
    """Whether a swap of the attempt may still arrive at a catalog that does not check the base of a
    commit."""
    if context.catalogs.of(state.table).checks_commit_base or attempt.tried_ms is None:
        return False
    return context.ledger.registry.now_ms() - attempt.tried_ms < LATE_SECONDS * 1000


def _lost_with(
    work: ExpireSnapshots, base_location: str, state: TableState, context: Context
) -> tuple[str, ...]:
    """Returns what an expiry also removed, where its process died before it searched."""

    def read(location: str) -> Mapping[str, Any]:
        return context.catalogs.of(state.table).metadata_document(state.table, location)

    def find_lost() -> tuple[str, ...]:
        log = [entry["metadata-file"] for entry in read(state.metadata_location).get("metadata-log") or ()]
        swapped = applied_to(work, base_location, log, read)
        return () if swapped is None else lost_with(work, read(base_location), swapped)

    return read_removed_refs(find_lost, context.clock.sleep, one_line)


def _status_of_batch(settlement: Settlement) -> BatchStatus:
    if settlement.status is not CommitStatus.COMMITTED:
        # An unsettled attempt does not keep its batch closed. Either the next commit replaces the inputs
        # first, or it fails because the attempt did. Both can never take effect.
        return BatchStatus.PLANNED
    return BatchStatus.FAILED if settlement.lost else BatchStatus.DONE


def _store_history(attempt: Attempt, history: PartitionHistory, context: Context) -> None:
    histories = dict.fromkeys(attempt.partitions, history)
    context.ledger.health.set_partition_history(attempt.table_uuid, attempt.operation, histories)


def _live_files(attempt: Attempt, state: TableState, context: Context) -> frozenset[str]:
    """Returns the attempt's files that a retained snapshot has. Not read if a snapshot has the token."""
    if state.snapshot_by_token(attempt.token) is not None or not attempt.files:
        return frozenset()
    deletes = any(f.kind is not FileKind.DATA for f in attempt.files)
    catalog, paths = context.catalogs.of(state.table), [f.path for f in attempt.files]
    since = context.ledger.work.snapshot_before_files(attempt)
    return context.catalogs.interruptible(
        state.table, lambda: catalog.find_live(state, paths, deletes=deletes, since=since)
    )


def _evidence(attempt: Attempt, live: frozenset[str], state: TableState, context: Context) -> AttemptEvidence:
    base_snapshot_id, base_location = attempt.tries[-1] if attempt.tries else (None, None)
    return AttemptEvidence(
        attempted=bool(attempt.tries),
        token=attempt.token,
        base_snapshot_id=base_snapshot_id,
        reachable_file=min(live - _committed_by_others(attempt, live, state, context), default=None),
        base_location=base_location,
    )


def _committed_by_others(
    attempt: Attempt, live: frozenset[str], state: TableState, context: Context
) -> frozenset[str]:
    """Returns which of these files another attempt at the batch has committed: one that reused them, or
    one that wrote them."""
    if not live:
        return live
    return frozenset(
        f.path
        for other in context.ledger.work.attempts_at(state.uuid, attempt.batch_id)
        if other.attempt_id != attempt.attempt_id
        and (other.status == BatchStatus.DONE or state.snapshot_by_token(other.token) is not None)
        for f in other.files or ()
    )
