"""The command `assess`: one page about a lake on a first visit. Needs read access to the catalogs and nothing else."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from iceberg_maint.cli.context import Session, command, most_severe_exit, overrides_option
from iceberg_maint.cli.page_file import page_options, write_pages
from iceberg_maint.core.model.ids import TableId
from iceberg_maint.core.policy.data import Mode
from iceberg_maint.errors import IcebergMaintError

_MEMORY_LEDGER = "sqlite://"


@click.command()
@click.argument("names", metavar="[TABLE]...", nargs=-1)
@page_options
@overrides_option
@command
def assess(
    session: Session,
    names: tuple[str, ...],
    html: Path | None,
    markdown: Path | None,
    overrides: dict[str, str],
) -> int:
    """Assess tables without maintenance so far: what is unhealthy, what it costs readers, what cleaning would gain.

    Reads table metadata with the credentials of the catalogs. Needs no ledger and no Spark, writes to no table and reads no
    data file.
    """
    from iceberg_maint import __version__
    from iceberg_maint.cli.pages.assessment_page import (
        AssessedTable,
        assessed_table,
        assessment_document,
        assessment_page,
        draw_page,
    )
    from iceberg_maint.cli.pages.run_page import RunProgress
    from iceberg_maint.loop.assess import assess as measure_and_decide
    from iceberg_maint.loop.fleet.tables import list_tables
    from iceberg_maint.report.formatting import moment
    from iceberg_maint.wiring.adapters import policies

    config = session.config()
    context = session.build(replace(config, ledger_url=_MEMORY_LEDGER))
    context = replace(
        context,
        policies=replace(context.policies, of_table=policies(config, {**overrides, "mode": Mode.ACT.value})),
        engine=context.engine.for_writes_only(),
    )
    tables: list[AssessedTable] = []
    errors: dict[str, str] = {}
    codes = {0}
    chosen: Sequence[TableId] = [context.catalogs.find(name) for name in names]
    if not names:
        listing = list_tables(context)
        chosen = listing.tables
        for name, why in listing.errors.items():
            codes.add(why.exit_code)
            errors[name] = session.masked(str(why))
    with RunProgress(session.logs()) as progress:
        progress.begin("reading metadata", len(chosen))
        for table in chosen:
            progress.note(str(table))
            try:
                assessment = measure_and_decide(table, context)
                tables.append(assessed_table(assessment.measured, assessment.decision))
            except IcebergMaintError as error:
                codes.add(error.exit_code)
                errors[str(table)] = session.masked(str(error))
            progress.step()
    page = assessment_page(
        tables, errors, f"iceberg_maint {__version__}, {moment(context.clock.now_ms())}, from metadata"
    )
    write_pages(session, page, html, markdown)

    def draw(console: Any) -> None:
        draw_page(console, page)

    session.emit(assessment_document(tables, errors), draw)
    return most_severe_exit(codes)
