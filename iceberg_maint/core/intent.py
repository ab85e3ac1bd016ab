"""The intent of a batch: what its commit means to change, held by the gate against what it would."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Protocol

from iceberg_maint.core.change import Identity
from iceberg_maint.core.ids import Operation
from iceberg_maint.core.plan import Batch
from iceberg_maint.core.state import FileKind


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
    delete files (paths) that marked positions of it at the pinned snapshot."""

    identity: Identity
    kind: FileKind
    data_file: str | None
    record_count: int
    before: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class GroupIntent:
    """One file group, all of one partition of `spec_id`: the paths it removes and those it adds
    or, of a conversion, the data files it has `examined` and the delete files it adds for them."""

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
    any more: every one they applied to is removed or has been examined.
    """

    table_uuid: str
    format_version: int
    snapshot_id: int
    snapshot_sequence_number: int
    schema_id: int
    groups: tuple[GroupIntent, ...]
    dropped: frozenset[str] = frozenset()

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
        """Paths of all data files that a conversion has held against the dropped deletes."""
        return frozenset().union(*(g.examined for g in self.groups))

    @property
    def deletes(self) -> tuple[AddedDelete, ...]:
        """All delete files to add."""
        return tuple(d for g in self.groups for d in g.deletes)


def is_conversion(batch: Batch) -> bool:
    """Whether the batch turns equality deletes into positions and leaves its data files alone."""
    return batch.operation == Operation.CONVERT_EQUALITY_DELETES


def intent_of(batch: Batch, written: Iterable[NewFile]) -> Intent:
    """The intent of a batch for which these files were written."""
    added: list[set[str]] = [set() for _ in batch.groups]
    deletes: list[list[AddedDelete]] = [[] for _ in batch.groups]
    before = {f.path: f.delete_files for g in batch.groups for f in g.files if f.delete_files}
    for file in written:
        if file.kind is FileKind.DATA:
            added[file.group].add(file.path)
        else:
            named = file.referenced_data_file
            deletes[file.group].append(
                AddedDelete(
                    identity=(file.path, file.content_offset),
                    kind=file.kind,
                    data_file=named,
                    record_count=file.record_count,
                    before=before.get(named, ()) if named is not None else (),
                )
            )
    none: frozenset[str] = frozenset()
    groups = []
    for group, new, marks in zip(batch.groups, added, deletes, strict=True):
        paths = frozenset(f.path for f in group.files)
        removed, examined = (none, paths) if is_conversion(batch) else (paths, none)
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
    )
