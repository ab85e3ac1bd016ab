"""The columns of every frame: name, dtype and meaning. `docs/reference/frames.md` is written from them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from iceberg_maint.core.health.metrics import PartitionHealth, metric_docs, partition_metrics

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
