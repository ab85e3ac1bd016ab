"""The decision: every stop, every per-partition verdict, and what `requested` and `force` change."""

from __future__ import annotations

from dataclasses import replace

import pytest

from iceberg_maint.core.decisions import decide as decisions
from iceberg_maint.core.decisions import rules
from iceberg_maint.core.decisions.applicability import candidate_bytes
from iceberg_maint.core.decisions.history import Fault, PartitionHistory, TableHistory
from iceberg_maint.core.health.metrics import PartitionHealth
from iceberg_maint.core.health.thresholds import findings
from iceberg_maint.core.model.ids import READING, Operation
from iceberg_maint.core.model.other_writers import ForeignCommit, PendingPublish, PublishKind
from iceberg_maint.core.model.reasons import Decision, Reason, Verdict
from iceberg_maint.core.policy.data import EqualityDeletesPolicy, Mode, Policy, Route
from iceberg_maint.core.policy.runs import WindowsPolicy
from iceberg_maint_tests.support.core.values import (
    NOW_MS,
    TARGET,
    histories_of,
    measured_of,
    policy_of,
    rewrite_policy,
)

REWRITE, CONVERT = Operation.REWRITE_DATA_FILES, Operation.CONVERT_EQUALITY_DELETES
SICK = PartitionHealth(data_files=10, data_bytes=100, small_files=10, small_bytes=100, last_change_ms=NOW_MS)
HEALTHY = PartitionHealth(data_files=10, data_bytes=1000)


def decide(
    partitions: dict[str, PartitionHealth],
    policy: Policy | None = None,
    history: TableHistory | None = None,
    *,
    beside: TableHistory | None = None,
    format_version: int = 2,
    snapshot_id: int | None = 1001,
    requested: frozenset[str] | None = None,
    force: bool = False,
    operation: Operation = Operation.REWRITE_DATA_FILES,
) -> Decision:
    measured = replace(measured_of(partitions, snapshot_id), format_version=format_version)
    histories = histories_of(operation, history, beside)
    situation = rules.Situation(measured, policy or policy_of(), histories, NOW_MS, requested, force)
    return decisions.decide(operation, situation)


def by_partition(decision: Decision) -> dict[str, tuple[Verdict, Reason]]:
    return {p.partition: (p.verdict, p.reason) for p in decision.partitions}


def past(**keys: object) -> TableHistory:
    return TableHistory(partitions={"p=a": PartitionHistory(**keys)})  # type: ignore[arg-type]


def test_decide_unhealthy_partition_runs_for_its_reason() -> None:
    found = decide({"p=a": SICK, "p=b": HEALTHY})
    assert (found.verdict, found.reason) == (Verdict.RUN, Reason.SMALL_FILES)
    assert by_partition(found) == {
        "p=a": (Verdict.RUN, Reason.SMALL_FILES),
        "p=b": (Verdict.SKIP, Reason.HEALTHY),
    }
    assert found.evidence == {"due_partitions": "1", "partitions": "2"}
    assert [p.partition for p in found.due()] == ["p=a"]
    assert found.snapshot_id == 1001
    assert found.operation == "rewrite_data_files"


def test_decide_healthy_table_skips() -> None:
    found = decide({"p=b": HEALTHY})
    assert (found.verdict, found.reason) == (Verdict.SKIP, Reason.HEALTHY)


@pytest.mark.parametrize(("partitions", "snapshot_id"), [({}, None), ({}, 1001)])
def test_decide_empty_table_skips_as_empty(
    partitions: dict[str, PartitionHealth], snapshot_id: int | None
) -> None:
    found = decide(partitions, snapshot_id=snapshot_id)
    assert (found.verdict, found.reason) == (Verdict.SKIP, Reason.HEALTHY)


@pytest.mark.parametrize(
    ("operation", "refused"),
    [
        (Operation.CONVERT_EQUALITY_DELETES, True),
        (Operation.REWRITE_DATA_FILES, True),
        (Operation.REWRITE_POSITION_DELETE_FILES, True),
        (Operation.REWRITE_MANIFESTS, True),
        (Operation.EXPIRE_SNAPSHOTS, False),
        (Operation.REMOVE_ORPHAN_FILES, False),
    ],
)
def test_operation_that_copies_entries_is_refused_where_a_spec_loses_their_values(
    operation: Operation, refused: bool
) -> None:
    measured = replace(measured_of({"p=a": SICK}), specs_losing_values=(0, 3))
    stop = rules.dropped_source(operation, rules.Situation(measured, policy_of(), {}, NOW_MS))
    lossy = rules.Stop(Verdict.REFUSE, Reason.DROPPED_SOURCE, {"specs": "0, 3"})
    assert stop == (lossy if refused else None)


