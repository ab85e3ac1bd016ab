"""Clocks: reads them all, and refuses to remove anything by clocks that disagree."""

from __future__ import annotations

from iceberg_maint.core.model.table_state import TableState
from iceberg_maint.core.removal.clock_agreement import FIX, Clocks, disagreement
from iceberg_maint.errors import RefusedError
from iceberg_maint.ports.clock import Clock
from iceberg_maint.ports.ledger import Ledger
from iceberg_maint.runner.runtime import Runtime


def read_clocks(
    clock: Clock, ledger: Ledger, *, store_ms: int | None = None, updated_ms: int | None = None
) -> Clocks:
    """The clocks of this machine and of the ledger, with the times of a store and of a table."""
    uptime = clock.uptime()
    return Clocks(
        machine_ms=clock.now_ms(),
        ledger_ms=ledger.now_ms(),
        mark=ledger.clock_mark(uptime.boot if uptime else None),
        uptime_ms=uptime.ms if uptime else None,
        store_ms=store_ms,
        updated_ms=updated_ms,
    )


def table_clocks(runtime: Runtime, state: TableState, *, store: bool) -> Clocks:
    """The clocks that a table's retention depends on. The `store` is asked by a file that is written
    there and removed, so only where something is about to be removed."""
    store_ms = runtime.store_now_ms(state) if store else None
    return read_clocks(runtime.clock, runtime.ledger, store_ms=store_ms, updated_ms=state.last_updated_ms)


def checked_clocks(runtime: Runtime, state: TableState, *, store: bool) -> Clocks:
    """The clocks, which agree. Raises RefusedError ICM-115 where they do not."""
    clocks = table_clocks(runtime, state, store=store)
    if doubt := disagreement(clocks):
        raise clock_refusal(str(state.table), doubt)
    return clocks


def clock_refusal(table: str, doubt: str) -> RefusedError:
    """What a person reads where clocks disagree."""
    return RefusedError("ICM-115", f"{table}: {doubt}; nothing is removed.", FIX)


def keep_mark(runtime: Runtime, clocks: Clocks) -> None:
    """Notes in the ledger a reading of clocks that agree, the store's included: later readings are
    compared with it."""
    _keep(runtime, clocks, clocks.ledger_ms)


def keep_boot(runtime: Runtime, clocks: Clocks) -> None:
    """Notes when this boot of the machine began, unless that is known: from now on the ledger tells
    whether the clock is set. The time itself is left to `keep_mark`, as no store was asked."""
    if clocks.uptime_ms is not None and clocks.mark.booted_ms is None:
        _keep(runtime, clocks, 0)


def _keep(runtime: Runtime, clocks: Clocks, newest_ms: int) -> None:
    uptime = runtime.clock.uptime()
    booted_ms = None if clocks.uptime_ms is None else clocks.machine_ms - clocks.uptime_ms
    runtime.ledger.keep_clock_mark(uptime.boot if uptime else None, booted_ms, newest_ms)
