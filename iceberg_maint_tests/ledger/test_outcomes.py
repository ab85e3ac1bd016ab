"""What batches reported, as the ledger gives it to those who learn from it."""

from __future__ import annotations

from iceberg_maint.ports.ledger import Ledger
from iceberg_maint.ports.stored import BatchStatus, Lease
from iceberg_maint_tests.ledger.conftest import Place
from iceberg_maint_tests.support.ledger.values import (
    PROOF,
    REWRITE,
    UUID,
    make_batch,
    outcome_of,
    plan_of,
    written,
)


def test_commit_trials_are_the_last_hundred(ledger: Ledger, lease: Lease, place: Place) -> None:
    batch = make_batch("day=1")
    ledger.work.save_plan(lease, plan_of("day=1"))
    started = ledger.work.start_attempt(lease, batch.batch_id, "run-1", {})
    ledger.work.record_intent(lease, started.attempt_id, written(batch), PROOF)
    ledger.work.record_try(lease, started.attempt_id, 1, "v1.json")
    ledger.work.finish_attempt(lease, started.attempt_id, BatchStatus.DONE, outcome_of(batch), {})
    numbers = "WITH RECURSIVE numbers(n) AS (SELECT 2 UNION ALL SELECT n + 1 FROM numbers WHERE n < 101)"
    facts = "batch_id, table_uuid, operation, fence, partitions, started_ms"
    place.sql(
        f"{numbers} INSERT INTO icm_attempt (attempt_id, run_id, token, {facts}) "
        f"SELECT 'attempt-' || n, 'run-' || n, 'token-' || n, {facts} FROM icm_attempt, numbers ORDER BY n"
    )
    facts = "table_uuid, operation, status, settled, partitions, input_bytes, body, recorded_ms"
    place.sql(
        f"{numbers} INSERT INTO icm_outcome (attempt_id, {facts}) "
        f"SELECT 'attempt-' || n, {facts} FROM icm_outcome, numbers ORDER BY n"
    )
    trials = ledger.records.commit_trials(UUID, REWRITE)
    assert [trial.run_id for trial in trials] == [f"run-{n}" for n in range(2, 102)]
