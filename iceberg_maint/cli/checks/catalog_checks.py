"""Checks of catalogs, their tables and the ledger."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from iceberg_maint.cli.checks import (
    FAILED,
    OK,
    PROPERTIES_READ,
    WARNING,
    Check,
    only_advises,
    place,
    try_check,
)
from iceberg_maint.core.health.state_facts import choose_source
from iceberg_maint.core.model.location import Location, equivalences, is_within, parse_location
from iceberg_maint.core.outcomes.failures import ENVIRONMENT_CODES, file_system_fix
from iceberg_maint.core.policy.housekeeping import HealthSource
from iceberg_maint.core.removal.orphan_rules import sign
from iceberg_maint.errors import (
    EXIT_FAILED,
    IcebergMaintError,
    RefusedError,
    UnknownTableError,
    UnreadableTableError,
)

if TYPE_CHECKING:
    from iceberg_maint.config import Config
    from iceberg_maint.core.model.ids import TableId
    from iceberg_maint.loop.context import Context
    from iceberg_maint.ports.ledger import Ledger

_MISSING = ": does not exist"


def check_catalog(
    config: Config, context: Context, name: str, tables: dict[str, list[TableId]], unread: set[str]
) -> Iterator[Check]:
    """Checks of one catalog. Adds its tables to `tables` if the catalog answers, and its name to `unread` if the
    environment fails the read of its first table."""
    from iceberg_maint.report.formatting import counted

    connection = config.catalogs[name]
    listed: list[TableId] = []

    def reach() -> str:
        listed.extend(context.catalogs.list_in_time(name, context.catalogs[name].tables))
        tables[name] = listed
        where = "" if connection.uri is None else f" at {place(connection.uri)}"
        return f"{connection.type}{where}: {counted(len(listed), 'table')}"

    reached = try_check(f"catalog {name}", reach)
    yield reached
    if reached.status == FAILED:
        return
    if not listed:
        yield from _other_name(context, name)
    else:
        measured = try_check(f"metadata of {listed[0]}", lambda: _read(context, listed[0]))
        if measured.code in ENVIRONMENT_CODES:
            unread.add(name)
            left_out = f"Until then doctor leaves out the other checks of the tables of {name}."
            measured = replace(measured, detail=f"{measured.detail} {left_out}")
        yield measured
        # The rights say which one is missing.
        if measured.status == OK or measured.code == "ICM-125":
            yield from _rights(config, context, listed)
    if connection.warehouse is not None:
        warehouse = connection.warehouse
        probed = try_check(
            f"warehouse of {name}", lambda: context.catalogs.probe_in_time(name, lambda: _probe(warehouse))
        )
        if listed and _MISSING in probed.detail:
            fix = f"Fix: correct catalogs.{name}.warehouse; {listed[0]} was not made there."
            yield replace(probed, status=WARNING, detail=f"{probed.detail.partition(';')[0]}. {fix}")
        elif probed.code == "ICM-125" and only_advises(config, listed):
            yield replace(probed, status=WARNING, detail=f"{probed.detail} Mode advise does not need it.")
        else:
            elsewhere = _elsewhere(context, name, warehouse, listed) if probed.status == OK else ""
            yield replace(probed, status=WARNING, detail=elsewhere) if elsewhere else probed


def _elsewhere(context: Context, name: str, warehouse: str, listed: list[TableId]) -> str:
    """A warning if none of the first tables that can be read lies in the warehouse; else ""."""
    example = ""
    for table in listed[:PROPERTIES_READ]:
        try:
            state = context.catalogs.pin(table)
            policy = context.policies.of(state).remove_orphan_files
            same = equivalences(policy.equal_schemes, policy.equal_authorities)
            folder = _resolved(parse_location(warehouse, same))
            if is_within(_resolved(parse_location(state.location, same)), folder):
                return ""
        except (IcebergMaintError, ValueError):
            # Other checks say why a table cannot be read. The warehouse of a REST catalog may be a bare name.
            continue
        example = example or f"{table} is at {state.location}"
    fix = f"Fix: set catalogs.{name}.warehouse to the folder of its tables."
    return f"{warehouse}: no table of the catalog is there; {example}. {fix}" if example else ""


def _resolved(location: Location) -> Location:
    """The location without symbolic links, if it is local."""
    return replace(location, path=os.path.realpath(location.path)) if location.is_local else location


def _other_name(context: Context, name: str) -> Iterator[Check]:
    """A warning of a JDBC catalog without tables whose database has tables under another name of a catalog."""
    from iceberg_maint.wiring.adapters import stored_names

    try:
        names = context.catalogs.list_in_time(name, lambda: stored_names(context.catalogs, name))
    except IcebergMaintError as error:
        yield Check(f"catalog {name}", FAILED, str(error), error.code, error.exit_code)
        return
    if names:
        yield Check(
            f"catalog {name}",
            WARNING,
            f"Its database has tables of another catalog name: {', '.join(names)}. JDBC catalogs store the name. "
            f"Fix: rename catalogs.{name} to that name.",
        )


def _rights(config: Config, context: Context, listed: list[TableId]) -> Iterator[Check]:
    """Probes every right on the first table of a catalog, one by one. Mode advise needs the rights to read only."""
    from iceberg_maint.wiring.adapters import missing_rights

    check, present = f"rights on {listed[0]}", []
    try:
        probes = missing_rights(context.catalogs, listed[0], changes=not only_advises(config, listed))
        while probed := context.catalogs.in_time(listed[0], lambda: next(probes, None)):
            right, error = probed
            if error is None:
                present.append(right.value)
            else:
                yield Check(check, FAILED, str(error), error.code, error.exit_code)
    except IcebergMaintError as error:
        yield Check(check, FAILED, str(error), error.code, error.exit_code)
    except Exception as error:  # noqa: BLE001 - each file system raises its own
        line = f"{type(error).__name__}: {' '.join(str(error).split())}"
        yield Check(check, FAILED, line, None, EXIT_FAILED)
    if present:
        yield Check(check, OK, f"{', '.join(present)} permitted")


def check_patterns(config: Config, listed: Mapping[str, list[TableId]]) -> Iterator[Check]:
    """Warnings of patterns that match no table, if the catalogs that they may name answered."""
    tables = [table for catalog_tables in listed.values() for table in catalog_tables]
    if not tables:
        return
    unreachable = set(config.catalogs) - set(listed)
    for pattern in config.patterns_without_table(tables):
        if not unreachable or pattern.text.split(".")[0] in listed:
            yield Check("configuration", WARNING, f"{pattern.source} matches no table.", "ICM-126")


def _read(context: Context, table: TableId) -> str:
    state = context.catalogs.pin(table)
    policy = context.policies.of(state)
    if choose_source(policy.health, state) is HealthSource.SPARK:
        return (
            f"format version {state.format_version}; Spark measures its health (health.source, health.memory)"
        )
    catalog = context.catalogs[table.catalog]
    measured = context.catalogs.in_time(table, lambda: catalog.measure(state, policy.rewrite_data_files))
    return f"format version {state.format_version}, {measured.total().data_files} data files"


def _probe(warehouse: str) -> str:
    """Writes, reads and deletes a file in a warehouse that is a local folder.

    In other stores the rights are probed where the first table is.
    """
    scheme, _, path = warehouse.partition(":")
    if scheme != "file":
        return f"{warehouse}: not probed; the rights are probed on a table"
    folder = Path("/" + path.lstrip("/"))
    if not folder.exists():
        return f"{folder}{_MISSING}; the first table creates it"
    try:
        with tempfile.NamedTemporaryFile(dir=folder, prefix=".iceberg-maint-probe-") as probe:
            probe.write(b"probe")
            probe.flush()
            Path(probe.name).read_bytes()
    except OSError as why:
        fix = file_system_fix(str(why))
        raise RefusedError(
            "ICM-176" if fix else "ICM-125",
            f"{folder} cannot be written: {why.strerror}.",
            f"{fix or 'give the user of this process write permission'}.",
        ) from why
    return f"{folder}: written, read, deleted"


def check_ledger(config: Config, ledger: Ledger) -> str:
    """Writes to the ledger, and returns its place and clock."""
    # No run has this name. A ledger that is read-only refuses the statement although it changes no row.
    ledger.leases.end_run("doctor")
    from iceberg_maint.report.formatting import moment

    return f"{place(config.ledger_url)}, clock {moment(ledger.registry.now_ms())}"


def check_policies(
    config: Config, context: Context, tables: list[TableId], unreadable: dict[TableId, IcebergMaintError]
) -> str:
    """Builds every table's policy from the configuration, and the first tables' policies also from their
    properties. Raises the error of the first wrong one. Adds the tables that cannot be read to `unreadable`."""
    from iceberg_maint.report.formatting import counted

    for table in tables:
        config.policy_for(table)
    for table in tables[:PROPERTIES_READ]:
        try:
            state = context.catalogs.pin(table)
        except UnknownTableError:  # dropped since it was listed
            continue
        except UnreadableTableError as error:
            if error.code in ENVIRONMENT_CODES:
                raise
            unreadable[table] = error
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
            f"{counted(count, 'table')}: no metadata file in their folders is missing from their metadata logs",
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
    from iceberg_maint.loop.plan_batches import recorded_shortages

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
        yield Check("spark memory", WARNING, f"{text} {fix}", "ICM-124")
