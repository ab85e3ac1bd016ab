"""Trash: orphans moved aside with a manifest of the files and the reason, deleted after a hold or
restored.

The manifest is on storage before the first file moves. Only the manifests define what is in a trash
folder, so every step can be repeated after a crash: a file is either at its place or in the trash, and
both are checked.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from uuid import uuid4

from iceberg_maint.core.policy.housekeeping import RemoveOrphanFilesPolicy
from iceberg_maint.core.removal.orphans import Orphan, TrashBatchHeader, TrashedFile
from iceberg_maint.errors import ArchivedFileError, FenceLostError, RefusedError
from iceberg_maint.orphans.bulk_deletion import deleted_in_bulk
from iceberg_maint.orphans.lease_guard import TimeUpError
from iceberg_maint.orphans.parallel import changed
from iceberg_maint.orphans.path_index import PathTables
from iceberg_maint.orphans.pending_manifests import pending_manifests
from iceberg_maint.orphans.scan import Scan, Target, check_target, checked_clock, read_reached
from iceberg_maint.orphans.second_owner import check_folders, versions_memo
from iceberg_maint.orphans.trash_manifest import (
    files_folder,
    files_of,
    manifest_lines,
    manifest_location,
    read_batch_headers,
    restored_location,
    trash_folder,
    trashed_file,
)
from iceberg_maint.ports.storage import Reachability, Store, StoredFile

_log = logging.getLogger(__name__)
_WHY = "no metadata references it"


@dataclass(frozen=True, slots=True)
class Trashed:
    """The result for the orphans of a scan. `moved` files are in the trash under `marks`. `skipped` files
    were referenced, changed or deleted since the scan."""

    marks: tuple[str, ...]
    moved_files: int
    moved_bytes: int
    skipped_files: int


@dataclass(frozen=True, slots=True)
class Emptied:
    """The result for the files of a trash batch. `left` files are still in the trash: another file is at
    their place, they differ from what was put there, or the metadata reference them in the trash. `released`: an
    expiry released the files."""

    mark_id: str
    deleted_files: int = 0
    deleted_bytes: int = 0
    restored_files: int = 0
    left_files: int = 0
    released: bool = False


def trash(
    scan: Scan,
    store: Store,
    reachability: Reachability,
    now_ms: Callable[[], int],
    *,
    approved: str | None = None,
    holds: Callable[[], bool] = lambda: True,
    tell: Callable[[Trashed], None] = lambda _: None,
) -> Trashed:
    """Moves the orphans of a scan to the trash, one trash batch per prefix that has any.

    First the metadata are read again, and each file is checked again. A file that was committed during the
    moves is restored. `approved` is the digest that a person approves. `holds` checks the lease before
    every file. `tell` receives what was done, however it ends. Raises RefusedError ICM-122 if the share is
    abnormal and not approved, FenceLostError, and TimeUpError if `holds` does.
    """
    if scan.needs_approval and approved != scan.digest:
        counts = scan.counts
        raise RefusedError(
            "ICM-122",
            f"{scan.target.state.table}: {counts.orphan_files} of {counts.listed_files} files, "
            f"{counts.orphan_bytes} of {counts.listed_bytes} bytes are orphans "
            f"(limit {scan.policy.max_orphan_ratio:.0%}).",
            f"inspect the orphans of the scan, then approve them by the digest {scan.digest}.",
        )
    read_reached(scan.paths, scan.target, store, reachability, scan.pending)
    progress = Moved([])
    stopped: TimeUpError | None = None
    try:
        try:
            for prefix in scan.target.prefixes:
                _move(scan, prefix, store, reachability.metadata_location(), now_ms, holds, progress)
        except TimeUpError as why:
            stopped = why
        _put_back_reached(scan, store, reachability, progress)
        if stopped is not None:
            raise stopped
    finally:
        tell(progress.as_trashed())
    reached_since = scan.counts.orphan_files - progress.files - progress.skipped
    return replace(progress.as_trashed(), skipped_files=progress.skipped + reached_since)


@dataclass(slots=True)
class Moved:
    """The work of a mark so far: trash batches, files moved, and files that were not."""

    headers: list[TrashBatchHeader]
    files: int = 0
    size_bytes: int = 0
    skipped: int = 0

    def as_trashed(self) -> Trashed:
        """Returns the work as a value."""
        marks = dict.fromkeys(h.mark_id for h in self.headers)
        return Trashed(tuple(marks), self.files, self.size_bytes, self.skipped)


def _move(
    scan: Scan,
    prefix: str,
    store: Store,
    metadata_location: str,
    now_ms: Callable[[], int],
    holds: Callable[[], bool],
    progress: Moved,
) -> None:
    """Writes the manifest of one prefix, then moves the files that it names."""
    marked_ms = checked_clock(store, prefix, now_ms)
    # Two installations may mark the same files in one second: each has a manifest of its own.
    mark_id = f"{marked_ms}-{uuid4().hex[:16]}"
    header = TrashBatchHeader(
        mark_id=mark_id,
        table=str(scan.target.state.table),
        table_uuid=scan.target.state.uuid,
        prefix=prefix,
        marked_ms=marked_ms,
        older_than_seconds=scan.policy.older_than_seconds,
        metadata_location=metadata_location,
        digest=scan.digest,
    )
    if next(_below(scan, prefix), None) is None:
        return
    move_files(header, lambda: _trashed(scan, prefix, mark_id), store, holds, progress)


def move_files(
    header: TrashBatchHeader,
    lines: Callable[[], Iterator[TrashedFile]],
    store: Store,
    holds: Callable[[], bool],
    progress: Moved,
    stage_of: Callable[[TrashedFile], str] = lambda _: "",
) -> None:
    """Writes the manifest of a trash batch, then moves its files in their order. Files of one stage may move at once.
    A file that changed or is gone is skipped, and so is an archived one, which the store does not copy. Raises
    FenceLostError."""
    require_lease(holds)
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

    for line, is_moved in changed(lines(), move, store.at_once, lambda: require_lease(holds), stage_of):
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


def _put_back_reached(scan: Scan, store: Store, reachability: Reachability, progress: Moved) -> None:
    """Restores files that are referenced by now. Moving many files can take hours, and no reader could
    read these files until the next sweep."""
    if not progress.files:
        return
    read_reached(scan.paths, scan.target, store, reachability, scan.pending)
    put_back_reached(scan.paths, store, progress)


def put_back_reached(paths: PathTables, store: Store, progress: Moved) -> None:
    """Restores the moved files that `paths` reaches by now."""
    for header in progress.headers:
        for line in files_of(store, header, manifest_location(header)):
            if not paths.reaches(line.path) or store.stat(line.trash_path) is None:
                continue
            if _put_back(store, line):
                progress.files, progress.size_bytes = (
                    progress.files - 1,
                    progress.size_bytes - line.size_bytes,
                )
                progress.skipped += 1


def sweep(
    target: Target,
    policy: RemoveOrphanFilesPolicy,
    store: Store,
    reachability: Reachability,
    scratch: Path,
    now_ms: Callable[[], int],
    *,
    deletes: bool = True,
    mark_id: str | None = None,
    released_only: bool = False,
    holds: Callable[[], bool] = lambda: True,
    proceeds: Callable[[], bool] | None = None,
    tell: Callable[[Emptied], None] = lambda _: None,
) -> tuple[Emptied, ...]:
    """Restores files that are referenced, then deletes those that have been in the trash for the hold, by
    the store's clock, of one trash batch or of all, or of those that expiries released. Without `deletes`
    it only restores.

    Every path is checked again against the current metadata. Nothing is deleted of a table that has a
    second owner; for this check the table's prefixes are listed once. A referenced file is restored
    regardless of the hold and of anything that forbids deletion, because until then readers miss it.
    `proceeds` checks the lease and the time before files are deleted; without it `holds` does. `tell` receives
    what was done to each trash batch, however it ends. Returns the batches from which
    files were deleted. Raises RefusedError as `scan` does, UnreadableTableError ICM-101, FenceLostError,
    TimeUpError.
    """
    marks = [
        m
        for m in read_batch_headers(target.prefixes, store)
        if mark_id in (None, m.mark_id) and (m.released or not released_only)
    ]
    if not marks:
        return ()
    paths = PathTables(scratch / f"sweep-{target.state.uuid}.db", target.prefixes, target.same)
    try:
        pending = pending_manifests(target.state, policy, now_ms())
        read_reached(paths, target, store, reachability, pending)
        reached: dict[str, frozenset[str]] = {}
        # If two trash batches hold one path, the newer one holds what was last written there.
        for header in sorted(marks, key=lambda m: m.marked_ms, reverse=True):
            if header.table_uuid == target.state.uuid:
                reached[manifest_location(header)] = _reached_of(header, store, paths)
                _put_back_of(header, reached[manifest_location(header)], paths, store, holds, tell)
        if not deletes:
            return ()
        due = _due(marks, target, policy, store, now_ms)
        if due:
            memo = versions_memo(scratch, target.state)
            check_folders(target.state, target.same, store, reachability, memo, target.prefixes)
        swept = tuple(
            _sweep_one(h, reached[manifest_location(h)], paths, store, scratch, proceeds or holds, tell)
            for h in due
        )
    finally:
        paths.close()
    tidy_trash(target, store)
    return swept


def _due(
    marks: list[TrashBatchHeader],
    target: Target,
    policy: RemoveOrphanFilesPolicy,
    store: Store,
    now_ms: Callable[[], int],
) -> list[TrashBatchHeader]:
    check_target(target, policy)
    due = []
    for header in marks:
        _check_own(header, target)
        if checked_clock(store, header.prefix, now_ms) >= header.marked_ms + policy.hold_seconds * 1000:
            due.append(header)
    return sorted(due, key=manifest_location)


def _reached_of(header: TrashBatchHeader, store: Store, paths: PathTables) -> frozenset[str]:
    """Returns the paths of a trash batch that are referenced."""
    files = files_of(store, header, manifest_location(header))
    return frozenset(line.path for line in files if paths.reaches(line.path))


def _put_back_of(
    header: TrashBatchHeader,
    reached: frozenset[str],
    paths: PathTables,
    store: Store,
    holds: Callable[[], bool],
    tell: Callable[[Emptied], None],
) -> None:
    """Restores the referenced files of a trash batch. If another file is at the place by now, readers use
    that one, and the sweep reports it. A file that is referenced in the trash as well stays there."""
    restored = 0
    try:
        for line in files_of(store, header, manifest_location(header)) if reached else ():
            is_due = line.path in reached and not paths.reaches(line.trash_path)
            if is_due and store.stat(line.trash_path) is not None:
                require_lease(holds)
                restored += _put_back(store, line)
    finally:
        if restored:
            tell(Emptied(header.mark_id, restored_files=restored))


def tidy_trash(target: Target, store: Store) -> None:
    """Removes the trash folders that hold no file."""
    for prefix in target.prefixes:
        if next(store.list(trash_folder(prefix)), None) is None:
            store.tidy(trash_folder(prefix))


def _sweep_one(
    header: TrashBatchHeader,
    reached: frozenset[str],
    paths: PathTables,
    store: Store,
    scratch: Path,
    holds: Callable[[], bool],
    tell: Callable[[Emptied], None],
) -> Emptied:
    done = Emptied(header.mark_id, released=header.released)
    try:
        # A person may have registered a file where it is, in the trash.
        lines = (
            (line, line.path in reached or paths.reaches(line.trash_path))
            for line in files_of(store, header, manifest_location(header))
        )
        if store.bulk:
            place, rows = (
                files_folder(header.prefix, header.mark_id),
                scratch / f"trash-{header.table_uuid}.db",
            )
            for line, is_gone in deleted_in_bulk(lines, place, store, rows, lambda: require_lease(holds)):
                done = _deleted(done, line, gone=is_gone)
        else:
            delete = partial(_delete, store)
            for (line, _), gone in changed(lines, delete, store.at_once, lambda: require_lease(holds)):
                if gone is not None:
                    done = _deleted(done, line, gone=gone)
        if not done.left_files:
            store.tidy(files_folder(header.prefix, header.mark_id))
            store.delete(manifest_location(header))
    finally:
        tell(done)
    return done


def _delete(store: Store, line_and_reached: tuple[TrashedFile, bool]) -> bool | None:
    """Deletes a file of the trash unless it is referenced. Returns whether it is gone, None if it was not there: never
    moved, restored, or swept before."""
    line, is_reached = line_and_reached
    stored = store.stat(line.trash_path)
    if stored is None:
        return None
    # A referenced file that is still here could not be restored: another file is at its place.
    if is_reached or stored.size_bytes != line.size_bytes:
        return False
    store.delete(line.trash_path)
    return store.stat(line.trash_path) is None


def _deleted(done: Emptied, line: TrashedFile, *, gone: bool) -> Emptied:
    if not gone:
        return replace(done, left_files=done.left_files + 1)
    return replace(
        done,
        deleted_files=done.deleted_files + 1,
        deleted_bytes=done.deleted_bytes + line.size_bytes,
    )


def _restored(done: Emptied, *, put_back: bool) -> Emptied:
    if put_back:
        return replace(done, restored_files=done.restored_files + 1)
    return replace(done, left_files=done.left_files + 1)


def restore(
    target: Target,
    store: Store,
    mark_id: str | None = None,
    *,
    holds: Callable[[], bool] = lambda: True,
    tell: Callable[[Emptied], None] = lambda _: None,
) -> tuple[Emptied, ...]:
    """Moves every file of a trash batch, or of all, back to its place. An existing file there stays. The
    manifest is kept, so that no scan treats these files as orphans again."""
    results = []
    for header in sorted(read_batch_headers(target.prefixes, store), key=manifest_location):
        _check_own(header, target)
        if mark_id is not None and header.mark_id != mark_id:
            continue
        done = Emptied(header.mark_id)
        try:
            for line in _while_lease_held(files_of(store, header, manifest_location(header)), holds):
                if store.stat(line.trash_path) is not None:
                    done = _restored(done, put_back=_put_back(store, line))
            if not done.left_files:
                store.tidy(files_folder(header.prefix, header.mark_id))
                store.move(manifest_location(header), restored_location(header))
        finally:
            tell(done)
        results.append(done)
    return tuple(results)


def _put_back(store: Store, line: TrashedFile) -> bool:
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


def _while_lease_held(files: Iterator[TrashedFile], holds: Callable[[], bool]) -> Iterator[TrashedFile]:
    """Yields the files as long as this run has the lease. Raises FenceLostError."""
    for file in files:
        require_lease(holds)
        yield file


def require_lease(holds: Callable[[], bool]) -> None:
    """Raises FenceLostError if this run has lost the lease."""
    if not holds():
        raise FenceLostError("another run holds the table's lease. No further file is changed.")


def _check_own(header: TrashBatchHeader, target: Target) -> None:
    if header.table_uuid != target.state.uuid:
        raise RefusedError(
            "ICM-102",
            f"the trash of {header.prefix} holds {header.mark_id} of a table with uuid {header.table_uuid}; "
            f"{target.state.table} has {target.state.uuid}.",
            "read its manifest, then delete or move it by hand.",
        )
