"""The chain of the audit log. Each entry contains the hash of the entry before it. `verify` finds the faults."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

FORMAT = 1
FIRST_PREVIOUS = "0" * 64
"""The first entry has no entry before it. Its field `previous` has this value."""


class Kind(StrEnum):
    """The kinds of entries. The log gets an intent before the work and a record after it. `abandoned` ends an
    intent whose run has no record in the ledger. `pruned` names the first entry that retention keeps."""

    INTENT = "intent"
    RECORD = "record"
    ABANDONED = "abandoned"
    PRUNED = "pruned"


@dataclass(frozen=True, slots=True)
class Entry:
    """One entry. The `subject` of a record is the record's id. The `subject` of an intent names its run and operation.
    An abandoned entry has the subject of its intent. `hash` is the SHA-256 of all other fields."""

    sequence: int
    previous: str
    kind: Kind
    subject: str
    at_ms: int
    body: Mapping[str, Any]
    hash: str

    def to_bytes(self) -> bytes:
        """The content of the entry's file: one line of canonical JSON."""
        return f"{_canonical({**self._content(), 'hash': self.hash})}\n".encode()

    def _content(self) -> dict[str, Any]:
        return _content(self.sequence, self.previous, self.kind, self.subject, self.at_ms, self.body)


def next_entry(last: Entry | None, kind: Kind, subject: str, at_ms: int, body: Mapping[str, Any]) -> Entry:
    """Returns the entry that follows `last`. If `last` is None, returns the first entry."""
    sequence = 1 if last is None else last.sequence + 1
    previous = FIRST_PREVIOUS if last is None else last.hash
    content = _content(sequence, previous, kind, subject, at_ms, body)
    return Entry(sequence, previous, kind, subject, at_ms, body, _digest(content))


def parse(data: bytes) -> Entry:
    """Parses the content of an entry's file. Raises ValueError if a byte differs from what `Entry.to_bytes` returned, or
    a field has another type than the log writes."""
    document = json.loads(data)
    if not isinstance(document, dict) or document.get("format") != FORMAT:
        raise ValueError(f"its format is not {FORMAT}")
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
        raise ValueError(f"it has no field {why}") from why
    if wrong := _field_of_another_type(entry):
        raise ValueError(f"its field {wrong} has another type")
    if _digest(entry._content()) != entry.hash or entry.to_bytes() != data:  # noqa: SLF001 - the same module
        raise ValueError("its hash is not the hash of its content")
    return entry


def _field_of_another_type(entry: Entry) -> str:
    """The name of a field whose type is not that of an entry, "" if there is none. A person who edits an entry can also
    compute its hash."""
    for name in ("sequence", "at_ms"):
        value = getattr(entry, name)
        if type(value) is not int or value < 0:
            return name
    for name in ("previous", "subject", "hash"):
        if not isinstance(getattr(entry, name), str):
            return name
    if not isinstance(entry.body, dict):
        return "body"
    texts = ("run_id", "operation") if entry.kind is Kind.RECORD else ()
    return next((f"body.{name}" for name in texts if not isinstance(entry.body.get(name), str)), "")


class FaultKind(StrEnum):
    """The kinds of faults.

    - `missing`: the file of an entry does not exist.
    - `changed`: the content of a file is not the content that the log wrote.
    - `moved`: a file has the content of an entry with another number.
    - `replaced`: the next entry contains the hash of another entry than this one.
    - `cut`: the ledger has work that the log does not have.
    - `differs`: the ledger and the log have different records with the same id.
    """

    MISSING = "missing"
    CHANGED = "changed"
    MOVED = "moved"
    REPLACED = "replaced"
    CUT = "cut"
    DIFFERS = "differs"


@dataclass(frozen=True, slots=True)
class Fault:
    """One fault. `name` is the file name of the entry, or the id of the ledger's record."""

    kind: FaultKind
    name: str
    detail: str


@dataclass(frozen=True, slots=True)
class Verdict:
    """The result of `verify`: the valid entries, the faults, the intents that no later entry ends, and the number of
    entries that retention removed."""

    entries: tuple[Entry, ...]
    faults: tuple[Fault, ...]
    open_intents: tuple[Entry, ...]
    pruned: int = 0

    def newest(self, field: str) -> str | None:
        """The newest value of a field of the entries' bodies."""
        return next((e.body[field] for e in reversed(self.entries) if field in e.body), None)


def entry_file_name(sequence: int) -> str:
    """The file name of an entry."""
    return f"{sequence:012d}.json"


