"""Predictions: what a rewrite leaves and takes, from its inputs and from earlier batches of the table."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median

from iceberg_maint.core.health.thresholds import expected_output_files, size_limits
from iceberg_maint.core.planning.batch_cost import BatchCost, batch_cost
from iceberg_maint.core.planning.batch_limit import CommitTrial
from iceberg_maint.core.planning.cost_model import (
    Parts,
    WorkSize,
    correction,
    learned_parts,
    predicted_seconds,
)
from iceberg_maint.core.planning.plan import Batch
from iceberg_maint.core.planning.work import RewriteDataFiles, Strategy
from iceberg_maint.core.policy.data import RewriteDataFilesPolicy

LEARNED_FROM = 10
"""Earlier batches of a table that correct its predictions."""
FLEET_LEARNED_FROM = 80
"""Earlier batches of the fleet that the parts are learned from."""
_ASSUMED: Mapping[str, Parts] = {
    Strategy.COLUMNAR: (0.1, 0.02, 0.001, 0.035, 1.0),
    Strategy.NATIVE: (0.25, 0.07, 0.01, 0.045, 1.0),
    Strategy.SORTED: (0.3, 0.08, 0.01, 0.062, 1.0),
}
"""Seconds of the parts before any batch, as measured by `bench.predictions`. The first batches scale them."""


@dataclass(frozen=True, slots=True)
class BatchPrediction:
    """What a rewrite was predicted to leave and to take, before it ran. `learned_from` counts the earlier batches, of the
    fleet or of the table alone, that the seconds were learned from."""

    output_files: int
    seconds: float
    learned_from: int
    cpu_seconds: float
    output_bytes: int


def predict_batch(
    batch: Batch,
    policy: RewriteDataFilesPolicy,
    trials: Sequence[CommitTrial],
    earlier: int,
    fleet: Sequence[CommitTrial] = (),
) -> BatchPrediction | None:
    """Returns the prediction of a rewrite of data files, None for other work. `earlier` counts the batches that the
    session ran before. The seconds are learned from the batches of the same strategy that landed: their parts from the `fleet`
    (from the table's `trials` without it), a factor from the trials. The bytes are the
    input's without the share of deleted rows, times the median ratio of the table's batches."""
    if not isinstance(batch.work, RewriteDataFiles):
        return None
    target = batch.target_file_size_bytes
    limits = size_limits(policy, target)
    outputs = sum(
        expected_output_files(sum(f.size_bytes for f in g.files), target, limits) for g in batch.groups
    )
    cost = batch_cost(batch, earlier)
    own = _landed(trials, cost.strategy)
    every = _landed(fleet, cost.strategy) or own
    size = _size(batch.input_files, batch.input_bytes, cost)
    assumed = _ASSUMED.get(cost.strategy, _ASSUMED[Strategy.NATIVE])

    def seconds(measured: Callable[[CommitTrial, BatchCost], float | None]) -> float:
        parts = learned_parts(assumed, _sizes(every, measured))
        return round(predicted_seconds(size, parts) * correction(parts, _sizes(own, measured)), 3)

    ratios = [t.output_bytes / kept for t, c in own if (kept := c.kept_bytes(t.size.input_bytes)) > 0]
    kept_bytes = cost.kept_bytes(batch.input_bytes)
    return BatchPrediction(
        outputs,
        seconds(lambda trial, _: trial.seconds),
        max(len(every), len(own)),
        seconds(lambda _, cost: cost.cpu_seconds),
        round(kept_bytes * (median(ratios) if ratios else 1.0)),
    )


def _landed(trials: Sequence[CommitTrial], strategy: str) -> list[tuple[CommitTrial, BatchCost]]:
    return [
        (t, c)
        for t in trials
        if t.landed and t.seconds > 0 and (c := t.cost) is not None and c.strategy == strategy
    ]


def _sizes(
    landed: Sequence[tuple[CommitTrial, BatchCost]],
    measured: Callable[[CommitTrial, BatchCost], float | None],
) -> list[tuple[WorkSize, float]]:
    return [
        (_size(t.size.files, t.size.input_bytes, c), seconds)
        for t, c in landed
        if (seconds := measured(t, c)) is not None
    ]


def _size(input_files: int, input_bytes: int, cost: BatchCost) -> WorkSize:
    return WorkSize(cost.groups, input_files, input_bytes, cost.delete_files, cost.earlier)
