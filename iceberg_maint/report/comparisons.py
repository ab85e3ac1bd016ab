"""Comparisons of metrics with thresholds: everything that a decision is based on."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from math import ceil

from iceberg_maint.core.health.metrics import Measured, PartitionHealth
from iceberg_maint.core.health.thresholds import (
    MIN_EXCESS_FILES,
    MIN_GAIN_RATIO,
    excess_files,
    ideal_overlap_depth,
    thresholds,
    too_many_average_bytes,
)
from iceberg_maint.core.model.reasons import Check, Finding
from iceberg_maint.core.policy.data import (
    LayoutPolicy,
    Policy,
    RewriteDataFilesPolicy,
    RewritePositionDeleteFilesPolicy,
)

_SECTION = "rewrite_data_files"


@dataclass(frozen=True, slots=True)
class Comparison:
    """One metric and its threshold; a threshold of None is off. `rule` is ≥, > or <."""

    metric: str
    value: float
    rule: str
    threshold: float | None
    threshold_key: str
    source: str
    crossed: bool


def compare(
    health: PartitionHealth,
    measured: Measured,
    policy: Policy,
    findings: tuple[Finding, ...],
    sources: Mapping[str, str],
    now_ms: int,
) -> tuple[Comparison, ...]:
    """Compares every threshold of the operations on data with the metric of a partition of the measured table.

    If there are enough small files and `findings` has none about them, the gain of a rewrite decided;
    the result then contains the gain. It also contains the average file size if `max_files` is crossed,
    and the age of equality deletes.
    """
    small_files_due = any(f.threshold_key == f"{_SECTION}.min_input_files" for f in findings)
    return tuple(
        Comparison(metric, value, rule, limit, key, sources[key], _crosses(value, rule, limit))
        for rows in _rows(health, measured, policy, now_ms, small_files_due=small_files_due).values()
        for metric, value, rule, limit, key in rows
    )


def limits(
    check: str, health: PartitionHealth, measured: Measured, policy: Policy, now_ms: int
) -> dict[str, tuple[float, float]]:
    """Returns the value of each metric that a check on partitions compares, and the lowest threshold that is set. A metric
    without a threshold is left out."""
    found: dict[str, tuple[float, float]] = {}
    rows = _rows(health, measured, policy, now_ms, small_files_due=True)[Check(check)]
    for metric, value, _rule, limit, _key in rows:
        # A row whose name is a phrase explains the one before.
        if limit is not None and metric.isidentifier():
            found[metric] = value, min(limit, found.get(metric, (value, limit))[1])
    return found


_Row = tuple[str, float, str, float | None, str]


def _rows(
    health: PartitionHealth, measured: Measured, policy: Policy, now_ms: int, *, small_files_due: bool
) -> dict[Check, list[_Row]]:
    """Returns what each check on partitions compares: metric, value, rule, threshold, policy key."""
    rewrite, deletes = policy.rewrite_data_files, policy.rewrite_position_delete_files
    files = _files(health, rewrite, measured.target_file_size_bytes, small_files_due=small_files_due)
    return {
        Check.SMALL_FILES: list(_in_section(files)),
        Check.DELETE_FILES: [
            *_in_section(_deletes(health, rewrite, now_ms)),
            *_position_deletes(health, deletes, measured.format_version),
        ],
        Check.LAYOUT: list(_overlap(health, policy.layout)),
    }


def _in_section(rows: Iterator[_Row]) -> Iterator[_Row]:
    return ((m, v, r, t, f"{_SECTION}.{k}") for m, v, r, t, k in rows)


def _files(
    health: PartitionHealth, policy: RewriteDataFilesPolicy, target_bytes: int, *, small_files_due: bool
) -> Iterator[_Row]:
    yield "small_files", health.small_files, "≥", policy.min_input_files, "min_input_files"
    if health.small_files >= policy.min_input_files and not small_files_due:
        gain = excess_files(health, policy, target_bytes)
        least = min(MIN_EXCESS_FILES, max(1, ceil(MIN_GAIN_RATIO * health.data_files)))
        yield "files a rewrite would remove", gain, "≥", least, "min_input_files"
    yield "data_files", health.data_files, ">", policy.max_files, "max_files"
    if policy.max_files is not None and health.data_files > policy.max_files:
        limit = too_many_average_bytes(policy, target_bytes)
        yield "average_file_bytes", health.average_file_bytes, "<", limit, "max_files_average_bytes"


def _deletes(health: PartitionHealth, policy: RewriteDataFilesPolicy, now_ms: int) -> Iterator[_Row]:
    positional = health.position_delete_files + health.deletion_vectors
    positional -= health.dangling_position_delete_files
    yield "delete_ratio", health.delete_ratio, "≥", policy.delete_ratio_act, "delete_ratio_act"
    yield "delete_ratio", health.delete_ratio, "≥", policy.delete_ratio_warn, "delete_ratio_warn"
    yield "delete_files", positional, ">", policy.max_delete_files, "max_delete_files"
    key, limit = "equality_delete_max_age_seconds", policy.equality_delete_max_age_seconds
    for metric, since_ms in (
        ("applicable_equality_delete_files", health.oldest_equality_delete_ms),
        ("dangling_equality_delete_files", health.oldest_dangling_equality_delete_ms),
    ):
        count = getattr(health, metric)
        yield metric, count, "≥", None if limit is None else 1, key
        if count and since_ms is not None:
            yield "seconds since the oldest of them", (now_ms - since_ms) / 1000, "≥", limit, key


def _position_deletes(
    health: PartitionHealth, policy: RewritePositionDeleteFilesPolicy, format_version: int
) -> Iterator[_Row]:
    for metric, files, threshold, key in thresholds(health, policy, format_version):
        yield metric, files, "≥", threshold, key


def _overlap(health: PartitionHealth, policy: LayoutPolicy) -> Iterator[_Row]:
    """Yields nothing for a table without a sort order."""
    if not policy.enabled or not health.sort_ranges:
        return
    ideal = ideal_overlap_depth(health)
    for key, multiple in (
        ("layout.overlap_depth_act", policy.overlap_depth_act),
        ("layout.overlap_depth_warn", policy.overlap_depth_warn),
    ):
        yield "overlap_depth", health.overlap_depth, ">", None if multiple is None else multiple * ideal, key


def _crosses(value: float, rule: str, threshold: float | None) -> bool:
    if threshold is None:
        return False
    return {"≥": value >= threshold and value > 0, ">": value > threshold, "<": value < threshold}[rule]
