"""BatchBody: the flat form of a batch, as the ledger stores it and `plan --json` prints it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import assert_never

from iceberg_maint.core.model.codec import dumps, loads
from iceberg_maint.core.model.ids import Operation
from iceberg_maint.core.model.reasons import Reason
from iceberg_maint.core.planning.batch_memory import MemoryNeed
from iceberg_maint.core.planning.inputs import EqualityDeleteFile, FileGroup, PositionDeleteFile, RowWriter
from iceberg_maint.core.planning.layout_gain import PlannedLayout
from iceberg_maint.core.planning.plan import Batch
from iceberg_maint.core.planning.work import (
    ConvertEqualityDeletes,
    ExpireSnapshots,
    RemoveOrphanFiles,
    RewriteDataFiles,
    RewriteManifests,
    RewritePositionDeleteFiles,
    Strategy,
    Work,
)

_OF_FILES = frozenset({"groups", "applied_deletes"})
_FIELDS = {
    Operation.REWRITE_DATA_FILES: _OF_FILES | {"layout", "equality_deletes", "memory", "writer"},
    Operation.CONVERT_EQUALITY_DELETES: _OF_FILES | {"equality_deletes", "memory"},
    Operation.REWRITE_POSITION_DELETE_FILES: _OF_FILES | {"position_deletes"},
    Operation.REWRITE_MANIFESTS: frozenset({"manifests"}),
    Operation.EXPIRE_SNAPSHOTS: frozenset({"snapshots", "refs"}),
    Operation.REMOVE_ORPHAN_FILES: frozenset[str](),
}
"""The fields that only one operation has and that its batches may set."""
_OF_SOME = frozenset().union(*_FIELDS.values())


@dataclass(frozen=True, slots=True)
class BatchBody:
    """A batch of any operation. The fields of the other operations are empty.

    `strategy` is the label of the work. For an orphan pass it says whether the pass sweeps.
    """

    batch_id: str
    table: str
    table_uuid: str
    operation: Operation
    strategy: str
    format_version: int
    snapshot_id: int
    snapshot_sequence_number: int
    schema_id: int
    groups: tuple[FileGroup, ...]
    target_file_size_bytes: int
    reasons: tuple[Reason, ...] = ()
    equality_deletes: tuple[EqualityDeleteFile, ...] = ()
    memory: MemoryNeed | None = None
    layout: PlannedLayout | None = None
    position_deletes: tuple[PositionDeleteFile, ...] = ()
    manifests: tuple[str, ...] = ()
    snapshots: tuple[int, ...] = ()
    refs: tuple[str, ...] = ()
    applied_deletes: tuple[PositionDeleteFile, ...] = ()
    writer: RowWriter | None = None

    @classmethod
    def of(cls, batch: Batch) -> BatchBody:
        """The flat form of the batch."""
        work = batch.work
        own = {name: getattr(work, name) for name in _FIELDS[work.operation]}
        return cls(
            batch_id=batch.batch_id,
            table=batch.table,
            table_uuid=batch.table_uuid,
            operation=work.operation,
            strategy=work.strategy.value,
            format_version=batch.format_version,
            snapshot_id=batch.snapshot_id,
            snapshot_sequence_number=batch.snapshot_sequence_number,
            schema_id=batch.schema_id,
            target_file_size_bytes=batch.target_file_size_bytes,
            reasons=batch.reasons,
            **{"groups": (), **own},
        )

    def batch(self) -> Batch:
        """Returns the batch. Raises ValueError if a field is set that its operation does not have."""
        foreign = sorted(n for n in _OF_SOME - _FIELDS[self.operation] if getattr(self, n))
        if foreign:
            raise ValueError(f"batch {self.batch_id} of {self.operation} has a value in {foreign}")
        return Batch(
            batch_id=self.batch_id,
            table=self.table,
            table_uuid=self.table_uuid,
            format_version=self.format_version,
            snapshot_id=self.snapshot_id,
            snapshot_sequence_number=self.snapshot_sequence_number,
            schema_id=self.schema_id,
            target_file_size_bytes=self.target_file_size_bytes,
            work=self._work(),
            reasons=self.reasons,
        )

    def _work(self) -> Work:
        match self.operation:
            case Operation.REWRITE_DATA_FILES:
                return RewriteDataFiles(
                    self.groups,
                    self.layout,
                    self.equality_deletes,
                    self.memory,
                    self.applied_deletes,
                    self.writer,
                )
            case Operation.CONVERT_EQUALITY_DELETES:
                return ConvertEqualityDeletes(
                    self.equality_deletes, self.groups, self.memory, self.applied_deletes
                )
            case Operation.REWRITE_POSITION_DELETE_FILES:
                return RewritePositionDeleteFiles(self.groups, self.position_deletes, self.applied_deletes)
            case Operation.REWRITE_MANIFESTS:
                return RewriteManifests(self.manifests)
            case Operation.EXPIRE_SNAPSHOTS:
                return ExpireSnapshots(self.snapshots, self.refs)
            case Operation.REMOVE_ORPHAN_FILES:
                # Only this label sweeps.
                return RemoveOrphanFiles(sweep=self.strategy == Strategy.SWEEP_AND_MARK)
            case _:
                assert_never(self.operation)


def batch_text(batch: Batch) -> str:
    """Returns the JSON of the batch for the ledger."""
    return dumps(BatchBody.of(batch))


def batch_of_text(text: str) -> Batch:
    """Reads the JSON of `batch_text`. Raises MalformedTextError for another text."""
    return loads(BatchBody, text).batch()
