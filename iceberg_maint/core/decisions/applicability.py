"""Assigns the findings of a partition to operations, and estimates the bytes that an operation reads."""

from __future__ import annotations

from iceberg_maint.core.health import position_deletes
from iceberg_maint.core.health.metrics import Measured, PartitionHealth
from iceberg_maint.core.health.thresholds import APPLICABLE, DANGLING, findings
from iceberg_maint.core.model.ids import Operation, PartitionKey
from iceberg_maint.core.model.reasons import Finding, Reason, Severity
from iceberg_maint.core.policy.data import EqualityDeletesPolicy, Policy, Route

_KEY_WIDTH_BYTES = 16
"""The assumed width of a row's key columns before a plan knows them."""


def may_convert(policy: EqualityDeletesPolicy) -> bool:
    """Returns whether equality deletes may be converted. The commit of a conversion appears in the
    table's streams."""
    return policy.route is not Route.REWRITE and not policy.streaming_consumers


def partition_findings(
    measured: Measured, partition: PartitionKey, policy: Policy, now_ms: int
) -> tuple[Finding, ...]:
    """Returns every crossed threshold of one partition, for all operations."""
    health, target_bytes = measured.partitions[partition], measured.target_file_size_bytes
    delete_findings = position_deletes.position_delete_findings(
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
        return tuple(f for f in crossed if f.metric in position_deletes.FINDINGS)
    if operation is Operation.CONVERT_EQUALITY_DELETES:
        converts = may_convert(policy.equality_deletes)
        return tuple(f for f in crossed if f.metric == DANGLING or (f.metric == APPLICABLE and converts))
    return tuple(f for f in crossed if f.metric not in (DANGLING, *position_deletes.FINDINGS))


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
