"""Due: which findings of a partition ask for which operation, and how much it would read."""

from __future__ import annotations

from iceberg_maint.core.health import PartitionHealth
from iceberg_maint.core.ids import Operation
from iceberg_maint.core.judge import APPLICABLE, DANGLING
from iceberg_maint.core.policy import EqualityDeletesPolicy, Policy, Route
from iceberg_maint.core.reasons import Finding, Reason, Severity

_KEY_WIDTH_BYTES = 16
"""What a row's key columns are taken for before a plan knows them."""


def may_convert(policy: EqualityDeletesPolicy) -> bool:
    """Whether equality deletes may be converted: the commit shows in the table's streams."""
    return policy.route is not Route.REWRITE and not policy.streaming_consumers


def asking(operation: Operation, found: tuple[Finding, ...], policy: Policy) -> tuple[Finding, ...]:
    """The findings that this operation may do something about.

    Equality deletes that apply are both operations' until a plan, which sees the files, chooses;
    dropping those that do not is the conversion's, whatever the route.
    """
    if operation is Operation.CONVERT_EQUALITY_DELETES:
        converts = may_convert(policy.equality_deletes)
        return tuple(f for f in found if f.metric == DANGLING or (f.metric == APPLICABLE and converts))
    return tuple(f for f in found if f.metric != DANGLING)


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
    counts; of a conversion the key columns and the deletes.
    """
    if operation is Operation.CONVERT_EQUALITY_DELETES:
        return min(health.data_bytes, health.records * _KEY_WIDTH_BYTES) + health.equality_delete_bytes
    only_small = all(f.reason is Reason.SMALL_FILES for f in found)
    return health.small_bytes if only_small else health.data_bytes
