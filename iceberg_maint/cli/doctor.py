"""The command `doctor` checks this machine."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING, Any

import click

from iceberg_maint.cli.checks import (
    FAILED,
    OK,
    WARNING,
    Check,
    catalog_checks,
    check_or_failure,
    engine_checks,
    machine,
    try_check,
)
from iceberg_maint.cli.command import command
from iceberg_maint.cli.context import Session
from iceberg_maint.errors import EXIT_DONE, IcebergMaintError

if TYPE_CHECKING:
    from iceberg_maint.core.model.ids import TableId


@click.command()
@click.option("--no-spark", is_flag=True, help="Do not start Spark. Its versions are not checked.")
@click.option(
    "--accept-clock",
    is_flag=True,
    help="After a wrong clock was corrected: drop its times from the ledger, and end the waits that they cause.",
)
@command
def doctor(session: Session, no_spark: bool, accept_clock: bool) -> int:
    """Check environment, configuration, catalogs, engines, ledger, versions and permissions.

    Exits with the code of the first check that failed.
    """
    from iceberg_maint.report.grid import write

    if accept_clock:
        session.context().ledger.leases.accept_clock()
    colours = {OK: "green", WARNING: "yellow", FAILED: "red"}

    def draw(check: Check, console: Any) -> None:
        from rich.markup import escape

        status = f"[{colours[check.status]}]{check.status:<7}[/]"
        text = f"[bold]{escape(check.name)}[/]: {escape(session.masked(check.detail))}"
        write(console, f"{status}  {text}", " " * 9)

    checks: list[Check] = []
    for check in _checks(session, with_spark=not no_spark):
        checks.append(check)
        if not session.as_json:
            session.emit({}, partial(draw, check))
    if session.as_json:
        shown = [{"check": c.name, "status": c.status, "detail": c.detail, "code": c.code} for c in checks]
        session.emit({"checks": shown}, lambda _console: None)
    return next((c.exit_code for c in checks if c.status == FAILED), EXIT_DONE)


def _checks(session: Session, *, with_spark: bool) -> Iterator[Check]:
    yield Check("python", OK, f"{sys.version.split()[0]} at {sys.executable}")
    yield try_check("packages", machine.check_packages)
    configured = try_check("configuration", lambda: _configuration(session))
    yield configured
    if configured.status == FAILED:
        return
    config, context = session.config(), session.context()
    yield from machine.check_permissions(config)
    home = machine.check_home_folder(config.home)
    if home.status == FAILED:
        yield home
    yield try_check("java", lambda: machine.check_java(config))
    yield try_check("jars", lambda: machine.check_jars(config))
    yield check_or_failure("class archive", lambda: machine.check_class_archive(config))
    listed: dict[str, list[TableId]] = {}
    unread: set[str] = set()
    for name in context.catalogs:
        yield from catalog_checks.check_catalog(config, context, name, listed, unread)
    yield from catalog_checks.check_patterns(config, listed)
    ledger = try_check("ledger", lambda: catalog_checks.check_ledger(config, context.ledger))
    yield ledger
    # Checks that read a ledger that cannot be used would fail with its text.
    is_ledger_read = ledger.status != FAILED
    # One wrong credential would fail each further check of each table, with the same text.
    read = {name: tables for name, tables in listed.items() if name not in unread}
    tables = sorted(table for catalog_tables in read.values() for table in catalog_tables)
    if tables and home.status != FAILED:
        unreadable: dict[TableId, IcebergMaintError] = {}
        yield try_check(
            "policies", lambda: catalog_checks.check_policies(config, context, tables, unreadable)
        )
        # The first table of a catalog has this check already.
        first = {of_catalog[0] for of_catalog in read.values() if of_catalog}
        for table, error in unreadable.items():
            if table not in first:
                yield Check(f"metadata of {table}", FAILED, str(error), error.code, error.exit_code)
        tables = [table for table in tables if table not in unreadable]
        if is_ledger_read:
            yield from catalog_checks.check_owners(context, tables)
            yield from catalog_checks.check_memory(context, tables)
    yield from engine_checks.check_engines(config, context, read)
    if is_ledger_read:
        yield try_check("clock", lambda: machine.check_clocks(config, context, tables))
    if os.environ.get("DAGSTER_HOME"):
        yield try_check("dagster", machine.check_dagster)
    if with_spark:
        started = try_check("spark", lambda: machine.check_spark(config))
        yield started
        if started.status == OK:
            if not config.spark.master.startswith("local"):
                yield machine.check_executors(config)
            yield from machine.check_spark_catalogs(config, context, read)


def _configuration(session: Session) -> str:
    session.context()
    return session.config().source
