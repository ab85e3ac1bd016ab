"""The fleet: stored health and recorded work of every table."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass

from iceberg_maint.core.health.metrics import Measured
from iceberg_maint.core.model.ids import POSITION_OPERATIONS
from iceberg_maint.core.outcomes.outcome import OutcomeStatus
from iceberg_maint.core.outcomes.record import Record
from iceberg_maint.ports.ledger import Ledger
from iceberg_maint.report.json_documents import Document


@dataclass(frozen=True, slots=True)
class FleetRow:
    """One table: its last stored health, and the work of the counted records."""

    table: str
    data_files: int
    data_bytes: int
    small_files: int
    delete_files: int
    snapshots: int
    metadata_bytes: int
    runs: int
    failed_runs: int
    batches: int
    files_removed: int
    input_bytes: int
    delete_files_removed: int
    wasted_bytes: int
    busy_seconds: float


def fleet(health: Iterable[Measured], records: Iterable[Record]) -> tuple[FleetRow, ...]:
    """One row per table with stored health. Tables with the most small files and delete files come first."""
    by_table: dict[str, list[Record]] = {}
    for record in records:
        by_table.setdefault(record.table, []).append(record)
    rows = [_row(measured, by_table.get(str(measured.table), [])) for measured in health]
    return tuple(sorted(rows, key=lambda r: (-r.small_files - r.delete_files, r.table)))


def read_fleet(ledger: Ledger, limit: int) -> tuple[FleetRow, ...]:
    """Reads the fleet from stored health and the `limit` newest records."""
    health = [h for k in ledger.known_tables() if (h := ledger.health(k.table)) is not None]
    return fleet(health, ledger.records(None, limit))


def fleet_document(rows: tuple[FleetRow, ...]) -> Document:
    """The JSON document of `report`: totals, then tables."""
    tables = [asdict(r) for r in rows]
    names = [name for name in (tables[0] if tables else {}) if name != "table"]
    totals = {name: round(sum(t[name] for t in tables), 3) for name in names}
    return {"totals": {"tables": len(tables), **totals}, "tables": tables}


def _row(measured: Measured, records: list[Record]) -> FleetRow:
    total = measured.total()
    batches = [b for r in records for b in r.outcome.batches]
    committed = [b for b in batches if b.snapshot_after is not None]
    # The output of an operation on positions is delete files; it keeps the data files.
    rewritten = [
        b
        for r in records
        if r.operation not in POSITION_OPERATIONS
        for b in r.outcome.batches
        if b.snapshot_after is not None
    ]
    failed = [r for r in records if r.outcome.outcome in (OutcomeStatus.FAILED, OutcomeStatus.UNKNOWN)]
    return FleetRow(
        table=str(measured.table),
        data_files=total.data_files,
        data_bytes=total.data_bytes,
        small_files=total.small_files,
        delete_files=total.delete_files,
        snapshots=measured.table_health.snapshots,
        metadata_bytes=measured.table_health.metadata_bytes,
        runs=len(records),
        failed_runs=len(failed),
        batches=len(batches),
        files_removed=sum(b.input_files - b.output_files for b in rewritten),
        input_bytes=sum(b.input_bytes for b in committed),
        delete_files_removed=sum(b.delete_files_removed for b in committed),
        wasted_bytes=sum(b.wasted_bytes for b in batches),
        busy_seconds=round(sum(b.seconds for b in batches), 3),
    )
