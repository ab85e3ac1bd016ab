"""Health: measurements of one pinned snapshot, per partition and per table, without judgement."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields
from typing import Any

from iceberg_maint.core.health.state_facts import WriterChange
from iceberg_maint.core.model.columns import wrong_property
from iceberg_maint.core.model.ids import PartitionKey, TableId
from iceberg_maint.core.model.other_writers import ForeignCommit, PendingPublish, pending_publishes
from iceberg_maint.core.model.table_state import TableState

MAINTENANCE_PREFIX = "maintenance."
"""Begins the names of the table properties that set the table's policy."""

MEBIBYTE = 1024 * 1024
SIZE_EDGES_BYTES: tuple[int, ...] = tuple(m * MEBIBYTE for m in (1, 4, 16, 64, 128, 256, 512, 1024))
"""Upper bounds, exclusive, of the first eight bins of the size histogram. The ninth bin is open."""
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
    """Measurements of the live files of one partition, over all specs that have its key."""

    data_files: int = _metric("live data files")
    data_bytes: int = _metric("bytes of live data files")
    records: int = _metric("rows in live data files, deletes not subtracted")
    small_files: int = _metric("data files below the small-file size")
    small_bytes: int = _metric("bytes of those small files")
    large_files: int = _metric("data files above the large-file size")
    position_delete_files: int = _metric("live position delete files (without deletion vectors)")
    position_delete_records: int = _metric("rows in position delete files")
    position_delete_bytes: int = _metric("bytes of position delete files")
    deletion_vectors: int = _metric("live deletion vectors")
    deletion_vector_records: int = _metric("rows deleted by deletion vectors")
    deletion_vector_bytes: int = _metric("bytes of the deletion vectors themselves")
    equality_delete_files: int = _metric("live equality delete files stored in this partition")
    equality_delete_records: int = _metric("rows in equality delete files")
    equality_delete_bytes: int = _metric("bytes of equality delete files")
    applicable_equality_delete_files: int = _metric(
        "equality delete files, global ones included, newer than the partition's oldest data file"
    )
    dangling_delete_files: int = _metric(
        "delete files that can delete no row: they apply to no live data file, or are position deletes "
        "older than every live data file of the partition"
    )
    dangling_equality_delete_files: int = _metric("of those, equality delete files")
    dangling_position_delete_records: int = _metric(
        "rows in those that are position delete files or deletion vectors"
    )
    mergeable_delete_files: int = _metric(
        "of the other position delete files, those beyond one per data file they name; files that may "
        "name several data files all count"
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
        "number of data files by size; bin edges 1, 4, 16, 64, 128, 256, 512, 1024 MiB", (0,) * _BINS
    )
    last_change_ms: int | None = _metric(
        "commit time of the newest live file, ms since epoch; null if that snapshot has expired", None
    )
    oldest_equality_delete_ms: int | None = _metric(
        "commit time of the oldest applicable equality delete, ms since epoch; "
        "the oldest retained snapshot's time if that snapshot has expired",
        None,
    )
    oldest_dangling_equality_delete_ms: int | None = _metric(
        "commit time of the oldest dangling equality delete, ms since epoch; "
        "the oldest retained snapshot's time if that snapshot has expired",
        None,
    )

    @property
    def delete_ratio(self) -> float:
        """Rows deleted by position deletes and deletion vectors, per row. Dangling deletes delete no row."""
        deleted = self.position_delete_records + self.deletion_vector_records
        deleted -= self.dangling_position_delete_records
        return deleted / self.records if self.records else 0.0

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
        """Average number of files whose range contains the start of a file's range, itself included."""
        return self.overlap_depth_sum / self.sort_ranges if self.sort_ranges else 0.0

    @property
    def delete_files(self) -> int:
        """Position delete files, deletion vectors and equality delete files."""
        return self.position_delete_files + self.deletion_vectors + self.equality_delete_files


@dataclass(frozen=True, slots=True)
class TableHealth:
    """Measurements of the table as a whole."""

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
    """All measurements of one table at one snapshot. `partitions` maps key → health.

    A later decision can be made from these values without the catalog. It also needs `format_version`,
    `maintenance_properties` (the table properties `maintenance.*`), `foreign` (maintenance by other tools
    in the table's history), `TableState.specs_losing_values`, `pending_publishes` (branches and staged snapshots
    that a commit to main would keep from being published), `TableState.uncommon_types` and `wrong_property` (the table property
    that no Parquet writer takes, as a sentence). `writer_changes` are commits with which a writer began to write small files.

    `basis` is a digest of what the numbers depend on beside the metadata: the policy and the version of the
    measurement. It is empty if the numbers must not stand for a later measurement.
    """

    table: TableId
    table_uuid: str
    snapshot_id: int | None
    sequence_number: int
    metadata_location: str
    table_health: TableHealth
    partitions: Mapping[PartitionKey, PartitionHealth]
    target_file_size_bytes: int
    format_version: int = 2
    maintenance_properties: Mapping[str, str] = field(default_factory=dict)
    foreign: tuple[ForeignCommit, ...] = ()
    specs_losing_values: tuple[int, ...] = ()
    pending_publishes: tuple[PendingPublish, ...] = ()
    uncommon_types: Mapping[str, str] = field(default_factory=dict)
    wrong_property: str = ""
    writer_changes: tuple[WriterChange, ...] = ()
    basis: str = ""

    def total(self) -> PartitionHealth:
        """Returns the sums over the partitions; times and sequence numbers are extremes."""
        return total(self.partitions.values())


