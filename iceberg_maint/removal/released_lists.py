"""Lists of released files in the trash folder: the releases of expiries, and the marks of files that stay at their paths
during the retention.

A mark is one file of lines. The first line is the mark; each further line names one file. Only the marks define which
files are retained in place. A mark that is not complete, as a crash can leave it on a local disk, holds nothing: the releases
that it was made from are still stored.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import chain

from iceberg_maint.core.model.codec import dumps, loads
from iceberg_maint.core.model.location import Equivalences, parse_location
from iceberg_maint.core.removal.orphan_rules import (
    Orphan,
    RetainedOrphans,
    TrashBatchHeader,
    retained_orphans,
)
from iceberg_maint.core.removal.released_file_rules import (
    Release,
    ReleasedFile,
    ReleasedKind,
    RemovedSnapshot,
    collect,
)
from iceberg_maint.ports.storage import Reachability, Store, StoredFile
from iceberg_maint.removal.path_index import PathTables
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


class PrefixSpelling:
    """The prefixes of one table. A folder is parsed once for files that follow one another."""

    def __init__(self, prefixes: Iterable[str], same: Equivalences) -> None:
        self._same = same
        self._roots = [(prefix.rstrip("/"), parse_location(prefix, same)) for prefix in prefixes]
        self._folder: str | None = None
        self._spelled: tuple[str, str] | None = None

    def below(self, path: str) -> tuple[str, str] | None:
        """Returns the prefix that the path is below, and the rest of the path. None if only another spelling
        of the folders is below a prefix. Raises ValueError for a path that is not a location."""
        folder, _, name = path.rpartition("/")
        if not folder or folder.endswith("/"):  # `s3:/` of `s3://bucket`
            return self._below(path)
        if folder != self._folder:
            self._folder, self._spelled = folder, self._below(f"{folder}/")
        if self._spelled is None:
            return None
        prefix, rest = self._spelled
        return prefix, rest + name

    def _below(self, path: str) -> tuple[str, str] | None:
        place = parse_location(path, self._same)
        for prefix, root in self._roots:
            folder = root.path.rstrip("/")
            if place.store.casefold() == root.store.casefold() and place.path.startswith(f"{folder}/"):
                return prefix, place.path[len(folder) :]
        return None


@dataclass(frozen=True, slots=True)
class _StoredRelease:
    """First line of a stored release; one line per snapshot follows."""

    release_id: str
    table: str
    table_uuid: str
    metadata_location: str
    updated_ms: int


def record_release(prefix: str, store: Store, release: Release) -> None:
    """Stores a release in the trash folder below a prefix. It is durable when this returns. A release of the same
    batch from an earlier attempt is replaced."""
    location = f"{_releases_folder(prefix)}/{release.release_id}.jsonl"
    header = _StoredRelease(
        release.release_id,
        release.table,
        release.table_uuid,
        release.metadata_location,
        release.updated_ms,
    )
    store.delete(location)
    store.create(location, (dumps(line).encode() + b"\n" for line in (header, *release.snapshots)))


def stored_releases(
    prefixes: Iterable[str], table_uuid: str, store: Store
) -> Iterator[tuple[StoredFile, Release]]:
    """Yields file and content of each release stored below the prefixes. A line that cannot be read ends a
    release: the files of further snapshots wait for an orphan scan, as do those of another table."""
    for file in (f for prefix in prefixes for f in store.list(_releases_folder(prefix))):
        lines = iter(store.read_lines(file.path))
        try:
            header = loads(_StoredRelease, next(lines).decode())
        except (ValueError, StopIteration):
            header = _StoredRelease("unreadable", "", "", "", 0)
        ours = header.table_uuid == table_uuid
        yield (
            file,
            Release(
                header.release_id,
                header.table,
                header.table_uuid,
                header.metadata_location,
                header.updated_ms,
                tuple(_snapshots(lines, file.path)) if ours else (),
            ),
        )


def _snapshots(lines: Iterator[bytes], location: str) -> Iterator[RemovedSnapshot]:
    try:
        for line in lines:
            yield loads(RemovedSnapshot, line.decode())
    except ValueError as error:
        _log.warning("release %s cannot be read to its end: %s", location, error)


def add_names(paths: PathTables, releases: Iterable[Release], reachability: Reachability) -> None:
    """Adds the files that the removed snapshots reference and the paths do not reach."""
    paths.index()
    for release in releases:
        collect(release, reachability.manifests, reachability.files, paths.add_released)


def _releases_folder(prefix: str) -> str:
    return f"{trash_folder(prefix)}/releases"


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
        for file in store.list(_marks_folder(prefix)):
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
    return f"{_marks_folder(header.prefix)}/{header.mark_id}.jsonl"


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


def retained_in_place(
    prefixes: Iterable[str], table_uuid: str, store: Store, most_paths: int
) -> Iterator[RetainedOrphans]:
    """Yields the files that the lists of a table hold for a later sweep."""
    for mark in marks_of(prefixes, table_uuid, store):
        files = (Orphan(f.path, f.size_bytes or 0, f.committed_ms) for f in listed_files(store, mark))
        header = mark.header
        yield retained_orphans(header.mark_id, header.marked_ms, files, (header.prefix,), most_paths)


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


def _marks_folder(prefix: str) -> str:
    return f"{trash_folder(prefix)}/in-place"
