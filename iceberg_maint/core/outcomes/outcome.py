"""Outcomes: what demonstrably happened, derived from metadata after the commit."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import assert_never

from iceberg_maint.core.model.ids import Operation, PartitionKey
from iceberg_maint.core.model.reasons import Reason
from iceberg_maint.core.outcomes.verification import Proof
from iceberg_maint.core.planning.batch_memory import MemoryUse
from iceberg_maint.core.planning.batch_trials import BatchCost, BatchPrediction
from iceberg_maint.core.planning.plan import Batch
from iceberg_maint.core.planning.work import (
    ConvertEqualityDeletes,
    ExpireSnapshots,
    LayoutGain,
    RemoveOrphanFiles,
    RewriteDataFiles,
    RewriteManifests,
    RewritePositionDeleteFiles,
)
from iceberg_maint.core.removal.orphan_rules import RetainedOrphans, UnloggedMetadata


class CommitStatus(StrEnum):
    """The three results of a commit. An UNKNOWN commit changes nothing until it is settled."""

    COMMITTED = "COMMITTED"
    REJECTED = "REJECTED"
    UNKNOWN = "UNKNOWN"


class Rejection(StrEnum):
    """The classes of a rejected commit, by the next step.

    STALE: plan again. CONFLICT: try again later. REFUSED: the gate found a broken invariant. CLOCKS:
    clocks disagree, so nothing may be removed. ENVIRONMENT: credentials, a connection or a class are missing.
    ERROR: any other error. Nothing was committed.
    """

    STALE = "STALE"
    CONFLICT = "CONFLICT"
    REFUSED = "REFUSED"
    CLOCKS = "CLOCKS"
    ENVIRONMENT = "ENVIRONMENT"
    ERROR = "ERROR"


@dataclass(frozen=True, slots=True)
class CommitResult:
    """The result of committing one batch. `tries` counts the compare-and-swaps attempted or prepared.
    `lost` names branches, tags and snapshots of others that were removed by a commit that the catalog
    applied without comparing its base. `window_seconds` is the time from loading the base to the last swap; any
    commit of another writer within it wins."""

    status: CommitStatus
    rejection: Rejection | None = None
    snapshot_id: int | None = None
    base_snapshot_id: int | None = None
    tries: int = 1
    message: str = ""
    lost: tuple[str, ...] = ()
    window_seconds: float = 0.0


UNSUPPORTED_BY = "UNSUPPORTED by "
"""How a message begins that says why an engine of the policy did not take a batch."""


class OutcomeStatus(StrEnum):
    """The outcomes of a batch and of an operation. COMMITTED: with no gain. DEFERRED: other writers won or the run was
    stopped, and the work is tried again."""

    IMPROVED = "IMPROVED"
    COMMITTED = "COMMITTED"
    NO_OP = "NO_OP"
    DEFERRED = "DEFERRED"
    UNSUPPORTED = "UNSUPPORTED"
    FAILED = "FAILED"
    UNKNOWN = "UNKNOWN"


SUCCESSFUL = frozenset({OutcomeStatus.IMPROVED, OutcomeStatus.COMMITTED, OutcomeStatus.NO_OP})
"""Outcomes that leave nothing undone."""


@dataclass(frozen=True, slots=True)
class BatchOutcome:
    """The outcome of one batch, with the evidence. `snapshot_before` is the parent of its commit; without one, the plan's
    snapshot. `counts` holds the counts of housekeeping, by name.
    `retained` holds the files that an orphan scan left for a later sweep or for a person. `unlogged` is the
    sign of a second owner that it found. Both are None if not known. `predicted` is the prediction of a rewrite of data
    files before it ran, and `cost` what the batch worked on and took in CPU; None where it did not run.
    `engine` is the engine elsewhere that took the batch, with its version; empty for this program."""

    batch_id: str
    partitions: tuple[PartitionKey, ...]
    outcome: OutcomeStatus
    reason: Reason
    input_files: int
    output_files: int
    input_bytes: int
    output_bytes: int
    delete_files_removed: int
    seconds: float
    snapshot_before: int | None
    snapshot_after: int | None = None
    commit_tries: int = 0
    wasted_bytes: int = 0
    proof: Proof | None = None
    message: str = ""
    memory: MemoryUse | None = None
    layout: LayoutGain | None = None
    counts: Mapping[str, int] = field(default_factory=dict)
    retained: tuple[RetainedOrphans, ...] | None = None
    unlogged: UnloggedMetadata | None = None
    predicted: BatchPrediction | None = None
    cost: BatchCost | None = None
    engine: str = ""


@dataclass(frozen=True, slots=True)
class OperationOutcome:
    """The outcome of one operation on one table in one run."""

    table: str
    operation: Operation
    outcome: OutcomeStatus
    reason: Reason
    snapshot_before: int | None
    snapshot_after: int | None
    batches: tuple[BatchOutcome, ...] = ()
    partitions: tuple[tuple[PartitionKey, OutcomeStatus, Reason], ...] = ()
    message: str = ""


def gained(
    batch: Batch,
    output_sizes_bytes: Sequence[int],
    delete_files_removed: int,
    records_removed: int,
    large_above_bytes: int,
    layout: LayoutGain | None = None,
) -> bool:
    """Returns whether a committed batch improved the table: fewer data files, fewer delete files, deleted
    rows removed permanently, fewer files above the large-file size, or less overlap in the sort columns. For
    a conversion and for a merge of position deletes: whether it removed delete files. Housekeeping is
    judged by other evidence."""
    match batch.work:
        case ConvertEqualityDeletes() | RewritePositionDeleteFiles():
            return delete_files_removed > 0
        case RewriteManifests() | ExpireSnapshots() | RemoveOrphanFiles():
            return False
        case RewriteDataFiles():
            pass
        case _:
            assert_never(batch.work)
    large_before = sum(f.size_bytes > large_above_bytes for g in batch.groups for f in g.files)
    large_after = sum(size > large_above_bytes for size in output_sizes_bytes)
    fewer_files = len(output_sizes_bytes) < batch.input_files
    fewer_deletes = delete_files_removed > 0 or records_removed > 0
    sorts = layout is not None and layout.is_gain
    return fewer_files or fewer_deletes or large_after < large_before or sorts


def operation_status(
    batches: tuple[BatchOutcome, ...], unsupported: bool
) -> tuple[OutcomeStatus, Reason | None]:
    """Returns the operation's outcome from its batches, with the first reason for it. The most severe one
    wins, except that completed work ranks before unsupported work, in a batch or beside them."""
    for status in _GRAVEST_FIRST:
        first = next((b for b in batches if b.outcome is status), None)
        if first is not None:
            return status, first.reason
        if status is OutcomeStatus.UNSUPPORTED and unsupported:
            return status, Reason.UNSUPPORTED_KEY
    return OutcomeStatus.NO_OP, None


_GRAVEST_FIRST = (
    OutcomeStatus.UNKNOWN,
    OutcomeStatus.FAILED,
    OutcomeStatus.IMPROVED,
    OutcomeStatus.COMMITTED,
    OutcomeStatus.UNSUPPORTED,
    OutcomeStatus.DEFERRED,
    OutcomeStatus.NO_OP,
)
_SETTLED = (Reason.NO_GAIN, Reason.HEALTHY, Reason.OTHER_OPERATION, Reason.DISABLED)
"""Reasons of a NO_OP that leave nothing to do, the most specific first."""


def combine_outcomes(outcomes: Sequence[OperationOutcome]) -> OperationOutcome:
    """Returns the outcome of a run of several operations for its table and each partition: the most
    severe one; of several NO_OPs, the one that leaves work. Raises ValueError for no outcomes."""
    if not outcomes:
        raise ValueError("there are no outcomes to combine")
    worst = min(outcomes, key=lambda o: _rank(o.outcome, o.reason))
    partitions: dict[PartitionKey, tuple[PartitionKey, OutcomeStatus, Reason]] = {}
    for outcome in outcomes:
        for partition_outcome in outcome.partitions:
            previous = partitions.setdefault(partition_outcome[0], partition_outcome)
            partitions[partition_outcome[0]] = min(
                previous, partition_outcome, key=lambda p: _rank(p[1], p[2])
            )
    return OperationOutcome(
        table=worst.table,
        operation=worst.operation,
        outcome=worst.outcome,
        reason=worst.reason,
        snapshot_before=outcomes[0].snapshot_before,
        snapshot_after=outcomes[-1].snapshot_after,
        batches=tuple(b for o in outcomes for b in o.batches),
        partitions=tuple(partitions.values()),
        message="; ".join(o.message for o in outcomes if o.message),
    )


def _rank(status: OutcomeStatus, reason: Reason) -> tuple[int, int]:
    settled = _SETTLED.index(reason) + 1 if reason in _SETTLED else 0
    return _GRAVEST_FIRST.index(status), settled
