"""Trash: orphans moved aside with a manifest of the files and the reason. `sweep` deletes them after a hold, `restore`
moves them back.

The manifest is on storage before the first file moves. Only the manifests define what is in a trash
folder, so every step can be repeated after a crash: a file is either at its place or in the trash, and
both are checked.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from dataclasses import replace
from uuid import uuid4

from iceberg_maint.core.removal.orphan_rules import Orphan, TrashBatchHeader, TrashedFile
from iceberg_maint.errors import ArchivedFileError, RefusedError
from iceberg_maint.ports.storage import Store, StoredFile
from iceberg_maint.removal.orphan_scan import Scan
from iceberg_maint.removal.pass_progress import Moved
from iceberg_maint.removal.path_index import PathTables
from iceberg_maint.removal.store_requests import Lease, TimeUpError, changed
from iceberg_maint.removal.target import Removal, Target, checked_clock, read_reached
from iceberg_maint.removal.trash_manifest import (
    files_of,
    manifest_lines,
    manifest_location,
    trash_folder,
    trashed_file,
)

_log = logging.getLogger(__name__)
_WHY = "no metadata references it"


def trash(
    scan: Scan,
    lease: Lease,
    *,
    approved: str | None = None,
    tell: Callable[[Moved], None] = lambda _: None,
) -> Moved:
    """Moves the orphans of a scan to the trash, one trash batch per prefix that has any.

    First the metadata are read again, and each file is checked again. A file that was committed during the
    moves is restored. `approved` is the digest that a person approves. The lease is checked before
    every file. `tell` receives what was done, however it ends. Raises RefusedError ICM-122 if the share is
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
        tell(progress)
    reached_since = scan.counts.orphan_files - progress.files - progress.skipped
    return replace(progress, skipped=progress.skipped + reached_since)


def _move(scan: Scan, prefix: str, lease: Lease, progress: Moved) -> None:
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
    """Raises RefusedError ICM-102 for the trash of another table."""
    if header.table_uuid != target.state.uuid:
        raise RefusedError(
            "ICM-102",
            f"the trash of {header.prefix} holds {header.mark_id} of a table with uuid {header.table_uuid}; "
            f"{target.state.table} has {target.state.uuid}.",
            "read its manifest, then delete or move it by hand.",
        )
