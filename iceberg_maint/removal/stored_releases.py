"""Spells the paths of metadata as storage lists them: with the scheme and authority of the listed prefix."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from iceberg_maint.core.model.codec import dumps, loads
from iceberg_maint.core.model.location import Equivalences, parse_location
from iceberg_maint.core.removal.released_file_rules import Release, RemovedSnapshot, collect
from iceberg_maint.ports.storage import Reachability, Store, StoredFile
from iceberg_maint.removal.path_index import PathTables
from iceberg_maint.removal.trash_manifest import trash_folder


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
