"""Commands on orphan files: scan, trash, sweep, restore."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

import click

from iceberg_maint.cli.command import Terminated, command, group, overrides_option, terminated_by_signals
from iceberg_maint.cli.context import Session, operator
from iceberg_maint.cli.orphan_trash import (
    check_mark,
    hold_lease,
    marks_of,
    new_run_id,
    orphan_scan,
    pinned,
    record_of,
    record_of_restore,
    trash_of,
)
from iceberg_maint.core.model.ids import Operation, TableId
from iceberg_maint.core.model.reasons import Reason
from iceberg_maint.core.outcomes.outcome import OutcomeStatus
from iceberg_maint.core.planning.work import RemoveOrphanFiles
from iceberg_maint.errors import (
    EXIT_DONE,
    EXIT_FAILED,
    EXIT_REFUSED,
    ConfigurationError,
    RefusedError,
    UnknownTableError,
)
from iceberg_maint.loop.maintain import Event, PlanReady, Request, maintain
from iceberg_maint.loop.record import append_record
from iceberg_maint.machine.files import private_opener
from iceberg_maint.removal.remove_orphans import Scope

if TYPE_CHECKING:
    from rich.console import Console

    from iceberg_maint.core.model.table_state import TableState
    from iceberg_maint.loop.context import Context
    from iceberg_maint.removal.removal_progress import TrashChange

_SHOWN = 20
_EXIT_CODES = {OutcomeStatus.FAILED: EXIT_FAILED, OutcomeStatus.UNSUPPORTED: EXIT_REFUSED}


@group
def orphans() -> None:
    """Orphan files: files in a table's location that no snapshot reaches.

    They are removed in two steps. trash moves them to the trash, a hidden folder of the table. sweep
    deletes them there after remove_orphan_files.delete_after_seconds. Both steps check every file again. restore moves
    files back.
    """


@orphans.command()
@click.argument("name", metavar="TABLE")
@click.option(
    "--output", type=click.Path(path_type=Path, dir_okay=False), help="File for all orphans, as JSON lines."
)
@overrides_option
@command
def scan(session: Session, name: str, output: Path | None, overrides: dict[str, str]) -> int:
    """Show the orphan files of TABLE. Moves no file."""
    from iceberg_maint.cli.pages.orphans_page import draw_scan, orphan_document, scan_document
    from iceberg_maint.core.removal.orphan_rules import summarize

    context = session.context(overrides)
    table = context.catalogs.find(name)
    state, policy = pinned(context, table)
    section = policy.remove_orphan_files
    in_flight = frozenset(
        f.path for a in context.ledger.work.open_attempts(state.uuid) for f in a.files or ()
    )
    # Opened before the scan, because the scan may take long.
    with (
        _opened(output) as lines,
        orphan_scan(session, table).scan(state, section, in_flight=in_flight) as result,
    ):
        summary = summarize(result.paths.orphans(), result.removal.target.prefixes, _SHOWN)
        if lines is not None:
            lines.writelines(json.dumps(orphan_document(o)) + "\n" for o in result.paths.orphans())
        document = scan_document(
            str(table),
            result.counts,
            summary,
            digest=result.digest,
            needs_approval=result.needs_approval,
            unlogged=result.unlogged,
        )
    session.emit(document, lambda console: draw_scan(console, document, summary, section.max_orphan_ratio))
    return EXIT_DONE


@orphans.command("list")
@click.argument("name", metavar="TABLE")
@overrides_option
@command
def list_(session: Session, name: str, overrides: dict[str, str]) -> int:
    """Show the trash of TABLE: orphan files, files of expired snapshots, and restored files."""
    from iceberg_maint.cli.pages.orphans_page import draw_marks, draw_releases

    context = session.context(overrides)
    table = context.catalogs.find(name)
    state, policy = pinned(context, table)
    removal = orphan_scan(session, table)
    marks = marks_of(removal, state, policy)
    stored = removal.stored_releases(state, policy.remove_orphan_files)
    releases = [{"release_id": r.release_id, "snapshots": len(r.snapshots)} for r in stored]

    def draw(console: Console) -> None:
        draw_marks(console, marks)
        draw_releases(console, releases)

    session.emit({"table": str(table), "trash": marks, "releases": releases}, draw)
    return EXIT_DONE


@orphans.command()
@click.argument("name", metavar="TABLE")
@click.option("--approve", metavar="DIGEST", help="Move exactly the orphans of the scan with this digest.")
@overrides_option
@command
def trash(session: Session, name: str, approve: str | None, overrides: dict[str, str]) -> int:
    """Move the orphan files of TABLE to the trash now."""
    return _remove(session, name, Scope(sweeps=False, approved=approve), overrides)


@orphans.command()
@click.argument("name", metavar="TABLE")
@click.option("--mark", "mark_id", metavar="ID", help="Only this mark; see list.")
@overrides_option
@command
def sweep(session: Session, name: str, mark_id: str | None, overrides: dict[str, str]) -> int:
    """Delete files that have been in the trash of TABLE for remove_orphan_files.delete_after_seconds."""
    check_mark(session, session.context().catalogs.find(name), mark_id, overrides)
    return _remove(session, name, Scope(marks=False, mark_id=mark_id), overrides)


@orphans.command()
@click.argument("name", metavar="TABLE")
@click.option("--mark", "mark_id", metavar="ID", help="Only this mark; see list.")
@overrides_option
@command
def restore(session: Session, name: str, mark_id: str | None, overrides: dict[str, str]) -> int:
    """Move the files in the trash of TABLE back to their paths. Replaces no file."""
    from iceberg_maint.cli.pages.console import draw_rows

    context = session.context(overrides)
    table = context.catalogs.find(name)
    check_mark(session, table, mark_id, overrides)
    state, policy = pinned(context, table)
    run_id = new_run_id()
    trash_changes: list[TrashChange] = []
    started_ms = context.clock.now_ms()
    try:
        with hold_lease(context, state, run_id) as lease, terminated_by_signals(lambda: None):
            try:
                orphan_scan(session, table).restore(
                    state,
                    policy.remove_orphan_files,
                    mark_id=mark_id,
                    holds=lambda: context.ledger.leases.holds(lease),
                    report=trash_changes.append,
                )
            finally:
                append_record(
                    record_of_restore(
                        state, policy, run_id, started_ms, context.clock.now_ms(), trash_changes
                    ),
                    context,
                )
    except (Terminated, KeyboardInterrupt) as why:
        return _terminated(session, why)
    shown = [
        {"mark_id": e.mark_id, "restored_files": e.restored_files, "left_files": e.left_files}
        for e in trash_changes
    ]
    trash = trash_of(session, table, overrides)

    def draw(console: Console) -> None:
        if not shown:
            console.print("the trash has no file to restore")
            return
        draw_rows(console, ["mark", "restored", "still in the trash"], [list(e.values()) for e in shown])

    session.emit({"run_id": run_id, "table": str(table), "restored": shown, "trash": trash}, draw)
    return EXIT_FAILED if any(e.left_files for e in trash_changes) else EXIT_DONE


@orphans.command()
@click.argument("name", metavar="TABLE")
@click.argument("table_uuid", metavar="UUID")
@click.option("--note", default="", help="Why; the record keeps it.")
@command
def adopt(session: Session, name: str, table_uuid: str, note: str) -> int:
    """State that the table with UUID was dropped and that its files in the location of TABLE are orphans.

    Scans of TABLE then no longer refuse its metadata files (ICM-111). They remove its data files as orphans.
    """
    context = session.context()
    table = context.catalogs.find(name)
    state, policy = pinned(context, table)
    _check_dropped(context, state, table_uuid)
    run_id, started_ms = new_run_id(), context.clock.now_ms()
    with hold_lease(context, state, run_id):
        context.ledger.leases.adopt_table(table_uuid, str(table))
        suffix = f": {note}" if note else ""
        message = f"{operator()} adopted the files of the dropped table with uuid {table_uuid}{suffix}"
        times = started_ms, context.clock.now_ms()
        append_record(record_of(state, policy, run_id, times, OutcomeStatus.NO_OP, message), context)
    document = {"run_id": run_id, "table": str(table), "adopted": table_uuid, "note": note}
    session.emit(document, lambda console: console.print(message, markup=False))
    return EXIT_DONE


def _check_dropped(context: Context, state: TableState, table_uuid: str) -> None:
    """Raises UnknownTableError ICM-126 for a text that is no UUID, RefusedError ICM-111 for a table that exists."""
    try:
        is_uuid = str(uuid.UUID(table_uuid)) == table_uuid.lower()
    except ValueError:
        is_uuid = False
    if not is_uuid:
        raise UnknownTableError(
            "ICM-126",
            f"'{table_uuid}' is no UUID of a table.",
            "name the UUID that the refusal ICM-111 names.",
        )
    former = context.ledger.leases.last_leased_name(table_uuid)
    found = {str(state.table): state.uuid}
    if former is not None and TableId.parse(former).catalog in context.catalogs:
        with suppress(UnknownTableError):
            found[former] = context.catalogs.pin(TableId.parse(former)).uuid
    if exists := next((name for name, owner in found.items() if owner == table_uuid), None):
        raise RefusedError(
            "ICM-111",
            f"{exists} has the UUID {table_uuid}, so that table was not dropped.",
            "name the UUID of a dropped table.",
        )


def _remove(session: Session, name: str, scope: Scope, overrides: dict[str, str]) -> int:
    """Runs one orphan scan through `maintain`, with lease, outcome and record."""
    from iceberg_maint.cli.pages.console import draw_outcome
    from iceberg_maint.cli.pages.orphans_page import draw_marks
    from iceberg_maint.report.json_documents import outcome_document
    from iceberg_maint.wiring.adapters import end_process

    context = session.context(overrides)
    table = context.catalogs.find(name)
    storage = replace(context.storage, orphan_files=lambda table: orphan_scan(session, table, scope))
    context = replace(context, storage=storage).ended_by(end_process)
    request = Request(
        new_run_id(),
        force=True,
        operations=(Operation.REMOVE_ORPHAN_FILES,),
        started_by=f"command line, {operator()}",
    )
    plans: list[PlanReady] = []

    def observe(event: Event) -> None:
        if isinstance(event, PlanReady):
            plans.append(event)

    try:
        with terminated_by_signals(lambda: None, end_process):
            [outcome] = maintain(table, request, context, observe)
    except (Terminated, KeyboardInterrupt) as why:
        return _terminated(session, why)
    waits = not scope.marks and any(
        b.work == RemoveOrphanFiles(sweep=False) for p in plans for b in p.plan.batches
    )
    if waits:
        session.say(
            f"{table}: the sweep waits until the table's snapshots have expired. Fix: run expire_snapshots first."
        )
    if message := next((b.message for b in outcome.batches if b.message), outcome.message):
        session.say_of(table, message)
    marks = trash_of(session, table, overrides)

    def draw(console: Console) -> None:
        draw_outcome(console, outcome)
        draw_marks(console, marks)

    session.emit(
        {
            "run_id": request.run_id,
            "table": str(table),
            "operation": outcome_document(outcome),
            "waits_for": Operation.EXPIRE_SNAPSHOTS.value if waits else None,
            "trash": marks,
        },
        draw,
    )
    refused = outcome.reason is Reason.LEASE_HELD
    return EXIT_REFUSED if refused else _EXIT_CODES.get(outcome.outcome, EXIT_DONE)


def _terminated(session: Session, why: BaseException) -> int:
    """Reports the end by a signal, and returns the exit code."""
    message = f"terminated by {str(why) or 'SIGINT'}: every file is at its path or in the trash."
    return session.fail(None, message, "run again.", f"{message} Fix: run again.")


@contextmanager
def _opened(output: Path | None) -> Iterator[TextIO | None]:
    if output is None:
        yield None
        return
    try:
        file = open(output, "w", encoding="utf-8", opener=private_opener)  # noqa: SIM115 - takes no opener
    except OSError as why:
        raise ConfigurationError(
            "ICM-100", f"--output {output} cannot be written: {why.strerror}.", "name another file."
        ) from why
    with file:
        yield file
