"""Work that commits to main waits for what it would keep from being published, for as long as the policy says."""

from __future__ import annotations

from dataclasses import replace

import pytest

from iceberg_maint.core.commits.change import Rule, Violation, is_stale
from iceberg_maint.core.commits.table_rules import check_publishes
from iceberg_maint.core.decisions.decide import decide
from iceberg_maint.core.decisions.history import TableHistory
from iceberg_maint.core.decisions.housekeeping_decision import cannot_run_now, decide_housekeeping
from iceberg_maint.core.decisions.rules import Situation
from iceberg_maint.core.decisions.snapshot_retention import Retention
from iceberg_maint.core.decisions.waits import publish_wait
from iceberg_maint.core.health.metrics import Measured, PartitionHealth
from iceberg_maint.core.model.ids import ALL_OPERATIONS, DATA_OPERATIONS, Operation
from iceberg_maint.core.model.other_writers import PendingPublish, PublishKind
from iceberg_maint.core.model.reasons import Decision, Reason, Verdict
from iceberg_maint.core.policy.data import Mode, Policy
from iceberg_maint.core.policy.housekeeping import DAY_SECONDS
from iceberg_maint.core.policy.runs import PublishMode, WriteAuditPublishPolicy
from iceberg_maint_tests.support.core.values import NOW_MS, measured_of, policy_of, small, table_of

DAY_MS = DAY_SECONDS * 1000
SICK = PartitionHealth(data_files=10, data_bytes=100, small_files=10, small_bytes=100, last_change_ms=NOW_MS)
HEALTHY = PartitionHealth(data_files=10, data_bytes=1000)
AUDIT = PendingPublish(PublishKind.BRANCH, "audit", 7, NOW_MS - DAY_MS)
EVIDENCE = {
    "pending": "branch audit",
    "pending_since_ms": str(NOW_MS - DAY_MS),
    "pending_until_ms": str(NOW_MS + 2 * DAY_MS),
}


def measured(*pending: PendingPublish) -> Measured:
    return replace(measured_of({"p=a": SICK, "p=b": HEALTHY}), pending_publishes=pending)


def rule(mode: PublishMode = PublishMode.WAIT, max_age_seconds: int | None = 3 * DAY_SECONDS) -> Policy:
    return replace(policy_of(), write_audit_publish=WriteAuditPublishPolicy(mode, max_age_seconds))


def decided(of: Measured, policy: Policy | None = None, *, force: bool = False) -> Decision:
    situation = Situation(of, policy or policy_of(), {}, NOW_MS, force=force)
    return decide(Operation.REWRITE_DATA_FILES, situation)


def regrouping(policy: Policy, *, force: bool = True) -> Decision:
    state = table_of(small(1)).state
    nothing = Retention((), (), (), ())
    situation = Situation(measured(AUDIT), policy, {}, NOW_MS, force=force)
    return decide_housekeeping(Operation.REWRITE_MANIFESTS, state, situation, nothing)


@pytest.mark.parametrize("force", [False, True])
def test_due_work_on_data_waits_and_names_the_branch(force: bool) -> None:
    found = decided(measured(AUDIT), force=force)
    assert (found.verdict, found.reason) == (Verdict.DEFER, Reason.PENDING_PUBLISH)
    assert found.evidence == EVIDENCE
    assert found.until_ms == NOW_MS + 2 * DAY_MS
    waiting = {p.partition: (p.verdict, p.reason, p.until_ms) for p in found.partitions}
    assert waiting["p=a"] == (Verdict.DEFER, Reason.PENDING_PUBLISH, NOW_MS + 2 * DAY_MS)
    assert found.due() == ()


def test_table_without_due_work_does_not_wait() -> None:
    of = replace(measured_of({"p=b": HEALTHY}), pending_publishes=(AUDIT,))
    assert decided(of).reason is Reason.HEALTHY
    assert regrouping(policy_of(), force=False).reason is Reason.HEALTHY


def test_manifests_wait_and_expiry_does_not() -> None:
    found = regrouping(policy_of())
    assert (found.verdict, found.reason, found.evidence) == (Verdict.DEFER, Reason.PENDING_PUBLISH, EVIDENCE)
    assert found.until_ms == NOW_MS + 2 * DAY_MS
    state = table_of(small(1)).state
    gone = Retention((1,), (), (), ())
    situation = Situation(measured(AUDIT), policy_of(), {}, NOW_MS)
    expiry = decide_housekeeping(Operation.EXPIRE_SNAPSHOTS, state, situation, gone)
    assert expiry.verdict is Verdict.RUN


@pytest.mark.parametrize(
    ("policy", "waits"),
    [
        (rule(), True),
        (rule(PublishMode.IGNORE), False),
        (rule(max_age_seconds=DAY_SECONDS), False),
        (rule(max_age_seconds=DAY_SECONDS + 1), True),
        (rule(max_age_seconds=None), True),
        (replace(rule(), mode=Mode.ADVISE), False),
    ],
)
def test_policy_says_whether_and_how_long(policy: Policy, waits: bool) -> None:
    assert (decided(measured(AUDIT), policy).reason is Reason.PENDING_PUBLISH) is waits
    assert (regrouping(policy).reason is Reason.PENDING_PUBLISH) is waits


def test_wait_without_an_age_has_no_end() -> None:
    found = decided(measured(AUDIT), rule(max_age_seconds=None))
    assert found.until_ms is None
    assert found.evidence == {"pending": "branch audit", "pending_since_ms": str(NOW_MS - DAY_MS)}


def test_wait_ends_with_the_youngest_and_names_the_oldest_first() -> None:
    staged = [PendingPublish(PublishKind.STAGED, f"w{n}", n, NOW_MS - n) for n in range(1, 7)]
    lapsed = replace(AUDIT, since_ms=NOW_MS - 4 * DAY_MS)
    wait = publish_wait((*staged, lapsed), policy_of(), NOW_MS)
    assert wait is not None
    assert wait.names == "staged w6, staged w5, staged w4, staged w3, staged w2 and 1 more"
    assert wait.until_ms == NOW_MS - 1 + 3 * DAY_MS


def test_stored_health_holds_back_what_commits_to_main_and_nothing_else() -> None:
    held = {
        operation
        for operation in ALL_OPERATIONS
        if operation not in DATA_OPERATIONS
        and cannot_run_now(operation, measured(AUDIT), policy_of(), TableHistory(), NOW_MS)
    }
    assert held == {Operation.REWRITE_MANIFESTS}


def test_gate_takes_a_commit_that_must_wait_for_stale() -> None:
    assert check_publishes(None) == ()
    violations = check_publishes(publish_wait((AUDIT,), policy_of(), NOW_MS))
    assert violations == (
        Violation(Rule.PENDING_PUBLISH, "branch audit builds on main's head and is to be published"),
    )
    assert is_stale(violations)
