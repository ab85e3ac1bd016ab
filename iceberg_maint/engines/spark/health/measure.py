"""Measures health from Spark's metadata tables.

It is the second implementation of health, for tables whose manifests do not fit the memory of one process
(`core.health.source`), and the oracle of the first. Spark aggregates the `entries` table to one row per partition and kind. This module computes
health from these rows by the same definitions (`core.health.metrics`).

Partition values are read as stored, so dates beyond Python's calendar and times in any zone have the same keys.
Spark does not distinguish 0.0 from -0.0, nor one NaN from another, and cannot read uuid partitions ("Wrong class,
expected java.lang.CharSequence"). `check_measurable` refuses tables with such partitions.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import reduce
from typing import TYPE_CHECKING, Any

from iceberg_maint.core.health.metrics import SIZE_EDGES_BYTES, Measured, PartitionHealth, measured_of
from iceberg_maint.core.health.state_facts import indistinct_fields
from iceberg_maint.core.health.thresholds import size_limits, target_file_size_bytes
from iceberg_maint.core.model.ids import PartitionKey
from iceberg_maint.core.model.partition_key import encode_partition
from iceberg_maint.core.model.table_state import (
    FileKind,
    LayoutOrder,
    TableState,
    equality_delete_reaches,
    position_delete_reaches,
)
from iceberg_maint.core.policy.data import RewriteDataFilesPolicy
from iceberg_maint.engines.spark.health.entries import (
    METRICS,
    check_entries,
    delete_groups,
    key_spec_id,
    layout_of,
    named_files,
    only_path,
    scopes_and_kinds,
    with_references,
)
from iceberg_maint.engines.spark.jvm.bridge import Bridge, sql_name
from iceberg_maint.errors import RefusedError

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, Row

_DELETED = 2

Scope = tuple[int, PartitionKey]
"""Spec id and partition key. Deletes apply within a scope."""


@dataclass(frozen=True, slots=True)
class _Delete:
    """Delete files of one scope, kind and commit."""

    scope: Scope
    kind: FileKind
    files: int
    sequence_number: int
    snapshot_id: int
    records: int
    shared: bool
    unreferenced: bool


@dataclass(frozen=True, slots=True)
class _Oldest:
    """The lowest data sequence number of a scope's data files, and the lowest sequence number of the commits
    that added them."""

    data: int
    added: int


def check_measurable(bridge: Bridge, state: TableState) -> None:
    """Raises RefusedError ICM-178 for a table or a Spark whose metadata tables do not show it as it is."""
    why = ""
    if bridge.is_spark_3:
        why = "the metadata tables of Spark 3.5 show the newest snapshot only"
    elif fields := indistinct_fields(state):
        why = f"Spark does not read or keep apart the values of partition field {', '.join(fields)}"
    if why:
        raise RefusedError(
            "ICM-178",
            f"{state.table}: Spark cannot measure this table: {why}.",
            "set health.source to manifests, and health.memory to what this process may take.",
        )


class SparkHealthSource:
    """Measures tables with Spark's metadata tables."""

    def __init__(self, bridge: Bridge) -> None:
        self._spark = bridge.spark
        self._bridge = bridge

    def measure(self, state: TableState, policy: RewriteDataFilesPolicy) -> Measured:
        """The health of the pinned snapshot. It equals the result of `PyIcebergCatalog.measure`.

        Raises UnreadableTableError ICM-101 if entries contradict the manifest list, and what Spark raises.
        """
        target = target_file_size_bytes(policy, dict(state.properties))
        limits = size_limits(policy, target)
        partitions: dict[PartitionKey, PartitionHealth] = {}
        if state.snapshot is not None:
            entries = self._entries(state)
            names = [c for c in entries.columns if c.startswith("p_")]
            bounds = (limits.small_below_bytes, limits.large_above_bytes)
            rows = scopes_and_kinds(entries, names, *bounds).collect()
            check_entries(state, [row.asDict() for row in rows])
            groups = {(_scope(state, row), FileKind(row["kind"])): row for row in rows}
            joined = with_references(entries)
            deletes = [_delete(state, row) for row in delete_groups(joined, names).collect()]
            partitions = _partitions(state, groups, deletes, named_files(state, joined, names).collect())
            if state.order is not None:
                layout = self._layout(state, state.order)
                partitions = {key: replace(p, **layout.get(key, {})) for key, p in partitions.items()}
        measured = measured_of(state, target, partitions)
        manifests = self._manifests(state)
        return replace(measured, table_health=replace(measured.table_health, **manifests))

    def _layout(self, state: TableState, order: LayoutOrder) -> dict[PartitionKey, dict[str, Any]]:
        """The layout metrics by partition key. Unpartitioned specs have the same key and count as one spec."""
        from pyspark.sql import functions as F

        entries = self._metadata_table(state, "entries")
        file = F.col("data_file")
        files = entries.where((F.col("status") != _DELETED) & (file["content"] == 0)).select(
            key_spec_id(state, file["spec_id"]).alias("spec_id"),
            *self._partition_columns(state, entries),
            file["sort_order_id"].alias("sort_order_id"),
            "readable_metrics",
        )
        by = [c for c in files.columns if c not in ("sort_order_id", "readable_metrics")]
        rows = layout_of(files, order, by).collect()
        return {_scope(state, row)[1]: {name: row[name] for name in METRICS} for row in rows}

    def _entries(self, state: TableState) -> DataFrame:
        """The live entries as flat rows. The value of partition field 1000 is column `p_1000`."""
        from pyspark.sql import functions as F

        assert state.snapshot is not None
        entries = self._metadata_table(state, "entries").where(F.col("status") != _DELETED)
        file = F.col("data_file")
        puffin = (file["content"] == 1) & (F.upper(file["file_format"]) == "PUFFIN")
        kind = (
            F.when(file["content"] == 0, FileKind.DATA.value)
            .when(puffin, FileKind.DELETION_VECTOR.value)
            .when(file["content"] == 1, FileKind.POSITION_DELETES.value)
            .otherwise(FileKind.EQUALITY_DELETES.value)
        )
        return entries.select(
            kind.alias("kind"),
            file["spec_id"].alias("spec_id"),
            *self._partition_columns(state, entries),
            F.col("snapshot_id"),
            F.coalesce("sequence_number", F.lit(0)).alias("sequence_number"),
            file["file_path"].alias("path"),
            file["record_count"].alias("records"),
            F.when(puffin, file["content_size_in_bytes"])
            .otherwise(file["file_size_in_bytes"])
            .alias("size_bytes"),
            F.greatest("sequence_number", F.coalesce("file_sequence_number", F.lit(0))).alias("added"),
            F.coalesce(file["referenced_data_file"], only_path(file, puffin)).alias("referenced"),
        )

    def _partition_columns(self, state: TableState, entries: DataFrame) -> list[Column]:
        """Every partition field of any spec, by Iceberg's `Partitioning.partitionType`."""
        from pyspark.sql import functions as F
        from pyspark.sql import types as T

        table = self._bridge.load_table(str(state.table))
        union = self._bridge.iceberg.Partitioning.partitionType(table)
        ids = [field.fieldId() for field in self._bridge.iterate(union.fields())]
        if not ids:
            return []
        struct = entries.schema["data_file"].dataType["partition"].dataType  # type: ignore[index]
        columns = []
        for field_id, field in zip(ids, struct.fields, strict=True):
            value = F.col("data_file.partition").getField(field.name)
            if isinstance(field.dataType, T.DateType):
                value = F.unix_date(value)
            elif isinstance(field.dataType, T.TimestampType | T.TimestampNTZType):
                value = F.unix_micros(value.cast("timestamp"))
            columns.append(value.alias(f"p_{field_id}"))
        return columns

    def _metadata_table(self, state: TableState, name: str) -> DataFrame:
        assert state.snapshot is not None
        reader = self._spark.read.option("versionAsOf", str(state.snapshot.snapshot_id))
        return reader.table(f"{sql_name(str(state.table))}.{name}")

    def _manifests(self, state: TableState) -> dict[str, int]:
        """The metrics of manifests, as Spark counts them."""
        from pyspark.sql import functions as F

        names = ("manifests", "delete_manifests", "manifest_bytes")
        if state.snapshot is None:
            return dict.fromkeys(names, 0)
        deletes = F.sum((F.col("content") == 1).cast("int"))
        totals = self._metadata_table(state, "manifests").agg(F.count("*"), deletes, F.sum("length"))
        return dict(zip(names, (n or 0 for n in totals.collect()[0]), strict=True))


