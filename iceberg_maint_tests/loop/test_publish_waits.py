"""The loop beside a branch that is to be published: nothing is committed to main, nothing is written for nothing."""

from __future__ import annotations

from dataclasses import replace

from iceberg_maint.core.model.reasons import Reason, Verdict
from iceberg_maint.core.outcomes.outcome import OutcomeStatus
from iceberg_maint.core.planning.plan import Batch
from iceberg_maint.core.policy.runs import PublishMode, WriteAuditPublishPolicy
from iceberg_maint.loop.assess import assess
from iceberg_maint.loop.fleet.stored_decisions import decide_stored
from iceberg_maint_tests.support.loop.world import POLICY, TABLE, Process, World

DAY_MS = 86_400_000


def test_run_waits_while_a_branch_is_ahead_and_works_once_the_wait_is_over() -> None:
    world = World()
    world.branch("audit")
    found = world.run()
    assert (found.outcome, found.reason) == (OutcomeStatus.NO_OP, Reason.PENDING_PUBLISH)
    assert found.message == "waits until branch audit is published"
    assert (world.writes, world.our_commits()) == ([], 0)
    world.clock.ms += 3 * DAY_MS
    assert world.run().outcome is OutcomeStatus.IMPROVED


def test_run_works_beside_a_branch_that_the_policy_ignores() -> None:
    ignore = WriteAuditPublishPolicy(PublishMode.IGNORE)
    world = World(policy=replace(POLICY, write_audit_publish=ignore))
    world.branch("audit")
    assert world.run().outcome is OutcomeStatus.IMPROVED


def test_branch_that_appears_after_the_plan_makes_the_batch_stale() -> None:
    world = World("a")

    def audit(_batch: Batch) -> None:
        world.before_commit = lambda _batch: None
        world.branch("audit")

    world.before_commit = audit
    found = world.run()
    assert [(b.outcome, b.reason, b.message) for b in found.batches] == [
        (OutcomeStatus.DEFERRED, Reason.STALE, "branch audit builds on main's head and is to be published")
    ]
    assert world.our_commits() == 0
    assert world.history("p=a").ineffective == 0
    assert world.run().reason is Reason.PENDING_PUBLISH


def test_stored_batch_is_not_resumed_while_a_branch_is_ahead() -> None:
    world = World("ab")
    world.run(max_batches=1)
    assert world.open_work() == (0, 1)
    writes = len(world.writes)
    world.branch("audit")
    # Nothing is due any more: only the stored batch is left.
    healthy = replace(POLICY.rewrite_data_files, min_input_files=100)
    world.policy = replace(POLICY, rewrite_data_files=healthy)
    world.run()
    assert (len(world.writes), world.our_commits()) == (writes, 1)


def test_stored_health_decides_the_same() -> None:
    world = World()
    world.branch("audit")
    context = world.context(Process())
    seen = assess(TABLE, context)
    stored = world.ledger.health.get(TABLE)
    assert stored == seen.measured
    _, decision = decide_stored(stored, world.policy, world.ledger, world.clock.now_ms())
    assert (decision.verdict, decision.reason) == (Verdict.DEFER, Reason.PENDING_PUBLISH)
    assert decision.evidence == seen.decision.evidence


def test_types_that_nothing_reads_are_refused_without_an_attempt() -> None:
    world = World()
    types = {"at": "geometry"}
    world.now = replace(world.now, state=replace(world.now.state, uncommon_types=types))
    world.catalog.put(world.now)
    found = world.run()
    assert (found.outcome, found.reason) == (OutcomeStatus.UNSUPPORTED, Reason.UNSUPPORTED_TYPE)
    assert [(s, r) for _, s, r in found.partitions] == [
        (OutcomeStatus.UNSUPPORTED, Reason.UNSUPPORTED_TYPE)
    ] * 2
    assert (world.writes, world.history("p=a").not_before_ms) == ([], None)
    assert world.ledger.health.get(TABLE).uncommon_types == types
