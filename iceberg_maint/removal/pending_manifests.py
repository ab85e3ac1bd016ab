"""Pending manifests: read before the metadata; each file that they name counts as referenced.

If a job commits in between, the metadata reference its files. If it has not committed, the manifest still
names them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import chain, islice

from iceberg_maint.core.model.location import Equivalences, Location, parse_location
from iceberg_maint.core.model.table_state import TableState
from iceberg_maint.core.policy.housekeeping import RemoveOrphanFilesPolicy
from iceberg_maint.core.removal.orphan_rules import Kept
from iceberg_maint.core.removal.pending_manifests import PendingManifests
from iceberg_maint.errors import UnreadableTableError
from iceberg_maint.ports.storage import Reachability, Store, StoredFile
from iceberg_maint.removal.path_index import PathTables

_AT_ONCE = 16
"""The number of manifests read at once and held in memory."""


def pending_manifests(state: TableState, policy: RemoveOrphanFilesPolicy, now_ms: int) -> PendingManifests:
    """Returns the manifests that count as pending at this time."""
    seconds = policy.writer_state_max_age_seconds
    if seconds is None:
        return PendingManifests(state)
    return PendingManifests(state, now_ms - max(seconds, policy.older_than_seconds) * 1000)


def add_pending(
    paths: PathTables,
    store: Store,
    reachability: Reachability,
    pending: PendingManifests,
    home: Location,
    same: Equivalences,
) -> None:
    """Adds the files that pending manifests name: listed manifests, and those in the table's current
    folders for them. `home` is the table's location. A manifest noted before is not read again. Raises
    UnreadableTableError ICM-101."""
    in_folders = (file for folder in pending.folders for file in _listed(store, folder, home, same))
    in_other_folders = (f for f in in_folders if pending.keeps(_name(f.path), f.modified_ms))
    fresh = (f for f in chain(paths.listed_flink_manifests(), in_other_folders) if paths.add_manifest(f))
    with ThreadPoolExecutor(_AT_ONCE) as readers:
        for chunk in _batches(fresh):
            contents = readers.map(lambda file: _content(store, file.path), chunk)
            for file, data in zip(chunk, contents, strict=True):
                if data is not None:
                    _add(paths, reachability, pending, file.path, data)


def _add(
    paths: PathTables, reachability: Reachability, pending: PendingManifests, location: str, data: bytes
) -> None:
    files = reachability.pending(location, data, certain=pending.has_full_name(_name(location)))
    try:
        paths.add_reached(files or (), Kept.PENDING)
    except ValueError as error:
        raise UnreadableTableError(
            "ICM-101",
            f"pending manifest {location} names a file that cannot be compared with a listing: {error}. "
            "No file was moved.",
            "delete the manifest if its job will never be restored; otherwise write absolute paths.",
        ) from error


def _listed(store: Store, folder: str, home: Location, same: Equivalences) -> Iterator[StoredFile]:
    try:
        if parse_location(folder, same).is_local != home.is_local:
            raise ValueError("the folder is on another kind of storage than the table")
        yield from store.list(folder)
    except ValueError as error:
        raise UnreadableTableError(
            "ICM-101",
            f"{folder}, where Flink jobs keep pending manifests of the table, cannot be listed: {error}. The "
            "files that they name cannot be distinguished from orphans, so no file was moved.",
            "set flink.manifests.location to a folder of the table's storage, or remove the property once no "
            "job has manifests there.",
        ) from error


def _content(store: Store, location: str) -> bytes | None:
    """Returns the manifest; None if its job has deleted it since the listing."""
    try:
        return store.read(location)
    except FileNotFoundError:
        return None


def _name(path: str) -> str:
    return path.rpartition("/")[2]


def _batches(files: Iterable[StoredFile]) -> Iterator[list[StoredFile]]:
    iterator = iter(files)
    while chunk := list(islice(iterator, _AT_ONCE)):
        yield chunk
