"""Keeps a lease alive while its work goes on."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from iceberg_maint.ledger_ports import Lease, Ledger
from iceberg_maint.ports import Clock

LEASE_TTL_SECONDS = 45
_BEATS_PER_TTL = 4


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
    waited = 0.0
    while lease is None:
        lease = ledger.acquire_lease(table_uuid, table, owner, LEASE_TTL_SECONDS, min_fence)
        if lease is None:
            if waited >= wait_seconds:
                yield None
                return
            clock.sleep(1.0)
            waited += 1.0
    stop = threading.Event()

    def beat() -> None:
        while not stop.wait(LEASE_TTL_SECONDS / _BEATS_PER_TTL):
            try:
                if not ledger.heartbeat(lease):
                    return
            except Exception:  # noqa: BLE001, S112 - the next beat tries again; expiry is the limit
                continue

    thread = threading.Thread(target=beat, name=f"heartbeat {table}", daemon=True)
    thread.start()
    try:
        yield lease
    finally:
        stop.set()
        thread.join()
        # Somebody else's now, or no ledger to tell: it runs out by itself, and a failure here must
        # not take the place of what ended the body.
        with suppress(Exception):
            ledger.release_lease(lease)
