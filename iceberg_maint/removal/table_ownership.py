"""A cache on local disk of the contents of old metadata files, kept from one scan to the next.

A file is identified by its path, size and time: a replaced file is a different one. If the cache is lost,
the files are read again.
"""

from __future__ import annotations

import json
import os
import sqlite3
import zlib
from collections.abc import Collection, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from hashlib import blake2b
from itertools import islice
from pathlib import Path
from typing import Any

from iceberg_maint.core.model.codec import json_of
from iceberg_maint.core.outcomes.failures import is_of_process
from iceberg_maint.core.removal.orphan_rules import MetadataVersion
from iceberg_maint.errors import IcebergMaintError
from iceberg_maint.machine.files import private_database
from iceberg_maint.ports.storage import Store, StoredFile

KEEP_DAYS = 90
"""A cache that no scan has used for so long is deleted: its table was dropped, or no longer has orphan scans here."""
_DAY_SECONDS = 86_400
UNREADABLE = "unreadable: "
"""How the owner of a metadata file that cannot be read begins."""


def delete_unused(folder: Path, now_ms: int) -> None:
    """Deletes the databases of orphan scans that were not used for `KEEP_DAYS`, by this machine's clock: caches, and what
    a killed scan has left. A scan that needs one again makes it again."""
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
            " (file BLOB PRIMARY KEY, reading INT, owner TEXT, sequence_number INT, updated_ms INT) WITHOUT ROWID"
        )
        (self._reading,) = self._db.execute("SELECT coalesce(max(reading), 0) + 1 FROM owned").fetchone()

    def close(self) -> None:
        """Closes the memo. It keeps what was added or met again, and the time of its last use."""
        self._db.close()
        with suppress(OSError):
            os.utime(self._memo)

    def versions(self, files: Iterable[StoredFile]) -> list[MetadataVersion | None]:
        """Returns the version of each file from an earlier reading; None for a file that the cache lacks."""
        with self._db:
            return [self._met(file) for file in files]

    def add(self, versions: Iterable[tuple[StoredFile, MetadataVersion]]) -> None:
        """Adds the versions of these files, except files without a time."""
        rows = (
            (_hashed(file), self._reading, v.owner, v.last_sequence_number, v.last_updated_ms)
            for file, v in versions
            if file.modified_ms is not None
        )
        with self._db:
            self._db.executemany("INSERT OR REPLACE INTO owned VALUES (?, ?, ?, ?, ?)", rows)

    def forget_others(self) -> None:
        """Removes the entries that this scan has not met: their files are gone."""
        with self._db:
            self._db.execute("DELETE FROM owned WHERE reading != ?", (self._reading,))

    def _met(self, file: StoredFile) -> MetadataVersion | None:
        key = _hashed(file)
        self._db.execute("UPDATE owned SET reading = ? WHERE file = ?", (self._reading, key))
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


_HEAD_BYTES = 16 * 1024
"""Iceberg's writers write UUID and time among the first keys. A file without a UUID there is read
completely."""
_MOST_WHOLE = 1_000
"""The maximum number of the table's files that one reading reads completely because the sequence number is
not at the beginning: PyIceberg writes it last. Later readings read the others."""
_AT_ONCE = 16
_GZIP = 31
"""zlib's window bits for a gzip header."""
_KEYS = ("format-version", "table-uuid", "last-sequence-number", "last-updated-ms")


def metadata_versions(
    store: Store, files: Iterable[StoredFile], uuid: str, memo: Path, *, forgets: bool = True
) -> Iterator[MetadataVersion]:
    """Yields the version of each of these metadata files. Files that are gone since the listing are
    omitted.

    If nothing deletes old metadata files, hundreds of thousands can accumulate. Only the beginning of
    each is read, several at once, and only once: `memo` on local disk keeps the versions from earlier
    scans. With `forgets`, the entries of files that this scan has not met are removed from it.
    """
    complete_reads = iter(range(_MOST_WHOLE))
    with ThreadPoolExecutor(_AT_ONCE) as readers, closing(SeenFiles(memo)) as cache:
        for chunk in _batches(files, 100 * _AT_ONCE):
            cached = list(zip(chunk, cache.versions(chunk), strict=True))
            unseen = [file for file, version in cached if version is None]
            versions_read = list(
                readers.map(lambda file: _version(store, file.path, uuid, complete_reads), unseen)
            )
            cache.add(
                (file, v)
                for file, v in zip(unseen, versions_read, strict=True)
                if v is not None and v.last_sequence_number is not None
            )
            yield from (v for _, v in cached if v is not None)
            yield from (v for v in versions_read if v is not None)
        if forgets:
            cache.forget_others()


