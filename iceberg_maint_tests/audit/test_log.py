"""The log beside the ledger: no gap and no double, whatever step a run dies at."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from iceberg_maint.catalog.approved_io import open_store
from iceberg_maint.core.model.ids import Operation
from iceberg_maint.core.outcomes.record import Record
from iceberg_maint.errors import RefusedError
from iceberg_maint.integrations.audit import folder as folder_module
from iceberg_maint.integrations.audit.chain import Kind, entry_file_name
from iceberg_maint.integrations.audit.folder import (
    Folder,
    LocalFolder,
    StoreFolder,
    local_folders,
    store_folders,
)
from iceberg_maint.integrations.audit.log import TAIL_RECORDS, AuditLog, record_of
from iceberg_maint.ports.observers import Intent
from iceberg_maint_tests.support.fakes.ledger import memory_ledger
from iceberg_maint_tests.support.servers.object_server import object_server
from iceberg_maint_tests.support.telemetry.values import record

pytestmark = pytest.mark.seconds

TABLE, UUID = "lake.db.t", "u1"


BASE = record(TABLE)
BASE = replace(BASE, outcome=replace(BASE.outcome, batches=BASE.outcome.batches[1:], partitions=()))


class Death(BaseException):
    """The process ends here."""


@dataclass
class MemoryFolder:
    """A folder in memory. It ends the process before or after the given call that creates an entry."""

    files: dict[str, bytes] = field(default_factory=dict)
    dies_at: int | None = None
    after: bool = False
    creates: int = 0
    dies_in_removal: int | None = None

    def names(self) -> list[str]:
        return sorted(self.files)

    def read(self, name: str) -> bytes:
        return self.files[name]

    def remove(self, names: Sequence[str]) -> None:
        for number, name in enumerate(names):
            if number == self.dies_in_removal:
                raise Death
            self.files.pop(name, None)

    def create(self, name: str, data: bytes) -> None:
        dies = self.creates == self.dies_at
        self.creates += 1
        if dies and not self.after:
            raise Death
        if name in self.files:
            raise FileExistsError(name)
        self.files[name] = data
        if dies:
            raise Death


@dataclass
class FakeLedger:
    """Two parts of a ledger: records in their order, and a clock."""

    stored: list[Record] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.records = self.registry = self

    def now_ms(self) -> int:
        return 5000

    def newest(self, table: str | None, limit: int) -> tuple[Record, ...]:
        assert table == TABLE
        return tuple(self.stored[::-1][:limit])


def record_number(n: int) -> Record:
    small = replace(BASE, record_id=f"r{n}")
    return replace(small, run_id=f"run{n}", started_ms=n, ended_ms=n + 1)


def intent(n: int) -> Intent:
    return Intent(
        f"run{n}",
        TABLE,
        UUID,
        Operation.REWRITE_DATA_FILES,
        "p",
        ("b1",),
        ("small_files",),
        1,
        10,
        100,
        1,
        "d",
        n,
    )


def log_of(folder: Folder, ledger: FakeLedger, *, required: bool = False) -> AuditLog:
    return AuditLog(lambda _uuid: folder, ledger, required=required)  # type: ignore[arg-type]


def kinds(folder: MemoryFolder, ledger: FakeLedger) -> list[tuple[Kind, str]]:
    verdict = log_of(folder, ledger).read(UUID)
    assert verdict.faults == ()
    return [(e.kind, e.subject) for e in verdict.entries]


def maintain(n: int, folder: MemoryFolder, ledger: FakeLedger, dies_between: bool = False) -> None:
    """One run: intent, work, the ledger's record, the log."""
    log = log_of(folder, ledger)
    log.begin(intent(n))
    if dies_between:
        raise Death
    ledger.stored.append(record_number(n))
    assert log.settle(TABLE, UUID)


def test_run_appends_its_intent_and_its_record() -> None:
    folder, ledger = MemoryFolder(), FakeLedger()
    maintain(1, folder, ledger)
    assert kinds(folder, ledger) == [(Kind.INTENT, "run1/rewrite_data_files"), (Kind.RECORD, "r1")]
    entry = log_of(folder, ledger).read(UUID).entries[1]
    assert record_of(entry) == record_number(1)


@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("step", range(6))
def test_run_that_dies_at_any_append_leaves_no_gap_and_no_double(step: int, after: bool) -> None:
    folder, ledger = MemoryFolder(dies_at=step, after=after), FakeLedger()
    for n in (1, 2, 3):
        try:
            maintain(n, folder, ledger)
        except Death:
            folder.dies_at = None
    maintain(4, folder, ledger)
    records = [subject for kind, subject in kinds(folder, ledger) if kind is Kind.RECORD]
    assert records == [r.record_id for r in ledger.stored]
    assert log_of(folder, ledger).read(UUID).open_intents == ()


