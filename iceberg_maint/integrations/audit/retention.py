"""Retention: which entries of a chain are old enough to be removed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from iceberg_maint.integrations.audit.chain import Entry, entry_file_name, is_anchor, parse
from iceberg_maint.integrations.audit.folder import Folder

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
