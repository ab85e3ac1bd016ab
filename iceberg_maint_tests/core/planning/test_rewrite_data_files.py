"""Plans: which files, which groups, which batches; caps; the fixed point."""

from __future__ import annotations

import itertools
from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from iceberg_maint.core.model.partition_key import PartitionSpec
from iceberg_maint.core.model.reasons import Decision, Reason, Verdict
from iceberg_maint.core.model.table_state import FileKind, LiveFile
from iceberg_maint.core.planning.plan import Leftover, Plan, batch_of_text, batch_text
from iceberg_maint.core.policy.data import OutputSpec, Policy
from iceberg_maint.core.policy.runs import WindowsPolicy
from iceberg_maint_tests.support.core.values import (
    NOW_MS,
    data,
    decide,
    delete,
    due,
    plan,
    policy_of,
    rewrite_policy,
    small,
    table_of,
)
from iceberg_maint_tests.support.examples import examples
from iceberg_maint_tests.support.fakes.catalog import FakeTable

EQ, POS, DV = FileKind.EQUALITY_DELETES, FileKind.POSITION_DELETES, FileKind.DELETION_VECTOR


def groups_of(found: Plan) -> list[list[str]]:
    return [[f.path for f in g.files] for b in found.batches for g in b.groups]


def test_plan_small_files_become_one_group() -> None:
    table = table_of([*small(6), data("big", 100)])
    found = plan(table, policy_of())
    assert groups_of(found) == [[f"p=a/{i}" for i in range(6)]]
    (batch,) = found.batches
    assert (batch.input_files, batch.input_bytes, batch.expected_output_files) == (6, 60, 1)
    assert batch.reasons == (Reason.SMALL_FILES,)
    assert (batch.snapshot_id, batch.snapshot_sequence_number, batch.schema_id) == (1001, 1, 0)
    assert (batch.table, batch.table_uuid, batch.format_version) == ("lake.db.t", "uuid-of-lake.db.t", 2)
    assert found.leftovers == ()


def test_plan_is_named_by_its_content() -> None:
    table = table_of(small(6))
    first, again = plan(table, policy_of()), plan(table, policy_of())
    assert first == again
    assert [batch_of_text(batch_text(b)) for b in first.batches] == list(first.batches)
    other = plan(table_of(small(7)), policy_of())
    assert other.plan_id != first.plan_id
    assert other.batches[0].batch_id != first.batches[0].batch_id


def test_plan_of_a_table_without_snapshot_is_empty() -> None:
    table = table_of([])
    found = plan(table, policy_of())
    assert (found.snapshot_id, found.batches, found.leftovers) == (None, (), ())


def test_plan_one_small_file_is_no_gain() -> None:
    table = table_of(small(1))
    forced = replace(decide(table, policy_of()).partitions[0], verdict=Verdict.RUN, reason=Reason.SMALL_FILES)
    found = plan(table, policy_of(), replace(decide(table, policy_of()), partitions=(forced,)))
    assert found.batches == ()
    assert found.leftovers == (Leftover("p=a", Reason.NO_GAIN),)


def test_plan_files_of_two_specs_are_never_grouped_together() -> None:
    specs = (PartitionSpec(0, ()), PartitionSpec(1, ()))
    files = [
        data(f"{spec_id}/{i}", 10, partition="__all__", spec_id=spec_id)
        for spec_id, i in itertools.product((1, 0), range(5))
    ]
    found = plan(table_of(files, specs=specs), policy_of())
    assert [(g.spec_id, g.output_spec_id, len(g.files)) for b in found.batches for g in b.groups] == [
        (0, 0, 5),
        (1, 1, 5),
    ]
    moved = plan(table_of(files, specs=specs), policy_of(rewrite_policy(output_spec=OutputSpec.CURRENT)))
    assert [(g.spec_id, g.output_spec_id) for b in moved.batches for g in b.groups] == [(0, 1), (1, 1)]


def test_plan_group_cap_splits_in_order() -> None:
    found = plan(table_of(small(12)), policy_of(rewrite_policy(max_group_bytes=60)))
    assert [len(g) for g in groups_of(found)] == [6, 6]
    assert len(found.batches) == 1


def test_plan_remainder_below_min_input_files_stays() -> None:
    found = plan(table_of(small(14)), policy_of(rewrite_policy(max_group_bytes=60)))
    assert [len(g) for g in groups_of(found)] == [6, 6]


