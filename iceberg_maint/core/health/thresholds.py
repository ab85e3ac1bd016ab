"""Findings: the thresholds that a partition's measurements cross."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from iceberg_maint.core.health.layout import ideal_depth
from iceberg_maint.core.health.metrics import PartitionHealth, SizeLimits
from iceberg_maint.core.model.ids import Operation
from iceberg_maint.core.model.reasons import Check, Finding, Reason, Severity
from iceberg_maint.core.policy.data import (
    DEFAULT_TARGET_FILE_SIZE_BYTES,
    LayoutPolicy,
    RewriteDataFilesPolicy,
    RewritePositionDeleteFilesPolicy,
)

MERGEABLE = "mergeable_delete_files"
REMAINING = "position_delete_files"
DANGLING_POSITIONS = "dangling_position_delete_files"
FINDINGS = (MERGEABLE, REMAINING, DANGLING_POSITIONS)
"""Metrics of the findings for this operation."""

_POSITION_DELETES = Operation.REWRITE_POSITION_DELETE_FILES.value


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
    yield *merged, policy.min_input_files, f"{_POSITION_DELETES}.min_input_files"
    dangling = health.dangling_position_delete_files
    yield DANGLING_POSITIONS, dangling, 1, f"{_POSITION_DELETES}.enabled"


def position_delete_findings(
    health: PartitionHealth, policy: RewritePositionDeleteFilesPolicy, format_version: int
) -> Iterator[Finding]:
    """Yields a finding for position delete files beyond the threshold, and for position deletes that
    delete no row."""
    for metric, files, threshold, key in thresholds(health, policy, format_version):
        if threshold is not None and files >= threshold:
            reason = Reason.POSITION_DELETES
            yield Finding(Check.DELETE_FILES, Severity.ERROR, reason, metric, files, threshold, key)


def may_merge(health: PartitionHealth, format_version: int) -> bool:
    """Returns whether any position delete file can be merged or dropped."""
    merged = health.position_delete_files if format_version >= 3 else health.mergeable_delete_files
    return merged + health.dangling_position_delete_files > 0


TARGET_FILE_SIZE_PROPERTY = "write.target-file-size-bytes"
APPLICABLE = "applicable_equality_delete_files"
DANGLING = "dangling_equality_delete_files"
_SECTION = "rewrite_data_files"
_LARGE_FILE_RATIO = 1.8
"""A data file above this multiple of the target is large (Iceberg `max-file-size-bytes`)."""
MIN_EXCESS_FILES, MIN_GAIN_RATIO = 5, 0.1
"""Small files are due if a rewrite removes so many files, or this share of the partition's files."""
NO_LAYOUT = LayoutPolicy(enabled=False)


def target_file_size_bytes(policy: RewriteDataFilesPolicy, properties: Mapping[str, str]) -> int:
    """Returns the policy's target, else the table's own, else Iceberg's default of 512 MiB.

    Raises ValueError for a table property that is not a positive number.
    """
    if policy.target_file_size_bytes is not None:
        return policy.target_file_size_bytes
    text = properties.get(TARGET_FILE_SIZE_PROPERTY, str(DEFAULT_TARGET_FILE_SIZE_BYTES))
    if not (text.isdecimal() and int(text) > 0):
        raise ValueError(f"{TARGET_FILE_SIZE_PROPERTY} is '{text}', not a positive number of bytes")
    return int(text)


def size_limits(policy: RewriteDataFilesPolicy, target_bytes: int) -> SizeLimits:
    """Returns the bounds of small and large files, as Iceberg's SizeBasedFileRewritePlanner derives them."""
    return SizeLimits(
        small_below_bytes=int(target_bytes * policy.small_file_ratio),
        large_above_bytes=int(target_bytes * _LARGE_FILE_RATIO),
    )


def findings(
    health: PartitionHealth,
    policy: RewriteDataFilesPolicy,
    target_bytes: int,
    now_ms: int,
    layout: LayoutPolicy = NO_LAYOUT,
) -> tuple[Finding, ...]:
    """Returns every crossed threshold of one partition, with its check and severity."""
    return (
        *_small_files(health, policy, target_bytes),
        *_too_many_files(health, policy, target_bytes),
        *_deletes(health, policy),
        *_equality_deletes(health, policy, now_ms),
        *_overlap(health, layout),
    )


def is_due(partition_findings: tuple[Finding, ...]) -> bool:
    """Returns whether any finding is severe enough to act on."""
    return any(f.severity is Severity.ERROR for f in partition_findings)


def score(partition_findings: tuple[Finding, ...]) -> float:
    """Returns how far the worst due metric lies beyond its threshold, as a multiple of it; 0 if none is
    due."""
    return _excess(worst(partition_findings)) if is_due(partition_findings) else 0.0


def worst(partition_findings: tuple[Finding, ...]) -> Finding:
    """Returns the ERROR finding farthest beyond its threshold. Raises ValueError if there is none."""
    return max((f for f in partition_findings if f.severity is Severity.ERROR), key=_excess)


def _excess(finding: Finding) -> float:
    return finding.value / max(finding.threshold, 1e-9)


def expected_output_files(input_bytes: int, target_bytes: int, limits: SizeLimits) -> int:
    """Returns the expected number of files after a rewrite of these bytes; at least 1.

    As Iceberg's `SizeBasedFileRewritePlanner.expectedOutputFiles`: a remainder that would make a small
    file is spread over the other files, if they then grow by less than 10 % and a writer does not split
    them.
    """
    if input_bytes < target_bytes:
        return 1
    full_files, remainder = divmod(input_bytes, target_bytes)
    if remainder == 0:
        return full_files
    largest = min(1.1 * target_bytes, write_max_file_size_bytes(target_bytes, limits))
    spread = remainder <= limits.small_below_bytes and input_bytes // full_files < largest
    return full_files if spread else full_files + 1


