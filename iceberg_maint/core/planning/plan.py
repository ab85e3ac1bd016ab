"""Plan: ordered batches of explicit input files at one pinned snapshot. Plain, frozen data."""

from __future__ import annotations

from dataclasses import dataclass

from iceberg_maint.core.model.codec import digest
from iceberg_maint.core.model.ids import HOUSEKEEPING_OPERATIONS, WHOLE_TABLE, Operation
from iceberg_maint.core.model.reasons import Reason
from iceberg_maint.core.model.table_state import TableState
from iceberg_maint.core.planning.layout_gain import PlannedLayout
from iceberg_maint.core.planning.memory import MemoryNeed


@dataclass(frozen=True, slots=True)
class InputFile:
    """One data file to rewrite. `delete_files` are the paths of the position deletes and
    deletion vectors that apply to it at the pinned snapshot."""

    path: str
    size_bytes: int
    record_count: int
    data_sequence_number: int
    delete_files: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class EqualityDeleteFile:
    """One equality delete file that a batch applies to its data files.

    It applies to data with a strictly lower sequence number, in its own spec and partition or,
    when `everywhere`, in all. `drop`: once the batch is committed no live data file needs it, so
    it goes with the same commit.
    """

    path: str
    spec_id: int
    partition: str
    everywhere: bool
    equality_ids: tuple[int, ...]
    data_sequence_number: int
    record_count: int
    size_bytes: int
    drop: bool

    @property
    def identity(self) -> tuple[str, int | None]:
        """Its path, and no offset."""
        return self.path, None


@dataclass(frozen=True, slots=True)
class PositionDeleteFile:
    """One position delete file or deletion vector that goes with the batch's commit.

    What it marks of live data files is written anew, unless it is `void`: it applies to none, and
    nothing is read of it. `referenced_data_file` is None where it is scoped to its partition.
    """

    path: str
    spec_id: int
    partition: str
    data_sequence_number: int
    record_count: int
    size_bytes: int
    referenced_data_file: str | None = None
    content_offset: int | None = None
    void: bool = False

    @property
    def identity(self) -> tuple[str, int | None]:
        """Path and, of a deletion vector, offset: vectors share a path."""
        return self.path, self.content_offset


@dataclass(frozen=True, slots=True)
class FileGroup:
    """Files of one partition and spec, written together by one job; where only deletes are written,
    the data files that those of the batch may apply to.

    `output_spec_id` differs from `spec_id` only when policy moves files to the current spec.
    """

    partition: str
    spec_id: int
    output_spec_id: int
    files: tuple[InputFile, ...]
    expected_output_files: int

    @property
    def input_bytes(self) -> int:
        """Bytes of the input files."""
        return sum(f.size_bytes for f in self.files)


@dataclass(frozen=True, slots=True)
class Batch:
    """The unit of work, retry and commit: at most one commit.

    What must still be true at commit is part of it: table UUID, pinned snapshot, schema, specs,
    live inputs. `batch_id` is the digest of table, snapshot and inputs, so that the same work
    has the same name whoever plans it. `equality_deletes` are all that may apply to a file of the
    batch at its snapshot, and with them comes the `memory` that applying them needs.

    `applied_deletes` are the position deletes and deletion vectors that apply to a data file of the batch
    at its snapshot and are not among `position_deletes`: the facts of the paths in `delete_files`.

    Housekeeping has no groups: `manifests` (paths) are regrouped, `snapshots` (ids) and `refs`
    (names) expire.
    """

    batch_id: str
    table: str
    table_uuid: str
    operation: str
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

    @property
    def partitions(self) -> tuple[str, ...]:
        """Partition keys, in order, each once; of a batch that only drops deletes, theirs; of
        housekeeping the whole table."""
        if self.operation in HOUSEKEEPING_OPERATIONS:
            return (WHOLE_TABLE,)
        held = (*(self.groups or self.equality_deletes), *self.position_deletes)
        return tuple(dict.fromkeys(o.partition for o in held))

    @property
    def input_files(self) -> int:
        """Number of input data files."""
        return sum(len(g.files) for g in self.groups)

    @property
    def input_bytes(self) -> int:
        """Bytes of input data files; of a conversion, which reads no more, their key columns (rows
        times key width, at most the file) and the equality deletes; of a rewrite of position deletes
        those that it reads."""
        if self.operation == Operation.REWRITE_POSITION_DELETE_FILES:
            return sum(d.size_bytes for d in self.position_deletes if not d.void)
        if self.operation != Operation.CONVERT_EQUALITY_DELETES:
            return sum(g.input_bytes for g in self.groups)
        if self.memory is None:
            return 0
        width = self.memory.key_bytes
        keys = sum(min(f.size_bytes, f.record_count * width) for g in self.groups for f in g.files)
        return keys + sum(d.size_bytes for d in self.equality_deletes)

    @property
    def expected_output_files(self) -> int:
        """Files the rewrite should leave."""
        return sum(g.expected_output_files for g in self.groups)

    def paths(self) -> frozenset[str]:
        """Paths of all input data files."""
        return frozenset(f.path for g in self.groups for f in g.files)


def batch_id(table_uuid: str, operation: str, snapshot_id: int, paths: frozenset[str]) -> str:
    """The deterministic id of a batch: 24 hexadecimal digits of a SHA-256."""
    return digest((table_uuid, operation, snapshot_id, tuple(sorted(paths))))[:24]


def batch_at(
    state: TableState, operation: Operation, strategy: str, inputs: frozenset[str], target_bytes: int = 0
) -> Batch:
    """The batch of these inputs at the pinned snapshot; what it does with them is the caller's to add.

    Raises ValueError for a table without a snapshot.
    """
    if state.snapshot is None:
        raise ValueError("an empty table has no batches")
    return Batch(
        batch_id=batch_id(state.uuid, operation, state.snapshot.snapshot_id, inputs),
        table=str(state.table),
        table_uuid=state.uuid,
        operation=operation,
        strategy=strategy,
        format_version=state.format_version,
        snapshot_id=state.snapshot.snapshot_id,
        snapshot_sequence_number=state.snapshot.sequence_number,
        schema_id=state.schema_id,
        groups=(),
        target_file_size_bytes=target_bytes,
    )


@dataclass(frozen=True, slots=True)
class Leftover:
    """A partition that is due and not in the plan, or only in part, and why."""

    partition: str
    reason: Reason
    files: int = 0
    bytes: int = 0


@dataclass(frozen=True, slots=True)
class Plan:
    """What `plan` prints and `run` executes. `plan_id` is the digest of the rest."""

    plan_id: str
    table: str
    table_uuid: str
    operation: str
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
    operation: str,
    snapshot_id: int | None,
    batches: tuple[Batch, ...],
    leftovers: tuple[Leftover, ...],
) -> Plan:
    """A plan named by its content."""
    body = (table_uuid, operation, snapshot_id, tuple(b.batch_id for b in batches), leftovers)
    return Plan(digest(body)[:24], table, table_uuid, operation, snapshot_id, batches, leftovers)