def test_plan_enough_content_makes_a_group_without_min_input_files() -> None:
    files = [*small(5), data("l1", 60, partition="p=b"), data("l2", 60, partition="p=b")]
    due = decide(table_of(files), policy_of())
    both = tuple(replace(p, verdict=Verdict.RUN, reason=Reason.SMALL_FILES) for p in due.partitions)
    found = plan(table_of(files), policy_of(), replace(due, partitions=both))
    # 120 bytes would be two files again: Iceberg rewrites these, we do not.
    assert groups_of(found) == [[f"p=a/{i}" for i in range(5)]]
    assert found.leftovers == (Leftover("p=b", Reason.NO_GAIN),)


def test_plan_large_file_is_split_along() -> None:
    found = plan(table_of([*small(5), data("large", 181)]), policy_of())
    assert groups_of(found) == [["p=a/0", "p=a/1", "p=a/2", "p=a/3", "p=a/4", "large"]]


def test_plan_healthy_sizes_are_left_alone() -> None:
    files = [*small(5), data("min", 75), data("max", 180)]
    assert groups_of(plan(table_of(files), policy_of())) == [[f"p=a/{i}" for i in range(5)]]


def test_plan_deletes_ask_for_files_of_good_size() -> None:
    files = [data("a", 100), data("b", 100), delete("d", POS, of="a", records=6)]
    found = plan(table_of(files), policy_of())
    assert groups_of(found) == [["a"]]
    (batch,) = found.batches
    assert batch.groups[0].files[0].delete_files == ("d",)
    assert batch.reasons == (Reason.DELETE_RATIO,)


def test_plan_partition_scoped_deletes_take_every_file_they_may_mark() -> None:
    files = [data("a", 100), data("b", 100), data("later", 100, seq=3), delete("d", POS, records=9)]
    found = plan(table_of(files), policy_of())
    assert groups_of(found) == [["a", "b"]]


def test_plan_files_younger_than_a_delete_are_not_its_business() -> None:
    """A rewrite keeps the data sequence number, so the delete it applied still applies by number;
    taking it for work would rewrite the partition for ever."""
    rewritten = replace(data("a", 100, seq=2), file_sequence_number=3)
    scoped = delete("d", POS, seq=2, records=9)
    table = table_of([rewritten, scoped])
    for policy in (policy_of(), policy_of(rewrite_policy(max_delete_files=0))):
        assert decide(table, policy).reason is Reason.HEALTHY
        asked = decide(table, policy)
        ratio = replace(asked, partitions=(due(reason=Reason.DELETE_RATIO),))
        found = plan(table, policy, ratio)
        assert (found.batches, found.leftovers) == ((), (Leftover("p=a", Reason.NO_GAIN),))
    older = replace(rewritten, file_sequence_number=2)
    assert groups_of(plan(table_of([older, scoped]), policy_of())) == [["a"]]


def test_plan_too_many_files_takes_each_file_below_the_average() -> None:
    limits = rewrite_policy(small_file_ratio=0.0, max_files=6, max_files_average_bytes=5)
    found = plan(table_of([*small(7, 4), data("average", 5)]), policy_of(limits))
    assert groups_of(found) == [[f"p=a/{n}" for n in range(7)]]


def test_plan_files_at_the_largest_size_are_not_split() -> None:
    """A rewrite of the two would write four."""
    limits = rewrite_policy(max_files=1, max_files_average_bytes=200, max_group_bytes=360)
    found = plan(table_of([data("a", 180), data("b", 180), *small(7, 4)]), policy_of(limits))
    assert groups_of(found) == [[f"p=a/{n}" for n in range(7)]]


def test_plan_too_many_delete_files_takes_each_file_with_deletes() -> None:
    files = [data("a", 100), data("b", 100, records=1000), delete("v", DV, of="b")]
    found = plan(table_of(files), policy_of(rewrite_policy(max_delete_files=0)))
    assert groups_of(found) == [["b"]]


def test_plan_forced_takes_every_file() -> None:
    table = table_of([data("a", 100), data("b", 100)])
    found = plan(table, policy_of(), decide(table, policy_of(), requested=frozenset({"p=a"}), force=True))
    assert groups_of(found) == [["a", "b"]]


