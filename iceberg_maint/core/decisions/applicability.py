"""Assigns the findings of a partition to operations, and refuses what an operation cannot read."""

from __future__ import annotations

from collections.abc import Mapping

from iceberg_maint.core.health import thresholds
from iceberg_maint.core.health.metrics import Measured, PartitionHealth
from iceberg_maint.core.health.thresholds import APPLICABLE, DANGLING, findings
from iceberg_maint.core.model.columns import base_type
from iceberg_maint.core.model.ids import DATA_OPERATIONS, Operation, PartitionKey
from iceberg_maint.core.model.reasons import Finding, Reason, Severity, Verdict
from iceberg_maint.core.policy.data import EqualityDeletesPolicy, Policy, RewriteStrategy, Route

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


def property_stop(operation: Operation, wrong_property: str) -> tuple[Verdict, Reason, dict[str, str]] | None:
    """Returns the stop of a due rewrite of data files by a property of the table that no Parquet writer takes."""
    if operation is not Operation.REWRITE_DATA_FILES or not wrong_property:
        return None
    return Verdict.REFUSE, Reason.WRITER_PROPERTY, {"property": wrong_property}


def type_stop(
    operation: Operation, types: Mapping[str, str], readers: RowTypes
) -> tuple[Verdict, Reason, dict[str, str]] | None:
    """Returns the stop of a due operation on data whose rows nothing reads. Its evidence says if `columnar`, which the operation
    or the policy does not use, would read them."""
    if operation not in DATA_OPERATIONS:
        return None
    columns = unsupported_columns(types, readers)
    if not columns:
        return None
    evidence = {"columns": column_list(columns)}
    if not unsupported_columns(types, (*readers, COLUMNAR_TYPES)):
        evidence["read_by"] = "columnar"
    return Verdict.REFUSE, Reason.UNSUPPORTED_TYPE, evidence
