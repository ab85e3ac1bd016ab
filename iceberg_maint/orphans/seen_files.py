"""A cache on local disk of the contents of old metadata files, kept from one pass to the next.

A file is identified by its path, size and time: a replaced file is a different one. If the cache is lost,
the files are read again.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterable
from contextlib import closing, suppress
from hashlib import blake2b
from pathlib import Path

from iceberg_maint.core.removal.unlogged_metadata import MetadataVersion
from iceberg_maint.ports.storage import StoredFile
from iceberg_maint.private_files import private_database

KEEP_DAYS = 90
"""A cache that no pass has used for so long is deleted: its table was dropped, or no longer has orphan passes here."""
_DAY_SECONDS = 86_400


def delete_unused(folder: Path, now_ms: int) -> None:
    """Deletes the databases of orphan passes that were not used for `KEEP_DAYS`, by this machine's clock: caches, and what
    a killed pass has left. A pass that needs one again makes it again."""
    before_seconds = now_ms / 1000 - KEEP_DAYS * _DAY_SECONDS
    for file in folder.glob("*.db*"):
        with suppress(OSError):
            if file.stat().st_mtime < before_seconds:
                file.unlink()


class SeenFiles:
    """The metadata files below a table's location. A damaged `memo` is replaced by an empty one."""

    def __init__(self, memo: Path) -> None:
        self._memo = memo
        if memo.exists() and not _is_sound(memo):
            memo.unlink()
        self._db = sqlite3.connect(private_database(memo))
        self._db.execute(
            "CREATE TABLE IF NOT EXISTS owned"
            " (file BLOB PRIMARY KEY, look INT, owner TEXT, sequence_number INT, updated_ms INT) WITHOUT ROWID"
        )
        (self._look,) = self._db.execute("SELECT coalesce(max(look), 0) + 1 FROM owned").fetchone()

    def close(self) -> None:
        """Closes the memo. It keeps what was added or met again, and the time of its last use."""
        self._db.close()
        with suppress(OSError):
            os.utime(self._memo)

    def versions(self, files: Iterable[StoredFile]) -> list[MetadataVersion | None]:
        """Returns the version of each file from an earlier look; None for a file that the cache lacks."""
        with self._db:
            return [self._met(file) for file in files]

    def add(self, versions: Iterable[tuple[StoredFile, MetadataVersion]]) -> None:
        """Adds the versions of these files, except files without a time."""
        rows = (
            (_hashed(file), self._look, v.owner, v.last_sequence_number, v.last_updated_ms)
            for file, v in versions
            if file.modified_ms is not None
        )
        with self._db:
            self._db.executemany("INSERT OR REPLACE INTO owned VALUES (?, ?, ?, ?, ?)", rows)

    def forget_others(self) -> None:
        """Removes the entries that this look has not met: their files are gone."""
        with self._db:
            self._db.execute("DELETE FROM owned WHERE look != ?", (self._look,))

    def _met(self, file: StoredFile) -> MetadataVersion | None:
        key = _hashed(file)
        self._db.execute("UPDATE owned SET look = ? WHERE file = ?", (self._look, key))
        row = self._db.execute(
            "SELECT owner, sequence_number, updated_ms FROM owned WHERE file = ?", (key,)
        ).fetchone()
        return None if row is None else MetadataVersion(file.path, *row)


def _is_sound(memo: Path) -> bool:
    try:
        with closing(sqlite3.connect(memo)) as db:
            (result,) = db.execute("PRAGMA quick_check(1)").fetchone()
            return str(result) == "ok"
    except sqlite3.DatabaseError:
        return False


def _hashed(file: StoredFile) -> bytes:
    text = f"{file.size_bytes} {file.modified_ms} {file.path}"
    return blake2b(text.encode("utf-8", "surrogateescape"), digest_size=16).digest()
