"""Record: the append-only account of one operation on one table in one run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from iceberg_maint.core.model.ids import Operation, PartitionKey
from iceberg_maint.core.outcomes.outcome import BatchOutcome, OperationOutcome


@dataclass(frozen=True, slots=True)
class Record:
    """The plan, the outcome, the policy digest, the versions and the owner of one run. A written record
    never changes. `started_by` is the user or the automation that started the run; None if not known.
    `catalog_calls` are the calls of the process to all catalogs in the time of the operation; None if not counted."""

    record_id: str
    run_id: str
    table: str
    table_uuid: str
    operation: Operation
    started_ms: int
    ended_ms: int
    plan_id: str | None
    policy_digest: str
    versions: Mapping[str, str]
    outcome: OperationOutcome
    started_by: str | None = None
    catalog_calls: int | None = None


REDACTED = PartitionKey("redacted")
"""Stands for the key of a partition of a table with read restrictions."""


def without_values(record: Record) -> Record:
    """Returns the record without partition keys, and without paths and texts, which may have values of rows."""
    outcome = record.outcome
    partitions = tuple((REDACTED, status, reason) for _, status, reason in outcome.partitions)
    batches = tuple(map(_batch_without_values, outcome.batches))
    return replace(record, outcome=replace(outcome, batches=batches, partitions=partitions, message=""))


def _batch_without_values(batch: BatchOutcome) -> BatchOutcome:
    return replace(
        batch,
        partitions=(REDACTED,) * len(batch.partitions),
        proof=None if batch.proof is None else replace(batch.proof, detail=""),
        message="",
        held=None,
        unlogged=None,
    )