def _scope(state: TableState, row: Row, spec_id: int | None = None) -> Scope:
    spec = state.specs[row["spec_id"] if spec_id is None else spec_id]
    values = [row[f"p_{f.field_id}"] for f in spec.fields]
    values = [bytes(v) if isinstance(v, bytearray) else v for v in values]
    return spec.spec_id, encode_partition(spec, values, state.first_spec_id)


def _delete(state: TableState, row: Row) -> _Delete:
    names = ("files", "sequence_number", "snapshot_id", "records", "shared", "unreferenced")
    return _Delete(_scope(state, row), FileKind(row["kind"]), *(row[name] for name in names))


def _partitions(
    state: TableState,
    groups: Mapping[tuple[Scope, FileKind], Row],
    deletes: list[_Delete],
    named_files: Iterable[Row],
) -> dict[PartitionKey, PartitionHealth]:
    by_key: dict[PartitionKey, list[tuple[Scope, FileKind]]] = defaultdict(list)
    for scope, kind in groups:
        by_key[scope[1]].append((scope, kind))
    oldest = {
        s: _Oldest(r["oldest"], r["oldest_added"]) for (s, k), r in groups.items() if k is FileKind.DATA
    }
    named: dict[PartitionKey, int] = defaultdict(int)
    for row in named_files:
        scopes = ((_scope(state, row, spec_id), number) for spec_id, number in row["by"])
        if any(s in oldest and position_delete_reaches(number, oldest[s].data) for s, number in scopes):
            named[_scope(state, row, row["key_spec_id"])[1]] += row["files"]
    deletes_of_key: dict[PartitionKey, list[_Delete]] = defaultdict(list)
    everywhere: list[_Delete] = []
    for delete in deletes:
        deletes_of_key[delete.scope[1]].append(delete)
        if delete.kind is FileKind.EQUALITY_DELETES and state.specs[delete.scope[0]].is_unpartitioned:
            everywhere.append(delete)
    return {
        key: _partition(
            state, {k: groups[k] for k in by_key[key]}, oldest, deletes_of_key[key], everywhere, named[key]
        )
        for key in sorted(by_key)
    }


