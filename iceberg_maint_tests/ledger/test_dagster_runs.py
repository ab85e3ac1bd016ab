"""Runs of Dagster's that say in the ledger that they live."""

from __future__ import annotations

from iceberg_maint.ports.ledger import Ledger
from iceberg_maint_tests.ledger.conftest import Place

DAY_MS = 24 * 3600 * 1000


def test_run_is_heard_by_the_databases_clock_until_it_ends(place: Place, ledger: Ledger):
    before_ms = ledger.registry.now_ms()
    ledger.leases.record_run_heartbeat("run-1")
    ledger.leases.record_run_heartbeat("run-2")
    assert set(ledger.leases.run_heartbeats()) == {"run-1", "run-2"}
    assert before_ms <= ledger.leases.run_heartbeats()["run-1"] <= ledger.registry.now_ms()
    place.age("icm_run", "beat_ms", 60_000)
    old_ms = ledger.leases.run_heartbeats()["run-2"]
    ledger.leases.record_run_heartbeat("run-1")
    assert ledger.leases.run_heartbeats()["run-1"] >= before_ms
    assert ledger.leases.run_heartbeats()["run-2"] == old_ms
    ledger.leases.end_run("run-1")
    ledger.leases.end_run("nobody")
    assert set(ledger.leases.run_heartbeats()) == {"run-2"}


def test_run_without_a_reported_end_is_forgotten_after_a_week(place: Place, ledger: Ledger):
    ledger.leases.record_run_heartbeat("week-old")
    place.age("icm_run", "beat_ms", 6 * DAY_MS)
    ledger.leases.record_run_heartbeat("new")
    assert set(ledger.leases.run_heartbeats()) == {"week-old", "new"}
    place.age("icm_run", "beat_ms", 2 * DAY_MS)
    ledger.leases.record_run_heartbeat("newest")
    assert set(ledger.leases.run_heartbeats()) == {"new", "newest"}
