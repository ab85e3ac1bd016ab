"""Lineage: the start and the end of an operation as events, before they have a receiver's form."""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from enum import StrEnum

from iceberg_maint.core.model.ids import TableId
from iceberg_maint.core.model.reasons import Reason
from iceberg_maint.core.outcomes.outcome import OutcomeStatus
from iceberg_maint.core.outcomes.record import Record
from iceberg_maint.ports.observers import Intent

_NAMESPACE = uuid.UUID("6f9619ff-8b86-5d11-b42d-00c04fc964ff")


class EventType(StrEnum):
    """The types of events, named as in OpenLineage."""

    START = "START"
    COMPLETE = "COMPLETE"
    FAIL = "FAIL"
    ABORT = "ABORT"


@dataclass(frozen=True, slots=True)
class CommitReport:
    """What the commits of an operation changed, named as in Iceberg's commit report."""

    snapshot_id: int | None
    attempts: int
    added_data_files: int
    removed_data_files: int
    removed_delete_files: int
    added_bytes: int
    removed_bytes: int


@dataclass(frozen=True, slots=True)
class LineageEvent:
    """One event. `run` is the same for the start and the end of an operation of a run on a table."""

    type: EventType
    run: str
    at_ms: int
    job: str
    catalog: str
    table: str
    input_version: str | None
    output_version: str | None = None
    commit: CommitReport | None = None
    rows: int | None = None
    error: str = ""


def start_of(intent: Intent) -> LineageEvent:
    """The start of an operation."""
    catalog, table = _names(intent.table)
    return LineageEvent(
        EventType.START,
        run_uuid(intent.run_id, intent.table_uuid, intent.operation.value),
        intent.started_ms,
        f"{intent.table}.{intent.operation.value}",
        catalog,
        table,
        _version(intent.snapshot_before),
    )


def end_of(record: Record) -> LineageEvent | None:
    """The end of an operation; None for one that executed nothing, which had no start."""
    outcome = record.outcome
    if not outcome.batches and outcome.reason is not Reason.TERMINATED:
        return None
    catalog, table = _names(record.table)
    committed = [b for b in outcome.batches if b.snapshot_after is not None]
    proofs = [b.proof for b in committed if b.proof is not None]
    event_type = _type(outcome.outcome, outcome.reason)
    return LineageEvent(
        event_type,
        run_uuid(record.run_id, record.table_uuid, record.operation.value),
        record.ended_ms,
        f"{record.table}.{record.operation.value}",
        catalog,
        table,
        _version(outcome.snapshot_before),
        _version(outcome.snapshot_after),
        CommitReport(
            outcome.snapshot_after,
            sum(b.commit_tries for b in outcome.batches),
            sum(b.output_files for b in committed),
            sum(b.input_files for b in committed),
            sum(b.delete_files_removed for b in committed),
            sum(b.output_bytes for b in committed),
            sum(b.input_bytes for b in committed),
        ),
        sum(p.output_records for p in proofs) if proofs else None,
        "" if event_type is EventType.COMPLETE else (outcome.message or outcome.reason.value),
    )


def run_uuid(run_id: str, table_uuid: str, operation: str) -> str:
    """The UUID of an operation of a run on a table."""
    return str(uuid.uuid5(_NAMESPACE, f"{run_id}/{table_uuid}/{operation}"))


def _type(status: OutcomeStatus, reason: Reason) -> EventType:
    if reason is Reason.TERMINATED or status is OutcomeStatus.DEFERRED:
        return EventType.ABORT
    failed = status in (OutcomeStatus.FAILED, OutcomeStatus.UNKNOWN)
    return EventType.FAIL if failed else EventType.COMPLETE


def _names(table: str) -> tuple[str, str]:
    name = TableId.parse(table)
    return name.catalog, ".".join(name.in_catalog)


def _version(snapshot_id: int | None) -> str | None:
    return None if snapshot_id is None else str(snapshot_id)
