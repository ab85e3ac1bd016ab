"""Shared batches: how many batches, each of one commit, the due partitions of a table need together, from stored health.

The planner fills batches in the same way (`core/planning`). It knows the files, so its batches can be fewer or more.
"""

from __future__ import annotations

from dataclasses import dataclass

from iceberg_maint.core.health.metrics import PartitionHealth
from iceberg_maint.core.model.ids import Operation
from iceberg_maint.core.model.reasons import PartitionDecision, Reason
from iceberg_maint.core.policy.data import Policy, RewriteStrategy, WindowsPolicy

_BatchKind = tuple[Operation, bool, bool]


@dataclass(frozen=True, slots=True)
class BatchPart:
    """What the work on one partition takes of a batch. Partitions of one table share a batch if their kind is the same: the
    operation, whether equality deletes apply, and whether rows are sorted."""

    kind: _BatchKind
    files: int
    input_bytes: int
    windows: WindowsPolicy
    is_columnar: bool

    def fits(self, partitions: int, files: int, input_bytes: int) -> bool:
        """Returns whether the policy allows a batch of this size."""
        windows = self.windows
        most_partitions = (
            windows.partitions_per_columnar_batch(input_bytes)
            if self.is_columnar
            else windows.partitions_per_batch
        )
        return (
            partitions <= most_partitions
            and files <= windows.max_files_per_batch
            and input_bytes <= windows.max_bytes_per_batch
        )


def batch_part(due: PartitionDecision, health: PartitionHealth, policy: Policy, files: int) -> BatchPart:
    """Returns what the work on a due partition takes of a batch, if it reads `files` data files."""
    is_sorted = due.reason is Reason.LAYOUT
    merges = due.operation is Operation.REWRITE_POSITION_DELETE_FILES
    return BatchPart(
        (due.operation, health.applicable_equality_delete_files > 0, is_sorted),
        files,
        due.candidate_bytes,
        policy.windows,
        policy.rewrite_data_files.strategy is RewriteStrategy.COLUMNAR and not (is_sorted or merges),
    )


class BatchCount:
    """Counts the batches of work that is added partition by partition."""

    def __init__(self) -> None:
        self._open: dict[tuple[str, _BatchKind], tuple[int, int, int]] = {}

    def more(self, table_uuid: str, part: BatchPart | None, batches: float) -> float:
        """Returns the batches that this work would add: none if the open batch of its table has room, else `batches`, which
        is what it needs alone. Work without a part shares no batch."""
        return batches if part is None or self._joined(table_uuid, part, batches) is None else 0.0

    def add(self, table_uuid: str, part: BatchPart | None, batches: float) -> None:
        """Adds the work. If it needs one batch and does not fit into the open one, its batch is open from now on."""
        if part is None or batches > 1:
            return
        alone = (1, part.files, part.input_bytes)
        self._open[table_uuid, part.kind] = self._joined(table_uuid, part, batches) or alone

    def _joined(self, table_uuid: str, part: BatchPart, batches: float) -> tuple[int, int, int] | None:
        """The size of the open batch with this work, None if there is none or the work does not fit."""
        current = self._open.get((table_uuid, part.kind))
        if current is None or batches > 1:
            return None
        partitions, files, input_bytes = current
        joined = (partitions + 1, files + part.files, input_bytes + part.input_bytes)
        return joined if part.fits(*joined) else None
