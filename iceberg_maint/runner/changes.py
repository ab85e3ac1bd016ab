"""What changed in a table since the snapshots that its open batches were planned on."""

from __future__ import annotations

from collections.abc import Collection

from iceberg_maint.core.commits.planned_files import (
    is_as_planned,
    is_as_planned_since,
    unknown_deletes,
)
from iceberg_maint.core.model.ids import PartitionKey
from iceberg_maint.core.model.table_state import ChangedFiles, TableState
from iceberg_maint.core.planning.plan import Batch
from iceberg_maint.runner.runtime import Runtime


class Changes:
    """The changes of one pinned table since earlier snapshots, in the partitions of its open batches. Each
    snapshot is compared once, whatever the number of batches."""

    def __init__(self, state: TableState, runtime: Runtime, batches: Collection[Batch]) -> None:
        self.state = state
        self.runtime = runtime
        self.ancestor_ids = frozenset(s.snapshot_id for s in state.ancestors())
        self._partitions: dict[int, set[PartitionKey]] = {}
        for batch in batches:
            self._partitions.setdefault(batch.snapshot_id, set()).update(batch.partitions)
        self._changed: dict[int, ChangedFiles | None] = {}

    def since(self, batch: Batch) -> ChangedFiles | None:
        """Returns what changed since the snapshot of the batch. None if that snapshot cannot be read."""
        snapshot_id = batch.snapshot_id
        if snapshot_id not in self._changed:
            partitions = self._partitions[snapshot_id]
            catalog = self.runtime.catalog_of(self.state.table)
            self._changed[snapshot_id] = self.runtime.interruptible(
                self.state.table, lambda: catalog.changed_files(self.state, snapshot_id, partitions)
            )
        return self._changed[snapshot_id]


def still_valid(batch: Batch, changes: Changes) -> bool:
    """Whether an open batch can be executed without a new plan.

    Table, schema and format version must be the same. The batch's snapshot must be an ancestor of the head.
    Every planned data file and delete file must be live at the head as the same file. The head must have no
    delete file that the plan does not know. A stored batch that lacks these facts is not valid. Only manifests
    that changed since the batch's snapshot are read, or all if that snapshot cannot be read.
    """
    state = changes.state
    if (state.uuid, state.schema_id, state.format_version) != (
        batch.table_uuid,
        batch.schema_id,
        batch.format_version,
    ):
        return False
    if batch.snapshot_id not in changes.ancestor_ids or unknown_deletes(batch):
        return False
    if state.snapshot is not None and state.snapshot.snapshot_id == batch.snapshot_id:
        return True
    changed = changes.since(batch)
    if changed is None:
        return is_as_planned(batch, changes.runtime.live_files(state, batch.partitions))
    return is_as_planned_since(batch, changed, state.specs)
