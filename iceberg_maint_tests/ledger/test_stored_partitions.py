"""Partitions of stored health: unpacked at the first use, and kept up to a limit."""

from __future__ import annotations

from iceberg_maint.core.health.metrics import PartitionHealth
from iceberg_maint.core.model.ids import PartitionKey
from iceberg_maint.ledger.health_days import StoredPartitions, UnpackedPartitions, pack, packed_keys
from iceberg_maint_tests.support.core.values import measured_of
from iceberg_maint_tests.support.fakes.ledger import memory_ledger

A, B = PartitionKey("p=a"), PartitionKey("p=b")
PARTS = {A: PartitionHealth(data_files=3, spec_ids=(0, 1)), B: PartitionHealth(data_files=4)}


def test_stored_partitions_are_those_that_were_packed() -> None:
    stored = StoredPartitions(pack(PARTS), UnpackedPartitions())
    assert stored == PARTS
    assert (list(stored), len(stored), stored[A].spec_ids, B in stored, "p=c" in stored) == (
        [A, B],
        2,
        (0, 1),
        True,
        False,
    )
    assert packed_keys(pack(PARTS)) == [A, B]


def test_digest_is_that_of_the_bytes() -> None:
    unpacked = UnpackedPartitions()
    first, same = StoredPartitions(pack(PARTS), unpacked), StoredPartitions(pack(PARTS), unpacked)
    other = StoredPartitions(pack({A: PARTS[A]}), unpacked)
    assert first.digest == same.digest != other.digest
    assert first == same
    assert first != other


def test_same_bytes_are_unpacked_once() -> None:
    unpacked = UnpackedPartitions()
    first, same = (StoredPartitions(pack(PARTS), unpacked) for _ in range(2))
    assert first[A] is same[A]


def test_partitions_beyond_the_limit_are_unpacked_again() -> None:
    unpacked = UnpackedPartitions(kept=2)
    first = StoredPartitions(pack(PARTS), unpacked)[A]
    assert StoredPartitions(pack(PARTS), unpacked)[A] is first
    assert StoredPartitions(pack({A: PARTS[A]}), unpacked)[A] == first
    again = StoredPartitions(pack(PARTS), unpacked)[A]
    assert again == first
    assert again is not first


def test_table_larger_than_the_limit_is_not_kept() -> None:
    unpacked = UnpackedPartitions(kept=1)
    first = StoredPartitions(pack(PARTS), unpacked)[A]
    assert StoredPartitions(pack(PARTS), unpacked)[A] is not first


def test_ledger_returns_the_health_that_was_put() -> None:
    ledger, measured = memory_ledger(), measured_of({A: PARTS[A]})
    ledger.health.put(measured)
    stored = ledger.health.get(measured.table)
    assert stored == measured
    assert isinstance(stored.partitions, StoredPartitions)
