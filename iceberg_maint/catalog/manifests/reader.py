"""Reads manifest lists and manifests as values, resolves inheritance, and compares them with each other.

Field ids and inheritance rules are those of the Iceberg spec, sections "Manifests", "Manifest Lists" and
"Sequence Number Inheritance".
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pyiceberg.io import FileIO

from iceberg_maint.catalog.manifests.avro import Column
from iceberg_maint.catalog.manifests.column_overlap import FileLayout
from iceberg_maint.catalog.manifests.metadata_file import read_fields
from iceberg_maint.core.model.ids import TableId
from iceberg_maint.core.model.table_state import (
    NO_ROW_IDS,
    EntryStatus,
    FileKind,
    Manifest,
    ManifestEntry,
    ManifestReader,
    Snapshot,
)
from iceberg_maint.errors import UnreadableTableError

Integers = NDArray[np.int64]
Bounds = tuple[bytes | None, ...] | None
"""Bounds of the requested columns, in their order; None if the file has none."""

KINDS = tuple(FileKind)
"""File kinds by their code in columns."""
DATA, POSITION_DELETES, EQUALITY_DELETES, DELETION_VECTOR = range(4)

# Field ids of a manifest entry. The fields of its data file count as the entry's own.
STATUS, SNAPSHOT_ID, SEQUENCE_NUMBER, FILE_SEQUENCE_NUMBER = 0, 1, 3, 4
CONTENT, PATH, FORMAT, PARTITION, RECORDS, FILE_BYTES = 134, 100, 101, 102, 103, 104
LOWER_BOUNDS, UPPER_BOUNDS = 125, 128
COLUMN_SIZES, VALUE_COUNTS, NULL_COUNTS, NAN_COUNTS, KEY_METADATA, SPLIT_OFFSETS = (
    108,
    109,
    110,
    137,
    131,
    132,
)
DELETE_FILE_PATH = 2147483546
"""Field id of `file_path` in position delete files (spec: Reserved Field IDs)."""
EQUALITY_IDS, SORT_ORDER_ID, FIRST_ROW_ID = 135, 140, 142
REFERENCED_FILE, CONTENT_OFFSET, CONTENT_BYTES = 143, 144, 145

_STATUSES = tuple(EntryStatus)  # by their code; calling the enum costs a tenth of the time to read an entry

_LIST_FIELDS = (500, 501, 517, 502, 515, 516, 503, 504, 505, 506, 512, 513, 507, 520)
_ENTRY_FIELDS = (
    *(STATUS, SNAPSHOT_ID, SEQUENCE_NUMBER, CONTENT, PATH, FORMAT),
    *(PARTITION, RECORDS, REFERENCED_FILE, CONTENT_OFFSET, FIRST_ROW_ID, FILE_BYTES, CONTENT_BYTES),
)

_REFERENCED = _ENTRY_FIELDS.index(REFERENCED_FILE)


def read_manifest_list(io: FileIO, location: str) -> tuple[Manifest, ...]:
    """Returns the manifests of one snapshot. Raises UnreadableTableError ICM-101."""
    columns = read_fields(io, location, _LIST_FIELDS, "manifest list")
    return tuple(
        Manifest(
            path=path,
            length_bytes=length,
            is_deletes=content == 1,
            spec_id=spec_id,
            sequence_number=sequence_number or 0,
            min_sequence_number=min_sequence_number or 0,
            added_snapshot_id=snapshot_id or 0,
            added_files=added,
            existing_files=existing,
            deleted_files=deleted,
            added_rows=added_rows,
            existing_rows=existing_rows,
            # The flags for NULL and NaN come first. Older lists lack one of them.
            bounds=tuple((field[-2], field[-1]) for field in fields or ()),
            first_row_id=first_row_id,
        )
        for (
            path,
            length,
            content,
            spec_id,
            sequence_number,
            min_sequence_number,
            snapshot_id,
            added,
            existing,
            deleted,
            added_rows,
            existing_rows,
            fields,
            first_row_id,
        ) in zip(*columns, strict=True)
    )


def make_reader(io: FileIO) -> ManifestReader:
    """Returns a reader of whole manifests, one value per entry, for the gate and for settling."""

    def read(path: str, sequence_number: int, snapshot_id: int) -> Iterator[ManifestEntry]:
        columns = read_fields(io, path, _ENTRY_FIELDS, "manifest")
        statuses, snapshots, numbers, contents, files, formats, partitions, rows, *more = columns
        _, offsets, row_ids, *sizes = more
        kinds = list(zip(contents, formats, strict=True))
        kind_by = {both: KINDS[kind_of(*both)] for both in set(kinds)}
        whole, own = sizes
        vectors = FileKind.DELETION_VECTOR in kind_by.values()
        return map(
            ManifestEntry._make,
            zip(
                [_STATUSES[status] for status in statuses],
                [snapshot_id if own is None else own for own in snapshots],
                _inherited(numbers, statuses, sequence_number, path),
                files,
                [kind_by[both] for both in kinds],
                partitions,
                rows,
                _sizes(whole, own, kinds) if vectors else whole,
                _referenced(io, path, columns),
                offsets,
                row_ids,
                strict=True,
            ),
        )

    return read


def _sizes(whole: Column, own: Column, kinds: Sequence[tuple[int | None, str]]) -> Column:
    """Returns the sizes of the files; for deletion vectors, the sizes of their blobs."""
    return [
        blob if kind_of(*kind) == DELETION_VECTOR and blob is not None else size
        for size, blob, kind in zip(whole, own, kinds, strict=True)
    ]


def only_path(lower: Bounds, upper: Bounds) -> str | None:
    """Returns the data file that a position delete file names, from its bounds of `file_path`
    alone: Spark omits `referenced_data_file` (Iceberg's `ContentFileUtil.referencedDataFile`). Bytes that are not text
    name none."""
    first, last = (bounds[0] if bounds else None for bounds in (lower, upper))
    if first is None or first != last:
        return None
    try:
        return first.decode()
    except UnicodeDecodeError:
        return None


def _referenced(io: FileIO, path: str, columns: Sequence[Column]) -> Column:
    """Returns the referenced data files. For position deletes that omit them, they come from the bounds."""
    stated = columns[_REFERENCED]
    contents, formats = (columns[_ENTRY_FIELDS.index(i)] for i in (CONTENT, FORMAT))
    lacking = [
        own is None and content == POSITION_DELETES and kind_of(content, form) == POSITION_DELETES
        for own, content, form in zip(stated, contents, formats, strict=True)
    ]
    if not any(lacking):
        return stated
    bounds_columns = read_fields(io, path, (LOWER_BOUNDS, UPPER_BOUNDS), "manifest", (DELETE_FILE_PATH,))
    bounds = zip(*bounds_columns, strict=True)
    return [only_path(*b) if lacks else own for b, lacks, own in zip(bounds, lacking, stated, strict=True)]


@dataclass(frozen=True, slots=True)
class LiveEntries:
    """The live entries of one manifest, column by column.

    `partitions` are the distinct raw tuples, and `partition` indexes them. `kind` indexes `KINDS`. For a
    deletion vector `size_bytes` is the size of the blob. `more` are the additionally requested columns,
    filtered to live entries. `layout` is set for data files if an order is measured.
    """

    spec_id: int
    partitions: tuple[tuple[object, ...], ...]
    partition: Integers
    kind: Integers
    records: Integers
    size_bytes: Integers
    sequence_number: Integers
    snapshot_id: Integers
    more: tuple[Column, ...]
    layout: FileLayout | None = None

    def __len__(self) -> int:
        return len(self.partition)

    def without_more(self, layout: FileLayout | None = None) -> LiveEntries:
        """Returns the same entries without the extra columns, with the given layout."""
        return replace(self, more=(), layout=layout)


def first_row_ids(own: Column, records: Sequence[int], of_manifest: int | None) -> list[int]:
    """Returns the first row ids of the live data files of a manifest of a v3 table, in the manifest's order.
    An entry without one inherits it: the manifest's ids are given to the rows of such entries in turn (spec:
    "First Row ID Inheritance")."""
    row_ids, next_row_id = [], of_manifest
    for row_id, rows in zip(own, records, strict=True):
        if row_id is None and next_row_id is not None:
            row_id, next_row_id = next_row_id, next_row_id + rows
        row_ids.append(NO_ROW_IDS if row_id is None else row_id)
    return row_ids


def has_live_files(manifest: Manifest) -> bool:
    """Returns False if the manifest list says that all entries are DELETED."""
    counts = (manifest.added_files, manifest.existing_files)
    return None in counts or any(counts)


def read_live_entries(
    io: FileIO,
    manifest: Manifest,
    table: str,
    more: tuple[int, ...] = (),
    bounds_of: tuple[int, ...] = (),
) -> LiveEntries:
    """Returns the live entries of one manifest, with the fields `more` in addition to the usual ones.
    Bounds among them are those of the columns with the ids `bounds_of`.

    The numbers of entries and rows are compared with the manifest list: PyIceberg's decoder returns wrong
    values without an error if bytes disagree with their schema. Raises UnreadableTableError.
    """
    kinds = (CONTENT, FORMAT, CONTENT_BYTES) if manifest.is_deletes else ()
    field_ids = (STATUS, SNAPSHOT_ID, SEQUENCE_NUMBER, PARTITION, RECORDS, FILE_BYTES, *kinds, *more)
    values = read_fields(io, manifest.path, field_ids, f"{table}: manifest", bounds_of)
    columns = dict(zip(field_ids, values, strict=True))
    status, records = _integers(columns[STATUS]), _integers(columns[RECORDS])
    _check_counts(manifest, table, status, records)
    live = status != EntryStatus.DELETED
    kind, size_bytes = np.zeros(len(status), np.int64), _integers(columns[FILE_BYTES])
    if manifest.is_deletes:
        kind = _integers([kind_of(c, f) for c, f in zip(columns[CONTENT], columns[FORMAT], strict=True)])
        sizes = zip(columns[CONTENT_BYTES], columns[FILE_BYTES], kind, strict=True)
        size_bytes = _integers(
            [own if code == DELETION_VECTOR and own is not None else whole for own, whole, code in sizes]
        )
    sequence_numbers = _inherited(
        columns[SEQUENCE_NUMBER], columns[STATUS], manifest.sequence_number, manifest.path
    )
    snapshot_ids = [manifest.added_snapshot_id if s is None else s for s in columns[SNAPSHOT_ID]]
    numbers = _integers(sequence_numbers)[live]
    _check_oldest(manifest, table, numbers)
    partitions, codes = _encoded(columns[PARTITION])
    alive = live.tolist()
    return LiveEntries(
        spec_id=manifest.spec_id,
        partitions=partitions,
        partition=codes[live],
        kind=kind[live],
        records=records[live],
        size_bytes=size_bytes[live],
        sequence_number=numbers,
        snapshot_id=_integers(snapshot_ids)[live],
        more=tuple([v for v, keep in zip(columns[i], alive, strict=True) if keep] for i in more),
    )


def _integers(values: Sequence[int]) -> Integers:
    return np.array(values, dtype=np.int64)


def kind_of(content: int | None, file_format: str) -> int:
    """Returns the code of a file's kind."""
    if content == POSITION_DELETES and file_format.upper() == "PUFFIN":
        return DELETION_VECTOR
    return content or DATA


