"""Folders of entries: one file per entry, created whole and never replaced, and the removal of the oldest ones."""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from iceberg_maint.integrations.audit.chain import Entry, entry_file_name, is_anchor, parse
from iceberg_maint.machine.files import private_folder, private_opener
from iceberg_maint.ports.storage import Store

_ENTRY = re.compile(r"[0-9]{12}\.json")
_FOLDER = re.compile(r"[0-9A-Za-z_-][0-9A-Za-z._-]{0,99}")


def folder_name(table_uuid: str) -> str:
    """The name of a table's folder: its UUID. A text in metadata that is no name of a folder gives its digest."""
    if _FOLDER.fullmatch(table_uuid):
        return table_uuid
    return f"sha256-{hashlib.sha256(table_uuid.encode('utf-8', 'replace')).hexdigest()}"


class Folder(Protocol):
    """The entries of one table."""

    def names(self) -> list[str]:
        """The names of all entries, in order."""

    def read(self, name: str) -> bytes:
        """The content of an entry. Raises FileNotFoundError."""

    def create(self, name: str, data: bytes) -> None:
        """Creates an entry, durably. Raises FileExistsError if there is one of this name."""

    def remove(self, names: Sequence[str]) -> None:
        """Removes entries. Those that do not exist are no error."""


class LocalFolder:
    """A folder of the local file system. A crash leaves no part of an entry: the name is linked after the content
    is durable."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def names(self) -> list[str]:
        """The names of all entries, in order."""
        try:
            return sorted(n for n in os.listdir(self._path) if _ENTRY.fullmatch(n))  # noqa: PTH208 - names only
        except FileNotFoundError:
            return []

    def read(self, name: str) -> bytes:
        """The content of an entry."""
        return (self._path / name).read_bytes()

    def create(self, name: str, data: bytes) -> None:
        """Creates an entry. Of two processes one succeeds."""
        private_folder(self._path)
        draft = self._path / f".draft-{uuid.uuid4().hex}"
        try:
            with open(draft, "xb", opener=private_opener) as out:
                out.write(data)
                out.flush()
                os.fsync(out.fileno())
            os.link(draft, self._path / name)
        finally:
            with contextlib.suppress(OSError):
                draft.unlink()
        self._sync()

    def remove(self, names: Sequence[str]) -> None:
        """Removes entries."""
        for name in names:
            (self._path / name).unlink(missing_ok=True)
        self._sync()

    def _sync(self) -> None:
        descriptor = os.open(self._path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


class StoreFolder:
    """A prefix of an object store, which creates objects whole. S3 refuses an object that exists. Of other stores two
    processes may both create it, so only the holder of the table's lease appends."""

    def __init__(self, store: Store, prefix: str) -> None:
        self._store = store
        self._prefix = prefix.rstrip("/")

    def names(self) -> list[str]:
        """The names of all entries, in order, by one listing."""
        paths = (f.path.rpartition("/")[2] for f in self._store.list(f"{self._prefix}/"))
        return sorted(n for n in paths if _ENTRY.fullmatch(n))

    def read(self, name: str) -> bytes:
        """The content of an entry."""
        return self._store.read(f"{self._prefix}/{name}")

    def create(self, name: str, data: bytes) -> None:
        """Creates an entry."""
        self._store.create(f"{self._prefix}/{name}", [data])

    def remove(self, names: Sequence[str]) -> None:
        """Removes entries, many by one request where the store can."""
        paths = [f"{self._prefix}/{name}" for name in names]
        size = self._store.bulk or 1
        for at in range(0, len(paths), size):
            if self._store.bulk:
                self._store.delete_bulk(paths[at : at + size])
            else:
                self._store.delete(paths[at])


def local_folders(root: Path) -> list[str]:
    """The names of the tables' folders below a local root."""
    try:
        return sorted(e.name for e in os.scandir(root) if e.is_dir() and _FOLDER.fullmatch(e.name))
    except FileNotFoundError:
        return []


def store_folders(store: Store, root: str) -> list[str]:
    """The names of the tables' folders below a root of a store."""
    names = {f.path.rpartition("/")[0].rpartition("/")[2] for f in store.list(f"{root.rstrip('/')}/")}
    return sorted(n for n in names if _FOLDER.fullmatch(n))


DAY_MS = 86_400_000
KEPT_ENTRIES = 60
"""The newest entries of a table, which stay however old they are: a run compares them with the ledger."""
LEAST_ENTRIES = 20
"""A removal is itself an entry, so fewer old entries wait for more."""
MOST_ENTRIES = 1000
"""Entries that one run removes at most. Each is read before."""


@dataclass(frozen=True, slots=True)
class Removal:
    """The entries to remove: a part of the beginning of the chain. `first_kept` is the number of the first entry that
    stays, `previous` the hash of the entry before it."""

    names: tuple[str, ...]
    first_kept: int
    previous: str
    before_ms: int

    def document(self) -> dict[str, Any]:
        """The body of the entry that says so."""
        return {
            "first_kept": self.first_kept,
            "previous": self.previous,
            "removed": len(self.names),
            "before_ms": self.before_ms,
        }


def removal(folder: Folder, before_ms: int) -> Removal | None:
    """Returns the entries older than this time that may be removed; None if they are too few.

    Raises ValueError if one of them, or the first that would stay, is not what the log wrote: a log that was
    tampered with keeps everything.
    """
    names = folder.names()
    old: list[str] = []
    last: Entry | None = None
    for name in names[: min(MOST_ENTRIES, len(names) - KEPT_ENTRIES)] if len(names) > KEPT_ENTRIES else ():
        entry = _read(folder, name, last)
        if entry.at_ms >= before_ms:
            break
        old.append(name)
        last = entry
    if last is None or len(old) < LEAST_ENTRIES:
        return None
    kept = _read(folder, names[len(old)], last)
    _check_front(folder, names)
    return Removal(tuple(old), kept.sequence, kept.previous, before_ms)


def _check_front(folder: Folder, names: list[str]) -> None:
    """Raises ValueError if entries before the first one are gone that retention did not remove. An entry of a new
    retention would excuse them."""
    if names[0] == entry_file_name(1):
        return
    for name in reversed(names):
        entry = _read(folder, name, None)
        if is_anchor(entry):
            if entry_file_name(entry.body["first_kept"]) >= names[0]:
                return
            break
    raise ValueError(f"the entries before {names[0]} are gone, and no retention removed them")


def _read(folder: Folder, name: str, last: Entry | None) -> Entry:
    """Reads an entry and checks that it follows the last one."""
    entry = parse(folder.read(name))
    if last is not None and (entry.sequence, entry.previous) != (last.sequence + 1, last.hash):
        raise ValueError(f"the entry {name} does not follow the one before it")
    return entry
