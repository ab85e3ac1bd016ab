"""Runs of Dagster's that say in the ledger that they live."""

from __future__ import annotations

from iceberg_maint.ledger.ledger import SqlLedger
from iceberg_maint_tests.ledger.conftest import Place

DAY_MS = 24 * 3600 * 1000


def test_run_is_heard_by_the_databases_clock_until_it_ends(place: Place, ledger: SqlLedger):
    before_ms = ledger.now_ms()
    ledger.record_run_heartbeat("run-1")
    ledger.record_run_heartbeat("run-2")
    assert set(ledger.run_heartbeats()) == {"run-1", "run-2"}
    assert before_ms <= ledger.run_heartbeats()["run-1"] <= ledger.now_ms()
    place.age("icm_run", "beat_ms", 60_000)
    old_ms = ledger.run_heartbeats()["run-2"]
    ledger.record_run_heartbeat("run-1")
    assert ledger.run_heartbeats()["run-1"] >= before_ms
    assert ledger.run_heartbeats()["run-2"] == old_ms
    ledger.end_run("run-1")
    ledger.end_run("nobody")
    assert set(ledger.run_heartbeats()) == {"run-2"}


def test_run_without_a_reported_end_is_forgotten_after_a_week(place: Place, ledger: SqlLedger):
    ledger.record_run_heartbeat("week-old")
    place.age("icm_run", "beat_ms", 6 * DAY_MS)
    ledger.record_run_heartbeat("new")
    assert set(ledger.run_heartbeats()) == {"week-old", "new"}
    place.age("icm_run", "beat_ms", 2 * DAY_MS)
    ledger.record_run_heartbeat("newest")
    assert set(ledger.run_heartbeats()) == {"new", "newest"}
