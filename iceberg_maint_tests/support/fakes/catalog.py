"""A catalog in memory, made of core values. It measures file by file, as the metrics are defined. The
column-wise measurement is tested against it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any

from iceberg_maint.core.commits.change import LiveEntry
from iceberg_maint.core.health.metrics import (
    SIZE_EDGES_BYTES,
    Measured,
    PartitionHealth,
    SizeLimits,
    measured_of,
)
from iceberg_maint.core.health.thresholds import size_limits, target_file_size_bytes
from iceberg_maint.core.model.ids import PartitionKey, TableId
from iceberg_maint.core.model.partition_key import PartitionSpec
from iceberg_maint.core.model.table_state import (
    ChangedFiles,
    FileKind,
    LiveFile,
    Manifest,
    Ref,
    Snapshot,
    TableState,
)
from iceberg_maint.core.policy.data import RewriteDataFilesPolicy
from iceberg_maint.errors import ConfigurationError, UnknownTableError, UnreadableTableError
from iceberg_maint.machine.bounded_calls import CallLimits

UNPARTITIONED = PartitionSpec(0, ())
_LOGGED = 100
"""Iceberg's default of `write.metadata.previous-versions-max`."""
_BINS = tuple(pairwise((0, *SIZE_EDGES_BYTES, 1 << 63)))


@dataclass(frozen=True, slots=True)
class FakeTable:
    """One table. `commit_ms` maps file paths to their commit times, for files whose sequence number does
    not identify their snapshot. `retained_paths` are data files of older snapshots."""

    state: TableState
    live_files: tuple[LiveFile, ...]
    commit_ms: Mapping[str, int] = field(default_factory=dict)
    retained_paths: frozenset[str] = frozenset()


class FakeCatalog:
    """The catalog port over `tables`, which a test may change at any time. With `unreachable` every call
    fails like that of an unreachable catalog."""

    checks_commit_base = True
    asks_each_table = False
    cycle_limits: CallLimits | None = None

    def __init__(self, name: str, tables: Iterable[FakeTable] = ()) -> None:
        self.name = name
        self.content: dict[TableId, FakeTable] = {}
        self.unreachable = False
        self._written: dict[str, tuple[TableState, tuple[str, ...]]] = {}
        self._files: dict[tuple[str, int], tuple[LiveFile, ...]] = {}
        for table in tables:
            self.put(table)

    def put(self, table: FakeTable) -> None:
        """Adds or replaces a table."""
        state, before = table.state, self.content.get(table.state.table)
        log: tuple[str, ...] = ()
        if before is not None and before.state.uuid == state.uuid:
            former = before.state.metadata_location
            log = self._written[former][1]
            log = log if former == state.metadata_location else (*log, former)[-_LOGGED:]
        self._written[state.metadata_location] = state, log
        if state.snapshot is not None:
            self._files[state.uuid, state.snapshot.snapshot_id] = table.live_files
        self.content[state.table] = table

    def tables(self) -> tuple[TableId, ...]:
        return tuple(sorted(self._reached()))

    def pointers(self, tables: Collection[TableId]) -> Mapping[TableId, str]:
        content = self._reached()
        return {t: content[t].state.metadata_location for t in tables if t in content}

    def pin(self, table: TableId, known: TableState | None = None) -> TableState:
        return self._table(table).state

    def metadata_document(self, table: TableId, location: str) -> Mapping[str, Any]:
        if location not in self._written:
            raise UnreadableTableError("ICM-101", f"{table}: metadata file {location} is missing.")
        return document_of(*self._written[location])

    def measure(self, state: TableState, policy: RewriteDataFilesPolicy) -> Measured:
        table = self._table(state.table)
        return measure_files(replace(table, state=replace(table.state, order=state.order)), policy)

    def manifests(self, state: TableState, snapshot: Snapshot) -> tuple[Manifest, ...]:
        files = self._files.get((state.uuid, snapshot.snapshot_id))
        if files is None:
            raise UnreadableTableError("ICM-101", f"{state.table}: {snapshot.manifest_list} is missing.")
        return tuple(
            Manifest(
                f"{state.uuid}/{snapshot.snapshot_id}/{spec_id}/{is_deletes}",
                *(1, is_deletes, spec_id, snapshot.sequence_number, 0, snapshot.snapshot_id),
                *(len(files), 0, 0, None, None),
            )
            for spec_id in state.specs
            for is_deletes in (False, True)
        )

    def live_entries(self, state: TableState, manifest: Manifest) -> list[LiveEntry]:
        return [
            LiveEntry(
                *(f.path, f.content_offset, f.kind, (f.partition,), f.data_sequence_number),
                *(f.file_sequence_number, 0, f.first_row_id, f.record_count, f.size_bytes),
                *(f.referenced_data_file, f.equality_ids or None, f.file_format.upper()),
            )
            for f in self._files[state.uuid, manifest.added_snapshot_id]
            if (f.kind is not FileKind.DATA, f.spec_id) == (manifest.is_deletes, manifest.spec_id)
        ]

    def live_files(self, state: TableState, partitions: Collection[PartitionKey]) -> tuple[LiveFile, ...]:
        return tuple(
            f
            for f in self._table(state.table).live_files
            if f.partition in partitions or _is_global(state, f)
        )

    def changed_files(
        self, state: TableState, since: int, partitions: Collection[PartitionKey]
    ) -> ChangedFiles | None:
        earlier = self._files.get((state.uuid, since))
        if earlier is None:
            return None
        kept = set(earlier).intersection(self._table(state.table).live_files)
        now = self.live_files(state, partitions)
        before = (f for f in earlier if f.partition in partitions or _is_global(state, f))
        return ChangedFiles(tuple(f for f in before if f not in kept), tuple(f for f in now if f not in kept))

    def find_live(
        self, state: TableState, paths: Collection[str], *, deletes: bool = False, since: int | None = None
    ) -> frozenset[str]:
        del since  # all paths are in memory
        table = self._table(state.table)
        live = {f.path for f in table.live_files if (f.kind is not FileKind.DATA) is deletes}
        return frozenset(paths) & (live | table.retained_paths)

    def _reached(self) -> Mapping[TableId, FakeTable]:
        if self.unreachable:
            raise ConfigurationError("ICM-104", f"catalog '{self.name}' cannot be reached.", "start it.")
        return self.content

    def _table(self, table: TableId) -> FakeTable:
        known_table = self._reached().get(table)
        if known_table is None:
            raise UnknownTableError("ICM-126", f'"{table}" is not a table of catalog {self.name}.')
        return known_table


