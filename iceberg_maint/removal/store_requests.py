"""Requests to a store under the lease of a scan: many at once, and many files per request."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Hashable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from hashlib import blake2b
from itertools import chain, groupby, islice
from pathlib import Path
from typing import TypeVar

from iceberg_maint.core.removal.orphan_rules import TrashedFile
from iceberg_maint.core.removal.released_file_rules import ReleasedFile
from iceberg_maint.errors import FenceLostError, IcebergMaintError
from iceberg_maint.machine.files import private_database
from iceberg_maint.ports.storage import Store, StoredFile

TRUSTED_MS = 100
"""How long an answer counts. A lease lasts for 45 s and is renewed four times in that time, so a lease
lost within this time was about to be lost anyway."""


class TimeUpError(Exception):
    """The scan has used up its time. It is continued by a later one."""


class RemovalLease:
    """The lease of a scan, and its time. `holds` returns whether this run has the lease, `is_over` whether the time is used up."""

    def __init__(self, holds: Callable[[], bool], is_over: Callable[[], bool] = lambda: False) -> None:
        self._holds, self._is_over = holds, is_over
        self._is_first = True

    def require(self) -> None:
        """Raises FenceLostError if this run has lost the lease."""
        if not self._holds():
            raise FenceLostError("another run holds the table's lease. No further file is changed.")

    def proceed(self) -> None:
        """As `require`. Before it, raises TimeUpError if the time is used up; not at the first call, so that every scan makes
        progress."""
        if not self._is_first and self._is_over():
            raise TimeUpError
        self._is_first = False
        self.require()


class AskedLease:
    """Checks the lease through `holds`, which reads the ledger. The read takes longer than a move on a local disk, and little
    time compared with a move on an object store. So it checks again whenever the last answer is older than `TRUSTED_MS` by the clock.
    A process that was stopped, or slept with the machine, therefore checks before it does anything else."""

    def __init__(self, holds: Callable[[], bool], now_ms: Callable[[], int]) -> None:
        self._holds, self._now_ms = holds, now_ms
        self._asked_ms: int | None = None

    def __call__(self) -> bool:
        """Returns whether this run still has the lease."""
        now_ms = self._now_ms()
        if self._asked_ms is None or not 0 <= now_ms - self._asked_ms < TRUSTED_MS:
            # The time before the check counts: a process that is stopped while it waits for the answer
            # checks again.
            self._asked_ms = now_ms
            if not self._holds():
                self._asked_ms = None
                return False
        return True


Item = TypeVar("Item")
Result = TypeVar("Result")
_AT_ONCE, _PER_READER = 16, 100
"""The number of files whose facts are read from storage at once, and of files that one reader takes."""


def changed(
    items: Iterable[Item],
    change: Callable[[Item], Result],
    at_once: int,
    require_lease: Callable[[], None],
    stage_of: Callable[[Item], Hashable] = lambda _: None,
) -> Iterator[tuple[Item, Result]]:
    """Yields each item with the result of `change`, in order. Up to `at_once` run together; the lease is checked
    before each such group. A group has items of one stage only: if the process dies, every earlier stage is complete.

    If a change raises, the others of its group complete and are yielded, then the first error is raised.
    """
    if at_once == 1:
        for item in items:
            require_lease()
            yield item, change(item)
        return
    with ThreadPoolExecutor(at_once) as threads:
        for _, stage in groupby(items, stage_of):
            while group := list(islice(stage, at_once)):
                require_lease()
                futures = [threads.submit(change, item) for item in group]
                errors = [error for future in futures if (error := future.exception()) is not None]
                yield from (
                    (item, future.result())
                    for item, future in zip(group, futures, strict=True)
                    if future.exception() is None
                )
                if errors:
                    raise errors[0]


def with_facts(
    files: Iterator[ReleasedFile], store: Store
) -> Iterator[tuple[ReleasedFile, StoredFile | None]]:
    """Yields each file with what storage has at its path, in order."""
    if store.at_once == 1:
        yield from ((file, store.stat(file.path)) for file in files)
        return

    def stats(share: list[ReleasedFile]) -> list[StoredFile | None]:
        return [store.stat(file.path) for file in share]

    with ThreadPoolExecutor(_AT_ONCE) as readers:
        while chunk := list(islice(files, _PER_READER * _AT_ONCE)):
            shares = [chunk[n : n + _PER_READER] for n in range(0, len(chunk), _PER_READER)]
            yield from zip(chunk, chain.from_iterable(readers.map(stats, shares)), strict=True)


_ROWS = 10_000


class FolderListing:
    """The files of a folder of the trash with their sizes. `file` is created, and `close` deletes it."""

    def __init__(self, file: Path, files: Iterable[StoredFile]) -> None:
        self._file = file
        file.unlink(missing_ok=True)
        self._db = sqlite3.connect(private_database(file), isolation_level=None)
        for pragma in ("journal_mode=OFF", "synchronous=OFF", "cache_size=-16384"):
            self._db.execute(f"PRAGMA {pragma}")
        self._db.execute("CREATE TABLE file (path BLOB PRIMARY KEY, size INT, gone INT) WITHOUT ROWID")
        rows = ((_hashed(f.path), f.size_bytes, 0) for f in files)
        while chunk := list(islice(rows, _ROWS)):
            self._db.execute("BEGIN")
            self._db.executemany("INSERT OR REPLACE INTO file VALUES (?, ?, ?)", chunk)
            self._db.execute("COMMIT")

    def close(self) -> None:
        """Deletes the file."""
        self._db.close()
        self._file.unlink(missing_ok=True)

    def size(self, path: str) -> int | None:
        """Returns the size of the file, None if it was not listed."""
        row = self._db.execute("SELECT size FROM file WHERE path = ?", (_hashed(path),)).fetchone()
        return None if row is None else int(row[0])

    def mark_gone(self, paths: Iterable[str]) -> None:
        """Notes that the store answered that it has deleted these files."""
        self._db.execute("BEGIN")
        self._db.executemany("UPDATE file SET gone = 1 WHERE path = ?", ((_hashed(p),) for p in paths))
        self._db.execute("COMMIT")

    def is_gone(self, path: str) -> bool:
        """Returns whether the store answered that it has deleted the file."""
        row = self._db.execute("SELECT gone FROM file WHERE path = ?", (_hashed(path),)).fetchone()
        return row is not None and bool(row[0])


def deleted_in_bulk(
    lines: Iterator[tuple[TrashedFile, bool]],
    folder: str,
    store: Store,
    scratch: Path,
    require_lease: Callable[[], None],
) -> Iterator[tuple[TrashedFile, bool]]:
    """Yields the files of a trash batch that are in its folder, each with whether it is gone now. `lines` are its
    files, and whether metadata reference them: those stay. A file of another size stays as well.

    The lease is checked before each request. Raises IcebergMaintError ICM-153 if the store still lists a file that it
    answered to have deleted.
    """
    listing = FolderListing(scratch, store.list(folder))
    try:
        while chunk := list(islice(lines, store.bulk)):
            sizes = [listing.size(line.trash_path) for line, _ in chunk]
            present = [
                (line, reached, size)
                for (line, reached), size in zip(chunk, sizes, strict=True)
                if size is not None
            ]
            doomed = [line for line, reached, size in present if not reached and size == line.size_bytes]
            yield from (
                (line, False) for line, reached, size in present if reached or size != line.size_bytes
            )
            if doomed:
                yield from _deleted(doomed, listing, store, require_lease)
        for file in store.list(folder):
            if listing.is_gone(file.path):
                raise IcebergMaintError(
                    "ICM-153",
                    f"the store answered that it deleted {file.path}, and still lists it.",
                    "the next scan compares again; if it stays so, ask the operator of the store.",
                )
    finally:
        listing.close()


def _deleted(
    doomed: list[TrashedFile], listing: FolderListing, store: Store, require_lease: Callable[[], None]
) -> Iterator[tuple[TrashedFile, bool]]:
    """Deletes files by one request. Each file that this does not delete is deleted by a request of its own. If that
    raises, the others are yielded first."""
    require_lease()
    refused = store.delete_bulk([line.trash_path for line in doomed])
    gone = [line for line in doomed if line.trash_path not in refused]
    listing.mark_gone(line.trash_path for line in gone)
    yield from ((line, True) for line in gone)
    error: Exception | None = None
    for line in doomed:
        if line.trash_path in refused:
            require_lease()
            try:
                store.delete(line.trash_path)
                is_gone = store.stat(line.trash_path) is None
            except Exception as why:  # noqa: BLE001 - raised after the others
                error = error or why
            else:
                yield line, is_gone
    if error is not None:
        raise error


def _hashed(path: str) -> bytes:
    return blake2b(path.encode("utf-8", "surrogateescape"), digest_size=16).digest()
