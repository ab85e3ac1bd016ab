"""Health: measurements of one pinned snapshot, per partition and per table. No opinions.

The field names are the closed list of health metrics, used as they stand in JSON, metrics,
Dagster metadata and documentation.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields

from iceberg_maint.core.ids import TableId

MEBIBYTE = 1024 * 1024
SIZE_EDGES_BYTES: tuple[int, ...] = tuple(m * MEBIBYTE for m in (1, 4, 16, 64, 128, 256, 512, 1024))
"""Upper bounds, exclusive, of the size histogram's first eight bins; the ninth is open."""


def _metric(doc: str, default: object = 0) -> int:
    return field(default=default, metadata={"doc": doc})  # type: ignore[return-value, call-overload, no-any-return]


@dataclass(frozen=True, slots=True)
class SizeLimits:
    """Bounds that make a data file small (below) or large (above); bytes."""

    small_below_bytes: int
    large_above_bytes: int


@dataclass(frozen=True, slots=True)
class PartitionHealth:
    """Live files of one partition (all specs whose key it is)."""

    data_files: int = _metric("live data files")
    data_bytes: int = _metric("bytes of live data files")
    records: int = _metric("rows in live data files, deletes not subtracted")
    small_files: int = _metric("data files below the small-file size")
    small_bytes: int = _metric("bytes of those small files")
    large_files: int = _metric("data files above the large-file size")
    position_delete_files: int = _metric("live position delete files (deletion vectors apart)")
    position_delete_records: int = _metric("rows in position delete files")
    position_delete_bytes: int = _metric("bytes of position delete files")
    deletion_vectors: int = _metric("live deletion vectors")
    deletion_vector_records: int = _metric("rows marked by deletion vectors")
    deletion_vector_bytes: int = _metric("bytes of the deletion vectors themselves")
    equality_delete_files: int = _metric("live equality delete files stored in this partition")
    equality_delete_records: int = _metric("rows in equality delete files")
    equality_delete_bytes: int = _metric("bytes of equality delete files")
    applicable_equality_delete_files: int = _metric(
        "equality delete files, global ones included, newer than the partition's oldest data file"
    )
    dangling_delete_files: int = _metric("delete files that can apply to no live data file")
    min_data_sequence_number: int = _metric("lowest data sequence number of a live data file")
    max_data_sequence_number: int = _metric("highest data sequence number of any live file")
    spec_ids: tuple[int, ...] = field(
        default=(), metadata={"doc": "partition specs of the live files"}
    )
    size_histogram: tuple[int, ...] = field(
        default=(0,) * 9,
        metadata={"doc": "data files by size; bin edges 1, 4, 16, 64, 128, 256, 512, 1024 MiB"},
    )
    last_change_ms: int | None = field(
        default=None,
        metadata={"doc": "commit time of the newest live file, ms since epoch; null once expired"},
    )
    oldest_equality_delete_ms: int | None = field(
        default=None,
        metadata={
            "doc": "commit time of the oldest applicable equality delete, ms since epoch; "
            "the oldest retained snapshot's time once expired"
        },
    )

    @property
    def delete_ratio(self) -> float:
        """Rows marked by position deletes and deletion vectors, per row."""
        marked = self.position_delete_records + self.deletion_vector_records
        return marked / self.records if self.records else 0.0

    @property
    def average_file_bytes(self) -> float:
        """Mean size of a data file."""
        return self.data_bytes / self.data_files if self.data_files else 0.0

    @property
    def delete_files(self) -> int:
        """Position delete files, deletion vectors and equality delete files."""
        return self.position_delete_files + self.deletion_vectors + self.equality_delete_files


@dataclass(frozen=True, slots=True)
class TableHealth:
    """Table-wide measurements beside the per-partition ones."""

    partitions: int = _metric("partitions with live files")
    snapshots: int = _metric("retained snapshots")
    manifests: int = _metric("manifests of the current snapshot")
    delete_manifests: int = _metric("of those, manifests of delete files")
    manifest_bytes: int = _metric("bytes of those manifests")
    metadata_bytes: int = _metric("bytes of the table metadata file")
    refs: int = _metric("branches and tags")
    live_specs: int = _metric("partition specs with live files")
    oldest_snapshot_ms: int | None = field(
        default=None, metadata={"doc": "time of the oldest retained snapshot, ms since epoch"}
    )
    last_change_ms: int | None = field(
        default=None, metadata={"doc": "time of the current snapshot, ms since epoch"}
    )


@dataclass(frozen=True, slots=True)
class Measured:
    """Everything measured at one snapshot of one table. `partitions` maps key → health.

    `format_version` and `maintenance_properties` (the table properties `maintenance.*`) are what
    a later decision needs besides, so that it can be taken without the catalog.
    """

    table: TableId
    table_uuid: str
    snapshot_id: int | None
    sequence_number: int
    metadata_location: str
    table_health: TableHealth
    partitions: Mapping[str, PartitionHealth]
    target_file_size_bytes: int
    format_version: int = 2
    maintenance_properties: Mapping[str, str] = field(default_factory=dict)

    def total(self) -> PartitionHealth:
        """The partitions' counts added up; times and sequence numbers are extremes."""
        return total(self.partitions.values())


def total(parts: object) -> PartitionHealth:
    """Sums measurements; histogram bin by bin; extremes for times and sequence numbers."""
    items: list[PartitionHealth] = list(parts)  # type: ignore[call-overload]
    sums: dict[str, object] = {}
    for f in fields(PartitionHealth):
        values = [getattr(p, f.name) for p in items]
        if f.name == "spec_ids":
            sums[f.name] = tuple(sorted({i for v in values for i in v}))
        elif f.name == "size_histogram":
            sums[f.name] = tuple(sum(v[i] for v in values) for i in range(9))
        elif f.name in ("last_change_ms", "max_data_sequence_number"):
            sums[f.name] = max((v for v in values if v is not None), default=None)
        elif f.name in ("oldest_equality_delete_ms", "min_data_sequence_number"):
            sums[f.name] = min((v for v in values if v is not None), default=None)
        else:
            sums[f.name] = sum(values)
    for name in ("max_data_sequence_number", "min_data_sequence_number"):
        sums[name] = sums[name] or 0
    return PartitionHealth(**sums)  # type: ignore[arg-type]


DERIVED_METRICS: dict[str, str] = {
    "delete_ratio": "rows marked by position deletes and deletion vectors, per row",
    "average_file_bytes": "mean size of a data file",
    "delete_files": "position delete files, deletion vectors and equality delete files",
}


def partition_metrics(health: PartitionHealth) -> dict[str, object]:
    """All partition metrics by name, derived ones included."""
    measured = {f.name: getattr(health, f.name) for f in fields(PartitionHealth)}
    return measured | {name: getattr(health, name) for name in DERIVED_METRICS}


def table_metrics(health: TableHealth) -> dict[str, object]:
    """All table metrics by name."""
    return {f.name: getattr(health, f.name) for f in fields(TableHealth)}


def metric_docs() -> dict[str, str]:
    """Every health metric and what it measures."""
    docs = {f.name: str(f.metadata["doc"]) for f in fields(PartitionHealth)}
    docs |= DERIVED_METRICS
    docs |= {f.name: str(f.metadata["doc"]) for f in fields(TableHealth)}
    return docs
