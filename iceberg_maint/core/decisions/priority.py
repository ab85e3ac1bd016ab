"""Priority: the gain that maintenance of a partition is predicted to have, and its cost, from stored health.

The unit of the gain is one file that a scan of the partition no longer opens.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil, exp

from iceberg_maint.core.health.metrics import PartitionHealth
from iceberg_maint.core.health.thresholds import expected_output_files, size_limits
from iceberg_maint.core.policy.data import Policy

BYTES_PER_SECOND = 20 * 1024 * 1024
"""The speed of a rewrite before any batch was committed."""
BATCH_SECONDS = 2.0
"""The time of a batch beside its bytes: its plan, its proof and its commit."""
FILE_SECONDS = 0.01
"""The time to open one input file."""
RUN_SECONDS = 10.0
"""The time of a run of one table beside its batches. The due partitions of the table share it."""
_ROWS_PER_OPEN = 100_000
"""Deleted rows that cost a scan as much as the open of one file."""


@dataclass(frozen=True, slots=True)
class Load:
    """What a batch, or the work on a partition, spends."""

    bytes: int = 0
    seconds: float = 0.0
    commits: float = 0.0


@dataclass(frozen=True, slots=True)
class Prediction:
    """What the work on one partition is predicted to remove, and what it costs. The cost includes the work that a
    conflict is expected to waste."""

    files_removed: int
    delete_files_removed: int
    deleted_rows: int
    conflict: float
    load: Load

    @property
    def gain(self) -> float:
        """Files that a scan no longer opens. A delete file counts as one, and so do many deleted rows."""
        return self.files_removed + self.delete_files_removed + self.deleted_rows / _ROWS_PER_OPEN


@dataclass(frozen=True, slots=True)
class Speed:
    """Input bytes per second of committed batches, measured or assumed."""

    bytes_per_second: float = BYTES_PER_SECOND


def predict(
    health: PartitionHealth,
    policy: Policy,
    target_bytes: int,
    candidate_bytes: int,
    now_ms: int,
    *,
    conflicts: int = 0,
    speed: Speed | None = None,
    run_seconds: float = 0.0,
) -> Prediction:
    """Predicts the work on a partition that reads `candidate_bytes`. `conflicts` are its batches in a row that other
    commits won. `run_seconds` is its share of the time of a run beside the batches."""
    limits = size_limits(policy.rewrite_data_files, target_bytes)
    if candidate_bytes > health.small_bytes:
        files = health.data_files
        removed = files - expected_output_files(health.data_bytes, target_bytes, limits)
    else:
        files = health.small_files
        removed = files - expected_output_files(health.small_bytes, target_bytes, limits)
    deletes = health.position_delete_files + health.deletion_vectors + health.applicable_equality_delete_files
    rows = health.position_delete_records + health.deletion_vector_records + health.equality_delete_records
    windows = policy.windows
    batches = max(
        1, ceil(candidate_bytes / windows.max_bytes_per_batch), ceil(files / windows.max_files_per_batch)
    )
    rate = (speed or Speed()).bytes_per_second
    seconds = run_seconds + batches * BATCH_SECONDS + files * FILE_SECONDS + candidate_bytes / rate
    conflict = conflict_probability(health, seconds / batches, now_ms, conflicts)
    return Prediction(
        max(0, removed), deletes, rows, conflict, Load(candidate_bytes, seconds, float(batches))
    )


def conflict_probability(health: PartitionHealth, batch_seconds: float, now_ms: int, conflicts: int) -> float:
    """Returns the probability that another commit wins over a batch of this duration.

    A partition without deletes has writers that append, and an append wins over no rewrite. Of the others the time
    since the last change is taken as the mean time between two changes. `conflicts` in a row raise the probability
    to at least n / (n + 1).
    """
    learned = conflicts / (conflicts + 1)
    if not health.delete_files or health.last_change_ms is None:
        return learned
    quiet_seconds = max(1.0, (now_ms - health.last_change_ms) / 1000)
    return max(learned, 1 - exp(-batch_seconds / quiet_seconds))
