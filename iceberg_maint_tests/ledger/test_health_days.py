"""The numbers of each table by day."""

from __future__ import annotations

from dataclasses import replace

from iceberg_maint.core.health.metrics import PartitionHealth
from iceberg_maint.core.model.ids import PartitionKey
from iceberg_maint.ports.stored import KEPT_DAYS
from iceberg_maint_tests.ledger.conftest import Place
from iceberg_maint_tests.support.ledger.values import OTHER_UUID, TABLE, UUID, measured


def of_files(small_files: int, sequence_number: int = 1):
    part = PartitionHealth(data_files=small_files, small_files=small_files)
    health = measured("day=1", sequence_number=sequence_number)
    return replace(health, partitions={PartitionKey("day=1"): part})


def test_second_measurement_of_a_day_replaces_the_first(ledger):
    ledger.health.put(of_files(3))
    ledger.health.put(of_files(8, sequence_number=2))
    (day,) = ledger.health.health_days([UUID])[UUID]
    assert (day.metrics["small_files"], day.metrics["most_small_files"]) == (8, 8)
    assert day.day == ledger.registry.now_ms() // 86_400_000


def test_refused_older_measurement_leaves_the_day(ledger):
    ledger.health.put(of_files(3, sequence_number=2))
    assert not ledger.health.put(of_files(8, sequence_number=1))
    assert [d.metrics["small_files"] for d in ledger.health.health_days([UUID])[UUID]] == [3]


def test_days_beyond_ninety_are_deleted_by_the_next_measurement(ledger, place: Place):
    ledger.health.put(of_files(1))
    place.age("icm_health_day", "day", KEPT_DAYS - 1)
    ledger.health.put(of_files(2))
    assert [d.metrics["small_files"] for d in ledger.health.health_days([UUID])[UUID]] == [1, 2]
    place.age("icm_health_day", "day", 1)
    ledger.health.put(of_files(3))
    assert [d.metrics["small_files"] for d in ledger.health.health_days([UUID])[UUID]] == [2, 3]


def test_prune_deletes_days_beyond_the_setting(ledger, place: Place):
    ledger.health.put(of_files(1))
    place.age("icm_health_day", "day", 31)
    ledger.health.put(of_files(2))
    ledger.records.prune(UUID, 31)
    assert len(ledger.health.health_days([UUID])[UUID]) == 2
    ledger.records.prune(UUID, 30)
    assert [d.metrics["small_files"] for d in ledger.health.health_days([UUID])[UUID]] == [2]


def test_forgotten_table_has_no_days(ledger):
    ledger.health.put(of_files(1))
    assert set(ledger.health.health_days([UUID, OTHER_UUID])) == {UUID}
    ledger.health.forget_table(TABLE)
    assert ledger.health.health_days([UUID]) == {}
