"""The change that a commit makes to a table, and the violations of the gate's rules."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

from iceberg_maint.core.model.partition_key import PartitionSpec
from iceberg_maint.core.model.table_state import FileKind, Manifest, ManifestEntry, ManifestReader

Scope = tuple[int, tuple[object, ...]]
"""Spec id and raw partition tuple; the tuple is () for an unpartitioned spec."""

Identity = tuple[str, int | None]
"""A file's path and, for a deletion vector, the offset of its blob."""

ROW_IDS_SINCE = 3
"""The format version since which rows have ids."""

_MAX_ENTRIES = 200_000
"""The number of entries that stay in memory, about 100 MB. Further manifests are read at each try."""


class LiveEntry(NamedTuple):
    """One live entry of a manifest, inheritance resolved, with all fields that a reader uses. Floats among the
    partition values are represented by their bits. `kind` is as in `FileKind`.

    `content_size_bytes` is the size of a deletion vector's blob. `statistics` are the column sizes, the counts
    of values, NULL and NaN, and the lower and upper bounds: each as pairs of column id and value, ordered by
    column id. A map that is absent is empty.
    """

    path: str
    content_offset: int | None
    kind: FileKind
    partition: tuple[object, ...]
    data_sequence_number: int
    file_sequence_number: int | None
    snapshot_id: int
    first_row_id: int | None
    record_count: int
    size_bytes: int
    referenced_data_file: str | None
    equality_ids: tuple[int, ...] | None = None
    file_format: str = ""
    content_size_bytes: int | None = None
    key_metadata: bytes | None = None
    split_offsets: tuple[int, ...] = ()
    sort_order_id: int = 0
    statistics: tuple[tuple[tuple[int, int | bytes], ...], ...] = ()


@dataclass(frozen=True, slots=True)
class MetadataReader:
    """Reads manifest lists (by location) and manifests: as the entries that the rules of files need, or
    as whole live entries."""

    manifest_list: Callable[[str], Sequence[Manifest]]
    manifest: ManifestReader
    live_entries: Callable[[Manifest], Sequence[LiveEntry]]


def remembering(reader: MetadataReader) -> MetadataReader:
    """Returns a reader for the tries of one commit that reads each manifest list and each manifest once: they never change.
    Whole live entries are read each time."""
    lists: dict[str, Sequence[Manifest]] = {}
    manifests: dict[tuple[str, int, int], tuple[ManifestEntry, ...]] = {}
    entries = 0

    def manifest_list(location: str) -> Sequence[Manifest]:
        if location not in lists:
            lists[location] = reader.manifest_list(location)
        return lists[location]

    def manifest(path: str, sequence_number: int, snapshot_id: int) -> Iterable[ManifestEntry]:
        nonlocal entries
        key = (path, sequence_number, snapshot_id)
        if key in manifests:
            return manifests[key]
        content = tuple(reader.manifest(*key))
        if entries + len(content) <= _MAX_ENTRIES:
            manifests[key] = content
            entries += len(content)
        return content

    return MetadataReader(manifest_list, manifest, reader.live_entries)


@dataclass(frozen=True, slots=True)
class TableVersion:
    """The metadata of one version of a table at the head of `main`, as far as the gate reads it.

    `first_row_id` is that of the head's snapshot. `next_row_id` is the table's. Both are None before format
    v3; `first_row_id` is also None if no snapshot in format v3 has been committed.
    """

    table_uuid: str
    format_version: int
    schema_id: int
    specs: Mapping[int, PartitionSpec]
    snapshot_id: int
    parent_id: int | None
    sequence_number: int
    manifests: tuple[Manifest, ...]
    first_row_id: int | None = None
    next_row_id: int | None = None

    @property
    def unpartitioned_specs(self) -> frozenset[int]:
        """Ids of specs that have no fields, or only void ones."""
        return frozenset(s.spec_id for s in self.specs.values() if s.is_unpartitioned)


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

    `pinned_exists`: the base still holds the pinned snapshot. `reaches_pinned`: the pinned snapshot is
    among the ancestors of the base's head. `pinned_first_row_id` is the first row id of the pinned snapshot.
    """

    pinned_exists: bool
    reaches_pinned: bool
    since: tuple[Since, ...] = ()
    pinned_first_row_id: int | None = None


class Entry(NamedTuple):
    """One live manifest entry, inheritance resolved. `first_row_id` is None if its rows have no ids."""

    path: str
    kind: FileKind
    scope: Scope
    data_sequence_number: int
    record_count: int
    referenced_data_file: str | None = None
    content_offset: int | None = None
    size_bytes: int = 0
    first_row_id: int | None = None

    @property
    def identity(self) -> Identity:
        """The key that identifies this entry's file among the live files."""
        return self.path, self.content_offset


