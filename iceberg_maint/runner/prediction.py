"""The prediction of a batch from what the ledger has of its table and of the fleet."""

from __future__ import annotations

from iceberg_maint.core.planning.plan import Batch
from iceberg_maint.core.planning.prediction import (
    FLEET_LEARNED_FROM,
    LEARNED_FROM,
    BatchPrediction,
    predict_batch,
)
from iceberg_maint.core.planning.work import RewriteDataFiles
from iceberg_maint.core.policy.data import Policy
from iceberg_maint.runner.runtime import Runtime


def predicted(batch: Batch, policy: Policy, runtime: Runtime, earlier: int) -> BatchPrediction | None:
    """Returns what a rewrite of data files is predicted to leave and to take, None for other work. `earlier` counts the batches
    that the engine ran before."""
    if not isinstance(batch.work, RewriteDataFiles):
        return None
    ledger = runtime.ledger
    trials = ledger.commit_trials(batch.table_uuid, batch.operation, LEARNED_FROM)
    return predict_batch(
        batch, policy.rewrite_data_files, trials, earlier, ledger.fleet_rewrites(FLEET_LEARNED_FROM)
    )
