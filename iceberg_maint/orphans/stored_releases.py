"""Stored releases: written before an expiry commits, and read until its files are in the trash."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from iceberg_maint.core.model.codec import dumps, loads
from iceberg_maint.core.removal.released_files import Release, RemovedSnapshot, collect
from iceberg_maint.orphans.path_index import PathTables
from iceberg_maint.orphans.trash_manifest import trash_folder
from iceberg_maint.ports.storage import Reachability, Store, StoredFile

_log = logging.getLogger(__name__)


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
    location = f"{_folder(prefix)}/{release.release_id}.jsonl"
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
    release: the files of further snapshots wait for an orphan pass, as do those of another table."""
    for file in (f for prefix in prefixes for f in store.list(_folder(prefix))):
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


def _folder(prefix: str) -> str:
    return f"{trash_folder(prefix)}/releases"
