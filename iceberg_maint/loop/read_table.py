"""Reads a table: its state, its policy, and its health by them."""

from __future__ import annotations

import logging
from dataclasses import dataclass, replace
from typing import Protocol

from iceberg_maint.core.health.changes import writer_changes
from iceberg_maint.core.health.metrics import (
    Measured,
    basis_of,
    choose_source,
    exceeds_memory,
    indistinct_fields,
    measuring_bytes,
)
from iceberg_maint.core.health.target_sort_order import target_sort_order
from iceberg_maint.core.health.thresholds import size_limits, target_file_size_bytes
from iceberg_maint.core.model.ids import TableId
from iceberg_maint.core.model.other_writers import foreign_commits
from iceberg_maint.core.model.table_state import TableState
from iceberg_maint.core.policy.data import Policy, RewriteDataFilesPolicy
from iceberg_maint.core.policy.housekeeping import HealthSource
from iceberg_maint.errors import ConfigurationError, RefusedError
from iceberg_maint.loop.context import Context

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
    return replace(
        measured,
        foreign=foreign_commits(state, installation),
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
