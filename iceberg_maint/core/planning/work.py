"""Work: what a batch does, one class per operation, with its input files and the gain of a sort.

The union is closed: a consumer matches all six and ends with `typing.assert_never`. A seventh operation is
then a type error in every consumer that does not handle it.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, ClassVar

from iceberg_maint.core.health.layout import Overlap, SortFile, overlap_of
from iceberg_maint.core.model.columns import range_of
from iceberg_maint.core.model.ids import Operation, PartitionKey
from iceberg_maint.core.model.table_state import LayoutOrder
from iceberg_maint.core.planning.batch_memory import MemoryNeed


@dataclass(frozen=True, slots=True)
class InputFile:
    """One data file to rewrite. `delete_files` are the paths of the position deletes and deletion vectors
    that apply to it at the pinned snapshot. `first_row_id` is as in `LiveFile`."""

    path: str
    size_bytes: int
    record_count: int
    data_sequence_number: int
    delete_files: tuple[str, ...] = ()
    first_row_id: int | None = None


@dataclass(frozen=True, slots=True)
class EqualityDeleteFile:
    """One equality delete file that a batch applies to its data files.

    It applies to data with a strictly lower sequence number in its own spec and partition. If `everywhere`,
    it applies in all specs and partitions. `drop`: after the batch's commit no live data file needs it, so
    the same commit removes it.
    """

    path: str
    spec_id: int
    partition: PartitionKey
    everywhere: bool
    equality_ids: tuple[int, ...]
    data_sequence_number: int
    record_count: int
    size_bytes: int
    drop: bool

    @property
    def identity(self) -> tuple[str, int | None]:
        """Its path. The offset is None."""
        return self.path, None


@dataclass(frozen=True, slots=True)
class PositionDeleteFile:
    """One position delete file or deletion vector that the batch's commit removes.

    Its positions in live data files are written to new delete files. If it is `void`, it applies to no live data
    file and is not read. `referenced_data_file` is None if it is scoped to its partition.
    """

    path: str
    spec_id: int
    partition: PartitionKey
    data_sequence_number: int
    record_count: int
    size_bytes: int
    referenced_data_file: str | None = None
    content_offset: int | None = None
    void: bool = False

    @property
    def identity(self) -> tuple[str, int | None]:
        """Its path and, for a deletion vector, its offset: several vectors share a path."""
        return self.path, self.content_offset


@dataclass(frozen=True, slots=True)
class RowWriter:
    """Whether `columnar` or `native` writes the rows of a batch, and why. `reason` is "" for the strategy that the
    policy names."""

    columnar: bool
    reason: str = ""


@dataclass(frozen=True, slots=True)
class FileGroup:
    """Files of one partition and spec that one job writes together. If the job writes only deletes, they are
    the data files that the deletes of the batch may apply to.

    `output_spec_id` differs from `spec_id` only if the policy moves files to the current spec.
    """

    partition: PartitionKey
    spec_id: int
    output_spec_id: int
    files: tuple[InputFile, ...]
    expected_output_files: int

    @property
    def input_bytes(self) -> int:
        """Bytes of the input files."""
        return sum(f.size_bytes for f in self.files)


@dataclass(frozen=True, slots=True)
class PlannedLayout:
    """The order in which a batch writes its files, the overlap of its inputs within each group, and the
    predicted overlap of its outputs."""

    order: LayoutOrder
    before: Overlap
    predicted: Overlap

    def plus(self, other: PlannedLayout) -> PlannedLayout:
        """Returns the sum of two groups of the same order."""
        return PlannedLayout(self.order, self.before.plus(other.before), self.predicted.plus(other.predicted))


@dataclass(frozen=True, slots=True)
class LayoutGain:
    """Overlap depths of a batch's files: the number of these files that a look-up by the sort column reads.
    They are the depth before, the predicted depth, and the depth measured from the written files."""

    depth_before: float
    depth_predicted: float
    depth_measured: float

    @property
    def is_gain(self) -> bool:
        """Whether the files overlap less than before."""
        return self.depth_measured < self.depth_before


def layout_gain(planned: PlannedLayout, written: Iterable[tuple[int, str]]) -> LayoutGain:
    """Measures the gain from the written files, each given by its group number and its content-file JSON."""
    by_group: dict[int, list[SortFile]] = {}
    for group, content in written:
        by_group.setdefault(group, []).append(_file(planned.order, json.loads(content)))
    measured = Overlap()
    for files in by_group.values():
        measured = measured.plus(overlap_of(files))
    return LayoutGain(planned.before.depth, planned.predicted.depth, measured.depth)


def _file(order: LayoutOrder, content: Mapping[str, Any]) -> SortFile:
    lower, upper = (_bounds(content.get(name)) for name in ("lower-bounds", "upper-bounds"))
    ranges = (range_of(c.type, lower.get(c.field_id), upper.get(c.field_id)) for c in order.measured)
    return SortFile(tuple(ranges), int(content["file-size-in-bytes"]))


def _bounds(node: Mapping[str, Any] | None) -> dict[int, bytes]:
    """Reads the form of Iceberg's `ContentFileParser`: two lists, the values in hexadecimal."""
    if node is None:
        return {}
    return {key: bytes.fromhex(value) for key, value in zip(node["keys"], node["values"], strict=True)}