def test_plan_deferred_and_refused_partitions_are_leftovers() -> None:
    files = [
        *small(6),
        *small(6, partition="p=b"),
        *small(6, partition="p=c"),
        data("x", 100, partition="p=d"),
    ]
    windows = WindowsPolicy(max_partitions_per_run=1)
    found = plan(table_of(files), policy_of(windows=windows))
    assert found.leftovers == (
        Leftover("p=b", Reason.RUN_BUDGET, bytes=60),
        Leftover("p=c", Reason.RUN_BUDGET, bytes=60),
    )


def test_plan_partition_above_the_run_cap_is_done_in_parts() -> None:
    table = table_of(small(40))
    found = plan(table, policy_of(windows=WindowsPolicy(max_bytes_per_run=150)))
    assert [len(g) for g in groups_of(found)] == [15]
    assert found.leftovers == (Leftover("p=a", Reason.RUN_BUDGET, 25, 250),)


def test_plan_file_above_a_batch_is_left_over() -> None:
    table = table_of([*small(6), data("huge", 500)])
    found = plan(table, policy_of(windows=WindowsPolicy(max_bytes_per_batch=400)))
    assert groups_of(found) == [[f"p=a/{i}" for i in range(6)]]
    assert found.leftovers == (Leftover("p=a", Reason.FILE_TOO_LARGE, 1, 500),)


@pytest.mark.parametrize(("left_bytes", "files", "size"), [(5, 6, 60), (15, 0, 0)])
def test_plan_what_the_hour_has_no_room_for_is_not_called_hopeless(
    left_bytes: int, files: int, size: int
) -> None:
    """Neither too large nor without gain: these two are backed off, and end in quarantine."""
    table, policy = table_of(small(6)), policy_of(windows=WindowsPolicy(max_bytes_per_hour=1000))
    decision = replace(decide(table, policy), budget_bytes=left_bytes, budget_reason=Reason.HOUR_BUDGET)
    found = plan(table, policy, decision)
    assert found.batches == ()
    assert found.leftovers == (Leftover("p=a", Reason.HOUR_BUDGET, files, size),)


def test_plan_file_above_the_whole_hour_is_too_large() -> None:
    table, policy = table_of([*small(6), data("huge", 500)]), WindowsPolicy(max_bytes_per_hour=400)
    found = plan(table, policy_of(windows=policy))
    assert groups_of(found) == [[f"p=a/{i}" for i in range(6)]]
    assert found.leftovers == (Leftover("p=a", Reason.FILE_TOO_LARGE, 1, 500),)


@pytest.mark.parametrize(
    ("windows", "batches"),
    [
        (WindowsPolicy(max_partitions_per_batch=2), [2, 2, 1]),
        (WindowsPolicy(max_files_per_batch=12), [2, 2, 1]),
        (WindowsPolicy(max_bytes_per_batch=179), [2, 2, 1]),
        (WindowsPolicy(max_bytes_per_batch=180), [3, 2]),
    ],
)
def test_plan_batches_hold_their_caps(windows: WindowsPolicy, batches: list[int]) -> None:
    files = [f for p in "abcde" for f in small(6, partition=f"p={p}")]
    found = plan(table_of(files), policy_of(windows=windows))
    assert [len(b.partitions) for b in found.batches] == batches


def test_partitions_that_work_alone_share_no_batch_and_the_others_share_theirs() -> None:
    files = [f for p in "abcde" for f in small(6, partition=f"p={p}")]
    found = plan(table_of(files), policy_of(), alone=frozenset({"p=b", "p=d"}))
    assert [b.partitions for b in found.batches] == [("p=a", "p=c", "p=e"), ("p=b",), ("p=d",)]


sizes = st.one_of(st.integers(1, 74), st.integers(75, 180), st.integers(181, 700))


@st.composite
def tables(draw: st.DrawFn) -> FakeTable:
    files: list[LiveFile] = []
    for p in draw(st.lists(st.sampled_from("abc"), min_size=1, max_size=3, unique=True)):
        key = f"p={p}"
        for i, size in enumerate(draw(st.lists(sizes, min_size=1, max_size=25))):
            path = f"{key}/{i}"
            files.append(data(path, size, partition=key, seq=draw(st.integers(1, 3))))
            if draw(st.integers(0, 3)) == 0:
                records = draw(st.integers(1, 10))
                files.append(delete(f"{path}.dv", DV, of=path, partition=key, seq=4, records=records))
        if draw(st.integers(0, 5)) == 0:
            files.append(delete(f"{key}/eq", EQ, partition=key, seq=draw(st.integers(1, 4))))
    return table_of(files, format_version=3)


