"""The restore: every file of a trash batch goes back to its place."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from dataclasses import replace

from iceberg_maint.core.model.location import parse_location
from iceberg_maint.core.removal.orphans import TRASH, TrashedFile
from iceberg_maint.errors import UnreadableTableError
from iceberg_maint.orphans.emptied import Emptied
from iceberg_maint.orphans.target import Target
from iceberg_maint.orphans.trash import check_own, put_back, require_lease
from iceberg_maint.orphans.trash_manifest import (
    files_folder,
    files_of,
    manifest_location,
    read_batch_headers,
    restored_location,
)
from iceberg_maint.ports.storage import Reachability, Store

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
