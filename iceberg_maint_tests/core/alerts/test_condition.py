from __future__ import annotations

from dataclasses import replace

import pytest

from iceberg_maint.core.alerts import AlertKind, TableFacts, conditions
from iceberg_maint.core.decisions.history import Fault, PartitionHistory, TableHistory
from iceberg_maint.core.health.metrics import TableHealth
from iceberg_maint.core.model.ids import VERIFYING
from iceberg_maint.core.model.reasons import Decision, PartitionDecision, Reason, Verdict
from iceberg_maint.core.outcomes.outcome import BatchOutcome, OutcomeStatus
from iceberg_maint.core.policy.data import Policy
from iceberg_maint.core.policy.housekeeping import AlertsPolicy
from iceberg_maint.core.removal.orphan_rules import RetainedOrphans
from iceberg_maint_tests.support.core.values import NOW_MS, measured_of

HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS


def facts(**changes: object) -> TableFacts:
    healthy = TableFacts(measured_of({}), NOW_MS, Policy(), (), ())
    return replace(healthy, **changes)  # type: ignore[arg-type]


def kinds(given: TableFacts, now_ms: int = NOW_MS) -> list[str]:
    return [c.kind.value for c in conditions(given, now_ms)]


def remove_orphans(
    orphans: int | None, reason: Reason = Reason.ORPHAN_FILES, retained: tuple[RetainedOrphans, ...] = ()
):
    return BatchOutcome(
        "b", ("",), OutcomeStatus.IMPROVED, reason, 0, 0, 0, 0, 0, 1.0, None,
        counts={} if orphans is None else {"orphan_files": orphans}, retained=retained,
    )  # fmt: skip


def due(verdict: Verdict = Verdict.RUN) -> Decision:
    partition = PartitionDecision("p=a", Verdict.RUN, Reason.SMALL_FILES)
    return Decision(
        "lake.db.t",
        operation=partition.operation,
        verdict=verdict,
        reason=Reason.SMALL_FILES,
        snapshot_id=1,
        partitions=(partition,),
    )


def test_healthy_table_has_no_condition():
    assert kinds(facts()) == []


def test_partition_is_failing_from_the_limit_on_and_not_before():
    history = TableHistory(partitions={"p=a": PartitionHistory(ineffective=2, reason="boom")})
    assert kinds(facts(histories=(history,))) == []
    worse = TableHistory(partitions={"p=a": PartitionHistory(ineffective=2, crashes=1, reason="boom")})
    (condition,) = conditions(facts(histories=(worse,)), NOW_MS)
    assert condition.kind is AlertKind.REPEATED_FAILURE
    assert condition.summary == "3 attempts in a row failed or had no effect on p=a: boom."


def test_red_commit_is_an_alert_and_another_fault_of_a_proof_is_none():
    red, damaged = (
        "ICM-185 lake.db.t: snapshot 7 lost 1 row. Fix: stop it.",
        "ICM-101 lake.db.t: a file is missing.",
    )
    (condition,) = conditions(
        facts(histories=(TableHistory(faults=(Fault(VERIFYING, "*", PartitionHistory(reason=red)),)),)),
        NOW_MS,
    )
    assert condition.kind is AlertKind.RED_COMMIT
    assert condition.summary == "lake.db.t: snapshot 7 lost 1 row. Fix: stop it."
    other = TableHistory(faults=(Fault(VERIFYING, "*", PartitionHistory(reason=damaged)),))
    assert kinds(facts(histories=(other,))) == []


def test_lost_races_are_no_failure_and_their_waits_are_time_without_progress():
    history = TableHistory(partitions={"p=a": PartitionHistory(ineffective=9, reason="conflict")})
    partition = PartitionDecision("p=a", Verdict.DEFER, Reason.BACK_OFF)
    waiting = replace(due(Verdict.DEFER), reason=Reason.BACK_OFF, partitions=(partition,))
    assert kinds(facts(histories=(history,))) == []
    assert kinds(facts(decisions=(waiting,), histories=(history,))) == ["due_too_long", "no_progress"]
    failed = TableHistory(partitions={"p=a": PartitionHistory(ineffective=2, reason="boom")})
    assert kinds(facts(decisions=(waiting,), histories=(failed,))) == []


def test_table_that_the_environment_fails_is_failing_from_the_limit_on():
    full = TableHistory(partitions={"": PartitionHistory(environment_failures=3, reason="ICM-176 full.")})
    (condition,) = conditions(facts(histories=(full,)), NOW_MS)
    assert condition.kind is AlertKind.REPEATED_FAILURE
    assert (
        condition.summary == "3 attempts in a row failed or had no effect on the whole table: ICM-176 full."
    )


def test_quarantined_partition_is_no_repeated_failure_beside():
    history = TableHistory(
        partitions={
            "p=a": PartitionHistory(ineffective=9, quarantined=True, reason="boom"),
            "p=b": PartitionHistory(ineffective=9, quarantined=True, reason="bang"),
        }
    )
    (condition,) = conditions(facts(histories=(history,)), NOW_MS)
    assert condition.kind is AlertKind.QUARANTINE
    assert condition.summary == "2 partitions in quarantine, such as p=a: boom."