policies = st.builds(
    lambda group, batch, files, run, parts, max_files, max_deletes: policy_of(
        rewrite_policy(max_group_bytes=group, max_files=max_files, max_delete_files=max_deletes),
        WindowsPolicy(
            max_bytes_per_batch=batch,
            max_files_per_batch=files,
            max_bytes_per_run=run,
            max_partitions_per_batch=parts,
        ),
    ),
    st.integers(100, 3000),
    st.integers(100, 3000),
    st.integers(2, 30),
    st.one_of(st.none(), st.integers(50, 4000)),
    st.integers(1, 3),
    st.one_of(st.none(), st.integers(1, 10)),
    st.one_of(st.none(), st.integers(0, 5)),
)


@settings(max_examples=examples(300), deadline=None)
@given(table=tables(), policy=policies)
def test_plan_holds_every_cap_and_takes_every_input_once(table: FakeTable, policy: Policy) -> None:
    found = plan(table, policy)
    live = {f.path: f for f in table.live_files}
    taken = Counter(path for group in groups_of(found) for path in group)
    assert set(taken.values()) <= {1}
    run_bytes = policy.windows.max_bytes_per_run
    assert run_bytes is None or found.input_bytes <= run_bytes
    for batch in found.batches:
        assert batch.input_bytes <= policy.windows.max_bytes_per_batch
        assert batch.input_files <= policy.windows.max_files_per_batch
        assert len(batch.partitions) <= policy.windows.max_partitions_per_batch
        for group in batch.groups:
            alone = len(group.files) == 1
            assert alone or group.input_bytes <= policy.rewrite_data_files.max_group_bytes
            for file in group.files:
                assert live[file.path].partition == group.partition
                assert live[file.path].spec_id == group.spec_id == group.output_spec_id
                assert live[file.path].size_bytes == file.size_bytes


def heal(table: FakeTable, found: Plan) -> FakeTable:
    """The table after the plan: inputs and their deletes gone, outputs of equal size in place."""
    gone = {f.path for b in found.batches for g in b.groups for f in g.files}
    fresh = itertools.count()
    files = [f for f in table.live_files if f.path not in gone and f.referenced_data_file not in gone]
    for group in (g for b in found.batches for g in b.groups):
        parts = group.expected_output_files
        for i in range(parts):
            size = group.input_bytes // parts + (i < group.input_bytes % parts)
            files.append(data(f"new/{found.plan_id}/{next(fresh)}", size, partition=group.partition, seq=4))
    healed = table_of(files, format_version=table.state.format_version)
    return FakeTable(replace(healed.state, snapshot=table.state.snapshot), healed.live_files)


@settings(max_examples=examples(300), deadline=None)
@given(table=tables(), policy=policies)
def test_plan_reaches_a_fixed_point_and_every_step_gains(table: FakeTable, policy: Policy) -> None:
    """Maintenance shrinks its own candidate set: no furnace, whatever the sizes and caps."""
    for _ in range(60):
        found = plan(table, policy)
        if not found.batches:
            break
        before, table = table, heal(table, found)
        files = [sum(f.kind is FileKind.DATA for f in t.live_files) for t in (before, table)]
        deletes = [sum(f.kind is not FileKind.DATA for f in t.live_files) for t in (before, table)]
        large = [
            sum(f.kind is FileKind.DATA and f.size_bytes > 180 for f in t.live_files) for t in (before, table)
        ]
        assert files[1] < files[0] or deletes[1] < deletes[0] or large[1] < large[0]
    else:
        pytest.fail("still planning after 60 rounds")


@settings(max_examples=examples(300), deadline=None)
@given(table=tables())
def test_plan_without_caps_leaves_nothing_due(table: FakeTable) -> None:
    """One round of the built-in policy: afterwards the judge finds no partition due but those
    refused for equality deletes."""
    policy = policy_of()
    after: Decision = decide(heal(table, plan(table, policy)), policy, now_ms=NOW_MS)
    assert {p.verdict for p in after.partitions} <= {Verdict.SKIP, Verdict.REFUSE}
