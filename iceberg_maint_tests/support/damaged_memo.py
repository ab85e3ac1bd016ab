"""A memo of manifests that keeps manifests of every size, and is damaged on purpose between runs."""

from __future__ import annotations

import random
import sqlite3
from collections.abc import Callable
from contextlib import closing, suppress
from pathlib import Path

from iceberg_maint.catalog.manifests import memo


def keep_all_manifests() -> None:
    """Makes every memo of this process keep manifests of one file and more: tables of tests have no large ones."""
    memo.ManifestMemo.__init__.__defaults__ = (memo.MAX_BYTES, 1)


def damage(path: Path, rng: random.Random) -> str:
    """Damages the memo in one way. Returns the way; "" without entries to damage, or if another process holds the file."""
    way = rng.choice(sorted(_WAYS))
    with suppress(sqlite3.Error, OSError, UnicodeDecodeError):
        if entries(path):
            _WAYS[way](path, rng)
            return way
    return ""


def entries(path: Path) -> int:
    """The entries that the memo holds, 0 without a readable memo."""
    if not path.exists():
        return 0
    try:
        with closing(sqlite3.connect(path, timeout=5)) as connection:
            return int(connection.execute("select count(*) from entry").fetchone()[0])
    except (sqlite3.Error, UnicodeDecodeError):
        return 0


def _truncated_file(path: Path, rng: random.Random) -> None:
    with path.open("r+b") as file:
        file.truncate(rng.randrange(path.stat().st_size))


def _changed_file(path: Path, rng: random.Random) -> None:
    with path.open("r+b") as file:
        for _ in range(64):
            file.seek(rng.randrange(path.stat().st_size))
            file.write(rng.randbytes(1))


def _truncated_bodies(path: Path, _rng: random.Random) -> None:
    _execute(
        path, "update entry set body = substr(body, 1, length(body) / 2), partitions = substr(partitions, 2)"
    )


def _changed_bodies(path: Path, rng: random.Random) -> None:
    with closing(sqlite3.connect(path, timeout=5)) as connection, connection:
        for name, body, partitions in connection.execute(
            "select path, body, partitions from entry"
        ).fetchall():
            # Damage of before may have left no bytes.
            changed = [_with_another_byte(one, rng) if one else one for one in (body, partitions)]
            connection.execute("update entry set body = ?, partitions = ? where path = ?", [*changed, name])


def _with_another_byte(content: object, rng: random.Random) -> object:
    if not isinstance(content, bytes):
        return content
    place = rng.randrange(len(content))
    return content[:place] + bytes([content[place] ^ rng.randint(1, 255)]) + content[place + 1 :]


def _other_version(path: Path, _rng: random.Random) -> None:
    _execute(path, "update entry set wanted = 'v0 ' || wanted, identity = 'v0 ' || identity")


def _entries_of_others(path: Path, _rng: random.Random) -> None:
    """Each entry gets content and checksums of the next, under its own path and identity."""
    columns = "checksum, partitions, partitions_checksum, body"
    with closing(sqlite3.connect(path, timeout=5)) as connection, connection:
        rows = connection.execute(f"select path, {columns} from entry order by path").fetchall()
        for row, other in zip(rows, [*rows[1:], rows[0]], strict=True):
            connection.execute(
                "update entry set checksum = ?, partitions = ?, partitions_checksum = ?, body = ? where path = ?",
                [*other[1:], row[0]],
            )


def _missing_rows(path: Path, _rng: random.Random) -> None:
    _execute(path, "delete from entry where rowid % 2 = 0")


def _execute(path: Path, statement: str) -> None:
    with closing(sqlite3.connect(path, timeout=5)) as connection, connection:
        connection.execute(statement)


_WAYS: dict[str, Callable[[Path, random.Random], None]] = {
    "truncated file": _truncated_file,
    "changed file": _changed_file,
    "truncated bodies": _truncated_bodies,
    "changed bodies": _changed_bodies,
    "other version": _other_version,
    "entries of others": _entries_of_others,
    "missing rows": _missing_rows,
}
WAYS = tuple(sorted(_WAYS))
