"""Decisions and plans of housekeeping: one unit for the whole table, one batch of what is due."""

from __future__ import annotations

from dataclasses import replace

import pytest

from iceberg_maint.core.decisions.history import PartitionHistory, TableHistory
from iceberg_maint.core.decisions.housekeeping_decision import decide_housekeeping
from iceberg_maint.core.decisions.rules import Situation
from iceberg_maint.core.decisions.snapshot_retention import Retainer, RetainerKind, Retention
from iceberg_maint.core.model.ids import WHOLE_TABLE, Operation
from iceberg_maint.core.model.reasons import Decision, Reason, Verdict
from iceberg_maint.core.model.table_state import TableState
from iceberg_maint.core.planning.planner import plan_housekeeping
from iceberg_maint.core.planning.work import ExpireSnapshots
from iceberg_maint.core.policy.data import Policy
from iceberg_maint.core.policy.housekeeping import ExpireSnapshotsPolicy, RewriteManifestsPolicy
from iceberg_maint_tests.core.decisions.test_manifests import manifest
from iceberg_maint_tests.support.core.values import NOW_MS, data, table_of
from iceberg_maint_tests.support.fakes.catalog import measure_files

EXPIRE, REGROUP = Operation.EXPIRE_SNAPSHOTS, Operation.REWRITE_MANIFESTS
POLICY = Policy(
    rewrite_manifests=RewriteManifestsPolicy(max_manifests=2),
    expire_snapshots=ExpireSnapshotsPolicy(every_seconds=0),
)
NOTHING, SOME = Retention((), (), (), ()), Retention((1, 2), ("old",), (), ())
TABLE = table_of([data("a", 10)])
MANY = tuple(manifest(n, 50 + n, spec_id=n // 4) for n in range(8))


def state_of(**changed: object) -> TableState:
    return replace(TABLE.state, **changed)  # type: ignore[arg-type]


def decide(
    operation: Operation,
    state: TableState,
    retention: Retention = NOTHING,
    past: PartitionHistory | None = None,
    *,
    force: bool = False,
) -> Decision:
    history = TableHistory(partitions={WHOLE_TABLE: past} if past else {})
    measured = replace(measure_files(TABLE, POLICY.rewrite_data_files), format_version=state.format_version)
    situation = Situation(measured, POLICY, {operation: history}, NOW_MS, force=force)
    return decide_housekeeping(operation, state, situation, retention)


def test_expiry_is_due_when_something_may_go() -> None:
    assert decide(EXPIRE, state_of()).reason is Reason.HEALTHY
    found = decide(EXPIRE, state_of(), SOME)
    assert (found.verdict, found.reason) == (Verdict.RUN, Reason.SNAPSHOTS)
    [finding] = found.partitions[0].findings
    assert (finding.metric, finding.value) == ("expirable_snapshots", 3)


def test_owner_who_forbids_removal_is_reported_even_if_nothing_is_due() -> None:
    found = decide(EXPIRE, state_of(properties={"gc.enabled": "false"}), SOME)
    assert (found.verdict, found.reason) == (Verdict.REFUSE, Reason.GC_DISABLED)
    assert decide(REGROUP, state_of(properties={"gc.enabled": "false"})).reason is Reason.HEALTHY


@pytest.mark.parametrize(
    ("past", "reason"),
    [
        (PartitionHistory(not_before_ms=NOW_MS + 1), Reason.BACK_OFF),
        (PartitionHistory(quarantined=True), Reason.QUARANTINED),
    ],
)
def test_housekeeping_waits_as_work_on_data_does(past: PartitionHistory, reason: Reason) -> None:
    assert decide(EXPIRE, state_of(), SOME, past).reason is reason
    assert decide(EXPIRE, state_of(), SOME, past, force=True).verdict is Verdict.RUN


def test_evidence_names_who_holds_snapshots_back() -> None:
    retainers = (
        Retainer(RetainerKind.FLINK, "job/op", 3, None, (3,)),
        Retainer(RetainerKind.TAG, "v1", 4, None, ()),
    )
    found = decide(EXPIRE, state_of(), replace(SOME, retainers=retainers))
    assert found.evidence == {"retained_by": "flink job/op (1 snapshot)"}


@pytest.mark.parametrize(
    ("name", "properties", "told"),
    [
        ("00101-x.metadata.json", {}, True),
        ("00100-x.metadata.json", {}, False),
        ("00101-x.metadata.json", {"write.metadata.delete-after-commit.enabled": "TRUE"}, False),
        ("strange", {}, False),
    ],
)
def test_evidence_shows_metadata_files_that_pile_up(
    name: str, properties: dict[str, str], told: bool
) -> None:
    state = state_of(metadata_location=f"file:///t/metadata/{name}", properties=properties)
    assert ("metadata_files" in decide(EXPIRE, state).evidence) is told


def test_plan_of_an_expiry_is_what_may_go_and_no_more() -> None:
    plan = plan_housekeeping(
        TABLE.state, decide(EXPIRE, TABLE.state, SOME), POLICY, SOME, TableHistory(), sweeps=False
    )
    [batch] = plan.batches
    assert batch.work == ExpireSnapshots((1, 2), ("old",))
    assert batch.partitions == (WHOLE_TABLE,)


def test_plan_of_manifests_has_a_batch_per_spec() -> None:
    state = state_of(manifests=MANY)
    plan = plan_housekeeping(state, decide(REGROUP, state), POLICY, NOTHING, TableHistory(), sweeps=False)
    assert [b.work.manifests for b in plan.batches] == [("m0", "m1", "m2", "m3"), ("m4", "m5", "m6", "m7")]
    assert len({b.batch_id for b in plan.batches}) == 2


def test_forced_plan_takes_all_manifests_or_says_that_there_is_nothing_to_gain() -> None:
    state = state_of(manifests=MANY[:5])
    decision = decide(REGROUP, state, force=True)
    assert decision.reason is Reason.FORCED
    plan = plan_housekeeping(state, decision, POLICY, NOTHING, TableHistory(), sweeps=False)
    assert [b.work.manifests for b in plan.batches] == [("m0", "m1", "m2", "m3")]
    alone = state_of(manifests=MANY[:1])
    plan = plan_housekeeping(
        alone, decide(REGROUP, alone, force=True), POLICY, NOTHING, TableHistory(), sweeps=False
    )
    assert [left.reason for left in plan.leftovers] == [Reason.NO_GAIN]
