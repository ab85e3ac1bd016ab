"""What `plan` shows as due and not planned: no partition is on both lists without the files or the operation that differ."""

from __future__ import annotations

from dataclasses import replace
from io import StringIO

from rich.console import Console

from iceberg_maint.cli.plan import draw_unplanned
from iceberg_maint.core.model.reasons import Decision, PartitionDecision, Reason, Verdict
from iceberg_maint.core.planning.plan import Leftover, Plan
from iceberg_maint.core.policy.runs import WindowsPolicy
from iceberg_maint_tests.support.core.equality_deletes import (
    CONVERT,
    REWRITE,
    cleaning,
    equality,
    global_table,
)
from iceberg_maint_tests.support.core.values import data, decide, plan, policy_of, small, table_of
from iceberg_maint_tests.support.fakes.catalog import FakeTable


def drawn(*parts: tuple[Plan, Decision]) -> list[str]:
    text = StringIO()
    draw_unplanned(Console(file=text, width=400), parts)
    lines = text.getvalue().splitlines()
    return [" ".join(line.split()) for line in lines[3:]]


def planned(table: FakeTable, policy: object, operation: object) -> tuple[Plan, Decision]:
    decision = decide(table, policy, operation=operation)  # type: ignore[arg-type]
    return plan(table, policy, decision), decision  # type: ignore[arg-type]


def test_deferred_partition_that_a_batch_of_its_unit_has_is_not_named() -> None:
    policy = cleaning(WindowsPolicy(max_bytes_per_run=256, max_bytes_per_batch=256))
    made, decision = planned(global_table(), policy, CONVERT)
    deferred = [p.partition for p in decision.partitions if p.verdict is Verdict.DEFER]
    assert deferred
    assert set(deferred) <= {p for b in made.batches for p in b.partitions}
    assert drawn((made, decision)) == []


def test_partition_that_is_planned_in_part_is_named_with_its_rest() -> None:
    policy = policy_of(windows=WindowsPolicy(max_bytes_per_run=60))
    part = planned(table_of(small(12)), policy, REWRITE)
    assert [b.input_files for b in part[0].batches] == [6]
    assert drawn(part) == [
        "p=a waiting the rest, 6 files with 60 B: left for a later run: this run's budget, or its --max-batches, is used up"
    ]


def test_other_operation_that_waits_is_named_and_its_no_gain_is_not() -> None:
    rewrite = planned(table_of(small(6)), policy_of(), REWRITE)
    held = PartitionDecision(
        rewrite[0].batches[0].partitions[0], Verdict.DEFER, Reason.BACK_OFF, operation=CONVERT
    )
    nothing = replace(rewrite[0], operation=CONVERT, batches=())
    waits = replace(rewrite[1], operation=CONVERT, partitions=(held,))
    assert drawn((nothing, waits), rewrite) == [
        "p=a waiting convert_equality_deletes: waits after an attempt that failed, crashed, gained nothing or lost to other writers"
    ]
    idle = replace(nothing, leftovers=(Leftover(held.partition, Reason.NO_GAIN),))
    assert drawn((idle, replace(waits, partitions=())), rewrite) == []


def test_files_that_both_operations_leave_are_named_once_with_their_number() -> None:
    files = [*small(6), equality("e", keys=(2,)), *(data(f"y{i}", 10, seq=9) for i in range(6))]
    table = table_of(files)
    table = FakeTable(replace(table.state, key_types={1: "long", 2: "double"}), table.live_files)
    both = [planned(table, cleaning(), o) for o in (CONVERT, REWRITE)]
    assert [len(made.batches) for made, _ in both] == [0, 1]
    assert drawn(*both) == [
        "p=a waiting the rest, 6 files with 60 B: equality deletes on a dropped, floating-point or repeated column; they cannot be applied safely"
    ]
