"""Plan: ordered batches of explicit input files at one pinned snapshot, and the flat form in which a batch is stored."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields

from iceberg_maint.core.model.codec import digest, dumps, loads
from iceberg_maint.core.model.ids import WHOLE_TABLE, Operation, PartitionKey
from iceberg_maint.core.model.reasons import Decision, Reason, Verdict
from iceberg_maint.core.model.table_state import TableState
from iceberg_maint.core.planning.batch_memory import MemoryNeed
from iceberg_maint.core.planning.work import (
    ConvertEqualityDeletes,
    EqualityDeleteFile,
    ExpireSnapshots,
    FileGroup,
    FileWork,
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
        return self.work.groups if isinstance(self.work, FileWork) else ()

    @property
    def equality_deletes(self) -> tuple[EqualityDeleteFile, ...]:
        """The equality deletes that the work applies to its data files or drops."""
        if isinstance(self.work, RewriteDataFiles | ConvertEqualityDeletes):
            return self.work.equality_deletes
        return ()

    @property
    def position_deletes(self) -> tuple[PositionDeleteFile, ...]:
        """The position deletes and deletion vectors that the work replaces or drops."""
        return self.work.position_deletes if isinstance(self.work, RewritePositionDeleteFiles) else ()

    @property
    def applied_deletes(self) -> tuple[PositionDeleteFile, ...]:
        """The other position deletes and deletion vectors that apply to a data file of the work."""
        return self.work.applied_deletes if isinstance(self.work, FileWork) else ()

    @property
    def partitions(self) -> tuple[PartitionKey, ...]:
        """Partition keys, in order, each once. A batch that only drops deletes has those of the deletes.
        Housekeeping has the whole table."""
        if not isinstance(self.work, FileWork):
            return (WHOLE_TABLE,)
        inputs: tuple[FileGroup | EqualityDeleteFile | PositionDeleteFile, ...]
        inputs = (*self.groups, *self.position_deletes) or self.equality_deletes
        return tuple(dict.fromkeys(i.partition for i in inputs))

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


def plan_at(
    state: TableState, operation: Operation, batches: Iterable[Batch], leftovers: Iterable[Leftover]
) -> Plan:
    """Returns the plan of these batches at the pinned snapshot."""
    snapshot_id = state.snapshot.snapshot_id if state.snapshot else None
    return make_plan(str(state.table), state.uuid, operation, snapshot_id, tuple(batches), tuple(leftovers))


def leftovers_of(decision: Decision) -> list[Leftover]:
    """Returns the partitions that the decision defers or refuses."""
    return [
        Leftover(p.partition, p.reason, bytes=p.candidate_bytes)
        for p in decision.partitions
        if p.verdict in (Verdict.DEFER, Verdict.REFUSE)
    ]


_WORKS: Mapping[Operation, type[Work]] = {
    work.operation: work
    for work in (
        RewriteDataFiles,
        ConvertEqualityDeletes,
        RewritePositionDeleteFiles,
        RewriteManifests,
        ExpireSnapshots,
        RemoveOrphanFiles,
    )
}
_SWEEP = "sweep"
"""The field of the work of an orphan scan that its label says."""
_OF_WORK = {o: frozenset(f.name for f in fields(work)) - {_SWEEP} for o, work in _WORKS.items()}
"""The fields that only some operations have and that their batches may set."""
_OF_SOME = frozenset().union(*_OF_WORK.values())
_OF_ALL = frozenset(f.name for f in fields(Batch)) - {"work"}


@dataclass(frozen=True, slots=True)
class BatchBody:
    """A batch of any operation. The fields of the other operations are empty.

    `strategy` is the label of the work. For an orphan scan it says whether the scan sweeps.
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
        of_all = {name: getattr(batch, name) for name in _OF_ALL}
        of_work = {name: getattr(work, name) for name in _OF_WORK[work.operation]}
        return cls(
            operation=work.operation, strategy=work.strategy.value, **{"groups": ()} | of_all | of_work
        )

    def batch(self) -> Batch:
        """Returns the batch. Raises ValueError if a field is set that its operation does not have."""
        own = _OF_WORK[self.operation]
        foreign = sorted(n for n in _OF_SOME - own if getattr(self, n))
        if foreign:
            raise ValueError(f"batch {self.batch_id} of {self.operation} has a value in {foreign}")
        of_work = {name: getattr(self, name) for name in own}
        if self.operation is Operation.REMOVE_ORPHAN_FILES:
            # Only this label sweeps.
            of_work[_SWEEP] = self.strategy == Strategy.SWEEP_AND_MARK
        of_all = {name: getattr(self, name) for name in _OF_ALL}
        return Batch(work=_WORKS[self.operation](**of_work), **of_all)


def batch_text(batch: Batch) -> str:
    """Returns the JSON of the batch for the ledger."""
    return dumps(BatchBody.of(batch))


def batch_of_text(text: str) -> Batch:
    """Reads the JSON of `batch_text`. Raises MalformedTextError for another text."""
    return loads(BatchBody, text).batch()
