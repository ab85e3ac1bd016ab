"""Predictions: the output files and the seconds of a rewrite, from its inputs and from earlier batches of the table."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

from iceberg_maint.core.decisions.priority import BATCH_SECONDS, BYTES_PER_SECOND, FILE_SECONDS
from iceberg_maint.core.health.thresholds import expected_output_files, size_limits
from iceberg_maint.core.planning.batch_limit import CommitTrial
from iceberg_maint.core.planning.plan import Batch
from iceberg_maint.core.planning.work import RewriteDataFiles
from iceberg_maint.core.policy.data import RewriteDataFilesPolicy


@dataclass(frozen=True, slots=True)
class BatchPrediction:
    """What a rewrite was predicted to leave and to take, before it ran. `learned_from` counts the earlier batches of
    the table that corrected the seconds."""

    output_files: int
    seconds: float
    learned_from: int


def predict_batch(
    batch: Batch, policy: RewriteDataFilesPolicy, trials: Sequence[CommitTrial]
) -> BatchPrediction | None:
    """Returns the prediction of a rewrite of data files. None for other work. The seconds are those of the model, times
    the median ratio of measured to modelled seconds of the batches that landed."""
    if not isinstance(batch.work, RewriteDataFiles):
        return None
    target = batch.target_file_size_bytes
    limits = size_limits(policy, target)
    outputs = sum(
        expected_output_files(sum(f.size_bytes for f in g.files), target, limits) for g in batch.groups
    )
    ratios = [
        t.seconds / _seconds(t.size.files, t.size.input_bytes) for t in trials if t.landed and t.seconds > 0
    ]
    seconds = _seconds(batch.input_files, batch.input_bytes) * (median(ratios) if ratios else 1.0)
    return BatchPrediction(outputs, round(seconds, 3), len(ratios))


def _seconds(files: int, input_bytes: int) -> float:
    return BATCH_SECONDS + files * FILE_SECONDS + input_bytes / BYTES_PER_SECOND
