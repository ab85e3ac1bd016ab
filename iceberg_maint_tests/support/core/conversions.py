"""Conversions of the table in memory: their marks, their intent, and the rules they break."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from iceberg_maint.core.commits.change import Rule
from iceberg_maint.core.commits.intent import Intent
from iceberg_maint.core.model.table_state import FileKind
from iceberg_maint_tests.support.core.memory_table import (
    P1,
    Q1,
    File,
    Lake,
    Place,
    change_of,
    conversion_on,
    rules,
    table_of,
)

EQUALITY, POSITIONS, VECTOR = FileKind.EQUALITY_DELETES, FileKind.POSITION_DELETES, FileKind.DELETION_VECTOR


def mark(path: str, place: Place, seq: int, *positions: int, vector: bool = False, name: str = "") -> File:
    """A delete file of positions of one data file; a vector's offset is its sequence number."""
    return File(
        name or f"{'v' if vector else 'p'}{seq}-{path}",
        place,
        seq,
        VECTOR if vector else POSITIONS,
        positions=frozenset((path, p) for p in positions or (0,)),
        referenced=path,
        offset=seq if vector else None,
    )


def converted(
    pinned: Lake,
    base: Lake,
    *marks: File,
    drop: Iterable[str] = (),
    examined: Iterable[str] | None = None,
    version: int = 2,
    without: Iterable[str] = (),
    taken: Mapping[str, tuple[str, ...]] | None = None,
) -> tuple[Intent, Lake]:
    """A conversion planned at `pinned` (of all its data files by default) and committed on `base`. `taken` are the older
    delete files that the marks of a data file replace."""
    files = [f for f in pinned.data if examined is None or f.path in examined]
    intended = conversion_on(pinned, files, marks, drop, version, taken)
    return intended, base.commit(*marks, operation="delete", without={*drop, *without})


def broken(pinned: Lake, base: Lake, intended: Intent, new: Lake) -> set[Rule]:
    return rules(intended, change_of(pinned, base, new, intent=intended))


def deleted() -> Lake:
    """Files f1 and f2 of partition a, f3 of b, and an equality delete of rows 1 and 3 for each."""
    keys = frozenset({1, 3})
    lake = table_of(P1, P1, Q1)
    return lake.commit(
        File("ea", P1, 4, EQUALITY, keys=keys), File("eb", Q1, 4, EQUALITY, keys=keys), operation="delete"
    )
