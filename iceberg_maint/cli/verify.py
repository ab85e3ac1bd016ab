"""The command `verify`: proves a commit again."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from iceberg_maint.cli.context import Session, command
from iceberg_maint.core.decisions.history import PartitionHistory
from iceberg_maint.core.model.ids import VERIFYING, WHOLE_TABLE
from iceberg_maint.core.outcomes.verification import Side, Verification, VerificationStatus, find_commit
from iceberg_maint.errors import EXIT_DONE, EXIT_FAILED, EXIT_REFUSED, RefusedError

if TYPE_CHECKING:
    from iceberg_maint.loop.context import Context

_EXIT_CODES = {
    VerificationStatus.PROVED: EXIT_DONE,
    VerificationStatus.DIFFERENT: EXIT_FAILED,
    VerificationStatus.UNPROVABLE: EXIT_REFUSED,
    VerificationStatus.NOT_OURS: EXIT_REFUSED,
}
_COLOURS = {VerificationStatus.PROVED: "green", VerificationStatus.DIFFERENT: "red"}


@click.command()
@click.argument("name", metavar="TABLE")
@click.option(
    "--snapshot",
    "snapshot_id",
    type=int,
    help="Snapshot to prove; default: the newest snapshot of this program.",
)
@command
def verify(session: Session, name: str, snapshot_id: int | None) -> int:
    """Prove again that a maintenance commit of TABLE changed no row, from the files that it removed
    and added.
    """
    from iceberg_maint.loop.assess import assess

    context = session.context()
    table = context.catalogs.find(name)
    commit = find_commit(assess(table, context).state, snapshot_id)
    if isinstance(commit, Verification):
        verdict = commit
    else:
        uuid = commit.table_uuid
        try:
            verdict = context.engine.spark.verifier().verify(commit)
        except RefusedError as why:
            if why.code == "ICM-101":
                _keep(context, uuid, PartitionHistory(reason=context.process.masked(str(why))))
            raise
        if verdict.status is VerificationStatus.PROVED:
            _keep(context, uuid, PartitionHistory())

    def draw(console: Any) -> None:
        from rich.markup import escape

        from iceberg_maint.report.grid import write

        colour = _COLOURS.get(verdict.status, "yellow")
        snapshot = "" if verdict.snapshot_id is None else f" snapshot {verdict.snapshot_id}"
        write(
            console,
            f"[bold]{escape(verdict.table)}[/]{snapshot}: [{colour}]{verdict.status}[/]: {escape(verdict.detail)}",
        )

    session.emit(_document(verdict), draw)
    return _EXIT_CODES[verdict.status]


def _keep(context: Context, table_uuid: str, finding: PartitionHistory) -> None:
    """Stores a damaged file that a verification met, which the verdict on the table shows until a proof succeeds."""
    context.ledger.health.set_partition_history(table_uuid, VERIFYING, {WHOLE_TABLE: finding})


def _document(verdict: Verification) -> dict[str, Any]:
    return {
        "table": verdict.table,
        "snapshot": verdict.snapshot_id,
        "parent": verdict.parent_id,
        "batch_id": verdict.batch_id,
        "status": verdict.status,
        "detail": verdict.detail,
        "compared": verdict.compared,
        "before": _side(verdict.before),
        "after": _side(verdict.after),
        "stored": verdict.stored,
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
