"""The log: appends intents and records to the chain of each table, and catches up after a crash.

The ledger is written first. A record that the log lacks is therefore known, and the next run appends it. Its id
is in the log once.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from iceberg_maint.core.model.codec import from_data, to_data
from iceberg_maint.core.outcomes.record import Record
from iceberg_maint.errors import IcebergMaintError, RefusedError
from iceberg_maint.integrations.audit.chain import (
    Entry,
    Kind,
    Verdict,
    entry_file_name,
    first_without_gap,
    intent_subject,
    next_entry,
    open_intents,
    parse,
    verify,
)
from iceberg_maint.integrations.audit.folder import DAY_MS, Folder, Removal, removal
from iceberg_maint.ports.ledger import Ledger
from iceberg_maint.ports.observers import Intent
from iceberg_maint.report.formatting import counted

_log = logging.getLogger(__name__)

TAIL_RECORDS = 20
"""How many records at the end of a log are read to know which ones it has. Records of other processes that were
appended to the ledger at the same time are among them."""
_CLOCK_MARGIN_MS = 300_000
"""Clocks of machines may differ by this much before the program refuses to remove anything."""
_PAGE_RECORDS = 50
_TRIES = 3


@dataclass(slots=True)
class _Tail:
    """The end of a log: its last entry, the records that were read, and whether those are all that it has. `since_ms`
    is the time of the first entry of a log that was pruned; None for a log from its beginning."""

    last: Entry | None = None
    record_ids: set[str] = field(default_factory=set)
    is_whole: bool = True
    since_ms: int | None = None
    open_intents: list[Entry] = field(default_factory=list)


class AuditLog:
    """The audit log of all tables. `folder_of` gives the folder of a table by its UUID, `chains` the names of the folders."""

    def __init__(
        self,
        folder_of: Callable[[str], Folder],
        ledger: Ledger,
        chains: Callable[[], list[str]] = list,
        *,
        required: bool = False,
        keep_days: int | None = None,
        masked: Callable[[str], str] = str,
    ) -> None:
        self._keep_days = keep_days
        self.prunes = keep_days is not None
        self._pruned: set[str] = set()
        self._folder_of = folder_of
        self._ledger = ledger
        self.chains = chains
        self._required = required
        self._masked = masked
        self._tails: dict[str, _Tail] = {}

    def begin(self, intent: Intent) -> None:
        """Catches up, ends the intents of dead runs, then appends the intent."""
        try:
            for attempt in range(_TRIES):
                try:
                    self._begin(intent)
                    return
                except FileExistsError:
                    # A run that died since the log was read had appended. Its entries are read before the next try.
                    if attempt == _TRIES - 1:
                        raise
        except Exception as why:
            error = self._unwritten(intent.table, why)
            if self._required:
                raise RefusedError("ICM-144", error.message, error.fix) from why
            _log.warning("%s", error)

    def _begin(self, intent: Intent) -> None:
        subject = intent_subject(intent.run_id, intent.operation.value)
        tail = self._caught_up(intent.table, intent.table_uuid)
        for stale in tuple(tail.open_intents):
            if stale.subject != subject:
                body = {"reason": "the run ended without a record and changed nothing"}
                self._append(intent.table_uuid, tail, Kind.ABANDONED, stale.subject, body)
                tail.open_intents.remove(stale)
        if subject not in {i.subject for i in tail.open_intents}:
            self._append(intent.table_uuid, tail, Kind.INTENT, subject, to_data(intent))

    def settle(self, table: str, table_uuid: str) -> bool:
        """Appends what the log lacks. Returns whether it has everything."""
        try:
            self._caught_up(table, table_uuid)
        except Exception as why:  # noqa: BLE001 - the work is done, and the ledger has its record
            _log.warning("%s", self._unwritten(table, why))
            return False
        return True

    def prune(self, table: str, table_uuid: str) -> None:
        """Removes entries older than `keep_days`, once per process and table. Before that an entry says which entry
        is the first one that is kept."""
        if self._keep_days is None or table_uuid in self._pruned:
            return
        self._pruned.add(table_uuid)
        folder = self._folder_of(table_uuid)
        try:
            old = removal(folder, self._ledger.registry.now_ms() - self._keep_days * DAY_MS)
            if old is not None:
                self._remove(table, table_uuid, folder, old)
        except Exception as why:  # noqa: BLE001 - the maintenance is done; old entries stay
            cause = " ".join(self._masked(f"{type(why).__name__}: {why}").split())[:300]
            _log.warning("%s: the audit log keeps its old entries: %s.", table, cause)

    def _remove(self, table: str, table_uuid: str, folder: Folder, old: Removal) -> None:
        body = {"table": table, "table_uuid": table_uuid, "keep_days": self._keep_days, **old.document()}
        tail = self._caught_up(table, table_uuid)
        self._append(table_uuid, tail, Kind.PRUNED, f"before/{old.first_kept}", body)
        folder.remove(old.names)
        self._tails.pop(table_uuid, None)

    def _unwritten(self, table: str, why: Exception) -> IcebergMaintError:
        cause = " ".join(self._masked(f"{type(why).__name__}: {why}").split())[:300]
        return IcebergMaintError(
            "ICM-144",
            f"{table}: the audit log cannot be written: {cause}.",
            "check audit.location, its space and its permissions. The ledger keeps the records; the next run "
            "appends them.",
        )

    def _caught_up(self, table: str, table_uuid: str) -> _Tail:
        """Appends the ledger's records that the log lacks, oldest first."""
        for attempt in range(_TRIES):
            tail = self._tails.pop(table_uuid, None) or self._read_tail(self._folder_of(table_uuid))
            try:
                for record in self._missing(table, table_uuid, tail):
                    self._append(table_uuid, tail, Kind.RECORD, record.record_id, to_data(record))
                    tail.record_ids.add(record.record_id)
                    tail.open_intents = [
                        i
                        for i in tail.open_intents
                        if i.subject != intent_subject(record.run_id, record.operation.value)
                    ]
            except FileExistsError:
                # Another process appended at the same time. Its entries are read before the next try.
                if attempt == _TRIES - 1:
                    raise
                continue
            self._tails[table_uuid] = tail
            return tail
        raise AssertionError("unreachable")

    def _append(
        self, table_uuid: str, tail: _Tail, kind: Kind, subject: str, body: Mapping[str, object]
    ) -> None:
        entry = next_entry(tail.last, kind, subject, self._ledger.registry.now_ms(), body)
        # After a failure the log is read again.
        self._tails.pop(table_uuid, None)
        self._folder_of(table_uuid).create(entry_file_name(entry.sequence), entry.to_bytes())
        self._tails[table_uuid] = tail
        tail.last = entry

    def _read_tail(self, folder: Folder) -> _Tail:
        """Reads entries from the end until enough records were read. Raises ValueError for a damaged entry: a
        log that was tampered with is not continued."""
        names = folder.names()
        entries: list[Entry] = []
        records = 0
        for name in reversed(names):
            try:
                entry = parse(folder.read(name))
            except ValueError as why:
                raise ValueError(f"the entry {name} was changed: {why}") from why
            entries.append(entry)
            records += entry.kind is Kind.RECORD
            if records >= TAIL_RECORDS:
                break
        entries.reverse()
        first = first_without_gap(names)
        is_pruned = first is not None and first != entry_file_name(1)
        return _Tail(
            last=entries[-1] if entries else None,
            record_ids={e.subject for e in entries if e.kind is Kind.RECORD},
            is_whole=len(entries) == len(names) and not is_pruned,
            since_ms=parse(folder.read(first)).at_ms if first is not None and is_pruned else None,
            open_intents=open_intents(entries),
        )

    def _missing(self, table: str, table_uuid: str, tail: _Tail) -> list[Record]:
        """The ledger's records of the table that the log lacks, oldest first."""
        records = self._newest_records(table, table_uuid, tail)
        if not tail.is_whole and tail.record_ids.isdisjoint(r.record_id for r in records):
            # The ledger and the end of the log have no record in common: the whole log decides.
            whole = self.read(table_uuid)
            tail.record_ids |= {e.subject for e in whole.entries if e.kind is Kind.RECORD}
        if tail.since_ms is not None:
            known = [n for n, r in enumerate(records) if r.record_id in tail.record_ids]
            # Without a record in common only the time shows which records the log had.
            since_ms = self._since_ms(tail)
            records = records[: known[-1]] if known else [r for r in records if r.ended_ms >= since_ms]
        return [r for r in reversed(records) if r.record_id not in tail.record_ids]

    def _since_ms(self, tail: _Tail) -> int:
        """The time since when the log lacks a record that it does not have. It had earlier ones, and removed them.
        Retention removes no entry of the last day."""
        if tail.since_ms is None:
            return 0
        return min(tail.since_ms, self._ledger.registry.now_ms() - DAY_MS) + _CLOCK_MARGIN_MS

    def _newest_records(self, table: str, table_uuid: str, tail: _Tail) -> list[Record]:
        """The ledger's newest records of the table, newest first: back to as many as the end of the log has."""
        limit = _PAGE_RECORDS
        while True:
            page = self._ledger.records.newest(table, limit)
            records = [r for r in page if r.table_uuid == table_uuid]
            common = sum(r.record_id in tail.record_ids for r in records)
            if len(page) < limit or (tail.record_ids and common >= len(tail.record_ids)):
                return _newer(records, tail)
            limit *= 4

    def read(self, table_uuid: str) -> Verdict:
        """Reads and checks the whole log of a table."""
        folder = self._folder_of(table_uuid)
        return verify((name, folder.read(name)) for name in folder.names())

    def records(self, table: str | None, say: Callable[[str], None]) -> tuple[Record, ...]:
        """The records of the log, newest first. Says what it lacks, and what is no record."""
        records = []
        for chain in self.chains():
            verdict = self.read(chain)
            name = verdict.newest("table") or chain
            if verdict.faults and table in (None, name):
                say(
                    f"{name}: the audit log has {counted(len(verdict.faults), 'fault')}. Its records may be "
                    "incomplete: run iceberg-maint audit verify."
                )
            for entry in verdict.entries:
                if entry.kind is not Kind.RECORD or table not in (None, entry.body.get("table", name)):
                    continue
                try:
                    records.append(record_of(entry))
                except ValueError:
                    say(f"{name}: {entry_file_name(entry.sequence)} is no record of this program.")
        return tuple(sorted(records, key=lambda r: r.ended_ms, reverse=True))


def _newer(records: list[Record], tail: _Tail) -> list[Record]:
    """The records without those that are older than every record of the end of the log. Those are in its
    earlier part."""
    if tail.is_whole:
        return records
    known = [n for n, r in enumerate(records) if r.record_id in tail.record_ids]
    return records[: known[-1] + 1] if known else records


def record_of(entry: Entry) -> Record:
    """The record of an entry. Raises ValueError for another kind or body."""
    if entry.kind is not Kind.RECORD:
        raise ValueError(f"entry {entry.sequence} is no record")
    return from_data(Record, dict(entry.body))
