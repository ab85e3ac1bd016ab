"""Trash: orphans moved aside with a manifest of the files and the reason. `sweep` deletes them after a hold, `restore`
moves them back.

The manifest is on storage before the first file moves. Only the manifests define what is in a trash
folder, so every step can be repeated after a crash: a file is either at its place or in the trash, and
both are checked.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from uuid import uuid4

from iceberg_maint.core.removal.orphan_rules import Orphan, TrashBatchHeader, TrashedFile
from iceberg_maint.errors import ArchivedFileError, FenceLostError, RefusedError
from iceberg_maint.ports.storage import Reachability, Store, StoredFile
from iceberg_maint.removal.orphan_scan import Scan, checked_clock, read_reached
from iceberg_maint.removal.path_index import PathTables
from iceberg_maint.removal.store_requests import changed
from iceberg_maint.removal.stored_listing import TimeUpError
from iceberg_maint.removal.target import Target
from iceberg_maint.removal.trash_manifest import (
    files_of,
    manifest_lines,
    manifest_location,
    trash_folder,
    trashed_file,
)

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


def require_lease(holds: Callable[[], bool]) -> None:
    """Raises FenceLostError if this run has lost the lease."""
    if not holds():
        raise FenceLostError("another run holds the table's lease. No further file is changed.")


def check_own(header: TrashBatchHeader, target: Target) -> None:
    """Raises RefusedError ICM-102 for the trash of another table."""
    if header.table_uuid != target.state.uuid:
        raise RefusedError(
            "ICM-102",
            f"the trash of {header.prefix} holds {header.mark_id} of a table with uuid {header.table_uuid}; "
            f"{target.state.table} has {target.state.uuid}.",
            "read its manifest, then delete or move it by hand.",
        )