def test_operation_that_is_turned_off_is_not_refused_for_a_spec_that_loses_values() -> None:
    measured = replace(measured_of({"p=a": SICK}), specs_losing_values=(0,))
    policy = policy_of(rewrite_policy(enabled=False))
    stop = rules.table_stop(REWRITE, rules.Situation(measured, policy, {}, NOW_MS))
    assert stop == rules.Stop(Verdict.SKIP, Reason.DISABLED, {"key": "rewrite_data_files.enabled"})


@pytest.mark.parametrize("version", [1, 2, 3])
def test_decide_known_format_versions_run(version: int) -> None:
    assert decide({"p=a": SICK}, format_version=version).verdict is Verdict.RUN


@pytest.mark.parametrize(
    ("policy", "history", "version", "verdict", "reason", "evidence"),
    [
        (policy_of(), None, 4, Verdict.REFUSE, Reason.FORMAT_VERSION, {"format_version": "4"}),
        (
            policy_of(rewrite_policy(enabled=False)),
            None,
            2,
            Verdict.SKIP,
            Reason.DISABLED,
            {"key": "rewrite_data_files.enabled"},
        ),
        (policy_of(paused=True), None, 2, Verdict.DEFER, Reason.PAUSED, {"by": "policy"}),
        (
            policy_of(),
            TableHistory(paused=True, paused_reason="migration"),
            2,
            Verdict.DEFER,
            Reason.PAUSED,
            {"by": "operator", "note": "migration"},
        ),
        (
            policy_of(blackout_hours=("22:00-23:00",)),
            None,
            2,
            Verdict.DEFER,
            Reason.BLACKOUT,
            {"window": "22:00-23:00"},
        ),
        (
            policy_of(),
            TableHistory(lease_owner="run-7"),
            2,
            Verdict.DEFER,
            Reason.LEASE_HELD,
            {"owner": "run-7"},
        ),
    ],
)
def test_decide_table_stop_holds_back_and_keeps_findings(
    policy: Policy,
    history: TableHistory | None,
    version: int,
    verdict: Verdict,
    reason: Reason,
    evidence: dict[str, str],
) -> None:
    found = decide({"p=a": SICK, "p=b": HEALTHY}, policy, history, format_version=version, force=False)
    assert (found.verdict, found.reason, found.evidence) == (verdict, reason, evidence)
    assert by_partition(found) == {"p=a": (verdict, reason), "p=b": (Verdict.SKIP, Reason.HEALTHY)}
    assert found.partitions[0].findings
    assert found.due() == ()


def test_decide_blackout_is_by_the_minute_in_utc() -> None:
    # NOW_MS is 22:13:20 UTC.
    assert decide({"p=a": SICK}, policy_of(blackout_hours=("22:14-23:00",))).verdict is Verdict.RUN
    assert decide({"p=a": SICK}, policy_of(blackout_hours=("22:13-22:14",))).reason is Reason.BLACKOUT


def test_decide_advise_plans_and_does_not_run() -> None:
    found = decide({"p=a": SICK, "p=b": HEALTHY}, policy_of(mode=Mode.ADVISE))
    assert (found.verdict, found.reason) == (Verdict.SKIP, Reason.ADVISE)
    assert [p.partition for p in found.due()] == ["p=a"]


def test_decide_advise_with_nothing_due_is_healthy() -> None:
    assert decide({"p=b": HEALTHY}, policy_of(mode=Mode.ADVISE)).reason is Reason.HEALTHY


OLD_MS = NOW_MS - 3_600_000
UNDER_OLD = replace(HEALTHY, applicable_equality_delete_files=1, oldest_equality_delete_ms=OLD_MS)
UNDER_YOUNG = replace(UNDER_OLD, oldest_equality_delete_ms=OLD_MS + 1)


@pytest.mark.parametrize("operation", [REWRITE, CONVERT])
def test_decide_old_equality_deletes_run_in_both_operations(operation: Operation) -> None:
    """Which of the two does it is up to the plan, which sees the files."""
    found = decide({"p=a": UNDER_OLD, "p=b": UNDER_YOUNG}, operation=operation)
    assert by_partition(found) == {
        "p=a": (Verdict.RUN, Reason.EQUALITY_DELETES),
        "p=b": (Verdict.SKIP, Reason.HEALTHY),
    }
    assert {p.operation for p in found.partitions} == {found.operation} == {operation}


