"""The end of a trash batch: its files are deleted after their retention, or go back to their places."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial

from iceberg_maint.core.model.location import parse_location
from iceberg_maint.core.removal.orphan_rules import TRASH, TrashBatchHeader, TrashedFile
from iceberg_maint.errors import UnreadableTableError
from iceberg_maint.ports.storage import Reachability, Store
from iceberg_maint.removal.path_index import PathTables
from iceberg_maint.removal.removal_progress import TrashChange
from iceberg_maint.removal.second_owner import check_folders, versions_memo
from iceberg_maint.removal.store_requests import RemovalLease, changed, deleted_in_bulk
from iceberg_maint.removal.target import (
    Removal,
    Target,
    check_target,
    checked_clock,
    pending_manifests,
    read_reached,
)
from iceberg_maint.removal.trash import check_own, put_back, tidy_trash
from iceberg_maint.removal.trash_manifest import (
    files_folder,
    files_of,
    manifest_location,
    read_batch_headers,
    restored_location,
)

_log = logging.getLogger(__name__)


def restore(
    target: Target,
    store: Store,
    reachability: Reachability,
    lease: RemovalLease,
    mark_id: str | None = None,
    *,
    report: Callable[[TrashChange], None] = lambda _: None,
) -> tuple[TrashChange, ...]:
    """Moves every file of a trash batch, or of all, back to its place. An existing file there stays, and so does
    a file that the metadata reference in the trash. The manifest is kept, so that no scan treats these files as
    orphans again."""
    results = []
    referenced = _referenced_in_trash(target, reachability)
    for header in sorted(read_batch_headers(target.prefixes, store), key=manifest_location):
        check_own(header, target)
        if mark_id is not None and header.mark_id != mark_id:
            continue
        done = TrashChange(header.mark_id)
        try:
            for line in files_of(store, header, manifest_location(header)):
                lease.require()
                if store.stat(line.trash_path) is not None:
                    is_free = not referenced or _key(line.trash_path, target) not in referenced
                    done = _restored(done, put_back=is_free and put_back(store, line))
            if not done.left_files:
                store.tidy(files_folder(header.prefix, header.mark_id))
                store.move(manifest_location(header), restored_location(header))
        finally:
            report(done)
        results.append(done)
    return tuple(results)


def _referenced_in_trash(target: Target, reachability: Reachability) -> frozenset[bytes]:
    """Returns the keys of the files that the metadata reference in the trash: a person registered them there. Empty
    if the metadata cannot be read, because the trash may hold what they lack."""
    try:
        return frozenset(_key(p, target) for p in reachability.paths() if f"/{TRASH}/" in p)
    except UnreadableTableError as why:
        _log.warning(
            "%s: files that are registered at their place in the trash are restored like the others: %s",
            target.state.table,
            why,
        )
        return frozenset()


def _key(path: str, target: Target) -> bytes:
    return parse_location(path, target.same).key


def _restored(done: TrashChange, *, put_back: bool) -> TrashChange:
    if put_back:
        return replace(done, restored_files=done.restored_files + 1)
    return replace(done, left_files=done.left_files + 1)


def sweep(
    removal: Removal,
    lease: RemovalLease,
    *,
    deletes: bool = True,
    mark_id: str | None = None,
    released_only: bool = False,
    report: Callable[[TrashChange], None] = lambda _: None,
) -> tuple[TrashChange, ...]:
    """Restores files that are referenced, then deletes those that have been in the trash for `delete_after_seconds`, by
    the store's clock, of one trash batch or of all, or of those that expiries released. Without `deletes`
    it only restores.

    Every path is checked again against the current metadata. Nothing is deleted of a table that has a
    second owner; for this check the table's prefixes are listed once. A referenced file is restored
    regardless of the retention and of anything that forbids deletion, because until then readers miss it.
    The lease is checked before files are restored, and the time as well before files are deleted. `report` receives
    what was done to each trash batch, however it ends. Returns the batches from which
    files were deleted. Raises RefusedError as `scan` does, UnreadableTableError ICM-101, FenceLostError,
    TimeUpError.
    """
    target, store = removal.target, removal.store
    marks = [
        m
        for m in read_batch_headers(target.prefixes, store)
        if mark_id in (None, m.mark_id) and (m.released or not released_only)
    ]
    if not marks:
        return ()
    paths = removal.paths("sweep")
    try:
        read_reached(removal, paths, pending_manifests(target.state, removal.policy, removal.now_ms()))
        reached: dict[str, frozenset[str]] = {}
        # If two trash batches hold one path, the newer one holds what was last written there.
        for header in sorted(marks, key=lambda m: m.marked_ms, reverse=True):
            if header.table_uuid == target.state.uuid:
                reached[manifest_location(header)] = _reached_of(header, store, paths)
                _put_back_of(header, reached[manifest_location(header)], paths, store, lease, report)
        if not deletes:
            return ()
        due = _due(marks, removal)
        if due:
            memo = versions_memo(removal.scratch, target.state)
            check_folders(target, store, removal.reachability, memo, target.prefixes)
        swept = tuple(
            _sweep_one(h, _lines(h, reached[manifest_location(h)], paths, store), removal, lease, report)
            for h in due
        )
    finally:
        paths.close()
    tidy_trash(target, store)
    return swept


def _due(marks: list[TrashBatchHeader], removal: Removal) -> list[TrashBatchHeader]:
    check_target(removal.target, removal.policy)
    retention_ms = removal.policy.delete_after_seconds * 1000
    due = []
    for header in marks:
        check_own(header, removal.target)
        if checked_clock(removal.store, header.prefix, removal.now_ms) >= header.marked_ms + retention_ms:
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
    lease: RemovalLease,
    report: Callable[[TrashChange], None],
) -> None:
    """Restores the referenced files of a trash batch. If another file is at the place by now, readers use
    that one, and the sweep reports it. A file that is referenced in the trash as well stays there."""
    restored = 0
    try:
        for line in files_of(store, header, manifest_location(header)) if reached else ():
            is_due = line.path in reached and not paths.reaches(line.trash_path)
            if is_due and store.stat(line.trash_path) is not None:
                lease.require()
                restored += put_back(store, line)
    finally:
        if restored:
            report(TrashChange(header.mark_id, restored_files=restored))


def _lines(
    header: TrashBatchHeader, reached: frozenset[str], paths: PathTables, store: Store
) -> Iterator[tuple[TrashedFile, bool]]:
    """Yields the files of a trash batch, each with whether the metadata reference it. A person may have registered a file
    where it is, in the trash."""
    for line in files_of(store, header, manifest_location(header)):
        yield line, line.path in reached or paths.reaches(line.trash_path)


def _sweep_one(
    header: TrashBatchHeader,
    lines: Iterator[tuple[TrashedFile, bool]],
    removal: Removal,
    lease: RemovalLease,
    report: Callable[[TrashChange], None],
) -> TrashChange:
    store, done = removal.store, TrashChange(header.mark_id, released=header.released)
    try:
        if store.bulk:
            place = files_folder(header.prefix, header.mark_id)
            rows = removal.scratch / f"trash-{header.table_uuid}.db"
            for line, is_gone in deleted_in_bulk(lines, place, store, rows, lease.proceed):
                done = _deleted(done, line, gone=is_gone)
        else:
            delete = partial(_delete, store)
            for (line, _), gone in changed(lines, delete, store.at_once, lease.proceed):
                if gone is not None:
                    done = _deleted(done, line, gone=gone)
        if not done.left_files:
            store.tidy(files_folder(header.prefix, header.mark_id))
            store.delete(manifest_location(header))
    finally:
        report(done)
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


def _deleted(done: TrashChange, line: TrashedFile, *, gone: bool) -> TrashChange:
    if not gone:
        return replace(done, left_files=done.left_files + 1)
    return replace(
        done,
        deleted_files=done.deleted_files + 1,
        deleted_bytes=done.deleted_bytes + line.size_bytes,
    )