def test_intent_of_a_run_that_did_nothing_is_ended_by_the_next_run() -> None:
    folder, ledger = MemoryFolder(), FakeLedger()
    with pytest.raises(Death):
        maintain(1, folder, ledger, dies_between=True)
    assert [i.subject for i in log_of(folder, ledger).read(UUID).open_intents] == ["run1/rewrite_data_files"]
    maintain(2, folder, ledger)
    assert kinds(folder, ledger) == [
        (Kind.INTENT, "run1/rewrite_data_files"),
        (Kind.ABANDONED, "run1/rewrite_data_files"),
        (Kind.INTENT, "run2/rewrite_data_files"),
        (Kind.RECORD, "r2"),
    ]


def test_thousand_records_are_appended_once_in_order_and_the_next_run_reads_the_end_only() -> None:
    folder, ledger = MemoryFolder(), FakeLedger([record_number(n) for n in range(1_000)])
    assert log_of(folder, ledger).settle(TABLE, UUID)
    assert [s for _, s in kinds(folder, ledger)] == [f"r{n}" for n in range(1_000)]
    reads: list[str] = []
    inner = folder.read
    folder.read = lambda name: (reads.append(name), inner(name))[1]  # type: ignore[method-assign]
    ledger.stored.append(record_number(1_000))
    assert log_of(folder, ledger).settle(TABLE, UUID)
    assert len(reads) == TAIL_RECORDS
    folder.read = inner  # type: ignore[method-assign]
    assert kinds(folder, ledger)[-1] == (Kind.RECORD, "r1000")
    assert len(folder.files) == 1_001


def test_record_that_another_process_stored_between_is_appended_though_later_ones_are_there() -> None:
    folder, ledger = MemoryFolder(), FakeLedger([record_number(n) for n in range(30)])
    log_of(folder, ledger).settle(TABLE, UUID)
    # Its transaction began earlier and ended later, so it stands before the newest record.
    ledger.stored.insert(-1, record_number(99))
    log_of(folder, ledger).settle(TABLE, UUID)
    assert kinds(folder, ledger)[-1] == (Kind.RECORD, "r99")
    assert len(folder.files) == 31


def test_ledger_that_lost_all_common_records_makes_no_double() -> None:
    folder, ledger = MemoryFolder(), FakeLedger([record_number(n) for n in range(50)])
    log_of(folder, ledger).settle(TABLE, UUID)
    # Restored from a backup: it has old records only.
    ledger.stored = ledger.stored[:10]
    log_of(folder, ledger).settle(TABLE, UUID)
    assert len(folder.files) == 50


def test_entry_of_another_process_is_read_before_the_next_try() -> None:
    folder, ledger = MemoryFolder(), FakeLedger([record_number(1)])
    log = log_of(folder, ledger)
    assert log.settle(TABLE, UUID)
    ledger.stored.append(record_number(2))
    assert log_of(folder, ledger).settle(TABLE, UUID)
    ledger.stored.append(record_number(3))
    assert log.settle(TABLE, UUID)
    assert kinds(folder, ledger) == [(Kind.RECORD, f"r{n}") for n in (1, 2, 3)]


class FullFolder(MemoryFolder):
    """A store that takes nothing."""

    def create(self, name: str, data: bytes) -> None:
        raise OSError(28, "No space left on device")


def test_log_that_cannot_be_written_fails_no_run_and_gets_the_record_later(
    caplog: pytest.LogCaptureFixture,
) -> None:
    full, ledger = FullFolder(), FakeLedger()
    log = log_of(full, ledger)
    log.begin(intent(1))
    ledger.stored.append(record_number(1))
    assert not log.settle(TABLE, UUID)
    assert [r.getMessage().partition(":")[0] for r in caplog.records] == ["ICM-144 lake.db.t"] * 2
    assert "No space left on device" in caplog.text
    folder = MemoryFolder()
    maintain(2, folder, ledger)
    assert [s for k, s in kinds(folder, ledger) if k is Kind.RECORD] == ["r1", "r2"]


def test_required_log_that_cannot_be_written_refuses_the_run() -> None:
    with pytest.raises(RefusedError) as refused:
        log_of(FullFolder(), FakeLedger(), required=True).begin(intent(1))
    assert refused.value.code == "ICM-144"


def test_log_whose_end_was_changed_is_not_continued(caplog: pytest.LogCaptureFixture) -> None:
    folder, ledger = MemoryFolder(), FakeLedger([record_number(1)])
    log_of(folder, ledger).settle(TABLE, UUID)
    folder.files[entry_file_name(1)] = folder.files[entry_file_name(1)].replace(b"r1", b"r7")
    ledger.stored.append(record_number(2))
    assert not log_of(folder, ledger).settle(TABLE, UUID)
    assert "the entry 000000000001.json was changed" in caplog.text
    assert len(folder.files) == 1


def test_local_entry_is_created_whole_and_never_replaced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = LocalFolder(tmp_path / "u1")
    assert folder.names() == []
    folder.create(entry_file_name(1), b"one")
    with pytest.raises(FileExistsError):
        folder.create(entry_file_name(1), b"two")

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(folder_module.os, "fsync", full)
    with pytest.raises(OSError, match="No space"):
        folder.create(entry_file_name(2), b"two")
    assert [p.name for p in (tmp_path / "u1").iterdir()] == [entry_file_name(1)]
    assert folder.read(entry_file_name(1)) == b"one"
    assert local_folders(tmp_path) == ["u1"]