def document_of(state: TableState, log: Iterable[str] = ()) -> dict[str, Any]:
    """Returns the part of the table metadata that expiry reads. `log` holds the earlier metadata
    locations, oldest first."""
    return {
        "table-uuid": state.uuid,
        "properties": dict(state.properties),
        "snapshots": [
            {"snapshot-id": s.snapshot_id, "parent-snapshot-id": s.parent_id} for s in state.snapshots
        ],
        "refs": {r.name: {"snapshot-id": r.snapshot_id, "type": r.kind} for r in state.refs},
        "metadata-log": [{"metadata-file": location} for location in log],
    }


def fake_table(
    name: str,
    files: Iterable[LiveFile],
    *,
    specs: Iterable[PartitionSpec] = (UNPARTITIONED,),
    properties: Mapping[str, str] | None = None,
    format_version: int = 2,
    key_types: Mapping[int, str] | None = None,
    now_ms: int = 1_700_000_000_000,
) -> FakeTable:
    """Returns a table of these files with one snapshot per sequence number, one second apart, the last at
    `now_ms`. `key_types` gives its columns as types by field id; by default there is one column, a long."""
    live = tuple(files)
    table = TableId.parse(name)
    numbers = sorted({f.data_sequence_number for f in live})
    snapshots = tuple(
        Snapshot(
            snapshot_id=1000 + number,
            parent_id=1000 + numbers[index - 1] if index else None,
            sequence_number=number,
            timestamp_ms=now_ms - 1000 * (len(numbers) - 1 - index),
            operation="append",
            summary={},
            manifest_list=f"file:///{name}/snap-{1000 + number}.avro",
        )
        for index, number in enumerate(numbers)
    )
    by_id = {s.spec_id: s for s in specs}
    state = TableState(
        table=table,
        uuid=f"uuid-of-{name}",
        location=f"file:///{name}",
        format_version=format_version,
        metadata_location=f"file:///{name}/v{len(numbers)}.metadata.json",
        metadata_bytes=1000,
        last_updated_ms=now_ms,
        last_sequence_number=max(numbers, default=0),
        schema_id=0,
        current_spec_id=max(by_id),
        specs=by_id,
        sort_order_id=0,
        properties=dict(properties or {}),
        refs=(Ref("main", "branch", snapshots[-1].snapshot_id),) if snapshots else (),
        snapshot=snapshots[-1] if snapshots else None,
        snapshots=snapshots,
        manifests=(),
        key_types={1: "long"} if key_types is None else key_types,
    )
    return FakeTable(state, live)


def measure_files(table: FakeTable, policy: RewriteDataFilesPolicy) -> Measured:
    """Measures health by going through the files one by one."""
    state = table.state
    target = target_file_size_bytes(policy, dict(state.properties))
    limits = size_limits(policy, target)
    by_key: dict[PartitionKey, list[LiveFile]] = defaultdict(list)
    for file in table.live_files:
        by_key[file.partition].append(file)
    partitions = {key: _partition(table, by_key[key], limits) for key in sorted(by_key)}
    measured = measured_of(state, target, partitions)
    losing = {f.spec_id for f in table.live_files if state.specs[f.spec_id].loses_values}
    return replace(measured, specs_losing_values=tuple(sorted(losing)))


