"""The command `verify`: proves a commit again."""

from __future__ import annotations

from typing import Any

import click

from iceberg_maint.cli.context import Session, command
from iceberg_maint.core.outcomes.verification import Side, Verification, VerificationStatus, find_commit
from iceberg_maint.errors import EXIT_DONE, EXIT_FAILED, EXIT_REFUSED

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
    runtime = session.runtime()
    table = runtime.find(name)
    commit = find_commit(runtime.catalogs[table.catalog].pin(table), snapshot_id)
    verdict = commit if isinstance(commit, Verification) else runtime.spark.verifier().verify(commit)

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
