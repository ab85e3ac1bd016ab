"""The catalogue: every series that the program reports, defined once.

`docs/reference/telemetry.md`, the exporters, the dashboards and the rules follow from it.
"""

from __future__ import annotations

from dataclasses import fields

from iceberg_maint.core.health.metrics import DERIVED_METRICS, PartitionHealth, TableHealth
from iceberg_maint.integrations.telemetry.series import Kind, Series, Unit

TABLE = ("catalog", "namespace", "table")
"""The labels of a table."""
RUN = (*TABLE, "operation")
"""The labels of an operation on a table."""

SIZES = ("1", "4", "16", "64", "128", "256", "512", "1024", "more")
"""Values of the label `below_mib`: the bins of the size histogram."""

# Metrics of health that are no measure of a table: ids, and what another series has.
_NOT_REPORTED = {"spec_ids", "size_histogram", "min_data_sequence_number", "max_data_sequence_number"}


def _counter(
    name: str, meaning: str, source: str, *labels: str, unit: Unit = Unit.COUNT, alias: str = ""
) -> Series:
    return Series(name, Kind.COUNTER, unit, (*RUN, *labels), meaning, source, alias)


def _gauge(
    name: str, meaning: str, source: str, *labels: str, unit: Unit = Unit.COUNT, alias: str = ""
) -> Series:
    return Series(name, Kind.GAUGE, unit, (*TABLE, *labels), meaning, source, alias)


OPERATIONS = _counter(
    "iceberg_maint.operations",
    "recorded operations",
    "Record.outcome",
    "outcome",
    "reason",
)
OPERATION_DURATION = Series(
    "iceberg_maint.operation.duration",
    Kind.HISTOGRAM,
    Unit.SECONDS,
    (*RUN, "outcome"),
    "time of an operation, from its start to its record",
    "Record.started_ms, Record.ended_ms",
    "table_optimizing_status_executing_duration_mills (Amoro)",
)
OPERATION_ENDED = _gauge(
    "iceberg_maint.operation.ended",
    "when the operation last ended",
    "Record.ended_ms",
    "operation",
    "outcome",
    unit=Unit.EPOCH,
)
PARTITIONS = _counter(
    "iceberg_maint.operation.partitions",
    "partitions of recorded operations by outcome; FAILED are the failed partitions, DEFERRED those that "
    "lost to other writers, NO_OP and UNSUPPORTED the skipped ones",
    "OperationOutcome.partitions",
    "outcome",
)
BATCHES = _counter(
    "iceberg_maint.operation.batches", "executed batches by outcome", "OperationOutcome.batches", "outcome"
)
INPUT_FILES = _counter(
    "iceberg_maint.rewrite.input.files",
    "files that committed batches replaced or examined",
    "BatchOutcome.input_files of batches with a snapshot",
    alias="iceberg.commit.data_files.removed (Iceberg, for rewrite_data_files)",
)
INPUT_BYTES = _counter(
    "iceberg_maint.rewrite.input.bytes",
    "bytes of those files",
    "BatchOutcome.input_bytes of batches with a snapshot",
    unit=Unit.BYTES,
)
OUTPUT_FILES = _counter(
    "iceberg_maint.rewrite.output.files",
    "files that committed batches wrote",
    "BatchOutcome.output_files of batches with a snapshot",
    alias="iceberg.commit.data_files.added (Iceberg, for rewrite_data_files)",
)
OUTPUT_BYTES = _counter(
    "iceberg_maint.rewrite.output.bytes",
    "bytes of those files",
    "BatchOutcome.output_bytes of batches with a snapshot",
    unit=Unit.BYTES,
    alias="iceberg.commit.file_size.added_bytes (Iceberg, for rewrite_data_files)",
)
SKIPPED_FILES = _counter(
    "iceberg_maint.rewrite.skipped.files",
    "files of executed batches that committed nothing",
    "BatchOutcome.input_files of batches without a snapshot",
)
SKIPPED_BYTES = _counter(
    "iceberg_maint.rewrite.skipped.bytes",
    "bytes of those files",
    "BatchOutcome.input_bytes of batches without a snapshot",
    unit=Unit.BYTES,
)
DELETE_FILES_REMOVED = _counter(
    "iceberg.commit.delete_files.removed",
    "delete files that commits of maintenance removed",
    "BatchOutcome.delete_files_removed",
    alias="iceberg.commit.delete_files.removed (Iceberg)",
)
CATALOG_CALLS = _counter(
    "iceberg_maint.catalog.calls",
    "calls of the process to all catalogs in the time of the operation",
    "Record.catalog_calls",
)
COMMIT_ATTEMPTS = _counter(
    "iceberg.commit.attempts",
    "compare-and-swaps that maintenance tried or prepared",
    "BatchOutcome.commit_tries",
    alias="iceberg.commit.attempts (Iceberg)",
)
COMMIT_CONFLICTS = _counter(
    "iceberg_maint.commit.conflicts",
    "batches that lost against a concurrent commit",
    "BatchOutcome.reason in LOST_RACES",
)
WASTED_BYTES = _counter(
    "iceberg_maint.commit.wasted",
    "bytes written and not committed",
    "BatchOutcome.wasted_bytes",
    unit=Unit.BYTES,
)
PROOFS = _counter(
    "iceberg_maint.proof.batches",
    "batches with a proof, by level and verdict",
    "BatchOutcome.proof",
    "level",
    "equal",
)
PROOF_ROWS = _counter(
    "iceberg_maint.proof.rows",
    "rows of proofs: read, written, removed by deletes",
    "Proof.input_records, output_records, removed_records",
    "rows",
)
MEMORY_ESTIMATED = _gauge(
    "iceberg_maint.memory.estimated",
    "estimated memory of the last operation that applied equality deletes; the greatest of its batches",
    "MemoryUse.estimated_bytes",
    "operation",
    unit=Unit.BYTES,
)
MEMORY_PEAK = _gauge(
    "iceberg_maint.memory.peak",
    "measured memory of the same operation; the greatest of its batches",
    "MemoryUse.peak_bytes",
    "operation",
    unit=Unit.BYTES,
)
LAYOUT_DEPTH = _gauge(
    "iceberg_maint.layout.depth",
    "overlap depth of the files of the last sort: before, predicted, measured; the greatest of its batches",
    "LayoutGain",
    "operation",
    "depth",
)

