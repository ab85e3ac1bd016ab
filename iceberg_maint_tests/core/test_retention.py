"""Which snapshots may expire, against a brute-force model of the spec and of those who depend on history."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from iceberg_maint.core.housekeeping import DAY_SECONDS, ExpireSnapshotsPolicy
from iceberg_maint.core.retention import Hold, Holder, RegisteredReader, Retention, gc_enabled, retain
from iceberg_maint.core.state import Ref, Snapshot, TableState
from iceberg_maint_tests.core.build import NOW_MS, table_of

DAY_MS = DAY_SECONDS * 1000
KEEP_ONE = ExpireSnapshotsPolicy(min_snapshots_to_keep=1)


def snapshot(number: int, age_days: float, *, parent: int | None = None, **summary: str) -> Snapshot:
    return Snapshot(
        snapshot_id=number,
        parent_id=parent,
        sequence_number=number,
        timestamp_ms=NOW_MS - int(age_days * DAY_MS),
        operation="append",
        summary={key.replace("__", ".").replace("_", "-"): value for key, value in summary.items()},
        manifest_list=f"snap-{number}.avro",
    )


def state_of(*snapshots: Snapshot, refs: tuple[Ref, ...] = (), **properties: str) -> TableState:
    """`main` is the last snapshot unless the refs say otherwise."""
    head = next((r.snapshot_id for r in refs if r.name == "main"), snapshots[-1].snapshot_id)
    return replace(
        table_of([]).state,
        snapshots=snapshots,
        snapshot=next(s for s in snapshots if s.snapshot_id == head),
        refs=refs if any(r.name == "main" for r in refs) else (Ref("main", "branch", head), *refs),
        properties={f"history.expire.{k.replace('_', '-')}": v for k, v in properties.items()},
    )


def line(count: int, *, days_apart: float = 1) -> list[Snapshot]:
    """A branch of `count` snapshots, the newest made now."""
    return [snapshot(n, (count - n) * days_apart, parent=n - 1 or None) for n in range(1, count + 1)]


def with_summary(snapshots: list[Snapshot], number: int, **summary: str) -> list[Snapshot]:
    return [replace(s, summary={**s.summary, **summary}) if s.snapshot_id == number else s for s in snapshots]


def test_snapshots_past_the_age_expire_oldest_first() -> None:
    found = retain(state_of(*line(10)), KEEP_ONE, NOW_MS)
    assert found.expire == (1, 2, 3, 4)
    assert found.holds == ()


def test_snapshot_of_exactly_the_age_stays_and_goes_a_millisecond_later() -> None:
    state = state_of(snapshot(1, 5), snapshot(2, 0, parent=1))
    assert retain(state, KEEP_ONE, NOW_MS).expire == ()
    assert retain(state, KEEP_ONE, NOW_MS + 1).expire == (1,)


def test_count_keeps_old_snapshots_of_every_branch() -> None:
    old = [snapshot(n, 100 - n, parent=n - 1 or None) for n in range(1, 21)]
    assert retain(state_of(*old), ExpireSnapshotsPolicy(), NOW_MS).expire == tuple(range(1, 11))


@pytest.mark.parametrize(
    ("properties", "expired"),
    [
        ({"max_snapshot_age_ms": str(8 * DAY_MS)}, (1,)),
        ({"max_snapshot_age_ms": str(DAY_MS)}, (1, 2, 3, 4)),  # the policy keeps more
        ({"min_snapshots_to_keep": "9"}, (1,)),
        ({"min_snapshots_to_keep": "none"}, (1, 2, 3, 4)),
    ],
)
def test_table_property_keeps_more_and_never_less(
    properties: dict[str, str], expired: tuple[int, ...]
) -> None:
    assert retain(state_of(*line(10), **properties), KEEP_ONE, NOW_MS).expire == expired


@pytest.mark.parametrize(
    ("audit", "expired"),
    [
        (Ref("audit", "branch", 4, max_snapshot_age_ms=8 * DAY_MS, min_snapshots_to_keep=1), (1,)),
        (Ref("audit", "branch", 4, max_snapshot_age_ms=1, min_snapshots_to_keep=3), (1,)),
        (Ref("audit", "branch", 8, max_snapshot_age_ms=1, min_snapshots_to_keep=1), (1, 2, 3, 4)),
    ],
)
def test_branch_with_its_own_age_or_count_is_kept_by_that(audit: Ref, expired: tuple[int, ...]) -> None:
    refs = (Ref("main", "branch", 10), audit)
    assert retain(state_of(*line(10), refs=refs), KEEP_ONE, NOW_MS).expire == expired


def test_branch_may_ask_for_less_than_the_policy() -> None:
    main = Ref("main", "branch", 10, max_snapshot_age_ms=2 * DAY_MS, min_snapshots_to_keep=1)
    found = retain(state_of(*line(10), refs=(main,)), ExpireSnapshotsPolicy(), NOW_MS)
    assert found.expire == (1, 2, 3, 4, 5, 6, 7)


def test_ref_past_its_own_age_goes_with_its_snapshots_and_main_never() -> None:
    refs = (
        Ref("main", "branch", 10, max_ref_age_ms=0),
        Ref("old", "tag", 1, max_ref_age_ms=8 * DAY_MS),
        Ref("kept", "tag", 2, max_ref_age_ms=8 * DAY_MS),
    )
    found = retain(state_of(*line(10), refs=refs), KEEP_ONE, NOW_MS)
    assert found.expire_refs == ("old",)
    assert found.expire == (1, 3, 4)
    assert retain(state_of(*line(10), refs=refs), KEEP_ONE, NOW_MS + 1).expire_refs == ("kept", "old")


def test_refs_age_of_the_table_applies_to_refs_without_their_own() -> None:
    refs = (Ref("main", "branch", 10), Ref("v", "tag", 1))
    state = state_of(*line(10), refs=refs, max_ref_age_ms=str(DAY_MS))
    assert retain(state, KEEP_ONE, NOW_MS).expire_refs == ("v",)


def test_tag_names_itself_as_what_blocks() -> None:
    state = state_of(*line(10), refs=(Ref("main", "branch", 10), Ref("v1", "tag", 2)))
    found = retain(state, KEEP_ONE, NOW_MS)
    # A tag's snapshot is kept by the rules of the spec already: nothing is blocked beyond them.
    assert found.holds == (Hold(Holder.TAG, "v1", 2),)
    assert found.expire == (1, 3, 4)


def test_snapshot_of_a_slow_clock_makes_no_hole_in_the_branch() -> None:
    snapshots = [snapshot(1, 4), snapshot(2, 30, parent=1), snapshot(3, 0, parent=2)]
    assert retain(state_of(*snapshots), KEEP_ONE, NOW_MS).expire == ()


def test_running_plan_holds_its_snapshot_and_all_since() -> None:
    found = retain(state_of(*line(10)), KEEP_ONE, NOW_MS, running={"plan-7": 2})
    assert found.expire == (1,)
    assert found.blocking == (Hold(Holder.RUNNING, "plan-7", 2, None, (2, 3, 4)),)


def test_reader_holds_until_it_has_been_silent_too_long() -> None:
    reader = RegisteredReader("billing", 3, NOW_MS - 7 * DAY_MS)
    found = retain(state_of(*line(10)), KEEP_ONE, NOW_MS, readers=[reader])
    assert found.expire == (1, 2)
    assert found.blocking == (Hold(Holder.READER, "billing", 3, NOW_MS, (3, 4)),)
    later = retain(state_of(*line(10)), KEEP_ONE, NOW_MS + 1, readers=[reader])
    assert [h.name for h in later.lapsed] == ["billing"]
    assert later.blocking == ()


def test_reader_of_a_snapshot_that_is_gone_has_lapsed() -> None:
    found = retain(state_of(*line(10)), KEEP_ONE, NOW_MS, readers=[RegisteredReader("late", 99, NOW_MS)])
    assert [h.name for h in found.lapsed] == ["late"]


def test_staged_snapshot_stays_with_what_it_was_staged_on() -> None:
    staged = snapshot(11, 8, parent=2, wap__id="w1")
    state = state_of(*line(10), staged, refs=(Ref("main", "branch", 10),))
    found = retain(state, KEEP_ONE, NOW_MS)
    assert found.expire == (1,)
    assert found.blocking == (Hold(Holder.STAGED, "w1", 11, None, (2, 3, 4, 11)),)


@pytest.mark.parametrize("summary", [{"published_wap_id": "w1"}, {"source_snapshot_id": "11"}])
def test_published_staged_snapshot_expires(summary: dict[str, str]) -> None:
    staged = snapshot(11, 8, parent=2, wap__id="w1")
    published = snapshot(12, 0, parent=10, **summary)
    state = state_of(*line(10), staged, published, refs=(Ref("main", "branch", 12),))
    assert retain(state, KEEP_ONE, NOW_MS).expire == (1, 2, 3, 4, 11)


def test_staged_snapshot_on_a_branch_is_published() -> None:
    snapshots = with_summary(line(10), 2, **{"wap.id": "w1"})
    assert retain(state_of(*snapshots), KEEP_ONE, NOW_MS).expire == (1, 2, 3, 4)


def test_staged_snapshot_past_its_age_lapses() -> None:
    staged = snapshot(11, 8, parent=2, wap__id="w1")
    state = state_of(*line(10), staged, refs=(Ref("main", "branch", 10),))
    policy = replace(KEEP_ONE, staged_max_age_seconds=8 * DAY_SECONDS)
    assert 11 not in retain(state, policy, NOW_MS).expire
    late = retain(state, policy, NOW_MS + 1)
    assert 11 in late.expire
    assert [h.name for h in late.lapsed] == ["w1"]


FLINK = {"flink.max-committed-checkpoint-id": "17", "flink.job-id": "j", "flink.operator-id": "o"}
CONNECT = {"kafka.connect.offsets.control.group": '{"0":5}'}
SPARK = {"spark.sql.streaming.queryId": "q", "spark.sql.streaming.epochId": "3"}


@pytest.mark.parametrize(
    ("summary", "holder", "name"),
    [
        (FLINK, Holder.FLINK, "j/o"),
        (CONNECT, Holder.KAFKA_CONNECT, "control.group"),
        ({"kafka.connect.vtts": "1"}, Holder.KAFKA_CONNECT, "kafka.connect.vtts"),
        ({"kafka.connect.valid-through-ts": "1"}, Holder.KAFKA_CONNECT, "kafka.connect.valid-through-ts"),
        (SPARK, Holder.SPARK_STREAMING, "q"),
    ],
)
def test_newest_position_of_a_writer_stays_with_the_way_to_it(
    summary: dict[str, str], holder: Holder, name: str
) -> None:
    snapshots = with_summary(with_summary(line(10), 3, **summary), 4, **summary)
    found = retain(state_of(*snapshots), KEEP_ONE, NOW_MS)
    end_ms = snapshots[3].timestamp_ms + 7 * DAY_MS
    # The writer walks from the head from parent to parent: a hole before 4 would hide 4.
    assert found.blocking == (Hold(holder, name, 4, end_ms, (4,)),)
    assert (found.expire, found.lapsed) == ((1, 2, 3), ())


def test_each_writer_has_its_own_newest_position() -> None:
    other = {**FLINK, "flink.job-id": "k"}
    snapshots = with_summary(with_summary(line(10), 3, **FLINK), 4, **other)
    found = retain(state_of(*snapshots), KEEP_ONE, NOW_MS)
    assert [(h.name, h.blocks) for h in found.blocking] == [("j/o", (3, 4)), ("k/o", (4,))]


def test_position_of_a_writer_past_its_age_lapses_and_is_named() -> None:
    snapshots = with_summary(line(12), 1, **FLINK)
    found = retain(state_of(*snapshots), KEEP_ONE, NOW_MS)
    assert [(h.holder, h.name) for h in found.lapsed] == [(Holder.FLINK, "j/o")]
    assert 1 in found.expire
    for_ever = replace(KEEP_ONE, writer_state_max_age_seconds=None)
    assert retain(state_of(*snapshots), for_ever, NOW_MS).expire == ()


def test_table_without_snapshots_has_nothing_to_expire() -> None:
    assert retain(table_of([]).state, KEEP_ONE, NOW_MS) == Retention((), (), (), ())


def test_gc_enabled_unless_the_owner_says_no() -> None:
    assert gc_enabled({})
    assert gc_enabled({"gc.enabled": "TRUE"})
    assert not gc_enabled({"gc.enabled": "false"})
    assert not gc_enabled({"gc.enabled": "0"})


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
    """`RemoveSnapshots`, written from the spec's five steps, without a look at the code under test."""
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
        held = {n for h in found.holds for n in h.blocks}
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
        running={"p": planned},
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


