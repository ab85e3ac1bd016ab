"""The restore: every file of a trash batch goes back to its place."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path

from iceberg_maint.core.model.location import parse_location
from iceberg_maint.core.policy.housekeeping import RemoveOrphanFilesPolicy
from iceberg_maint.core.removal.orphan_rules import TRASH, TrashBatchHeader, TrashedFile
from iceberg_maint.errors import UnreadableTableError
from iceberg_maint.ports.storage import Reachability, Store
from iceberg_maint.removal.orphan_scan import check_target, checked_clock, read_reached
from iceberg_maint.removal.path_index import PathTables
from iceberg_maint.removal.pending_manifests import pending_manifests
from iceberg_maint.removal.second_owner import check_folders, versions_memo
from iceberg_maint.removal.store_requests import changed, deleted_in_bulk
from iceberg_maint.removal.target import Emptied, Target
from iceberg_maint.removal.trash import check_own, put_back, require_lease, tidy_trash
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
    mark_id: str | None = None,
    *,
    holds: Callable[[], bool] = lambda: True,
    tell: Callable[[Emptied], None] = lambda _: None,
) -> tuple[Emptied, ...]:
    """Moves every file of a trash batch, or of all, back to its place. An existing file there stays, and so does
    a file that the metadata reference in the trash. The manifest is kept, so that no scan treats these files as
    orphans again."""
    results = []
    referenced = _referenced_in_trash(target, reachability)
    for header in sorted(read_batch_headers(target.prefixes, store), key=manifest_location):
        check_own(header, target)
        if mark_id is not None and header.mark_id != mark_id:
            continue
        done = Emptied(header.mark_id)
        try:
            for line in _while_lease_held(files_of(store, header, manifest_location(header)), holds):
                if store.stat(line.trash_path) is not None:
                    is_free = not referenced or _key(line.trash_path, target) not in referenced
                    done = _restored(done, put_back=is_free and put_back(store, line))
            if not done.left_files:
                store.tidy(files_folder(header.prefix, header.mark_id))
                store.move(manifest_location(header), restored_location(header))
        finally:
            tell(done)
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


def _restored(done: Emptied, *, put_back: bool) -> Emptied:
    if put_back:
        return replace(done, restored_files=done.restored_files + 1)
    return replace(done, left_files=done.left_files + 1)


def _while_lease_held(files: Iterator[TrashedFile], holds: Callable[[], bool]) -> Iterator[TrashedFile]:
    """Yields the files as long as this run has the lease. Raises FenceLostError."""
    for file in files:
        require_lease(holds)
        yield file


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
            check_folders(target, store, reachability, memo, target.prefixes)
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
        check_own(header, target)
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
                restored += put_back(store, line)
    finally:
        if restored:
            tell(Emptied(header.mark_id, restored_files=restored))


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
