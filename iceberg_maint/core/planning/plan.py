"""Plan: ordered batches of explicit input files at one pinned snapshot, and the flat form in which a batch is stored."""

from __future__ import annotations

from dataclasses import dataclass
from typing import assert_never

from iceberg_maint.core.model.codec import digest, dumps, loads
from iceberg_maint.core.model.ids import WHOLE_TABLE, Operation, PartitionKey
from iceberg_maint.core.model.reasons import Reason
from iceberg_maint.core.model.table_state import TableState
from iceberg_maint.core.planning.batch_memory import MemoryNeed
from iceberg_maint.core.planning.work import (
    ConvertEqualityDeletes,
    EqualityDeleteFile,
    ExpireSnapshots,
    FileGroup,
    PlannedLayout,
    PositionDeleteFile,
    RemoveOrphanFiles,
    RewriteDataFiles,
    RewriteManifests,
    RewritePositionDeleteFiles,
    RowWriter,
    Strategy,
    Work,
)


@dataclass(frozen=True, slots=True)
class Batch:
    """The unit of work, retry and commit: at most one commit.

    It contains what must still be true at its commit: table UUID, pinned snapshot, schema, specs, live
    inputs. `batch_id` is the digest of table, snapshot and inputs, so that every planner gives the same work
    the same name. `target_file_size_bytes` is that of the table, 0 for housekeeping.
    """

    batch_id: str
    table: str
    table_uuid: str
    format_version: int
    snapshot_id: int
    snapshot_sequence_number: int
    schema_id: int
    target_file_size_bytes: int
    work: Work
    reasons: tuple[Reason, ...] = ()

    @property
    def operation(self) -> Operation:
        """The operation of the work."""
        return self.work.operation

    @property
    def strategy(self) -> Strategy:
        """The label of the work in records and documents."""
        return self.work.strategy

    @property
    def groups(self) -> tuple[FileGroup, ...]:
        """The data files of the work, rewritten or kept. Housekeeping has none."""
        match self.work:
            case RewriteDataFiles() | ConvertEqualityDeletes() | RewritePositionDeleteFiles():
                return self.work.groups
            case RewriteManifests() | ExpireSnapshots() | RemoveOrphanFiles():
                return ()
            case _:
                assert_never(self.work)

    @property
    def equality_deletes(self) -> tuple[EqualityDeleteFile, ...]:
        """The equality deletes that the work applies to its data files or drops."""
        match self.work:
            case RewriteDataFiles() | ConvertEqualityDeletes():
                return self.work.equality_deletes
            case RewritePositionDeleteFiles() | RewriteManifests() | ExpireSnapshots() | RemoveOrphanFiles():
                return ()
            case _:
                assert_never(self.work)

    @property
    def position_deletes(self) -> tuple[PositionDeleteFile, ...]:
        """The position deletes and deletion vectors that the work replaces or drops."""
        match self.work:
            case RewritePositionDeleteFiles():
                return self.work.position_deletes
            case RewriteDataFiles() | ConvertEqualityDeletes():
                return ()
            case RewriteManifests() | ExpireSnapshots() | RemoveOrphanFiles():
                return ()
            case _:
                assert_never(self.work)

    @property
    def applied_deletes(self) -> tuple[PositionDeleteFile, ...]:
        """The other position deletes and deletion vectors that apply to a data file of the work."""
        match self.work:
            case RewriteDataFiles() | ConvertEqualityDeletes() | RewritePositionDeleteFiles():
                return self.work.applied_deletes
            case RewriteManifests() | ExpireSnapshots() | RemoveOrphanFiles():
                return ()
            case _:
                assert_never(self.work)

    @property
    def partitions(self) -> tuple[PartitionKey, ...]:
        """Partition keys, in order, each once. A batch that only drops deletes has those of the deletes.
        Housekeeping has the whole table."""
        held: tuple[FileGroup | EqualityDeleteFile | PositionDeleteFile, ...]
        match self.work:
            case RewriteDataFiles() | ConvertEqualityDeletes():
                held = self.work.groups or self.work.equality_deletes
            case RewritePositionDeleteFiles():
                held = (*self.work.groups, *self.work.position_deletes)
            case RewriteManifests() | ExpireSnapshots() | RemoveOrphanFiles():
                return (WHOLE_TABLE,)
            case _:
                assert_never(self.work)
        return tuple(dict.fromkeys(o.partition for o in held))

    @property
    def input_files(self) -> int:
        """Number of input data files."""
        return sum(len(g.files) for g in self.groups)

    @property
    def input_bytes(self) -> int:
        """Bytes of input data files. For a conversion: the equality deletes and the key columns (rows times
        key width, at most the file), because it reads no more. For a rewrite of position deletes: the bytes
        of those that it reads."""
        match self.work:
            case RewriteDataFiles():
                return sum(g.input_bytes for g in self.work.groups)
            case ConvertEqualityDeletes():
                if self.work.memory is None:
                    return 0
                width = self.work.memory.key_bytes
                files = (f for g in self.work.groups for f in g.files)
                keys = sum(min(f.size_bytes, f.record_count * width) for f in files)
                return keys + sum(d.size_bytes for d in self.work.equality_deletes)
            case RewritePositionDeleteFiles():
                return sum(d.size_bytes for d in self.work.position_deletes if not d.void)
            case RewriteManifests() | ExpireSnapshots() | RemoveOrphanFiles():
                return 0
            case _:
                assert_never(self.work)

    @property
    def expected_output_files(self) -> int:
        """The expected number of output files."""
        return sum(g.expected_output_files for g in self.groups)

    def paths(self) -> frozenset[str]:
        """Paths of all input data files."""
        return frozenset(f.path for g in self.groups for f in g.files)


