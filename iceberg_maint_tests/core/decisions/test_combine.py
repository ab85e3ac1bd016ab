"""Several operations' decisions as one view of the table."""

from __future__ import annotations

from dataclasses import replace

import pytest

from iceberg_maint.core.decisions.history import PartitionHistory, TableHistory
from iceberg_maint.core.decisions.table_decision import combine_decisions
from iceberg_maint.core.model.ids import Operation
from iceberg_maint.core.model.reasons import Reason, Verdict
from iceberg_maint_tests.core.decisions.test_decide import (
    CONVERT,
    HEALTHY,
    REWRITE,
    SICK,
    UNDER_OLD,
    decide,
    past,
)
from iceberg_maint_tests.support.core.values import NOW_MS


def test_joint_takes_the_gravest_verdict_of_each_partition_and_of_the_table() -> None:
    partitions = {"p=a": UNDER_OLD, "p=b": SICK, "p=c": HEALTHY}
    found = combine_decisions([decide(partitions, operation=o) for o in (CONVERT, REWRITE)])
    assert {p.partition: (p.verdict, p.operation) for p in found.partitions} == {
        "p=a": (Verdict.RUN, CONVERT),
        "p=b": (Verdict.RUN, REWRITE),
        "p=c": (Verdict.SKIP, CONVERT),
    }
    assert (found.verdict, found.reason, found.operation) == (Verdict.RUN, Reason.EQUALITY_DELETES, CONVERT)
    assert found.evidence == {"due_partitions": "2", "partitions": "3"}


def test_joint_of_one_decision_is_that_decision() -> None:
    one = decide({"p=a": SICK, "p=b": HEALTHY})
    assert combine_decisions([one]) == one


def test_joint_waits_for_both_operations_and_for_the_first_partition() -> None:
    first, second = past(not_before_ms=NOW_MS + 9), past(not_before_ms=NOW_MS + 5)
    late = TableHistory(partitions={"p=b": PartitionHistory(not_before_ms=NOW_MS + 30)})
    both = {"p=a": UNDER_OLD, "p=b": UNDER_OLD}
    found = combine_decisions(
        [
            decide(
                both,
                history=replace(first, partitions={**first.partitions, **late.partitions}),
                operation=CONVERT,
            ),
            decide(both, history=replace(second, partitions={**second.partitions, **late.partitions})),
        ]
    )
    assert [p.until_ms for p in found.partitions] == [NOW_MS + 9, NOW_MS + 30]
    assert (found.verdict, found.until_ms) == (Verdict.DEFER, NOW_MS + 9)


@pytest.mark.parametrize("held", [{"not_before_ms": NOW_MS + 9}, {"quarantined": True}])
@pytest.mark.parametrize("by", [CONVERT, REWRITE])
def test_joint_partition_under_old_deletes_is_held_by_either_operation(
    held: dict[str, object], by: Operation
) -> None:
    """The plan may leave it to the operation that waits: to call it due would have it asked for
    again and again."""
    sick = replace(UNDER_OLD, small_files=10, small_bytes=100)
    found = combine_decisions(
        [
            decide({"p=a": sick}, history=past(**held) if o is by else None, operation=o)
            for o in (CONVERT, REWRITE)
        ]
    )
    assert [(p.verdict, p.operation) for p in found.partitions] == [(Verdict.DEFER, by)]
    assert found.verdict is Verdict.DEFER


def test_joint_partition_without_old_deletes_is_not_held_by_the_conversion() -> None:
    found = combine_decisions(
        [decide({"p=a": SICK}, history=past(quarantined=True), operation=CONVERT), decide({"p=a": SICK})]
    )
    assert found.verdict is Verdict.RUN


def test_joint_partition_under_old_deletes_left_to_the_other_operation_is_due() -> None:
    convert, rewrite = (decide({"p=a": UNDER_OLD}, operation=o) for o in (CONVERT, REWRITE))
    (due,) = convert.partitions
    left = replace(convert, partitions=(replace(due, verdict=Verdict.SKIP, reason=Reason.OTHER_OPERATION),))
    found = combine_decisions([left, rewrite])
    assert [(p.verdict, p.operation) for p in found.partitions] == [(Verdict.RUN, REWRITE)]


def test_joint_of_a_healthy_and_a_paused_operation_tells_of_the_pause() -> None:
    healthy = decide({"p=a": HEALTHY})
    paused = replace(decide({"p=a": HEALTHY}, operation=CONVERT), reason=Reason.PAUSED)
    assert (healthy.verdict, paused.verdict) == (Verdict.SKIP, Verdict.SKIP)
    assert combine_decisions([healthy, paused]).reason is Reason.PAUSED
