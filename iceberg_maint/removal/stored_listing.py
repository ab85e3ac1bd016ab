"""The listing of a table's prefixes, stored as far as it went, for a scan that continues it."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from iceberg_maint.core.model.codec import dumps, loads
from iceberg_maint.errors import UnreadableTableError
from iceberg_maint.ports.storage import Store, StoredFile
from iceberg_maint.removal.store_requests import RemovalLease, TimeUpError
from iceberg_maint.removal.target import Target
from iceberg_maint.removal.trash_manifest import trash_folder

FILES = 20_000
"""The maximum number of listed files that are only in memory."""

MAX_AGE_MS = 3 * 86_400_000
"""A listing that began earlier is discarded: the longer it is, the more files are written behind it."""

_PAGE = 1_000


@dataclass(frozen=True, slots=True)
class _Part:
    """First line of a part; one line per file follows. The part lists one prefix behind `after` up to `last`.
    `complete`: the prefix has no further file. `started_ms` is the store's time when the listing began."""

    table_uuid: str
    prefixes: tuple[str, ...]
    started_ms: int
    number: int
    prefix: str
    after: str
    last: str
    complete: bool
    files: int


class StoredListing:
    """The listing of the prefixes of one table. It is stored when the time of the lease is up."""

    def __init__(self, target: Target, store: Store, lease: RemovalLease) -> None:
        self._uuid, self._prefixes, self._store, self._lease = (
            target.state.uuid,
            target.prefixes,
            store,
            lease,
        )
        self._folder = f"{trash_folder(self._prefixes[0])}/listing"
        self._parts: list[_Part] = []
        self._unsaved: list[tuple[_Part, list[StoredFile]]] = []
        self._started_ms = 0
        self.resumed = False

    def begin(self, now_ms: int) -> int:
        """Returns the store's time when the listing began: now, unless there is one to continue."""
        self._parts = self._stored_parts()
        self.resumed = bool(self._parts) and self._is_usable(now_ms)
        if not self.resumed:
            self.discard()
        self._started_ms = self._parts[0].started_ms if self.resumed else now_ms
        return self._started_ms

    def files(self, prefix: str) -> Iterator[StoredFile]:
        """Yields the files of a prefix: the stored ones, then those that storage lists behind them. Every prefix
        must be asked for in order. A listing that stops for time is stored up to the stop."""
        own = [part for part in self._parts if part.prefix == prefix]
        for part in own:
            yield from self._stored(part)
        if own and own[-1].complete:
            return
        last, buffer = own[-1].last if own else "", list[StoredFile]()
        rest = self._store.list_after(prefix, last) if self._store.resumes else self._store.list(prefix)
        after, trash = last, f"{trash_folder(prefix)}/"
        for number, file in enumerate(rest, 1):
            yield file
            last = file.path
            if not last.startswith(trash):
                buffer.append(file)
            if number % _PAGE == 0:
                try:
                    if self._store.resumes:
                        self._lease.proceed()
                    else:
                        self._lease.require()
                except TimeUpError:
                    self._add(prefix, after, last, buffer, complete=False)
                    self.save()
                    raise
                if len(buffer) >= FILES:
                    self._add(prefix, after, last, buffer, complete=False)
                    self.save()
                    after, buffer = last, []
        self._add(prefix, after, last, buffer, complete=True)

    def save(self) -> None:
        """Stores what was listed."""
        for part, files in self._unsaved:
            self._lease.require()
            lines = (
                json.dumps([f.path[len(part.prefix.rstrip("/")) :], f.size_bytes, f.modified_ms]).encode()
                + b"\n"
                for f in files
            )
            self._store.create(self._location(part), _with_header(part, lines))
        self._unsaved.clear()

    def discard(self) -> None:
        """Deletes the stored parts."""
        self._unsaved.clear()
        stored = [file.path for file in self._store.list(self._folder)]
        # The last part goes first: the rest is still a listing that can be continued.
        for path in sorted(stored, reverse=True):
            self._lease.require()
            self._store.delete(path)
        if stored:
            self._store.tidy(self._folder)
        self._parts = []

    def _add(self, prefix: str, after: str, last: str, files: list[StoredFile], *, complete: bool) -> None:
        part = _Part(
            table_uuid=self._uuid,
            prefixes=self._prefixes,
            started_ms=self._started_ms,
            number=len(self._parts),
            prefix=prefix,
            after=after,
            last=last,
            complete=complete,
            files=len(files),
        )
        self._parts.append(part)
        self._unsaved.append((part, files))

    def _location(self, part: _Part) -> str:
        return f"{self._folder}/{part.started_ms}-{part.number:06d}.jsonl"

    def _stored_parts(self) -> list[_Part]:
        """Returns the parts in order; none if one of them is not valid."""
        parts = []
        try:
            for file in self._store.list(self._folder):
                part = loads(_Part, next(iter(self._store.read_lines(file.path))).decode())
                if self._location(part) != file.path:
                    return []
                parts.append(part)
        except (ValueError, StopIteration):
            return []
        return sorted(parts, key=lambda part: part.number)

    def _is_usable(self, now_ms: int) -> bool:
        """Returns whether the parts follow one another without a gap, and are a young listing of this table."""
        first, last = self._parts[0], self._parts[-1]
        places, before = iter(self._prefixes), None
        for number, part in enumerate(self._parts):
            continues = before is not None and not before.complete
            prefix = before.prefix if before is not None and continues else next(places, None)
            after = before.last if before is not None and continues else ""
            if (part.number, part.prefix, part.after) != (number, prefix, after):
                return False
            if (part.table_uuid, part.prefixes, part.started_ms) != (
                self._uuid,
                self._prefixes,
                first.started_ms,
            ):
                return False
            before = part
        if not self._store.resumes and not (last.complete and next(places, None) is None):
            return False
        # Only the last part can be torn: the one before it was durable first.
        lines = sum(1 for _ in self._store.read_lines(self._location(last))) - 1
        return lines == last.files and 0 <= now_ms - first.started_ms <= MAX_AGE_MS

    def _stored(self, part: _Part) -> Iterator[StoredFile]:
        lines, count = iter(self._store.read_lines(self._location(part))), 0
        next(lines)
        root = part.prefix.rstrip("/")
        for line in lines:
            below, size_bytes, modified_ms = json.loads(line)
            yield StoredFile(root + below, size_bytes, modified_ms)
            count += 1
        if count != part.files:
            raise UnreadableTableError(
                "ICM-101",
                f"{self._location(part)} has {count} files, its first line says {part.files}. Nothing was removed.",
                f"delete {self._folder}; the next scan lists all files again.",
            )


def _with_header(part: _Part, lines: Iterable[bytes]) -> Iterator[bytes]:
    yield dumps(part).encode() + b"\n"
    yield from lines
