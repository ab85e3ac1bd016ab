"""The cost of a batch: what it is predicted from, and what it took."""

from __future__ import annotations

from dataclasses import dataclass, field

from iceberg_maint.core.model.codec import OMITTED_IF_NONE
from iceberg_maint.core.planning.plan import Batch


@dataclass(frozen=True, slots=True)
class BatchCost:
    """What a batch worked on, and the CPU seconds that it took.

    `earlier` counts the batches that the same engine ran before: the first ones of a session cost more. `rows` are
    the input rows. `cpu_seconds` are those of all processes of the batch: Python, its JVM and Spark's workers; None
    where they were not measured.
    """

    strategy: str
    groups: int
    rows: int
    delete_files: int
    earlier: int
    cpu_seconds: float | None = field(default=None, metadata={OMITTED_IF_NONE: True})


def batch_cost(batch: Batch, earlier: int, cpu_seconds: float | None = None) -> BatchCost:
    """Returns what the batch works on, with its CPU seconds if it has run."""
    return BatchCost(
        batch.strategy.value,
        len(batch.groups),
        sum(f.record_count for g in batch.groups for f in g.files),
        len(batch.applied_deletes) + len(batch.equality_deletes) + len(batch.position_deletes),
        earlier,
        None if cpu_seconds is None else round(cpu_seconds, 3),
    )
