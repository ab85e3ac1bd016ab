"""Priority: the gain that maintenance of a partition is predicted to have, and its cost, from stored health.

The unit of the gain is one file that a scan of the partition no longer opens.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from math import ceil, exp

from iceberg_maint.core.decisions.history import CommitLosses
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
    """What a batch, or the work on a partition, spends. `cpu_seconds` are those of all processes; None if they were not
    measured."""

    bytes: int = 0
    seconds: float = 0.0
    commits: float = 0.0
    cpu_seconds: float | None = None


@dataclass(frozen=True, slots=True)
class Prediction:
    """What the work on one partition is predicted to remove, and what it costs. The cost includes the work that a
    conflict is expected to waste. `input_files` are the data files that it reads."""

    files_removed: int
    delete_files_removed: int
    deleted_rows: int
    conflict: float
    load: Load
    input_files: int = 0

    @property
    def gain(self) -> float:
        """Files that a scan no longer opens. A delete file counts as one, and so do many deleted rows."""
        return self.files_removed + self.delete_files_removed + self.deleted_rows / _ROWS_PER_OPEN


@dataclass(frozen=True, slots=True)
class Speed:
    """Input bytes per second, and per CPU second, of committed batches, measured or assumed. None: batches were measured
    in time only."""

    bytes_per_second: float = BYTES_PER_SECOND
    bytes_per_cpu_second: float | None = None


@dataclass(frozen=True, slots=True)
class Experience:
    """What earlier batches of a partition show. `conflicts` are those in a row that other commits won, `losses` those of all
    its recorded batches."""

    conflicts: int = 0
    losses: CommitLosses | None = None
    speed: Speed = field(default_factory=Speed)


def predict(
    health: PartitionHealth,
    policy: Policy,
    target_bytes: int,
    candidate_bytes: int,
    now_ms: int,
    experience: Experience | None = None,
) -> Prediction:
    """Predicts the work on a partition that reads `candidate_bytes`."""
    experience = experience or Experience()
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
    known = experience.speed
    beside = batches * BATCH_SECONDS + files * FILE_SECONDS
    seconds = beside + candidate_bytes / known.bytes_per_second
    cpu_rate = known.bytes_per_cpu_second
    cpu_seconds = None if cpu_rate is None else beside + candidate_bytes / cpu_rate
    conflict = conflict_probability(
        health, seconds / batches, now_ms, experience.conflicts, experience.losses
    )
    load = Load(candidate_bytes, seconds, float(batches), cpu_seconds)
    return Prediction(max(0, removed), deletes, rows, conflict, load, files)


def in_run(prediction: Prediction, run_seconds: float) -> Prediction:
    """Returns the prediction with the work's share of the time of a run beside the batches."""
    load = prediction.load
    cpu_seconds = None if load.cpu_seconds is None else load.cpu_seconds + run_seconds
    return replace(
        prediction, load=replace(load, seconds=load.seconds + run_seconds, cpu_seconds=cpu_seconds)
    )


def conflict_probability(
    health: PartitionHealth,
    batch_seconds: float,
    now_ms: int,
    conflicts: int,
    losses: CommitLosses | None = None,
) -> float:
    """Returns the probability that another commit wins over a batch of this duration.

    A partition without deletes has writers that append, and an append wins over no rewrite. Of the others the time
    since the last change is taken as the mean time between two changes: it counts as one lost batch of this time, beside the
    recorded ones. Without deletes only the recorded ones count. `conflicts` in a row raise the probability
    to at least n / (n + 1).
    """
    learned = conflicts / (conflicts + 1)
    past = losses or CommitLosses()
    lost, seconds = past.lost, past.seconds
    if health.delete_files and health.last_change_ms is not None:
        lost += 1
        seconds += max(1.0, (now_ms - health.last_change_ms) / 1000)
    if not lost:
        return learned
    return max(learned, 1 - exp(-batch_seconds * lost / max(seconds, 1.0)))
