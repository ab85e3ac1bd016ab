"""Which findings an operation takes up, what it cannot read, and which other engines stop it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from types import MappingProxyType

from iceberg_maint.core.health import thresholds
from iceberg_maint.core.health.metrics import Measured, PartitionHealth
from iceberg_maint.core.health.thresholds import APPLICABLE, DANGLING, findings
from iceberg_maint.core.model.columns import base_type
from iceberg_maint.core.model.ids import Operation, PartitionKey
from iceberg_maint.core.model.other_writers import ForeignCommit
from iceberg_maint.core.model.reasons import Finding, Reason, Severity
from iceberg_maint.core.policy.data import EqualityDeletesPolicy, Policy, Reader, RewriteStrategy, Route
from iceberg_maint.core.policy.runs import ForeignMaintainersPolicy, ForeignMode

_KEY_WIDTH_BYTES = 16
"""The assumed width of a row's key columns before a plan knows them."""


def may_convert(policy: EqualityDeletesPolicy) -> bool:
    """Returns whether equality deletes may be converted. The commit of a conversion appears in the
    table's streams."""
    return policy.route is not Route.REWRITE


def partition_findings(
    measured: Measured, partition: PartitionKey, policy: Policy, now_ms: int
) -> tuple[Finding, ...]:
    """Returns every crossed threshold of one partition, for all operations."""
    health, target_bytes = measured.partitions[partition], measured.target_file_size_bytes
    delete_findings = thresholds.position_delete_findings(
        health, policy.rewrite_position_delete_files, measured.format_version
    )
    data_findings = findings(health, policy.rewrite_data_files, target_bytes, now_ms, policy.layout)
    return (*data_findings, *delete_findings)


def findings_for(operation: Operation, crossed: tuple[Finding, ...], policy: Policy) -> tuple[Finding, ...]:
    """Returns the findings that this operation can act on.

    Applicable equality deletes belong to both data operations until a plan, which knows the files,
    chooses one. Dropping dangling equality deletes always belongs to the conversion. Position deletes
    that a rewrite would apply belong to the rewrite as well. Those that slow readers down belong to the
    rewrite of position delete files.
    """
    if not crossed:
        return ()
    if operation is Operation.REWRITE_POSITION_DELETE_FILES:
        return tuple(f for f in crossed if f.metric in thresholds.FINDINGS)
    if operation is Operation.CONVERT_EQUALITY_DELETES:
        converts = may_convert(policy.equality_deletes)
        return tuple(f for f in crossed if f.metric == DANGLING or (f.metric == APPLICABLE and converts))
    return tuple(f for f in crossed if f.metric not in (DANGLING, *thresholds.FINDINGS))


def has_old_deletes(crossed: tuple[Finding, ...]) -> bool:
    """Returns whether applicable equality deletes are due to be cleaned, by the operation that a plan
    chooses."""
    return any(f.metric == APPLICABLE and f.severity is Severity.ERROR for f in crossed)


def either_may_clean(crossed: tuple[Finding, ...], policy: Policy) -> bool:
    """Returns whether a plan may leave these deletes to either operation."""
    converts = may_convert(policy.equality_deletes)
    return converts and policy.rewrite_data_files.enabled and has_old_deletes(crossed)


def candidate_bytes(operation: Operation, health: PartitionHealth, crossed: tuple[Finding, ...]) -> int:
    """Returns the bytes of this partition that the operation is expected to read for these findings.

    A rewrite reads the small files only, or all files if deletes are to be applied or the average size
    counts. A conversion reads the key columns and the deletes. A merge reads the position deletes.
    """
    if operation is Operation.REWRITE_POSITION_DELETE_FILES:
        return health.position_delete_bytes
    if operation is Operation.CONVERT_EQUALITY_DELETES:
        return min(health.data_bytes, health.records * _KEY_WIDTH_BYTES) + health.equality_delete_bytes
    only_small = all(f.reason is Reason.SMALL_FILES for f in crossed)
    return health.small_bytes if only_small else health.data_bytes


