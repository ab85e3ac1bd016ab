"""The files that a batch was planned on, with the facts that identify each.

A path alone does not identify a file: another writer can remove a file and register the same path again,
with a sequence number above or below that of other deletes.
"""

from __future__ import annotations

import struct
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import chain

from iceberg_maint.core.commits.change import ROW_IDS_SINCE, Entry, Identity, Scope
from iceberg_maint.core.model.ids import PartitionKey
from iceberg_maint.core.model.partition_key import FIRST_SPEC_ID, PartitionSpec, encode_partition
from iceberg_maint.core.model.table_state import NO_ROW_IDS, ChangedFiles, FileKind, LiveFile
from iceberg_maint.core.planning.plan import Batch
from iceberg_maint.core.planning.work import EqualityDeleteFile, PositionDeleteFile

_FLOATS = ("float", "double")


@dataclass(frozen=True, slots=True)
class PlannedFile:
    """One data file or delete file of a plan, as it was live at the pinned snapshot.

    `partition` is the partition key. For a deletion vector `size_bytes` is the size of the blob.
    `first_row_id` is as in `LiveFile`. None is compared with nothing.
    """

    identity: Identity
    spec_id: int
    partition: PartitionKey
    data_sequence_number: int
    record_count: int
    size_bytes: int
    first_row_id: int | None = None

    @classmethod
    def of_live(cls, file: LiveFile) -> PlannedFile:
        """Returns the facts of a live file."""
        return cls(
            (file.path, file.content_offset),
            file.spec_id,
            file.partition,
            file.data_sequence_number,
            file.record_count,
            file.size_bytes,
            file.first_row_id,
        )

    @classmethod
    def of_entry(cls, entry: Entry, partition: PartitionKey) -> PlannedFile:
        """Returns the facts of a manifest entry in the partition with this key."""
        return cls(
            entry.identity,
            entry.scope[0],
            partition,
            entry.data_sequence_number,
            entry.record_count,
            entry.size_bytes,
            NO_ROW_IDS if entry.first_row_id is None else entry.first_row_id,
        )

    def difference(self, other: PlannedFile) -> str:
        """Describes how another file with this path differs; empty if it is the same file."""
        facts = (
            ("data sequence number", self.data_sequence_number, other.data_sequence_number),
            ("rows", self.record_count, other.record_count),
            ("bytes", self.size_bytes, other.size_bytes),
            ("spec", self.spec_id, other.spec_id),
            ("partition", self.partition, other.partition),
            ("first row id", self.first_row_id, other.first_row_id),
        )
        return ", ".join(
            f"{what} {current}, was {planned}"
            for what, planned, current in facts
            if planned != current and None not in (planned, current)
        )


def planned_data_files(batch: Batch) -> Iterator[PlannedFile]:
    """Yields the data files of the batch."""
    for group in batch.groups:
        for file in group.files:
            yield PlannedFile(
                (file.path, None),
                group.spec_id,
                group.partition,
                file.data_sequence_number,
                file.record_count,
                file.size_bytes,
                file.first_row_id,
            )


def planned_delete_files(batch: Batch) -> Iterator[PlannedFile]:
    """Yields the delete files that the batch applies, drops or replaces."""
    deletes: Iterable[EqualityDeleteFile | PositionDeleteFile] = chain(
        batch.equality_deletes, batch.position_deletes, batch.applied_deletes
    )
    for delete in deletes:
        yield PlannedFile(
            delete.identity,
            delete.spec_id,
            delete.partition,
            delete.data_sequence_number,
            delete.record_count,
            delete.size_bytes,
        )


def is_as_planned(batch: Batch, live: Iterable[LiveFile]) -> bool:
    """Whether the batch fits the live files of its partitions and the global equality deletes: every planned
    file is live with the planned facts, and no delete file is newer than the plan."""
    files = tuple(live)
    are_live = planned_files(batch).issubset(map(PlannedFile.of_live, files))
    return are_live and not _has_newer_delete(batch, files)


def is_as_planned_since(batch: Batch, changed: ChangedFiles, specs: Mapping[int, PartitionSpec]) -> bool:
    """Whether the batch fits the table, from what changed since its pinned snapshot. Manifests that both
    snapshots list hold the planned files as they were planned.

    A planned file of a changed manifest must be in one of each side, with the planned facts. `changed` may
    have files of other partitions.
    """
    if unknown_row_ids(batch):
        return False
    planned = planned_files(batch)
    identities = {p.identity for p in planned}
    removed, added = (
        Counter(PlannedFile.of_live(f) for f in files if (f.path, f.content_offset) in identities)
        for files in (changed.removed, changed.added)
    )
    if removed != added or not planned.issuperset(added) or max(added.values(), default=1) > 1:
        return False
    return not _has_newer_delete(batch, (f for f in changed.added if _concerns(f, batch, specs)))


def planned_files(batch: Batch) -> set[PlannedFile]:
    """Returns the data files and the delete files of the batch."""
    return {*planned_data_files(batch), *planned_delete_files(batch)}


def _has_newer_delete(batch: Batch, files: Iterable[LiveFile]) -> bool:
    deletes = (f.data_sequence_number for f in files if f.kind is not FileKind.DATA)
    return max(deletes, default=0) > batch.snapshot_sequence_number


def _concerns(file: LiveFile, batch: Batch, specs: Mapping[int, PartitionSpec]) -> bool:
    everywhere = file.kind is FileKind.EQUALITY_DELETES and specs[file.spec_id].is_unpartitioned
    return everywhere or file.partition in batch.partitions


def unknown_deletes(batch: Batch) -> frozenset[str]:
    """Returns the paths of delete files that apply to a data file of the batch and whose facts the batch
    lacks."""
    applied = {path for g in batch.groups for f in g.files for path in f.delete_files}
    return frozenset(applied - {d.path for d in (*batch.position_deletes, *batch.applied_deletes)})


def unknown_row_ids(batch: Batch) -> frozenset[str]:
    """Returns the paths of data files whose first row ids the batch lacks. A path registered again with its old sequence number can have other row ids."""
    if batch.format_version < ROW_IDS_SINCE:
        return frozenset()
    return frozenset(f.path for g in batch.groups for f in g.files if f.first_row_id is None)


def partition_key(scope: Scope, specs: Mapping[int, PartitionSpec]) -> PartitionKey:
    """Returns the partition key of a scope; the scope holds floats as their bits."""
    spec_id, partition = scope
    spec = specs.get(spec_id)
    if spec is None:
        return PartitionKey(f"spec={spec_id}")
    if spec.is_unpartitioned:
        return encode_partition(spec, (), FIRST_SPEC_ID)
    values = [
        struct.unpack(">d", value)[0] if field.result_type in _FLOATS and isinstance(value, bytes) else value
        for field, value in zip(spec.fields, partition, strict=True)
    ]
    return encode_partition(spec, values, FIRST_SPEC_ID)  # type: ignore[arg-type]
