"""Records and observations with numbers that a test can name."""

from __future__ import annotations

from dataclasses import replace

from iceberg_maint.core.decisions.history import PartitionHistory, TableHistory
from iceberg_maint.core.health.metrics import Measured, PartitionHealth, TableHealth
from iceberg_maint.core.model.ids import Operation, PartitionKey, TableId
from iceberg_maint.core.model.reasons import Decision, PartitionDecision, Reason, Verdict
from iceberg_maint.core.outcomes.outcome import BatchOutcome, OperationOutcome, OutcomeStatus
from iceberg_maint.core.outcomes.record import Record
from iceberg_maint.core.outcomes.verification import Proof
from iceberg_maint.core.planning.batch_memory import MemoryUse
from iceberg_maint.core.planning.work import LayoutGain
from iceberg_maint.core.removal.orphan_rules import RetainedOrphans
from iceberg_maint.ports.observers import Observation

DAY1, DAY2, DAY3 = (PartitionKey(f"day={n}") for n in (1, 2, 3))
COMMITTED = BatchOutcome(
    batch_id="b1",
    partitions=(DAY1,),
    outcome=OutcomeStatus.IMPROVED,
    reason=Reason.SMALL_FILES,
    input_files=10,
    output_files=2,
    input_bytes=1000,
    output_bytes=900,
    delete_files_removed=3,
    seconds=4.5,
    snapshot_before=1,
    snapshot_after=2,
    commit_tries=2,
    wasted_bytes=0,
    proof=Proof("full", equal=True, input_records=50, output_records=45, removed_records=5),
    memory=MemoryUse(estimated_bytes=100, peak_bytes=80, partitions=1, passes=1),
    layout=LayoutGain(4.0, 1.5, 1.25),
    counts={"expired_snapshots": 7},
    retained=(
        RetainedOrphans("m", 1, 6, 600, None, None, ()),
        RetainedOrphans("d", None, 2, 20, None, None, ()),
    ),
)
CONFLICT = replace(
    COMMITTED,
    batch_id="b2",
    partitions=(DAY2,),
    outcome=OutcomeStatus.FAILED,
    reason=Reason.CONFLICT,
    input_files=5,
    input_bytes=500,
    snapshot_after=None,
    commit_tries=4,
    wasted_bytes=450,
    proof=None,
    memory=None,
    layout=None,
    counts={},
    retained=None,
)


def record(table: str = "lake.db.t", record_id: str = "r1") -> Record:
    return Record(
        record_id=record_id,
        run_id="run",
        table=table,
        table_uuid="u1",
        operation=Operation.REWRITE_DATA_FILES,
        started_ms=1_000_000,
        ended_ms=1_012_500,
        plan_id="p",
        policy_digest="d",
        versions={},
        outcome=OperationOutcome(
            table=table,
            operation=Operation.REWRITE_DATA_FILES,
            outcome=OutcomeStatus.FAILED,
            reason=Reason.CONFLICT,
            snapshot_before=1,
            snapshot_after=2,
            batches=(COMMITTED, CONFLICT),
            partitions=(
                (DAY1, OutcomeStatus.IMPROVED, Reason.SMALL_FILES),
                (DAY2, OutcomeStatus.FAILED, Reason.CONFLICT),
                (DAY3, OutcomeStatus.NO_OP, Reason.HEALTHY),
            ),
        ),
    )


def observation(table: str = "lake.db.t") -> Observation:
    histogram = (3, 0, 0, 0, 2, 0, 0, 0, 1)
    measured = Measured(
        table=TableId.parse(table),
        table_uuid="u1",
        snapshot_id=2,
        sequence_number=5,
        metadata_location="m",
        table_health=TableHealth(partitions=2, snapshots=9, manifests=4, last_change_ms=2_000_500),
        partitions={
            DAY1: PartitionHealth(data_files=4, data_bytes=400, size_histogram=histogram, records=8),
            DAY2: PartitionHealth(data_files=2, data_bytes=100, position_delete_records=2, records=2),
        },
        target_file_size_bytes=100,
    )
    due = PartitionDecision(DAY1, Verdict.RUN, Reason.SMALL_FILES, candidate_bytes=400)
    later = PartitionDecision(DAY2, Verdict.DEFER, Reason.RUN_BUDGET, candidate_bytes=50)
    decision = Decision(table, Operation.REWRITE_DATA_FILES, Verdict.RUN, Reason.SMALL_FILES, 2, (due, later))
    history = TableHistory(
        unknown_commits=1, partitions={DAY3: PartitionHistory(ineffective=3, quarantined=True)}
    )
    return Observation(measured, 3_000_000, (decision,), (history,))
