"""Checks of ledger, policies, owners, memory and clocks."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from iceberg_maint.cli.checks.check import OK, PROPERTIES_READ, WARNING, Check, only_advises, place
from iceberg_maint.core.removal.clock_skew import disagreement
from iceberg_maint.core.removal.orphan_rules import sign
from iceberg_maint.errors import IcebergMaintError, UnknownTableError

if TYPE_CHECKING:
    from iceberg_maint.config import Config
    from iceberg_maint.core.model.ids import TableId
    from iceberg_maint.loop.context import Context
    from iceberg_maint.ports.ledger import Ledger


def check_ledger(config: Config, ledger: Ledger) -> str:
    """Writes to the ledger, and returns its place and clock."""
    # No run has this name. A ledger that is read-only refuses the statement although it changes no row.
    ledger.leases.end_run("doctor")
    from iceberg_maint.report.formatting import moment

    return f"{place(config.ledger_url)}, clock {moment(ledger.registry.now_ms())}"


def check_policies(config: Config, context: Context, tables: list[TableId]) -> str:
    """Builds every table's policy from the configuration, and the first tables' policies also from their
    properties. Raises the error of the first wrong one."""
    from iceberg_maint.report.formatting import counted

    for table in tables:
        config.policy_for(table)
    for table in tables[:PROPERTIES_READ]:
        try:
            state = context.catalogs.pin(table)
        except UnknownTableError:  # dropped since it was listed
            continue
        config.policy_for(table, state.properties)
    read = "" if len(tables) <= PROPERTIES_READ else f"; properties of the first {PROPERTIES_READ} read"
    return f"{counted(len(tables), 'table')}{read}"


def check_owners(context: Context, tables: list[TableId]) -> Iterator[Check]:
    """Warnings of tables whose metadata folder has a sign of a second owner, among the first tables."""
    from iceberg_maint.report.formatting import counted

    warned = 0
    late: set[str] = set()
    for table in tables[:PROPERTIES_READ]:
        # A store that does not answer would take the whole time for each of its tables.
        warning = None if table.catalog in late else _owner(context, table)
        if warning is not None:
            warned += 1
            if warning.code == "ICM-179":
                late.add(table.catalog)
            yield warning
    if not warned:
        count = min(len(tables), PROPERTIES_READ)
        yield Check(
            "owners",
            OK,
            f"{counted(count, 'table')}: no metadata file in their folders that is not in their log",
        )


def _owner(context: Context, table: TableId) -> Check | None:
    """The warning of one table; None without a sign of a second owner."""
    try:
        state = context.catalogs.pin(table)
        policy = context.policies.of(state).remove_orphan_files
        owner = context.catalogs.in_time(
            table, lambda: context.storage.orphan_files(table).second_owner(state, policy)
        )
        message = sign(owner)
    except UnknownTableError:  # dropped since it was listed
        return None
    except IcebergMaintError as error:
        return Check(f"owner of {table}", WARNING, str(error), error.code)
    except Exception as error:  # noqa: BLE001 - each file system raises its own
        line = f"The metadata folder cannot be listed: {type(error).__name__}: {' '.join(str(error).split())}"
        return Check(f"owner of {table}", WARNING, line)
    return Check(f"owner of {table}", WARNING, message) if message else None


def check_memory(context: Context, tables: list[TableId]) -> Iterator[Check]:
    """What the executors of a cluster declare, and warnings of tables that ran out of memory, among the first tables."""
    from iceberg_maint.core.planning.spark_memory import default_budget_bytes, memory_of_heap, setting_text
    from iceberg_maint.loop.prepare import recorded_shortages

    declared = context.engine.spark.memory
    if declared is None:
        return
    if not declared.is_local:
        budget = default_budget_bytes(
            memory_of_heap(declared.executor_bytes, declared.fraction, declared.slots)
        )
        yield Check(
            "spark memory",
            OK,
            f"executors of {setting_text(declared.executor_bytes)} run {declared.slots} at once; equality deletes get "
            f"{setting_text(max(0, budget))} of it by default",
        )
    name = "spark.driver.memory" if declared.is_local else "spark.executor.memory"
    for text in recorded_shortages(tables[:PROPERTIES_READ], context):
        fix = f"Fix: raise {name} under spark.conf, or equality_deletes.memory if it is set."
        yield Check("spark memory", WARNING, f"{text} {fix}", "ICM-165")


def check_clocks(config: Config, context: Context, tables: list[TableId]) -> str:
    """Compares all clocks, with those of the first table and of its store if files may be written there.
    Raises RefusedError ICM-115 if they disagree."""
    from iceberg_maint.loop.clocks import clock_refusal, read_clocks

    state = context.catalogs.pin(tables[0]) if tables else None
    probed = None if only_advises(config, tables) else state
    clocks = read_clocks(
        context.clock,
        context.ledger,
        store_ms=None
        if probed is None
        else context.catalogs.in_time(probed.table, lambda: context.storage.now_ms(probed)),
        updated_ms=None if state is None else state.last_updated_ms,
    )
    if doubt := disagreement(clocks):
        raise clock_refusal("every table", doubt)
    difference = (
        f"{abs(clocks.machine_ms - clocks.ledger_ms) / 1000:.1f} s between this machine and the ledger"
    )
    if clocks.store_ms is None:
        return difference
    apart = abs(clocks.machine_ms - clocks.store_ms) / 1000
    return f"{difference}, {apart:.1f} s between this machine and the store of {tables[0]}"
