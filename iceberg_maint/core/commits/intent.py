"""The intent of a batch: the change that its commit should make. The gate compares it with the actual
change."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Protocol, assert_never

from iceberg_maint.core.commits.change import Entry, Identity
from iceberg_maint.core.commits.planned_files import (
    PlannedFile,
    planned_data_files,
    planned_delete_files,
    unknown_deletes,
    unknown_row_ids,
)
from iceberg_maint.core.model.ids import PartitionKey
from iceberg_maint.core.model.table_state import FileKind
from iceberg_maint.core.planning.plan import Batch
from iceberg_maint.core.planning.work import (
    ConvertEqualityDeletes,
    ExpireSnapshots,
    RemoveOrphanFiles,
    RewriteDataFiles,
    RewriteManifests,
    RewritePositionDeleteFiles,
    Work,
)


class NewFile(Protocol):
    """The fields of a written, uncommitted file that the gate needs (`ports.WrittenFile`).

    `group` is an index of the batch's groups. The last three fields are None for a data file.
    """

    @property
    def path(self) -> str: ...
    @property
    def kind(self) -> FileKind: ...
    @property
    def group(self) -> int: ...
    @property
    def record_count(self) -> int: ...
    @property
    def content_offset(self) -> int | None: ...
    @property
    def referenced_data_file(self) -> str | None: ...
    @property
    def replaces(self) -> tuple[str, ...] | None: ...


@dataclass(frozen=True, slots=True)
class AddedDelete:
    """A delete file to add.

    `data_file` is the data file that it names, `record_count` the number of positions that it marks in that
    file. `before` are the paths of the delete files that marked positions of the data file at the pinned
    snapshot. `data_sequence_number` is None if the delete file gets the number of the commit. A delete file
    that only replaces older ones keeps their highest number, so that it applies to no other data file than they
    did. `takes_over` are the paths of older position delete files of the data file that a conversion removes,
    because this one has their positions and its own.
    """

    identity: Identity
    kind: FileKind
    data_file: str | None
    record_count: int
    before: tuple[str, ...] = ()
    data_sequence_number: int | None = None
    takes_over: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class GroupIntent:
    """The change to one file group, which has one partition of `spec_id`. `removed` and `added` are paths of
    data files. If data files stay, `examined` are their paths, and `deletes` are the delete files to add for
    them."""

    partition: PartitionKey
    spec_id: int
    output_spec_id: int
    removed: frozenset[str] = frozenset()
    added: frozenset[str] = frozenset()
    examined: frozenset[str] = frozenset()
    deletes: tuple[AddedDelete, ...] = ()


@dataclass(frozen=True, slots=True)
class Intent:
    """The change that the batch should make, and the files that it was planned on.

    `dropped` are the paths of equality delete files to remove. No live data file needs them, because every
    data file that they applied to is removed or was examined. `replaced` are position deletes and deletion
    vectors to remove. The added delete files contain their positions of the examined data files, and they
    apply to no other data file.

    `data_files` are the removed or examined data files, `delete_files` the applied, dropped or replaced
    delete files. Both have the facts that distinguish them from other files of the same path. `unknown` are
    paths of files whose facts the plan lacks.
    """

    table_uuid: str
    format_version: int
    snapshot_id: int
    snapshot_sequence_number: int
    schema_id: int
    groups: tuple[GroupIntent, ...]
    dropped: frozenset[str] = frozenset()
    replaced: frozenset[Identity] = frozenset()
    data_files: tuple[PlannedFile, ...] = ()
    delete_files: tuple[PlannedFile, ...] = ()
    unknown: frozenset[str] = frozenset()

    @property
    def planned(self) -> dict[Identity, PlannedFile]:
        """All files that the plan relies on."""
        return {f.identity: f for f in (*self.data_files, *self.delete_files)}

    def drops(self, delete: Entry) -> bool:
        """Returns whether the plan removes this delete file."""
        return delete.path in self.dropped or delete.identity in self.replaced

    @property
    def removed(self) -> frozenset[str]:
        """Paths of all data files to remove."""
        return frozenset().union(*(g.removed for g in self.groups))

    @property
    def added(self) -> frozenset[str]:
        """Paths of all data files to add."""
        return frozenset().union(*(g.added for g in self.groups))

    @property
    def examined(self) -> frozenset[str]:
        """Paths of all data files that were examined for the removed deletes."""
        return frozenset().union(*(g.examined for g in self.groups))

    @property
    def deletes(self) -> tuple[AddedDelete, ...]:
        """All delete files to add."""
        return tuple(d for g in self.groups for d in g.deletes)


def keeps_data_files(work: Work) -> bool:
    """Returns whether the work leaves every data file in the table."""
    match work:
        case RewriteDataFiles():
            return False
        case ConvertEqualityDeletes() | RewritePositionDeleteFiles():
            return True
        case RewriteManifests() | ExpireSnapshots() | RemoveOrphanFiles():
            return True
        case _:
            assert_never(work)


def intent_of(batch: Batch, written: Iterable[NewFile]) -> Intent:
    """Returns the intent of a batch for which these files were written."""
    added: list[set[str]] = [set() for _ in batch.groups]
    deletes: list[list[AddedDelete]] = [[] for _ in batch.groups]
    before = {f.path: f.delete_files for g in batch.groups for f in g.files if f.delete_files}
    replaced = {d.path: d.data_sequence_number for d in batch.position_deletes if not d.void}
    for file in written:
        if file.kind is FileKind.DATA:
            added[file.group].add(file.path)
        else:
            named = file.referenced_data_file
            marking = before.get(named, ()) if named is not None else ()
            numbers = [replaced[path] for path in marking if path in replaced]
            deletes[file.group].append(
                AddedDelete(
                    identity=(file.path, file.content_offset),
                    kind=file.kind,
                    data_file=named,
                    record_count=file.record_count,
                    before=marking,
                    data_sequence_number=max(numbers, default=None),
                    takes_over=file.replaces or (),
                )
            )
    none: frozenset[str] = frozenset()
    taken_over = {(path, None) for of_one in deletes for d in of_one for path in d.takes_over}
    groups = []
    for group, new, marks in zip(batch.groups, added, deletes, strict=True):
        paths = frozenset(f.path for f in group.files)
        removed, examined = (none, paths) if keeps_data_files(batch.work) else (paths, none)
        groups.append(
            GroupIntent(
                group.partition,
                group.spec_id,
                group.output_spec_id,
                removed,
                frozenset(new),
                examined,
                tuple(marks),
            )
        )
    return Intent(
        table_uuid=batch.table_uuid,
        format_version=batch.format_version,
        snapshot_id=batch.snapshot_id,
        snapshot_sequence_number=batch.snapshot_sequence_number,
        schema_id=batch.schema_id,
        groups=tuple(groups),
        dropped=frozenset(d.path for d in batch.equality_deletes if d.drop),
        replaced=frozenset(d.identity for d in batch.position_deletes) | taken_over,
        data_files=tuple(planned_data_files(batch)),
        delete_files=tuple(planned_delete_files(batch)),
        unknown=unknown_deletes(batch) | (none if keeps_data_files(batch.work) else unknown_row_ids(batch)),
    )
