"""AttemptResult: how an attempt at a batch ended, before it is written down."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from iceberg_maint.core.model.ids import TableId
from iceberg_maint.core.model.reasons import Reason
from iceberg_maint.core.model.table_state import Snapshot, TableState
from iceberg_maint.core.outcomes.outcome import CommitResult, OutcomeStatus, Rejection
from iceberg_maint.core.outcomes.proof import Proof
from iceberg_maint.core.planning.memory import MemoryUse
from iceberg_maint.core.planning.plan import Batch
from iceberg_maint.ports.engine import Written
from iceberg_maint.ports.storage import OrphanWork
from iceberg_maint.runner.runtime import Runtime

_REJECTIONS = {
    Rejection.STALE: Reason.STALE,
    Rejection.CONFLICT: Reason.CONFLICT,
    Rejection.REFUSED: Reason.GATE_REFUSED,
    Rejection.CLOCKS: Reason.CLOCKS_DISAGREE,
    Rejection.ERROR: Reason.ERROR,
}


@dataclass(frozen=True, slots=True)
class AttemptResult:
    """`snapshot` is the one committed, `work` what an orphan pass did, `memory` what was used of it where
    nothing was written for want of it, `counts` what else is counted."""

    outcome: OutcomeStatus
    reason: Reason
    message: str = ""
    proof: Proof | None = None
    written: Written | None = None
    commit: CommitResult | None = None
    snapshot: Snapshot | None = None
    work: OrphanWork | None = None
    memory: MemoryUse | None = None
    counts: Mapping[str, int] = field(default_factory=dict)


def pin_same(batch: Batch, runtime: Runtime) -> TableState | None:
    """The batch's table now; None when another one has its name."""
    table = TableId.parse(batch.table)
    state = runtime.catalog_of(table).pin(table)
    return state if state.uuid == batch.table_uuid else None


def rejected_commit(written: Written, result: CommitResult) -> AttemptResult:
    """The end of an attempt whose commit was rejected."""
    reason = _REJECTIONS[result.rejection or Rejection.ERROR]
    return AttemptResult(OutcomeStatus.FAILED, reason, result.message, written.proof, written, result)


def unknown_commit(written: Written, result: CommitResult) -> AttemptResult:
    """The end of an attempt whose commit the table does not show."""
    message = result.message or "the catalog reported success, the table does not show it"
    return AttemptResult(
        OutcomeStatus.UNKNOWN, Reason.UNKNOWN_COMMIT, message, written.proof, written, result
    )


def one_line(why: BaseException) -> str:
    """An error on one line, cut."""
    text = " ".join(str(why).split())
    return f"{type(why).__name__}: {text[:500]}"
