"""Change: what a commit is about to do to a table's live files, read from its manifests.

It costs manifests, not entries: manifests in the list before and after are not opened. Opened are
those of one list only, delete manifests younger than the pinned snapshot and, when a delete file
vanishes, the data manifests it could still apply to.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from iceberg_maint.core.state import EntryStatus, FileKind, Manifest, ManifestReader

Scope = tuple[int, tuple[object, ...]]
"""Spec id and raw partition tuple; the tuple is () for an unpartitioned spec."""

Identity = tuple[str, int | None]
"""A file's path, and for a deletion vector the offset of its blob."""


@dataclass(frozen=True, slots=True)
class MetadataReader:
    """How manifest lists (by location) and manifests are read."""

    manifest_list: Callable[[str], Sequence[Manifest]]
    manifest: ManifestReader


@dataclass(frozen=True, slots=True)
class TableVersion:
    """One version of a table's metadata at the head of `main`, as far as the gate looks at it.

    `unpartitioned_specs` are the ids of specs without fields or with void ones only.
    """

    table_uuid: str
    format_version: int
    schema_id: int
    spec_ids: frozenset[int]
    unpartitioned_specs: frozenset[int]
    snapshot_id: int
    parent_id: int | None
    manifests: tuple[Manifest, ...]


@dataclass(frozen=True, slots=True)
class Since:
    """A snapshot after the pinned one, up to the base of the commit."""

    snapshot_id: int
    operation: str
    adds_deletes: bool
    removes_deletes: bool
    ours: bool


@dataclass(frozen=True, slots=True)
class Lineage:
    """The snapshots between the pinned one (exclusive) and the base (inclusive), newest first.

    `pinned_exists`: the base still holds the pinned snapshot; `reaches_pinned`: the pinned one is
    among the ancestors of the base's head.
    """

    pinned_exists: bool
    reaches_pinned: bool
    since: tuple[Since, ...] = ()


@dataclass(frozen=True, slots=True)
class Entry:
    """One live manifest entry, inheritance resolved."""

    path: str
    kind: FileKind
    scope: Scope
    data_sequence_number: int
    record_count: int
    referenced_data_file: str | None = None
    content_offset: int | None = None

    @property
    def identity(self) -> Identity:
        """What tells this entry's file from every other."""
        return self.path, self.content_offset


@dataclass(frozen=True, slots=True)
class FileChange:
    """The difference of two manifest lists.

    `removed` and `added`: entries that leave or enter the live set, of any kind; `altered`: what
    survives and is no longer the same (identities, manifests), as sentences; `duplicates`: files
    live twice in the manifests read; `new_deletes`: deletes live before the commit with a data
    sequence number above the pinned one; `survivors`: live data files after the commit to which a
    vanished delete could apply; `live_before` and `live_after`: live data files by the manifest
    lists, None where a writer left counts out.
    """

    removed: tuple[Entry, ...]
    added: tuple[Entry, ...]
    altered: tuple[str, ...]
    duplicates: tuple[Identity, ...]
    new_deletes: tuple[Entry, ...]
    survivors: tuple[Entry, ...]
    live_before: int | None
    live_after: int | None


@dataclass(frozen=True, slots=True)
class Change:
    """What a commit is about to do: the metadata it builds on, the one it swaps in, the files."""

    base: TableVersion
    new: TableVersion
    lineage: Lineage
    files: FileChange


def read_file_change(
    before: Sequence[Manifest],
    after: Sequence[Manifest],
    pinned_sequence_number: int,
    unpartitioned: frozenset[int],
    read: ManifestReader,
) -> FileChange:
    """Reads the difference. Raises what `read` raises; a manifest that does not hold what its list
    says shows in `altered`."""
    opened = _Opened(read, unpartitioned)
    old, new = {m.path: m for m in before}, {m.path: m for m in after}
    for path in old.keys() & new.keys():
        if old[path] != new[path]:
            opened.altered.append(f"manifest {path} is listed with other facts than before")
    gone = opened.by_identity(m for p, m in old.items() if p not in new)
    come = opened.by_identity(m for p, m in new.items() if p not in old)
    for identity in gone.keys() & come.keys():
        if gone[identity] != come[identity]:
            opened.altered.append(f"{identity[0]} is kept as {come[identity]}, was {gone[identity]}")
    removed = tuple(e for i, e in gone.items() if i not in come)
    new_deletes = [
        entry
        for manifest in before
        if manifest.is_deletes and manifest.sequence_number > pinned_sequence_number
        for entry in opened.entries(manifest)
        if entry.data_sequence_number > pinned_sequence_number
    ]
    undecided = _undecided(removed)
    survivors = [
        entry
        for manifest in after
        if any(_may_hold_data_of(manifest, delete, unpartitioned) for delete in undecided)
        for entry in opened.entries(manifest)
    ]
    return FileChange(
        removed=removed,
        added=tuple(e for i, e in come.items() if i not in gone),
        altered=tuple(opened.altered),
        duplicates=tuple(opened.duplicates),
        new_deletes=tuple(new_deletes),
        survivors=tuple(survivors),
        live_before=_live_data_files(before),
        live_after=_live_data_files(after),
    )