class Strategy(StrEnum):
    """The label of a batch in records and documents. It is derived from the work."""

    NATIVE = "native"
    COLUMNAR = "columnar"
    ANTI_JOIN = "anti-join"
    SORTED = "sorted"
    CONVERT = "convert"
    MERGE = "merge"
    REGROUP = "regroup"
    EXPIRE = "expire"
    MARK = "mark"
    SWEEP_AND_MARK = "sweep-and-mark"


@dataclass(frozen=True, slots=True)
class RewriteDataFiles:
    """Write the rows of the groups again, without those that the deletes delete.

    `layout` is the order to write them in, None to keep their order. `equality_deletes` are all that may
    apply to a file of the groups at the pinned snapshot. `memory` is what applying them needs.
    `applied_deletes` are the position deletes and deletion vectors that apply to a file of the groups: the
    facts of the paths in `InputFile.delete_files`. `writer` writes the rows; None is `native`.
    """

    operation: ClassVar[Operation] = Operation.REWRITE_DATA_FILES

    groups: tuple[FileGroup, ...]
    layout: PlannedLayout | None = None
    equality_deletes: tuple[EqualityDeleteFile, ...] = ()
    memory: MemoryNeed | None = None
    applied_deletes: tuple[PositionDeleteFile, ...] = ()
    writer: RowWriter | None = None

    @property
    def strategy(self) -> Strategy:
        """`sort` if the work sorts, whether or not it applies deletes."""
        if self.layout is not None:
            return Strategy.SORTED
        if self.writer is not None and self.writer.columnar:
            return Strategy.COLUMNAR
        return Strategy.ANTI_JOIN if self.equality_deletes else Strategy.NATIVE


@dataclass(frozen=True, slots=True)
class ConvertEqualityDeletes:
    """Write, as position deletes, the positions that the equality deletes delete. The data files of the
    groups stay.

    Without groups the deletes apply to no live data file. They are dropped, and no file is read. `memory` and
    `applied_deletes` are as in `RewriteDataFiles`.
    """

    operation: ClassVar[Operation] = Operation.CONVERT_EQUALITY_DELETES
    strategy: ClassVar[Strategy] = Strategy.CONVERT

    equality_deletes: tuple[EqualityDeleteFile, ...]
    groups: tuple[FileGroup, ...] = ()
    memory: MemoryNeed | None = None
    applied_deletes: tuple[PositionDeleteFile, ...] = ()


@dataclass(frozen=True, slots=True)
class RewritePositionDeleteFiles:
    """Write new delete files with the deleted positions of the data files of the groups.

    `applied_deletes` are those that apply to one of these data files and are not in `position_deletes`.
    """

    operation: ClassVar[Operation] = Operation.REWRITE_POSITION_DELETE_FILES
    strategy: ClassVar[Strategy] = Strategy.MERGE

    groups: tuple[FileGroup, ...]
    position_deletes: tuple[PositionDeleteFile, ...]
    applied_deletes: tuple[PositionDeleteFile, ...] = ()


@dataclass(frozen=True, slots=True)
class RewriteManifests:
    """Regroup the entries of these manifests (paths), all of one spec and kind."""

    operation: ClassVar[Operation] = Operation.REWRITE_MANIFESTS
    strategy: ClassVar[Strategy] = Strategy.REGROUP

    manifests: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ExpireSnapshots:
    """Remove these snapshots (ids) and refs (names) from the table metadata."""

    operation: ClassVar[Operation] = Operation.EXPIRE_SNAPSHOTS
    strategy: ClassVar[Strategy] = Strategy.EXPIRE

    snapshots: tuple[int, ...]
    refs: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class RemoveOrphanFiles:
    """Move orphan files to the trash. With `sweep`, first delete the trash past its retention (see `may_sweep`)."""

    operation: ClassVar[Operation] = Operation.REMOVE_ORPHAN_FILES

    sweep: bool

    @property
    def strategy(self) -> Strategy:
        """Whether the scan sweeps."""
        return Strategy.SWEEP_AND_MARK if self.sweep else Strategy.MARK


FileWork = RewriteDataFiles | ConvertEqualityDeletes | RewritePositionDeleteFiles
"""Work on the files of partitions, committed with new files."""
MetadataWork = RewriteManifests | ExpireSnapshots
"""Work on the metadata of the table as a whole, committed without new files."""
Work = FileWork | MetadataWork | RemoveOrphanFiles
"""All work of a batch. Only `RemoveOrphanFiles` commits nothing."""


def writer_reason(work: Work) -> str:
    """Returns why the work has its strategy; "" for the strategy that the policy names."""
    return work.writer.reason if isinstance(work, RewriteDataFiles) and work.writer is not None else ""


def file_work(work: Work) -> FileWork:
    """Returns the work as work on files. Raises ValueError for other work, which writes no file."""
    if isinstance(work, FileWork):
        return work
    raise ValueError(f"{work.operation} writes no data files or delete files")


def table_work(work: Work) -> MetadataWork | RemoveOrphanFiles:
    """Returns the work as work on the table as a whole. Raises ValueError for work on files of partitions."""
    if isinstance(work, FileWork):
        raise ValueError(f"{work.operation} works on files of partitions")
    return work