def first_without_gap(names: Sequence[str]) -> str | None:
    """The first of the names, in order, after which none is missing. A removal that ended early may leave gaps
    before it."""
    first = None
    following = None
    for name in reversed(names):
        sequence = int(name.partition(".")[0])
        if following is not None and sequence != following - 1:
            break
        first, following = name, sequence
    return first


def verify(files: Iterable[tuple[str, bytes]]) -> Verdict:
    """Checks a whole chain. `files` are pairs of file name and content, in the order of the names.

    The newest `pruned` entry says which entry is the first one that is kept, and the hash of the one before it.
    Earlier entries may be gone.
    """
    entries: list[Entry] = []
    faults: list[Fault] = []
    gaps: dict[int, tuple[int, int]] = {}
    previous: Entry | None = None
    expected = 1
    for name, data in files:
        sequence = int(name.partition(".")[0])
        if sequence > expected:
            gaps[len(faults)] = (expected, sequence)
            faults.append(_gap(expected, sequence))
            previous = None
        try:
            entry = parse(data)
        except (ValueError, RecursionError) as why:
            text = "it is not valid JSON" if isinstance(why, json.JSONDecodeError) else str(why)
            faults.append(Fault(FaultKind.CHANGED, name, f"the entry was changed: {text}"))
            previous, expected = None, sequence + 1
            continue
        if entry.sequence != sequence:
            faults.append(
                Fault(FaultKind.MOVED, name, f"its content is the entry {entry_file_name(entry.sequence)}")
            )
            previous, expected = None, sequence + 1
            continue
        faults += _link_faults(previous, entry, expected)
        entries.append(entry)
        previous, expected = entry, sequence + 1
    pruned = next((e for e in reversed(entries) if is_anchor(e)), None)
    first_kept = 1 if pruned is None else pruned.body["first_kept"]
    for place, (first, end) in reversed(gaps.items()):
        faults[place : place + 1] = [_gap(max(first, first_kept), end)] if end > first_kept else []
    faults += _anchor_faults(entries, pruned)
    return Verdict(tuple(entries), tuple(faults), tuple(open_intents(entries)), first_kept - 1)


def is_anchor(entry: Entry) -> bool:
    """Whether the entry says which entry retention keeps as the first. One that names itself or a later entry does
    not: it was not written by retention."""
    first_kept = entry.body.get("first_kept")
    return entry.kind is Kind.PRUNED and type(first_kept) is int and 1 < first_kept < entry.sequence


def _anchor_faults(entries: Iterable[Entry], pruned: Entry | None) -> Iterator[Fault]:
    if pruned is None:
        return
    for entry in entries:
        if entry.sequence == pruned.body["first_kept"] and entry.previous != pruned.body.get("previous"):
            yield Fault(
                FaultKind.REPLACED,
                entry_file_name(entry.sequence),
                f"it is the first entry that retention kept, and {entry_file_name(pruned.sequence)} names another "
                "hash for the entry before it",
            )


def _link_faults(previous: Entry | None, entry: Entry, expected: int) -> Iterator[Fault]:
    if entry.sequence == 1 and entry.previous != FIRST_PREVIOUS:
        yield Fault(
            FaultKind.CHANGED, entry_file_name(1), "the first entry contains the hash of an earlier entry"
        )
    if previous is not None and entry.sequence == expected and entry.previous != previous.hash:
        yield Fault(
            FaultKind.REPLACED,
            entry_file_name(previous.sequence),
            f"the next entry, {entry_file_name(entry.sequence)}, names another hash for it: {entry.previous[:12]}",
        )


def _gap(first: int, sequence: int) -> Fault:
    last = sequence - 1
    names = (
        entry_file_name(first) if first == last else f"{entry_file_name(first)} to {entry_file_name(last)}"
    )
    count = sequence - first
    return Fault(FaultKind.MISSING, names, f"{count} {'entry is' if count == 1 else 'entries are'} gone")


def open_intents(entries: Iterable[Entry]) -> list[Entry]:
    """The intents that no later entry ends. A record of the same run and operation ends an intent, and so does an
    abandoned entry."""
    intents: dict[str, Entry] = {}
    for entry in entries:
        match entry.kind:
            case Kind.INTENT:
                intents[entry.subject] = entry
            case Kind.ABANDONED:
                intents.pop(entry.subject, None)
            case Kind.RECORD:
                intents.pop(intent_subject(entry.body["run_id"], entry.body["operation"]), None)
            case Kind.PRUNED:
                pass
    return list(intents.values())


def intent_subject(run_id: str, operation: str) -> str:
    """The `subject` of an intent and of the abandoned entry that ends it."""
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
