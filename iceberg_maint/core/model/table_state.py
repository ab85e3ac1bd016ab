"""Table state: immutable facts of one pinned snapshot, from metadata only, and the rule that says which delete file applies to
which data file (Iceberg spec, "Scan Planning").

`core.commits.delete_scope.DeleteIndex` implements the rule a second time and shares no code with this module, so that the
gate refuses a commit that was planned by a mistake made here.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from enum import IntEnum, StrEnum
from typing import NamedTuple

from iceberg_maint.core.model.columns import Range
from iceberg_maint.core.model.ids import PartitionKey, TableId
from iceberg_maint.core.model.partition_key import FIRST_SPEC_ID, PartitionSpec


@dataclass(frozen=True, slots=True)
class SortField:
    """One field of a table's own sort order (spec: Sorting)."""

    source_id: int
    transform: str
    descending: bool = False
    nulls_last: bool = False


@dataclass(frozen=True, slots=True)
class SortColumn:
    """A column to sort by: its dotted name, field id and Iceberg type."""

    name: str
    field_id: int
    type: str
    descending: bool = False
    nulls_last: bool = False


@dataclass(frozen=True, slots=True)
class LayoutOrder:
    """The target order of a table's files. `sort_order_id` is the id of the table's own order if this
    order is the whole of it, else 0. `measured` are the columns whose bounds show the layout: all columns
    of a z-order; of a sort, the first column that varies within a partition."""

    columns: tuple[SortColumn, ...]
    measured: tuple[SortColumn, ...]
    z_order: bool = False
    sort_order_id: int = 0


_VERSION = re.compile(r"(?:^|/)v?(\d+)(?:-[^/]*)?(?:\.gz)?\.metadata\.json(?:\.gz)?$")
"""The version number in the name of a metadata file. Every commit raises it: `00012-<uuid>.metadata.json`
(Iceberg BaseMetastoreTableOperations.newTableMetadataFilePath), `v12.metadata.json`
(HadoopTableOperations)."""


def metadata_version(metadata_location: str) -> int | None:
    """Returns the version in a metadata file's name, None if the name has none."""
    match = _VERSION.search(metadata_location)
    return int(match.group(1)) if match else None


TOKEN_PROPERTY = "iceberg-maint.token"  # noqa: S105 - a summary key
"""Snapshot summary key that carries the token of the attempt that made the snapshot."""
FENCE_PROPERTY = "iceberg-maint.fence"
BATCH_PROPERTY = "iceberg-maint.batch-id"
RUN_PROPERTY = "iceberg-maint.run-id"
PROOF_PROPERTY = "iceberg-maint.proof"
INSTALLATION_PROPERTY = "iceberg-maint.installation"
"""Snapshot summary key that carries the id of the installation (its ledger) that made the snapshot."""


class FileKind(StrEnum):
    """The kind of a live file."""

    DATA = "data"
    POSITION_DELETES = "position_deletes"
    EQUALITY_DELETES = "equality_deletes"
    DELETION_VECTOR = "deletion_vector"


@dataclass(frozen=True, slots=True)
class Snapshot:
    """One snapshot. `sequence_number` is 0 in format v1."""

    snapshot_id: int
    parent_id: int | None
    sequence_number: int
    timestamp_ms: int
    operation: str
    summary: Mapping[str, str]
    manifest_list: str
    schema_id: int | None = None


def made_by(summary: Mapping[str, str], installation: str) -> bool:
    """Returns whether this installation made the commit with this summary. A commit without an
    installation id counts as its own."""
    return TOKEN_PROPERTY in summary and summary.get(INSTALLATION_PROPERTY, installation) == installation


@dataclass(frozen=True, slots=True)
class Ref:
    """A branch or tag, with its own retention if it has one (spec: Snapshot Retention Policy)."""

    name: str
    kind: str
    snapshot_id: int
    max_ref_age_ms: int | None = None
    max_snapshot_age_ms: int | None = None
    min_snapshots_to_keep: int | None = None


