"""Retention in place: released files stay at their paths until it is over, then each is proved again and deleted.

A mark lists the files of stored releases. It is on storage before the releases are deleted, so every step can be
repeated after a crash. Nothing moves: during the retention every reader finds its files, and a file that is registered
again is referenced. Before a file is deleted, the current metadata are read, and whenever the catalog's
pointer has changed they are read again. A file that is in a younger mark waits for the retention of that mark.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace
from hashlib import sha256
from itertools import islice
from tempfile import TemporaryFile

from iceberg_maint.core.removal.orphan_rules import Kept, NameRules, TrashBatchHeader
from iceberg_maint.core.removal.released_file_rules import Release, ReleasedFile
from iceberg_maint.ports.storage import Store, StoredFile
from iceberg_maint.removal.path_index import PathTables
from iceberg_maint.removal.released_lists import (
    InPlaceMark,
    PrefixSpelling,
    StoredMark,
    create_list,
    list_line,
    listed_files,
    mark_location,
    marks_of,
    restore_list,
    stored_marks,
    stored_releases,
)
from iceberg_maint.removal.removal_progress import Moved, RemovalProgress, TrashChange
from iceberg_maint.removal.second_owner import check_folders, versions_memo
from iceberg_maint.removal.store_requests import RemovalLease, changed, with_facts
from iceberg_maint.removal.target import (
    Removal,
    Target,
    check_second_opinion,
    check_target,
    checked_clock,
    pending_manifests,
    read_reached,
)
from iceberg_maint.removal.trash import read_releases, tidy_trash
from iceberg_maint.removal.trash_manifest import restored_paths

_FILES_PER_READING = 1_000
"""The number of files that are deleted between two readings of the catalog's pointer."""


def retain_in_place(
    removal: Removal,
    lease: RemovalLease,
    done: RemovalProgress,
    *,
    marks: bool,
    deletes: bool,
    mark_id: str | None = None,
) -> None:
    """With `marks`, lists the files of all stored releases, one mark per prefix that has any, then deletes the
    releases. With `deletes`, deletes the files of marks past their retention, or of the mark `mark_id`.

    Nothing is deleted while a release is stored: it may name files of an older mark, and its retention has not begun.
    `done` receives what was done, however it ends. Raises RefusedError as `scan` does,
    UnreadableTableError ICM-101, FenceLostError.
    """
    target, store = removal.target, removal.store
    stored = list(stored_releases(target.prefixes, target.state.uuid, store))
    listed = stored_marks(target.prefixes, store)
    if not listed and not (marks and stored):
        return
    if stored and not marks:
        return
    check_target(target, removal.policy)
    own, broken = _own(target, listed, {release.release_id for _, release in stored}, store)
    asked = [m for m in own if mark_id in (None, m.header.mark_id)] if deletes else []
    due = _past_retention(asked, removal)
    unmarked = [release for file, release in stored if not _is_marked(file, release, own)]
    if unmarked or due:
        memo, folders = versions_memo(removal.scratch, target.state), target.prefixes if due else None
        check_folders(target, store, removal.reachability, memo, folders)
        paths = removal.paths("in-place")
        try:
            work = _Work(removal, paths, lease, done)
            paths.add_reached(restored_paths(target.prefixes, store), Kept.RESTORED)
            if unmarked:
                work.mark(unmarked)
            if due:
                work.delete(due, [m for m in own if m not in due])
        finally:
            paths.close()
    for location in (*broken, *(file.path for file, _ in stored)):
        lease.require()
        store.delete(location)
    tidy_trash(target, store)


def restore_in_place(
    target: Target, store: Store, mark_id: str | None, lease: RemovalLease
) -> Iterator[TrashChange]:
    """Ends the retention of the files of one mark, or of all: they stay, and no scan treats them as orphans again. Yields what was
    done to each mark."""
    for mark in list(marks_of(target.prefixes, target.state.uuid, store)):
        if mark_id in (None, mark.header.mark_id):
            lease.require()
            restore_list(store, mark)
            yield TrashChange(mark.header.mark_id, restored_files=mark.files)


