"""From overlapping files to a plan that sorts them: what is due, what is taken, what is left to others."""

from __future__ import annotations

from dataclasses import replace

import pytest

from iceberg_maint.core.health.layout import Overlap
from iceberg_maint.core.health.metrics import PartitionHealth
from iceberg_maint.core.health.thresholds import findings
from iceberg_maint.core.model.reasons import Check, Finding, Reason, Severity
from iceberg_maint.core.model.table_state import FileKind, LayoutOrder, LiveFile, SortColumn
from iceberg_maint.core.outcomes.outcome import gained
from iceberg_maint.core.planning.plan import Plan
from iceberg_maint.core.planning.work import LayoutGain, PlannedLayout, layout_gain
from iceberg_maint.core.policy.data import LayoutPolicy, OutputSpec, Policy, RewriteDataFilesPolicy
from iceberg_maint.core.policy.runs import WindowsPolicy
from iceberg_maint.errors import ConfigurationError
from iceberg_maint.loop.read_table import with_order
from iceberg_maint_tests.support.core.values import NOW_MS, TARGET, data, delete, rewrite_policy, table_of
from iceberg_maint_tests.support.core.values import plan as plan_of
from iceberg_maint_tests.support.fakes.catalog import FakeTable, measure_files

ID = SortColumn("id", 1, "long")
ORDER = LayoutOrder((ID,), (ID,), sort_order_id=7)


def ranged(name: str, low: int, high: int, size: int = TARGET, **keys: object) -> LiveFile:
    return replace(data(name, size, **keys), ranges=((low, high),))  # type: ignore[arg-type]


def wide(count: int, size: int = TARGET, **keys: object) -> list[LiveFile]:
    return [ranged(f"w{n}", 0, 100, size, **keys) for n in range(count)]


def planned(files: list[LiveFile], layout: LayoutPolicy | None = None, **rewrite: object) -> Plan:
    return plan_of(in_order(files), policy(layout, **rewrite))


def policy(
    layout: LayoutPolicy | None = None, windows: WindowsPolicy | None = None, **rewrite: object
) -> Policy:
    return Policy(
        rewrite_data_files=rewrite_policy(**rewrite),
        layout=layout or LayoutPolicy(),
        windows=windows or WindowsPolicy(),
    )


def in_order(files: list[LiveFile]) -> FakeTable:
    table = table_of(files)
    return replace(table, state=replace(table.state, order=ORDER))


def overlapping(depth_sum: int, files: int = 10, columns: int = 1) -> PartitionHealth:
    return PartitionHealth(
        data_files=files, sort_ranges=files * columns, overlap_depth_sum=depth_sum, max_overlap_depth=files
    )


@pytest.mark.parametrize(
    ("depth_sum", "severity", "threshold", "key"),
    [
        (20, None, None, ""),
        (21, Severity.WARN, 2.0, "layout.overlap_depth_warn"),
        (40, Severity.WARN, 2.0, "layout.overlap_depth_warn"),
        (41, Severity.ERROR, 4.0, "layout.overlap_depth_act"),
    ],
)
def test_overlap_beyond_a_threshold_is_found(
    depth_sum: int, severity: Severity | None, threshold: float | None, key: str
) -> None:
    found = findings(overlapping(depth_sum), RewriteDataFilesPolicy(), TARGET, NOW_MS, LayoutPolicy())
    if severity is None:
        assert found == ()
    else:
        assert threshold is not None
        assert found == (
            Finding(Check.LAYOUT, severity, Reason.LAYOUT, "overlap_depth", depth_sum / 10, threshold, key),
        )


def test_overlap_of_a_z_order_is_judged_by_what_it_can_be() -> None:
    # 16 files by two columns: 4 is ideal, 16 the limit.
    limit = overlapping(16 * 2 * 16, files=16, columns=2)
    policy = LayoutPolicy(overlap_depth_warn=None)
    assert findings(limit, RewriteDataFilesPolicy(), TARGET, NOW_MS, policy) == ()
    [over] = findings(replace(limit, overlap_depth_sum=513), RewriteDataFilesPolicy(), TARGET, NOW_MS, policy)
    assert over.threshold == 16


def test_overlap_of_a_disabled_layout_is_no_finding() -> None:
    health = overlapping(100)
    assert findings(health, RewriteDataFilesPolicy(), TARGET, NOW_MS, LayoutPolicy(enabled=False)) == ()
    off = LayoutPolicy(overlap_depth_warn=None, overlap_depth_act=None)
    assert findings(health, RewriteDataFilesPolicy(), TARGET, NOW_MS, off) == ()


def test_health_counts_depth_per_partition_and_files_out_of_order() -> None:
    unknown = replace(data("x", TARGET), ranges=(None,))
    sorted_file = replace(ranged("y", 200, 300), sort_order_id=7)
    table = in_order([*wide(3), unknown, sorted_file, ranged("z", 0, 1, partition="p=b")])
    health = measure_files(table, RewriteDataFilesPolicy()).partitions
    a, b = health["p=a"], health["p=b"]
    assert (a.sort_ranges, a.overlap_depth_sum, a.max_overlap_depth, a.overlap_depth) == (4, 10, 3, 2.5)
    assert (a.unbounded_files, a.unsorted_files) == (1, 4)
    assert (b.sort_ranges, b.overlap_depth, b.unsorted_files) == (1, 1, 1)


