"""Renews a table lease and a run heartbeat in the background."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime

from iceberg_maint.core.model.table_state import TableState
from iceberg_maint.loop.context import Context
from iceberg_maint.ports.ledger import Leases
from iceberg_maint.ports.stored import Lease

_log = logging.getLogger(__name__)

LEASE_TTL_SECONDS = 45
_HEARTBEATS_PER_TTL = 4
RUN_BEAT_SECONDS = 10
"""Seconds between two heartbeats of a run."""
_LAST_BEAT_SECONDS = 5


@contextmanager
def leased(
    context: Context, state: TableState, owner: str, wait_seconds: float = 0.0
) -> Iterator[Lease | None]:
    """Holds the table's lease while the body runs; a thread renews it. None if another owner keeps it.

    `wait_seconds` is how long to wait for the lease of a dead owner to expire. A live owner renews its
    lease, so a wait longer than the time to live has no use. A wait is logged with its owner and its end.
    """
    leases, table, min_fence = context.ledger.leases, str(state.table), state.newest_fence()
    lease = None
    waited_seconds = 0.0
    while lease is None:
        lease = leases.acquire(state.uuid, table, owner, LEASE_TTL_SECONDS, min_fence)
        if lease is None:
            if waited_seconds >= wait_seconds:
                yield None
                return
            if not waited_seconds and (holder := leases.owner(state.uuid)):
                until = datetime.fromtimestamp(holder[1] / 1000, UTC)
                _log.warning(
                    "%s: waits for run %s, whose lease ends at %s UTC unless it still works.",
                    table,
                    holder[0],
                    until.strftime("%H:%M:%S"),
                )
            context.clock.sleep(1.0)
            waited_seconds += 1.0
    try:
        with _heartbeat_thread(
            f"heartbeat {table}",
            LEASE_TTL_SECONDS / _HEARTBEATS_PER_TTL,
            lambda: leases.heartbeat(lease),
        ):
            yield lease
    finally:
        # If another owner has the lease or the ledger does not answer, the lease expires by itself. A
        # failure here must not replace the exception of the body.
        with suppress(Exception):
            leases.release(lease)


@contextmanager
def run_heartbeat(leases: Leases, run_id: str) -> Iterator[None]:
    """Records heartbeats of a Dagster run in the ledger until the body ends.

    A ledger that does not answer does not end the run: the lease guards the work on a table.
    """

    def record() -> bool:
        leases.record_run_heartbeat(run_id)
        return True

    with suppress(Exception):
        record()
    try:
        with _heartbeat_thread(f"heartbeat of run {run_id}", RUN_BEAT_SECONDS, record):
            yield
    finally:
        with suppress(Exception):
            leases.end_run(run_id)


@contextmanager
def _heartbeat_thread(name: str, every_seconds: float, record: Callable[[], bool]) -> Iterator[None]:
    """Runs a thread that records heartbeats until the body ends or `record` returns False."""
    stop = threading.Event()

    def record_until_stopped() -> None:
        while not stop.wait(every_seconds):
            try:
                if not record():
                    return
            except Exception:  # noqa: BLE001, S112 - the next heartbeat tries again; expiry is the limit
                continue

    thread = threading.Thread(target=record_until_stopped, name=name, daemon=True)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        # A ledger that does not answer can block a heartbeat. The end of the body must not wait for it.
        thread.join(_LAST_BEAT_SECONDS)
