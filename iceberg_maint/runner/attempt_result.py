"""AttemptResult: how an attempt at a batch ended, before the ledger stores it."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field

from iceberg_maint.core.model.ids import TableId
from iceberg_maint.core.model.location import claim_of
from iceberg_maint.core.model.reasons import LOST_RACES, Reason
from iceberg_maint.core.model.table_state import Snapshot, TableState
from iceberg_maint.core.outcomes.environment import ENVIRONMENT_CODES, is_environment, python_causes
from iceberg_maint.core.outcomes.outcome import CommitResult, OutcomeStatus, Rejection
from iceberg_maint.core.outcomes.proof import Proof
from iceberg_maint.core.planning.memory import MemoryUse
from iceberg_maint.core.planning.plan import Batch
from iceberg_maint.errors import IcebergMaintError
from iceberg_maint.ports.engine import EnvironmentFailedError, Written
from iceberg_maint.ports.storage import OrphanWork
from iceberg_maint.runner.free_space import free_space
from iceberg_maint.runner.runtime import Runtime

_REJECTIONS = {
    Rejection.STALE: Reason.STALE,
    Rejection.CONFLICT: Reason.CONFLICT,
    Rejection.REFUSED: Reason.GATE_REFUSED,
    Rejection.CLOCKS: Reason.CLOCKS_DISAGREE,
    Rejection.ENVIRONMENT: Reason.ENVIRONMENT,
    Rejection.ERROR: Reason.ERROR,
}


@dataclass(frozen=True, slots=True)
class AttemptResult:
    """The result of one attempt.

    `snapshot` is the committed snapshot. `work` is the work of an orphan pass. `memory` is the peak usage,
    if the attempt ran out of memory. `counts` are further counts by name.
    """

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
    """Returns the current state of the batch's table. None if its name now belongs to another table."""
    table = TableId.parse(batch.table)
    state = runtime.pin(table)
    return state if state.uuid == batch.table_uuid else None


def rejected_commit(written: Written, result: CommitResult, batch: Batch, runtime: Runtime) -> AttemptResult:
    """Returns the result of an attempt whose commit was rejected."""
    reason, message = _REJECTIONS[result.rejection or Rejection.ERROR], result.message
    status = OutcomeStatus.DEFERRED if reason in LOST_RACES else OutcomeStatus.FAILED
    if reason is Reason.ENVIRONMENT:
        message = _environment_message(EnvironmentFailedError(f"{message}."), batch, runtime)
    return AttemptResult(status, reason, message, written.proof, written, result)


def unknown_commit(written: Written, result: CommitResult) -> AttemptResult:
    """Returns the result of an attempt whose commit the table does not show."""
    message = result.message or "the catalog reported success, but the table does not show the commit"
    return AttemptResult(
        OutcomeStatus.UNKNOWN, Reason.UNKNOWN_COMMIT, message, written.proof, written, result
    )


def environment_failure(why: Exception, batch: Batch, runtime: Runtime) -> AttemptResult | None:
    """Returns the result of an attempt that the environment failed. None for any other error."""
    if isinstance(why, IcebergMaintError):
        if why.code not in ENVIRONMENT_CODES:
            return None
    elif is_environment(python_causes(why)):
        why = EnvironmentFailedError(f"{one_line(why)}.")
    else:
        return None
    return AttemptResult(OutcomeStatus.FAILED, Reason.ENVIRONMENT, _environment_message(why, batch, runtime))


def _environment_message(why: IcebergMaintError, batch: Batch, runtime: Runtime) -> str:
    """The message with what is free on the file systems of the table and of scratch files, if it is about one."""
    if why.code != "ICM-176":
        return str(why)
    locations: tuple[str, ...] = runtime.scratch_folders
    with suppress(Exception):  # The catalog may be what fails.
        locations = (*claim_of(runtime.pin(TableId.parse(batch.table))).locations, *locations)
    with suppress(OSError, ValueError):
        return str(IcebergMaintError(why.code, f"{why.message} {free_space(locations)}".rstrip(), why.fix))
    return str(why)


def one_line(why: BaseException) -> str:
    """Returns class and text of an error on one line, cut to 500 characters."""
    text = " ".join(str(why).split())
    return f"{type(why).__name__}: {text[:500]}"
