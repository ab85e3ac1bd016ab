"""Live manifest entries whole: what a manifest that is written anew must still say of each file.

Inheritance as the Iceberg spec has it, sections "Sequence Number Inheritance" and "First Row ID
Inheritance".
"""

from __future__ import annotations

import struct

from pyiceberg.io import FileIO

from iceberg_maint.catalog.manifests import reader as fields
from iceberg_maint.catalog.manifests.avro import Column
from iceberg_maint.core.commits.change import LiveEntry
from iceberg_maint.core.model.table_state import EntryStatus, Manifest
from iceberg_maint.errors import UnreadableTableError

_FIRST_ROW_ID = 142
_WANTED = (
    *(fields.STATUS, fields.SNAPSHOT_ID, fields.SEQUENCE_NUMBER, fields.FILE_SEQUENCE_NUMBER),
    *(fields.CONTENT, fields.PATH, fields.FORMAT, fields.PARTITION, fields.RECORDS, fields.FILE_BYTES),
    *(_FIRST_ROW_ID, fields.REFERENCED_FILE, fields.CONTENT_OFFSET),
)
_WANTED_OF_DELETES = (*_WANTED, fields.EQUALITY_IDS)
_PARTITION = _WANTED.index(fields.PARTITION)


def read_entries(io: FileIO, manifest: Manifest) -> list[LiveEntry]:
    """The live entries in the manifest's order. Raises UnreadableTableError ICM-101, also where the
    manifest does not hold as many as its list says."""
    wanted = _WANTED_OF_DELETES if manifest.is_deletes else _WANTED
    columns = fields.read_fields(io, manifest.path, wanted, "manifest")
    columns[_PARTITION] = _by_bits(columns[_PARTITION])
    if not manifest.is_deletes:
        columns.append([None] * len(columns[_PARTITION]))
    found = []
    next_row_id = None if manifest.is_deletes else manifest.first_row_id
    for (
        status,
        snapshot,
        seq,
        file_seq,
        content,
        path,
        form,
        at,
        rows,
        size,
        row_id,
        named,
        offset,
        keys,
    ) in zip(*columns, strict=True):
        if status == EntryStatus.DELETED:
            continue
        first_row_id = row_id
        if row_id is None and next_row_id is not None:
            first_row_id, next_row_id = next_row_id, next_row_id + rows
        found.append(
            LiveEntry(
                path,
                offset,
                fields.KINDS[fields.kind_of(content, form)],
                at,
                fields.inherited(seq, status, manifest.sequence_number, manifest.path),
                _file_sequence_number(file_seq, status, manifest),
                manifest.added_snapshot_id if snapshot is None else snapshot,
                first_row_id,
                rows,
                size,
                named,
                keys or None,
            )
        )
    listed = (manifest.added_files, manifest.existing_files)
    if None not in listed and sum(n or 0 for n in listed) != len(found):
        raise UnreadableTableError(
            "ICM-101",
            f"manifest {manifest.path} holds {len(found)} live entries, its list says otherwise: {listed}.",
            "find out which of the two is wrong before anything is rewritten.",
        )
    return found


def _file_sequence_number(own: int | None, status: int, manifest: Manifest) -> int | None:
    """ADDED entries inherit theirs, and those of v1 manifests; some writers left out the others'."""
    inherits = status == EntryStatus.ADDED or manifest.sequence_number == 0
    return manifest.sequence_number if own is None and inherits else own


def _by_bits(partitions: Column) -> Column:
    if not any(isinstance(value, float) for partition in partitions for value in partition):
        return partitions
    return [tuple(struct.pack(">d", v) if isinstance(v, float) else v for v in p) for p in partitions]
