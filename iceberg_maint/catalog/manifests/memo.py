"""The memo of manifests: projections of data manifests, so that a measurement reads only manifests that it has not
read before.

The memo is one SQLite file. It holds nothing that cannot be read again: a missing, damaged or locked memo, or one of
another version, costs time only. An entry counts only if the manifest list states the same manifest in
every field, the projection holds the same columns, and the checksum fits.
"""

from __future__ import annotations

import sqlite3
import time
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, suppress
from hashlib import blake2b
from pathlib import Path
from typing import Any, TypeVar

from iceberg_maint.catalog.manifests.projection import (
    Partitions,
    Projection,
    Wanted,
    identity_of,
    pack,
    pack_partitions,
    unpack,
    unpack_partitions,
)
from iceberg_maint.core.model.table_state import Manifest
from iceberg_maint.machine.files import private_database, private_folder

T = TypeVar("T")

MAX_BYTES = 1 << 30
"""Size of all entries. Beyond it those that were not used for the longest time are deleted."""
KEEP_DAYS = 30
"""An entry that was not used for so long is deleted."""
MIN_FILES = 2_000
"""A table of fewer live data files is read in less time than it takes to open the memo."""
_DAY_SECONDS = 86_400
_BUSY_SECONDS = 5
_CHUNK = 500
_DAMAGE = (sqlite3.Error, OSError, ValueError, TypeError)
"""What a damaged file raises: a schema that is no text is a UnicodeDecodeError, a size of another type a TypeError."""
_SCHEMA = """
CREATE TABLE IF NOT EXISTS entry (
    path TEXT PRIMARY KEY, identity TEXT NOT NULL, wanted TEXT NOT NULL, checksum BLOB NOT NULL, day INTEGER NOT NULL,
    size INTEGER NOT NULL, partitions BLOB NOT NULL, partitions_checksum BLOB NOT NULL, body BLOB NOT NULL
);
CREATE INDEX IF NOT EXISTS entry_day ON entry (day, size);
"""