def inherited(own: int | None, status: int, of_manifest: int, path: str) -> int:
    """Returns an entry's data sequence number. Only ADDED entries and those of v1 manifests inherit it."""
    if own is not None:
        return own
    if status != EntryStatus.ADDED and of_manifest != 0:
        raise UnreadableTableError(
            "ICM-101",
            f"manifest {path} has an entry of status {EntryStatus(status).name} without a "
            "sequence number, which only an added entry may omit.",
            "rewrite the table's manifests with the engine that wrote them.",
        )
    return of_manifest


def _inherited(own: Column, statuses: Column, of_manifest: int, path: str) -> Column:
    """Returns the data sequence numbers of all entries."""
    if None not in own:
        return own
    return [inherited(seq, code, of_manifest, path) for seq, code in zip(own, statuses, strict=True)]


def _encoded(partitions: Column) -> tuple[tuple[tuple[object, ...], ...], Integers]:
    """Returns the distinct tuples in order of appearance, and the index of each entry's tuple."""
    places: dict[Any, int] = {}
    codes = [places.setdefault(p, len(places)) for p in partitions]
    if any(isinstance(value, float) for p in places for value in p):
        # 0.0 and -0.0 are equal in Python and two partitions in Iceberg: distinguish them by their text.
        distinct = {repr(p): p for p in partitions}
        places = {text: place for place, text in enumerate(distinct)}
        return tuple(distinct.values()), _integers([places[repr(p)] for p in partitions])
    return tuple(places), _integers(codes)


