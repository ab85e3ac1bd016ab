"""Released files: files that only the snapshots of one expiry reference.

Before an expiry commits, its release is stored: the removed snapshots with the files that the table metadata
name for them. Manifest lists and manifests never change, so the released files can be derived from the
release at any later time, also after a crash. The result is the live files of the removed snapshots without
everything that the current metadata references.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from iceberg_maint.core.model.table_state import FileKind, Manifest, TableState
from iceberg_maint.core.removal.clock_skew import MAX_SKEW_MS


class ReleasedKind(StrEnum):
    """The kinds of released files, in the order in which they are removed. A file that names others is
    removed after them, so that an interrupted removal can be repeated."""

    DATA = FileKind.DATA.value
    POSITION_DELETES = FileKind.POSITION_DELETES.value
    EQUALITY_DELETES = FileKind.EQUALITY_DELETES.value
    DELETION_VECTOR = FileKind.DELETION_VECTOR.value
    STATISTICS = "statistics"
    MANIFEST = "manifest"
    MANIFEST_LIST = "manifest_list"


REMOVAL_ORDER = tuple(ReleasedKind)
_KIND_OF = {kind: ReleasedKind(kind.value) for kind in FileKind}


@dataclass(frozen=True, slots=True)
class RemovedSnapshot:
    """A snapshot that an expiry removes. `statistics` are its statistics and partition statistics files."""

    snapshot_id: int
    timestamp_ms: int
    manifest_list: str
    statistics: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Release:
    """The snapshots that one expiry removes, oldest first. `release_id` is the id of its batch.
    `metadata_location` is the metadata that it was planned on, last changed at `updated_ms`."""

    release_id: str
    table: str
    table_uuid: str
    metadata_location: str
    updated_ms: int
    snapshots: tuple[RemovedSnapshot, ...]


@dataclass(frozen=True, slots=True)
class NamedFile:
    """A content file as a manifest names it, with the size of the whole file."""

    path: str
    kind: FileKind
    size_bytes: int


@dataclass(frozen=True, slots=True)
class ReleasedFile:
    """A file that a removed snapshot references. `snapshot_id` is the oldest such snapshot. At `committed_ms`
    the metadata referenced the file. `size_bytes` is None if the metadata do not state it."""

    path: str
    kind: ReleasedKind
    size_bytes: int | None
    snapshot_id: int
    committed_ms: int

    def is_same(self, size_bytes: int, modified_ms: int | None) -> bool:
        """Returns whether the file at this path can be the one that the snapshot references. A writer may
        use the path again: such a file was written after the commit, or has another size."""
        same_size = self.size_bytes in (None, size_bytes)
        return same_size and modified_ms is not None and modified_ms <= self.committed_ms + MAX_SKEW_MS


def release_of(
    release_id: str, state: TableState, document: Mapping[str, Any], snapshot_ids: Collection[int]
) -> Release:
    """Returns the release of these snapshots. `document` is the table metadata of `state`. Snapshots of
    early format v1 writers, which have no manifest list, are omitted."""
    statistics: dict[int, list[str]] = {}
    for key in ("statistics", "partition-statistics"):
        for entry in document.get(key) or ():
            statistics.setdefault(int(entry["snapshot-id"]), []).append(entry["statistics-path"])
    planned = frozenset(snapshot_ids)
    return Release(
        release_id,
        str(state.table),
        state.uuid,
        state.metadata_location,
        state.last_updated_ms,
        tuple(
            RemovedSnapshot(
                s.snapshot_id, s.timestamp_ms, s.manifest_list, tuple(statistics.get(s.snapshot_id, ()))
            )
            for s in state.snapshots
            if s.snapshot_id in planned and s.manifest_list
        ),
    )


def collect(
    release: Release,
    manifests: Callable[[str], Sequence[Manifest]],
    files: Callable[[Manifest], Iterable[NamedFile]],
    add: Callable[[Iterable[ReleasedFile]], int],
) -> None:
    """Adds every file that may be released: files that the snapshots reference through a manifest that the
    current metadata do not name.

    `add` omits files that the metadata name or that were added before, and returns the number added. A
    manifest that it omits is not opened: its live files are still referenced, or were added with it. `add`
    is called again while it reads the files that it was given.
    """
    add(_content_files(release, manifests, files, add))


def _content_files(
    release: Release,
    manifests: Callable[[str], Sequence[Manifest]],
    files: Callable[[Manifest], Iterable[NamedFile]],
    add: Callable[[Iterable[ReleasedFile]], int],
) -> Iterator[ReleasedFile]:
    """Yields the data and delete files, and adds the other files as it comes to them."""
    # Most manifests of a list are those of the list before it.
    before: frozenset[str] = frozenset()
    for snapshot in release.snapshots:
        number, at_ms = snapshot.snapshot_id, snapshot.timestamp_ms
        # Statistics are written after the commit of their snapshot.
        statistics = (
            ReleasedFile(path, ReleasedKind.STATISTICS, None, number, release.updated_ms)
            for path in snapshot.statistics
        )
        add(statistics)
        own = ReleasedFile(snapshot.manifest_list, ReleasedKind.MANIFEST_LIST, None, number, at_ms)
        if not add((own,)):
            continue
        listed = manifests(snapshot.manifest_list)
        for manifest in listed:
            if manifest.path in before:
                continue
            size = manifest.length_bytes
            if add((ReleasedFile(manifest.path, ReleasedKind.MANIFEST, size, number, at_ms),)):
                for file in files(manifest):
                    yield ReleasedFile(file.path, _KIND_OF[file.kind], file.size_bytes, number, at_ms)
        before = frozenset(manifest.path for manifest in listed)