def test_decide_conversion_is_not_due_where_files_are_to_be_rewritten() -> None:
    policy = policy_of(equality_deletes=EqualityDeletesPolicy(route=Route.REWRITE))
    assert decide({"p=a": UNDER_OLD}, policy, operation=CONVERT).reason is Reason.HEALTHY
    assert decide({"p=a": UNDER_OLD}, policy).reason is Reason.EQUALITY_DELETES


def test_decide_conversion_takes_no_notice_of_small_files() -> None:
    small = replace(SICK, applicable_equality_delete_files=1, oldest_equality_delete_ms=NOW_MS)
    assert decide({"p=a": small}, operation=CONVERT).reason is Reason.HEALTHY
    assert decide({"p=a": small}).reason is Reason.SMALL_FILES


def test_decide_conversion_runs_where_rewriting_is_disabled() -> None:
    policy = policy_of(rewrite_policy(enabled=False))
    assert decide({"p=a": UNDER_OLD}, policy, operation=CONVERT).verdict is Verdict.RUN
    assert decide({"p=a": UNDER_OLD}, policy).reason is Reason.DISABLED


def test_decide_forced_conversion_takes_young_deletes_and_no_partition_without() -> None:
    found = decide({"p=a": UNDER_YOUNG, "p=b": SICK}, operation=CONVERT, force=True)
    assert by_partition(found) == {
        "p=a": (Verdict.RUN, Reason.FORCED),
        "p=b": (Verdict.SKIP, Reason.HEALTHY),
    }


@pytest.mark.parametrize("route", list(Route))
def test_decide_old_dangling_deletes_are_the_conversions_on_any_route(route: Route) -> None:
    dangling = replace(HEALTHY, dangling_equality_delete_files=2, oldest_dangling_equality_delete_ms=OLD_MS)
    policy = policy_of(equality_deletes=EqualityDeletesPolicy(route=route))
    assert decide({"p=a": dangling}, policy, operation=CONVERT).reason is Reason.EQUALITY_DELETES
    assert decide({"p=a": dangling}, policy).reason is Reason.HEALTHY
    young = replace(dangling, oldest_dangling_equality_delete_ms=OLD_MS + 1)
    assert decide({"p=a": young}, policy, operation=CONVERT).reason is Reason.HEALTHY


def test_decide_conversion_reads_keys_and_deletes() -> None:
    health = replace(UNDER_OLD, records=10, equality_delete_bytes=7)
    assert decide({"p=a": health}, operation=CONVERT).partitions[0].candidate_bytes == 167
    wide = replace(health, data_bytes=100)
    assert decide({"p=a": wide}, operation=CONVERT).partitions[0].candidate_bytes == 107


def test_decide_backing_off_waits_until_its_time() -> None:
    found = decide({"p=a": SICK}, history=past(not_before_ms=NOW_MS + 1))
    assert (found.verdict, found.reason, found.until_ms) == (Verdict.DEFER, Reason.BACK_OFF, NOW_MS + 1)
    assert decide({"p=a": SICK}, history=past(not_before_ms=NOW_MS)).verdict is Verdict.RUN


def test_decide_requested_waives_back_off_and_not_quarantine() -> None:
    asked = frozenset({"p=a"})
    waiting = past(not_before_ms=NOW_MS + 1)
    held = past(quarantined=True)
    assert decide({"p=a": SICK}, history=waiting, requested=asked).verdict is Verdict.RUN
    found = decide({"p=a": SICK}, history=held, requested=asked)
    assert (found.verdict, found.reason) == (Verdict.DEFER, Reason.QUARANTINED)
    assert decide({"p=a": SICK}, history=held, force=True).verdict is Verdict.RUN


def test_decide_quarantine_is_reported_before_back_off() -> None:
    history = past(quarantined=True, not_before_ms=NOW_MS + 1)
    assert decide({"p=a": SICK}, history=history).reason is Reason.QUARANTINED


def test_decide_hot_partition_waits_until_cold() -> None:
    policy = policy_of(windows=WindowsPolicy(cold_after_seconds=60))
    warm = replace(SICK, last_change_ms=NOW_MS - 59_999)
    found = decide({"p=a": warm}, policy)
    assert (found.verdict, found.reason, found.until_ms) == (
        Verdict.DEFER,
        Reason.RECENTLY_CHANGED,
        NOW_MS + 1,
    )
    assert decide({"p=a": replace(SICK, last_change_ms=NOW_MS - 60_000)}, policy).verdict is Verdict.RUN
    assert decide({"p=a": replace(SICK, last_change_ms=None)}, policy).verdict is Verdict.RUN
    assert decide({"p=a": warm}, policy, force=True).verdict is Verdict.RUN


