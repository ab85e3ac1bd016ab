"""Small values of the core, as the loop would make them."""

from __future__ import annotations

from dataclasses import replace

from iceberg_maint.core.health.metrics import Measured, PartitionHealth, TableHealth
from iceberg_maint.core.model.ids import Operation, TableId
from iceberg_maint.core.model.other_writers import ForeignCommit
from iceberg_maint.core.model.reasons import Reason
from iceberg_maint.core.model.table_state import FileKind
from iceberg_maint.core.outcomes.outcome import BatchOutcome, CommitStatus, OperationOutcome, OutcomeStatus
from iceberg_maint.core.outcomes.record import Record, Settlement
from iceberg_maint.core.outcomes.verification import Proof
from iceberg_maint.core.planning.plan import Batch, BatchBody, Plan, batch_id, make_plan
from iceberg_maint.core.planning.work import FileGroup, InputFile
from iceberg_maint.ports.engine import WrittenFile

TABLE = TableId("lake", ("db",), "events")
NAME = str(TABLE)
UUID = "11111111-1111-1111-1111-111111111111"
OTHER_UUID = "22222222-2222-2222-2222-222222222222"
REWRITE = Operation.REWRITE_DATA_FILES
CONVERT = Operation.CONVERT_EQUALITY_DELETES
PROOF = Proof("full", equal=True, input_records=10, output_records=10, removed_records=0)
COMMITTED = Settlement(CommitStatus.COMMITTED, 9, "its token is in the table")
REJECTED = Settlement(CommitStatus.REJECTED, None, "the table moved past its base")
UNKNOWN = Settlement(CommitStatus.UNKNOWN, None, "neither")


def make_batch(
    partition: str, snapshot_id: int = 1, table_uuid: str = UUID, operation: Operation = REWRITE
) -> Batch:
    """Two files of 100 and 50 bytes of one partition."""
    files = (
        InputFile(f"{partition}/a.parquet", 100, 5, 1),
        InputFile(f"{partition}/b.parquet", 50, 5, 2, ("d.parquet",)),
    )
    group = FileGroup(partition, 0, 0, files, 1)
    paths = frozenset(f.path for f in files)
    return BatchBody(
        batch_id=batch_id(table_uuid, operation, snapshot_id, paths),
        table=NAME,
        table_uuid=table_uuid,
        operation=operation,
        strategy="native" if operation == REWRITE else "convert",
        format_version=2,
        snapshot_id=snapshot_id,
        snapshot_sequence_number=snapshot_id,
        schema_id=0,
        groups=(group,),
        target_file_size_bytes=1000,
        reasons=(Reason.SMALL_FILES,),
    ).batch()


def plan_of(
    *partitions: str, snapshot_id: int = 1, table_uuid: str = UUID, operation: Operation = REWRITE
) -> Plan:
    batches = tuple(make_batch(p, snapshot_id, table_uuid, operation) for p in partitions)
    return make_plan(NAME, table_uuid, operation, snapshot_id, batches, ())


def written(batch: Batch) -> tuple[WrittenFile, ...]:
    if batch.operation == REWRITE:
        return (WrittenFile(f"{batch.batch_id}/out.parquet", 140, 10, 0, 0, "{}"),)
    vector = FileKind.DELETION_VECTOR
    path, first = f"{batch.batch_id}/dv.puffin", batch.groups[0].files[0].path
    return (WrittenFile(path, 40, 3, 0, 0, "{}", vector, 4, first),)


def outcome_of(
    batch: Batch, status: OutcomeStatus = OutcomeStatus.IMPROVED, snapshot_after: int | None = 2
) -> BatchOutcome:
    return BatchOutcome(
        batch_id=batch.batch_id,
        partitions=batch.partitions,
        outcome=status,
        reason=Reason.SMALL_FILES,
        input_files=2,
        output_files=1,
        input_bytes=150,
        output_bytes=140,
        delete_files_removed=0,
        seconds=1.0,
        snapshot_before=batch.snapshot_id,
        snapshot_after=snapshot_after,
        proof=PROOF,
    )


def measured(
    *partitions: str, sequence_number: int = 1, table_uuid: str = UUID, table: TableId = TABLE
) -> Measured:
    health = PartitionHealth(data_files=3, data_bytes=300, spec_ids=(0, 1), last_change_ms=7)
    return Measured(
        table=table,
        table_uuid=table_uuid,
        snapshot_id=sequence_number,
        sequence_number=sequence_number,
        metadata_location=f"{table_uuid}/v{sequence_number}.json",
        table_health=TableHealth(partitions=len(partitions), snapshots=sequence_number),
        partitions={p: replace(health, records=i) for i, p in enumerate(partitions)},
        target_file_size_bytes=1000,
        foreign=(ForeignCommit(3, 1_700_000_000_000, "Trino (query q)", deletes=True),),
    )


def make_record(record_id: str, table: TableId = TABLE, table_uuid: str = UUID) -> Record:
    outcome = OperationOutcome(
        table=str(table),
        operation=REWRITE,
        outcome=OutcomeStatus.IMPROVED,
        reason=Reason.SMALL_FILES,
        snapshot_before=1,
        snapshot_after=2,
        batches=(outcome_of(make_batch("day=1")),),
        partitions=(("day=1", OutcomeStatus.IMPROVED, Reason.SMALL_FILES),),
    )
    return Record(
        record_id=record_id,
        run_id="run-1",
        table=str(table),
        table_uuid=table_uuid,
        operation=REWRITE,
        started_ms=1,
        ended_ms=2,
        plan_id="plan",
        policy_digest="digest",
        versions={"iceberg": "1.12.0"},
        outcome=outcome,
    )
