"""The hold in place: released files stay at their paths until the hold is over, then each is proved again and deleted.

A mark lists the files of stored releases. It is on storage before the releases are deleted, so every step can be
repeated after a crash. Nothing moves: during the hold every reader finds its files, and a file that is registered
again is referenced. Before a file is deleted, the current metadata are read, and whenever the catalog's
pointer has changed they are read again. A file that is in a younger mark waits for the hold of that mark.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial
from hashlib import sha256
from itertools import islice
from pathlib import Path
from tempfile import TemporaryFile

from iceberg_maint.core.policy.housekeeping import RemoveOrphanFilesPolicy
from iceberg_maint.core.removal.orphan_rules import Kept, NameRules, TrashBatchHeader
from iceberg_maint.core.removal.pending_manifests import PendingManifests
from iceberg_maint.core.removal.released_file_rules import Release, ReleasedFile
from iceberg_maint.errors import FenceLostError
from iceberg_maint.ports.storage import Reachability, Store, StoredFile
from iceberg_maint.removal.orphan_scan import check_second_opinion, check_target, checked_clock, read_reached
from iceberg_maint.removal.path_index import PathTables
from iceberg_maint.removal.pending_manifests import pending_manifests
from iceberg_maint.removal.released import read_releases
from iceberg_maint.removal.second_owner import check_folders, versions_memo
from iceberg_maint.removal.store_requests import changed, with_facts
from iceberg_maint.removal.stored_releases import PrefixSpelling, stored_releases
from iceberg_maint.removal.target import Emptied, Target
from iceberg_maint.removal.trash import tidy_trash
from iceberg_maint.removal.trash_manifest import (
    InPlaceMark,
    StoredMark,
    create_list,
    list_line,
    listed_files,
    mark_location,
    marks_of,
    restore_list,
    restored_paths,
    stored_marks,
)

_FILES_PER_LOOK = 1_000
"""The number of files that are deleted between two looks at the catalog's pointer."""


@dataclass(slots=True)
class InPlace:
    """The work of a hold in place so far: files that were marked and are still held, and released files that were not
    marked."""

    files: int = 0
    size_bytes: int = 0
    skipped: int = 0


def hold_in_place(
    target: Target,
    policy: RemoveOrphanFilesPolicy,
    store: Store,
    reachability: Reachability,
    scratch: Path,
    now_ms: Callable[[], int],
    *,
    marks: bool,
    deletes: bool,
    mark_id: str | None = None,
    holds: Callable[[], bool],
    tell_marked: Callable[[InPlace], None],
    tell_deleted: Callable[[Emptied], None],
) -> None:
    """With `marks`, lists the files of all stored releases, one mark per prefix that has any, then deletes the
    releases. With `deletes`, deletes the files of marks past their hold, or of the mark `mark_id`.

    Nothing is deleted while a release is stored: it may name files of an older mark, and its hold has not begun.
    `tell_marked` and `tell_deleted` receive what was done, however it ends. Raises RefusedError as `scan` does,
    UnreadableTableError ICM-101, FenceLostError.
    """
    stored = list(stored_releases(target.prefixes, target.state.uuid, store))
    listed = stored_marks(target.prefixes, store)
    if not listed and not (marks and stored):
        return
    if stored and not marks:
        return
    check_target(target, policy)
    own, broken = _own(target, listed, {release.release_id for _, release in stored}, store)
    asked = [m for m in own if mark_id in (None, m.header.mark_id)] if deletes else []
    due = _past_hold(asked, policy, store, now_ms)
    unmarked = [release for file, release in stored if not _is_marked(file, release, own)]
    if unmarked or due:
        memo, folders = versions_memo(scratch, target.state), target.prefixes if due else None
        check_folders(target, store, reachability, memo, folders)
        paths = PathTables(scratch / f"in-place-{target.state.uuid}.db", target.prefixes, target.same)
        try:
            pending = pending_manifests(target.state, policy, now_ms())
            work = _Work(target, policy, store, reachability, pending, paths, scratch, holds)
            paths.add_reached(restored_paths(target.prefixes, store), Kept.RESTORED)
            if unmarked:
                work.mark(unmarked, now_ms, tell_marked)
            if due:
                work.delete(due, [m for m in own if m not in due], tell_deleted)
        finally:
            paths.close()
    for location in (*broken, *(file.path for file, _ in stored)):
        _require(holds)
        store.delete(location)
    tidy_trash(target, store)


def restore_in_place(
    target: Target,
    store: Store,
    mark_id: str | None = None,
    *,
    holds: Callable[[], bool],
    tell: Callable[[Emptied], None],
) -> None:
    """Ends the hold of the files of one mark, or of all: they stay, and no scan treats them as orphans again."""
    for mark in list(marks_of(target.prefixes, target.state.uuid, store)):
        if mark_id in (None, mark.header.mark_id):
            _require(holds)
            restore_list(store, mark)
            tell(Emptied(mark.header.mark_id, restored_files=mark.files))


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


def _past_hold(
    marks: list[InPlaceMark], policy: RemoveOrphanFilesPolicy, store: Store, now_ms: Callable[[], int]
) -> list[InPlaceMark]:
    clocks = {prefix: checked_clock(store, prefix, now_ms) for prefix in {m.header.prefix for m in marks}}
    hold_ms = policy.hold_seconds * 1000
    return [m for m in marks if clocks[m.header.prefix] >= m.header.marked_ms + hold_ms]