def test_of_many_local_writers_one_creates_an_entry(tmp_path: Path) -> None:
    results: list[str] = []

    def create(text: bytes) -> None:
        try:
            LocalFolder(tmp_path / "u").create(entry_file_name(1), text)
            results.append("done")
        except FileExistsError:
            results.append("exists")

    threads = [threading.Thread(target=create, args=(str(n).encode(),)) for n in range(8)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert sorted(results) == ["done"] + ["exists"] * 7


def test_log_on_an_object_store_by_pyicebergs_file_io() -> None:
    from pyiceberg.io import load_file_io

    with object_server() as (endpoint, _bucket):
        properties = {
            "s3.endpoint": endpoint,
            "s3.access-key-id": "k",
            "s3.secret-access-key": "s",
            "s3.region": "us-east-1",
        }
        store = open_store(load_file_io(properties, "s3://bucket/audit"), "s3://bucket/audit")
        make: Callable[[], Folder] = lambda: StoreFolder(store, "s3://bucket/audit/u1")  # noqa: E731
        ledger = FakeLedger([record_number(n) for n in range(3)])
        assert log_of(make(), ledger).settle(TABLE, UUID)
        ledger.stored.append(record_number(3))
        assert log_of(make(), ledger).settle(TABLE, UUID)
        verdict = log_of(make(), ledger).read(UUID)
        assert [record_of(e) for e in verdict.entries] == ledger.stored
        with pytest.raises(FileExistsError):
            make().create(entry_file_name(4), b"x")
        assert store_folders(store, "s3://bucket/audit") == ["u1"]


@pytest.mark.parametrize("trouble", ["bucket gone", "wrong key"])
def test_log_on_an_object_store_that_refuses_fails_no_run_and_gets_the_records_later(
    trouble: str, caplog: pytest.LogCaptureFixture
) -> None:
    from pyiceberg.io import load_file_io

    with object_server() as (endpoint, bucket):
        properties = {
            "s3.endpoint": endpoint,
            "s3.access-key-id": "key-of-audit",
            "s3.secret-access-key": "secret-of-audit",
            "s3.region": "us-east-1",
        }
        store = open_store(load_file_io(properties, "s3://bucket/audit"), "s3://bucket/audit")
        folder: Folder = StoreFolder(store, "s3://bucket/audit/u1")
        ledger = FakeLedger()
        maintain(1, folder, ledger)
        bucket.is_gone, bucket.token = (
            trouble == "bucket gone",
            "of another" if trouble == "wrong key" else None,
        )
        log = log_of(folder, ledger)
        log.begin(intent(2))
        ledger.stored.append(record_number(2))
        assert not log.settle(TABLE, UUID)
        with pytest.raises(RefusedError) as refused:
            log_of(folder, ledger, required=True).begin(intent(3))
        assert refused.value.code == "ICM-144"
        messages = [r.getMessage() for r in caplog.records]
        assert [m.partition(":")[0] for m in messages] == ["ICM-144 lake.db.t"] * 2
        assert "secret-of-audit" not in " ".join(messages)
        bucket.is_gone, bucket.token = False, None
        maintain(4, folder, ledger)
        assert [s for k, s in kinds(folder, ledger) if k is Kind.RECORD] == ["r1", "r2", "r4"]


def test_log_beside_the_real_ledger_has_its_records(tmp_path: Path) -> None:
    ledger = memory_ledger()
    for n in range(3):
        ledger.records.append(record_number(n))
    log = AuditLog(lambda uuid: LocalFolder(tmp_path / uuid), ledger)
    assert log.settle(TABLE, UUID)
    assert log.settle(TABLE, UUID)
    assert [e.subject for e in log.read(UUID).entries] == ["r0", "r1", "r2"]


def test_run_that_died_between_two_operations_of_another_refuses_none():
    """Two runs take turns at the lease. The one that lives has read the end of the log before the other appended."""
    folder, ledger = MemoryFolder(), FakeLedger()
    living = log_of(folder, ledger, required=True)
    living.begin(intent(1))
    ledger.stored.append(record_number(1))
    assert living.settle(TABLE, UUID)
    log_of(folder, ledger).begin(intent(2))
    living.begin(intent(3))
    assert kinds(folder, ledger)[2:] == [
        (Kind.INTENT, "run2/rewrite_data_files"),
        (Kind.ABANDONED, "run2/rewrite_data_files"),
        (Kind.INTENT, "run3/rewrite_data_files"),
    ]


def test_intent_of_a_dead_run_is_ended_once_by_a_run_of_several_operations():
    folder, ledger = MemoryFolder(), FakeLedger()
    log_of(folder, ledger).begin(intent(1))
    log = log_of(folder, ledger)
    for n in (2, 3):
        log.begin(intent(n))
        ledger.stored.append(record_number(n))
        assert log.settle(TABLE, UUID)
    assert [subject for kind, subject in kinds(folder, ledger) if kind is Kind.ABANDONED] == [
        "run1/rewrite_data_files"
    ]
