"""What is asked of memory before anything is read, in exact numbers."""

from __future__ import annotations

import pytest

from iceberg_maint.core.planning.batch_memory import (
    DeclaredBytes,
    DoesNotFitError,
    MemoryNeed,
    Preflight,
    driver_bytes,
    peak_task_bytes,
    preflight,
)

KIB, MIB = 1024, 1024**2


def need(keys: int, *, key_bytes: int = 8, rows: int = 6_000_000, correction: float = 1.0) -> MemoryNeed:
    return MemoryNeed(keys, key_bytes, rows, correction)


def fit(
    what: MemoryNeed, memory_mib: int, *, scratch_bytes: int | None = None, page_mib: int = 8, slots: int = 2
) -> Preflight:
    declared = DeclaredBytes(
        memory_bytes=memory_mib * MIB, scratch_bytes=scratch_bytes, slots=slots, page_bytes=page_mib * MIB
    )
    return preflight(what, declared)


def test_few_keys_are_broadcast() -> None:
    assert fit(need(10_000), 64) == Preflight(32 * MIB, 1, 1, broadcast=True, scratch_bytes=0)


def test_keys_whose_table_takes_more_than_an_eighth_are_shuffled() -> None:
    # A table of n keys: 2 x 72 bytes of records and 64 bytes of slots each.
    most = 64 * MIB // 8 // 208
    assert fit(need(most), 64).broadcast
    assert not fit(need(most + 1), 64).broadcast


def test_keys_whose_table_takes_more_than_an_eighth_of_the_drivers_heap_are_shuffled() -> None:
    def broadcast(heap_mib: int) -> bool:
        kept = {"memory_bytes": 4096 * MIB, "scratch_bytes": None, "slots": 2, "page_bytes": 8 * MIB}
        return preflight(need(100_000), DeclaredBytes(**kept, driver_heap_bytes=heap_mib * MIB)).broadcast

    assert broadcast(200)
    assert not broadcast(100)


# MiB per task on Spark 4.1.4 as `measured` has them, of the join of `membership`: unique keys, pages in
# MiB, the bytes of a row of keys (a long 16, a long and another field 24, text of 24 bytes 40).
MEASURED = [
    *[(n, 8, 16, m) for n, m in ((120_000, 30), (250_000, 48), (500_000, 80), (1_000_000, 160))],
    *[(n, 8, 40, m) for n, m in ((4_000, 24.25), (60_000, 27), (120_000, 36), (250_000, 56))],
    *[(n, 8, 40, m) for n, m in ((500_000, 104), (1_000_000, 216))],
    *[(n, 8, 48, m) for n, m in ((500_000, 112), (1_000_000, 232))],
    *[(n, 2, 16, m) for n, m in ((50_000, 9), (60_000, 10), (100_000, 16), (130_000, 18), (140_000, 25))],
    *[(n, 2, 16, m) for n, m in ((200_000, 34), (250_000, 38), (500_000, 78))],
    *[(n, 2, 24, m) for n, m in ((60_000, 11), (100_000, 16), (130_000, 22), (140_000, 26))],
    *[(n, 2, 24, m) for n, m in ((200_000, 38), (250_000, 42), (500_000, 86))],
]


@pytest.mark.parametrize(("keys", "page_mib", "row_bytes", "measured_mib"), MEASURED)
def test_estimate_of_a_task_is_within_a_seventh_of_what_was_measured(
    keys: int, page_mib: int, row_bytes: int, measured_mib: float
) -> None:
    estimated = peak_task_bytes(keys, row_bytes - 8, page_mib * MIB, 0)
    assert estimated == pytest.approx(measured_mib * MIB, rel=0.15)


# Of `make bench BENCH=equality-deletes`: delete rows, some of them twice; page and parts as they were; MiB of both
# tasks together. The last one is of the two passes.
@pytest.mark.parametrize(
    ("rows", "parts", "page_mib", "measured_mib"),
    [
        (3_000_000, 12, 64, 396),
        (3_000_000, 12, 16, 108),
        (30_000_000, 120, 8, 96),
        (52_000_000, 200, 8, 96),
        (30_000_000, 116 * 2, 2, 36),
    ],
)
def test_estimate_of_a_batch_is_within_a_fifth_of_what_was_measured(
    rows: int, parts: int, page_mib: int, measured_mib: int
) -> None:
    share = rows / parts
    estimated = 2 * peak_task_bytes(int(share + 4 * share**0.5), 8, page_mib * MIB, 0)
    assert estimated == pytest.approx(measured_mib * MIB, rel=0.2)


