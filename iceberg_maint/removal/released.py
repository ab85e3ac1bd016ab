"""Released files: moves the files that expiries released to the trash, by their names.

No listing of the table is needed: the removed snapshots name the files. Each file is proved unreferenced by the
current metadata before it is moved, as an orphan is. The release stays until all its files are moved, so an
interrupted removal is repeated. A file that cannot be proved to be a released one waits for an orphan pass.

The memory is SQLite's cache of `PathTables`, one manifest list and one manifest, whatever the size of the
table.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

from iceberg_maint.core.removal.orphan_rules import (
    Kept,
    NameRules,
    Orphan,
    TrashedFile,
    orphans_digest,
)
from iceberg_maint.core.removal.pending_manifests import PendingManifests
from iceberg_maint.core.removal.released_file_rules import Release, ReleasedFile
from iceberg_maint.ports.storage import StoredFile
from iceberg_maint.removal.pass_progress import Moved
from iceberg_maint.removal.path_index import PathTables
from iceberg_maint.removal.released_lists import PrefixSpelling, add_names, stored_releases
from iceberg_maint.removal.second_owner import check_folders, versions_memo
from iceberg_maint.removal.store_requests import Lease, with_facts
from iceberg_maint.removal.target import (
    Removal,
    check_second_opinion,
    check_target,
    pending_manifests,
    read_reached,
)
from iceberg_maint.removal.trash import move_files, new_header, put_back_reached, tidy_trash
from iceberg_maint.removal.trash_manifest import RELEASED_BY, restored_paths, trashed_file


def remove_released(removal: Removal, lease: Lease, tell: Callable[[Moved], None]) -> None:
    """Moves the files of all stored releases to the trash, one trash batch per prefix that has any, then
    deletes the releases. `tell` receives what was done, however it ends.

    Raises RefusedError as `scan` does, UnreadableTableError ICM-101, FenceLostError.
    """
    target, store = removal.target, removal.store
    releases = list(stored_releases(target.prefixes, target.state.uuid, store))
    if not releases:
        return
    check_target(target, removal.policy)
    check_folders(target, store, removal.reachability, versions_memo(removal.scratch, target.state))
    paths = removal.paths("released")
    try:
        pending = pending_manifests(target.state, removal.policy, removal.now_ms())
        read_releases(removal, paths, pending, [release for _, release in releases])
        if paths.releases_manifests():
            check_second_opinion(removal, paths)
        progress = Moved()
        paths.add_taken(_same_files(removal, paths, pending, progress))
        try:
            for prefix in target.prefixes:
                _move(removal, paths, prefix, lease, progress)
            if progress.files:
                before = paths.unreferenced()
                _read_current(removal, paths, pending)
                if paths.unreferenced() != before:
                    put_back_reached(paths, store, progress)
        finally:
            tell(progress)
    finally:
        paths.close()
    for file, _ in releases:
        store.delete(file.path)
    tidy_trash(target, store)


def read_releases(
    removal: Removal, paths: PathTables, pending: PendingManifests, releases: list[Release]
) -> None:
    """Adds what is referenced, and what the removed snapshots name beyond it."""
    paths.add_reached(restored_paths(removal.target.prefixes, removal.store), Kept.RESTORED)
    _read_current(removal, paths, pending)
    add_names(paths, releases, removal.reachability)
    if paths.releases_manifests():
        _read_current(removal, paths, pending)


def _read_current(removal: Removal, paths: PathTables, pending: PendingManifests) -> None:
    """Adds everything that keeps a file. Where no manifest is released, no content file is, and the names
    that the metadata hold are enough."""
    if paths.releases_manifests():
        read_reached(removal, paths, pending)
        return
    paths.add_reached(removal.reachability.names(), Kept.REACHABLE)


def _same_files(
    removal: Removal, paths: PathTables, pending: PendingManifests, progress: Moved
) -> Iterator[tuple[ReleasedFile, StoredFile]]:
    """Yields the released files that storage has and that may be removed by their name, each in the spelling
    of its prefix."""
    target = removal.target
    rules = NameRules(target.state, pending)
    spelling = PrefixSpelling(target.prefixes, target.same)
    for file, stored in with_facts(paths.released(), removal.store):
        spelled = spelling.below(file.path)
        if (
            spelled is not None
            and stored is not None
            and file.is_same(stored.size_bytes, stored.modified_ms)
            and rules.kept(spelled[1], stored.modified_ms) is None
        ):
            yield file, StoredFile("".join(spelled), stored.size_bytes, stored.modified_ms)
        else:
            progress.skipped += 1


def _move(removal: Removal, paths: PathTables, prefix: str, lease: Lease, progress: Moved) -> None:
    header = new_header(removal, prefix, orphans_digest(_below(paths, prefix)), released=True)
    if next(_below(paths, prefix), None) is not None:
        lines = partial(_lines, paths, prefix, header.mark_id)
        move_files(header, lines, removal.store, lease.require, progress, _kind)


def _kind(line: TrashedFile) -> str:
    """Returns the kind of a released file. A kind that names others moves after all of them."""
    return line.why.partition(RELEASED_BY)[0]


def _below(paths: PathTables, prefix: str) -> Iterator[Orphan]:
    start = prefix.rstrip("/") + "/"
    return (file for file, _, _ in paths.taken() if file.path.startswith(start))


def _lines(paths: PathTables, prefix: str, mark_id: str) -> Iterator[TrashedFile]:
    start = prefix.rstrip("/") + "/"
    for file, kind, snapshot_id in paths.taken():
        if file.path.startswith(start):
            yield trashed_file(file, prefix, mark_id, f"{kind.value}{RELEASED_BY}{snapshot_id}")