RowTypes = tuple[frozenset[str], ...]
"""The uncommon types that each way to read rows reads (see `core.model.column_types`)."""
SPARK_4: RowTypes = (frozenset({"variant", "unknown"}),)
"""Rows read by Spark 4 with Iceberg 1.12 (docs/design/decisions/rewrite-types.md)."""
SPARK_3: RowTypes = (frozenset({"unknown"}),)
"""Rows read by Spark 3.5 with Iceberg 1.12."""
COLUMNAR_TYPES = frozenset({"time", "timestamp_ns", "timestamptz_ns"})
"""The uncommon types that the strategy `columnar` reads."""
_NAMED = 5


def row_types(spark_version: str) -> RowTypes:
    """Returns the types that operations on data read with this version of Spark."""
    return SPARK_3 if spark_version.startswith("3.") else SPARK_4


def row_readers(operation: Operation, strategy: RewriteStrategy, native: RowTypes) -> RowTypes:
    """Returns the ways in which an operation may read rows. `native` are those of Spark. Only `rewrite_data_files`
    reads without Spark, unless the policy forbids it."""
    if operation is not Operation.REWRITE_DATA_FILES or strategy is RewriteStrategy.NATIVE:
        return native
    return (*native, COLUMNAR_TYPES)


def unsupported_columns(types: Mapping[str, str], readers: RowTypes) -> dict[str, str]:
    """Returns path → type of the columns that keep the table's rows from being read, those of the reader that
    comes nearest; none if one reader reads all columns."""
    unread = [
        {path: kind for path, kind in types.items() if base_type(kind) not in reader} for reader in readers
    ]
    return min(unread, key=len, default=dict(types))


def column_list(columns: Mapping[str, str]) -> str:
    """Returns columns as text: `at (time), s.x (timestamp_ns)`."""
    named = [f"{path} ({kind})" for path, kind in sorted(columns.items())[:_NAMED]]
    others = len(columns) - len(named)
    return ", ".join(named) + (f" and {others} more" if others else "")


@dataclass(frozen=True, slots=True)
class ActiveMaintainer:
    """A foreign maintainer that counts as active. `commit` is its newest commit; it counts until
    `until_ms`."""

    commit: ForeignCommit
    until_ms: int

    def evidence(self) -> dict[str, str]:
        """The evidence of a decision, as texts by name."""
        return {
            "foreign_maintainer": self.commit.maintainer,
            "foreign_snapshot": str(self.commit.snapshot_id),
            "foreign_at_ms": str(self.commit.timestamp_ms),
            "foreign_until_ms": str(self.until_ms),
        }


ACTIVE_MS = 2 * 86_400_000
"""Time that another maintainer counts as active after its commit."""
COLD_AFTER_SECONDS = 3600
"""Least time without a change of a partition that is rewritten beside another maintainer."""


def active_maintainer(
    commits: Sequence[ForeignCommit], policy: ForeignMaintainersPolicy, now_ms: int
) -> ActiveMaintainer | None:
    """Returns the foreign maintainer that is active by the policy, None if there is none. A single
    compaction by hand does not stop maintenance permanently."""
    if policy.mode is ForeignMode.IGNORE or not commits:
        return None
    newest = max(commits, key=lambda commit: commit.timestamp_ms)
    until_ms = newest.timestamp_ms + ACTIVE_MS
    return ActiveMaintainer(newest, until_ms) if now_ms < until_ms else None


def coexistence_policy(policy: Policy, commits: Sequence[ForeignCommit], now_ms: int) -> Policy:
    """Returns the policy for mode `coexist` while a foreign maintainer is active. Only partitions that
    are cold under both settings are due, and equality deletes are applied by rewriting data files. Two
    maintainers that both convert equality deletes would treat each other's deletes as live."""
    coexistence = policy.foreign_maintainers
    if coexistence.mode is not ForeignMode.COEXIST or active_maintainer(commits, coexistence, now_ms) is None:
        return policy
    cold = max(policy.windows.cold_after_seconds or 0, COLD_AFTER_SECONDS)
    return replace(
        policy,
        windows=replace(policy.windows, cold_after_seconds=cold),
        equality_deletes=replace(policy.equality_deletes, route=Route.REWRITE),
    )


NO_PROPERTIES: Mapping[str, str] = MappingProxyType({})


