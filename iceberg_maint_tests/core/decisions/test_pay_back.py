"""Work that its readers do not pay back: what is left alone, what never is, and how long data lives."""

from __future__ import annotations

from dataclasses import replace

import pytest

from iceberg_maint.core.decisions.decide import Situation, decide
from iceberg_maint.core.decisions.fleet_budget import DueWork, FleetBudget, allot, left_alone
from iceberg_maint.core.decisions.history import (
    CommitLosses,
    FleetWait,
    PastWork,
    TableHistory,
    commit_losses,
    life_seconds,
)
from iceberg_maint.core.decisions.pay_back import Readers, judge
from iceberg_maint.core.decisions.priority import Load, Prediction, conflict_probability
from iceberg_maint.core.health.metrics import PartitionHealth
from iceberg_maint.core.model.ids import Operation, PartitionKey
from iceberg_maint.core.model.reasons import Check, Finding, Reason, Severity, Verdict
from iceberg_maint.core.policy.data import Policy, RewriteDataFilesPolicy
from iceberg_maint_tests.support.core.values import NOW_MS, TARGET, measured_of

P = PartitionKey("p=a")
DAY, HOUR = 86_400, 3600
BUDGET = FleetBudget(max_commits=1)
"""Reads have 30 days to pay back."""
TEN_SECONDS = Prediction(10, 0, 0, 0.0, Load(1000, 10.0, 1.0))
"""Ten files fewer for ten seconds: 100 reads pay it back."""
WAITS, ALONE = FleetWait(5, 10), FleetWait(5, 10, is_left_alone=True)


def finding(reason: Reason, severity: Severity = Severity.ERROR) -> Finding:
    return Finding(Check.SMALL_FILES, severity, reason, "metric", 9, 1, "key")


def worth(
    per_day: float | None,
    life: float | None = None,
    *,
    prediction: Prediction = TEN_SECONDS,
    crossed: tuple[Finding, ...] = (finding(Reason.SMALL_FILES),),
    wait: FleetWait | None = None,
    sharing: int = 1,
    budget: FleetBudget = BUDGET,
) -> bool:
    judged = judge(prediction, crossed, Readers(per_day, life), budget, wait, sharing)
    return judged is None or judged.pays


def test_work_is_worth_it_from_the_read_on_that_pays_it_back() -> None:
    assert [worth(n) for n in (0.0, 99 / 30, 100 / 30, 4.0)] == [False, False, True, True]


def test_work_on_a_table_of_unknown_reads_is_worth_it() -> None:
    assert worth(None, 1.0)


def test_shorter_life_of_the_data_needs_more_reads() -> None:
    assert [worth(10.0, life) for life in (None, 10 * DAY, 9 * DAY, 60 * DAY)] == [True, True, False, True]


def test_probable_conflict_needs_more_reads() -> None:
    half = replace(TEN_SECONDS, conflict=0.5)
    assert [worth(n / 30, prediction=half) for n in (199, 200)] == [False, True]


def test_measured_cpu_seconds_are_the_cost_and_else_the_time_of_all_cpus() -> None:
    measured = replace(TEN_SECONDS, load=Load(1000, 10.0, 1.0, 20.0))
    assert [worth(n / 30, prediction=measured) for n in (199, 200)] == [False, True]
    four = replace(BUDGET, cpus_per_run=4.0)
    assert [worth(n / 30, budget=four) for n in (399, 400)] == [False, True]


def test_partitions_of_one_batch_share_its_two_seconds() -> None:
    assert [worth(n / 30, sharing=10) for n in (81, 82)] == [False, True]
    many = replace(TEN_SECONDS, load=Load(1000, 10.0, 2.0))
    assert not worth(99 / 30, sharing=10, prediction=many)


@pytest.mark.parametrize(
    ("reason", "worth_it"),
    [
        (Reason.SMALL_FILES, False),
        (Reason.DELETE_RATIO, False),
        (Reason.POSITION_DELETES, False),
        (Reason.EQUALITY_DELETES, True),
        (Reason.TOO_MANY_FILES, True),
        (Reason.DELETE_FILES, True),
        (Reason.LAYOUT, True),
    ],
)
def test_limits_equality_deletes_and_layout_are_not_weighed(reason: Reason, worth_it: bool) -> None:
    crossed = (finding(Reason.SMALL_FILES), finding(reason))
    assert worth(0.0, crossed=crossed) is worth_it
    assert not worth(0.0, crossed=(finding(Reason.SMALL_FILES), finding(reason, Severity.WARN)))


def test_work_that_waits_for_the_budget_is_not_judged_again() -> None:
    assert worth(0.0, wait=WAITS)
    assert not worth(0.0, wait=ALONE)


def test_allotment_leaves_work_alone_that_does_not_pay_and_keeps_when_it_began() -> None:
    unread = judge(TEN_SECONDS, (finding(Reason.SMALL_FILES),), Readers(0.0), BUDGET, None, 1)
    spent = DueWork(("t", P), TEN_SECONDS, NOW_MS - 25 * HOUR * 1000, pay_back=unread)
    other = DueWork(("u", P), TEN_SECONDS, NOW_MS)
    allotted = allot([spent, other], BUDGET, (), NOW_MS)
    assert allotted.granted == (("u", P),)
    until_ms = NOW_MS + 23 * HOUR * 1000
    assert allotted.waits == {("t", P): FleetWait(NOW_MS - 25 * HOUR * 1000, until_ms, True, unread)}
    assert left_alone(NOW_MS, NOW_MS).until_ms == NOW_MS + DAY * 1000