def _partition(
    state: TableState,
    groups: Mapping[tuple[Scope, FileKind], Row],
    oldest: Mapping[Scope, _Oldest],
    deletes: list[_Delete],
    everywhere: list[_Delete],
    named: int,
) -> PartitionHealth:
    """The health of one partition key, from its groups, its delete files, the global equality deletes and the number of
    data files that its used position deletes name."""
    oldest_data = min((oldest[s].data for s, _ in groups if s in oldest), default=None)

    def total(name: str, kind: FileKind) -> int:
        return sum(row[name] for (_, group_kind), row in groups.items() if group_kind is kind)

    local = (d for d in deletes if d.kind is FileKind.EQUALITY_DELETES and d not in everywhere)
    applicable = [
        d
        for d in (*local, *everywhere)
        if oldest_data is not None and equality_delete_reaches(d.sequence_number, oldest_data)
    ]
    dangling = [d for d in deletes if _dangles(state, d, oldest)]
    unused = [d for d in dangling if d.kind is FileKind.EQUALITY_DELETES]
    used = sum(d.files for d in deletes if d.kind is FileKind.POSITION_DELETES and d not in dangling)
    changes = [_commit_ms(state, *c) for row in groups.values() for c in row["commits"]]
    histograms = [row["histogram"] for (_, kind), row in groups.items() if kind is FileKind.DATA]
    empty = [0] * (len(SIZE_EDGES_BYTES) + 1)
    data, position = FileKind.DATA, FileKind.POSITION_DELETES
    vector, equality = FileKind.DELETION_VECTOR, FileKind.EQUALITY_DELETES
    return PartitionHealth(
        data_files=total("files", data),
        data_bytes=total("bytes", data),
        records=total("records", data),
        small_files=total("small_files", data),
        small_bytes=total("small_bytes", data),
        large_files=total("large_files", data),
        position_delete_files=total("files", position),
        position_delete_records=total("records", position),
        position_delete_bytes=total("bytes", position),
        deletion_vectors=total("files", vector),
        deletion_vector_records=total("records", vector),
        deletion_vector_bytes=total("bytes", vector),
        equality_delete_files=total("files", equality),
        equality_delete_records=total("records", equality),
        equality_delete_bytes=total("bytes", equality),
        applicable_equality_delete_files=sum(d.files for d in applicable),
        dangling_delete_files=sum(d.files for d in dangling),
        dangling_equality_delete_files=sum(d.files for d in unused),
        dangling_position_delete_records=sum(
            d.records for d in dangling if d.kind is not FileKind.EQUALITY_DELETES
        ),
        mergeable_delete_files=used - named,
        min_data_sequence_number=oldest_data or 0,
        max_data_sequence_number=max(row["newest"] for row in groups.values()),
        spec_ids=tuple(sorted({spec_id for (spec_id, _), _ in groups})),
        size_histogram=tuple(
            reduce(lambda a, b: [x + y for x, y in zip(a, b, strict=True)], histograms, empty)
        ),
        last_change_ms=max((t for t in changes if t is not None), default=None),
        oldest_equality_delete_ms=_oldest_ms(state, applicable),
        oldest_dangling_equality_delete_ms=_oldest_ms(state, unused),
    )


def _dangles(state: TableState, delete: _Delete, oldest: Mapping[Scope, _Oldest]) -> bool:
    scope_oldest = oldest.get(delete.scope)
    if delete.kind is FileKind.EQUALITY_DELETES:
        everywhere = state.specs[delete.scope[0]].is_unpartitioned
        candidates = oldest.values() if everywhere else [scope_oldest] if scope_oldest else []
        return not any(equality_delete_reaches(delete.sequence_number, o.data) for o in candidates)
    if scope_oldest is None or delete.unreferenced:
        return True
    first = scope_oldest.added if delete.shared else scope_oldest.data
    return not position_delete_reaches(delete.sequence_number, first)


def _oldest_ms(state: TableState, deletes: Iterable[_Delete]) -> int | None:
    floor_ms = min((s.timestamp_ms for s in state.snapshots), default=0)
    times = (_commit_ms(state, d.snapshot_id, d.sequence_number) for d in deletes)
    return min((floor_ms if t is None else t for t in times), default=None)


def _commit_ms(state: TableState, snapshot_id: int, sequence_number: int) -> int | None:
    snapshot = state.snapshot_by_id(snapshot_id)
    if snapshot is None and sequence_number:
        snapshot = next((s for s in state.snapshots if s.sequence_number == sequence_number), None)
    return snapshot.timestamp_ms if snapshot else None
