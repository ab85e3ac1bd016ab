"""The size of batches after conflicts, as a function of the recorded trials."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from iceberg_maint.core.model.table_state import LiveFile
from iceberg_maint.core.planning.batch_trials import BatchSize, CommitTrial, batch_limit, limited
from iceberg_maint.core.planning.file_groups import BatchLimits, PlanInputs
from iceberg_maint.core.planning.plan import Plan
from iceberg_maint.core.planning.rewrite_data_files import plan_rewrite
from iceberg_maint.core.policy.runs import WindowsPolicy
from iceberg_maint_tests.support.core.values import data, decide, policy_of, rewrite_policy, small, table_of

LARGE = BatchSize(80, 8000, 8)
HALF = BatchSize(40, 4000, 4)


def trial(run: int, size: BatchSize = LARGE, *, landed: bool = False) -> CommitTrial:
    return CommitTrial(f"run-{run}", size, landed)


def test_limit_without_a_lost_batch_is_none() -> None:
    assert batch_limit(()) is None
    assert batch_limit([trial(1, landed=True), trial(2, landed=True)]) is None


def test_limit_after_a_lost_batch_is_half_of_it() -> None:
    assert batch_limit([trial(1)]) == HALF
    assert batch_limit([trial(1, landed=True), trial(1), trial(1, landed=True)]) == HALF


def test_limit_after_several_lost_batches_of_a_run_is_half_of_the_smallest() -> None:
    other = BatchSize(60, 9000, 2)
    assert batch_limit([trial(1), trial(1, other), trial(1)]) == BatchSize(30, 4000, 1)


def test_limit_halves_with_each_run_that_loses_and_stays_above_zero() -> None:
    assert batch_limit([trial(1), trial(2, HALF)]) == BatchSize(20, 2000, 2)
    assert batch_limit([trial(1, BatchSize(1, 1, 1))]) == BatchSize(1, 1, 1)


def test_limit_doubles_with_each_run_that_lands_until_it_contains_the_first_lost_batch() -> None:
    quarter = BatchSize(20, 2000, 2)
    lost = [trial(1), trial(2, HALF)]
    assert batch_limit([*lost, trial(3, quarter, landed=True)]) == HALF
    assert batch_limit([*lost, *[trial(3, quarter, landed=True)] * 4]) == HALF
    assert batch_limit([*lost, trial(3, landed=True), trial(4, landed=True)]) is None
    assert batch_limit([*lost, trial(3, landed=True), trial(4, landed=True), trial(5)]) == HALF


SIZES = st.builds(BatchSize, *[st.integers(1, 1 << 40)] * 3)


@given(st.lists(st.builds(CommitTrial, st.sampled_from("abc"), SIZES, st.booleans()), max_size=12))
def test_limit_is_never_larger_than_half_of_a_batch_lost_in_the_last_run(trials: list[CommitTrial]) -> None:
    limit = batch_limit(trials)
    last = trials[-1].run_id if trials else ""
    of_last = []
    for one in reversed(trials):
        if one.run_id != last:
            break
        of_last.append(one)
    for lost in (t.size for t in of_last if not t.landed):
        assert limit is not None
        assert lost.halved().contains(limit)


def test_limited_windows_keep_the_policy_where_it_is_smaller() -> None:
    windows = WindowsPolicy(max_files_per_batch=50, max_bytes_per_batch=3000, max_partitions_per_batch=9)
    assert limited(windows, None) == windows
    assert limited(windows, HALF) == replace(windows, max_files_per_batch=40, max_partitions_per_batch=4)
    assert limited(windows, BatchSize(1, 1, 1)).max_files_per_batch == 2


def plan_with(limit: BatchSize | None, count: int, partitions: str) -> Plan:
    files = [f for p in partitions for f in small(count, partition=f"p={p}")]
    return plan_of(files, limit)


def plan_of(files: Sequence[LiveFile], limit: BatchSize | None) -> Plan:
    table = table_of(files)
    policy = policy_of(rewrite_policy(min_input_files=2))
    decision = decide(table, policy)
    return plan_rewrite(PlanInputs(table.state, decision, table.live_files, policy, 100, BatchLimits(limit)))


def test_plan_after_a_conflict_splits_a_batch_of_several_partitions() -> None:
    whole = plan_with(None, 6, "abcd")
    assert [len(b.partitions) for b in whole.batches] == [4]
    assert [len(b.partitions) for b in plan_with(BatchSize(12, 120, 2), 6, "abcd").batches] == [2, 2]
    assert plan_with(BatchSize(12, 120, 2), 6, "abcd").leftovers == whole.leftovers


def test_plan_after_a_conflict_splits_the_files_of_one_partition_as_long_as_each_part_gains() -> None:
    assert [b.input_files for b in plan_with(None, 80, "a").batches] == [80]
    assert [b.input_files for b in plan_with(BatchSize(40, 400, 1), 80, "a").batches] == [40, 40]
    assert [b.input_files for b in plan_with(BatchSize(1, 1, 1), 80, "a").batches] == [20, 20, 20, 20]


def test_plan_after_a_conflict_splits_large_files_two_by_two() -> None:
    found = plan_of([*(data(str(n), 300) for n in range(4)), *small(6)], BatchSize(1, 1, 1))
    assert [b.input_files for b in found.batches] == [2, 2, 6]
