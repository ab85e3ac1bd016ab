"""The memory of an executor that has not started, from its settings."""

from __future__ import annotations

from iceberg_maint.core.planning.spark_memory import ExecutorMemory, memory_of_heap


def test_memory_of_a_heap_is_a_share_of_what_spark_does_not_reserve() -> None:
    assert memory_of_heap(1_324 * 1024**2, 0.5, 4) == ExecutorMemory(512 * 1024**2, 4)


def test_memory_of_a_heap_has_at_least_one_slot() -> None:
    assert memory_of_heap(1024**3, 0.6, 0).slots == 1