# Numbers of housekeeping, by the name of the count in the outcome.
COUNTS: dict[str, Series] = {
    "expired_snapshots": _counter(
        "iceberg_maint.snapshots.expired", "snapshots removed by expiry", "counts.expired_snapshots"
    ),
    "expired_refs": _counter("iceberg_maint.refs.expired", "refs removed by expiry", "counts.expired_refs"),
    "manifests_replaced": _counter(
        "iceberg_maint.manifests.replaced", "manifests that were rewritten", "counts.manifests_replaced"
    ),
    "manifests_created": _counter(
        "iceberg_maint.manifests.created", "manifests written in their place", "counts.manifests_created"
    ),
    "listed_files": _counter(
        "iceberg_maint.orphans.listed.files", "files that orphan scans listed", "counts.listed_files"
    ),
    "orphan_files": _counter(
        "iceberg_maint.orphans.identified.files",
        "orphan files that scans identified",
        "counts.orphan_files",
    ),
    "trashed_files": _counter(
        "iceberg_maint.trash.moved.files", "orphan files moved to the trash", "counts.trashed_files"
    ),
    "trashed_bytes": _counter(
        "iceberg_maint.trash.moved.bytes", "bytes of those files", "counts.trashed_bytes", unit=Unit.BYTES
    ),
    "swept_files": _counter(
        "iceberg_maint.trash.deleted.files", "files deleted from the trash", "counts.swept_files"
    ),
    "swept_bytes": _counter(
        "iceberg_maint.trash.deleted.bytes", "bytes of those files", "counts.swept_bytes", unit=Unit.BYTES
    ),
    "released_files": _counter(
        "iceberg_maint.released.moved.files",
        "files that expiries released, moved to the trash or retained in place",
        "counts.released_files",
    ),
    "released_bytes": _counter(
        "iceberg_maint.released.moved.bytes",
        "bytes of those files",
        "counts.released_bytes",
        unit=Unit.BYTES,
    ),
    "released_deleted_files": _counter(
        "iceberg_maint.released.deleted.files",
        "released files deleted after their retention",
        "counts.released_deleted_files",
    ),
    "released_deleted_bytes": _counter(
        "iceberg_maint.released.deleted.bytes",
        "bytes of those files",
        "counts.released_deleted_bytes",
        unit=Unit.BYTES,
    ),
    "adopted_files": _counter(
        "iceberg_maint.rewrite.adopted.files",
        "files of a dead attempt that a later one committed",
        "counts.adopted_files",
    ),
}
TRASH_FILES = _gauge(
    "iceberg_maint.trash.files",
    "orphan files in the trash, and those that wait for approval",
    "BatchOutcome.retained",
    "state",
)
TRASH_BYTES = _gauge(
    "iceberg_maint.trash.size", "bytes of those files", "BatchOutcome.retained", "state", unit=Unit.BYTES
)