def _partition(table: FakeTable, files: list[LiveFile], limits: SizeLimits) -> PartitionHealth:
    state = table.state
    data = [f for f in files if f.kind is FileKind.DATA]
    small = [f for f in data if f.size_bytes < limits.small_below_bytes]
    applicable = [d for d in _equality_deletes(table) if _applies_to_any(state, d, data)]
    times = [_commit_ms(table, f) for f in files]
    dangling = [f for f in files if _dangles(table, f)]
    unused = [d for d in dangling if d.kind is FileKind.EQUALITY_DELETES]
    positional = [f for f in files if f.kind is FileKind.POSITION_DELETES and f not in dangling]
    referenced = {f.referenced_data_file for f in positional} - {None}
    health = PartitionHealth(
        data_files=len(data),
        data_bytes=sum(f.size_bytes for f in data),
        records=sum(f.record_count for f in data),
        small_files=len(small),
        small_bytes=sum(f.size_bytes for f in small),
        large_files=sum(f.size_bytes > limits.large_above_bytes for f in data),
        applicable_equality_delete_files=len(applicable),
        dangling_delete_files=len(dangling),
        dangling_equality_delete_files=len(unused),
        dangling_position_delete_records=sum(
            d.record_count for d in dangling if d.kind is not FileKind.EQUALITY_DELETES
        ),
        mergeable_delete_files=len(positional) - len(referenced),
        **_layout(table.state, data),
        min_data_sequence_number=min((f.data_sequence_number for f in data), default=0),
        max_data_sequence_number=max(f.data_sequence_number for f in files),
        spec_ids=tuple(sorted({f.spec_id for f in files})),
        size_histogram=tuple(sum(low <= f.size_bytes < high for f in data) for low, high in _BINS),
        last_change_ms=max((t for t in times if t is not None), default=None),
        oldest_equality_delete_ms=_oldest_ms(table, applicable),
        oldest_dangling_equality_delete_ms=_oldest_ms(table, unused),
    )
    for kind, count, name in (
        (FileKind.POSITION_DELETES, "position_delete_files", "position_delete"),
        (FileKind.DELETION_VECTOR, "deletion_vectors", "deletion_vector"),
        (FileKind.EQUALITY_DELETES, "equality_delete_files", "equality_delete"),
    ):
        of_kind = [f for f in files if f.kind is kind]
        counts: dict[str, int] = {
            count: len(of_kind),
            f"{name}_records": sum(f.record_count for f in of_kind),
            f"{name}_bytes": sum(f.size_bytes for f in of_kind),
        }
        health = replace(health, **counts)  # type: ignore[arg-type]
    return health


def _equality_deletes(table: FakeTable) -> Iterator[LiveFile]:
    return (f for f in table.live_files if f.kind is FileKind.EQUALITY_DELETES)


def _is_global(state: TableState, file: LiveFile) -> bool:
    return file.kind is FileKind.EQUALITY_DELETES and state.specs[file.spec_id].is_unpartitioned


def _applies_to_any(state: TableState, delete: LiveFile, data: Iterable[LiveFile]) -> bool:
    return any(_applies(state, delete, f) for f in data)


def _layout(state: TableState, data: list[LiveFile]) -> dict[str, int]:
    if state.order is None:
        return {}
    sort_order_id = state.order.sort_order_id
    bounded: list[Any] = [f.ranges for f in data if None not in f.ranges]
    depths = [
        1
        + sum(k != index and o[column][0] <= ranges[column][0] < o[column][1] for k, o in enumerate(bounded))
        for index, ranges in enumerate(bounded)
        for column in range(len(ranges))
    ]
    return {
        "unsorted_files": sum(bool(sort_order_id) and (f.sort_order_id or 0) != sort_order_id for f in data),
        "unbounded_files": len(data) - len(bounded),
        "sort_ranges": len(depths),
        "overlap_depth_sum": sum(depths),
        "max_overlap_depth": max(depths, default=0),
    }


def _applies(state: TableState, delete: LiveFile, data: LiveFile) -> bool:
    """Returns whether one delete file applies to one data file, by the spec's rule ("Scan Planning")."""
    same_scope = (delete.spec_id, delete.partition) == (data.spec_id, data.partition)
    if delete.kind is FileKind.EQUALITY_DELETES:
        in_scope = same_scope or _is_global(state, delete)
        return in_scope and data.data_sequence_number < delete.data_sequence_number
    if delete.referenced_data_file not in (None, data.path):
        return False
    return same_scope and data.data_sequence_number <= delete.data_sequence_number


def _dangles(table: FakeTable, file: LiveFile) -> bool:
    if file.kind is FileKind.DATA:
        return False
    data = [f for f in table.live_files if f.kind is FileKind.DATA]
    if file.kind is FileKind.POSITION_DELETES and file.referenced_data_file is None:
        # The delete can name only files that existed when it was committed.
        data = [f for f in data if (f.file_sequence_number or 0) <= file.data_sequence_number]
    return not _applies_to_any(table.state, file, data)


def _oldest_ms(table: FakeTable, deletes: Iterable[LiveFile]) -> int | None:
    oldest_retained_ms = min((s.timestamp_ms for s in table.state.snapshots), default=0)
    times = (_commit_ms(table, d) for d in deletes)
    return min((oldest_retained_ms if t is None else t for t in times), default=None)


def _commit_ms(table: FakeTable, file: LiveFile) -> int | None:
    by_number = {s.sequence_number: s.timestamp_ms for s in table.state.snapshots}
    return table.commit_ms.get(file.path, by_number.get(file.data_sequence_number))
