"""What the commands on orphan files share: the trash of a table, its lease, and the record of what a command did."""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from iceberg_maint.cli.context import Session
from iceberg_maint.core.model.ids import Operation, TableId
from iceberg_maint.core.model.reasons import Reason
from iceberg_maint.core.outcomes.outcome import OperationOutcome, OutcomeStatus
from iceberg_maint.core.outcomes.record import Record
from iceberg_maint.errors import RefusedError, UnknownTableError
from iceberg_maint.removal.remove_orphans import Scope

if TYPE_CHECKING:
    from iceberg_maint.core.model.table_state import TableState
    from iceberg_maint.core.policy.data import Policy
    from iceberg_maint.loop.context import Context
    from iceberg_maint.ports.stored import Lease
    from iceberg_maint.removal.removal_progress import TrashChange
    from iceberg_maint.removal.remove_orphans import OrphanRemoval


def orphan_scan(session: Session, table: TableId, scope: Scope | None = None) -> OrphanRemoval:
    """The orphan removal of a table, whole or of this scope."""
    from iceberg_maint.wiring.adapters import OrphanScans

    context = session.context()
    return OrphanScans(session.config(), context.catalogs, context.clock, context.ledger)(table, scope)


def pinned(context: Context, table: TableId) -> tuple[TableState, Policy]:
    """A table's state now, and its policy."""
    state = context.catalogs[table.catalog].pin(table)
    return state, context.policies.of(state)


def trash_of(session: Session, table: TableId, overrides: dict[str, str]) -> list[dict[str, Any]]:
    """The marks in the trash of a table, as documents."""
    state, policy = pinned(session.context(overrides), table)
    return marks_of(orphan_scan(session, table), state, policy)


def marks_of(removal: OrphanRemoval, state: TableState, policy: Policy) -> list[dict[str, Any]]:
    """The same of a pinned table."""
    from iceberg_maint.cli.pages.orphans_page import mark_document

    section = policy.remove_orphan_files
    return [
        mark_document(m.header, m.files, m.size_bytes, section.delete_after_seconds, restored=m.restored)
        for m in removal.trash_batches(state, section)
    ]


def check_mark(session: Session, table: TableId, mark_id: str | None, overrides: dict[str, str]) -> None:
    """Raises UnknownTableError ICM-126 if the trash has no files of this mark."""
    if mark_id is None:
        return
    mark_ids = [m["mark_id"] for m in trash_of(session, table, overrides) if m["state"] == "retained"]
    if mark_id not in mark_ids:
        raise UnknownTableError(
            "ICM-126",
            f"{table}: the trash has no mark '{mark_id}'.",
            f"name one of these: {', '.join(dict.fromkeys(mark_ids)) or 'none'}.",
        )


@contextmanager
def hold_lease(context: Context, state: TableState, run_id: str) -> Iterator[Lease]:
    """Holds the lease of a table in the block. Raises RefusedError ICM-109 if another run holds it."""
    from iceberg_maint.loop.guards import LEASE_TTL_SECONDS, leased

    with leased(context, state, run_id, LEASE_TTL_SECONDS + 5) as lease:
        if lease is None:
            raise RefusedError(
                "ICM-109",
                f"{state.table}: another run holds the lease.",
                "wait until that run ends, then run the command again.",
            )
        yield lease


def record_of_restore(
    state: TableState, policy: Policy, run_id: str, started_ms: int, ended_ms: int, done: list[TrashChange]
) -> Record:
    """The record of a command that restored files."""
    files, unrestored = sum(e.restored_files for e in done), sum(e.left_files for e in done)
    status = OutcomeStatus.FAILED if unrestored else OutcomeStatus.IMPROVED if files else OutcomeStatus.NO_OP
    marks = ", ".join(dict.fromkeys(e.mark_id for e in done)) or "no mark"
    message = f"Restored {files} files of {marks}. {unrestored} files stay in the trash."
    return record_of(state, policy, run_id, (started_ms, ended_ms), status, message)


def record_of(
    state: TableState,
    policy: Policy,
    run_id: str,
    times_ms: tuple[int, int],
    status: OutcomeStatus,
    message: str,
) -> Record:
    """The record of a command on orphan files, with its start and end."""
    from iceberg_maint.core.model.codec import digest

    snapshot_id = state.snapshot.snapshot_id if state.snapshot else None
    return Record(
        record_id=uuid.uuid4().hex,
        run_id=run_id,
        table=str(state.table),
        table_uuid=state.uuid,
        operation=Operation.REMOVE_ORPHAN_FILES,
        started_ms=times_ms[0],
        ended_ms=times_ms[1],
        plan_id=None,
        policy_digest=digest(policy),
        versions={},
        outcome=OperationOutcome(
            table=str(state.table),
            operation=Operation.REMOVE_ORPHAN_FILES,
            outcome=status,
            reason=Reason.FORCED,
            snapshot_before=snapshot_id,
            snapshot_after=snapshot_id,
            batches=(),
            partitions=(),
            message=message,
        ),
    )


def new_run_id() -> str:
    """The id of the run of a command."""
    return f"orphans-{os.getpid()}-{uuid.uuid4().hex[:8]}"