def past(at: int, sequence: int, oldest: int, *, lost: bool = False, partition: PartitionKey = P) -> PastWork:
    return PastWork(NOW_MS + at * 1000, 10.0, (partition,), not lost, lost, sequence, {partition: oldest})


def test_life_is_the_time_over_three_replacements_or_more() -> None:
    replaced = [past(-4 * HOUR, 10, 1), past(-3 * HOUR, 20, 11), past(-HOUR, 30, 21)]
    assert life_seconds(P, replaced, 31, NOW_MS) == 4 * HOUR / 3
    assert life_seconds(P, replaced[::-1], 31, NOW_MS) == 4 * HOUR / 3
    assert life_seconds(P, replaced, 30, NOW_MS) is None
    assert life_seconds(P, [], 31, NOW_MS) is None


def test_data_that_outlives_the_next_batch_makes_the_life_longer() -> None:
    appended = [past(-9 * HOUR, 5, 1), past(-8 * HOUR, 10, 5), past(-3 * HOUR, 20, 11), past(-HOUR, 30, 21)]
    assert life_seconds(P, appended, 31, NOW_MS) == 3 * HOUR


def test_batches_of_other_partitions_and_lost_ones_replace_nothing() -> None:
    other = PartitionKey("p=b")
    work = [past(-3 * HOUR, 10, 1), past(-2 * HOUR, 20, 11), past(-HOUR, 30, 21, lost=True)]
    assert life_seconds(P, [*work, past(-HOUR, 30, 21, partition=other)], 31, NOW_MS) is None


def test_losses_are_those_of_the_partition() -> None:
    work = [past(-2, 1, 0, lost=True), past(-1, 1, 0), past(-1, 1, 0, partition=PartitionKey("p=b"))]
    failed = replace(past(-1, 1, 0), is_landed=False)
    assert commit_losses(P, [*work, failed]) == CommitLosses(1, 20.0)


def test_recorded_batches_of_a_partition_set_the_probability_of_a_conflict() -> None:
    quiet = PartitionHealth(position_delete_files=1, last_change_ms=NOW_MS - 60_000)
    assert conflict_probability(quiet, 60, NOW_MS, 0) == pytest.approx(0.632, abs=0.001)
    landed = CommitLosses(0, 5940.0)
    assert conflict_probability(quiet, 60, NOW_MS, 0, landed) == pytest.approx(0.01, abs=0.001)
    lost = CommitLosses(9, 540.0)
    assert conflict_probability(quiet, 60, NOW_MS, 0, lost) == pytest.approx(0.632, abs=0.001)
    without_deletes = PartitionHealth(last_change_ms=NOW_MS - 1)
    assert conflict_probability(without_deletes, 60, NOW_MS, 0, landed) == 0
    assert conflict_probability(without_deletes, 60, NOW_MS, 0, CommitLosses(1, 60.0)) == pytest.approx(
        0.632, abs=0.001
    )


def decision_of_wait(wait: FleetWait, policy: Policy | None = None, **parts: int) -> tuple[Verdict, Reason]:
    health = PartitionHealth(
        data_files=10, data_bytes=100, records=100, small_files=10, small_bytes=100, **parts
    )
    decision = decide(
        Operation.REWRITE_DATA_FILES,
        Situation(
            measured_of({P: health}),
            policy or Policy(rewrite_data_files=RewriteDataFilesPolicy(target_file_size_bytes=TARGET)),
            {Operation.REWRITE_DATA_FILES: TableHistory(fleet_waits={P: wait})},
            NOW_MS,
        ),
    )
    one = decision.partitions[0]
    assert (decision.verdict, decision.reason) == (one.verdict, one.reason)
    assert P not in [p.partition for p in decision.backlog()] or one.reason is not Reason.NO_PAY_BACK
    return one.verdict, one.reason


def test_partition_left_alone_has_its_reason_and_is_no_backlog() -> None:
    alone = left_alone(NOW_MS, NOW_MS)
    assert decision_of_wait(alone) == (Verdict.DEFER, Reason.NO_PAY_BACK)
    assert decision_of_wait(replace(alone, is_left_alone=False)) == (Verdict.DEFER, Reason.FLEET_BUDGET)


def test_limit_that_is_crossed_after_the_pass_ends_being_left_alone() -> None:
    limit = Policy(
        rewrite_data_files=RewriteDataFilesPolicy(target_file_size_bytes=TARGET, max_delete_files=1)
    )
    alone = left_alone(NOW_MS, NOW_MS)
    assert decision_of_wait(alone, limit, position_delete_files=2)[0] is Verdict.RUN
    old = PartitionHealth(applicable_equality_delete_files=1, oldest_equality_delete_ms=0)
    parts = {
        "applicable_equality_delete_files": old.applicable_equality_delete_files,
        "oldest_equality_delete_ms": 0,
    }
    assert decision_of_wait(alone, **parts)[0] is Verdict.RUN
