"""Position deletes that slow readers down: their number, and the thresholds at which they are rewritten."""

from __future__ import annotations

from collections.abc import Iterator

from iceberg_maint.core.health.metrics import PartitionHealth
from iceberg_maint.core.model.ids import Operation
from iceberg_maint.core.model.reasons import Check, Finding, Reason, Severity
from iceberg_maint.core.policy.data import RewritePositionDeleteFilesPolicy

MERGEABLE = "mergeable_delete_files"
REMAINING = "position_delete_files"
UNMARKING = "dangling_position_delete_files"
FINDINGS = (MERGEABLE, REMAINING, UNMARKING)
"""Metrics of the findings for this operation."""

_SECTION = Operation.REWRITE_POSITION_DELETE_FILES.value


def thresholds(
    health: PartitionHealth, policy: RewritePositionDeleteFilesPolicy, format_version: int
) -> Iterator[tuple[str, int, int | None, str]]:
    """Yields (metric, number of files, threshold, policy key).

    In v3 each position delete file becomes a deletion vector, so all of them count. In older versions
    only those beyond one file per data file count.
    """
    merged = (REMAINING, health.position_delete_files)
    if format_version < 3:
        merged = (MERGEABLE, health.mergeable_delete_files)
    yield *merged, policy.min_input_files, f"{_SECTION}.min_input_files"
    unmarking = health.dangling_position_delete_files
    yield UNMARKING, unmarking, policy.min_dangling_files, f"{_SECTION}.min_dangling_files"


def position_delete_findings(
    health: PartitionHealth, policy: RewritePositionDeleteFilesPolicy, format_version: int
) -> Iterator[Finding]:
    """Yields a finding for position delete files beyond the threshold, and for position deletes that mark
    no row."""
    for metric, files, threshold, key in thresholds(health, policy, format_version):
        if threshold is not None and files >= threshold:
            reason = Reason.POSITION_DELETES
            yield Finding(Check.DELETE_FILES, Severity.ERROR, reason, metric, files, threshold, key)


def may_merge(health: PartitionHealth, format_version: int) -> bool:
    """Returns whether any position delete file can be merged or dropped."""
    merged = health.position_delete_files if format_version >= 3 else health.mergeable_delete_files
    return merged + health.dangling_position_delete_files > 0