def test_plan_sorts_the_files_behind_the_depth_only() -> None:
    narrow = [ranged(f"n{i}", i * 10, i * 10 + 10) for i in range(10)]
    plan = planned([*narrow, *wide(6)])
    [batch] = plan.batches
    assert (batch.strategy, batch.reasons) == ("sorted", (Reason.LAYOUT,))
    assert batch.paths() == {f"w{n}" for n in range(6)}
    # Six files of full size, all over each other, become six side by side.
    assert batch.work.layout == PlannedLayout(ORDER, Overlap(6, 36, 6), Overlap(6, 6, 1))
    assert plan.leftovers == ()


def test_plan_of_a_sorted_partition_is_empty() -> None:
    assert planned([ranged(f"n{i}", i * 10, i * 10 + 10) for i in range(10)]).batches == ()


def test_plan_merges_small_files_that_overlap_by_sorting_them() -> None:
    [batch] = planned(wide(10, size=10)).batches
    assert (batch.strategy, batch.input_files, batch.expected_output_files) == ("sorted", 10, 1)


def test_plan_keeps_small_files_aside_from_those_to_be_sorted() -> None:
    small = [ranged(f"s{i}", 1000 + i, 1001 + i, size=10) for i in range(8)]
    plan = planned([*wide(20), *small])
    assert [(b.strategy, b.input_files) for b in plan.batches] == [("sorted", 20), ("columnar", 8)]
    assert plan.batches[1].work.layout is None


def test_plan_leaves_files_under_equality_deletes_to_the_rewrite_that_applies_them() -> None:
    """Rows are deleted first; what is left of the drift is sorted after that."""
    old = delete("e", FileKind.EQUALITY_DELETES, seq=5)
    plan = planned([*wide(8), old], delete_ratio_act=None)
    assert [b.strategy for b in plan.batches if b.work.layout is not None] == []
    assert planned([*wide(8, seq=6), old]).batches[0].strategy == "sorted"


def test_plan_sorts_in_windows_each_a_batch_of_its_own() -> None:
    windows = WindowsPolicy(max_bytes_per_batch=4 * TARGET)
    plan = plan_of(in_order(wide(8)), policy(windows=windows))
    assert [(b.strategy, b.input_files) for b in plan.batches] == [("sorted", 4), ("sorted", 4)]
    assert [b.work.layout.predicted.depth for b in plan.batches if b.work.layout] == [1, 1]


def test_plan_does_not_sort_what_policy_moves_to_another_spec() -> None:
    table = in_order(wide(8))
    moved = replace(table, state=replace(table.state, current_spec_id=9))
    plan = plan_of(moved, policy(output_spec=OutputSpec.CURRENT))
    assert [b for b in plan.batches if b.work.layout is not None] == []


def test_plan_without_a_gain_is_none_and_says_so() -> None:
    # Too large for a batch, each of them.
    windows = WindowsPolicy(max_bytes_per_batch=TARGET - 1)
    plan = plan_of(in_order(wide(8)), policy(windows=windows))
    assert plan.batches == ()
    assert {one.reason for one in plan.leftovers} == {Reason.NO_GAIN}


CONTENT = (
    '{{"spec-id":0,"content":"data","file-path":"f","file-format":"parquet","record-count":1,'
    '"file-size-in-bytes":10,"lower-bounds":{{"keys":[1,2],"values":["{low:02X}000000","61"]}},'
    '"upper-bounds":{{"keys":[1,2],"values":["{high:02X}000000","62"]}}}}'
)


def test_gain_is_measured_of_the_files_written_group_by_group() -> None:
    plan = PlannedLayout(
        LayoutOrder((replace(ID, type="int"),), (replace(ID, type="int"),)),
        Overlap(4, 16, 4),
        Overlap(4, 4, 1),
    )
    written = [
        (0, CONTENT.format(low=0, high=9)),
        (0, CONTENT.format(low=5, high=12)),
        (1, CONTENT.format(low=0, high=9)),
    ]
    assert layout_gain(plan, written) == LayoutGain(4, 1, pytest.approx(4 / 3))
    # Nothing is written when every row was deleted.
    assert layout_gain(plan, []) == LayoutGain(4, 1, 0)


def test_sort_that_lowers_the_depth_improves_and_one_that_does_not_has_no_effect() -> None:
    [batch] = planned(wide(6)).batches
    sizes = [TARGET] * 6
    assert gained(batch, sizes, 0, 0, 180, LayoutGain(6, 1, 1.5))
    assert not gained(batch, sizes, 0, 0, 180, LayoutGain(6, 1, 6))


def test_policy_that_names_a_column_the_table_lacks_is_refused() -> None:
    with pytest.raises(ConfigurationError, match=r"ICM-100 lake\.db\.t: layout\.sort_by names 'nosuch'"):
        with_order(in_order([]).state, policy(LayoutPolicy(sort_by=("nosuch",))))