def _check_counts(manifest: Manifest, table: str, status: Integers, records: Integers) -> None:
    added, existing = status == EntryStatus.ADDED, status == EntryStatus.EXISTING
    checks = (
        ("added entries", manifest.added_files, int(added.sum())),
        ("existing entries", manifest.existing_files, int(existing.sum())),
        ("deleted entries", manifest.deleted_files, int((status == EntryStatus.DELETED).sum())),
        ("added rows", manifest.added_rows, int(records[added].sum())),
        ("existing rows", manifest.existing_rows, int(records[existing].sum())),
    )
    for what, listed, read in checks:
        if listed is not None and listed != read:
            raise UnreadableTableError(
                "ICM-101",
                f"{table}: manifest {manifest.path} holds {read} {what}, but the manifest list counts "
                f"{listed}. The table was not measured.",
                "find out which of the two is wrong, and repair it before the next rewrite.",
            )


def _check_oldest(manifest: Manifest, table: str, sequence_numbers: Integers) -> None:
    """Iceberg drops deletes below the lowest `min_sequence_number` of a manifest list without reading the
    entries. A number that is too high makes it drop deletes that still apply."""
    oldest = int(sequence_numbers.min(initial=manifest.min_sequence_number))
    if oldest < manifest.min_sequence_number:
        raise UnreadableTableError(
            "ICM-101",
            f"{table}: manifest {manifest.path} holds a live entry with data sequence number {oldest}, but the "
            f"manifest list says that the lowest is {manifest.min_sequence_number}. Any commit may drop deletes "
            "that still apply.",
            "stop the writers of this table, and rewrite its manifest list with the engine that wrote it.",
        )


def check_manifest_list(table: TableId, snapshot: Snapshot) -> str:
    """Returns the location of the snapshot's manifest list. Raises UnreadableTableError if it has none."""
    if not snapshot.manifest_list:
        raise UnreadableTableError(
            "ICM-101",
            f"{table}: snapshot {snapshot.snapshot_id} lists its manifests in the metadata file, "
            "as only early format v1 writers did.",
            "commit to the table once with a current engine.",
        )
    return snapshot.manifest_list