@dataclass(frozen=True, slots=True)
class Manifest:
    """One manifest of the pinned snapshot's manifest list. Counts are None if a v1 writer omitted them.

    `bounds` are the lowest and highest value of each partition field in single-value serialization (None:
    no value but NULL), or () if the list does not state them. `first_row_id` is the first row id of its
    entries. A manifest without one gets one with the first commit in format v3.
    """

    path: str
    length_bytes: int
    is_deletes: bool
    spec_id: int
    sequence_number: int
    min_sequence_number: int
    added_snapshot_id: int
    added_files: int | None
    existing_files: int | None
    deleted_files: int | None
    added_rows: int | None
    existing_rows: int | None
    bounds: tuple[tuple[bytes | None, bytes | None], ...] = ()
    first_row_id: int | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True)
class TableState:
    """The contents of the metadata file, pinned at `snapshot` (None: the table is empty).

    `snapshots` are all retained snapshots, oldest first; `manifests` are those of `snapshot`. `key_types`
    are the types, by field id, of the current schema's columns that may be equality keys: primitive ones
    outside lists and maps. `column_ids` are the ids of these columns by dotted name. `uncommon_types` are the
    types, by path, of the current schema's columns that not every engine reads. `columns` are the current schema's columns with
    their types as text, nested ones too. `sort_fields` are those of the sort order `sort_order_id`, none for an unsorted table. `order` is the order that the
    layout is measured by; the policy sets it.
    """

    table: TableId
    uuid: str
    location: str
    format_version: int
    metadata_location: str
    metadata_bytes: int
    last_updated_ms: int
    last_sequence_number: int
    schema_id: int
    current_spec_id: int
    specs: Mapping[int, PartitionSpec]
    sort_order_id: int
    properties: Mapping[str, str]
    refs: tuple[Ref, ...]
    snapshot: Snapshot | None
    snapshots: tuple[Snapshot, ...]
    manifests: tuple[Manifest, ...]
    key_types: Mapping[int, str] = field(default_factory=dict)
    column_ids: Mapping[str, int] = field(default_factory=dict)
    sort_fields: tuple[SortField, ...] = ()
    order: LayoutOrder | None = None
    uncommon_types: Mapping[str, str] = field(default_factory=dict)
    columns: Mapping[str, str] = field(default_factory=dict)

    @property
    def first_spec_id(self) -> int:
        """The spec whose partition keys carry no `spec=` prefix."""
        return FIRST_SPEC_ID

    def specs_losing_values(self) -> tuple[int, ...]:
        """The specs with live files whose partitions are lost when a commit copies their entries; see
        `PartitionField.loses_values`."""
        live = {m.spec_id for m in self.manifests if m.added_files != 0 or m.existing_files != 0}
        return tuple(sorted(i for i in live if i in self.specs and self.specs[i].loses_values))

    def snapshot_by_id(self, snapshot_id: int) -> Snapshot | None:
        """Returns the retained snapshot with this id."""
        return next((s for s in self.snapshots if s.snapshot_id == snapshot_id), None)

    def ancestors(self) -> tuple[Snapshot, ...]:
        """Returns the pinned snapshot and its retained ancestors, newest first. Each appears once, even
        if damaged metadata make a snapshot its own ancestor."""
        by_id = {s.snapshot_id: s for s in self.snapshots}
        chain: list[Snapshot] = []
        snapshot = self.snapshot
        while snapshot is not None:
            chain.append(snapshot)
            by_id.pop(snapshot.snapshot_id, None)
            snapshot = by_id.get(snapshot.parent_id) if snapshot.parent_id is not None else None
        return tuple(chain)

    def newest_fence(self, installation: str | None = None) -> int:
        """Returns the highest fence in the retained snapshots, 0 if there is none. With `installation` only
        the commits of this installation count."""
        fenced = (s for s in self.snapshots if FENCE_PROPERTY in s.summary)
        return max(
            (
                int(s.summary[FENCE_PROPERTY])
                for s in fenced
                if installation is None or made_by(s.summary, installation)
            ),
            default=0,
        )

    def snapshot_by_token(self, token: str) -> Snapshot | None:
        """Returns the retained snapshot that carries our token."""
        return next((s for s in self.snapshots if s.summary.get(TOKEN_PROPERTY) == token), None)


