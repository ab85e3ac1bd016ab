"""Predictions: what a rewrite leaves and takes, from its inputs and from earlier batches of the table."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from statistics import median

from iceberg_maint.core.decisions.priority import BATCH_SECONDS, BYTES_PER_SECOND, FILE_SECONDS
from iceberg_maint.core.health.thresholds import expected_output_files, size_limits
from iceberg_maint.core.model.codec import OMITTED_IF_NONE
from iceberg_maint.core.planning.batch_cost import BatchCost, batch_cost
from iceberg_maint.core.planning.batch_limit import CommitTrial
from iceberg_maint.core.planning.cost_model import Parts, WorkSize, learned_parts, predicted_seconds
from iceberg_maint.core.planning.plan import Batch
from iceberg_maint.core.planning.work import RewriteDataFiles
from iceberg_maint.core.policy.data import RewriteDataFilesPolicy

_ASSUMED: Parts = (BATCH_SECONDS / 2, 0.1, FILE_SECONDS, 1024 * 1024 / BYTES_PER_SECOND, BATCH_SECONDS)


@dataclass(frozen=True, slots=True)
class BatchPrediction:
    """What a rewrite was predicted to leave and to take, before it ran. `learned_from` counts the earlier batches of
    the table that corrected the seconds. `cpu_seconds` and `output_bytes` are None in outcomes of earlier versions."""

    output_files: int
    seconds: float
    learned_from: int
    cpu_seconds: float | None = field(default=None, metadata={OMITTED_IF_NONE: True})
    output_bytes: int | None = field(default=None, metadata={OMITTED_IF_NONE: True})


def predict_batch(
    batch: Batch, policy: RewriteDataFilesPolicy, trials: Sequence[CommitTrial], earlier: int
) -> BatchPrediction | None:
    """Returns the prediction of a rewrite of data files, None for other work. `earlier` counts the batches that the
    session ran before. The seconds are learned from the batches of the same strategy that landed. The bytes are the
    input's without the share of deleted rows, times the median ratio of those batches."""
    if not isinstance(batch.work, RewriteDataFiles):
        return None
    target = batch.target_file_size_bytes
    limits = size_limits(policy, target)
    outputs = sum(
        expected_output_files(sum(f.size_bytes for f in g.files), target, limits) for g in batch.groups
    )
    cost = batch_cost(batch, earlier)
    landed = [t for t in trials if t.landed and t.seconds > 0]
    same = [(t, c) for t in landed if (c := t.cost) is not None and c.strategy == cost.strategy]
    size = _size(batch.input_files, batch.input_bytes, cost)
    wall = [(_size(t.size.files, t.size.input_bytes, c), t.seconds) for t, c in same]
    cpu = [
        (_size(t.size.files, t.size.input_bytes, c), c.cpu_seconds)
        for t, c in same
        if c.cpu_seconds is not None
    ]
    ratios = [t.output_bytes / kept for t, c in same if (kept := c.kept_bytes(t.size.input_bytes)) > 0]
    kept_bytes = cost.kept_bytes(batch.input_bytes)
    return BatchPrediction(
        outputs,
        round(predicted_seconds(size, learned_parts(_ASSUMED, wall)), 3),
        len(same),
        round(predicted_seconds(size, learned_parts(_ASSUMED, cpu)), 3),
        round(kept_bytes * (median(ratios) if ratios else 1.0)),
    )


def _size(files: int, input_bytes: int, cost: BatchCost) -> WorkSize:
    return WorkSize(cost.groups, files, input_bytes, cost.delete_files, cost.earlier)
