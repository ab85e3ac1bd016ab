"""Commands that stop and continue maintenance: pause, resume, release."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

import click

from iceberg_maint.cli.command import command
from iceberg_maint.cli.context import Session, most_severe_exit, operator
from iceberg_maint.core.decisions.history import PartitionHistory
from iceberg_maint.core.model.ids import ALL_OPERATIONS, FLEET, Operation, PartitionKey, TableId
from iceberg_maint.errors import EXIT_DONE, IcebergMaintError, UnknownTableError

if TYPE_CHECKING:
    from iceberg_maint.loop.context import Context


@click.command()
@click.argument("name", metavar="[TABLE]", required=False)
@click.option("--note", default="", help="Cause of the pause, which every screen shows.")
@click.option("--by", default=None, help="Who pauses; the user and the machine without it.")
@command
def pause(session: Session, name: str | None, note: str, by: str | None) -> int:
    """Pause maintenance of TABLE; without TABLE, of the whole fleet. Running batches finish."""
    context = session.context()
    target = FLEET if name is None else str(context.catalogs.find(name))
    who = operator() if by is None else by
    context.ledger.registry.pause(target, note, who)
    session.emit(
        {"paused": target, "note": note, "by": who},
        lambda console: console.print(f"paused: {_name(target)}", markup=False),
    )
    return EXIT_DONE


@click.command()
@click.argument("name", metavar="[TABLE]", required=False)
@command
def resume(session: Session, name: str | None) -> int:
    """End the pause of TABLE; without TABLE, of the whole fleet.

    A table still waits while the whole fleet is paused.
    """
    context = session.context()
    target, table_uuid = FLEET, None
    if name is not None:
        table = context.catalogs.parse(name)
        target = str(table)
        with suppress(IcebergMaintError):
            # A pause can be ended while the catalog is unreachable, and after the table was dropped.
            table_uuid = context.catalogs[table.catalog].pin(table).uuid
    before = context.ledger.registry.pause_note(table_uuid or "", target)
    context.ledger.registry.resume(target, table_uuid)
    fleet_note = context.ledger.registry.pause_note(table_uuid or "", target)
    if fleet_note is not None:
        note = f": {fleet_note}" if fleet_note else ""
        message = (
            f"{target} has no pause of its own, but waits: the whole fleet is paused{note}. "
            "Fix: run 'iceberg-maint resume'."
        )
    elif before is None:
        message = f"{_name(target)} was not paused"
    else:
        message = f"resumed: {_name(target)}"
    session.emit(
        {"resumed": target, "was_paused": before is not None, "fleet_paused": fleet_note is not None},
        lambda console: console.print(message, markup=False),
    )
    return EXIT_DONE


@click.command()
@click.argument("name", metavar="[TABLE]", required=False)
@click.option(
    "--partition", "partitions", multiple=True, help="Only this partition of TABLE; may be repeated."
)
@command
def release(session: Session, name: str | None, partitions: tuple[str, ...]) -> int:
    """Release partitions from quarantine and back-off; without TABLE, those of the whole fleet."""
    from iceberg_maint.report.json_documents import error_document

    if partitions and name is None:
        raise click.UsageError("--partition needs a TABLE.")
    context = session.context()
    codes = {0}
    chosen = session.listing(context, codes).tables if name is None else (context.catalogs.find(name),)
    released: dict[str, list[PartitionKey]] = {}
    failed: list[dict[str, object]] = []
    for table in chosen:
        try:
            released[str(table)] = _release(context, table, frozenset(map(PartitionKey, partitions)))
        except IcebergMaintError as error:
            codes.add(error.exit_code)
            session.say_of(table, error)
            failed.append({"table": str(table), "error": error_document(error)})
    shown = [{"table": t, "partitions": keys} for t, keys in released.items() if keys or name is not None]
    lines = [f"released: {t} {key}" for t, keys in released.items() for key in keys]
    session.emit(
        {"released": [*shown, *failed]},
        lambda console: console.print(
            "\n".join(lines) or "no partition was quarantined or in back-off", markup=False
        ),
    )
    return most_severe_exit(codes)


def _release(context: Context, table: TableId, partitions: frozenset[PartitionKey]) -> list[PartitionKey]:
    """Clears the history of delayed partitions and returns their names. Raises UnknownTableError ICM-126 if a
    requested partition is not delayed."""
    uuid = context.catalogs[table.catalog].pin(table).uuid
    delayed = {o: _delayed(context, table, uuid, o) for o in ALL_OPERATIONS}
    all_delayed = sorted(frozenset().union(*delayed.values()))
    unknown = sorted(partitions - set(all_delayed))
    if unknown:
        near = ", ".join(all_delayed[:3]) or "none"
        raise UnknownTableError(
            "ICM-126",
            f"{table}: partition '{unknown[0]}' is not in quarantine or back-off.",
            f"name one of these: {near}.",
        )
    for operation, keys in delayed.items():
        if chosen := [k for k in keys if not partitions or k in partitions]:
            context.ledger.health.set_partition_history(
                uuid, operation, dict.fromkeys(chosen, PartitionHistory())
            )
    return [k for k in all_delayed if not partitions or k in partitions]


def _delayed(context: Context, table: TableId, uuid: str, operation: Operation) -> set[PartitionKey]:
    history = context.ledger.health.history(uuid, str(table), operation)
    return {k for k, h in history.partitions.items() if h != PartitionHistory()}


def _name(target: str) -> str:
    return "the whole fleet" if target == FLEET else target