def test_partitions_grow_until_the_keys_fit() -> None:
    assert fit(need(5_000_000), 1024) == Preflight(
        estimated_bytes=fit(need(5_000_000), 1024).estimated_bytes,
        partitions=20,
        passes=1,
        broadcast=False,
        scratch_bytes=11_000_000 * 36,
    )
    tight = fit(need(5_000_000), 90, page_mib=4)
    assert (tight.partitions, tight.passes) == (20, 1)
    tighter = fit(need(5_000_000), 64, page_mib=4)
    assert tighter.partitions > tight.partitions
    assert tighter.estimated_bytes <= 64 * MIB < tight.estimated_bytes


def test_fifty_million_keys_fit_a_heap_of_600_mib() -> None:
    # Of 600 MiB Spark leaves (600 - 300) x 0.6 to execution and storage; half of that is the default.
    found = fit(need(50_000_000), 90, page_mib=4)
    assert found == Preflight(88 * MIB, 200, 1, broadcast=False, scratch_bytes=56_000_000 * 36)


def test_more_keys_than_partitions_can_split_come_in_passes() -> None:
    found = fit(need(500_000_000), 90, page_mib=4)
    assert found.passes > 1
    assert found.partitions <= 200
    assert found.estimated_bytes <= 90 * MIB


def test_scratch_limit_splits_into_passes() -> None:
    found = fit(need(5_000_000), 1024, scratch_bytes=100_000_000)
    assert (found.passes, found.scratch_bytes) == (4, 99_000_000)


def test_correction_scales_the_keys_that_are_expected() -> None:
    plain, learned = fit(need(4_000_000), 1024), fit(need(4_000_000, correction=0.5), 1024)
    assert learned.partitions == plain.partitions == 16
    # Of 250,000 keys, of 125,000: what a task takes at least stays as it is.
    assert (plain.estimated_bytes, learned.estimated_bytes) == (96 * MIB, 56 * MIB)


def test_more_tasks_at_once_need_more() -> None:
    two, four = fit(need(4_000_000), 4096), fit(need(4_000_000), 4096, slots=4)
    assert four.estimated_bytes == 2 * two.estimated_bytes


def test_memory_below_a_few_pages_is_refused_with_both_numbers() -> None:
    with pytest.raises(
        DoesNotFitError, match=r"memory: .* bytes are needed, 33554432 are declared"
    ) as refused:
        fit(need(1_000_000), 32)
    assert refused.value.resource == "memory"
    assert refused.value.declared_bytes == 32 * MIB
    # First page, one page of each map, the smallest slots of one.
    assert refused.value.needed_bytes == 2 * (24 * MIB + 256 * KIB)


def test_scratch_below_the_most_passes_is_refused_with_both_numbers() -> None:
    with pytest.raises(DoesNotFitError) as refused:
        fit(need(5_000_000), 1024, scratch_bytes=1 * MIB)
    assert refused.value.resource == "scratch"
    assert (refused.value.needed_bytes, refused.value.declared_bytes) == (11_000_000 * 36 // 64, MIB)


def test_driver_needs_memory_by_file_and_by_bitmap_of_rows() -> None:
    assert driver_bytes(0, 0) == 128 * MIB
    assert driver_bytes(20_000, 0) - driver_bytes(0, 0) == 20_000 * 12 * KIB
    # A bit for every row, twice.
    assert driver_bytes(0, 1 << 30) - driver_bytes(0, 0) == 256 * MIB


def test_filter_of_up_to_four_million_keys_pays() -> None:
    def filtered(keys: int) -> bool:
        return fit(need(keys, rows=40_000_000), 4096).filtered

    assert (filtered(4_000_000), filtered(4_000_001)) == (True, False)


def test_filter_pays_if_the_driver_and_each_slot_hold_eight_bytes_a_key() -> None:
    most = 48 * MIB // (3 * 8)
    assert fit(need(most, rows=40_000_000), 48, page_mib=2).filtered
    assert not fit(need(most + 1, rows=40_000_000), 48, page_mib=2).filtered