@dataclass(slots=True)
class _Deleted:
    """The work on one mark so far."""

    files: int = 0
    size_bytes: int = 0


class _Work:
    """Marks and deletions of one run, on one reading of the metadata."""

    def __init__(
        self,
        target: Target,
        policy: RemoveOrphanFilesPolicy,
        store: Store,
        reachability: Reachability,
        pending: PendingManifests,
        paths: PathTables,
        scratch: Path,
        holds: Callable[[], bool],
    ) -> None:
        self._target, self._policy, self._store = target, policy, store
        self._reachability, self._pending, self._paths, self._holds = reachability, pending, paths, holds
        self._scratch = scratch
        self._rules = NameRules(target.state, pending)
        self._spelling = PrefixSpelling(target.prefixes, target.same)
        self._proved_at: str | None = None

    def mark(
        self, releases: list[Release], now_ms: Callable[[], int], tell: Callable[[InPlace], None]
    ) -> None:
        """Lists the files of the releases that nothing references."""
        read_releases(self._paths, self._target, self._store, self._reachability, self._pending, releases)
        done = InPlace()
        try:
            with ExitStack() as stack:
                lines = {
                    p: stack.enter_context(TemporaryFile(dir=self._scratch)) for p in self._target.prefixes
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
                        header = self._header(prefix, releases, now_ms)
                        ids = tuple(release.release_id for release in releases)
                        _require(self._holds)
                        create_list(
                            self._store, InPlaceMark(header, ids, count, files, size_bytes), lines[prefix]
                        )
                        done.files, done.size_bytes = done.files + files, done.size_bytes + size_bytes
        finally:
            tell(done)
        # The hold of these files begins now, whatever an older mark says of them.
        self._paths.keep_released()

    def _spelled(self, done: InPlace) -> Iterator[tuple[str, ReleasedFile]]:
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

    def _header(self, prefix: str, releases: list[Release], now_ms: Callable[[], int]) -> TrashBatchHeader:
        digest = sha256(" ".join((prefix, *(r.release_id for r in releases))).encode()).hexdigest()
        marked_ms = checked_clock(self._store, prefix, now_ms)
        return TrashBatchHeader(
            mark_id=f"{marked_ms}-{digest[-16:]}",
            table=str(self._target.state.table),
            table_uuid=self._target.state.uuid,
            prefix=prefix,
            marked_ms=marked_ms,
            older_than_seconds=self._policy.older_than_seconds,
            metadata_location=self._reachability.metadata_location(),
            digest=f"{marked_ms}-{digest}",
            released=True,
        )

    def delete(
        self, due: list[InPlaceMark], younger: list[InPlaceMark], tell: Callable[[Emptied], None]
    ) -> None:
        """Deletes the files of the due marks that nothing references."""
        self._read()
        check_second_opinion(self._paths, self._target, self._reachability)
        for mark in younger:
            self._paths.add_reached((f.path for f in listed_files(self._store, mark)), Kept.RELEASED)
        for mark in due:
            done = _Deleted()
            try:
                self._delete_files(listed_files(self._store, mark), done)
            finally:
                header = mark.header
                tell(Emptied(header.mark_id, done.files, done.size_bytes, released=True))
            _require(self._holds)
            self._store.delete(mark_location(mark.header))

    def _read(self) -> None:
        """Reads the current metadata, and notes the pointer from before."""
        self._proved_at = self._reachability.metadata_location()
        read_reached(self._paths, self._target, self._store, self._reachability, self._pending)

    def _delete_files(self, files: Iterator[ReleasedFile], done: _Deleted) -> None:
        while chunk := list(islice(files, _FILES_PER_LOOK)):
            _require(self._holds)
            if self._reachability.metadata_location() != self._proved_at:
                self._read()
            for stored in self._deleted(self._paths.without_references(chunk)):
                done.files += 1
                done.size_bytes += stored.size_bytes

    def _deleted(self, files: list[ReleasedFile]) -> Iterator[StoredFile]:
        """Deletes the files that are the released ones still. Yields each that was."""
        doomed = (s for f, s in with_facts(iter(files), self._store) if s is not None and self._is_same(f, s))
        if self._store.bulk:
            stored = list(doomed)
            for start in range(0, len(stored), self._store.bulk):
                yield from self._deleted_in_bulk(stored[start : start + self._store.bulk])
            return
        delete, require = self._store.delete, partial(_require, self._holds)
        for file, _ in changed(doomed, lambda s: delete(s.path), self._store.at_once, require):
            yield file

    def _deleted_in_bulk(self, files: list[StoredFile]) -> Iterator[StoredFile]:
        _require(self._holds)
        refused = self._store.delete_bulk([file.path for file in files])
        yield from (file for file in files if file.path not in refused)
        for file in files:
            if file.path in refused:
                _require(self._holds)
                self._store.delete(file.path)
                yield file

    def _is_same(self, file: ReleasedFile, stored: StoredFile) -> bool:
        spelled = self._spelling.below(file.path)
        return (
            spelled is not None
            and file.is_same(stored.size_bytes, stored.modified_ms)
            and self._rules.kept(spelled[1], stored.modified_ms) is None
        )


def _require(holds: Callable[[], bool]) -> None:
    if not holds():
        raise FenceLostError("another run holds the table's lease. No further file is deleted.")