ZONES = [
    "UTC",
    "America/Los_Angeles",
    "America/New_York",
    "America/St_Johns",
    "America/Sao_Paulo",
    "America/Santiago",
    "America/Havana",
    "Europe/London",
    "Europe/Berlin",
    "Europe/Moscow",
    "Africa/Cairo",
    "Africa/Casablanca",
    "Asia/Tehran",
    "Asia/Kathmandu",
    "Asia/Kolkata",
    "Asia/Dhaka",
    "Asia/Shanghai",
    "Asia/Tokyo",
    "Australia/Adelaide",
    "Australia/Lord_Howe",
    "Australia/Sydney",
    "Pacific/Auckland",
    "Pacific/Chatham",
    "Pacific/Apia",
]
NIGHTS = [(3, 8), (3, 29), (10, 25), (11, 1)]
"""Month and day of 2026 on which clocks change: America, Europe, Europe, America."""


@pytest.fixture(params=ZONES)
def zone(request: pytest.FixtureRequest) -> Iterator[str]:
    """The process in another time zone."""
    before = os.environ.get("TZ")
    os.environ["TZ"] = request.param
    time.tzset()
    yield request.param
    if before is None:
        del os.environ["TZ"]
    else:
        os.environ["TZ"] = before
    time.tzset()


def test_in_no_time_zone_does_a_snapshot_go_too_early(zone: str) -> None:
    """Each hour round each change of the clocks, snapshots an hour apart: those below the age stay, all others go."""
    assert len(ZONES) == 24
    for month, day in NIGHTS:
        middle_ms = int(datetime(2026, month, day, tzinfo=ZoneInfo(zone)).timestamp()) * 1000
        for hour in range(-3, 6):
            now_ms = middle_ms + hour * 3_600_000
            snapshots = [
                replace(snapshot(n, 0, parent=n - 1 or None), timestamp_ms=now_ms - (130 - n) * 3_600_000)
                for n in range(1, 131)
            ]
            found = retain(state_of(*snapshots), KEEP_ONE, now_ms)
            ages_ms = [now_ms - s.timestamp_ms for s in snapshots if s.snapshot_id in found.expire]
            assert len(ages_ms) == 9
            assert min(ages_ms) == 5 * DAY_MS + 3_600_000
