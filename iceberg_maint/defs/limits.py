"""The comparisons of a partition's check, for a check that passes. A failing check has findings instead."""

from __future__ import annotations

from collections.abc import Iterator

from iceberg_maint.core.health.metrics import PartitionHealth
from iceberg_maint.core.health.thresholds import ideal_overlap_depth
from iceberg_maint.core.model.reasons import Check
from iceberg_maint.core.policy.data import Policy


def limits(check: str, health: PartitionHealth, policy: Policy) -> Iterator[tuple[str, float, float]]:
    """(metric, value, threshold) of each comparison, with the names of the check's findings.

    The threshold is the lowest one that is set. A metric without a threshold is left out.
    """
    rewrite, layout = policy.rewrite_data_files, policy.layout
    if check == Check.SMALL_FILES:
        yield "small_files", health.small_files, rewrite.min_input_files
    elif check == Check.DELETE_FILES:
        ratio = _lowest(rewrite.delete_ratio_warn, rewrite.delete_ratio_act)
        if ratio is not None:
            yield "delete_ratio", health.delete_ratio, ratio
        if rewrite.max_delete_files is not None:
            files = health.position_delete_files + health.deletion_vectors
            yield "delete_files", files - health.dangling_position_delete_files, rewrite.max_delete_files
    elif check == Check.LAYOUT and layout.enabled and health.sort_ranges:
        multiple = _lowest(layout.overlap_depth_warn, layout.overlap_depth_act)
        if multiple is not None:
            yield "overlap_depth", health.overlap_depth, multiple * ideal_overlap_depth(health)


def _lowest(*thresholds: float | None) -> float | None:
    return min((t for t in thresholds if t is not None), default=None)
