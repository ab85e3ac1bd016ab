"""What the ledger stores, as pandas frames: a public interface for notebooks and exports. No catalog is asked, no Spark
starts, and nothing is written.

`docs/reference/frames.md` is written from `COLUMNS`.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from iceberg_maint.config import load_config
from iceberg_maint.core.health.metrics import PartitionHealth, metric_docs, partition_metrics
from iceberg_maint.core.outcomes.outcome import BatchOutcome, OperationOutcome
from iceberg_maint.core.outcomes.record import Record
from iceberg_maint.ledger.ledger import sql_ledger
from iceberg_maint.ports.ledger import Ledger
from iceberg_maint.report.fleet import read_fleet

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["COLUMNS", "Column", "batches", "fleet", "health", "open", "records"]

TEXT = "str"
COUNT = "int64"
MAYBE_COUNT = "Int64"
NUMBER = "float64"
MAYBE_BOOL = "boolean"
TIME = "datetime64[ms, UTC]"
VALUES = "object"


@dataclass(frozen=True, slots=True)
class Column:
    """A column. `key` is its name in the stored record. In the frame, times have no suffix `_ms`."""

    key: str
    dtype: str
    doc: str

    @property
    def name(self) -> str:
        """The name in the frame."""
        return self.key.removesuffix("_ms") if self.dtype == TIME else self.key


_TABLE = (
    Column("table", TEXT, "catalog, namespace and name"),
    Column("table_uuid", TEXT, "UUID of the table, which stays the same when the table is renamed"),
)


def _metric(name: str, doc: str) -> Column:
    value = partition_metrics(PartitionHealth())[name]
    if name.endswith("_ms"):
        return Column(name, TIME, doc.replace(", ms since epoch", "").replace("null", "NaT"))
    if isinstance(value, tuple):
        return Column(name, VALUES, f"{doc}; a tuple of integers")
    return Column(name, NUMBER if isinstance(value, float) else COUNT, doc)


_HEALTH = (
    *_TABLE,
    Column("snapshot_id", MAYBE_COUNT, "snapshot that was measured; NA of a table without one"),
    Column("observed_ms", TIME, "when the health was stored, by the ledger's clock"),
    Column("partition", TEXT, "partition key"),
    *(_metric(name, metric_docs()[name]) for name in partition_metrics(PartitionHealth())),
)
_RECORD = (
    Column("record_id", TEXT, "id of the record"),
    Column("run_id", TEXT, "id of the run"),
    *_TABLE,
    Column("operation", TEXT, "name of the operation"),
    Column("started_ms", TIME, "start of the operation"),
    Column("ended_ms", TIME, "end of the operation"),
)
_SNAPSHOTS = (
    Column("snapshot_before", MAYBE_COUNT, "snapshot before the work; NA without one"),
    Column("snapshot_after", MAYBE_COUNT, "snapshot after the work; NA if nothing was committed"),
)
_RESULT = (
    Column("outcome", TEXT, "IMPROVED, COMMITTED, NO_OP, DEFERRED, UNSUPPORTED, FAILED or UNKNOWN"),
    Column("reason", TEXT, "reason code"),
    Column("message", TEXT, "explanation for people; empty without one"),
)
_RECORDS = (
    *_RECORD,
    *_RESULT,
    *_SNAPSHOTS,
    Column("batches", COUNT, "batches of the operation"),
    Column("plan_id", TEXT, "id of the plan; NaN if nothing was planned"),
    Column("policy_digest", TEXT, "digest of the effective policy"),
    Column("versions", VALUES, "versions of Spark and Iceberg by name; a dict of texts"),
)
_BATCHES = (
    *_RECORD,
    Column("batch_id", TEXT, "id of the batch"),
    Column("partitions", VALUES, "partition keys of the batch; a tuple of texts"),
    *_RESULT,
    *_SNAPSHOTS,
    Column("input_files", COUNT, "data files read"),
    Column("output_files", COUNT, "data files committed"),
    Column("input_bytes", COUNT, "bytes of the data files read"),
    Column("output_bytes", COUNT, "bytes of the data files committed"),
    Column("delete_files_removed", COUNT, "delete files that the commit removed"),
    Column("wasted_bytes", COUNT, "bytes written that are in no commit"),
    Column("seconds", NUMBER, "duration of the batch"),
    Column("commit_tries", COUNT, "attempts to swap the table's metadata"),
    Column("proof_level", TEXT, "level of the proof; NaN if nothing was written"),
    Column(
        "proof_equal",
        MAYBE_BOOL,
        "whether the rows written equal the rows kept; NA if nothing was written",
    ),
    Column("input_records", MAYBE_COUNT, "rows read by the proof; NA if nothing was written"),
    Column("output_records", MAYBE_COUNT, "rows written by the proof; NA if nothing was written"),
    Column("removed_records", MAYBE_COUNT, "deleted rows left out by the proof; NA if nothing was written"),
    Column("estimated_bytes", MAYBE_COUNT, "execution memory estimated; NA without equality deletes"),
    Column("peak_bytes", MAYBE_COUNT, "execution memory measured; NA without equality deletes"),
    Column("counts", VALUES, "what housekeeping counted, by name; a dict of integers"),
)
_FLEET = (
    Column("table", TEXT, "catalog, namespace and name"),
    Column("data_files", COUNT, "live data files"),
    Column("data_bytes", COUNT, "bytes of live data files"),
    Column("small_files", COUNT, "data files below the small-file size"),
    Column("delete_files", COUNT, "position delete files, deletion vectors and equality delete files"),
    Column("snapshots", COUNT, "retained snapshots"),
    Column("metadata_bytes", COUNT, "bytes of the table metadata file"),
    Column("runs", COUNT, "records counted"),
    Column("failed_runs", COUNT, "of those, records with outcome FAILED or UNKNOWN"),
    Column("batches", COUNT, "batches of these records"),
    Column("files_removed", COUNT, "data files read minus data files committed"),
    Column("input_bytes", COUNT, "bytes of the data files read by committed batches"),
    Column("delete_files_removed", COUNT, "delete files that the commits removed"),
    Column("wasted_bytes", COUNT, "bytes written that are in no commit"),
    Column("busy_seconds", NUMBER, "duration of all batches"),
)
COLUMNS: Mapping[str, tuple[Column, ...]] = {
    "health": _HEALTH,
    "batches": _BATCHES,
    "records": _RECORDS,
    "fleet": _FLEET,
}
"""The columns of each frame, in their order."""

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
    ledger = sql_ledger(loaded.ledger_url, read_only=True)
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
    return ledger.records.newest(table, _ALL if limit is None else limit)


def _health_rows(ledger: Ledger) -> Iterator[_Row]:
    for known in ledger.health.known_tables():
        measured = ledger.health.get(known.table)
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
        **_fields(outcome),
        **_fields(record),
        "outcome": outcome.outcome.value,
        "reason": outcome.reason.value,
        "batches": len(outcome.batches),
        "versions": dict(record.versions),
    }


def _batch_row(batch: BatchOutcome) -> _Row:
    proof, memory = batch.proof, batch.memory
    return {
        **_fields(batch),
        "outcome": batch.outcome.value,
        "reason": batch.reason.value,
        "proof_level": proof and proof.level,
        "proof_equal": proof and proof.equal,
        "input_records": proof and proof.input_records,
        "output_records": proof and proof.output_records,
        "removed_records": proof and proof.removed_records,
        "estimated_bytes": memory and memory.estimated_bytes,
        "peak_bytes": memory and memory.peak_bytes,
        "counts": dict(batch.counts),
    }


def _fields(value: Record | OperationOutcome | BatchOutcome) -> dict[str, Any]:
    """The fields by name, most of which are columns."""
    return {f.name: getattr(value, f.name) for f in fields(value)}


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
