"""Outcomes: what demonstrably happened, judged from metadata afterwards."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import assert_never

from iceberg_maint.core.model.ids import Operation
from iceberg_maint.core.model.reasons import Reason
from iceberg_maint.core.outcomes.proof import Proof
from iceberg_maint.core.planning.layout_gain import LayoutGain
from iceberg_maint.core.planning.memory import MemoryUse
from iceberg_maint.core.planning.plan import Batch
from iceberg_maint.core.planning.work import (
    ConvertEqualityDeletes,
    ExpireSnapshots,
    RemoveOrphanFiles,
    RewriteDataFiles,
    RewriteManifests,
    RewritePositionDeleteFiles,
)
from iceberg_maint.core.removal.orphans import HeldOrphans
from iceberg_maint.core.removal.unlogged_metadata import UnloggedMetadata


class CommitStatus(StrEnum):
    """The three results of a commit. UNKNOWN touches nothing until it is settled."""

    COMMITTED = "COMMITTED"
    REJECTED = "REJECTED"
    UNKNOWN = "UNKNOWN"


class Rejection(StrEnum):
    """Why a commit was rejected, by what may be done next.

    STALE: plan again; CONFLICT: try again later; REFUSED: the gate found an invariant broken;
    CLOCKS: clocks disagree, so nothing may be removed; ERROR: something else, nothing was committed.
    """

    STALE = "STALE"
    CONFLICT = "CONFLICT"
    REFUSED = "REFUSED"
    CLOCKS = "CLOCKS"
    ERROR = "ERROR"


@dataclass(frozen=True, slots=True)
class CommitResult:
    """Result of committing one batch. `tries` counts compare-and-swaps attempted or prepared; `lost`
    is what of others went with a commit that a catalog applied without comparing its base."""

    status: CommitStatus
    rejection: Rejection | None = None
    snapshot_id: int | None = None
    base_snapshot_id: int | None = None
    tries: int = 1
    message: str = ""
    lost: tuple[str, ...] = ()


class OutcomeStatus(StrEnum):
    """The five outcomes of a batch and of an operation."""

    IMPROVED = "IMPROVED"
    NO_OP = "NO_OP"
    UNSUPPORTED = "UNSUPPORTED"
    FAILED = "FAILED"
    UNKNOWN = "UNKNOWN"


@dataclass(frozen=True, slots=True)
class BatchOutcome:
    """What one batch did, with the evidence; `counts` is what housekeeping counted, by name, `held`
    what an orphan pass left for a later sweep or for a person, `unlogged` the sign of a second owner that
    it saw; both are None where that is not known."""

    batch_id: str
    partitions: tuple[str, ...]
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
    held: tuple[HeldOrphans, ...] | None = None
    unlogged: UnloggedMetadata | None = None


@dataclass(frozen=True, slots=True)
class OperationOutcome:
    """What one operation did to one table in one run."""

    table: str
    operation: Operation
    outcome: OutcomeStatus
    reason: Reason
    snapshot_before: int | None
    snapshot_after: int | None
    batches: tuple[BatchOutcome, ...] = ()
    partitions: tuple[tuple[str, OutcomeStatus, Reason], ...] = ()
    message: str = ""


def gained(
    batch: Batch,
    output_sizes_bytes: Sequence[int],
    delete_files_removed: int,
    records_removed: int,
    large_above_bytes: int,
    layout: LayoutGain | None = None,
) -> bool:
    """Whether a committed batch left the table healthier: fewer data files, fewer delete files,
    rows that deletes had marked gone for good, fewer files above the large-file size, or files that
    overlap less in what they are sorted by; of a conversion, whether its equality deletes went, and
    so of position deletes that were merged. Housekeeping is judged by other evidence."""
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
    """The operation's outcome from its batches, with the first reason for it: the gravest wins,
    except that work done counts before what is unsupported, in a batch or beside them."""
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
    OutcomeStatus.UNSUPPORTED,
    OutcomeStatus.NO_OP,
)
_SETTLED = (Reason.NO_GAIN, Reason.HEALTHY, Reason.EMPTY, Reason.OTHER_OPERATION, Reason.DISABLED)
"""Reasons of a NO_OP under which nothing is left to do, those that say most first."""


def together(outcomes: Sequence[OperationOutcome]) -> OperationOutcome:
    """What a run of several operations did to its table and to each partition: the gravest outcome,
    and of several NO_OPs the one that leaves something to do. Raises ValueError for no outcomes."""
    if not outcomes:
        raise ValueError("no operation, no outcome")
    worst = min(outcomes, key=lambda o: _rank(o.outcome, o.reason))
    partitions: dict[str, tuple[str, OutcomeStatus, Reason]] = {}
    for outcome in outcomes:
        for one in outcome.partitions:
            known = partitions.setdefault(one[0], one)
            partitions[one[0]] = min(known, one, key=lambda p: _rank(p[1], p[2]))
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
