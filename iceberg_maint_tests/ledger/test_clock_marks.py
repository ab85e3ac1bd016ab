"""What the ledger keeps of readings of clocks."""

from __future__ import annotations

from iceberg_maint.core.removal.clock_agreement import ClockMark
from iceberg_maint_tests.ledger.conftest import Place

DAY_MS = 86_400_000


def test_new_ledger_has_no_mark(ledger) -> None:
    assert ledger.clock_mark(None) == ClockMark(0, None)
    assert ledger.clock_mark("a") == ClockMark(0, None)


def test_mark_is_the_newest_of_all_boots_and_the_boot_of_its_own(ledger, place: Place) -> None:
    ledger.keep_clock_mark("a", 10, 5000)
    ledger.keep_clock_mark("b", 20, 4000)
    ledger.keep_clock_mark(None, None, 3000)
    assert place.open().clock_mark("a") == ClockMark(5000, 10)
    assert place.open().clock_mark("b") == ClockMark(5000, 20)
    assert place.open().clock_mark("c") == ClockMark(5000, None)
    assert place.open().clock_mark(None) == ClockMark(5000, None)


def test_older_reading_does_not_take_the_place_of_a_newer_one(ledger) -> None:
    ledger.keep_clock_mark("a", 10, 5000)
    ledger.keep_clock_mark("a", 11, 4999)
    assert ledger.clock_mark("a") == ClockMark(5000, 11)


def test_boots_of_long_ago_are_forgotten_with_a_new_one(ledger, place: Place) -> None:
    ledger.keep_clock_mark("a", 10, 5000)
    ledger.keep_clock_mark("b", 20, 5000 + 90 * DAY_MS)
    assert len(place.sql("SELECT boot FROM icm_clock")) == 2
    ledger.keep_clock_mark("c", 30, 5001 + 90 * DAY_MS)
    assert sorted(place.sql("SELECT boot FROM icm_clock")) == [("b",), ("c",)]


def test_boot_that_was_kept_without_a_reading_stays_when_another_machine_forgets(
    ledger, place: Place
) -> None:
    ledger.keep_clock_mark("a", 10, 0)
    ledger.keep_clock_mark("b", 20, 5000 + 90 * DAY_MS)
    assert place.open().clock_mark("a") == ClockMark(5000 + 90 * DAY_MS, 10)


def test_forgotten_marks_are_gone(ledger) -> None:
    ledger.keep_clock_mark("a", 10, 5000)
    ledger.forget_clock_marks()
    assert ledger.clock_mark("a") == ClockMark(0, None)