class _Opened:
    """The manifests opened so far, each once."""

    def __init__(self, read: ManifestReader, unpartitioned: frozenset[int]) -> None:
        self.read = read
        self.unpartitioned = unpartitioned
        self.known: dict[str, list[Entry]] = {}
        self.altered: list[str] = []
        self.duplicates: list[Identity] = []

    def by_identity(self, manifests: Iterable[Manifest]) -> dict[Identity, Entry]:
        found: dict[Identity, Entry] = {}
        for manifest in manifests:
            for entry in self.entries(manifest):
                if entry.identity in found:
                    self.duplicates.append(entry.identity)
                found[entry.identity] = entry
        return found

    def entries(self, manifest: Manifest) -> list[Entry]:
        """The live entries; their number is compared with the manifest list's."""
        if manifest.path in self.known:
            return self.known[manifest.path]
        live: list[Entry] = []
        counts = dict.fromkeys(EntryStatus, 0)
        scopes: dict[tuple[object, ...], Scope] = {}
        for entry in self.read(manifest.path, manifest.sequence_number, manifest.added_snapshot_id):
            counts[entry.status] += 1
            if entry.status is EntryStatus.DELETED:
                continue
            scope = scopes.get(entry.partition)
            if scope is None:
                scope = scope_of(manifest.spec_id, entry.partition, self.unpartitioned)
                if not any(isinstance(v, float) for v in entry.partition):  # 0.0 == -0.0 as a key
                    scopes[entry.partition] = scope
            live.append(
                Entry(
                    entry.path,
                    entry.kind,
                    scope,
                    entry.data_sequence_number,
                    entry.record_count,
                    entry.referenced_data_file,
                    entry.content_offset,
                )
            )
        self._compare_counts(manifest, counts)
        self.known[manifest.path] = live
        return live

    def _compare_counts(self, manifest: Manifest, counts: Mapping[EntryStatus, int]) -> None:
        listed = {
            EntryStatus.ADDED: manifest.added_files,
            EntryStatus.EXISTING: manifest.existing_files,
            EntryStatus.DELETED: manifest.deleted_files,
        }
        for status, number in listed.items():
            if number is not None and number != counts[status]:
                self.altered.append(
                    f"manifest {manifest.path} holds {counts[status]} {status.name} entries, "
                    f"its list says {number}"
                )


def scope_of(spec_id: int, partition: tuple[object, ...], unpartitioned: frozenset[int]) -> Scope:
    """The scope, comparable as Iceberg compares partitions: floats by their bits, so that NaN is
    itself and 0.0 is not -0.0."""
    if spec_id in unpartitioned:
        return spec_id, ()
    return spec_id, tuple(struct.pack(">d", v) if isinstance(v, float) else v for v in partition)


def _undecided(removed: Sequence[Entry]) -> list[Entry]:
    """Vanished deletes that may still apply to something: not those of a file removed with them."""
    gone = {e.path for e in removed if e.kind is FileKind.DATA}
    return [e for e in removed if e.kind is not FileKind.DATA and e.referenced_data_file not in gone]


def _may_hold_data_of(manifest: Manifest, delete: Entry, unpartitioned: frozenset[int]) -> bool:
    """Whether the manifest may list data files to which the delete applies, by what its list says."""
    if manifest.is_deletes or manifest.min_sequence_number > delete.data_sequence_number:
        return False
    if delete.referenced_data_file is not None:
        return True
    spec_id = delete.scope[0]
    if delete.kind is FileKind.EQUALITY_DELETES:
        if manifest.min_sequence_number == delete.data_sequence_number:
            return False
        if spec_id in unpartitioned:
            return True
    return manifest.spec_id == spec_id


def _live_data_files(manifests: Iterable[Manifest]) -> int | None:
    total = 0
    for manifest in manifests:
        if manifest.is_deletes:
            continue
        if manifest.added_files is None or manifest.existing_files is None:
            return None
        total += manifest.added_files + manifest.existing_files
    return total
