"""Clocks: reads all of them, and refuses removals while they disagree."""

from __future__ import annotations

from iceberg_maint.core.model.table_state import TableState
from iceberg_maint.core.removal.clock_skew import FIX, Clocks, clock_skew_text
from iceberg_maint.errors import RefusedError
from iceberg_maint.loop.context import Context
from iceberg_maint.ports.clock import Clock
from iceberg_maint.ports.ledger import Ledger


def read_clocks(
    clock: Clock, ledger: Ledger, *, store_ms: int | None = None, updated_ms: int | None = None
) -> Clocks:
    """Reads the clocks of this machine and of the ledger, beside the times of a store and of a table."""
    uptime = clock.uptime()
    return Clocks(
        machine_ms=clock.now_ms(),
        ledger_ms=ledger.registry.now_ms(),
        mark=ledger.leases.clock_mark(uptime.boot if uptime else None),
        uptime_ms=uptime.ms if uptime else None,
        store_ms=store_ms,
        updated_ms=updated_ms,
    )


def table_clocks(context: Context, state: TableState, *, store: bool) -> Clocks:
    """Reads the clocks that a table's retention depends on.

    With `store` it reads the clock of the table's store: it writes a file there and removes it. Set
    `store` only before a removal.
    """
    store_ms = context.storage.now_ms(state) if store else None
    return read_clocks(context.clock, context.ledger, store_ms=store_ms, updated_ms=state.last_updated_ms)


def checked_clocks(context: Context, state: TableState, *, store: bool) -> Clocks:
    """Reads the clocks. Raises RefusedError ICM-115 if they disagree."""
    clocks = table_clocks(context, state, store=store)
    if skew := clock_skew_text(clocks):
        raise clock_refusal(str(state.table), skew)
    return clocks


def clock_refusal(table: str, skew: str) -> RefusedError:
    """Returns the error for a clock skew."""
    return RefusedError("ICM-115", f"{table}: {skew}; nothing is removed.", FIX)


def keep_mark(context: Context, clocks: Clocks) -> None:
    """Stores in the ledger a reading of clocks that agree, the store's among them. Later readings are
    compared with it."""
    _keep(context, clocks, clocks.ledger_ms)


def keep_boot(context: Context, clocks: Clocks) -> None:
    """Stores when this boot of the machine began, unless the ledger has it. From then on the ledger
    shows whether the clock was set. The time itself is stored by `keep_mark`, because this reading has no
    store's clock."""
    if clocks.uptime_ms is not None and clocks.mark.booted_ms is None:
        _keep(context, clocks, 0)


def _keep(context: Context, clocks: Clocks, newest_ms: int) -> None:
    uptime = context.clock.uptime()
    booted_ms = None if clocks.uptime_ms is None else clocks.machine_ms - clocks.uptime_ms
    context.ledger.leases.keep_clock_mark(uptime.boot if uptime else None, booted_ms, newest_ms)
