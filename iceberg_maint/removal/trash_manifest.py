"""Trash manifests: one file of lines per trash batch. The first line is the header; each further line
names one file.

Only the manifests define what is in a trash folder.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from iceberg_maint.core.model.codec import dumps, loads
from iceberg_maint.core.model.location import Equivalences, Location, parse_location
from iceberg_maint.core.removal.orphan_rules import (
    TRASH,
    Orphan,
    RetainedOrphans,
    TrashBatchHeader,
    TrashedFile,
    retained_orphans,
)
from iceberg_maint.errors import UnreadableTableError
from iceberg_maint.ports.storage import Store

RELEASED_BY = " released by the expiry of snapshot "
"""In a line's reason, between the kind of a released file and its snapshot."""

_FIELDS = {"path": str, "trash_path": str, "size_bytes": int, "modified_ms": int, "why": str}
"""The fields of a manifest's line."""


@dataclass(frozen=True, slots=True)
class TrashBatch:
    """A manifest: its location, and its numbers of files and bytes. `restored`: all files are back at
    their places, and no scan treats them as orphans while the manifest exists."""

    header: TrashBatchHeader
    location: str
    files: int
    size_bytes: int
    restored: bool


def manifest_location(header: TrashBatchHeader) -> str:
    """Returns the location of a trash batch's manifest."""
    return f"{_folder(header.prefix, 'marks')}/{header.mark_id}.jsonl"


def restored_location(header: TrashBatchHeader) -> str:
    """Returns the location of the manifest after all its files are restored."""
    return f"{_folder(header.prefix, 'restored')}/{header.mark_id}.jsonl"


def trashed_file(orphan: Orphan, prefix: str, mark_id: str, why: str) -> TrashedFile:
    """Returns the manifest line of an orphan below a prefix."""
    below = orphan.path[len(prefix.rstrip("/")) :]
    place = files_folder(prefix, mark_id) + below
    return TrashedFile(orphan.path, place, orphan.size_bytes, orphan.modified_ms, why)


def manifest_lines(header: TrashBatchHeader, files: Iterable[TrashedFile]) -> Iterator[bytes]:
    """Yields the lines of the manifest."""
    yield dumps(header).encode() + b"\n"
    for file in files:
        yield _line_of(file)


def read_batch_headers(prefixes: Iterable[str], store: Store) -> Iterator[TrashBatchHeader]:
    """Yields the headers of the trash batches below the prefixes, in no order. Raises
    UnreadableTableError ICM-101 for a manifest that cannot be read."""
    return (header for prefix in prefixes for header, _ in _read(prefix, "marks", store))


def trash_batches(prefixes: Iterable[str], store: Store) -> list[TrashBatch]:
    """Returns all trash batches below the prefixes, oldest first. Raises UnreadableTableError ICM-101."""
    batches = []
    for prefix in prefixes:
        for kind in ("marks", "restored"):
            for header, location in _read(prefix, kind, store):
                files, size_bytes = 0, 0
                for file in files_of(store, header, location):
                    files, size_bytes = files + 1, size_bytes + file.size_bytes
                batches.append(TrashBatch(header, location, files, size_bytes, kind == "restored"))
    return sorted(batches, key=lambda m: (m.header.marked_ms, m.location))


def retained_in_trash(prefixes: Iterable[str], store: Store, most_paths: int) -> Iterator[RetainedOrphans]:
    """Yields the files that the trash of the prefixes holds for a later sweep, in no order. Raises
    UnreadableTableError ICM-101."""
    for prefix in prefixes:
        for header, location in _read(prefix, "marks", store):
            lines = files_of(store, header, location)
            files = (Orphan(f.path, f.size_bytes, f.modified_ms) for f in lines)
            yield retained_orphans(header.mark_id, header.marked_ms, files, (prefix,), most_paths)


def restored_paths(prefixes: Iterable[str], store: Store) -> Iterator[str]:
    """Yields the original paths of restored files. Raises UnreadableTableError ICM-101."""
    for prefix in prefixes:
        for header, location in _read(prefix, "restored", store):
            yield from (file.path for file in files_of(store, header, location))


def files_of(store: Store, header: TrashBatchHeader, location: str) -> Iterator[TrashedFile]:
    """Yields the files of the manifest at the location. Raises UnreadableTableError ICM-101 for a line
    that is not valid, or that names a file outside the prefix, and for a manifest that is gone."""
    root, folder = header.prefix.rstrip("/"), files_folder(header.prefix, header.mark_id)
    lines = iter(store.read_lines(location))
    try:
        next(lines)
    except FileNotFoundError as error:
        raise UnreadableTableError(
            "ICM-101",
            f"trash manifest {location} is gone: another scan has swept or restored its files.",
            "run the scan again. Two installations that remove orphan files of one table are not needed.",
        ) from error
    for line in lines:
        with _readable(location):
            file = _file_of(line)
            if not file.path.startswith(f"{root}/") or file.trash_path != folder + file.path[len(root) :]:
                raise ValueError(f"a line maps {file.path} to {file.trash_path}")
        yield file


def _line_of(file: TrashedFile) -> bytes:
    """Returns the line of a file, as `codec.dumps` writes it."""
    data = {name: getattr(file, name) for name in _FIELDS}
    return json.dumps(data, sort_keys=True, separators=(",", ":")).encode() + b"\n"


def _file_of(line: bytes) -> TrashedFile:
    """Returns the file of a line. As `codec.loads` does, for lines that may be millions. Raises ValueError."""
    data = json.loads(line)
    if type(data) is not dict or data.keys() != _FIELDS.keys():
        raise ValueError(f"a line has not exactly the fields {', '.join(_FIELDS)}")
    for name, kind in _FIELDS.items():
        if type(data[name]) is not kind:
            raise ValueError(f"{data[name]!r} is no {kind.__name__}")
    return TrashedFile(**data)


def _read(prefix: str, kind: str, store: Store) -> Iterator[tuple[TrashBatchHeader, str]]:
    folder = _folder(prefix, kind)
    for file in store.list(folder):
        with _readable(file.path):
            try:
                first = next(iter(store.read_lines(file.path)))
            except FileNotFoundError:
                continue  # another scan has swept or restored it since the listing
            header = loads(TrashBatchHeader, first.decode())
            # The table may since have another spelling of its location: s3a:// for s3://.
            if _place(f"{_folder(header.prefix, kind)}/{header.mark_id}.jsonl") != _place(file.path):
                raise ValueError(f"its header is that of {header.mark_id} of {header.prefix}")
        yield header, file.path


def trash_folder(prefix: str) -> str:
    """Returns the trash folder below a prefix."""
    return f"{prefix.rstrip('/')}/{TRASH}"


def _folder(prefix: str, kind: str) -> str:
    return f"{trash_folder(prefix)}/{kind}"


def files_folder(prefix: str, mark_id: str) -> str:
    """Returns the folder for the files of a trash batch."""
    return f"{_folder(prefix, 'files')}/{mark_id}"


def _place(path: str) -> Location:
    return parse_location(path, Equivalences())


@contextmanager
def _readable(location: str) -> Iterator[None]:
    try:
        yield
    except (ValueError, StopIteration) as error:
        raise UnreadableTableError(
            "ICM-101",
            f"trash manifest {location} cannot be read: {error}. None of its files was changed.",
            "repair the manifest; each of its lines names one file.",
        ) from error
