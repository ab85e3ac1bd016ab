"""Released files: moves the files that expiries released to the trash, by their names.

No listing of the table is needed: the removed snapshots name the files. Each file is proved unreferenced by the
current metadata before it is moved, as an orphan is. The release stays until all its files are moved, so an
interrupted removal is repeated. A file that cannot be proved to be a released one waits for an orphan pass.

The memory is SQLite's cache of `PathTables`, one manifest list and one manifest, whatever the size of the
table.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from uuid import uuid4

from iceberg_maint.core.policy.housekeeping import RemoveOrphanFilesPolicy
from iceberg_maint.core.removal.orphan_rules import (
    Kept,
    NameRules,
    Orphan,
    TrashBatchHeader,
    TrashedFile,
    orphans_digest,
)
from iceberg_maint.core.removal.pending_manifests import PendingManifests
from iceberg_maint.core.removal.released_file_rules import Release, ReleasedFile
from iceberg_maint.ports.storage import Reachability, Store, StoredFile
from iceberg_maint.removal.orphan_scan import check_second_opinion, check_target, checked_clock, read_reached
from iceberg_maint.removal.path_index import PathTables
from iceberg_maint.removal.pending_manifests import pending_manifests
from iceberg_maint.removal.second_owner import check_folders, versions_memo
from iceberg_maint.removal.store_requests import with_facts
from iceberg_maint.removal.stored_releases import PrefixSpelling, add_names, stored_releases
from iceberg_maint.removal.target import Target
from iceberg_maint.removal.trash import Moved, move_files, put_back_reached, tidy_trash
from iceberg_maint.removal.trash_manifest import RELEASED_BY, restored_paths, trashed_file


def remove_released(
    target: Target,
    policy: RemoveOrphanFilesPolicy,
    store: Store,
    reachability: Reachability,
    scratch: Path,
    now_ms: Callable[[], int],
    *,
    holds: Callable[[], bool],
    tell: Callable[[Moved], None],
) -> None:
    """Moves the files of all stored releases to the trash, one trash batch per prefix that has any, then
    deletes the releases. `tell` receives what was done, however it ends.

    Raises RefusedError as `scan` does, UnreadableTableError ICM-101, FenceLostError.
    """
    releases = list(stored_releases(target.prefixes, target.state.uuid, store))
    if not releases:
        return
    check_target(target, policy)
    check_folders(target, store, reachability, versions_memo(scratch, target.state))
    paths = PathTables(scratch / f"released-{target.state.uuid}.db", target.prefixes, target.same)
    try:
        pending = pending_manifests(target.state, policy, now_ms())
        read_releases(paths, target, store, reachability, pending, [release for _, release in releases])
        if paths.releases_manifests():
            check_second_opinion(paths, target, reachability)
        progress = Moved([])
        paths.add_taken(_same_files(paths, target, store, pending, progress))
        try:
            for prefix in target.prefixes:
                _move(paths, prefix, target, policy, store, reachability, now_ms, holds, progress)
            if progress.files:
                before = paths.unreferenced()
                _read_current(paths, target, store, reachability, pending)
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
    paths: PathTables,
    target: Target,
    store: Store,
    reachability: Reachability,
    pending: PendingManifests,
    releases: list[Release],
) -> None:
    """Adds what is referenced, and what the removed snapshots name beyond it."""
    paths.add_reached(restored_paths(target.prefixes, store), Kept.RESTORED)
    _read_current(paths, target, store, reachability, pending)
    add_names(paths, releases, reachability)
    if paths.releases_manifests():
        _read_current(paths, target, store, reachability, pending)


def _read_current(
    paths: PathTables,
    target: Target,
    store: Store,
    reachability: Reachability,
    pending: PendingManifests,
) -> None:
    """Adds everything that keeps a file. Where no manifest is released, no content file is, and the names
    that the metadata hold are enough."""
    if paths.releases_manifests():
        read_reached(paths, target, store, reachability, pending)
        return
    paths.add_reached(reachability.names(), Kept.REACHABLE)


def _same_files(
    paths: PathTables, target: Target, store: Store, pending: PendingManifests, progress: Moved
) -> Iterator[tuple[ReleasedFile, StoredFile]]:
    """Yields the released files that storage has and that may be removed by their name, each in the spelling
    of its prefix."""
    rules = NameRules(target.state, pending)
    spelling = PrefixSpelling(target.prefixes, target.same)
    for file, stored in with_facts(paths.released(), store):
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


def _move(
    paths: PathTables,
    prefix: str,
    target: Target,
    policy: RemoveOrphanFilesPolicy,
    store: Store,
    reachability: Reachability,
    now_ms: Callable[[], int],
    holds: Callable[[], bool],
    progress: Moved,
) -> None:
    digest = orphans_digest(_below(paths, prefix))
    marked_ms = checked_clock(store, prefix, now_ms)
    header = TrashBatchHeader(
        mark_id=f"{marked_ms}-{uuid4().hex[:16]}",
        table=str(target.state.table),
        table_uuid=target.state.uuid,
        prefix=prefix,
        marked_ms=marked_ms,
        older_than_seconds=policy.older_than_seconds,
        metadata_location=reachability.metadata_location(),
        digest=digest,
        released=True,
    )
    if next(_below(paths, prefix), None) is not None:
        move_files(header, lambda: _lines(paths, prefix, header.mark_id), store, holds, progress, _kind)


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