def test_decide_force_runs_healthy_and_takes_all_its_bytes() -> None:
    found = decide({"p=b": HEALTHY}, requested=frozenset({"p=b"}), force=True)
    assert (found.verdict, found.reason) == (Verdict.RUN, Reason.FORCED)
    assert found.partitions[0].candidate_bytes == 1000


def test_decide_requested_leaves_others_out_and_names_the_empty() -> None:
    found = decide({"p=a": SICK, "p=b": SICK}, requested=frozenset({"p=b", "p=z"}))
    assert by_partition(found) == {
        "p=b": (Verdict.RUN, Reason.SMALL_FILES),
        "p=z": (Verdict.SKIP, Reason.HEALTHY),
    }


def test_decide_table_reason_is_run_then_defer() -> None:
    waiting = past(not_before_ms=NOW_MS + 9)
    assert decide({"p=a": SICK, "p=b": SICK}, history=waiting).verdict is Verdict.RUN
    assert decide({"p=a": SICK, "p=b": HEALTHY}, history=waiting).verdict is Verdict.DEFER


def test_decide_worst_first_comes_first() -> None:
    worse = replace(SICK, data_files=20, small_files=20)
    found = decide({"p=a": SICK, "p=b": worse, "p=c": HEALTHY})
    assert [p.partition for p in found.partitions] == ["p=b", "p=a", "p=c"]


def test_decide_budgets_defer_and_say_what_the_plan_may_hold() -> None:
    windows = WindowsPolicy(
        max_partitions_per_run=2, max_bytes_per_run=1000, max_partitions_per_hour=2, max_bytes_per_hour=500
    )
    found = decide(
        {f"p={i}": SICK for i in range(3)},
        policy_of(windows=windows),
        TableHistory(hour_partitions=1, hour_bytes=300),
    )
    assert [p.reason for p in found.partitions] == [
        Reason.SMALL_FILES,
        Reason.HOUR_BUDGET,
        Reason.HOUR_BUDGET,
    ]
    assert (found.budget_bytes, found.budget_reason) == (200, Reason.HOUR_BUDGET)


def test_candidate_bytes_are_small_ones_until_deletes_ask_for_all() -> None:
    health = replace(SICK, data_bytes=900)
    assert candidate_bytes(REWRITE, health, findings(health, rewrite_policy(), TARGET, NOW_MS)) == 100
    deleted = replace(health, records=10, deletion_vector_records=5)
    assert candidate_bytes(REWRITE, deleted, findings(deleted, rewrite_policy(), TARGET, NOW_MS)) == 900


@pytest.mark.parametrize("operation", [CONVERT, REWRITE])
def test_decide_window_goes_first_to_what_no_other_operation_holds(operation: Operation) -> None:
    """A plan may leave p=a to the operation that holds it, and p=b would never be come to."""
    worse = replace(UNDER_OLD, applicable_equality_delete_files=9)
    policy = policy_of(windows=WindowsPolicy(max_partitions_per_run=1))
    both = {"p=a": worse, "p=b": UNDER_OLD}
    found = decide(both, policy, beside=past(quarantined=True), operation=operation)
    assert [p.partition for p in found.due()] == ["p=b"]
    assert decide(both, policy, operation=operation).due()[0].partition == "p=a"
    alone = replace(policy, equality_deletes=EqualityDeletesPolicy(route=Route.REWRITE))
    assert decide(both, alone, beside=past(quarantined=True)).due()[0].partition == "p=a"


def test_decide_reports_what_the_other_operation_decides_within_its_window() -> None:
    policy = policy_of(windows=WindowsPolicy(max_partitions_per_run=1, max_partitions_per_hour=1))
    both = {"p=a": UNDER_OLD, "p=b": UNDER_OLD}
    beside = decide(both, policy, TableHistory(hour_partitions=1), operation=CONVERT).beside
    assert {k: (p.verdict, p.reason, p.operation) for k, p in beside.items()} == {
        "p=a": (Verdict.RUN, Reason.EQUALITY_DELETES, REWRITE),
        "p=b": (Verdict.DEFER, Reason.RUN_BUDGET, REWRITE),
    }
    disabled = replace(policy, rewrite_data_files=rewrite_policy(enabled=False))
    assert decide(both, disabled, operation=CONVERT).beside == {}