@dataclass(frozen=True, slots=True)
class FileChange:
    """The difference of two manifest lists.

    - `removed` and `added`: entries that leave or enter the live set, of any kind.
    - `altered`: surviving entries and manifests that changed, as sentences.
    - `duplicates`: files that are live twice in the manifests read.
    - `new_deletes`: deletes live before the commit with a data sequence number above the pinned one.
    - `survivors`: live data files after the commit to which a dropped delete could apply.
    - `lost`: data files to mark that were live at the pinned snapshot and are not before the commit.
    - `arrivals`: files of the plan, by path, that are live before the commit in a manifest that the
      pinned snapshot does not list.
    - `departures`: delete files of the plan that were live at the pinned snapshot and are not before the
      commit.
    - `outlived`: delete files that mark positions of the same data file as a new deletion vector and are
      live after the commit.
    - `live_before` and `live_after`: numbers of live data files by the manifest lists, None if a writer
      omitted counts.
    """

    removed: tuple[Entry, ...]
    added: tuple[Entry, ...]
    altered: tuple[str, ...]
    duplicates: tuple[Identity, ...]
    new_deletes: tuple[Entry, ...]
    survivors: tuple[Entry, ...]
    lost: tuple[str, ...]
    arrivals: tuple[Entry, ...]
    departures: tuple[Identity, ...]
    outlived: tuple[Entry, ...]
    live_before: int | None
    live_after: int | None


@dataclass(frozen=True, slots=True)
class Change:
    """The change of a commit: the metadata it builds on, the metadata it swaps in, and the files."""

    base: TableVersion
    new: TableVersion
    lineage: Lineage
    files: FileChange


def scope_of(spec_id: int, partition: tuple[object, ...], unpartitioned: frozenset[int]) -> Scope:
    """Returns the scope, comparable as Iceberg compares partitions: floats by their bits, so that NaN
    equals itself and 0.0 differs from -0.0."""
    if spec_id in unpartitioned:
        return spec_id, ()
    return spec_id, tuple(struct.pack(">d", v) if isinstance(v, float) else v for v in partition)


class Rule(StrEnum):
    """The gate's rules by the invariant they protect. docs/design/decisions/gate-checks.md explains each."""

    TABLE_UUID = "table_uuid"
    FORMAT_VERSION = "format_version"
    SCHEMA = "schema"
    SPEC = "spec"
    PINNED_SNAPSHOT = "pinned_snapshot"
    IDENTITY = "identity"
    NEW_DELETE = "new_delete"
    NEEDED_DELETE = "needed_delete"
    LOST_FILE = "lost_file"
    ROW_IDS = "row_ids"
    METADATA = "metadata"
    REMOVED_FILES = "removed_files"
    ADDED_FILES = "added_files"
    KEPT_FILES = "kept_files"
    LIVE_COUNT = "live_count"
    SEQUENCE_NUMBER = "sequence_number"
    DROPPED_DELETE = "dropped_delete"
    SECOND_VECTOR = "second_vector"
    FOREIGN_REPLACE = "foreign_replace"
    SCOPE = "scope"
    RETENTION = "retention"
    SNAPSHOTS = "snapshots"
    REFS = "refs"
    MANIFESTS = "manifests"
    ENTRIES = "entries"
    PENDING_PUBLISH = "pending_publish"
    ROW_COUNT = "row_count"
    COLUMN_BOUNDS = "column_bounds"


STALE_RULES = frozenset(
    {
        Rule.TABLE_UUID,
        Rule.FORMAT_VERSION,
        Rule.SCHEMA,
        Rule.SPEC,
        Rule.PINNED_SNAPSHOT,
        Rule.IDENTITY,
        Rule.NEW_DELETE,
        Rule.NEEDED_DELETE,
        Rule.LOST_FILE,
        Rule.ROW_IDS,
        Rule.RETENTION,
        Rule.PENDING_PUBLISH,
    }
)
"""Rules whose break means that the plan is out of date, not that something is wrong."""

RACED_RULES = frozenset({Rule.DROPPED_DELETE, Rule.SCOPE, Rule.FOREIGN_REPLACE, Rule.MANIFESTS})
"""Rules that another writer's commit since the plan can break. Then the operation is planned again as
well. Without such a commit the plan itself was wrong."""


@dataclass(frozen=True, slots=True)
class Violation:
    """A broken rule and the fact that breaks it. `raced`: another writer committed since the plan.

    `explained_by` are rules whose staleness is the cause of this fact: a source that another writer moved to
    another partition lies outside its group as well.
    """

    rule: Rule
    fact: str
    raced: bool = False
    explained_by: frozenset[Rule] = frozenset()

    @property
    def is_stale(self) -> bool:
        """Whether the operation should be planned again."""
        return self.rule in STALE_RULES or (self.raced and self.rule in RACED_RULES)


def is_stale(violations: Sequence[Violation]) -> bool:
    """Returns whether the plan is out of date: other writers can have broken each broken rule, or a stale rule
    explains it. A violation that staleness does not explain means that something is wrong."""
    stale = {v.rule for v in violations if v.is_stale}
    return all(v.is_stale or not stale.isdisjoint(v.explained_by) for v in violations)
