"""A process killed between any two steps: the next one sees exactly what was committed."""

from __future__ import annotations

import os
import signal

import pytest

from iceberg_maint.core.decisions.history import PartitionHistory
from iceberg_maint.ledger.ledger import sql_ledger
from iceberg_maint.ports.ledger import Ledger
from iceberg_maint.ports.stored import BatchStatus
from iceberg_maint_tests.ledger.conftest import Place
from iceberg_maint_tests.support.forked import CONTEXT
from iceberg_maint_tests.support.ledger.values import (
    NAME,
    PROOF,
    REWRITE,
    UUID,
    make_batch,
    measured,
    outcome_of,
    plan_of,
    written,
)

pytestmark = pytest.mark.seconds

BATCH = make_batch("day=1")
FILES = written(BATCH)
AHEAD = PartitionHistory(crashes=1, not_before_ms=99, reason="started")
STEPS = ("lease", "plan", "start", "intent", "try", "finish", "release")


def _steps(ledger: Ledger):
    """One step of a batch's life each time it is asked for the next."""
    lease = ledger.leases.acquire(UUID, NAME, "run-1", 60, 0)
    yield
    ledger.work.save_plan(lease, plan_of("day=1"))
    yield
    attempt = ledger.work.start_attempt(lease, BATCH.batch_id, "run-1", {"day=1": AHEAD})
    yield
    ledger.work.record_intent(lease, attempt.attempt_id, FILES, PROOF)
    yield
    ledger.work.record_try(lease, attempt.attempt_id, 1, "v1.json")
    yield
    ledger.work.finish_attempt(
        lease, attempt.attempt_id, BatchStatus.DONE, outcome_of(BATCH), {"day=1": PartitionHistory()}
    )
    yield
    ledger.leases.release(lease)
    yield


def _seen(ledger: Ledger) -> dict[str, object]:
    batches = ledger.work.open_batches(UUID, REWRITE)
    attempts = ledger.work.open_attempts(UUID)
    history = ledger.health.history(UUID, NAME, REWRITE)
    cursor = ledger.work.cursors(UUID).get(REWRITE)
    return {
        "lease": history.lease_owner,
        "batch": batches[0].status.value if batches else None,
        "attempt": attempts[0].status if attempts else None,
        "files": attempts[0].files if attempts else None,
        "tries": len(attempts[0].tries) if attempts else 0,
        "back_off": history.of("day=1").crashes,
        "cursor": cursor.batch_id if cursor else None,
    }


NOTHING = {
    "lease": None,
    "batch": None,
    "attempt": None,
    "files": None,
    "tries": 0,
    "back_off": 0,
    "cursor": None,
}
HELD = NOTHING | {"lease": "run-1"}
STARTED = HELD | {"batch": "STARTED", "attempt": "STARTED", "back_off": 1}
INTENT = STARTED | {"attempt": "INTENT", "files": FILES}
EXPECTED = {
    "lease": HELD,
    "plan": HELD | {"batch": "PLANNED"},
    "start": STARTED,
    "intent": INTENT,
    "try": INTENT | {"attempt": "ATTEMPT", "tries": 1},
    "finish": HELD | {"cursor": BATCH.batch_id},
    "release": NOTHING | {"cursor": BATCH.batch_id},
}


@pytest.mark.parametrize("last", STEPS)
def test_restart_after_any_step_sees_it_and_nothing_more(place: Place, last: str):
    first = place.open()
    life = _steps(first)
    for _ in range(STEPS.index(last) + 1):
        next(life)
    second = place.open()
    assert _seen(second) == EXPECTED[last]
    second.close()
    first.close()


def _die(url: str) -> None:
    """Dies inside the transaction of the outcome, after its first rows."""
    from iceberg_maint.ledger import batches

    ledger = sql_ledger(url)
    set_status = batches.set_status

    def ends(conn, batch_id: str, status: BatchStatus) -> None:
        if status is not BatchStatus.STARTED:
            os.kill(os.getpid(), signal.SIGKILL)
        set_status(conn, batch_id, status)

    batches.set_status = ends
    for _ in _steps(ledger):
        pass


def test_kill_inside_the_transaction_of_the_outcome_leaves_the_attempt_open(place: Place):
    process = CONTEXT.Process(target=_die, args=(place.url,))
    process.start()
    process.join()
    assert process.exitcode == -signal.SIGKILL
    ledger = place.open()
    assert _seen(ledger) == EXPECTED["try"]
    assert ledger.health.put(measured("day=1"))
    ledger.close()
