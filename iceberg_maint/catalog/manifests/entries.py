"""Reads whole live manifest entries: the facts of each file that a rewritten manifest must keep.

Inheritance follows the Iceberg spec, sections "Sequence Number Inheritance" and "First Row ID
Inheritance".
"""

from __future__ import annotations

import struct
from collections.abc import Sequence

from pyiceberg.io import FileIO

from iceberg_maint.catalog.manifests import reader as fields
from iceberg_maint.catalog.manifests.avro import Column, read_columns, read_metadata
from iceberg_maint.catalog.manifests.avro_values import AvroError
from iceberg_maint.catalog.manifests.metadata_file import read_fields
from iceberg_maint.catalog.manifests.reader import PATH, STATUS
from iceberg_maint.core.commits.change import LiveEntry
from iceberg_maint.core.model.table_state import EntryStatus, Manifest
from iceberg_maint.errors import UnreadableTableError

_WANTED = (
    *(fields.STATUS, fields.SNAPSHOT_ID, fields.SEQUENCE_NUMBER, fields.FILE_SEQUENCE_NUMBER),
    *(fields.CONTENT, fields.PATH, fields.FORMAT, fields.PARTITION, fields.RECORDS, fields.FILE_BYTES),
    *(fields.FIRST_ROW_ID, fields.REFERENCED_FILE, fields.CONTENT_OFFSET, fields.CONTENT_BYTES),
    *(fields.KEY_METADATA, fields.SPLIT_OFFSETS, fields.SORT_ORDER_ID, fields.COLUMN_SIZES),
    *(fields.VALUE_COUNTS, fields.NULL_COUNTS, fields.NAN_COUNTS, fields.LOWER_BOUNDS, fields.UPPER_BOUNDS),
)
_WANTED_OF_DELETES = (*_WANTED, fields.EQUALITY_IDS)
_PARTITION = _WANTED.index(fields.PARTITION)


def read_entries(io: FileIO, manifest: Manifest) -> list[LiveEntry]:
    """Returns the live entries in the manifest's order. Raises UnreadableTableError ICM-101, also if
    their number differs from the manifest list's."""
    field_ids = _WANTED_OF_DELETES if manifest.is_deletes else _WANTED
    columns = read_fields(io, manifest.path, field_ids, "manifest", None)
    columns[_PARTITION] = _by_bits(columns[_PARTITION])
    if not manifest.is_deletes:
        columns.append([None] * len(columns[_PARTITION]))
    entries = []
    next_row_id = None if manifest.is_deletes else manifest.first_row_id
    for (
        status,
        snapshot,
        seq,
        file_seq,
        content,
        path,
        form,
        position,
        rows,
        size,
        row_id,
        referenced,
        offset,
        blob,
        key_metadata,
        split_offsets,
        sort_order_id,
        *more,
    ) in zip(*columns, strict=True):
        if status == EntryStatus.DELETED:
            continue
        *statistics, keys = more
        first_row_id = row_id
        if row_id is None and next_row_id is not None:
            first_row_id, next_row_id = next_row_id, next_row_id + rows
        entries.append(
            LiveEntry(
                path,
                offset,
                fields.KINDS[fields.kind_of(content, form)],
                position,
                fields.inherited(seq, status, manifest.sequence_number, manifest.path),
                _file_sequence_number(file_seq, status, manifest),
                manifest.added_snapshot_id if snapshot is None else snapshot,
                first_row_id,
                rows,
                size,
                referenced,
                keys or None,
                form.upper(),
                blob,
                key_metadata,
                split_offsets or (),
                # A file without a sort order id is unsorted, as one with the id 0 (spec: "Data File Fields").
                sort_order_id or 0,
                tuple([of_columns or () for of_columns in statistics]),
            )
        )
    listed_counts = (manifest.added_files, manifest.existing_files)
    if None not in listed_counts and sum(n or 0 for n in listed_counts) != len(entries):
        raise UnreadableTableError(
            "ICM-101",
            f"manifest {manifest.path} holds {len(entries)} live entries, but the manifest list counts: {listed_counts}.",
            "find out which of the two is wrong, and repair it before the next rewrite.",
        )
    return entries


def _file_sequence_number(entry_number: int | None, status: int, manifest: Manifest) -> int | None:
    """ADDED entries and those of v1 manifests inherit the manifest's number. Some writers omitted the
    others'."""
    inherits = status == EntryStatus.ADDED or manifest.sequence_number == 0
    return manifest.sequence_number if entry_number is None and inherits else entry_number


def _by_bits(partitions: Column) -> Column:
    if not any(isinstance(value, float) for partition in partitions for value in partition):
        return partitions
    return [tuple(struct.pack(">d", v) if isinstance(v, float) else v for v in p) for p in partitions]


_VERSIONS = frozenset({b"1", b"2", b"3"})
_MANIFEST_KEYS = frozenset({"schema", "partition-spec"})
_CONTENTS = frozenset({b"data", b"deletes"})


def pending_files(location: str, data: bytes, *, certain: bool) -> Sequence[str] | None:
    """Returns the paths of the live files that a manifest names, data and delete files alike; see
    `ports.storage.Reachability.pending`."""
    try:
        metadata = read_metadata(data)
        if not certain and not metadata.keys() & _MANIFEST_KEYS:
            return None
        _check(metadata)
        statuses, paths = read_columns(data, (STATUS, PATH))
        if not paths or None in paths or None in statuses:
            raise AvroError("it names no file, but every such manifest names at least one")
    except AvroError as error:
        raise UnreadableTableError(
            "ICM-101",
            f"pending manifest {location} of a Flink job cannot be read: {error}. The files that it names "
            "cannot be distinguished from orphans, so no file was moved.",
            "restore the manifest; delete it if its job will never be restored from a checkpoint or savepoint "
            "that has it.",
        ) from error
    return [path for path, status in zip(paths, statuses, strict=True) if status != EntryStatus.DELETED]


def _check(metadata: dict[str, bytes]) -> None:
    if missing := _MANIFEST_KEYS - metadata.keys():
        raise AvroError(f"its header has no '{min(missing)}', which every manifest must have")
    version, content = metadata.get("format-version", b"1"), metadata.get("content", b"data")
    if version not in _VERSIONS:
        raise AvroError(f"its format version is {version!r}; it must be 1, 2 or 3")
    if content not in _CONTENTS:
        raise AvroError(f"its content is {content!r}; it must be data or deletes")
