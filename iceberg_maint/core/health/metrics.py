"""Health: measurements of one pinned snapshot, per partition and per table. No opinions.

The field names are the closed list of health metrics, used as they stand in JSON, metrics,
Dagster metadata and documentation.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields
from typing import Any

from iceberg_maint.core.model.foreign_commits import ForeignCommit
from iceberg_maint.core.model.ids import TableId

MEBIBYTE = 1024 * 1024
SIZE_EDGES_BYTES: tuple[int, ...] = tuple(m * MEBIBYTE for m in (1, 4, 16, 64, 128, 256, 512, 1024))
"""Upper bounds, exclusive, of the size histogram's first eight bins; the ninth is open."""
_BINS = len(SIZE_EDGES_BYTES) + 1


def _metric(doc: str, default: object = 0) -> Any:
    return field(default=default, metadata={"doc": doc})


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
    dangling_delete_files: int = _metric(
        "delete files that can delete no row: they apply to no live data file, or are position deletes "
        "older than every one there"
    )
    dangling_equality_delete_files: int = _metric("of those, equality delete files")
    dangling_position_delete_records: int = _metric(
        "rows in those that are position delete files or deletion vectors"
    )
    mergeable_delete_files: int = _metric(
        "of the other position delete files, those beyond one per data file they name; ones that may "
        "name several all count"
    )
    unsorted_files: int = _metric("data files not known to be in the table's sort order")
    unbounded_files: int = _metric("data files without bounds of the columns to sort by")
    sort_ranges: int = _metric("ranges of the columns to sort by: of each data file, one per column")
    overlap_depth_sum: int = _metric("sum of the overlap depths of these ranges")
    max_overlap_depth: int = _metric("greatest of the overlap depths")
    min_data_sequence_number: int = _metric("lowest data sequence number of a live data file")
    max_data_sequence_number: int = _metric("highest data sequence number of any live file")
    spec_ids: tuple[int, ...] = _metric("partition specs of the live files", ())
    size_histogram: tuple[int, ...] = _metric(
        "data files by size; bin edges 1, 4, 16, 64, 128, 256, 512, 1024 MiB", (0,) * _BINS
    )
    last_change_ms: int | None = _metric(
        "commit time of the newest live file, ms since epoch; null once expired", None
    )
    oldest_equality_delete_ms: int | None = _metric(
        "commit time of the oldest applicable equality delete, ms since epoch; "
        "the oldest retained snapshot's time once expired",
        None,
    )
    oldest_dangling_equality_delete_ms: int | None = _metric(
        "commit time of the oldest dangling equality delete, ms since epoch; "
        "the oldest retained snapshot's time once expired",
        None,
    )

    @property
    def delete_ratio(self) -> float:
        """Rows marked by position deletes and deletion vectors, per row; dangling ones mark none."""
        marked = self.position_delete_records + self.deletion_vector_records
        marked -= self.dangling_position_delete_records
        return marked / self.records if self.records else 0.0

    @property
    def dangling_position_delete_files(self) -> int:
        """Dangling position delete files and deletion vectors."""
        return self.dangling_delete_files - self.dangling_equality_delete_files

    @property
    def average_file_bytes(self) -> float:
        """Mean size of a data file."""
        return self.data_bytes / self.data_files if self.data_files else 0.0

    @property
    def overlap_depth(self) -> float:
        """Files whose range holds the start of a file's range, itself included, on average."""
        return self.overlap_depth_sum / self.sort_ranges if self.sort_ranges else 0.0

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
    oldest_snapshot_ms: int | None = _metric("time of the oldest retained snapshot, ms since epoch", None)
    last_change_ms: int | None = _metric("time of the current snapshot, ms since epoch", None)


@dataclass(frozen=True, slots=True)
class Measured:
    """Everything measured at one snapshot of one table. `partitions` maps key → health.

    `format_version` and `maintenance_properties` (the table properties `maintenance.*`) are what
    a later decision needs besides, so that it can be taken without the catalog; so are `foreign`, the
    maintenance in the table's history that is not ours, and `TableState.specs_losing_values`.
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
    foreign: tuple[ForeignCommit, ...] = ()
    specs_losing_values: tuple[int, ...] = ()

    def total(self) -> PartitionHealth:
        """The partitions' counts added up; times and sequence numbers are extremes."""
        return total(self.partitions.values())


def total(parts: Iterable[PartitionHealth]) -> PartitionHealth:
    """Sums measurements; histogram bin by bin; extremes for times and sequence numbers."""
    items = tuple(parts)

    def known(name: str) -> list[int]:
        return [v for v in (getattr(p, name) for p in items) if v is not None]

    apart: dict[str, Any] = {
        "spec_ids": tuple(sorted({i for p in items for i in p.spec_ids})),
        "size_histogram": tuple(sum(p.size_histogram[i] for p in items) for i in range(_BINS)),
        "last_change_ms": max(known("last_change_ms"), default=None),
        "max_data_sequence_number": max(known("max_data_sequence_number"), default=0),
        "max_overlap_depth": max(known("max_overlap_depth"), default=0),
        "min_data_sequence_number": min(
            (p.min_data_sequence_number for p in items if p.data_files), default=0
        ),
        "oldest_equality_delete_ms": min(known("oldest_equality_delete_ms"), default=None),
        "oldest_dangling_equality_delete_ms": min(known("oldest_dangling_equality_delete_ms"), default=None),
    }
    sums: dict[str, Any] = {
        f.name: sum(known(f.name)) for f in fields(PartitionHealth) if f.name not in apart
    }
    return PartitionHealth(**sums, **apart)


DERIVED_METRICS: dict[str, str] = {
    "delete_ratio": "rows marked by position deletes and deletion vectors that do not dangle, per row",
    "average_file_bytes": "mean size of a data file",
    "delete_files": "position delete files, deletion vectors and equality delete files",
    "dangling_position_delete_files": "dangling position delete files and deletion vectors",
    "overlap_depth": "files whose range of a column to sort by holds the start of a file's, itself "
    "included, on average; 1 is sorted",
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
