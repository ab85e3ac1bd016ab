"""The command `attest`: proves that the commits which claim to change no row kept every row, of whatever tool."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from iceberg_maint.cli.command import command
from iceberg_maint.cli.context import Session
from iceberg_maint.core.commits.roll_back import RollBack, plan_roll_back
from iceberg_maint.core.model.ids import command_line
from iceberg_maint.core.outcomes.verification import Difference, Side, Verification, VerificationStatus
from iceberg_maint.core.policy.housekeeping import AttestLevel
from iceberg_maint.errors import EXIT_DONE, EXIT_FAILED, EXIT_REFUSED

if TYPE_CHECKING:
    from rich.console import Console

    from iceberg_maint.loop.attest import Attested

_EXIT_CODES = {
    VerificationStatus.ATTESTED: EXIT_DONE,
    VerificationStatus.CONSISTENT: EXIT_DONE,
    VerificationStatus.RED: EXIT_FAILED,
    VerificationStatus.UNPROVABLE: EXIT_REFUSED,
    VerificationStatus.NO_CLAIM: EXIT_REFUSED,
}
_WORST = (VerificationStatus.RED, VerificationStatus.UNPROVABLE, VerificationStatus.NO_CLAIM)
_COLOURS = {
    VerificationStatus.ATTESTED: "green",
    VerificationStatus.CONSISTENT: "green",
    VerificationStatus.RED: "red",
}
_LONGEST_ROW = 200
"""Characters of a row that the text shows. The document has all of it."""


@click.command()
@click.argument("name", metavar="TABLE")
@click.option("--snapshot", "snapshot_id", type=int, help="Prove this snapshot again, and move no cursor.")
@click.option(
    "--level",
    type=click.Choice([AttestLevel.METADATA.value, AttestLevel.FILES.value]),
    default=AttestLevel.FILES.value,
    show_default=True,
    help="Read metadata only, or also the files where metadata cannot say.",
)
@click.option(
    "--max-bytes",
    type=click.IntRange(min=1),
    help="Bytes to read at most; default: attest.max_bytes, no limit with --snapshot.",
)
@click.option("--accept", type=int, metavar="SNAPSHOT", help="End the open verdict on this snapshot.")
@command
def attest(
    session: Session,
    name: str,
    *,
    snapshot_id: int | None,
    level: str,
    max_bytes: int | None,
    accept: int | None,
) -> int:
    """Prove that every commit of TABLE that claims to change no row kept every row, of whatever tool, since the last
    attested one. For a commit that did not, print the rows and a plan of the roll-back. Nothing is written to the table.

    Exits with 1 if a commit lost rows or brought rows back, with 3 if one cannot be proved.
    """
    from iceberg_maint.loop import attest as loop

    context = session.context()
    table = context.catalogs.find(name)
    state = context.catalogs.pin(table)
    if accept is not None and snapshot_id is not None:
        raise click.UsageError("--accept and --snapshot exclude each other.")
    if accept is not None:
        at = loop.accept(state, accept, context)
        left = [v.snapshot_id for v in at.open]
        session.emit(
            {"table": str(table), "accepted": accept, "open": left},
            lambda c: c.print(f"{table}: accepted the verdict on snapshot {accept}", markup=False),
        )
        return EXIT_DONE
    files = level == AttestLevel.FILES
    if snapshot_id is not None:
        attested = loop.attest_snapshot(state, snapshot_id, context, loop.Extent(files, max_bytes))
    else:
        limit = max_bytes or context.policies.of(state).attest.max_bytes
        attested = loop.attest_table(state, context, loop.Extent(files, limit))
    status = _worst(attested, snapshot_id)
    session.emit(
        lambda: _document(str(table), status, attested), lambda console: _draw(console, str(table), attested)
    )
    return _EXIT_CODES[status]


def _worst(attested: Attested, snapshot_id: int | None) -> VerificationStatus:
    """The worst of the verdicts and of those that are open on the table, or on this snapshot."""
    found = {v.status for v in attested.verdicts}
    if attested.attestation is not None:
        open_verdicts = attested.attestation.open
        found |= {v.status for v in open_verdicts if snapshot_id in (None, v.snapshot_id)}
    worst = next((s for s in _WORST if s in found), None)
    if worst is not None:
        return worst
    return (
        VerificationStatus.CONSISTENT
        if VerificationStatus.CONSISTENT in found
        else VerificationStatus.ATTESTED
    )


def _draw(console: Console, table: str, attested: Attested) -> None:
    from rich.markup import escape

    from iceberg_maint.report.grid import write

    if not attested.verdicts:
        write(console, f"[bold]{escape(table)}[/]: no commit to attest since the last attestation")
    for verdict in attested.verdicts:
        colour = _COLOURS.get(verdict.status, "yellow")
        by = f" by {escape(verdict.maintainer)}" if verdict.maintainer and verdict.batch_id is None else ""
        head = f"[bold]{escape(table)}[/] snapshot {verdict.snapshot_id}{by}: [{colour}]{verdict.status}[/]"
        write(console, f"{head}: {escape(verdict.detail)}")
        for row in verdict.difference.sample if verdict.difference else ():
            verb = "lost" if row.is_lost else "brought back or doubled"
            times = "" if row.count == 1 else f" ({row.count} times)"
            write(console, f"  {verb}{times}: {escape(row.row[:_LONGEST_ROW])} in {escape(row.file)}", "    ")
        plan = _roll_back(attested, verdict)
        for number, step in enumerate(plan.steps if plan else (), 1):
            write(console, f"  {number}. {escape(step.text)}", "     ")
            if step.sql:
                write(console, f"     {escape(step.sql)}", "     ")
        if plan is not None:
            for what, option in (("the rows", "--snapshot"), ("the end of the verdict", "--accept")):
                text = command_line("attest", table, option, str(verdict.snapshot_id))
                write(console, f"  {what}: {escape(text)}", "     ")
    at = attested.attestation
    if at is not None and at.pending:
        write(console, f"{at.pending} commits wait for the next attestation")
    shown = {(v.snapshot_id, v.status) for v in attested.verdicts}
    for still in at.open if at is not None else ():
        if (still.snapshot_id, still.status) not in shown:
            write(console, f"open: snapshot {still.snapshot_id}: {still.status}: {escape(still.detail)}")


def _roll_back(attested: Attested, verdict: Verification) -> RollBack | None:
    if verdict.status is not VerificationStatus.RED or verdict.snapshot_id is None:
        return None
    return plan_roll_back(attested.state, verdict.snapshot_id)


def _document(table: str, status: VerificationStatus, attested: Attested) -> dict[str, Any]:
    at = attested.attestation
    return {
        "table": table,
        "status": status,
        "attested_to": None if at is None else at.snapshot_id,
        "pending": 0 if at is None else at.pending,
        "open": [] if at is None else [v.snapshot_id for v in at.open],
        "commits": [_commit(attested, v) for v in attested.verdicts],
    }


def _commit(attested: Attested, verdict: Verification) -> dict[str, Any]:
    plan = _roll_back(attested, verdict)
    return {
        "snapshot": verdict.snapshot_id,
        "parent": verdict.parent_id,
        "maintainer": verdict.maintainer,
        "batch_id": verdict.batch_id,
        "status": verdict.status,
        "detail": verdict.detail,
        "facts": list(verdict.facts),
        "hazards": list(verdict.hazards),
        "file_bytes": verdict.file_bytes,
        "compared": verdict.compared,
        "before": _side(verdict.before),
        "after": _side(verdict.after),
        "stored": verdict.stored,
        "difference": _difference(verdict.difference),
        "roll_back": None
        if plan is None
        else {
            "to_snapshot": plan.to_snapshot_id,
            "steps": [{"text": s.text, "sql": s.sql} for s in plan.steps],
            "kept": list(plan.kept),
            "repeated": list(plan.repeated),
            "dropped": list(plan.dropped),
        },
    }


def _difference(difference: Difference | None) -> dict[str, Any] | None:
    if difference is None:
        return None
    return {
        "lost": difference.lost,
        "gained": difference.gained,
        "sample": [
            {"row": r.row, "file": r.file, "count": r.count, "is_lost": r.is_lost} for r in difference.sample
        ],
    }


def _side(side: Side | None) -> dict[str, Any] | None:
    if side is None:
        return None
    return {
        "data_files": side.data_files,
        "delete_files": side.delete_files,
        "rows": side.fingerprint.rows,
        "fingerprint": side.fingerprint.text(),
    }