def _own(
    target: Target, listed: list[StoredMark], releases: set[str], store: Store
) -> tuple[list[InPlaceMark], list[str]]:
    """Returns the marks of the table, oldest first, and the locations of lists that hold nothing: of another table, or
    cut off before their releases were deleted."""
    own, broken = [], []
    for stored in listed:
        mark = stored.mark
        if (
            mark is not None
            and mark.header.table_uuid == target.state.uuid
            and (not releases & set(mark.releases) or _is_complete(mark, store))
        ):
            own.append(mark)
        else:
            broken.append(stored.location)
    return own, broken


def _is_complete(mark: InPlaceMark, store: Store) -> bool:
    return sum(1 for _ in listed_files(store, mark)) == mark.files


def _is_marked(file: StoredFile, release: Release, marks: list[InPlaceMark]) -> bool:
    """Returns whether a mark lists the files of a release, which a crash left behind. A release that was stored after
    the mark is another one: a batch has the same id if the same snapshots expire again."""
    listing = [
        mark
        for mark in marks
        if release.release_id in mark.releases
        and file.modified_ms is not None
        and file.modified_ms <= mark.header.marked_ms
    ]
    return bool(listing) and len(listing) >= max(mark.lists for mark in listing)


def _past_retention(marks: list[InPlaceMark], removal: Removal) -> list[InPlaceMark]:
    prefixes = {m.header.prefix for m in marks}
    clocks = {prefix: checked_clock(removal.store, prefix, removal.now_ms) for prefix in prefixes}
    retention_ms = removal.policy.delete_after_seconds * 1000
    return [m for m in marks if clocks[m.header.prefix] >= m.header.marked_ms + retention_ms]