OBSERVED = _gauge(
    "iceberg_maint.table.observed", "when the table was last measured", "observation", unit=Unit.EPOCH
)
FILES_BY_SIZE = _gauge(
    "iceberg_maint.table.data_files_by_size",
    "live data files by size; `below_mib` is the upper edge of the bin",
    "size_histogram",
    "below_mib",
)
DUE_PARTITIONS = _gauge(
    "iceberg_maint.due.partitions",
    "partitions that the next run would maintain",
    "Decision.due()",
    "operation",
)
BACKLOG_BYTES = _gauge(
    "iceberg_maint.backlog",
    "bytes that due and delayed partitions have to rewrite",
    "Decision.backlog()",
    "operation",
    unit=Unit.BYTES,
)
QUARANTINED = _gauge(
    "iceberg_maint.quarantined.partitions",
    "partitions in quarantine",
    "TableHistory.partitions",
    "operation",
)
UNKNOWN_COMMITS = _gauge(
    "iceberg_maint.commit.unknown",
    "commits that are neither confirmed nor refuted",
    "TableHistory.unknown_commits",
    "operation",
)

TELEMETRY_DROPPED = Series(
    "iceberg_maint.telemetry.dropped",
    Kind.COUNTER,
    Unit.COUNT,
    ("exporter",),
    "samples that this receiver did not get, because it was down or its queue was full",
    "the exporter itself",
)

_ALIASES = {
    "data_files": "table_summary_data_files (Amoro)",
    "data_bytes": "table_summary_data_files_size (Amoro)",
    "records": "table_summary_data_files_records (Amoro)",
    "position_delete_files": "table_summary_position_delete_files (Amoro)",
    "position_delete_bytes": "table_summary_position_delete_files_size (Amoro)",
    "position_delete_records": "table_summary_position_delete_files_records (Amoro)",
    "equality_delete_files": "table_summary_equality_delete_files (Amoro)",
    "equality_delete_bytes": "table_summary_equality_delete_files_size (Amoro)",
    "equality_delete_records": "table_summary_equality_delete_files_records (Amoro)",
    "dangling_delete_files": "table_summary_dangling_delete_files (Amoro)",
    "snapshots": "table_summary_snapshots (Amoro)",
}


def _health_series() -> dict[str, Series]:
    docs = {f.name: str(f.metadata["doc"]) for f in fields(PartitionHealth)} | DERIVED_METRICS
    docs |= {f.name: str(f.metadata["doc"]) for f in fields(TableHealth)}
    return {name: _health_of(name, doc) for name, doc in docs.items() if name not in _NOT_REPORTED}


def _health_of(metric: str, doc: str) -> Series:
    name, unit = metric, Unit.COUNT
    if metric.endswith("_ms"):
        name, unit, doc = metric.removesuffix("_ms"), Unit.EPOCH, doc.replace(", ms since epoch", "")
    elif metric.endswith("bytes"):
        unit = Unit.BYTES
    elif metric.endswith("_ratio"):
        unit = Unit.RATIO
    return _gauge(f"iceberg_maint.table.{name}", doc, metric, unit=unit, alias=_ALIASES.get(metric, ""))


HEALTH: dict[str, Series] = _health_series()
"""The series of each reported metric of health, by the metric. Of partitions they have the table's sums and
extremes."""

CATALOGUE: tuple[Series, ...] = (
    OPERATIONS,
    OPERATION_DURATION,
    OPERATION_ENDED,
    PARTITIONS,
    BATCHES,
    INPUT_FILES,
    INPUT_BYTES,
    OUTPUT_FILES,
    OUTPUT_BYTES,
    SKIPPED_FILES,
    SKIPPED_BYTES,
    DELETE_FILES_REMOVED,
    CATALOG_CALLS,
    COMMIT_ATTEMPTS,
    COMMIT_CONFLICTS,
    WASTED_BYTES,
    PROOFS,
    PROOF_ROWS,
    MEMORY_ESTIMATED,
    MEMORY_PEAK,
    LAYOUT_DEPTH,
    *COUNTS.values(),
    TRASH_FILES,
    TRASH_BYTES,
    OBSERVED,
    FILES_BY_SIZE,
    DUE_PARTITIONS,
    BACKLOG_BYTES,
    QUARANTINED,
    UNKNOWN_COMMITS,
    *HEALTH.values(),
    TELEMETRY_DROPPED,
)
"""Every series."""
