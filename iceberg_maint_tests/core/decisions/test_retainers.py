"""Who holds snapshots beyond their age and count: tags, plans, readers, staged snapshots, streaming writers."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime

import pytest

from iceberg_maint.core.decisions.snapshot_retention import (
    RegisteredReader,
    Retainer,
    RetainerKind,
    described_retainers,
    retain,
)
from iceberg_maint.core.model.other_writers import pending_publishes
from iceberg_maint.core.model.table_state import Ref, TableState
from iceberg_maint.core.policy.housekeeping import DAY_SECONDS
from iceberg_maint.core.policy.runs import PublishMode, WriteAuditPublishPolicy
from iceberg_maint_tests.support.core.snapshots import (
    CONNECT,
    DAY_MS,
    FLINK,
    KEEP_ONE,
    SPARK,
    line,
    snapshot,
    state_of,
    with_summary,
)
from iceberg_maint_tests.support.core.values import NOW_MS


def test_tag_names_itself_as_what_blocks() -> None:
    state = state_of(*line(10), refs=(Ref("main", "branch", 10), Ref("v1", "tag", 2)))
    found = retain(state, KEEP_ONE, NOW_MS)
    # A tag's snapshot is kept by the rules of the spec already: nothing is blocked beyond them.
    assert found.retainers == (Retainer(RetainerKind.TAG, "v1", 2, since_ms=state.snapshots[1].timestamp_ms),)
    assert found.expire == (1, 3, 4)


@pytest.mark.parametrize("kind", [RetainerKind.RUNNING, RetainerKind.ATTESTATION])
def test_running_plan_or_red_commit_holds_its_snapshot_and_all_since(kind: RetainerKind) -> None:
    snapshots = line(10)
    found = retain(state_of(*snapshots), KEEP_ONE, NOW_MS, work=[Retainer(kind, "7", 2)])
    assert found.expire == (1,)
    assert found.blocking == (Retainer(kind, "7", 2, None, (2, 3, 4), snapshots[1].timestamp_ms),)


def test_reader_holds_for_ever_however_silent() -> None:
    reader = RegisteredReader("billing", 3, NOW_MS - 400 * DAY_MS)
    found = retain(state_of(*line(10)), KEEP_ONE, NOW_MS, readers=[reader])
    assert (found.expire, found.lapsed) == ((1, 2), ())
    assert found.blocking == (Retainer(RetainerKind.READER, "billing", 3, None, (3, 4), reader.seen_ms),)


def test_reader_with_an_age_holds_until_it_has_been_silent_too_long() -> None:
    policy = replace(KEEP_ONE, reader_max_silence_seconds=7 * DAY_SECONDS)
    reader = RegisteredReader("billing", 3, NOW_MS - 7 * DAY_MS)
    found = retain(state_of(*line(10)), policy, NOW_MS, readers=[reader])
    assert found.expire == (1, 2)
    assert found.blocking == (Retainer(RetainerKind.READER, "billing", 3, NOW_MS, (3, 4), reader.seen_ms),)
    later = retain(state_of(*line(10)), policy, NOW_MS + 1, readers=[reader])
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
    assert found.blocking == (
        Retainer(RetainerKind.STAGED, "w1", 11, None, (2, 3, 4, 11), staged.timestamp_ms),
    )


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


@pytest.mark.parametrize(
    ("summary", "holder", "name"),
    [
        (FLINK, RetainerKind.FLINK, "j/o"),
        (CONNECT, RetainerKind.KAFKA_CONNECT, "control.group"),
        ({"kafka.connect.vtts": "1"}, RetainerKind.KAFKA_CONNECT, "kafka.connect.vtts"),
        (
            {"kafka.connect.valid-through-ts": "1"},
            RetainerKind.KAFKA_CONNECT,
            "kafka.connect.valid-through-ts",
        ),
        (SPARK, RetainerKind.SPARK_STREAMING, "q"),
    ],
)
def test_newest_position_of_a_writer_stays_with_the_way_to_it(
    summary: dict[str, str], holder: RetainerKind, name: str
) -> None:
    snapshots = with_summary(with_summary(line(10), 3, **summary), 4, **summary)
    found = retain(state_of(*snapshots), KEEP_ONE, NOW_MS)
    # The writer walks from the head from parent to parent: a hole before 4 would hide 4.
    assert found.blocking == (Retainer(holder, name, 4, None, (4,), snapshots[3].timestamp_ms),)
    assert (found.expire, found.lapsed) == ((1, 2, 3), ())


def test_each_writer_has_its_own_newest_position() -> None:
    other = {**FLINK, "flink.job-id": "k"}
    snapshots = with_summary(with_summary(line(10), 3, **FLINK), 4, **other)
    found = retain(state_of(*snapshots), KEEP_ONE, NOW_MS)
    assert [(h.name, h.blocks) for h in found.blocking] == [("j/o", (3, 4)), ("k/o", (4,))]


def test_position_of_a_writer_never_lapses_without_an_age() -> None:
    snapshots = with_summary(line(400), 3, **FLINK)
    found = retain(state_of(*snapshots), KEEP_ONE, NOW_MS)
    # What is older than the position expires.
    assert (found.expire, found.lapsed) == ((1, 2), ())
    assert [(h.kind, h.name, h.snapshot_id) for h in found.blocking] == [(RetainerKind.FLINK, "j/o", 3)]


def test_position_of_a_writer_past_its_age_lapses_and_is_named() -> None:
    snapshots = with_summary(line(12), 1, **FLINK)
    week = replace(KEEP_ONE, writer_state_max_age_seconds=7 * DAY_SECONDS)
    found = retain(state_of(*snapshots), week, NOW_MS)
    assert [(h.kind, h.name) for h in found.lapsed] == [(RetainerKind.FLINK, "j/o")]
    assert 1 in found.expire


def test_holders_are_described_with_what_they_hold_since_when() -> None:
    snapshots = with_summary(line(10), 3, **FLINK)
    policy = replace(KEEP_ONE, reader_max_silence_seconds=7 * DAY_SECONDS)
    reader = RegisteredReader("billing", 4, NOW_MS)
    found = retain(state_of(*snapshots), policy, NOW_MS, readers=[reader])
    since, now, week = (
        datetime.fromtimestamp(ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
        for ms in (snapshots[2].timestamp_ms, NOW_MS, NOW_MS + 7 * DAY_MS)
    )
    assert described_retainers(found) == (
        f"flink j/o (2 snapshots since {since})",
        f"reader billing (1 snapshot since {now} until {week})",
    )


def test_holders_beyond_twenty_are_counted() -> None:
    snapshots = line(10)
    readers = [RegisteredReader(f"r{n:02}", 3, NOW_MS) for n in range(23)]
    described = described_retainers(retain(state_of(*snapshots), KEEP_ONE, NOW_MS, readers=readers))
    assert (len(described), described[-1]) == (21, "3 more")
    twenty = described_retainers(retain(state_of(*snapshots), KEEP_ONE, NOW_MS, readers=readers[:20]))
    assert twenty == described[:20]


def test_hold_since_a_time_that_no_calendar_has_is_described_in_milliseconds() -> None:
    assert (
        Retainer(RetainerKind.READER, "r", 1, since_ms=10**18).describe()
        == f"reader r (0 snapshots since {10**18} ms)"
    )


def ahead(*ages: float) -> TableState:
    """A branch with snapshots of these ages since main's head, which is snapshot 3."""
    main = [snapshot(n, 50 - n, parent=n - 1 or None) for n in (1, 2, 3)]
    audit = [snapshot(n, age, parent=n - 1) for n, age in enumerate(ages, 4)]
    refs = (Ref("main", "branch", 3), Ref("audit", "branch", 3 + len(ages), max_snapshot_age_ms=DAY_MS))
    return state_of(*main, *audit, refs=refs)


