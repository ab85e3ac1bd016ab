"""Which snapshots may expire by age, count and refs, in every time zone."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime
from zoneinfo import ZoneInfo

import pytest

from iceberg_maint.core.decisions.snapshot_retention import Retention, gc_enabled, retain
from iceberg_maint.core.model.table_state import Ref
from iceberg_maint.core.policy.housekeeping import ExpireSnapshotsPolicy
from iceberg_maint_tests.support.core.snapshots import DAY_MS, KEEP_ONE, line, snapshot, state_of
from iceberg_maint_tests.support.core.values import NOW_MS, table_of


def test_snapshots_past_the_age_expire_oldest_first() -> None:
    found = retain(state_of(*line(10)), KEEP_ONE, NOW_MS)
    assert found.expire == (1, 2, 3, 4)
    assert found.retainers == ()


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


def test_snapshot_of_a_slow_clock_makes_no_hole_in_the_branch() -> None:
    snapshots = [snapshot(1, 4), snapshot(2, 30, parent=1), snapshot(3, 0, parent=2)]
    assert retain(state_of(*snapshots), KEEP_ONE, NOW_MS).expire == ()


def test_table_without_snapshots_has_nothing_to_expire() -> None:
    assert retain(table_of([]).state, KEEP_ONE, NOW_MS) == Retention((), (), (), ())


def test_gc_enabled_unless_the_owner_says_no() -> None:
    assert gc_enabled({})
    assert gc_enabled({"gc.enabled": "TRUE"})
    assert not gc_enabled({"gc.enabled": "false"})
    assert not gc_enabled({"gc.enabled": "0"})


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
