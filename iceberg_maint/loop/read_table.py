"""Reads a table: its state, its policy, its health by them, and the clocks that its retention depends on; and stores why it
could not be read."""

from __future__ import annotations

import logging
from dataclasses import dataclass, replace
from typing import Protocol

from iceberg_maint.core.decisions.history import PartitionHistory
from iceberg_maint.core.decisions.waits import automation_waits, environment_failed, unreadable
from iceberg_maint.core.health.metrics import Measured
from iceberg_maint.core.health.state_facts import (
    basis_of,
    choose_source,
    exceeds_memory,
    indistinct_fields,
    measuring_bytes,
    target_sort_order,
    writer_changes,
)
from iceberg_maint.core.health.thresholds import size_limits, target_file_size_bytes
from iceberg_maint.core.model.ids import READING, Operation, TableId
from iceberg_maint.core.model.other_writers import foreign_commits
from iceberg_maint.core.model.table_state import TableState
from iceberg_maint.core.outcomes.failures import ENVIRONMENT_CODES
from iceberg_maint.core.policy.data import Policy, RewriteDataFilesPolicy
from iceberg_maint.core.policy.housekeeping import HealthSource
from iceberg_maint.core.removal.clock_skew import FIX, Clocks, clock_skew_text
from iceberg_maint.errors import (
    ConfigurationError,
    GovernedTableError,
    IcebergMaintError,
    RefusedError,
    UnknownTableError,
    UnreadableTableError,
)
from iceberg_maint.loop.context import Context
from iceberg_maint.ports.clock import Clock
from iceberg_maint.ports.ledger import Ledger
from iceberg_maint.ports.stored import unmeasured_uuid

_log = logging.getLogger(__name__)
_MIB = 1024**2


class Measurer(Protocol):
    """Measures pinned tables."""

    def measure(self, state: TableState, policy: RewriteDataFilesPolicy) -> Measured:
        """Returns the health of the pinned snapshot."""


def measurer_of(state: TableState, policy: Policy, context: Context) -> Measurer:
    """Returns what measures this state by the policy. Starts nothing. `state` has the order that its layout is measured
    by.

    Raises RefusedError ICM-177 if the engine has to measure it and this context starts none.
    """
    by_engine = choose_source(policy.health, state) is HealthSource.SPARK
    is_auto = policy.health.source is HealthSource.AUTO
    if by_engine and not context.engine.measures:
        why = _size(state, policy) if is_auto else "health.source is spark"
        raise RefusedError(
            "ICM-177",
            f"{state.table}: {why}, and this command starts no Spark. It was not measured.",
            "observe the table, or set health.source to manifests"
            + (", or raise health.memory." if is_auto else "."),
        )
    if by_engine:
        if is_auto and context.engine.progress() is None:
            _log.warning("%s: Spark starts, because %s.", state.table, _size(state, policy))
        return context.engine()
    if is_auto and exceeds_memory(policy.health, state):
        _log.warning(
            "ICM-177 %s: %s. Spark does not keep the values of partition field %s apart, so this process measures it.",
            state.table,
            _size(state, policy),
            ", ".join(indistinct_fields(state)),
        )
    return context.catalogs.of(state.table)


def _size(state: TableState, policy: Policy) -> str:
    return (
        f"measuring it takes up to {measuring_bytes(state) // _MIB} MiB by its manifest list, and health.memory is "
        f"{policy.health.memory // _MIB} MiB"
    )


_SMALL_BYTES = 32 * 1024**2
"""Memory of one of several measurements that run at once, at most."""


@dataclass(frozen=True, slots=True)
class TableReading:
    """A table as it was read, and nothing of it stored. `measured` is None if it must be measured elsewhere: with
    `by_engine` by the engine in the thread of the caller, else one large table at a time."""

    state: TableState
    policy: Policy
    by_engine: bool
    measured: Measured | None = None


def read_table(table: TableId, context: Context) -> TableReading:
    """Pins a table, and measures it from its manifests if these are small. It stores nothing and starts no engine, so any
    thread may call it. Raises what `assess` raises."""
    state = context.catalogs.of(table).pin(table)
    policy = context.policies.of(state)
    _check_target_size(state, policy)
    state = with_order(state, policy)
    by_engine = choose_source(policy.health, state) is HealthSource.SPARK
    reading = TableReading(state, policy, by_engine)
    return reading if by_engine or is_large(reading) else measure_reading(reading, context)


def is_large(reading: TableReading) -> bool:
    """Whether several measurements of such tables at once would take much memory."""
    return measuring_bytes(reading.state) > _SMALL_BYTES


def measure_reading(reading: TableReading, context: Context) -> TableReading:
    """Measures the table from its manifests. Raises what `assess` raises."""
    state, policy = reading.state, reading.policy
    measured = context.catalogs.of(state.table).measure(state, policy.rewrite_data_files)
    return replace(reading, measured=_with_facts(measured, state, policy, context))


def measure(state: TableState, policy: Policy, context: Context) -> Measured:
    """Measures a pinned table and stores it. Raises ConfigurationError ICM-100 for a target size of the table that
    is no size."""
    if context.catalogs.memory is None:
        return _measure(state, policy, context)
    return context.catalogs.memory.measure(state, policy, lambda: _measure(state, policy, context))