class Feature(StrEnum):
    """What a commit of maintenance may bring into a table that had none of it."""

    CODEC_LZ4 = "codec lz4"
    DATA_AVRO = "data avro"
    DATA_ORC = "data orc"
    DELETION_VECTORS = "deletion vectors"
    POSITION_DELETES_PARQUET = "position deletes parquet"
    POSITION_DELETES_AVRO = "position deletes avro"
    POSITION_DELETES_ORC = "position deletes orc"


_NOT_ORC = frozenset({Reader.CLICKHOUSE, Reader.DAFT, Reader.DUCKDB, Reader.POLARS})
UNREAD: Mapping[Feature, frozenset[Reader]] = {
    Feature.CODEC_LZ4: frozenset({Reader.DUCKDB}),
    Feature.DATA_AVRO: frozenset({Reader.DAFT, Reader.DUCKDB, Reader.POLARS, Reader.PYICEBERG}),
    Feature.DATA_ORC: frozenset({Reader.DAFT, Reader.DUCKDB, Reader.POLARS}),
    Feature.DELETION_VECTORS: frozenset({Reader.CLICKHOUSE, Reader.DAFT}),
    Feature.POSITION_DELETES_PARQUET: frozenset(),
    Feature.POSITION_DELETES_AVRO: _NOT_ORC | {Reader.PYICEBERG},
    Feature.POSITION_DELETES_ORC: _NOT_ORC,
}
"""The readers that do not read a feature. A test compares this with the record of `make qualify SUITE=readers`."""
_SLOWED = frozenset({Reader.DUCKDB})
"""The readers whose slowest query takes twice as long where position deletes or vectors delete three rows of a hundred
(docs/design/decisions/deletes-route.md)."""


def position_delete_feature(measured: Measured, properties: Mapping[str, str]) -> Feature:
    """Returns the form of the deletes that a conversion or a merge writes (Iceberg `write.delete.format.default`)."""
    if measured.format_version >= 3:
        return Feature.DELETION_VECTORS
    kind = properties.get("write.delete.format.default", properties.get("write.format.default", "parquet"))
    name = f"position deletes {kind.lower()}"
    return Feature(name) if name in set(Feature) else Feature.POSITION_DELETES_PARQUET


def has_position_deletes(measured: Measured) -> bool:
    """Returns whether the table has deletion vectors, in format v2 position deletes."""
    if measured.format_version >= 3:
        return any(p.deletion_vectors for p in measured.partitions.values())
    return any(p.position_delete_files for p in measured.partitions.values())


def losing_readers(
    measured: Measured, policy: Policy, properties: Mapping[str, str] = NO_PROPERTIES
) -> tuple[Reader, ...]:
    """Returns the readers for whose sake no position deletes are written: those that the policy names and that do not read
    them. If it names none, those that would lose a table that has no position deletes yet, unless the route of
    equality deletes is `convert`."""
    unread = UNREAD[position_delete_feature(measured, properties)]
    if policy.readers:
        return tuple(sorted(unread.intersection(policy.readers)))
    allowed = policy.equality_deletes.route is Route.CONVERT or has_position_deletes(measured)
    return () if allowed else tuple(sorted(unread))


def slowed_readers(policy: Policy) -> tuple[Reader, ...]:
    """Returns the readers that the policy names and for whose speed no equality delete is converted. None if the policy
    asks for conversions."""
    named = () if policy.equality_deletes.route is Route.CONVERT else policy.readers
    return tuple(sorted(_SLOWED.intersection(named)))


def readers_policy(
    policy: Policy, measured: Measured, properties: Mapping[str, str] = NO_PROPERTIES
) -> Policy:
    """Returns the policy that writes no position deletes if a reader would lose the table, and converts no equality
    deletes if that would slow a named reader down. Equality deletes are then applied by rewriting the data files. Position
    delete files of a table that a reader would lose stay: writers of format v3 add none, and a rewrite for other
    reasons applies them."""
    lost = losing_readers(measured, policy, properties)
    if not (lost or slowed_readers(policy)):
        return policy
    rewriting = replace(policy, equality_deletes=replace(policy.equality_deletes, route=Route.REWRITE))
    if not lost:
        return rewriting
    deletes = replace(policy.rewrite_position_delete_files, min_input_files=None)
    return replace(rewriting, rewrite_position_delete_files=deletes)
