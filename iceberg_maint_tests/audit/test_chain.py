"""A chain of entries: every removed, changed, moved and replaced entry is named."""

from __future__ import annotations

import hashlib
import json
from dataclasses import replace
from typing import Any

import pytest

from iceberg_maint.integrations.audit.chain import (
    Entry,
    FaultKind,
    Kind,
    Verdict,
    entry_file_name,
    intent_subject,
    next_entry,
    parse,
    verify,
)

COUNT = 200


def entries_of(count: int) -> list[Entry]:
    entries: list[Entry] = []
    for n in range(count):
        body = {"run_id": f"run{n}", "operation": "rewrite_data_files", "number": n}
        entries.append(next_entry(entries[-1] if entries else None, Kind.RECORD, f"r{n}", 1000 + n, body))
    return entries


ENTRIES = entries_of(COUNT)
FILES = {entry_file_name(e.sequence): e.to_bytes() for e in ENTRIES}


def faults(files: dict[str, bytes]) -> list[tuple[FaultKind, str]]:
    return [(f.kind, f.name) for f in verify(sorted(files.items())).faults]


def test_whole_chain_has_no_fault() -> None:
    verdict = verify(sorted(FILES.items()))
    assert verdict == Verdict(tuple(ENTRIES), (), ())
    assert parse(FILES[entry_file_name(77)]) == ENTRIES[76]


@pytest.mark.parametrize("sequence", [1, 100, COUNT - 1])
def test_removed_entry_is_named(sequence: int) -> None:
    files = {n: d for n, d in FILES.items() if n != entry_file_name(sequence)}
    assert faults(files) == [(FaultKind.MISSING, entry_file_name(sequence))]


@pytest.mark.parametrize(
    "change",
    [
        {"body": []},
        {"kind": "record", "body": {"operation": "expire_snapshots"}},
        {"kind": "record", "body": {"run_id": 7, "operation": "expire_snapshots"}},
        {"sequence": None},
        {"sequence": "2"},
        {"sequence": -2},
        {"subject": {}},
        {"at_ms": "today"},
        {"previous": None},
    ],
    ids=str,
)
def test_entry_with_a_field_of_another_type_and_a_new_hash_is_named(change: dict[str, Any]) -> None:
    """A person who edits an entry can also compute its hash."""
    document = json.loads(FILES[entry_file_name(2)]) | change
    del document["hash"]

    def canonical() -> str:
        return json.dumps(document, sort_keys=True, separators=(",", ":"))

    document["hash"] = hashlib.sha256(canonical().encode()).hexdigest()
    files = FILES | {entry_file_name(2): f"{canonical()}\n".encode()}
    assert faults(files) == [(FaultKind.CHANGED, entry_file_name(2))]


def test_removed_range_is_named_with_its_ends() -> None:
    files = {n: d for n, d in FILES.items() if not entry_file_name(10) <= n <= entry_file_name(19)}
    (fault,) = verify(sorted(files.items())).faults
    assert (fault.name, fault.detail) == (
        f"{entry_file_name(10)} to {entry_file_name(19)}",
        "10 entries are gone",
    )


@pytest.mark.parametrize("sequence", [1, 100, COUNT])
def test_edited_entry_is_named(sequence: int) -> None:
    name = entry_file_name(sequence)
    files = FILES | {name: FILES[name].replace(b'"number":', b'"numbers":')}
    assert faults(files) == [(FaultKind.CHANGED, name)]


@pytest.mark.parametrize("sequence", [1, 100, COUNT - 1])
def test_entry_that_was_edited_with_a_new_hash_is_named_by_the_next_one(sequence: int) -> None:
    old = ENTRIES[sequence - 1]
    last = ENTRIES[sequence - 2] if sequence > 1 else None
    forged = next_entry(last, old.kind, old.subject, old.at_ms, {**old.body, "number": -1})
    assert faults(FILES | {entry_file_name(sequence): forged.to_bytes()}) == [
        (FaultKind.REPLACED, entry_file_name(sequence))
    ]


def test_swapped_entries_are_both_named() -> None:
    first, second = entry_file_name(40), entry_file_name(50)
    files = FILES | {first: FILES[second], second: FILES[first]}
    assert faults(files) == [(FaultKind.MOVED, first), (FaultKind.MOVED, second)]


@pytest.mark.parametrize(
    "data", [b"", b"{", b"[]", b"null", b'{"format":1}', b"[" * 100_000, b"\xff", b'{"format":1,"body":NaN}']
)
def test_entry_that_is_no_entry_is_a_fault_and_no_error(data: bytes) -> None:
    assert faults(FILES | {entry_file_name(7): data}) == [(FaultKind.CHANGED, entry_file_name(7))]


def test_second_key_in_an_entry_is_a_change() -> None:
    name = entry_file_name(7)
    files = FILES | {name: FILES[name].replace(b'{"at_ms":', b'{"at_ms":1,"at_ms":', 1)}
    assert faults(files) == [(FaultKind.CHANGED, name)]


def test_every_byte_counts() -> None:
    data = ENTRIES[0].to_bytes()
    for n in range(len(data)):
        changed = data[:n] + bytes([data[n] ^ 1]) + data[n + 1 :]
        with pytest.raises((ValueError, RecursionError)):
            parse(changed)


def test_first_entry_that_follows_another_one_is_a_fault() -> None:
    forged = replace(ENTRIES[0], previous="1" * 64)
    entry = next_entry(replace(forged, sequence=0), Kind.RECORD, "r0", 1000, ENTRIES[0].body)
    assert faults({entry_file_name(1): entry.to_bytes()}) == [(FaultKind.CHANGED, entry_file_name(1))]


def test_intent_is_open_until_a_record_of_its_run_or_its_end_follows() -> None:
    run = {"run_id": "a", "operation": "rewrite_data_files"}
    subject = intent_subject("a", "rewrite_data_files")
    intent = next_entry(None, Kind.INTENT, subject, 1, run)
    record = next_entry(intent, Kind.RECORD, "r", 2, run)
    ended = next_entry(intent, Kind.ABANDONED, subject, 2, {})

    def still_open(*entries: Entry) -> list[str]:
        verdict = verify([(entry_file_name(e.sequence), e.to_bytes()) for e in entries])
        assert verdict.faults == ()
        return [e.subject for e in verdict.open_intents]

    assert still_open(intent) == [subject]
    assert still_open(intent, record) == []
    assert still_open(intent, ended) == []


def test_stored_form_is_one_line_of_canonical_json() -> None:
    text = ENTRIES[0].to_bytes()
    assert text.count(b"\n") == 1
    assert list(json.loads(text)) == sorted(json.loads(text))
