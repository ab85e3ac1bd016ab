"""Reads the ledger into frames. No catalog is asked, no Spark starts, and nothing is written."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from iceberg_maint.config import load_config
from iceberg_maint.core.health.metrics import partition_metrics
from iceberg_maint.core.outcomes.outcome import BatchOutcome
from iceberg_maint.core.outcomes.record import Record
from iceberg_maint.integrations.frames.columns import COLUMNS, TIME
from iceberg_maint.ledger.ledger import SqlLedger
from iceberg_maint.ports.ledger import Ledger
from iceberg_maint.report.fleet import read_fleet

if TYPE_CHECKING:
    import pandas as pd

_ALL = 2**31 - 1
_Row = Mapping[str, Any]


@contextmanager
def open(config: Path | str | None = None) -> Iterator[Ledger]:  # noqa: A001 - frames.open
    """The ledger of a configuration file, for reading only; without a file that of `$ICEBERG_MAINT_CONFIG`,
    else of the embedded default, as on the command line.

    Raises ConfigurationError ICM-100 for a wrong configuration, ICM-128 from the first frame for a ledger
    that does not exist, is of another version or cannot be reached.
    """
    loaded = load_config(None if config is None else Path(config), os.environ)
    ledger = SqlLedger(loaded.ledger_url, read_only=True)
    try:
        yield ledger
    finally:
        ledger.close()


def health(ledger: Ledger) -> pd.DataFrame:
    """One row per partition of every table with stored health, by table and partition key."""
    return _frame("health", _health_rows(ledger))


def batches(ledger: Ledger, table: str | None = None, limit: int | None = None) -> pd.DataFrame:
    """One row per batch of the `limit` newest records, of one table or of all. The newest record is first;
    the batches of a record are in the order in which they ran."""
    rows = (
        {**_record_row(r), **_batch_row(b)} for r in _records(ledger, table, limit) for b in r.outcome.batches
    )
    return _frame("batches", rows)


def records(ledger: Ledger, table: str | None = None, limit: int | None = None) -> pd.DataFrame:
    """One row per operation on a table in a run: the `limit` newest of one table or of all, newest first."""
    return _frame("records", map(_record_row, _records(ledger, table, limit)))


def fleet(ledger: Ledger, limit: int | None = None) -> pd.DataFrame:
    """One row per table with stored health, with what its records among the `limit` newest did. The table with
    the most small files and delete files is first."""
    return _frame("fleet", map(asdict, read_fleet(ledger, _ALL if limit is None else limit)))


def _records(ledger: Ledger, table: str | None, limit: int | None) -> tuple[Record, ...]:
    return ledger.records(table, _ALL if limit is None else limit)


def _health_rows(ledger: Ledger) -> Iterator[_Row]:
    for known in ledger.known_tables():
        measured = ledger.health(known.table)
        if measured is None:
            continue
        head = {
            "table": str(measured.table),
            "table_uuid": measured.table_uuid,
            "snapshot_id": measured.snapshot_id,
            "observed_ms": known.observed_ms,
        }
        for key, part in sorted(measured.partitions.items()):
            yield {**head, "partition": key, **partition_metrics(part)}


def _record_row(record: Record) -> _Row:
    outcome = record.outcome
    return {
        "record_id": record.record_id,
        "run_id": record.run_id,
        "table": record.table,
        "table_uuid": record.table_uuid,
        "operation": record.operation,
        "started_ms": record.started_ms,
        "ended_ms": record.ended_ms,
        "outcome": outcome.outcome.value,
        "reason": outcome.reason.value,
        "message": outcome.message,
        "snapshot_before": outcome.snapshot_before,
        "snapshot_after": outcome.snapshot_after,
        "batches": len(outcome.batches),
        "plan_id": record.plan_id,
        "policy_digest": record.policy_digest,
        "versions": dict(record.versions),
    }


def _batch_row(batch: BatchOutcome) -> _Row:
    proof, memory = batch.proof, batch.memory
    return {
        "batch_id": batch.batch_id,
        "partitions": batch.partitions,
        "outcome": batch.outcome.value,
        "reason": batch.reason.value,
        "message": batch.message,
        "snapshot_before": batch.snapshot_before,
        "snapshot_after": batch.snapshot_after,
        "input_files": batch.input_files,
        "output_files": batch.output_files,
        "input_bytes": batch.input_bytes,
        "output_bytes": batch.output_bytes,
        "delete_files_removed": batch.delete_files_removed,
        "wasted_bytes": batch.wasted_bytes,
        "seconds": batch.seconds,
        "commit_tries": batch.commit_tries,
        "proof_level": proof and proof.level,
        "proof_equal": None if proof is None else proof.equal,
        "input_records": None if proof is None else proof.input_records,
        "output_records": None if proof is None else proof.output_records,
        "removed_records": None if proof is None else proof.removed_records,
        "estimated_bytes": None if memory is None else memory.estimated_bytes,
        "peak_bytes": None if memory is None else memory.peak_bytes,
        "counts": dict(batch.counts),
    }


def _frame(name: str, rows: Iterable[_Row]) -> pd.DataFrame:
    """The rows as a frame with the columns and dtypes of `COLUMNS`, even without rows."""
    import pandas as pd

    kept = tuple(rows)
    data: dict[str, pd.Series[Any]] = {}
    for column in COLUMNS[name]:
        values = [row[column.key] for row in kept]
        if column.dtype == TIME:
            # A time of a table's metadata may be any number: beyond pandas' range it is NaT.
            milliseconds = pd.Series(values, dtype="Int64")
            instants = pd.to_datetime(milliseconds, unit="ms", utc=True, errors="coerce")
            data[column.name] = instants.dt.as_unit("ms")
        else:
            data[column.name] = pd.Series(values, dtype=column.dtype)
    return pd.DataFrame(data)
