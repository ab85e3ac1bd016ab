"""Work: what a batch does, one class per operation with the fields of that operation.

The union is closed: a consumer matches all six and ends with `typing.assert_never`. A seventh operation is
then a type error in every consumer that does not handle it.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import ClassVar, assert_never

from iceberg_maint.core.model.ids import Operation
from iceberg_maint.core.planning.batch_memory import MemoryNeed
from iceberg_maint.core.planning.inputs import EqualityDeleteFile, FileGroup, PositionDeleteFile, RowWriter
from iceberg_maint.core.planning.layout_gain import PlannedLayout


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
    """Write new delete files with the positions that the position deletes mark in the data files of the
    groups.

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
    """Move orphan files to the trash. With `sweep`, first empty the trash past its hold (see `may_sweep`)."""

    operation: ClassVar[Operation] = Operation.REMOVE_ORPHAN_FILES

    sweep: bool

    @property
    def strategy(self) -> Strategy:
        """Whether the pass sweeps."""
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
    match work:
        case RewriteDataFiles() | ConvertEqualityDeletes() | RewritePositionDeleteFiles():
            return work
        case RewriteManifests() | ExpireSnapshots() | RemoveOrphanFiles():
            raise ValueError(f"{work.operation} writes no data files or delete files")
        case _:
            assert_never(work)


def table_work(work: Work) -> MetadataWork | RemoveOrphanFiles:
    """Returns the work as work on the table as a whole. Raises ValueError for work on files of partitions."""
    match work:
        case RewriteManifests() | ExpireSnapshots() | RemoveOrphanFiles():
            return work
        case RewriteDataFiles() | ConvertEqualityDeletes() | RewritePositionDeleteFiles():
            raise ValueError(f"{work.operation} works on files of partitions")
        case _:
            assert_never(work)