class _Work:
    """Marks and deletions of one run, on one reading of the metadata."""

    def __init__(
        self, removal: Removal, paths: PathTables, lease: RemovalLease, done: RemovalProgress
    ) -> None:
        self._removal, self._paths, self._lease, self._done = removal, paths, lease, done
        self._target, self._store, self._reachability = removal.target, removal.store, removal.reachability
        self._pending = pending_manifests(self._target.state, removal.policy, removal.now_ms())
        self._rules = NameRules(self._target.state, self._pending)
        self._spelling = PrefixSpelling(self._target.prefixes, self._target.same)
        self._proved_at: str | None = None

    def mark(self, releases: list[Release]) -> None:
        """Lists the files of the releases that nothing references."""
        read_releases(self._removal, self._paths, self._pending, releases)
        done = Moved()
        self._done.marked.append(done)
        with ExitStack() as stack:
            lines = {
                p: stack.enter_context(TemporaryFile(dir=self._removal.scratch))
                for p in self._target.prefixes
            }
            totals = dict.fromkeys(lines, (0, 0))
            for prefix, file in self._spelled(done):
                lines[prefix].write(list_line(file))
                files, size_bytes = totals[prefix]
                totals[prefix] = files + 1, size_bytes + (file.size_bytes or 0)
            count = sum(files > 0 for files, _ in totals.values())
            for prefix, (files, size_bytes) in totals.items():
                if files:
                    lines[prefix].seek(0)
                    header = self._header(prefix, releases)
                    ids = tuple(release.release_id for release in releases)
                    self._lease.require()
                    create_list(
                        self._store, InPlaceMark(header, ids, count, files, size_bytes), lines[prefix]
                    )
                    done.headers.append(header)
                    done.files, done.size_bytes = done.files + files, done.size_bytes + size_bytes
        # The retention of these files begins now, whatever an older mark says of them.
        self._paths.keep_released()

    def _spelled(self, done: Moved) -> Iterator[tuple[str, ReleasedFile]]:
        """Yields the released files with their prefix and in its spelling. Only files of unknown size are looked up;
        the deletion looks at each."""
        for file in self._paths.released():
            spelled = self._spelling.below(file.path)
            if spelled is None or self._rules.kept(spelled[1], file.committed_ms) is not None:
                done.skipped += 1
                continue
            path, size_bytes = "".join(spelled), file.size_bytes
            if size_bytes is None:
                stored = self._store.stat(path)
                if stored is None:
                    done.skipped += 1
                    continue
                size_bytes = stored.size_bytes
            if path != file.path or file.size_bytes is None:
                file = replace(file, path=path, size_bytes=size_bytes)
            yield spelled[0], file

    def _header(self, prefix: str, releases: list[Release]) -> TrashBatchHeader:
        digest = sha256(" ".join((prefix, *(r.release_id for r in releases))).encode()).hexdigest()
        marked_ms = checked_clock(self._store, prefix, self._removal.now_ms)
        return TrashBatchHeader(
            mark_id=f"{marked_ms}-{digest[-16:]}",
            table=str(self._target.state.table),
            table_uuid=self._target.state.uuid,
            prefix=prefix,
            marked_ms=marked_ms,
            older_than_seconds=self._removal.policy.older_than_seconds,
            metadata_location=self._reachability.metadata_location(),
            digest=f"{marked_ms}-{digest}",
            released=True,
        )

    def delete(self, due: list[InPlaceMark], younger: list[InPlaceMark]) -> None:
        """Deletes the files of the due marks that nothing references."""
        self._read()
        check_second_opinion(self._removal, self._paths)
        for mark in younger:
            self._paths.add_reached((f.path for f in listed_files(self._store, mark)), Kept.RELEASED)
        for mark in due:
            files, size_bytes = 0, 0
            try:
                for stored in self._deleted_of(listed_files(self._store, mark)):
                    files, size_bytes = files + 1, size_bytes + stored.size_bytes
            finally:
                change = TrashChange(mark.header.mark_id, files, size_bytes, released=True)
                self._done.trash_changes.append(change)
            self._lease.require()
            self._store.delete(mark_location(mark.header))

    def _read(self) -> None:
        """Reads the current metadata, and notes the pointer from before."""
        self._proved_at = self._reachability.metadata_location()
        read_reached(self._removal, self._paths, self._pending)

    def _deleted_of(self, files: Iterator[ReleasedFile]) -> Iterator[StoredFile]:
        while chunk := list(islice(files, _FILES_PER_READING)):
            self._lease.require()
            if self._reachability.metadata_location() != self._proved_at:
                self._read()
            yield from self._deleted(self._paths.without_references(chunk))

    def _deleted(self, files: list[ReleasedFile]) -> Iterator[StoredFile]:
        """Deletes the files that are the released ones still. Yields each that was."""
        doomed = (s for f, s in with_facts(iter(files), self._store) if s is not None and self._is_same(f, s))
        if self._store.bulk:
            stored = list(doomed)
            for start in range(0, len(stored), self._store.bulk):
                yield from self._deleted_in_bulk(stored[start : start + self._store.bulk])
            return
        delete = self._store.delete
        for file, _ in changed(doomed, lambda s: delete(s.path), self._store.at_once, self._lease.require):
            yield file

    def _deleted_in_bulk(self, files: list[StoredFile]) -> Iterator[StoredFile]:
        self._lease.require()
        refused = self._store.delete_bulk([file.path for file in files])
        yield from (file for file in files if file.path not in refused)
        for file in files:
            if file.path in refused:
                self._lease.require()
                self._store.delete(file.path)
                yield file

    def _is_same(self, file: ReleasedFile, stored: StoredFile) -> bool:
        spelled = self._spelling.below(file.path)
        return (
            spelled is not None
            and file.is_same(stored.size_bytes, stored.modified_ms)
            and self._rules.kept(spelled[1], stored.modified_ms) is None
        )