def measured_of(
    state: TableState, target_file_size_bytes: int, partitions: Mapping[PartitionKey, PartitionHealth]
) -> Measured:
    """Returns the measurements of a pinned snapshot: those of its partitions, and what the table's state says."""
    table_health = TableHealth(
        partitions=len(partitions),
        snapshots=len(state.snapshots),
        manifests=len(state.manifests),
        delete_manifests=sum(m.is_deletes for m in state.manifests),
        manifest_bytes=sum(m.length_bytes for m in state.manifests),
        metadata_bytes=state.metadata_bytes,
        refs=len(state.refs),
        live_specs=len({spec for p in partitions.values() for spec in p.spec_ids}),
        oldest_snapshot_ms=min((s.timestamp_ms for s in state.snapshots), default=None),
        last_change_ms=state.snapshot.timestamp_ms if state.snapshot else None,
    )
    return Measured(
        table=state.table,
        table_uuid=state.uuid,
        snapshot_id=state.snapshot.snapshot_id if state.snapshot else None,
        sequence_number=state.last_sequence_number,
        metadata_location=state.metadata_location,
        table_health=table_health,
        partitions=partitions,
        target_file_size_bytes=target_file_size_bytes,
        format_version=state.format_version,
        maintenance_properties={
            k: v for k, v in state.properties.items() if k.startswith(MAINTENANCE_PREFIX)
        },
        specs_losing_values=state.specs_losing_values(),
        pending_publishes=pending_publishes(state),
        uncommon_types=state.uncommon_types,
        wrong_property=wrong_property(state.properties),
    )


def total(parts: Iterable[PartitionHealth]) -> PartitionHealth:
    """Adds measurements up: the histogram bin by bin; extremes for times and sequence numbers."""
    items = tuple(parts)

    def known_values(name: str) -> list[int]:
        return [v for v in (getattr(p, name) for p in items) if v is not None]

    combined: dict[str, Any] = {
        "spec_ids": tuple(sorted({i for p in items for i in p.spec_ids})),
        "size_histogram": tuple(sum(p.size_histogram[i] for p in items) for i in range(_BINS)),
        "last_change_ms": max(known_values("last_change_ms"), default=None),
        "max_data_sequence_number": max(known_values("max_data_sequence_number"), default=0),
        "max_overlap_depth": max(known_values("max_overlap_depth"), default=0),
        "min_data_sequence_number": min(
            (p.min_data_sequence_number for p in items if p.data_files), default=0
        ),
        "oldest_equality_delete_ms": min(known_values("oldest_equality_delete_ms"), default=None),
        "oldest_dangling_equality_delete_ms": min(
            known_values("oldest_dangling_equality_delete_ms"), default=None
        ),
    }
    sums: dict[str, Any] = {
        f.name: sum(known_values(f.name)) for f in fields(PartitionHealth) if f.name not in combined
    }
    return PartitionHealth(**sums, **combined)


DERIVED_METRICS: dict[str, str] = {
    "delete_ratio": "rows deleted by position deletes and deletion vectors that do not dangle, per row",
    "average_file_bytes": "mean size of a data file",
    "delete_files": "position delete files, deletion vectors and equality delete files",
    "dangling_position_delete_files": "dangling position delete files and deletion vectors",
    "overlap_depth": "average number of files whose range of a sort column contains the start of a file's "
    "range, itself included; 1 is sorted",
}


def partition_metrics(health: PartitionHealth) -> dict[str, object]:
    """Returns all partition metrics by name, derived ones included."""
    measured = {f.name: getattr(health, f.name) for f in fields(PartitionHealth)}
    return measured | {name: getattr(health, name) for name in DERIVED_METRICS}


def table_metrics(health: TableHealth) -> dict[str, object]:
    """Returns all table metrics by name."""
    return {f.name: getattr(health, f.name) for f in fields(TableHealth)}


def metric_docs() -> dict[str, str]:
    """Returns every health metric with a description of what it measures."""
    docs = {f.name: str(f.metadata["doc"]) for f in fields(PartitionHealth)}
    docs |= DERIVED_METRICS
    docs |= {f.name: str(f.metadata["doc"]) for f in fields(TableHealth)}
    return docs


def day_metrics(measured: Measured) -> dict[str, float]:
    """The metrics of a measurement that the history keeps."""
    parts = measured.partitions.values()
    total = measured.total()
    return {
        "data_files": total.data_files,
        "data_bytes": total.data_bytes,
        "small_files": total.small_files,
        "delete_files": total.delete_files,
        "most_small_files": max((p.small_files for p in parts), default=0),
        "worst_delete_ratio": round(max((p.delete_ratio for p in parts), default=0.0), 6),
        "partitions": measured.table_health.partitions,
        "snapshots": measured.table_health.snapshots,
        "manifests": measured.table_health.manifests,
        "metadata_bytes": measured.table_health.metadata_bytes,
    }