def test_findings_of_a_situation_are_those_of_the_requested_partitions_by_key() -> None:
    measured = measured_of({"p=c": UNDER_OLD, "p=b": HEALTHY, "p=a": SICK})
    every = rules.Situation(measured, policy_of(), {}, NOW_MS)
    assert list(every.findings) == ["p=a", "p=b", "p=c"]
    assert list(replace(every, requested=frozenset(("p=c", "p=z"))).findings) == ["p=c"]


def test_stops_are_asked_in_order_and_the_first_one_wins() -> None:
    measured = replace(measured_of({"p=a": SICK}), format_version=9, snapshot_id=None)
    held = TableHistory(paused=True, lease_owner="another")
    policy = policy_of(rewrite_policy(enabled=False))
    situation = rules.Situation(measured, policy, {REWRITE: held}, NOW_MS)
    stops = [rule(REWRITE, situation) for rule in rules.TABLE_STOPS]
    assert [stop and stop.reason for stop in stops] == [
        Reason.FORMAT_VERSION,
        Reason.HEALTHY,
        Reason.DISABLED,
        None,
        Reason.PAUSED,
        Reason.LEASE_HELD,
        None,
        None,
    ]
    assert rules.table_stop(REWRITE, situation) == stops[0]
    assert [rule.__name__ for rule, _ in rules.PARTITION_STOPS] == [
        "unreadable_rows",
        "wrong_property",
        "foreign_maintainer",
        "pending_publish",
    ]


def unreadable(code: str) -> TableHistory:
    fault = PartitionHistory(not_before_ms=NOW_MS + 1, reason=code)
    return TableHistory(faults=(Fault(READING, "", fault),))


MEASURED = measured_of({"p=a": HEALTHY})
AT_REST = rules.Situation(MEASURED, policy_of(), {}, NOW_MS)
STOPPED = {
    "unknown_format": replace(AT_REST, measured=replace(MEASURED, format_version=9)),
    "disabled": replace(AT_REST, policy=policy_of(rewrite_policy(enabled=False))),
    "dropped_source": replace(AT_REST, measured=replace(MEASURED, specs_losing_values=(0,))),
    "time_to_rest": replace(AT_REST, policy=policy_of(blackout_hours=("22:00-23:00",))),
    "lease_of_another": replace(AT_REST, histories={REWRITE: TableHistory(lease_owner="run-7")}),
    "unreadable_metadata": replace(AT_REST, histories={REWRITE: unreadable("ICM-101 a file is missing.")}),
    "disagreeing_clocks": replace(AT_REST, skew="the store is ahead"),
    "unreadable_rows": replace(AT_REST, measured=replace(MEASURED, uncommon_types={"v": "geometry"})),
    "wrong_property": replace(AT_REST, measured=replace(MEASURED, wrong_property="compression-codec = lzma")),
    "foreign_maintainer": replace(
        AT_REST, measured=replace(MEASURED, foreign=(ForeignCommit(1, NOW_MS, "dremio", deletes=False),))
    ),
    "pending_publish": replace(
        AT_REST,
        measured=replace(
            MEASURED, pending_publishes=(PendingPublish(PublishKind.BRANCH, "audit", 7, NOW_MS),)
        ),
    ),
    "advice_only": replace(AT_REST, policy=policy_of(mode=Mode.ADVISE)),
}
"""Each rule → a table without due work that it stops."""


@pytest.mark.parametrize("name", STOPPED)
def test_rule_that_stops_new_work_stops_stored_batches_of_a_table_without_due_work(name: str) -> None:
    operation = Operation.REMOVE_ORPHAN_FILES if name == "disagreeing_clocks" else REWRITE
    stop = getattr(rules, name)(operation, STOPPED[name])
    assert stop is not None
    assert rules.resume_stop(operation, STOPPED[name]) == stop


def test_every_rule_but_that_of_an_empty_table_stops_stored_batches() -> None:
    listed = [*rules.TABLE_STOPS, *(rule for rule, _ in rules.PARTITION_STOPS), rules.advice_only]
    assert [rule.__name__ for rule in listed if rule is not rules.empty_table] == list(STOPPED)
    assert rules.resume_stop(REWRITE, AT_REST) is None
    empty = replace(AT_REST, measured=replace(MEASURED, snapshot_id=None))
    assert (rules.table_stop(REWRITE, empty) is None, rules.resume_stop(REWRITE, empty)) == (False, None)
