"""The agreement of clocks: to five minutes, with every time in the sentence."""

from __future__ import annotations

from dataclasses import replace

import pytest

from iceberg_maint.core.removal.clock_skew import MAX_SKEW_MS, ClockReading, Clocks, clock_skew_text

NOW = 1_800_000_000_000
DAY = 86_400_000
EQUAL = Clocks(NOW, NOW, ClockReading(NOW - DAY, NOW - 5000), 5000, NOW, NOW)


def test_clocks_that_are_equal_agree() -> None:
    assert clock_skew_text(EQUAL) is None


@pytest.mark.parametrize("name", ["machine_ms", "ledger_ms", "store_ms"])
@pytest.mark.parametrize("ahead", [1, -1])
def test_clock_off_by_the_limit_agrees_and_by_more_does_not(name: str, ahead: int) -> None:
    moved = replace(EQUAL, updated_ms=None, **{name: NOW + ahead * MAX_SKEW_MS})
    assert clock_skew_text(moved) is None
    moved = replace(EQUAL, updated_ms=None, **{name: NOW + ahead * (MAX_SKEW_MS + 1)})
    assert "300 s apart" in str(clock_skew_text(moved))


def test_disagreement_names_every_clock_and_time() -> None:
    assert clock_skew_text(replace(EQUAL, machine_ms=NOW + 30 * DAY, uptime_ms=None)) == (
        "the clocks of this machine and of the ledger are 2592000 s apart; the clocks of this machine and of "
        "the store are 2592000 s apart. this machine 2027-02-14T08:00:00+00:00, ledger "
        "2027-01-15T08:00:00+00:00, store 2027-01-15T08:00:00+00:00, last-updated-ms "
        "2027-01-15T08:00:00+00:00, newest time in the ledger 2027-01-14T08:00:00+00:00; the limit is 300 s"
    )


@pytest.mark.parametrize(
    ("updated_ms", "agrees"),
    [(NOW - 3650 * DAY, True), (NOW + MAX_SKEW_MS, True), (NOW + MAX_SKEW_MS + 1, False)],
)
def test_table_updated_in_the_future_disagrees_and_an_idle_one_does_not(
    updated_ms: int, agrees: bool
) -> None:
    assert (clock_skew_text(replace(EQUAL, updated_ms=updated_ms)) is None) is agrees


@pytest.mark.parametrize(("newest_ms", "agrees"), [(NOW + MAX_SKEW_MS, True), (NOW + MAX_SKEW_MS + 1, False)])
def test_time_in_the_ledger_after_now_shows_a_clock_that_moved_backwards(
    newest_ms: int, agrees: bool
) -> None:
    told = clock_skew_text(replace(EQUAL, earlier=ClockReading(newest_ms)))
    assert (told is None) is agrees
    assert agrees or str(told).startswith("a clock moved backwards: the ledger holds a time 300 s later.")


@pytest.mark.parametrize(("days", "where"), [(30, "forwards"), (-30, "backwards")])
def test_clocks_of_one_machine_that_all_jump_disagree_with_its_uptime(days: int, where: str) -> None:
    at = NOW + days * DAY
    jumped = Clocks(at, at, ClockReading(0, NOW - 5000), 6000, at, None)
    assert str(clock_skew_text(jumped)).startswith(
        f"the clock of this machine was set {where} by {30 * 86_400 + (-1 if days > 0 else 1)} s while it ran."
    )
    assert clock_skew_text(replace(jumped, uptime_ms=5000 + days * DAY)) is None


def test_earliest_is_the_clock_that_is_behind() -> None:
    assert replace(EQUAL, store_ms=NOW - 7).earliest_ms == NOW - 7
    assert replace(EQUAL, store_ms=None, ledger_ms=NOW - 3).earliest_ms == NOW - 3


def test_time_beyond_the_calendar_is_shown_as_a_number() -> None:
    assert "this machine 900000000000000000 ms" in str(clock_skew_text(replace(EQUAL, machine_ms=9 * 10**17)))
