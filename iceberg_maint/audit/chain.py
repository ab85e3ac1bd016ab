"""The chain: entries that contain the hash of the entry before them, and the faults of a chain."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

FORMAT = 1
FIRST_PREVIOUS = "0" * 64
"""The `previous` of the first entry."""


class Kind(StrEnum):
    """The kinds of entries. An intent is written before the work; a record after it. `abandoned` ends an intent
    whose run did nothing that the ledger knows of."""

    INTENT = "intent"
    RECORD = "record"
    ABANDONED = "abandoned"


@dataclass(frozen=True, slots=True)
class Entry:
    """One entry. `subject` identifies what it is about: a record's id; of an intent its run and operation.
    `hash` is the SHA-256 of all the rest."""

    sequence: int
    previous: str
    kind: Kind
    subject: str
    at_ms: int
    body: Mapping[str, Any]
    hash: str

    def text(self) -> bytes:
        """The stored form: canonical JSON, one line."""
        return f"{_canonical({**self._content(), 'hash': self.hash})}\n".encode()

    def _content(self) -> dict[str, Any]:
        return _content(self.sequence, self.previous, self.kind, self.subject, self.at_ms, self.body)


def next_entry(last: Entry | None, kind: Kind, subject: str, at_ms: int, body: Mapping[str, Any]) -> Entry:
    """Returns the entry that follows `last`; without one the first entry."""
    sequence = 1 if last is None else last.sequence + 1
    previous = FIRST_PREVIOUS if last is None else last.hash
    content = _content(sequence, previous, kind, subject, at_ms, body)
    return Entry(sequence, previous, kind, subject, at_ms, body, _digest(content))


def parse(data: bytes) -> Entry:
    """Reads an entry. Raises ValueError if it is not what `Entry.text` wrote: any byte was changed."""
    document = json.loads(data)
    if not isinstance(document, dict) or document.get("format") != FORMAT:
        raise ValueError("it is not an entry of this format")
    try:
        entry = Entry(
            sequence=document["sequence"],
            previous=document["previous"],
            kind=Kind(document["kind"]),
            subject=document["subject"],
            at_ms=document["at_ms"],
            body=document["body"],
            hash=document["hash"],
        )
    except KeyError as why:
        raise ValueError(f"it has no {why}") from why
    if _digest(entry._content()) != entry.hash or entry.text() != data:  # noqa: SLF001 - the same module
        raise ValueError("its hash is not that of its content")
    return entry


class FaultKind(StrEnum):
    """What is wrong with a log. `missing`: an entry is gone. `changed`: its content is not what was written.
    `moved`: it stands at another place. `replaced`: the next entry followed another one. `cut`: the ledger has
    work that the log lacks. `differs`: the ledger has another record with the same id."""

    MISSING = "missing"
    CHANGED = "changed"
    MOVED = "moved"
    REPLACED = "replaced"
    CUT = "cut"
    DIFFERS = "differs"


@dataclass(frozen=True, slots=True)
class Fault:
    """One fault. `name` is the entry's file, or the id of the ledger's record."""

    kind: FaultKind
    name: str
    detail: str


@dataclass(frozen=True, slots=True)
class Verdict:
    """The result of reading a chain: its valid entries, its faults, and the intents that nothing has ended."""

    entries: tuple[Entry, ...]
    faults: tuple[Fault, ...]
    open_intents: tuple[Entry, ...]


def name_of(sequence: int) -> str:
    """The file name of an entry."""
    return f"{sequence:012d}.json"


def verify(files: Iterable[tuple[str, bytes]]) -> Verdict:
    """Checks a whole chain. `files` are its names and contents, in the order of the names."""
    entries: list[Entry] = []
    faults: list[Fault] = []
    previous: Entry | None = None
    expected = 1
    for name, data in files:
        sequence = int(name.partition(".")[0])
        if sequence > expected:
            faults.append(_gap(expected, sequence))
            previous = None
        try:
            entry = parse(data)
        except (ValueError, RecursionError) as why:
            text = "it is no JSON" if isinstance(why, json.JSONDecodeError) else str(why)
            faults.append(Fault(FaultKind.CHANGED, name, f"the entry was changed: {text}"))
            previous, expected = None, sequence + 1
            continue
        if entry.sequence != sequence:
            faults.append(Fault(FaultKind.MOVED, name, f"it is the entry {name_of(entry.sequence)}"))
            previous, expected = None, sequence + 1
            continue
        faults += _link_faults(previous, entry, expected)
        entries.append(entry)
        previous, expected = entry, sequence + 1
    return Verdict(tuple(entries), tuple(faults), tuple(open_intents(entries)))


def _link_faults(previous: Entry | None, entry: Entry, expected: int) -> Iterator[Fault]:
    if entry.sequence == 1 and entry.previous != FIRST_PREVIOUS:
        yield Fault(FaultKind.CHANGED, name_of(1), "the first entry follows another one")
    if previous is not None and entry.sequence == expected and entry.previous != previous.hash:
        yield Fault(
            FaultKind.REPLACED,
            name_of(previous.sequence),
            f"the entry {name_of(entry.sequence)} followed another one with the hash {entry.previous[:12]}",
        )


def _gap(first: int, sequence: int) -> Fault:
    last = sequence - 1
    names = name_of(first) if first == last else f"{name_of(first)} to {name_of(last)}"
    count = sequence - first
    return Fault(FaultKind.MISSING, names, f"{count} {'entry is' if count == 1 else 'entries are'} gone")


def open_intents(entries: Iterable[Entry]) -> list[Entry]:
    """The intents that neither a record of their run and operation nor an end follows."""
    intents: dict[str, Entry] = {}
    for entry in entries:
        match entry.kind:
            case Kind.INTENT:
                intents[entry.subject] = entry
            case Kind.ABANDONED:
                intents.pop(entry.subject, None)
            case Kind.RECORD:
                intents.pop(intent_subject(entry.body["run_id"], entry.body["operation"]), None)
    return list(intents.values())


def intent_subject(run_id: str, operation: str) -> str:
    """What an intent is about."""
    return f"{run_id}/{operation}"


def _content(
    sequence: int, previous: str, kind: Kind, subject: str, at_ms: int, body: Mapping[str, Any]
) -> dict[str, Any]:
    return {
        "format": FORMAT,
        "sequence": sequence,
        "previous": previous,
        "kind": kind.value,
        "subject": subject,
        "at_ms": at_ms,
        "body": body,
    }


def _canonical(document: Mapping[str, Any]) -> str:
    return json.dumps(document, sort_keys=True, separators=(",", ":"), allow_nan=False)


def _digest(content: Mapping[str, Any]) -> str:
    return hashlib.sha256(_canonical(content).encode()).hexdigest()
