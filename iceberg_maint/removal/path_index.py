"""Compares the paths that storage lists with the paths that metadata references, on disk and in bounded
memory.

Rows are appended, indexed once by SQLite's external sort, and compared by one lookup each. The memory is
SQLite's cache, whatever their number. Paths are compared by a hash of their key. If two hashes collided,
an orphan would stay.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from hashlib import blake2b
from itertools import islice
from pathlib import Path

from iceberg_maint.core.model.location import Equivalences, cut_path, parse_location
from iceberg_maint.core.removal.orphan_rules import Kept, Orphan, ScanCounts
from iceberg_maint.core.removal.released_file_rules import REMOVAL_ORDER, ReleasedFile, ReleasedKind
from iceberg_maint.machine.files import private_database
from iceberg_maint.ports.storage import StoredFile

_ROWS = 10_000
_PARAMETERS = 500
"""The most values in one statement. SQLite before version 3.32 allows at most 999."""
_CACHE_KIBIBYTES = 16_384
"""A larger cache saves no CPU time: the operating system has the pages."""

_REACHED = "EXISTS (SELECT 1 FROM reached WHERE reached.key = listed.key)"
_KEPT_AS = (
    Kept.REACHABLE,
    Kept.IN_FLIGHT,
    Kept.RESTORED,
    Kept.PENDING,
    Kept.RELEASED,
    Kept.NAMED_ELSEWHERE,
)
"""The reasons why a path keeps the file, strongest first. The rank is in the column `why`."""
_ORPHAN = "orphan"
_PLACE_OF = {kind: place for place, kind in enumerate(REMOVAL_ORDER)}
_RANK = "(SELECT min(why) FROM reached WHERE reached.key = listed.key)"
_NAMED_ELSEWHERE = "EXISTS (SELECT 1 FROM elsewhere WHERE elsewhere.name = listed.name)"


class PathTables:
    """Listed paths below the prefixes, and referenced paths. `file` is created, and `close` deletes it.
    Raises ValueError for a prefix or path that is not a location."""

    def __init__(self, file: Path, prefixes: Iterable[str], same: Equivalences) -> None:
        self._file, self._same = file, same
        places = [parse_location(p, same) for p in prefixes]
        self._below = [(p.store.casefold(), p.key.rstrip(b"/") + b"/") for p in places]
        self._folder: tuple[str | None, tuple[str, bytes, bool] | None] = (None, None)
        file.unlink(missing_ok=True)
        self._db = sqlite3.connect(private_database(file), isolation_level=None)
        for pragma in ("journal_mode=OFF", "synchronous=OFF", f"cache_size=-{_CACHE_KIBIBYTES}"):
            self._db.execute(f"PRAGMA {pragma}")
        # One transaction for all: the file is scratch, and a commit writes every changed page.
        self._db.execute("BEGIN")
        self._db.execute(
            "CREATE TABLE listed (key BLOB, name BLOB, store TEXT, path BLOB, size INT, ms INT, kept TEXT)"
        )
        self._db.execute("CREATE TABLE reached (key BLOB, store TEXT, path BLOB, why INT, below INT)")
        self._db.execute("CREATE TABLE manifests (file BLOB PRIMARY KEY) WITHOUT ROWID")
        # Referenced files outside the prefixes are few, so the index costs nothing.
        self._db.execute("CREATE TABLE elsewhere (name BLOB PRIMARY KEY) WITHOUT ROWID")
        self._db.execute(
            "CREATE TABLE released (key BLOB PRIMARY KEY, name BLOB, path BLOB, kind INT, size INT,"
            " snapshot INT, ms INT, below INT) WITHOUT ROWID"
        )
        self._db.execute("CREATE TABLE taken (kind INT, path BLOB, size INT, ms INT, snapshot INT)")

    def close(self) -> None:
        """Deletes the file."""
        self._db.close()
        self._file.unlink(missing_ok=True)

    def add_listed(self, files: Iterable[tuple[StoredFile, Kept | None]]) -> None:
        """Adds listed files, each with the reason why it stays, if its name or age gives one. Raises
        ValueError for a file that is below no prefix."""
        self._insert("INSERT INTO listed VALUES (?, ?, ?, ?, ?, ?, ?)", map(self._listed, files))

    def _listed(self, entry: tuple[StoredFile, Kept | None]) -> tuple[object, ...]:
        file, reason = entry
        store, key, below = self._place(file.path)
        # A key with `..` is another place only for those that resolve it. Its name keeps the file.
        if not below and reason is None:
            if "%" not in file.path:
                raise ValueError(f"the listing contains {file.path}, which is not below a listed prefix")
            # A partition value with an encoded `..`. With a plain one its name would keep the file, too.
            reason = Kept.HIDDEN
        path = _bytes(file.path)
        return _hashed(key), _hashed(_name(key)), store, path, file.size_bytes, file.modified_ms, reason

    def add_reached(self, paths: Iterable[str], why: Kept) -> None:
        """Adds paths that the metadata reference, that an unfinished batch has written, that were
        restored from the trash, or that a pending manifest names. A file at which some clients look for such a path is
        `Kept.NAMED_ELSEWHERE`."""
        paths, rank = iter(paths), _KEPT_AS.index(why)
        while chunk := list(islice(paths, _ROWS)):
            rows, elsewhere = [], []
            for path in chunk:
                store, key, below = self._place(path)
                rows.append((_hashed(key), store, _bytes(path), rank, below))
                if not below:
                    elsewhere.append((_hashed(_name(key)),))
                if (cut := cut_path(path)) != path:
                    store, key, below = self._place(cut)
                    rank_of_cut = _KEPT_AS.index(Kept.NAMED_ELSEWHERE)
                    rows.append((_hashed(key), store, _bytes(cut), rank_of_cut, below))
            self._insert("INSERT INTO reached VALUES (?, ?, ?, ?, ?)", rows)
            self._insert("INSERT OR IGNORE INTO elsewhere VALUES (?)", elsewhere)

    def add_released(self, files: Iterable[ReleasedFile]) -> int:
        """Adds files that removed snapshots reference, except files that something references by now, that
        were added before, or whose path is not a location. Returns the number added, with the files that
        `files` adds itself while it is read. `index` must have been called."""
        before, files = self._db.total_changes, iter(files)
        while chunk := list(islice(files, _ROWS)):
            # Manifests repeat the files of the manifests that they replace.
            first: dict[str, ReleasedFile] = {}
            for file in chunk:
                first.setdefault(file.path, file)
            self._insert(
                "INSERT OR IGNORE INTO released SELECT ?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8"
                " WHERE NOT EXISTS (SELECT 1 FROM reached WHERE key = ?1)",
                filter(None, map(self._released, first.values())),
            )
        return self._db.total_changes - before

    def _released(self, file: ReleasedFile) -> tuple[object, ...] | None:
        try:
            _, key, below = self._place(file.path)
        except ValueError:
            return None
        kind, path = _PLACE_OF[file.kind], _bytes(file.path)
        name, size = _hashed(_name(key)), file.size_bytes
        return _hashed(key), name, path, kind, size, file.snapshot_id, file.committed_ms, below

    def releases_manifests(self) -> bool:
        """Returns whether a manifest is among the released files, so that data files may be as well."""
        kind = REMOVAL_ORDER.index(ReleasedKind.MANIFEST)
        return self._db.execute("SELECT 1 FROM released WHERE kind = ?", (kind,)).fetchone() is not None

    def released(self) -> Iterator[ReleasedFile]:
        """Yields the released files below the prefixes that nothing references, in the order of their
        removal."""
        rows = self._db.execute(
            "SELECT path, kind, size, snapshot, ms FROM released WHERE below"
            " AND NOT EXISTS (SELECT 1 FROM reached WHERE reached.key = released.key)"
            " AND NOT EXISTS (SELECT 1 FROM elsewhere WHERE elsewhere.name = released.name)"
            " ORDER BY kind, path"
        )
        for path, kind, size_bytes, snapshot_id, committed_ms in rows:
            yield ReleasedFile(_text(path), REMOVAL_ORDER[kind], size_bytes, snapshot_id, committed_ms)

    def unreferenced(self) -> int:
        """Returns the number of released files that nothing references."""
        row = self._db.execute(
            "SELECT count(*) FROM released"
            " WHERE NOT EXISTS (SELECT 1 FROM reached WHERE reached.key = released.key)"
        ).fetchone()
        return int(row[0])

    def keep_released(self) -> None:
        """Makes the released files that nothing references count as `Kept.RELEASED`."""
        self._db.execute(
            "INSERT INTO reached SELECT key, '', path, ?, 0 FROM released"
            " WHERE NOT EXISTS (SELECT 1 FROM reached WHERE reached.key = released.key)",
            (_KEPT_AS.index(Kept.RELEASED),),
        )

    def add_taken(self, files: Iterable[tuple[ReleasedFile, StoredFile]]) -> None:
        """Adds released files that are to be removed, as storage has them, in the order of their removal."""
        self._insert(
            "INSERT INTO taken VALUES (?, ?, ?, ?, ?)",
            (
                (
                    REMOVAL_ORDER.index(file.kind),
                    _bytes(stored.path),
                    stored.size_bytes,
                    stored.modified_ms,
                    file.snapshot_id,
                )
                for file, stored in files
            ),
        )

    def taken(self) -> Iterator[tuple[Orphan, ReleasedKind, int]]:
        """Yields the files to remove in order, each with its kind and the removed snapshot."""
        rows = self._db.execute("SELECT path, size, ms, kind, snapshot FROM taken ORDER BY rowid")
        for path, size_bytes, modified_ms, kind, snapshot_id in rows:
            yield Orphan(_text(path), size_bytes, modified_ms), REMOVAL_ORDER[kind], snapshot_id

    def index(self) -> None:
        """Builds the indexes for lookups by key."""
        for table in ("listed", "reached"):
            self._db.execute(f"CREATE INDEX IF NOT EXISTS {table}_key ON {table} (key)")

    def forget_listed(self, paths: Iterable[str]) -> None:
        """Removes listed files that are not at their places any more. `index` must have been called."""
        keys = ((_hashed(self._place(path)[1]),) for path in paths)
        self._insert("DELETE FROM listed WHERE key = ?", keys)

    def orphans(self) -> Iterator[Orphan]:
        """Yields listed files that have no reason to stay and that nothing references, ordered by path."""
        rows = self._db.execute(
            f"SELECT path, size, ms FROM listed WHERE kept IS NULL AND NOT {_REACHED}"
            f" AND NOT {_NAMED_ELSEWHERE} ORDER BY path"
        )
        for path, size_bytes, modified_ms in rows:
            yield Orphan(_text(path), size_bytes, modified_ms)

    def reaches(self, path: str) -> bool:
        """Returns whether anything references a file with this path."""
        key = _hashed(self._place(path)[1])
        return self._db.execute("SELECT 1 FROM reached WHERE key = ?", (key,)).fetchone() is not None

    def without_references(self, files: Sequence[ReleasedFile]) -> list[ReleasedFile]:
        """Returns the files whose paths nothing references, and whose names no referenced file outside the prefixes
        has."""
        places = [(_hashed(key), _hashed(_name(key))) for _, key, _ in (self._place(f.path) for f in files)]
        reached = self._among("SELECT key FROM reached WHERE key IN", {key for key, _ in places})
        elsewhere = self._among("SELECT name FROM elsewhere WHERE name IN", {name for _, name in places})
        return [
            file
            for file, (key, name) in zip(files, places, strict=True)
            if key not in reached and name not in elsewhere
        ]

    def _among(self, query: str, hashes: set[bytes]) -> set[bytes]:
        rest = iter(hashes)
        rows: set[bytes] = set()
        while chunk := list(islice(rest, _PARAMETERS)):
            placeholders = ",".join("?" * len(chunk))
            rows.update(row for (row,) in self._db.execute(f"{query} ({placeholders})", chunk))
        return rows

    def counts(self) -> ScanCounts:
        """Returns the numbers of files and bytes by their classification."""
        totals = {
            what: (files, size_bytes)
            for what, files, size_bytes in self._db.execute(
                f"SELECT CASE WHEN kept IS NOT NULL THEN kept WHEN {_REACHED} THEN {_RANK}"
                f" WHEN {_NAMED_ELSEWHERE} THEN ? ELSE ? END AS what, count(*), sum(size)"
                " FROM listed GROUP BY what",
                (Kept.NAMED_ELSEWHERE, _ORPHAN),
            )
        }
        orphan_files, orphan_bytes = totals.get(_ORPHAN, (0, 0))
        return ScanCounts(
            listed_files=sum(files for files, _ in totals.values()),
            listed_bytes=sum(size_bytes for _, size_bytes in totals.values()),
            kept={
                _KEPT_AS[what] if isinstance(what, int) else Kept(what): files
                for what, (files, _) in totals.items()
                if what != _ORPHAN
            },
            orphan_files=orphan_files,
            orphan_bytes=orphan_bytes,
        )

    def listed_metadata_files(self) -> Iterator[StoredFile]:
        """Yields listed table metadata files, by their name, that the table's own metadata do not
        reference; newest first."""
        rows = self._db.execute(
            "SELECT path, size, ms FROM listed WHERE kept IN (?, ?) AND (CAST(path AS TEXT) GLOB '*.metadata.json'"
            f" OR CAST(path AS TEXT) GLOB '*.metadata.json.gz') AND NOT {_REACHED}"
            " ORDER BY ms DESC",
            (Kept.METADATA_FILE, Kept.HIDDEN),
        )
        return (StoredFile(_text(path), size_bytes, modified_ms) for path, size_bytes, modified_ms in rows)

    def listed_flink_manifests(self) -> Iterator[StoredFile]:
        """Yields listed files that stay as manifests of Flink jobs."""
        rows = self._db.execute("SELECT path, size, ms FROM listed WHERE kept = ?", (Kept.FLINK_MANIFEST,))
        return (StoredFile(_text(path), size_bytes, modified_ms) for path, size_bytes, modified_ms in rows)

    def add_manifest(self, file: StoredFile) -> bool:
        """Notes a pending manifest; returns False if it was noted before."""
        text = f"{file.size_bytes} {file.modified_ms} {file.path}"
        row = (_hashed(text.encode("utf-8", "surrogateescape")),)
        return self._db.execute("INSERT OR IGNORE INTO manifests VALUES (?)", row).rowcount == 1

    def other_store(self) -> tuple[str, str] | None:
        """Returns a listed path and its spelling in the metadata, if it is referenced only under another
        scheme or authority."""
        row = self._db.execute(
            "SELECT listed.path, reached.path FROM listed JOIN reached USING (key)"
            " WHERE listed.store != reached.store AND NOT EXISTS (SELECT 1 FROM reached AS own"
            " WHERE own.key = listed.key AND own.store = listed.store) LIMIT 1"
        ).fetchone()
        return None if row is None else (_text(row[0]), _text(row[1]))

    def unlisted(self) -> Iterator[str]:
        """Yields paths below the prefixes that the metadata reference and that the listing lacks under
        every spelling."""
        rows = self._db.execute(
            "SELECT DISTINCT path FROM reached WHERE why = 0 AND below"
            " AND NOT EXISTS (SELECT 1 FROM listed WHERE listed.key = reached.key)"
        )
        return (_text(path) for (path,) in rows)

    def _place(self, path: str) -> tuple[str, bytes, bool]:
        """Returns the store and the key of a path, and whether it is below a prefix. A folder is parsed once for
        files that follow one another."""
        folder, _, name = path.rpartition("/")
        if folder != self._folder[0]:
            self._folder = folder, self._parsed(folder)
        parsed = self._folder[1]
        if parsed is None or name in ("", ".", "..") or "%" in name or not name.isascii():
            location = parse_location(path, self._same)
            return location.store, location.key, self._is_below(location.store, location.key)
        store, start, below = parsed
        return store, start + name.lower().encode(), below

    def _parsed(self, folder: str) -> tuple[str, bytes, bool] | None:
        """Returns the store of a folder, the start of the keys of its files, and whether these are below a prefix.
        None if the text may have another meaning with a name after it."""
        if folder.endswith("/"):  # `s3:/` of `s3://bucket`
            return None
        try:
            location = parse_location(folder, self._same)
        except ValueError:
            return None
        start = location.key.rstrip(b"/") + b"/"
        return location.store, start, self._is_below(location.store, start)

    def _is_below(self, store: str, key: bytes) -> bool:
        return any(
            key.startswith(below) and store.casefold() == prefix_store for prefix_store, below in self._below
        )

    def _insert(self, statement: str, rows: Iterable[tuple[object, ...]]) -> None:
        rows = iter(rows)
        while chunk := list(islice(rows, _ROWS)):
            self._db.executemany(statement, chunk)


def _hashed(key: bytes) -> bytes:
    return blake2b(key, digest_size=16).digest()


def _name(key: bytes) -> bytes:
    return key.rpartition(b"/")[2]


def _bytes(path: str) -> bytes:
    # File names need not be Unicode; SQLite's text must be.
    return path.encode("utf-8", "surrogateescape")


def _text(path: bytes) -> str:
    return path.decode("utf-8", "surrogateescape")
