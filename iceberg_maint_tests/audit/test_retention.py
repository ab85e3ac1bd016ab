"""Old entries are removed, and what remains is still proved."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from iceberg_maint.catalog.local_store import LocalStore
from iceberg_maint.core.outcomes.record import Record
from iceberg_maint.integrations.audit.audit_commands import ledger_faults
from iceberg_maint.integrations.audit.chain import Fault, FaultKind, Kind, entry_file_name, next_entry, parse
from iceberg_maint.integrations.audit.folder import (
    KEPT_ENTRIES,
    LEAST_ENTRIES,
    MOST_ENTRIES,
    Folder,
    LocalFolder,
    StoreFolder,
)
from iceberg_maint.integrations.audit.log import AuditLog
from iceberg_maint_tests.audit.test_log import TABLE, UUID, Death, MemoryFolder, intent, record_number

DAY_MS = 86_400_000
KEEP_DAYS = 30


@dataclass
class AgingLedger:
    """Two parts of a ledger: records in their order, and a clock that the test sets."""

    now: int = 0
    stored: list[Record] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.records = self.registry = self

    def now_ms(self) -> int:
        return self.now

    def newest(self, _table: str | None, limit: int) -> tuple[Record, ...]:
        return tuple(self.stored[::-1][:limit])


def log_of(folder: Folder, ledger: AgingLedger, keep_days: int | None = KEEP_DAYS) -> AuditLog:
    return AuditLog(lambda _uuid: folder, ledger, keep_days=keep_days)  # type: ignore[arg-type]


def work(folder: Folder, ledger: AgingLedger, days: range) -> None:
    """One run a day."""
    log = log_of(folder, ledger)
    for day in days:
        ledger.now = day * DAY_MS
        log.begin(intent(day))
        ledger.stored.append(replace(record_number(day), started_ms=ledger.now, ended_ms=ledger.now))
        assert log.settle(TABLE, UUID)


def faults(folder: Folder, ledger: AgingLedger) -> list[Fault]:
    verdict = log_of(folder, ledger).read(UUID)
    return [*verdict.faults, *ledger_faults(verdict, ledger.stored[::-1])[0]]


Log = tuple[MemoryFolder, AgingLedger]


@pytest.fixture(scope="module")
def hundred_days() -> Log:
    folder, ledger = MemoryFolder(), AgingLedger()
    work(folder, ledger, range(1, 101))
    return folder, ledger


@pytest.fixture
def old(hundred_days: Log) -> Log:
    """A hundred days of two entries each; the last day is today."""
    folder, ledger = hundred_days
    return replace(folder, files=dict(folder.files)), replace(ledger, stored=list(ledger.stored))


def test_entries_older_than_the_days_are_removed_and_the_rest_is_proved(old: Log) -> None:
    folder, ledger = old
    log_of(folder, ledger).prune(TABLE, UUID)
    # Days 1 to 69 are older than 30 days; day 70 is exactly 30 days old.
    assert folder.names()[0] == entry_file_name(139)
    pruned = parse(folder.files[entry_file_name(201)])
    assert (pruned.kind, pruned.body["first_kept"], pruned.body["removed"]) == (Kind.PRUNED, 139, 138)
    assert faults(folder, ledger) == []
    assert log_of(folder, ledger).read(UUID).pruned == 138


def test_log_without_days_keeps_everything(old: Log) -> None:
    folder, ledger = old
    log_of(folder, ledger, keep_days=None).prune(TABLE, UUID)
    assert len(folder.files) == 200


@pytest.mark.parametrize("first", [140, 150])
def test_entry_cut_off_the_front_is_told_from_retention(old: Log, first: int) -> None:
    folder, ledger = old
    log_of(folder, ledger).prune(TABLE, UUID)
    for sequence in range(139, first):
        del folder.files[entry_file_name(sequence)]
    [fault, *_] = faults(folder, ledger)
    assert fault.kind is FaultKind.MISSING
    assert fault.name.startswith(entry_file_name(139))


def test_first_kept_entry_that_was_replaced_is_named(old: Log) -> None:
    folder, ledger = old
    log_of(folder, ledger).prune(TABLE, UUID)
    other = MemoryFolder()
    work(other, AgingLedger(), range(2, 102))
    folder.files[entry_file_name(139)] = other.files[entry_file_name(139)]
    kinds = [(f.kind, f.name) for f in log_of(folder, ledger).read(UUID).faults]
    assert kinds == [(FaultKind.REPLACED, entry_file_name(139)), (FaultKind.REPLACED, entry_file_name(139))]


def test_runs_after_retention_append_no_record_again(old: Log) -> None:
    folder, ledger = old
    log_of(folder, ledger).prune(TABLE, UUID)
    work(folder, ledger, range(101, 104))
    subjects = [e.subject for e in log_of(folder, ledger).read(UUID).entries if e.kind is Kind.RECORD]
    assert len(subjects) == len(set(subjects)) == 100 - 69 + 3
    assert faults(folder, ledger) == []


def test_record_that_the_log_lacks_is_appended_after_retention(old: Log) -> None:
    folder, ledger = old
    log_of(folder, ledger).prune(TABLE, UUID)
    ledger.stored.append(replace(record_number(999), started_ms=ledger.now, ended_ms=ledger.now))
    assert log_of(folder, ledger).settle(TABLE, UUID)
    assert log_of(folder, ledger).read(UUID).entries[-1].subject == "r999"


def test_ledger_with_older_records_only_appends_none_of_them(old: Log) -> None:
    """A ledger that was restored from a backup."""
    folder, ledger = old
    log_of(folder, ledger).prune(TABLE, UUID)
    entries = len(folder.files)
    ledger.stored = ledger.stored[:60]
    assert log_of(folder, ledger).settle(TABLE, UUID)
    assert len(folder.files) == entries


def test_record_of_a_machine_whose_clock_is_days_behind_is_appended(old: Log) -> None:
    folder, ledger = old
    log_of(folder, ledger).prune(TABLE, UUID)
    ledger.stored.append(replace(record_number(999), started_ms=DAY_MS, ended_ms=DAY_MS))
    assert log_of(folder, ledger).settle(TABLE, UUID)
    assert log_of(folder, ledger).read(UUID).entries[-1].subject == "r999"


@pytest.mark.parametrize("removed", [0, 1, 137])
def test_run_that_dies_in_a_removal_leaves_no_fault_and_the_next_one_goes_on(old: Log, removed: int) -> None:
    folder, ledger = old
    folder.dies_in_removal = removed
    with pytest.raises(Death):
        log_of(folder, ledger).prune(TABLE, UUID)
    folder.dies_in_removal = None
    assert faults(folder, ledger) == []
    work(folder, ledger, range(101, 131))
    log_of(folder, ledger).prune(TABLE, UUID)
    assert faults(folder, ledger) == []
    assert parse(folder.files[folder.names()[0]]).at_ms == 100 * DAY_MS


def test_holes_that_an_unfinished_removal_left_are_no_fault(old: Log) -> None:
    """A request that deletes many objects deletes them in no order."""
    folder, ledger = old
    kept = dict(folder.files)
    log_of(folder, ledger).prune(TABLE, UUID)
    for sequence in (3, 50, 51, 138):
        folder.files[entry_file_name(sequence)] = kept[entry_file_name(sequence)]
    assert faults(folder, ledger) == []
    entries = len(folder.files)
    assert log_of(folder, ledger).settle(TABLE, UUID)
    assert len(folder.files) == entries


def test_log_that_was_changed_keeps_everything(old: Log, caplog: pytest.LogCaptureFixture) -> None:
    folder, ledger = old
    changed = folder.files[entry_file_name(7)].replace(b"run4", b"run5")
    folder.files[entry_file_name(7)] = changed
    log_of(folder, ledger).prune(TABLE, UUID)
    assert len(folder.files) == 200
    assert "the audit log keeps its old entries" in caplog.text


def test_newest_entries_stay_however_old(old: Log) -> None:
    folder, ledger = old
    ledger.now = 10_000 * DAY_MS
    log_of(folder, ledger).prune(TABLE, UUID)
    assert folder.names()[0] == entry_file_name(200 - KEPT_ENTRIES + 1)


def test_few_old_entries_wait_for_more(old: Log) -> None:
    folder, ledger = old
    log_of(folder, ledger, keep_days=100 - (LEAST_ENTRIES // 2)).prune(TABLE, UUID)
    assert len(folder.files) == 200
    log_of(folder, ledger, keep_days=100 - (LEAST_ENTRIES // 2) - 1).prune(TABLE, UUID)
    assert len(folder.files) == 200 - LEAST_ENTRIES + 1


def test_process_prunes_a_table_once(old: Log) -> None:
    folder, ledger = old
    log = log_of(folder, ledger)
    log.prune(TABLE, UUID)
    entries = len(folder.files)
    ledger.now += 50 * DAY_MS
    log.prune(TABLE, UUID)
    assert len(folder.files) == entries


def test_many_old_entries_are_removed_in_several_runs() -> None:
    folder, ledger = MemoryFolder(), AgingLedger()
    work(folder, ledger, range(1, 701))
    for first in (MOST_ENTRIES + 1, 1339):
        log_of(folder, ledger).prune(TABLE, UUID)
        assert folder.names()[0] == entry_file_name(first)
        assert faults(folder, ledger) == []


@pytest.mark.parametrize("kind", ["local", "store"])
def test_files_on_disk_are_removed(kind: str, tmp_path: Path, old: Log) -> None:
    memory, ledger = old
    real: Folder = (
        LocalFolder(tmp_path) if kind == "local" else StoreFolder(LocalStore(), f"file://{tmp_path}")
    )
    for name, data in memory.files.items():
        (tmp_path / name).write_bytes(data)
    log_of(real, ledger).prune(TABLE, UUID)
    assert real.names() == [entry_file_name(n) for n in range(139, 202)]
    assert faults(real, ledger) == []


@pytest.mark.parametrize("pruned_before", [False, True])
def test_front_that_was_cut_is_not_made_right_by_the_next_retention(
    pruned_before: bool, old: Log, caplog: pytest.LogCaptureFixture
) -> None:
    folder, ledger = old
    if pruned_before:
        log_of(folder, ledger).prune(TABLE, UUID)
        work(folder, ledger, range(101, 131))
    first = folder.names()[0]
    del folder.files[first]
    before = dict(folder.files)
    log_of(folder, ledger).prune(TABLE, UUID)
    assert folder.files == before
    assert "the entries before" in caplog.text
    assert [(f.kind, f.name) for f in faults(folder, ledger)] == [(FaultKind.MISSING, first)]


@pytest.mark.parametrize("first_kept", [999, "139", None])
def test_retention_entry_that_names_a_later_entry_or_no_number_excuses_nothing(
    first_kept: object, old: Log
) -> None:
    folder, ledger = old
    last = parse(folder.files[folder.names()[-1]])
    body = {"table": TABLE, "first_kept": first_kept, "previous": "0" * 64}
    forged = next_entry(last, Kind.PRUNED, "before/999", ledger.now, body)
    folder.files[entry_file_name(forged.sequence)] = forged.to_bytes()
    del folder.files[entry_file_name(1)]
    verdict = log_of(folder, ledger).read(UUID)
    assert [(f.kind, f.name) for f in verdict.faults] == [(FaultKind.MISSING, entry_file_name(1))]