class ManifestMemo:
    """The memo in the SQLite file `path`. Nothing is opened before the first call. No method raises for what it
    finds in the file. Tables of fewer live data files than `min_files` are not for it."""

    def __init__(self, path: Path, max_bytes: int = MAX_BYTES, min_files: int = MIN_FILES) -> None:
        self._path, self._max_bytes, self._min_files = path, max_bytes, min_files

    def is_for(self, listed: Iterable[Manifest]) -> bool:
        """Returns whether the memo is for the table whose snapshot lists these manifests: whether their counts of
        live data files reach the least number."""
        return sum(_live_files(m) for m in listed if not m.is_deletes) >= self._min_files

    def get(self, manifests: Iterable[Manifest], wanted: Wanted) -> dict[str, Projection]:
        """Returns the projections of those manifests that the memo has, by path."""
        projections: dict[str, Projection] = {}
        text, today, stale = wanted.text(), _today(), []
        for path, identity, of_text, checksum, day, body in self._stored(
            manifests, "wanted, checksum, day, body"
        ):
            projection = _checked(checksum, body, unpack, identity, text) if of_text == text else None
            if projection is not None:
                projections[path] = projection
                stale += [(today, path)] if day != today else []
        if stale:
            self._change("UPDATE entry SET day = ? WHERE path = ?", stale)
        return projections

    def partitions(self, manifests: Iterable[Manifest]) -> dict[str, Partitions]:
        """Returns spec id and partitions of the live entries of those manifests that the memo has, by path."""
        known: dict[str, Partitions] = {}
        for path, identity, checksum, packed in self._stored(manifests, "partitions_checksum, partitions"):
            partitions = _checked(checksum, packed, unpack_partitions, identity)
            if partitions is not None:
                known[path] = partitions
        return known

    def _stored(self, manifests: Iterable[Manifest], columns: str) -> Iterator[tuple[Any, ...]]:
        """Yields path, identity and these columns of the manifests that the memo has."""
        expected = {m.path: identity_of(m) for m in manifests}
        if not expected:
            return
        try:
            with closing(self._open()) as connection:
                for row in _rows(connection, f"path, identity, {columns}", list(expected)):
                    # The index of a damaged file yields rows of other paths.
                    if row[1] == expected.get(row[0]):
                        yield row
        except _DAMAGE as error:
            self._discard(error)

    def put(self, projections: Mapping[Manifest, Projection], wanted: Wanted) -> None:
        """Stores projections, and deletes the entries that are too old or too many."""
        today, text = _today(), wanted.text()
        rows = []
        for manifest, projection in projections.items():
            body = pack(projection)
            if body is not None:
                identity, partitions = identity_of(manifest), pack_partitions(projection)
                keys = (manifest.path, identity, text)
                sums = _checksum(body, identity, text), _checksum(partitions, identity)
                size = sum(len(_bytes(k)) for k in keys) + sum(map(len, (*sums, partitions, body)))
                rows.append((*keys, sums[0], today, size, partitions, sums[1], body))
        if not rows:
            return
        self._change("INSERT OR REPLACE INTO entry VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)", rows, self._clean)

    def _change(
        self,
        statement: str,
        rows: Sequence[tuple[Any, ...]],
        then: Callable[[sqlite3.Connection], None] = lambda _: None,
    ) -> None:
        try:
            with closing(self._open()) as connection, connection:
                connection.executemany(statement, rows)
                then(connection)
        except _DAMAGE as error:
            self._discard(error)

    def _clean(self, connection: sqlite3.Connection) -> None:
        connection.execute("DELETE FROM entry WHERE day < ?", (_today() - KEEP_DAYS,))
        excess = (
            connection.execute("SELECT COALESCE(SUM(size), 0) FROM entry").fetchone()[0] - self._max_bytes
        )
        if excess <= 0:
            return
        oldest = []
        for path, size in connection.execute("SELECT path, size FROM entry ORDER BY day, path"):
            oldest.append((path,))
            excess -= size
            if excess <= 0:
                break
        connection.executemany("DELETE FROM entry WHERE path = ?", oldest)

    def _open(self) -> sqlite3.Connection:
        private_folder(self._path.parent)
        connection = sqlite3.connect(private_database(self._path), timeout=_BUSY_SECONDS)
        try:
            connection.execute("PRAGMA journal_mode = WAL")
            connection.execute("PRAGMA synchronous = NORMAL")
            connection.executescript(_SCHEMA)
        except BaseException:
            connection.close()
            raise
        return connection

    def _discard(self, error: Exception) -> None:
        """Deletes a damaged file. A locked or read-only one stays."""
        locked = isinstance(error, OSError | sqlite3.OperationalError)
        if not locked and isinstance(error, sqlite3.DatabaseError | ValueError | TypeError):
            for suffix in ("", "-wal", "-shm"):
                with suppress(OSError):
                    Path(f"{self._path}{suffix}").unlink()


def memo_for(memo: ManifestMemo | None, listed: Sequence[Manifest]) -> ManifestMemo | None:
    """Returns the memo if it is for the table whose snapshot lists these manifests, else None."""
    return memo if memo is not None and memo.is_for(listed) else None


def _live_files(manifest: Manifest) -> int:
    return (manifest.added_files or 0) + (manifest.existing_files or 0)


def _today() -> int:
    return int(time.time() // _DAY_SECONDS)


def _rows(connection: sqlite3.Connection, columns: str, paths: Sequence[str]) -> Iterator[tuple[Any, ...]]:
    for start in range(0, len(paths), _CHUNK):
        chunk = paths[start : start + _CHUNK]
        placeholders = ",".join("?" * len(chunk))
        yield from connection.execute(f"SELECT {columns} FROM entry WHERE path IN ({placeholders})", chunk)


def _checksum(packed: bytes, *keys: str) -> bytes:
    """Returns the checksum of stored bytes with what they are stored for."""
    return blake2b(b"\0".join((*map(_bytes, keys), packed)), digest_size=16).digest()


def _bytes(text: str) -> bytes:
    return text.encode(errors="surrogatepass")


def _checked(checksum: bytes, packed: bytes, read: Callable[[bytes], T], *keys: str) -> T | None:
    try:
        return read(packed) if _checksum(packed, *keys) == checksum else None
    except (ValueError, KeyError, TypeError, StopIteration, zlib.error):
        return None