def log_entries(store: Store, path: str) -> list[tuple[str, int]]:
    """Returns path and time of each entry in the metadata log of a metadata file; empty if the file is
    gone. Raises ValueError, KeyError, TypeError, OSError, zlib.error for a file that cannot be read."""
    try:
        document = json_of(_text(store.read(path)))
    except FileNotFoundError:
        return []
    return [(e["metadata-file"], int(e["timestamp-ms"])) for e in document.get("metadata-log") or ()]


def values_in(head: str, keys: Collection[str]) -> dict[str, Any]:
    """Returns those of the keys of a JSON object that are in its beginning, which may be cut off at any
    character."""
    decoder, position = json.JSONDecoder(), head.find("{") + 1
    values: dict[str, Any] = {}
    if not position:
        return values
    try:
        while len(values) < len(keys):
            key, position = decoder.raw_decode(head, _skip_spaces(head, position))
            value, position = decoder.raw_decode(head, _skip_spaces(head, _skip_spaces(head, position, ":")))
            position = _skip_spaces(head, position)
            # A number at the end of the beginning may continue.
            if key in keys and (position < len(head) or isinstance(value, str)):
                values[key] = value
            position = _skip_spaces(head, position, ",")
    except (ValueError, RecursionError):
        pass
    return values


def _skip_spaces(text: str, at: int, mark: str = "") -> int:
    """Returns the position of the next character that is not a space, after `mark`, which must be there."""
    while at < len(text) and text[at] in " \t\r\n":
        at += 1
    if not mark:
        return at
    if text[at : at + 1] != mark:
        raise ValueError(f"no '{mark}' at {at}")
    return at + 1


def _version(store: Store, path: str, uuid: str, whole: Iterator[int]) -> MetadataVersion | None:
    try:
        head = values_in(_text(store.read(path, _HEAD_BYTES)), _KEYS)
        owner = head.get("table-uuid")
        if isinstance(owner, str):
            if owner != uuid and "last-updated-ms" in head:
                return MetadataVersion(path, owner, 0, int(head["last-updated-ms"]))
            if _is_complete(head):
                return _version_of(path, owner, head)
            if "last-updated-ms" in head and next(whole, None) is None:
                return MetadataVersion(path, owner, None, int(head["last-updated-ms"]))
        document = json_of(_text(store.read(path)))
        return _version_of(path, str(document.get("table-uuid") or document["location"]), document)
    except FileNotFoundError:
        return None  # its table has dropped it since
    except IcebergMaintError:
        raise
    except Exception as error:  # zlib, json and each wrong type raise their own errors
        if is_of_process(error):
            raise
        return MetadataVersion(path, f"{UNREADABLE}{type(error).__name__}")


def _is_complete(values: Mapping[str, Any]) -> bool:
    # Format v1 has no sequence numbers.
    return "last-updated-ms" in values and (
        "last-sequence-number" in values or values.get("format-version") == 1
    )


def _version_of(path: str, owner: str, values: Mapping[str, Any]) -> MetadataVersion:
    return MetadataVersion(
        path, owner, int(values.get("last-sequence-number") or 0), int(values["last-updated-ms"])
    )


def _text(data: bytes) -> str:
    """Returns the available part of a text that may be compressed and cut off at any byte."""
    if data[:2] == b"\x1f\x8b":
        data = zlib.decompressobj(_GZIP).decompress(data)
    return data.decode("utf-8", errors="ignore")


def _batches(files: Iterable[StoredFile], size: int) -> Iterator[list[StoredFile]]:
    iterator = iter(files)
    while chunk := list(islice(iterator, size)):
        yield chunk
