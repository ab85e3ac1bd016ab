"""The command `proof`: the certificate of a run."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import click

from iceberg_maint.cli.command import command
from iceberg_maint.cli.context import Session
from iceberg_maint.core.model.ids import command_line
from iceberg_maint.core.outcomes.record import Record
from iceberg_maint.errors import EXIT_DONE, EXIT_FAILED, EXIT_UNKNOWN, IcebergMaintError, UnknownTableError
from iceberg_maint.report.certificate import CertificateStatus

if TYPE_CHECKING:
    from iceberg_maint.loop.context import Context
    from iceberg_maint.ports.ledger import Ledger

_SHOWN_RUNS = 3
"""Run ids that an error names."""


@click.command()
@click.argument("run_or_table", metavar="RUN_OR_TABLE")
@click.option("--markdown", is_flag=True, help="Print the certificate as Markdown.")
@command
def proof(session: Session, run_or_table: str, *, markdown: bool) -> int:
    """Print the proof certificate of a run: rows in, rows out and deleted, fingerprint, snapshots, every batch
    with the verdict of the gate, and the commands that prove its commits again.

    RUN is the id of a run, or its beginning. For a TABLE, the last run that committed a proof: a later run
    that did nothing does not replace it. Exits with 1 if a commit has no equal proof, with 4 if one is
    neither confirmed nor refuted.
    """
    from iceberg_maint.cli.history import draw_certificate
    from iceberg_maint.report.certificate import certificate_document, certificate_markdown, certificates

    context = session.context()
    shown = certificates(_records(context, run_or_table))

    def draw(console: Any) -> None:
        if markdown:
            console.print("\n\n".join(map(certificate_markdown, shown)), markup=False, soft_wrap=True)
            return
        for number, one in enumerate(shown):
            if number:
                console.print()
            draw_certificate(console, one)

    session.emit({"certificates": [certificate_document(c) for c in shown]}, draw)
    if all(c.status is not CertificateStatus.UNPROVED for c in shown):
        return EXIT_DONE
    unknown = any(b.outcome.outcome.value == "UNKNOWN" for c in shown for b in c.batches)
    return EXIT_UNKNOWN if unknown else EXIT_FAILED


def _records(context: Context, name: str) -> tuple[Record, ...]:
    """The records of the run or, for a table, of its last run with a proof."""
    ledger = context.ledger
    found = ledger.records.of_run(name)
    if found:
        return _one_run(name, found)
    try:
        table = str(context.catalogs.parse(name))
    except IcebergMaintError:
        table = ""
    proved = ledger.records.last_proved(table) if table else None
    if proved is not None:
        of_run = ledger.records.of_run(proved.run_id)
        return tuple(r for r in of_run if (r.run_id, r.table_uuid) == (proved.run_id, proved.table_uuid))
    if table:
        context.catalogs.find(table)
        raise UnknownTableError(
            "ICM-126",
            f"{table} has no recorded commit with a proof.",
            f"see `{command_line('history', table)}`.",
        )
    newest = _newest_runs(ledger)
    fix = f"name a table, or a run of 'iceberg-maint history'; the newest are {newest}."
    raise UnknownTableError(
        "ICM-126",
        f"no record of a run '{name}'.",
        fix if newest else "maintain a table first; no run is recorded.",
    )


def _one_run(name: str, found: tuple[Record, ...]) -> tuple[Record, ...]:
    """The records of the run with this id and of its retries, else of the only run whose id begins with the
    name. Raises UnknownTableError for several."""
    retries = re.compile(rf"{re.escape(name)}(-\d+)?")
    exact = tuple(r for r in found if retries.fullmatch(r.run_id))
    runs = list(dict.fromkeys(r.run_id for r in found))
    if exact or len(runs) == 1:
        return exact or found
    raise UnknownTableError(
        "ICM-126",
        f"{len(runs)} runs begin with '{name}'.",
        f"name one of these: {', '.join(runs[:5])}.",
    )


def _newest_runs(ledger: Ledger) -> str:
    return ", ".join(list(dict.fromkeys(r.run_id for r in ledger.records.newest(None, 20)))[:_SHOWN_RUNS])
