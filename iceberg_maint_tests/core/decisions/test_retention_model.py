"""Which snapshots may expire, against a brute-force model of the spec and of those who depend on history."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from iceberg_maint.core.decisions.snapshot_retention import (
    RegisteredReader,
    Retainer,
    RetainerKind,
    retain,
)
from iceberg_maint.core.model.table_state import Ref, Snapshot, TableState
from iceberg_maint.core.policy.housekeeping import DAY_SECONDS, ExpireSnapshotsPolicy
from iceberg_maint_tests.support.core.snapshots import CONNECT, DAY_MS, FLINK, SPARK, snapshot, state_of
from iceberg_maint_tests.support.core.values import NOW_MS

pytestmark = pytest.mark.seconds


@st.composite
def histories(draw: st.DrawFn) -> tuple[TableState, ExpireSnapshotsPolicy]:
    """Trees of snapshots with branches, tags, summaries and clocks that run as they like."""
    count = draw(st.integers(1, 14))
    other = {**FLINK, "flink.job-id": "k"}
    staged = ({"wap.id": "w"}, {"wap.id": "x"}, {"published-wap-id": "w"})
    tellings = st.sampled_from([{}, {}, {}, FLINK, other, CONNECT, SPARK, *staged])
    snapshots = []
    for n in range(1, count + 1):
        parent = draw(st.sampled_from([None, *range(1, n)] + [n - 1 or None] * 8))
        made = snapshot(n, draw(st.sampled_from([0, 1, 4, 5, 5.5, 6, 8, 30])), parent=parent)
        snapshots.append(replace(made, summary=draw(tellings)))
    ages = st.sampled_from([None, 1, 5 * DAY_MS, 6 * DAY_MS])
    refs = [Ref("main", "branch", draw(st.integers(1, count)))]
    for name in draw(st.sets(st.sampled_from(["audit", "dev", "v1", "v2"]))):
        kind = "tag" if name.startswith("v") else "branch"
        refs.append(
            Ref(
                name,
                kind,
                draw(st.integers(1, count)),
                draw(ages),
                draw(ages) if kind == "branch" else None,
                draw(st.sampled_from([None, 1, 3])) if kind == "branch" else None,
            )
        )
    policy = ExpireSnapshotsPolicy(
        min_snapshots_to_keep=draw(st.sampled_from([1, 2, 5])),
        staged_max_age_seconds=draw(st.sampled_from([None, 6 * DAY_SECONDS])),
        writer_state_max_age_seconds=draw(st.sampled_from([None, 6 * DAY_SECONDS])),
    )
    return state_of(*snapshots, refs=tuple(refs)), policy


def iceberg_expires(state: TableState, policy: ExpireSnapshotsPolicy) -> set[int]:
    """`RemoveSnapshots`, written from the spec's five steps, without reading the code under test."""
    by_id = {s.snapshot_id: s for s in state.snapshots}

    def chain(of: int) -> Iterator[Snapshot]:
        while of in by_id:
            yield by_id[of]
            of = by_id[of].parent_id or 0

    cutoff = NOW_MS - policy.max_snapshot_age_seconds * 1000
    refs = [
        r
        for r in state.refs
        if r.name == "main"
        or r.max_ref_age_ms is None
        or NOW_MS - by_id[r.snapshot_id].timestamp_ms <= r.max_ref_age_ms
    ]
    kept, referenced = {r.snapshot_id for r in refs}, set()
    for ref in refs:
        referenced.add(ref.snapshot_id)
        if ref.kind != "branch":
            continue
        since = cutoff if ref.max_snapshot_age_ms is None else NOW_MS - ref.max_snapshot_age_ms
        least = ref.min_snapshots_to_keep or policy.min_snapshots_to_keep
        referenced.update(s.snapshot_id for s in chain(ref.snapshot_id))
        for n, s in enumerate(chain(ref.snapshot_id)):
            if n >= least and s.timestamp_ms < since:
                break
            kept.add(s.snapshot_id)
    kept |= {s.snapshot_id for s in state.snapshots if s.timestamp_ms >= cutoff} - referenced
    return set(by_id) - kept


@given(histories())
def test_whatever_the_history_nothing_goes_that_iceberg_would_keep(
    given_: tuple[TableState, ExpireSnapshotsPolicy],
) -> None:
    state, policy = given_
    found = retain(state, policy, NOW_MS)
    assert set(found.expire) <= iceberg_expires(state, policy)
    if all(s.timestamp_ms >= p.timestamp_ms for s in state.snapshots for p in _parents(state, s.snapshot_id)):
        # With clocks that run forward, what stays beyond Iceberg's rules is named.
        held = {n for h in found.retainers for n in h.blocks}
        assert iceberg_expires(state, policy) - set(found.expire) == held


def _parents(state: TableState, number: int) -> Iterator[Snapshot]:
    at = state.snapshot_by_id(number)
    while at is not None:
        yield at
        at = state.snapshot_by_id(at.parent_id) if at.parent_id is not None else None


@given(histories())
def test_whatever_the_history_a_writer_finds_its_position_after_the_expiry(
    given_: tuple[TableState, ExpireSnapshotsPolicy],
) -> None:
    state, policy = given_
    policy = replace(policy, writer_state_max_age_seconds=None)
    found = retain(state, policy, NOW_MS)
    after = [s for s in state.snapshots if s.snapshot_id not in found.expire]
    refs = [r for r in state.refs if r.name not in found.expire_refs and r.kind == "branch"]
    for ref in refs:
        assert _positions(state.snapshots, ref) == _positions(after, ref)


def _positions(snapshots: object, ref: Ref) -> dict[str, int]:
    """What writers find when they walk the branch, as Flink's, Kafka Connect's and Spark's committers do."""
    by_id = {s.snapshot_id: s for s in snapshots}  # type: ignore[attr-defined]
    at, found = by_id.get(ref.snapshot_id), dict[str, int]()
    while at is not None:
        for key in (
            "kafka.connect.offsets.control.group",
            "spark.sql.streaming.queryId",
            *([at.summary["flink.job-id"]] if "flink.job-id" in at.summary else ()),
        ):
            if key in at.summary or key == at.summary.get("flink.job-id"):
                found.setdefault(key, at.snapshot_id)
        at = by_id.get(at.parent_id)
    return found


@given(histories(), st.integers(1, 14), st.integers(1, 14))
def test_whatever_the_history_plans_readers_and_staged_snapshots_keep_theirs(
    given_: tuple[TableState, ExpireSnapshotsPolicy], planned: int, read: int
) -> None:
    state, policy = given_
    found = retain(
        state,
        policy,
        NOW_MS,
        work=[Retainer(RetainerKind.RUNNING, "p", planned)],
        readers=[RegisteredReader("r", read, NOW_MS)],
    )
    assert not {planned, read} & set(found.expire)
    branches = [r for r in state.refs if r.kind == "branch" and r.name not in found.expire_refs]
    on_branches = {s.snapshot_id for r in branches for s in _parents(state, r.snapshot_id)}
    if policy.staged_max_age_seconds is None:
        published = {s.summary.get("published-wap-id") for s in state.snapshots}
        staged = {
            s.snapshot_id
            for s in state.snapshots
            if s.summary.get("wap.id", "") not in {"", *published} and s.snapshot_id not in on_branches
        }
        assert not staged & set(found.expire)
    assert not {r.snapshot_id for r in branches} & set(found.expire)
