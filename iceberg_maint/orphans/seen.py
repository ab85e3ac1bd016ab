"""Seen: files that need not be read again, kept on local disk from one pass to the next.

A file is told by its path, size and time: one that was put in its place is another one. To lose
what was seen costs reading again.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Sequence
from contextlib import closing
from hashlib import blake2b
from pathlib import Path

from iceberg_maint.storage_ports import StoredFile


class SeenFiles:
    """The files of one purpose and table. A damaged `memo` is begun anew."""

    def __init__(self, memo: Path) -> None:
        if memo.exists() and not _is_sound(memo):
            memo.unlink()
        self._db = sqlite3.connect(memo)
        self._db.execute("CREATE TABLE IF NOT EXISTS seen (file BLOB PRIMARY KEY, look INT) WITHOUT ROWID")
        (self._look,) = self._db.execute("SELECT coalesce(max(look), 0) + 1 FROM seen").fetchone()

    def close(self) -> None:
        """Closes the memo; what was added or met again stays in it."""
        self._db.close()

    def unseen(self, files: Sequence[StoredFile]) -> list[StoredFile]:
        """Those of the files that were not seen in an earlier look."""
        with self._db:
            return [file for file in files if not self._meets(file)]

    def add(self, files: Iterable[StoredFile]) -> None:
        """Notes these files as seen; not those whose time the store does not tell."""
        rows = ((_hashed(file), self._look) for file in files if file.modified_ms is not None)
        with self._db:
            self._db.executemany("INSERT OR REPLACE INTO seen VALUES (?, ?)", rows)

    def forget_others(self) -> None:
        """Forgets what this look has not met: the files are gone."""
        with self._db:
            self._db.execute("DELETE FROM seen WHERE look != ?", (self._look,))

    def _meets(self, file: StoredFile) -> bool:
        row = (self._look, _hashed(file))
        return self._db.execute("UPDATE seen SET look = ? WHERE file = ?", row).rowcount == 1


def _is_sound(memo: Path) -> bool:
    try:
        with closing(sqlite3.connect(memo)) as db:
            (found,) = db.execute("PRAGMA quick_check(1)").fetchone()
            return str(found) == "ok"
    except sqlite3.DatabaseError:
        return False


def _hashed(file: StoredFile) -> bytes:
    text = f"{file.size_bytes} {file.modified_ms} {file.path}"
    return blake2b(text.encode("utf-8", "surrogateescape"), digest_size=16).digest()
