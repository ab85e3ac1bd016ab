"""The intent of a batch: what its commit means to change, held by the gate against what it would."""

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
    """A file written and not yet committed, as far as the gate looks at it (`ports.WrittenFile`).

    `group` indexes the batch's groups; the last two are None unless it is a delete file.
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


@dataclass(frozen=True, slots=True)
class AddedDelete:
    """A delete file to add: the data file it names, how many positions of it it marks, and the
    delete files (paths) that marked positions of it at the pinned snapshot.

    `data_sequence_number` is None where it takes the commit's own. One that takes the place of older
    ones keeps the highest of theirs: then it applies to no data file that they did not apply to.
    """

    identity: Identity
    kind: FileKind
    data_file: str | None
    record_count: int
    before: tuple[str, ...] = ()
    data_sequence_number: int | None = None


@dataclass(frozen=True, slots=True)
class GroupIntent:
    """One file group, all of one partition of `spec_id`: the paths it removes and those it adds or,
    where data files stay, those it has `examined` and the delete files it adds for them."""

    partition: str
    spec_id: int
    output_spec_id: int
    removed: frozenset[str] = frozenset()
    added: frozenset[str] = frozenset()
    examined: frozenset[str] = frozenset()
    deletes: tuple[AddedDelete, ...] = ()


@dataclass(frozen=True, slots=True)
class Intent:
    """What the batch means to change, and what it was planned on.

    `dropped` are the paths of equality delete files that go, because no live data file needs them
    any more: every one they applied to is removed or has been examined. `replaced` are the position
    deletes and deletion vectors that go, because what they mark of the data files examined is in the
    delete files added, and they apply to no other.

    `data_files` are the files removed or examined, `delete_files` those applied, dropped or replaced, with
    the facts that tell them from others of the same path. `unknown` are paths of files of
    which the plan lacks facts.
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
        """All files that the plan stands on."""
        return {f.identity: f for f in (*self.data_files, *self.delete_files)}

    def drops(self, delete: Entry) -> bool:
        """Whether the plan has this delete file go."""
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
        """Paths of all data files that have been held against the deletes that go."""
        return frozenset().union(*(g.examined for g in self.groups))

    @property
    def deletes(self) -> tuple[AddedDelete, ...]:
        """All delete files to add."""
        return tuple(d for g in self.groups for d in g.deletes)


def keeps_data_files(work: Work) -> bool:
    """Whether the work leaves every data file in the table."""
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
    """The intent of a batch for which these files were written."""
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
                )
            )
    none: frozenset[str] = frozenset()
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
        replaced=frozenset(d.identity for d in batch.position_deletes),
        data_files=tuple(planned_data_files(batch)),
        delete_files=tuple(planned_delete_files(batch)),
        unknown=unknown_deletes(batch) | (none if keeps_data_files(batch.work) else unknown_row_ids(batch)),
    )