def test_branch_that_can_be_published_keeps_its_way_to_main_until_the_wait_ends() -> None:
    state = ahead(2.9, 2.5, 0)
    found = retain(state, KEEP_ONE, NOW_MS)
    first = state.snapshots[3]
    end_ms = first.timestamp_ms + 3 * DAY_MS
    assert found.expire == (1, 2)
    assert found.blocking == (Retainer(RetainerKind.BRANCH, "audit", 4, end_ms, (4, 5), first.timestamp_ms),)
    [text] = described_retainers(found)
    since, until = (
        datetime.fromtimestamp(ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
        for ms in (first.timestamp_ms, end_ms)
    )
    assert (
        text == f"branch audit (2 snapshots since {since} until {until}, then it can no longer be published)"
    )
    kept = [s for s in state.snapshots if s.snapshot_id not in found.expire]
    assert pending_publishes(replace(state, snapshots=tuple(kept))) == pending_publishes(state)

    late = retain(state, KEEP_ONE, end_ms + 1)
    assert late.expire == (1, 2, 4, 5)
    assert [h.name for h in late.lapsed] == ["audit"]


def test_branch_with_an_endless_wait_never_lapses_and_an_ignored_one_holds_nothing() -> None:
    state = ahead(400, 390, 0)
    endless, ignored = (
        WriteAuditPublishPolicy(max_age_seconds=None),
        WriteAuditPublishPolicy(PublishMode.IGNORE),
    )
    assert retain(state, KEEP_ONE, NOW_MS, publishing=endless).expire == (1, 2)
    assert retain(state, KEEP_ONE, NOW_MS, publishing=ignored).expire == (1, 2, 4, 5)


def test_branch_past_its_own_age_is_no_longer_held() -> None:
    state = ahead(2.9, 2.5, 2)
    refs = (state.refs[0], replace(state.refs[1], max_ref_age_ms=DAY_MS))
    found = retain(replace(state, refs=refs), KEEP_ONE, NOW_MS)
    assert (found.expire_refs, found.blocking, found.lapsed) == (("audit",), (), ())