def batch_id(table_uuid: str, operation: Operation, snapshot_id: int, paths: frozenset[str]) -> str:
    """Returns the deterministic id of a batch: 24 hexadecimal digits of a SHA-256."""
    return digest((table_uuid, operation, snapshot_id, tuple(sorted(paths))))[:24]


def batch_at(state: TableState, work: Work, inputs: frozenset[str], target_bytes: int = 0) -> Batch:
    """Returns the batch of this work at the pinned snapshot, named by its inputs.

    Raises ValueError if the table has no snapshot.
    """
    if state.snapshot is None:
        raise ValueError("an empty table has no batches")
    return Batch(
        batch_id=batch_id(state.uuid, work.operation, state.snapshot.snapshot_id, inputs),
        table=str(state.table),
        table_uuid=state.uuid,
        format_version=state.format_version,
        snapshot_id=state.snapshot.snapshot_id,
        snapshot_sequence_number=state.snapshot.sequence_number,
        schema_id=state.schema_id,
        target_file_size_bytes=target_bytes,
        work=work,
    )


@dataclass(frozen=True, slots=True)
class Leftover:
    """A due partition that the plan does not contain, or contains only in part, and why."""

    partition: PartitionKey
    reason: Reason
    files: int = 0
    bytes: int = 0


@dataclass(frozen=True, slots=True)
class Plan:
    """What `plan` prints and `run` executes. `plan_id` is the digest of the other fields."""

    plan_id: str
    table: str
    table_uuid: str
    operation: Operation
    snapshot_id: int | None
    batches: tuple[Batch, ...] = ()
    leftovers: tuple[Leftover, ...] = ()

    @property
    def input_files(self) -> int:
        """Input data files of all batches."""
        return sum(b.input_files for b in self.batches)

    @property
    def input_bytes(self) -> int:
        """Input bytes of all batches."""
        return sum(b.input_bytes for b in self.batches)


def make_plan(
    table: str,
    table_uuid: str,
    operation: Operation,
    snapshot_id: int | None,
    batches: tuple[Batch, ...],
    leftovers: tuple[Leftover, ...],
) -> Plan:
    """Returns a plan, named by its content."""
    body = (table_uuid, operation, snapshot_id, tuple(b.batch_id for b in batches), leftovers)
    return Plan(digest(body)[:24], table, table_uuid, operation, snapshot_id, batches, leftovers)


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
