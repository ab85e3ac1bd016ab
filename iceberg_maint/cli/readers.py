"""The commands `readers`: register readers of a table's changes, so that expiry waits for them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from iceberg_maint.cli.command import command, group
from iceberg_maint.cli.context import Session
from iceberg_maint.core.decisions.spark_checkpoint import committed_batch, snapshots_of
from iceberg_maint.core.model.table_state import TableState
from iceberg_maint.errors import EXIT_DONE, ConfigurationError, UnknownTableError

if TYPE_CHECKING:
    from iceberg_maint.loop.context import Context


@group
def readers() -> None:
    """Readers of a table's changes. Snapshots that a reader still needs do not expire."""


@readers.command("list")
@click.argument("name", metavar="TABLE")
@command
def list_(session: Session, name: str) -> int:
    """Show the registered readers of TABLE."""
    from iceberg_maint.report.formatting import moment

    context = session.context()
    state = _pinned(context, name)
    known = context.ledger.registry.readers(state.uuid)
    shown = [{"reader": r.name, "snapshot": r.snapshot_id, "seen_ms": r.seen_ms} for r in known]
    lines = [f"{r.name}: has read snapshot {r.snapshot_id}, reported at {moment(r.seen_ms)}" for r in known]
    session.emit(
        {"table": str(state.table), "readers": shown}, lambda console: _print(console, lines or ["none"])
    )
    return EXIT_DONE


@readers.command("set")
@click.argument("name", metavar="TABLE")
@click.argument("reader")
@click.option("--snapshot", type=int, help="Id of the last snapshot read; default: the current snapshot.")
@click.option(
    "--checkpoint",
    type=click.Path(file_okay=False, path_type=Path),
    help="Folder of the checkpoint of a Structured Streaming query; it names the snapshot.",
)
@command
def set_(session: Session, name: str, reader: str, snapshot: int | None, checkpoint: Path | None) -> int:
    """Register READER of TABLE, or the snapshot that it read last."""
    if snapshot is not None and checkpoint is not None:
        raise click.UsageError("--snapshot and --checkpoint exclude each other.")
    if not reader.strip() or not reader.isprintable():
        # Other characters could forge a log line or hide a reader.
        raise ConfigurationError(
            "ICM-100",
            f"{reader!r} is no name of a reader. A name must have printable characters only, and at least one.",
            "choose another name.",
        )
    context = session.context()
    state = _pinned(context, name)
    if checkpoint is not None:
        snapshot = _read_until(checkpoint, state)
    head = state.snapshot.snapshot_id if state.snapshot is not None else None
    at = head if snapshot is None else snapshot
    if at is None or state.snapshot_by_id(at) is None:
        raise UnknownTableError(
            "ICM-126",
            f"{state.table} has no snapshot {at}.",
            "name a snapshot of the table.",
        )
    context.ledger.registry.put_reader(state.uuid, reader, at)
    document = {"table": str(state.table), "reader": reader, "snapshot": at}
    session.emit(document, lambda console: _print(console, [f"{reader} has read snapshot {at}"]))
    return EXIT_DONE


@readers.command("remove")
@click.argument("name", metavar="TABLE")
@click.argument("reader")
@command
def remove(session: Session, name: str, reader: str) -> int:
    """Remove READER of TABLE. Its snapshots may then expire."""
    context = session.context()
    state = _pinned(context, name)
    if not context.ledger.registry.remove_reader(state.uuid, reader):
        known = ", ".join(r.name for r in context.ledger.registry.readers(state.uuid)) or "none"
        raise UnknownTableError(
            "ICM-126", f"{state.table} has no reader '{reader}'.", f"name one of these: {known}."
        )
    document = {"table": str(state.table), "reader": reader}
    session.emit(document, lambda console: _print(console, [f"{reader} is removed"]))
    return EXIT_DONE


def _read_until(checkpoint: Path, state: TableState) -> int:
    """The oldest of the table's snapshots up to which the query has read. Raises ConfigurationError ICM-100 for a folder without a finished
    batch, UnknownTableError ICM-126 if the batch names no snapshot that the table still has."""
    folder = checkpoint / "commits"
    batch = committed_batch(file.name for file in folder.glob("*")) if folder.is_dir() else None
    if batch is None:
        raise ConfigurationError(
            "ICM-100",
            f"{checkpoint} is no checkpoint of a query that has finished a batch.",
            "name the folder of the query's checkpointLocation on this machine, or give --snapshot.",
        )
    offsets = checkpoint / "offsets" / str(batch)
    named = snapshots_of(offsets.read_text("utf-8") if offsets.is_file() else "")
    known = [s for s in map(state.snapshot_by_id, named) if s is not None]
    if not known:
        raise UnknownTableError(
            "ICM-126",
            f"{state.table} has none of the snapshots {list(named)} of batch {batch} in {checkpoint}.",
            "name the checkpoint of a query that reads the table; if its snapshot has expired, the query needs a new one.",
        )
    return min(known, key=lambda s: s.sequence_number).snapshot_id


def _pinned(context: Context, name: str) -> TableState:
    table = context.catalogs.find(name)
    return context.catalogs[table.catalog].pin(table)


def _print(console: Any, lines: list[str]) -> None:
    console.print("\n".join(lines), markup=False)