NO_ROW_IDS = -1
"""The first row id of a data file in a table of format v3 whose rows have no ids: the table was upgraded, and no
commit in format v3 has followed."""


@dataclass(frozen=True, slots=True)
class LiveFile:
    """One live data or delete file of the pinned snapshot.

    `partition` is the partition key. For a deletion vector `size_bytes` is the size of the blob and
    `content_offset` its place in the Puffin file. `equality_ids` are field ids. `file_sequence_number` is
    that of the commit that added the file, None if the manifest does not state it. A rewrite that keeps
    the data sequence number raises it. `ranges` are the bounds of the columns that the table's `order`
    measures, None for a column without bounds. `first_row_id` is the id of a data file's first row,
    `NO_ROW_IDS` if its rows have none, and None before format v3.
    """

    path: str
    kind: FileKind
    spec_id: int
    partition: PartitionKey
    record_count: int
    size_bytes: int
    data_sequence_number: int
    file_format: str
    sort_order_id: int | None = None
    referenced_data_file: str | None = None
    content_offset: int | None = None
    equality_ids: tuple[int, ...] = ()
    file_sequence_number: int | None = None
    ranges: tuple[Range | None, ...] = ()
    first_row_id: int | None = None


@dataclass(frozen=True, slots=True)
class ChangedFiles:
    """The live files of the manifests that only one of two snapshots lists: `removed` those of the earlier
    snapshot, `added` those of the later one. Both have a file whose manifest was rewritten."""

    removed: tuple[LiveFile, ...]
    added: tuple[LiveFile, ...]


class EntryStatus(IntEnum):
    """Status of a manifest entry (spec: Manifests)."""

    EXISTING = 0
    ADDED = 1
    DELETED = 2


class ManifestEntry(NamedTuple):
    """One manifest entry, with inherited sequence numbers as the spec defines.

    `partition` is the raw tuple as stored (dates in days, timestamps in µs, …). `snapshot_id` is the
    snapshot that added the entry or, with status DELETED, removed it. For a deletion vector `size_bytes`
    is the size of the blob. `first_row_id` is not inherited: None if the entry does not state it.
    """

    status: EntryStatus
    snapshot_id: int
    data_sequence_number: int
    path: str
    kind: FileKind
    partition: tuple[object, ...]
    record_count: int
    size_bytes: int
    referenced_data_file: str | None = None
    content_offset: int | None = None
    first_row_id: int | None = None


ManifestReader = Callable[[str, int, int], Iterable[ManifestEntry]]
"""Reads a manifest: (manifest path, the manifest's sequence number, its added snapshot id) → all its
entries, DELETED ones included. The two numbers come from the manifest list; entries inherit them."""


Scope = tuple[int, PartitionKey]
"""Spec id and partition key."""


def scope_of(file: LiveFile) -> Scope:
    """Returns the spec and partition of the file."""
    return file.spec_id, file.partition


def delete_scope(delete: LiveFile, specs: Mapping[int, PartitionSpec]) -> Scope | None:
    """Returns the scope of the data files that the delete file may apply to, None for the whole table: that of an equality
    delete whose spec is unpartitioned. A position delete file applies to the one file that it names, or to all of its
    scope. A deletion vector replaces the position delete files of its data file."""
    is_global = delete.kind is FileKind.EQUALITY_DELETES and specs[delete.spec_id].is_unpartitioned
    return None if is_global else scope_of(delete)


def equality_delete_reaches(delete_sequence_number: int, data_sequence_number: int) -> bool:
    """Returns whether an equality delete applies to data of its scope, by sequence number."""
    return data_sequence_number < delete_sequence_number


def position_delete_reaches(delete_sequence_number: int, data_sequence_number: int) -> bool:
    """Returns whether a position delete file or deletion vector applies to data of its scope, by sequence
    number."""
    return data_sequence_number <= delete_sequence_number
