"""The cost of a batch: what it is predicted from, and what it took."""

from __future__ import annotations

from dataclasses import dataclass

from iceberg_maint.core.planning.plan import Batch
from iceberg_maint.core.planning.work import Strategy


@dataclass(frozen=True, slots=True)
class BatchCost:
    """What a batch worked on, and the CPU seconds that it took.

    `deleted_rows` are those that position deletes and deletion vectors of the batch state. `earlier` counts the batches that the same engine ran before: the first ones of a session cost more. `rows` are
    the input rows. `cpu_seconds` are those of all processes of the batch: Python, its JVM and Spark's workers; None
    where they were not measured.
    """

    strategy: str
    groups: int
    rows: int
    delete_files: int
    deleted_rows: int
    earlier: int
    cpu_seconds: float | None = None

    def kept_bytes(self, input_bytes: int) -> float:
        """Returns the share of the input bytes whose rows are not known to be deleted."""
        return input_bytes * (1 - min(self.rows, self.deleted_rows) / self.rows) if self.rows else input_bytes


def batch_cost(
    batch: Batch, earlier: int, cpu_seconds: float | None = None, strategy: Strategy | None = None
) -> BatchCost:
    """Returns what the batch works on. If it has run: with its CPU seconds, and the strategy that wrote its rows where it is
    not that of the plan."""
    return BatchCost(
        (strategy or batch.strategy).value,
        len(batch.groups),
        sum(f.record_count for g in batch.groups for f in g.files),
        len(batch.applied_deletes) + len(batch.equality_deletes) + len(batch.position_deletes),
        sum(d.record_count for d in batch.applied_deletes),
        earlier,
        None if cpu_seconds is None else round(cpu_seconds, 3),
    )
