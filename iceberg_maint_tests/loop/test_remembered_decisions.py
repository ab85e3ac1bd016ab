"""Remembered decisions: the same as decisions made again, whatever the health, the policy, the histories and the clock."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from iceberg_maint.core.decisions.applicability import SPARK_3, SPARK_4
from iceberg_maint.core.decisions.history import FleetWait, PartitionHistory, Pause, TableHistory
from iceberg_maint.core.decisions.waits import decided
from iceberg_maint.core.health.metrics import Measured, PartitionHealth
from iceberg_maint.core.model.ids import DATA_OPERATIONS, WHOLE_TABLE, Operation
from iceberg_maint.core.model.other_writers import ForeignCommit, PendingPublish, PublishKind
from iceberg_maint.core.model.reasons import CHECK_OF
from iceberg_maint.core.policy.data import EqualityDeletesPolicy, Mode, Policy, Route
from iceberg_maint.core.policy.runs import (
    ForeignMaintainersPolicy,
    ForeignMode,
    WindowsPolicy,
    WriteAuditPublishPolicy,
)
from iceberg_maint.defs.automation.due_work import DueWork, decided_work
from iceberg_maint.ledger.health_days import StoredPartitions, UnpackedPartitions, pack
from iceberg_maint.loop.fleet.budget import decided_due
from iceberg_maint.loop.fleet.stored_decisions import Basis, RememberedDecisions
from iceberg_maint_tests.support.core.values import NOW_MS, measured_of, policy_of, rewrite_policy
from iceberg_maint_tests.support.examples import examples

pytestmark = pytest.mark.seconds

SICK = PartitionHealth(data_files=10, data_bytes=100, small_files=10, small_bytes=100)
HEALTHY = PartitionHealth(data_files=10, data_bytes=1000)
KEYS = ("p=a", "p=b", "p=c")

times_ms = st.integers(-4, 4).map(lambda seconds: NOW_MS + seconds * 1000)
clocks_ms = st.builds(lambda at_ms, more: at_ms + more, times_ms, st.integers(-1, 1)) | st.sampled_from(
    [NOW_MS // 60_000 * 60_000 + more for more in (-1, 0, 59_999, 60_000)]
)
few = st.integers(0, 2)
seconds = st.integers(1, 3)
healths = st.builds(
    lambda health, deletes, dangling, positions, changed_ms, since_ms, dangling_ms: replace(
        health,
        equality_delete_files=deletes + dangling,
        applicable_equality_delete_files=deletes,
        dangling_equality_delete_files=dangling,
        dangling_delete_files=dangling,
        position_delete_files=positions,
        mergeable_delete_files=positions,
        last_change_ms=changed_ms,
        oldest_equality_delete_ms=since_ms if deletes else None,
        oldest_dangling_equality_delete_ms=dangling_ms if dangling else None,
    ),
    st.sampled_from([SICK, HEALTHY]),
    few,
    few,
    st.sampled_from([0, 50]),
    st.none() | times_ms,
    st.none() | times_ms,
    st.none() | times_ms,
)
policies = st.builds(
    lambda rewrite, cold, route, foreign, publish, **top: policy_of(
        rewrite,
        WindowsPolicy(cold_after_seconds=cold, max_partitions_per_run=2),
        equality_deletes=EqualityDeletesPolicy(route=route),
        foreign_maintainers=foreign,
        write_audit_publish=publish,
        **top,
    ),
    st.builds(
        lambda age: rewrite_policy(equality_delete_max_age_seconds=age, min_input_files=5),
        st.none() | seconds,
    ),
    st.none() | seconds,
    st.sampled_from(Route),
    st.builds(ForeignMaintainersPolicy, st.sampled_from(ForeignMode)),
    st.builds(WriteAuditPublishPolicy, max_age_seconds=st.none() | seconds),
    mode=st.sampled_from(Mode),
    blackout_hours=st.sampled_from([(), ("22:13-22:14",), ("22:14-03:00", "05:00-06:00")]),
)
waits = st.dictionaries(st.sampled_from(KEYS), st.builds(FleetWait, times_ms, times_ms), max_size=2)
histories = st.builds(
    TableHistory,
    paused=st.just(False) | st.booleans(),
    pauses=st.just((Pause("note", "me", NOW_MS),)),
    lease_owner=st.just(None) | st.sampled_from([None, "other"]),
    hour_partitions=few,
    partitions=st.dictionaries(
        st.sampled_from((*KEYS, WHOLE_TABLE)),
        st.builds(
            PartitionHistory,
            not_before_ms=st.none() | times_ms,
            quarantined=st.sampled_from([False, False, True]),
        ),
        max_size=2,
    ),
    fleet_waits=st.just({}) | waits,
)
commits = st.builds(lambda at_ms: ForeignCommit(7, at_ms, "other tool", deletes=False), times_ms)
publishes = st.builds(lambda since_ms: PendingPublish(PublishKind.BRANCH, "audit", 8, since_ms), times_ms)


def stored(partitions: dict[str, PartitionHealth], **values: object) -> Measured:
    """Health as the ledger returns it."""
    packed = StoredPartitions(pack(partitions), UnpackedPartitions())
    return replace(measured_of({}), partitions=packed, **values)  # type: ignore[arg-type]


bases = st.builds(
    Basis,
    st.builds(
        stored,
        st.dictionaries(st.sampled_from(KEYS), healths, max_size=3),
        foreign=st.just(()) | st.lists(commits, max_size=2).map(tuple),
        pending_publishes=st.just(()) | st.lists(publishes, max_size=2).map(tuple),
        format_version=st.sampled_from([2, 3]),
    ),
    policies,
    st.fixed_dictionaries(dict.fromkeys((*DATA_OPERATIONS, *CHECK_OF), histories)),
    st.sampled_from([SPARK_3, SPARK_4]),
)


def partitions_of(work: DueWork) -> int:
    return len(work.partitions)


@given(
    st.lists(bases, min_size=1, max_size=3),
    st.lists(st.tuples(few, clocks_ms), min_size=2, max_size=8),
)
@settings(max_examples=examples(600), deadline=None)
def test_remembered_decision_equals_one_decided_anew(
    known: Sequence[Basis], looks: Sequence[tuple[int, int]]
) -> None:
    memory = RememberedDecisions()
    for number, now_ms in looks:
        basis = known[number % len(known)]
        work = memory.decide(
            "work", basis, now_ms, lambda at_ms, b=basis: decided_work(b, at_ms), partitions_of
        )
        assert work == decided_work(basis, now_ms)
        data = replace(basis, histories={o: basis.histories[o] for o in DATA_OPERATIONS})
        due = memory.decide("due", data, now_ms, lambda at_ms, b=data: decided_due(b, at_ms), len)
        assert due == decided_due(data, now_ms)
        # Every time rule is a comparison; all limits here are whole seconds.
        for rule in (partial(decided_work, basis), partial(decided_due, data)):
            _, first_ms, last_ms = decided(rule, now_ms)
            assert last_ms - first_ms >= 999


def _calls(memory: RememberedDecisions, basis: Basis, *clocks: int) -> list[int]:
    """The times for which the memory decided again."""
    calls: list[int] = []

    def decide(now_ms: int, at_ms: int) -> DueWork:
        calls.append(at_ms)
        return decided_work(basis, now_ms)

    for at_ms in clocks:
        memory.decide("work", basis, at_ms, lambda now_ms, at=at_ms: decide(now_ms, at), partitions_of)
    return calls


def _basis(policy: Policy | None = None, **values: object) -> Basis:
    nothing = {o: TableHistory() for o in (*DATA_OPERATIONS, *CHECK_OF)}
    return Basis(stored({"p=a": SICK}, **values), policy or policy_of(), nothing, SPARK_4)


def test_decision_without_time_rules_is_made_once() -> None:
    assert _calls(RememberedDecisions(), _basis(), NOW_MS, NOW_MS + 10**12, 0) == [NOW_MS]


def test_decision_in_back_off_is_made_again_when_the_back_off_ends() -> None:
    basis = _basis()
    waits = TableHistory(partitions={"p=a": PartitionHistory(not_before_ms=NOW_MS + 500)})
    basis = replace(basis, histories={**basis.histories, Operation.REWRITE_DATA_FILES: waits})
    assert _calls(RememberedDecisions(), basis, NOW_MS, NOW_MS + 499, NOW_MS + 500, NOW_MS + 501) == [
        NOW_MS,
        NOW_MS + 500,
    ]


def test_decision_beside_blackout_hours_is_made_once_a_minute() -> None:
    basis, minute = _basis(policy_of(blackout_hours=("01:00-02:00",))), NOW_MS // 60_000 * 60_000
    clocks = (minute, minute + 59_999, minute + 60_000, minute + 59_999)
    assert _calls(RememberedDecisions(), basis, *clocks) == [minute, minute + 60_000, minute + 59_999]


@pytest.mark.parametrize(
    "change",
    [
        lambda b: replace(b, policy=policy_of(mode=Mode.ADVISE)),
        lambda b: replace(
            b, histories={**b.histories, Operation.REWRITE_DATA_FILES: TableHistory(paused=True)}
        ),
        lambda b: replace(b, measured=stored({"p=a": HEALTHY})),
        lambda b: replace(b, measured=replace(b.measured, format_version=3)),
        lambda b: replace(b, readers=SPARK_3),
    ],
    ids=["policy", "history", "partitions", "head", "readers"],
)
def test_decision_of_another_basis_is_made_again(change) -> None:  # type: ignore[no-untyped-def]
    memory, basis = RememberedDecisions(), _basis()
    assert _calls(memory, basis, NOW_MS) == [NOW_MS]
    assert _calls(memory, change(basis), NOW_MS, NOW_MS) == [NOW_MS]


def test_health_that_is_not_stored_is_decided_each_time() -> None:
    basis = replace(_basis(), measured=measured_of({"p=a": SICK}))
    assert _calls(RememberedDecisions(), basis, NOW_MS, NOW_MS) == [NOW_MS, NOW_MS]


def test_memory_keeps_as_many_units_as_it_may() -> None:
    memory, basis = RememberedDecisions(kept=2), _basis()
    other = replace(basis, measured=replace(basis.measured, table=replace(basis.measured.table, name="u")))
    # Each decision with its due partition takes both units.
    assert _calls(memory, basis, NOW_MS, NOW_MS) == [NOW_MS]
    assert _calls(memory, other, NOW_MS, NOW_MS) == [NOW_MS]
    assert _calls(memory, basis, NOW_MS) == [NOW_MS]
