"""Marks in place: lists of released files that stay at their paths during the hold.

A list is one file of lines in the trash folder. The first line is the mark; each further line names one file. Only
the lists define which files are held in place. A list that is not complete, as a crash can leave it on a local disk,
holds nothing: the releases that it was made from are still stored.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import chain

from iceberg_maint.core.model.codec import dumps, loads
from iceberg_maint.core.removal.orphan_rules import HeldOrphans, Orphan, TrashBatchHeader, held_orphans
from iceberg_maint.core.removal.released_file_rules import ReleasedFile, ReleasedKind
from iceberg_maint.ports.storage import Store
from iceberg_maint.removal.trash_manifest import (
    RELEASED_BY,
    TrashBatch,
    manifest_lines,
    restored_location,
    trash_folder,
    trashed_file,
)

_log = logging.getLogger(__name__)
_KINDS = {kind.value: kind for kind in ReleasedKind}
_encode = json.JSONEncoder(separators=(",", ":")).encode


@dataclass(frozen=True, slots=True)
class InPlaceMark:
    """First line of a list. `header` is that of a trash batch of the same files. `releases` are the ids of the stored
    releases that the list was made from, and `lists` is the number of lists that were made from them, one per prefix.
    `files` and `size_bytes` are the sums of its lines."""

    header: TrashBatchHeader
    releases: tuple[str, ...]
    lists: int
    files: int
    size_bytes: int


@dataclass(frozen=True, slots=True)
class StoredMark:
    """A list in storage. `mark` is None if its first line cannot be read."""

    location: str
    mark: InPlaceMark | None


def stored_marks(prefixes: Iterable[str], store: Store) -> list[StoredMark]:
    """Returns the lists below the prefixes, oldest first. Those without a mark are last."""
    stored = []
    for prefix in prefixes:
        for file in store.list(_folder(prefix)):
            mark: InPlaceMark | None = None
            try:
                mark = loads(InPlaceMark, next(iter(store.read_lines(file.path))).decode())
            except (ValueError, StopIteration) as error:
                _log.warning("the list of released files %s cannot be read: %s", file.path, error)
            if mark is not None and mark_location(mark.header) != file.path:
                _log.warning("%s is the list of %s", file.path, mark_location(mark.header))
                mark = None
            stored.append(StoredMark(file.path, mark))
    return sorted(
        stored, key=lambda s: (s.mark is None, s.mark.header.marked_ms if s.mark else 0, s.location)
    )


def marks_of(prefixes: Iterable[str], table_uuid: str, store: Store) -> Iterator[InPlaceMark]:
    """Yields the marks of one table below the prefixes, oldest first."""
    for stored in stored_marks(prefixes, store):
        if stored.mark is not None and stored.mark.header.table_uuid == table_uuid:
            yield stored.mark


def mark_location(header: TrashBatchHeader) -> str:
    """Returns the location of the list of a mark."""
    return f"{_folder(header.prefix)}/{header.mark_id}.jsonl"


def create_list(store: Store, mark: InPlaceMark, lines: Iterable[bytes]) -> None:
    """Writes the list of a mark from the lines of its files. It is durable when this returns."""
    store.create(mark_location(mark.header), chain((dumps(mark).encode() + b"\n",), lines))


def list_line(file: ReleasedFile) -> bytes:
    """Returns the line of a file in a list."""
    data = (file.path, file.kind.value, file.size_bytes, file.snapshot_id, file.committed_ms)
    return _encode(data).encode() + b"\n"


def listed_files(store: Store, mark: InPlaceMark) -> Iterator[ReleasedFile]:
    """Yields the files of a list. A line that cannot be read ends it, as does one of a file outside the prefix."""
    location, root = mark_location(mark.header), mark.header.prefix.rstrip("/")
    lines = iter(store.read_lines(location))
    next(lines, None)
    try:
        for line in lines:
            path, kind, size_bytes, snapshot_id, committed_ms = json.loads(line)
            if not path.startswith(f"{root}/"):
                raise ValueError(f"{path} is not below {root}")
            yield ReleasedFile(path, _KINDS[kind], int(size_bytes), int(snapshot_id), int(committed_ms))
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        _log.warning("the list of released files %s cannot be read to its end: %s", location, error)


def batches_in_place(prefixes: Iterable[str], table_uuid: str, store: Store) -> Iterator[TrashBatch]:
    """Yields what the lists of a table hold, as trash batches."""
    for mark in marks_of(prefixes, table_uuid, store):
        yield TrashBatch(mark.header, mark_location(mark.header), mark.files, mark.size_bytes, restored=False)


def held_in_place(
    prefixes: Iterable[str], table_uuid: str, store: Store, most_paths: int
) -> Iterator[HeldOrphans]:
    """Yields the files that the lists of a table hold for a later sweep."""
    for mark in marks_of(prefixes, table_uuid, store):
        files = (Orphan(f.path, f.size_bytes or 0, f.committed_ms) for f in listed_files(store, mark))
        header = mark.header
        yield held_orphans(header.mark_id, header.marked_ms, files, (header.prefix,), most_paths)


def restore_list(store: Store, mark: InPlaceMark) -> None:
    """Makes the list one of restored files, which stay until a person deletes it."""
    header = mark.header
    restored = (
        trashed_file(
            Orphan(f.path, f.size_bytes or 0, f.committed_ms),
            header.prefix,
            header.mark_id,
            f"{f.kind.value}{RELEASED_BY}{f.snapshot_id}",
        )
        for f in listed_files(store, mark)
    )
    # A killed restoration may have written a part.
    store.delete(restored_location(header))
    store.create(restored_location(header), manifest_lines(header, restored))
    store.delete(mark_location(header))


def _folder(prefix: str) -> str:
    return f"{trash_folder(prefix)}/in-place"
