"""Says, while work goes on, that it does: to the lease of its table, and for its run."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

from iceberg_maint.ports.clock import Clock
from iceberg_maint.ports.ledger import Lease, Ledger

LEASE_TTL_SECONDS = 45
_HEARTBEATS_PER_TTL = 4
RUN_BEAT_SECONDS = 10
"""Between two signs of life of a run."""
_LAST_BEAT_SECONDS = 5


@contextmanager
def leased(
    ledger: Ledger,
    clock: Clock,
    *,
    table_uuid: str,
    table: str,
    owner: str,
    min_fence: int,
    wait_seconds: float = 0.0,
) -> Iterator[Lease | None]:
    """The table's lease for the body, renewed by a thread; None when another owner keeps it.

    `wait_seconds` waits for a dead owner's lease to run out: a live owner renews it, so there is
    no use in waiting longer than its time to live.
    """
    lease = None
    waited_seconds = 0.0
    while lease is None:
        lease = ledger.acquire_lease(table_uuid, table, owner, LEASE_TTL_SECONDS, min_fence)
        if lease is None:
            if waited_seconds >= wait_seconds:
                yield None
                return
            clock.sleep(1.0)
            waited_seconds += 1.0
    try:
        with _heartbeat_thread(
            f"heartbeat {table}", LEASE_TTL_SECONDS / _HEARTBEATS_PER_TTL, lambda: ledger.heartbeat(lease)
        ):
            yield lease
    finally:
        # Somebody else's now, or no ledger to tell: it runs out by itself, and a failure here must
        # not take the place of what ended the body.
        with suppress(Exception):
            ledger.release_lease(lease)


@contextmanager
def run_heartbeat(ledger: Ledger, run_id: str) -> Iterator[None]:
    """Says in the ledger that a run of Dagster's lives, until the body ends. A ledger that does not
    answer is no reason to end it: what works on a table has its lease for that."""

    def record() -> bool:
        ledger.record_run_heartbeat(run_id)
        return True

    with suppress(Exception):
        record()
    try:
        with _heartbeat_thread(f"heartbeat of run {run_id}", RUN_BEAT_SECONDS, record):
            yield
    finally:
        with suppress(Exception):
            ledger.end_run(run_id)


@contextmanager
def _heartbeat_thread(name: str, every_seconds: float, record: Callable[[], bool]) -> Iterator[None]:
    """A thread that beats until the body ends or a beat says that it is of no more use."""
    stop = threading.Event()

    def record_until_stopped() -> None:
        while not stop.wait(every_seconds):
            try:
                if not record():
                    return
            except Exception:  # noqa: BLE001, S112 - the next beat tries again; expiry is the limit
                continue

    thread = threading.Thread(target=record_until_stopped, name=name, daemon=True)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        # A ledger that went away without a word keeps a beat waiting; what ended the body must not.
        thread.join(_LAST_BEAT_SECONDS)