def _measure(state: TableState, policy: Policy, context: Context) -> Measured:
    _check_target_size(state, policy)
    state = with_order(state, policy)
    measurer = measurer_of(state, policy, context)
    if measurer is context.catalogs.of(state.table):
        measured = context.catalogs.in_time(
            state.table, lambda: measurer.measure(state, policy.rewrite_data_files)
        )
    else:
        measured = measurer.measure(state, policy.rewrite_data_files)
    measured = _with_facts(measured, state, policy, context)
    context.ledger.health.put(measured)
    return measured


def _check_target_size(state: TableState, policy: Policy) -> None:
    try:
        target_file_size_bytes(policy.rewrite_data_files, state.properties)
    except ValueError as why:
        raise ConfigurationError(
            "ICM-100",
            f"{state.table}: table property {why}.",
            "set it to a whole number, or set rewrite_data_files.target_file_size_bytes in the policy.",
        ) from why


def _with_facts(measured: Measured, state: TableState, policy: Policy, context: Context) -> Measured:
    """Returns the measurement with what follows from the state and the policy without the files."""
    installation = context.ledger.registry.installation()
    limits = size_limits(policy.rewrite_data_files, measured.target_file_size_bytes)
    foreign = foreign_commits(state, installation)
    if foreign and (attested := context.ledger.attestations.get(state.uuid)) is not None:
        foreign = foreign_commits(state, installation, attested.ordered)
    return replace(
        measured,
        foreign=foreign,
        writer_changes=writer_changes(state.snapshots, state.location, limits.small_below_bytes),
        basis=basis_of(policy, installation),
    )


def with_order(state: TableState, policy: Policy) -> TableState:
    """Returns the state with the sort order that its layout is measured by. Raises ConfigurationError
    ICM-100 for a column that the table lacks or that has no order."""
    try:
        return replace(state, order=target_sort_order(state, policy.layout))
    except ValueError as why:
        raise ConfigurationError("ICM-100", f"{state.table}: {why}.", "correct the value.") from why


_NOT_OF_THE_TABLE = frozenset({"ICM-128", "ICM-179"})
"""Errors of a read that say nothing of the table: the ledger, and an answer that came late."""


def is_of_catalog(error: IcebergMaintError) -> bool:
    """Whether the error is one of a catalog as a whole: it cannot be reached, refuses the credentials, serves nothing."""
    return isinstance(error, ConfigurationError) and error.code in ("ICM-104", "ICM-160", "ICM-161")


def note_unreadable(table: TableId, error: IcebergMaintError, context: Context) -> None:
    """Stores that the table could not be read, and when that is tried again. Stores nothing while an earlier failure waits
    with the same error."""
    if not is_of_the_table(error):
        return
    stored = next(iter(context.ledger.health.measurements((table,))), None)
    uuid = unmeasured_uuid(table) if stored is None else stored.table_uuid
    before, now_ms = reading_of(table, uuid, context), context.clock.now_ms()
    text = context.process.masked(str(error))
    if before.reason == text and automation_waits(before, now_ms):
        return
    try:
        retry = context.policies.of_table(table, stored.maintenance_properties if stored else {}).retry
    except Exception:  # noqa: BLE001 - a wrong policy is what the read failed by, and the caller reports that
        return
    after = (environment_failed if error.code in ENVIRONMENT_CODES else unreadable)(
        before, retry, now_ms, text
    )
    context.ledger.health.put_unreadable(uuid, after)


def is_of_the_table(error: IcebergMaintError) -> bool:
    """Returns whether a read failed by the table, and not by its catalog, the ledger or the machine."""
    if isinstance(error, UnreadableTableError):
        return True
    is_elsewhere = is_of_catalog(error) or error.code in (*ENVIRONMENT_CODES, *_NOT_OF_THE_TABLE)
    return not is_elsewhere and not isinstance(error, (UnknownTableError, GovernedTableError))


def reading_of(table: TableId, table_uuid: str, context: Context) -> PartitionHistory:
    """Returns how the table failed to be read last. An empty history if it did not."""
    history = context.ledger.health.history(table_uuid, str(table), Operation.REWRITE_DATA_FILES)
    readings = (f.history for f in history.faults if f.operation == READING)
    return next(readings, PartitionHistory())


def read_clocks(
    clock: Clock, ledger: Ledger, *, store_ms: int | None = None, updated_ms: int | None = None
) -> Clocks:
    """Reads the clocks of this machine and of the ledger, beside the times of a store and of a table."""
    uptime = clock.uptime()
    return Clocks(
        machine_ms=clock.now_ms(),
        ledger_ms=ledger.registry.now_ms(),
        earlier=ledger.leases.clock_reading(uptime.boot if uptime else None),
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


def keep_reading(context: Context, clocks: Clocks) -> None:
    """Stores in the ledger a reading of clocks that agree, the store's among them. Later readings are
    compared with it."""
    _keep(context, clocks, clocks.ledger_ms)


def keep_boot(context: Context, clocks: Clocks) -> None:
    """Stores when this boot of the machine began, unless the ledger has it. From then on the ledger
    shows whether the clock was set. The time itself is stored by `keep_reading`, because this reading has no
    store's clock."""
    if clocks.uptime_ms is not None and clocks.earlier.booted_ms is None:
        _keep(context, clocks, 0)


def _keep(context: Context, clocks: Clocks, newest_ms: int) -> None:
    uptime = context.clock.uptime()
    booted_ms = None if clocks.uptime_ms is None else clocks.machine_ms - clocks.uptime_ms
    context.ledger.leases.keep_clock_reading(uptime.boot if uptime else None, booted_ms, newest_ms)
