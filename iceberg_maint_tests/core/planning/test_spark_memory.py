"""The memory that a plan needs of Spark, before Spark starts."""

from __future__ import annotations

from dataclasses import replace

import pytest

from iceberg_maint.core.planning.batch_memory import MemoryNeed
from iceberg_maint.core.planning.plan import Batch
from iceberg_maint.core.planning.spark_memory import (
    DeclaredMemory,
    ExecutorMemory,
    NeededMemory,
    declared_memory,
    memory_of_heap,
    needed_memory,
    setting_text,
)
from iceberg_maint.core.planning.work import EqualityDeleteFile, RewriteDataFiles
from iceberg_maint_tests.support.ledger.values import make_batch

MIB, GIB = 1024**2, 1024**3
CLUSTER = DeclaredMemory(executor_bytes=GIB, driver_bytes=2 * GIB, slots=2)


def batch_with(keys: int, rows: int = 1_000_000) -> Batch:
    """A rewrite that applies one equality delete file with this number of keys of 16 bytes."""
    batch = make_batch("p=a")
    assert isinstance(batch.work, RewriteDataFiles)
    deletes = (EqualityDeleteFile("e", 0, "p=a", False, (1,), 9, keys, keys * 20, True),)
    return replace(
        batch, work=replace(batch.work, equality_deletes=deletes, memory=MemoryNeed(keys, 16, rows))
    )


@pytest.mark.parametrize(
    ("unified_bytes", "page_bytes"),
    [(2 * GIB, 16 * MIB), (2 * GIB + 128, 32 * MIB), (1, MIB), (64 * GIB, 64 * MIB)],
)
def test_page_is_the_next_power_of_two_of_a_slots_32nd(unified_bytes: int, page_bytes: int) -> None:
    assert ExecutorMemory(unified_bytes, 4).page_bytes == page_bytes


def test_memory_of_a_heap_is_a_share_of_what_spark_does_not_reserve() -> None:
    assert memory_of_heap(1_324 * MIB, 0.5, 4) == ExecutorMemory(512 * MIB, 4)


def test_memory_of_a_heap_has_at_least_one_slot() -> None:
    assert memory_of_heap(GIB, 0.6, 0).slots == 1


@pytest.mark.parametrize(
    ("master", "conf", "declared"),
    [
        ("spark://m:7077", {}, DeclaredMemory(GIB, GIB, 1)),
        (
            "k8s://https://m",
            {
                "spark.executor.memory": "4g",
                "spark.executor.cores": "4",
                "spark.task.cpus": "2",
                "spark.memory.fraction": "0.5",
                "spark.driver.memory": "2048",
            },
            DeclaredMemory(4 * GIB, 2 * GIB, 2, 0.5),
        ),
        ("local", {"spark.driver.memory": "1536m"}, DeclaredMemory(1536 * MIB, 1536 * MIB, 1, is_local=True)),
        ("local[3]", {"spark.driver.memory": "2gb"}, DeclaredMemory(2 * GIB, 2 * GIB, 3, is_local=True)),
        ("local[*]", {"spark.driver.memory": "2g"}, DeclaredMemory(2 * GIB, 2 * GIB, 8, is_local=True)),
        ("local[2,4]", {"spark.driver.memory": "wrong"}, DeclaredMemory(GIB, GIB, 2, is_local=True)),
    ],
)
def test_declared_memory_is_that_of_the_settings(
    master: str, conf: dict[str, str], declared: DeclaredMemory
) -> None:
    assert declared_memory(master, conf, cpus=8) == declared


def test_plan_without_equality_deletes_needs_no_setting() -> None:
    needed = needed_memory([make_batch("p=a")], CLUSTER, None)
    assert needed == NeededMemory(0, 0, 0)
    assert needed.settings(CLUSTER) == ()


def test_few_keys_need_the_least_heap() -> None:
    assert needed_memory([batch_with(1_000)], CLUSTER, None) == NeededMemory(
        512 * MIB, 512 * MIB, 128 * MIB + 3 * 4096 + (3 + 30) * 8192
    )


def test_many_keys_need_more_for_one_pass_and_the_largest_batch_counts() -> None:
    batches = [batch_with(1_000), batch_with(2_000_000_000), batch_with(10)]
    needed = needed_memory(batches, CLUSTER, None)
    assert (needed.executor_bytes, needed.one_pass_bytes) == (640 * MIB, 17_408 * MIB)


def test_shortage_names_the_setting_of_a_cluster_and_of_a_local_master() -> None:
    needed = NeededMemory(2 * GIB, 4 * GIB, 3 * GIB)
    short = [(s.name, s.needed_bytes, s.declared_bytes) for s in needed.settings(CLUSTER) if s.is_short]
    assert short == [
        ("spark.executor.memory", 2 * GIB, GIB),
        ("spark.driver.memory", 3 * GIB, 2 * GIB),
    ]
    local = DeclaredMemory(GIB, GIB, 2, is_local=True)
    assert [(s.name, s.is_short) for s in needed.settings(local)] == [("spark.driver.memory", True)]
    assert [s.is_short for s in NeededMemory(GIB, GIB, 2 * GIB).settings(CLUSTER)] == [False, False]


def test_driver_of_a_local_master_needs_room_for_both() -> None:
    rows = 5_000_000_000
    cluster = needed_memory([batch_with(1_000, rows)], CLUSTER, None)
    local = needed_memory([batch_with(1_000, rows)], replace(CLUSTER, is_local=True), None)
    assert cluster.executor_bytes == 512 * MIB
    assert local.executor_bytes == 1_408 * MIB
    assert local.driver_bytes == cluster.driver_bytes == 128 * MIB + 3 * 4096 + (3 + rows // 2**15) * 8192


def test_limit_of_the_policy_that_no_task_keeps_is_no_matter_of_the_heap() -> None:
    needed = needed_memory([batch_with(2_000_000_000)], CLUSTER, 2 * MIB)
    assert needed.executor_bytes is None
    assert needed.settings(CLUSTER)[0].is_short


def test_size_is_written_as_spark_reads_it() -> None:
    assert [setting_text(n) for n in (GIB, GIB + 1)] == ["1024m", "1025m"]
