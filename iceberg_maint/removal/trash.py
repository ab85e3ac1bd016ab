"""Trash: files moved aside with a manifest of the files and the reason: the orphans of a scan, and the files that expiries
released. `sweep` deletes them after a retention, `restore` moves them back.

The manifest is on storage before the first file moves. Only the manifests define what is in a trash folder, so every step
can be repeated after a crash: a file is either at its place or in the trash, and both are checked.

Released files need no listing of the table: the removed snapshots name them. Each is proved unreferenced by the current
metadata before it is moved, as an orphan is. The release stays until all its files are moved. A file that cannot be
proved to be a released one waits for an orphan scan. The memory is SQLite's cache of `PathTables`, one manifest list and
one manifest, whatever the size of the table.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from uuid import uuid4

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
from iceberg_maint.errors import ArchivedFileError, RefusedError
from iceberg_maint.ports.storage import Store, StoredFile
from iceberg_maint.removal.orphan_scan import Scan
from iceberg_maint.removal.path_index import PathTables
from iceberg_maint.removal.released_lists import PrefixSpelling, add_names, stored_releases
from iceberg_maint.removal.removal_progress import Moved
from iceberg_maint.removal.second_owner import check_folders, versions_memo
from iceberg_maint.removal.store_requests import RemovalLease, TimeUpError, changed, with_facts
from iceberg_maint.removal.target import (
    Removal,
    Target,
    check_second_opinion,
    check_target,
    checked_clock,
    pending_manifests,
    read_reached,
)
from iceberg_maint.removal.trash_manifest import (
    RELEASED_BY,
    files_of,
    manifest_lines,
    manifest_location,
    restored_paths,
    trash_folder,
    trashed_file,
)

_log = logging.getLogger(__name__)
_WHY = "no metadata references it"


def trash(
    scan: Scan,
    lease: RemovalLease,
    *,
    approved: str | None = None,
    report: Callable[[Moved], None] = lambda _: None,
) -> Moved:
    """Moves the orphans of a scan to the trash, one trash batch per prefix that has any.

    First the metadata are read again, and each file is checked again. A file that was committed during the
    moves is restored. `approved` is the digest that a person approves. The lease is checked before
    every file. `report` receives what was done, however it ends. Raises RefusedError ICM-122 if the share is
    abnormal and not approved, FenceLostError, TimeUpError.
    """
    if scan.needs_approval and approved != scan.digest:
        counts = scan.counts
        raise RefusedError(
            "ICM-122",
            f"{scan.removal.target.state.table}: {counts.orphan_files} of {counts.listed_files} files, "
            f"{counts.orphan_bytes} of {counts.listed_bytes} bytes are orphans "
            f"(limit {scan.removal.policy.max_orphan_ratio:.0%}).",
            f"inspect the orphans of the scan, then approve them by the digest {scan.digest}.",
        )
    removal = scan.removal
    read_reached(removal, scan.paths, scan.pending)
    progress = Moved()
    stopped: TimeUpError | None = None
    try:
        try:
            for prefix in removal.target.prefixes:
                _move(scan, prefix, lease, progress)
        except TimeUpError as why:
            stopped = why
        _put_back_reached(scan, progress)
        if stopped is not None:
            raise stopped
    finally:
        report(progress)
    reached_since = scan.counts.orphan_files - progress.files - progress.skipped
    return replace(progress, skipped=progress.skipped + reached_since)


def _move(scan: Scan, prefix: str, lease: RemovalLease, progress: Moved) -> None:
    """Writes the manifest of one prefix, then moves the files that it names."""
    header = new_header(scan.removal, prefix, scan.digest)
    if next(_below(scan, prefix), None) is not None:
        move_files(
            header,
            lambda: _trashed(scan, prefix, header.mark_id),
            scan.removal.store,
            lease.proceed,
            progress,
        )


def new_header(removal: Removal, prefix: str, digest: str, *, released: bool = False) -> TrashBatchHeader:
    """Returns the header of a trash batch that begins now. Raises RefusedError ICM-115."""
    marked_ms = checked_clock(removal.store, prefix, removal.now_ms)
    return TrashBatchHeader(
        # Two installations may mark the same files in one second: each has a manifest of its own.
        mark_id=f"{marked_ms}-{uuid4().hex[:16]}",
        table=str(removal.target.state.table),
        table_uuid=removal.target.state.uuid,
        prefix=prefix,
        marked_ms=marked_ms,
        older_than_seconds=removal.policy.older_than_seconds,
        metadata_location=removal.reachability.metadata_location(),
        digest=digest,
        released=released,
    )


def move_files(
    header: TrashBatchHeader,
    lines: Callable[[], Iterator[TrashedFile]],
    store: Store,
    require: Callable[[], None],
    progress: Moved,
    stage_of: Callable[[TrashedFile], str] = lambda _: "",
) -> None:
    """Writes the manifest of a trash batch, then moves its files in their order. Files of one stage may move at once.
    A file that changed or is gone is skipped, and so is an archived one, which the store does not copy. `require`
    is called before every group; what it raises ends the moves."""
    require()
    store.create(manifest_location(header), manifest_lines(header, lines()))
    progress.headers.append(header)
    archived: list[ArchivedFileError] = []

    def move(line: TrashedFile) -> bool:
        stored = store.stat(line.path)
        if stored is None or not _is_unchanged(stored, line):
            return False
        try:
            store.move(line.path, line.trash_path)
        except FileNotFoundError:
            return False  # its writer, or another cleaner, has deleted it since
        except ArchivedFileError as why:
            archived.append(why)
            return False
        return True

    for line, is_moved in changed(lines(), move, store.at_once, require, stage_of):
        if is_moved:
            progress.files, progress.size_bytes = progress.files + 1, progress.size_bytes + line.size_bytes
        else:
            progress.skipped += 1
    if archived:
        _log.warning(
            "%s: %d files were not moved to the trash; one: %s", header.table, len(archived), archived[0]
        )


def _is_unchanged(stored: StoredFile, line: TrashedFile) -> bool:
    """Returns whether storage still has the listed file. Some S3 servers (MinIO, Ceph) answer milliseconds in a listing
    and whole seconds for one object."""
    if stored.modified_ms is None or stored.size_bytes != line.size_bytes:
        return False
    seconds, rest_ms = divmod(stored.modified_ms, 1000)
    listed_seconds, listed_rest_ms = divmod(line.modified_ms, 1000)
    return seconds == listed_seconds and (rest_ms == listed_rest_ms or 0 in (rest_ms, listed_rest_ms))


def _put_back_reached(scan: Scan, progress: Moved) -> None:
    """Restores files that are referenced by now. Moving many files can take hours, and no reader could
    read these files until the next sweep."""
    if not progress.files:
        return
    read_reached(scan.removal, scan.paths, scan.pending)
    put_back_reached(scan.paths, scan.removal.store, progress)


def put_back_reached(paths: PathTables, store: Store, progress: Moved) -> None:
    """Restores the moved files that `paths` reaches by now."""
    for header in progress.headers:
        for line in files_of(store, header, manifest_location(header)):
            if not paths.reaches(line.path) or store.stat(line.trash_path) is None:
                continue
            if put_back(store, line):
                progress.files, progress.size_bytes = (
                    progress.files - 1,
                    progress.size_bytes - line.size_bytes,
                )
                progress.skipped += 1


def tidy_trash(target: Target, store: Store) -> None:
    """Removes the trash folders that hold no file."""
    for prefix in target.prefixes:
        if next(store.list(trash_folder(prefix)), None) is None:
            store.tidy(trash_folder(prefix))


def put_back(store: Store, line: TrashedFile) -> bool:
    """Moves a file back to its place. Returns False if another file is there."""
    try:
        store.move(line.trash_path, line.path)
    except FileExistsError:
        return False
    return True


def _below(scan: Scan, prefix: str) -> Iterator[Orphan]:
    start = prefix.rstrip("/") + "/"
    return (o for o in scan.paths.orphans() if o.path.startswith(start))


def _trashed(scan: Scan, prefix: str, mark_id: str) -> Iterator[TrashedFile]:
    return (trashed_file(o, prefix, mark_id, _WHY) for o in _below(scan, prefix))


def check_own(header: TrashBatchHeader, target: Target) -> None:
    """Raises RefusedError ICM-129 for the trash of another table."""
    if header.table_uuid != target.state.uuid:
        raise RefusedError(
            "ICM-129",
            f"the trash of {header.prefix} holds {header.mark_id} of a table with uuid {header.table_uuid}; "
            f"{target.state.table} has {target.state.uuid}.",
            "read its manifest, then delete or move it by hand.",
        )


def remove_released(removal: Removal, lease: RemovalLease, report: Callable[[Moved], None]) -> None:
    """Moves the files of all stored releases to the trash, one trash batch per prefix that has any, then
    deletes the releases. `report` receives what was done, however it ends.

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
                _move_released(removal, paths, prefix, lease, progress)
            if progress.files:
                before = paths.unreferenced()
                _read_current(removal, paths, pending)
                if paths.unreferenced() != before:
                    put_back_reached(paths, store, progress)
        finally:
            report(progress)
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


def _move_released(
    removal: Removal, paths: PathTables, prefix: str, lease: RemovalLease, progress: Moved
) -> None:
    header = new_header(removal, prefix, orphans_digest(_taken_below(paths, prefix)), released=True)
    if next(_taken_below(paths, prefix), None) is not None:
        lines = partial(_lines, paths, prefix, header.mark_id)
        move_files(header, lines, removal.store, lease.require, progress, _kind)


def _kind(line: TrashedFile) -> str:
    """Returns the kind of a released file. A kind that names others moves after all of them."""
    return line.why.partition(RELEASED_BY)[0]


def _taken_below(paths: PathTables, prefix: str) -> Iterator[Orphan]:
    start = prefix.rstrip("/") + "/"
    return (file for file, _, _ in paths.taken() if file.path.startswith(start))


def _lines(paths: PathTables, prefix: str, mark_id: str) -> Iterator[TrashedFile]:
    start = prefix.rstrip("/") + "/"
    for file, kind, snapshot_id in paths.taken():
        if file.path.startswith(start):
            yield trashed_file(file, prefix, mark_id, f"{kind.value}{RELEASED_BY}{snapshot_id}")
