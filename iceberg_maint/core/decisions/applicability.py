"""Due: which findings of a partition ask for which operation, and how much it would read."""

from __future__ import annotations

from iceberg_maint.core.health import position_deletes
from iceberg_maint.core.health.metrics import Measured, PartitionHealth
from iceberg_maint.core.health.thresholds import APPLICABLE, DANGLING, findings
from iceberg_maint.core.model.ids import Operation
from iceberg_maint.core.model.reasons import Finding, Reason, Severity
from iceberg_maint.core.policy.data import EqualityDeletesPolicy, Policy, Route

_KEY_WIDTH_BYTES = 16
"""What a row's key columns are taken for before a plan knows them."""


def may_convert(policy: EqualityDeletesPolicy) -> bool:
    """Whether equality deletes may be converted: the commit shows in the table's streams."""
    return policy.route is not Route.REWRITE and not policy.streaming_consumers


def partition_findings(
    measured: Measured, partition: str, policy: Policy, now_ms: int
) -> tuple[Finding, ...]:
    """Every crossed threshold of one partition, whichever operation is to do something about it."""
    health, target_bytes = measured.partitions[partition], measured.target_file_size_bytes
    of_deletes = position_deletes.position_delete_findings(
        health, policy.rewrite_position_delete_files, measured.format_version
    )
    found = findings(health, policy.rewrite_data_files, target_bytes, now_ms, policy.layout)
    return (*found, *of_deletes)


def findings_for(operation: Operation, found: tuple[Finding, ...], policy: Policy) -> tuple[Finding, ...]:
    """The findings that this operation may do something about.

    Equality deletes that apply are both operations' until a plan, which sees the files, chooses;
    dropping those that do not is the conversion's, whatever the route. Position deletes that a rewrite
    would apply are its own as well; what is left of them in the way of readers is the third's.
    """
    if operation is Operation.REWRITE_POSITION_DELETE_FILES:
        return tuple(f for f in found if f.metric in position_deletes.FINDINGS)
    if operation is Operation.CONVERT_EQUALITY_DELETES:
        converts = may_convert(policy.equality_deletes)
        return tuple(f for f in found if f.metric == DANGLING or (f.metric == APPLICABLE and converts))
    return tuple(f for f in found if f.metric not in (DANGLING, *position_deletes.FINDINGS))


def has_old_deletes(found: tuple[Finding, ...]) -> bool:
    """Whether equality deletes that apply are to be cleaned, by whichever operation a plan chooses."""
    return any(f.metric == APPLICABLE and f.severity is Severity.ERROR for f in found)


def either_may_clean(found: tuple[Finding, ...], policy: Policy) -> bool:
    """Whether a plan may leave these deletes to either operation."""
    converts = may_convert(policy.equality_deletes)
    return converts and policy.rewrite_data_files.enabled and has_old_deletes(found)


def candidate_bytes(operation: Operation, health: PartitionHealth, found: tuple[Finding, ...]) -> int:
    """Bytes the operation should read of this partition for these findings.

    Of a rewrite small files only, or all of them once deletes are to be applied or the average
    counts; of a conversion the key columns and the deletes; of a merge the position deletes.
    """
    if operation is Operation.REWRITE_POSITION_DELETE_FILES:
        return health.position_delete_bytes
    if operation is Operation.CONVERT_EQUALITY_DELETES:
        return min(health.data_bytes, health.records * _KEY_WIDTH_BYTES) + health.equality_delete_bytes
    only_small = all(f.reason is Reason.SMALL_FILES for f in found)
    return health.small_bytes if only_small else health.data_bytes