def write_max_file_size_bytes(target_bytes: int, limits: SizeLimits) -> int:
    """Returns the size at which a writer starts the next file: half-way from the target to a large file,
    so that a small excess leaves no tiny remainder (Iceberg `writeMaxFileSize`)."""
    return target_bytes + (limits.large_above_bytes - target_bytes) // 2


def excess_files(health: PartitionHealth, policy: RewriteDataFilesPolicy, target_bytes: int) -> int:
    """Returns how many small files fewer a rewrite of the partition's small files is expected to leave."""
    limits = size_limits(policy, target_bytes)
    return health.small_files - expected_output_files(health.small_bytes, target_bytes, limits)


def _small_files(
    health: PartitionHealth, policy: RewriteDataFilesPolicy, target_bytes: int
) -> tuple[Finding, ...]:
    if health.small_files < policy.min_input_files:
        return ()
    excess = excess_files(health, policy, target_bytes)
    gains = excess >= MIN_EXCESS_FILES or (excess > 0 and excess >= MIN_GAIN_RATIO * health.data_files)
    if not gains:
        return ()
    return (
        Finding(
            Check.SMALL_FILES,
            Severity.ERROR,
            Reason.SMALL_FILES,
            "small_files",
            health.small_files,
            policy.min_input_files,
            f"{_SECTION}.min_input_files",
        ),
    )


def _too_many_files(
    health: PartitionHealth, policy: RewriteDataFilesPolicy, target_bytes: int
) -> tuple[Finding, ...]:
    if policy.max_files is None or health.data_files <= policy.max_files:
        return ()
    limit = too_many_average_bytes(policy, target_bytes)
    if health.average_file_bytes >= limit:
        return ()
    limits = size_limits(policy, target_bytes)
    if health.data_files <= expected_output_files(health.data_bytes, target_bytes, limits):
        return ()
    return (
        Finding(
            Check.SMALL_FILES,
            Severity.ERROR,
            Reason.TOO_MANY_FILES,
            "data_files",
            health.data_files,
            policy.max_files,
            f"{_SECTION}.max_files",
        ),
    )


def too_many_average_bytes(policy: RewriteDataFilesPolicy, target_bytes: int) -> int:
    """Returns the average size below which `max_files` applies."""
    if policy.max_files_average_bytes is not None:
        return policy.max_files_average_bytes
    return int(target_bytes * policy.small_file_ratio)


def _deletes(health: PartitionHealth, policy: RewriteDataFilesPolicy) -> tuple[Finding, ...]:
    crossed: list[Finding] = []
    ratio = health.delete_ratio
    for threshold, severity, key in (
        (policy.delete_ratio_act, Severity.ERROR, "delete_ratio_act"),
        (policy.delete_ratio_warn, Severity.WARN, "delete_ratio_warn"),
    ):
        if threshold is not None and ratio >= threshold and ratio > 0:
            crossed.append(
                Finding(
                    Check.DELETE_FILES,
                    severity,
                    Reason.DELETE_RATIO,
                    "delete_ratio",
                    ratio,
                    threshold,
                    f"{_SECTION}.{key}",
                )
            )
            break
    positional = health.position_delete_files + health.deletion_vectors
    positional -= health.dangling_position_delete_files
    if policy.max_delete_files is not None and positional > policy.max_delete_files:
        crossed.append(
            Finding(
                Check.DELETE_FILES,
                Severity.ERROR,
                Reason.DELETE_FILES,
                "delete_files",
                positional,
                policy.max_delete_files,
                f"{_SECTION}.max_delete_files",
            )
        )
    return tuple(crossed)


def ideal_overlap_depth(health: PartitionHealth) -> float:
    """Returns the overlap depth of this many files after they are sorted."""
    files = health.data_files - health.unbounded_files
    return ideal_depth(files, health.sort_ranges // files) if files else 1.0


def _overlap(health: PartitionHealth, policy: LayoutPolicy) -> Iterator[Finding]:
    """Yields a finding if the depth exceeds a multiple of the ideal depth of the same number of sorted
    files."""
    if not policy.enabled or not health.sort_ranges:
        return
    ideal = ideal_overlap_depth(health)
    for multiple, severity, key in (
        (policy.overlap_depth_act, Severity.ERROR, "overlap_depth_act"),
        (policy.overlap_depth_warn, Severity.WARN, "overlap_depth_warn"),
    ):
        if multiple is not None and health.overlap_depth > multiple * ideal:
            threshold = multiple * ideal
            yield Finding(
                Check.LAYOUT,
                severity,
                Reason.LAYOUT,
                "overlap_depth",
                health.overlap_depth,
                threshold,
                f"layout.{key}",
            )
            return


def _equality_deletes(
    health: PartitionHealth, policy: RewriteDataFilesPolicy, now_ms: int
) -> Iterator[Finding]:
    """Yields findings for applicable and for dangling equality deletes, by the age of the oldest one."""
    limit_seconds = policy.equality_delete_max_age_seconds
    if limit_seconds is None:
        return
    for metric, since_ms in (
        (APPLICABLE, health.oldest_equality_delete_ms),
        (DANGLING, health.oldest_dangling_equality_delete_ms),
    ):
        files = getattr(health, metric)
        if not files:
            continue
        age_seconds = (now_ms - since_ms) / 1000 if since_ms is not None else float(limit_seconds)
        yield Finding(
            Check.DELETE_FILES,
            Severity.ERROR if age_seconds >= limit_seconds else Severity.WARN,
            Reason.EQUALITY_DELETES,
            metric,
            files,
            1,
            f"{_SECTION}.equality_delete_max_age_seconds",
        )