def test_unknown_commits_of_all_operations_add_up():
    histories = (TableHistory(unknown_commits=1), TableHistory(unknown_commits=2))
    (condition,) = conditions(facts(histories=histories), NOW_MS)
    assert (condition.kind, condition.summary) == (
        AlertKind.UNKNOWN_COMMIT,
        "3 commits neither confirmed nor refuted.",
    )


def test_orphans_that_wait_for_approval_name_their_digest():
    retained = (
        RetainedOrphans("digest-1", None, 7, 700, 1, 2, ("a",)),
        RetainedOrphans("mark-1", 5, 9, 900, 1, 2, ("b",)),
    )
    (condition,) = conditions(
        facts(orphan_scans=(remove_orphans(7, Reason.APPROVAL_REQUIRED, retained),)), NOW_MS
    )
    assert (condition.kind, condition.summary) == (
        AlertKind.APPROVAL_WAITING,
        "7 orphan files for a person to approve, digest digest-1.",
    )


@pytest.mark.parametrize(
    ("counts", "grows"),
    [
        ((300, 200, 100), True),
        ((300, 200), False),
        ((300, 200, None), False),
        ((300, None, 200, 100), True),
        ((300, 300, 100), False),
        ((300, 100, 200), False),
        ((99, 2, 1), False),
        ((100, 2, 1), True),
    ],
)
def test_orphans_grow_if_each_of_three_passes_that_counted_them_counts_more(counts, grows):
    passes = tuple(remove_orphans(c) for c in counts)
    assert kinds(facts(orphan_scans=passes)) == (["orphans_growing"] if grows else [])


def test_table_that_was_not_observed_is_reported_after_half_an_hour():
    observed_ms = NOW_MS - 1800 * 1000
    assert kinds(facts(observed_ms=observed_ms)) == []
    assert kinds(facts(observed_ms=observed_ms - 1)) == ["not_observed"]


def test_due_work_has_two_conditions_that_must_last_for_their_limits():
    given = facts(decisions=(due(),))
    assert [(c.kind.value, c.after_seconds) for c in conditions(given, NOW_MS)] == [
        ("due_too_long", 86_400),
        ("no_progress", 21_600),
    ]


def test_due_work_of_a_table_with_recent_commits_is_in_progress():
    given = facts(decisions=(due(),), last_commit_ms=NOW_MS - HOUR_MS)
    assert kinds(given) == ["due_too_long"]
    assert kinds(given, NOW_MS + 6 * HOUR_MS) == ["not_observed", "due_too_long", "no_progress"]


def test_work_that_another_run_does_or_that_waits_is_not_due():
    retained = replace(due(Verdict.DEFER), reason=Reason.LEASE_HELD)
    assert kinds(facts(decisions=(retained,))) == []
    assert kinds(facts(decisions=(due(Verdict.DEFER),))) == []


def test_old_snapshots_are_reported_after_the_age_and_the_grace():
    policy = Policy()
    kept_ms = (policy.expire_snapshots.max_snapshot_age_seconds + 7 * 86_400) * 1000
    measured = measured_of({})
    health = replace(measured.table_health, snapshots=500, oldest_snapshot_ms=NOW_MS - kept_ms)
    assert kinds(facts(measured=replace(measured, table_health=health))) == []
    older = replace(health, oldest_snapshot_ms=NOW_MS - kept_ms - 1000)
    assert kinds(facts(measured=replace(measured, table_health=older))) == ["expiry_blocked"]
    few = replace(older, snapshots=1)
    assert kinds(facts(measured=replace(measured, table_health=few))) == []
    assert isinstance(health, TableHealth)


def test_limits_that_are_off_and_alerts_that_are_off_have_no_condition():
    off = AlertsPolicy(
        not_observed_seconds=None, due_seconds=None, no_progress_seconds=None, expiry_grace_seconds=None
    )
    given = facts(observed_ms=0, decisions=(due(),), policy=Policy(alerts=off))
    assert kinds(given) == []
    history = TableHistory(unknown_commits=1)
    assert kinds(facts(histories=(history,), policy=Policy(alerts=AlertsPolicy(enabled=False)))) == []


def test_paused_table_and_paused_policy_are_muted():
    assert not facts().is_paused
    assert facts(histories=(TableHistory(), TableHistory(paused=True))).is_paused
    assert facts(policy=Policy(paused=True)).is_paused


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (1860, "31 minutes"),
        (7199, "119 minutes"),
        (7200, "2 hours"),
        (172_799, "47 hours"),
        (172_800, "2 days"),
    ],
)
def test_time_since_the_last_observation_is_in_its_own_unit(seconds: int, text: str):
    (condition,) = (c for c in conditions(facts(observed_ms=NOW_MS - seconds * 1000), NOW_MS))
    assert condition.summary == f"The table was last observed {text} ago."
